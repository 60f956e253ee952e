/* SPDX-License-Identifier: MIT */
/* Regions that are exported: which can be, what a free of them sees, and which extents show them.
 */
#include "world.h"

#include "pool/pool_internal.h"

#define PAGE ((uint64_t)2 << 20)

static struct world w;

static int setup(void **state)
{
    (void)state;
    world_init(&w, PAGE, 4, 64);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_check(&w);
    world_finish(&w);
    return 0;
}

static struct vpmm_region_view view_of(uint64_t page)
{
    struct vpmm_region_view view;
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, page), &view), VPMM_OK);
    return view;
}

static bool export(uint64_t page, uint64_t owner_id)
{
    return vpmm_pool_export(w.pool, world_address(&w, page), owner_id);
}

static void only_a_live_region_of_that_owner_is_exported(void **state)
{
    (void)state;
    w.owner_id = 5;
    uint64_t page = world_malloc(&w, 3, 1);
    uint64_t id = view_of(page).owner.id;
    assert_false(export(page + 1, id));
    assert_false(export(page, id + 1));
    assert_false(vpmm_pool_export(w.pool, 4096, id));
    assert_false(view_of(page).is_exported);
    assert_true(export(page, id));
    assert_true(export(page, id));
    assert_true(view_of(page).is_exported);
    world_free(&w, page, VPMM_FENCE_NONE);
    assert_false(export(page, id));
    assert_false(view_of(page).is_exported);
    assert_int_equal(world_malloc(&w, 3, 1), page);
    assert_false(view_of(page).is_exported);
}

/* Who looked before cannot cache it afterwards; the claim tells. */
static void an_exported_region_is_claimed_and_not_cached(void **state)
{
    (void)state;
    static struct vpmm_pool_share share;
    struct vpmm_live live, again;
    struct vpmm_region_view view;
    uint64_t page = world_malloc(&w, 2, 1);
    uint64_t address = world_address(&w, page);
    vpmm_pool_add_share(w.pool, &share);
    assert_true(vpmm_pool_look_live(w.pool, address, &live));
    assert_true(export(page, view_of(page).owner.id));
    assert_false(vpmm_pool_cache(w.pool, &live, VPMM_FENCE_NONE, 1, &share));
    assert_false(vpmm_pool_look_live(w.pool, address, &again));
    assert_int_equal(vpmm_pool_live_bytes(w.pool, address), view_of(page).owner.bytes);
    assert_int_equal(vpmm_pool_claim(w.pool, address, &view), VPMM_OK);
    assert_true(view.is_exported);
    assert_true(view_of(page).is_exported);
    vpmm_pool_free(w.pool, address, VPMM_FENCE_NONE, 0);
    assert_false(view_of(page).is_exported);
}

/* The first extent begins before the region, and the last ends behind it. */
static void extents_show_the_region(void **state)
{
    (void)state;
    struct vpmm_shown_extent all[16], one;
    uint64_t first = world_malloc(&w, 16, 1);
    world_free(&w, first, VPMM_FENCE_NONE);
    uint64_t low = world_malloc(&w, 1, 1);
    uint64_t page = world_malloc(&w, 10, 1);
    assert_int_equal(page, low + 1);
    uint64_t address = world_address(&w, page);
    size_t n = vpmm_pool_shown_extents(w.pool, address, address, all, 16);
    assert_in_range(n, 3, 10);
    assert_int_equal(all[0].address, world_address(&w, low));
    for (size_t i = 1; i < n; i++)
        assert_int_equal(all[i].address, all[i - 1].address + all[i - 1].pages * PAGE);
    assert_true(all[n - 1].address < address + 10 * PAGE);
    assert_true(all[n - 1].address + all[n - 1].pages * PAGE >= address + 10 * PAGE);
    for (size_t i = 0; i < n; i++) {
        uint64_t from = i ? all[i].address : address;
        assert_int_equal(vpmm_pool_shown_extents(w.pool, address, from, &one, 1), 1);
        assert_int_equal(one.handle, all[i].handle);
        assert_int_equal(one.address, all[i].address);
        assert_int_equal(one.pages, all[i].pages);
    }
    assert_int_equal(vpmm_pool_shown_extents(w.pool, address, address - 1, all, 16), 0);
    assert_int_equal(vpmm_pool_shown_extents(w.pool, address, address + 10 * PAGE, all, 16), 0);
    assert_int_equal(vpmm_pool_shown_extents(w.pool, address + PAGE, address + PAGE, all, 16), 0);
}

/* What an importer of the region could read besides. */
static void what_shares_the_extents_is_told(void **state)
{
    (void)state;
    uint64_t first = world_malloc(&w, 16, 1);
    uint64_t apart = world_malloc(&w, 3, 1);
    world_free(&w, first, VPMM_FENCE_NONE);
    uint64_t low = world_malloc(&w, 1, 1);
    uint64_t page = world_malloc(&w, 10, 1);
    assert_int_equal(vpmm_pool_shared_pages(w.pool, world_address(&w, apart)), 0);
    assert_int_equal(vpmm_pool_shared_pages(w.pool, world_address(&w, low)), 3);
    assert_int_equal(vpmm_pool_shared_pages(w.pool, world_address(&w, page)), 2);
    assert_int_equal(vpmm_pool_shared_pages(w.pool, 4096), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_a_live_region_of_that_owner_is_exported),
        TEST(an_exported_region_is_claimed_and_not_cached),
        TEST(extents_show_the_region),
        TEST(what_shares_the_extents_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
