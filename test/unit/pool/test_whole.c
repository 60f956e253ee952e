/* SPDX-License-Identifier: MIT */
/* Requests for extents of their own: what serves them begins and ends where extents do, and nothing
 * else ever lies in those. */
#include "world.h"

#include "pool/pool_internal.h"

#define PAGE ((uint64_t)2 << 20)

static struct world w;

static int set_up(void **state)
{
    (void)state;
    world_init(&w, PAGE, 0, 1024);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_check(&w);
    world_finish(&w);
    return 0;
}

static uint64_t malloc_whole(uint64_t pages)
{
    w.is_whole = true;
    uint64_t page = world_malloc(&w, pages, 0);
    w.is_whole = false;
    assert_int_equal(vpmm_pool_shared_pages(w.pool, world_address(&w, page)), 0);
    return page;
}

static uint64_t held(void)
{
    return world_totals(&w).held_pages;
}

/* One extent of 16 pages is free: a part of it is for requests that share. */
static void a_part_of_an_extent_does_not_serve(void **state)
{
    (void)state;
    world_free(&w, world_malloc(&w, 16, 0), VPMM_FENCE_NONE);
    assert_int_equal(held(), 16);
    uint64_t page = malloc_whole(5);
    assert_int_equal(held(), 21);
    assert_int_equal(world_malloc(&w, 11, 0), 0);
    world_free(&w, page, VPMM_FENCE_NONE);
    assert_int_equal(malloc_whole(5), page);
    assert_int_equal(held(), 21);
}

/* 7 pages are extents of 4, 2 and 1. */
static void whole_extents_within_a_region_serve(void **state)
{
    (void)state;
    uint64_t page = malloc_whole(7);
    world_free(&w, page, VPMM_FENCE_NONE);
    assert_int_equal(malloc_whole(4), page);
    assert_int_equal(malloc_whole(3), page + 4);
    assert_int_equal(held(), 7);
    world_free(&w, page, VPMM_FENCE_NONE);
    world_free(&w, page + 4, VPMM_FENCE_NONE);
    assert_int_equal(malloc_whole(1), page + 6);
    assert_int_equal(malloc_whole(6), page);
    assert_int_equal(held(), 7);
}

/* Extents of 4 and 1 that lie apart are moved side by side, and the one of 16 stays. */
static void whole_extents_are_moved(void **state)
{
    (void)state;
    uint64_t a = malloc_whole(4), b = world_malloc(&w, 16, 0), c = malloc_whole(1);
    uint64_t d = world_malloc(&w, 1, 0);
    for (unsigned i = 0; i < 3; i++)
        world_free(&w, i == 0 ? a : i == 1 ? b : c, VPMM_FENCE_NONE);
    uint64_t before = held();
    (void)malloc_whole(5);
    assert_int_equal(held(), before);
    assert_int_equal(world_totals(&w).created_pages, before);
    (void)d;
}

/* What an old address shows is taken as a whole, or not at all. */
static void an_old_address_is_revived_as_it_was(void **state)
{
    (void)state;
    uint64_t a = malloc_whole(4), b = world_malloc(&w, 1, 0), c = malloc_whole(4);
    world_free(&w, a, VPMM_FENCE_NONE);
    world_free(&w, c, VPMM_FENCE_NONE);
    uint64_t both = malloc_whole(8);
    world_free(&w, both, VPMM_FENCE_NONE);
    assert_int_equal(malloc_whole(4), both);
    assert_int_equal(malloc_whole(4), both + 4);
    world_free(&w, both, VPMM_FENCE_NONE);
    world_free(&w, both + 4, VPMM_FENCE_NONE);
    uint64_t before = held();
    (void)malloc_whole(3);
    assert_int_equal(held(), before + 3);
    (void)b;
}

/* The mark goes with the region from one owner of a front cache to the next, and ends with it. */
static void a_cached_region_stays_whole(void **state)
{
    (void)state;
    static struct vpmm_pool_share share;
    struct vpmm_live live;
    struct vpmm_region_view view;
    const struct vpmm_owner owner = {.bytes = 3 * PAGE, .id = 8};
    vpmm_pool_add_share(w.pool, &share);
    uint64_t address = world_address(&w, malloc_whole(3));
    for (unsigned i = 0; i < 2; i++) {
        assert_true(vpmm_pool_look_live(w.pool, address, &live));
        assert_true(vpmm_pool_cache(w.pool, &live, VPMM_FENCE_NONE, 0, &share));
        assert_true(vpmm_pool_cached_is_whole(w.pool, live.number));
        (void)vpmm_pool_uncache(w.pool, live.number, &owner, &share);
        assert_int_equal(vpmm_pool_find(w.pool, address, &view), VPMM_OK);
        assert_true(view.owner.is_whole);
    }
    world_free(&w, world_page(&w, address), VPMM_FENCE_NONE);
    assert_int_equal(world_malloc(&w, 3, 0), world_page(&w, address));
    assert_int_equal(vpmm_pool_find(w.pool, address, &view), VPMM_OK);
    assert_false(view.owner.is_whole);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_part_of_an_extent_does_not_serve),
        TEST(whole_extents_within_a_region_serve),
        TEST(whole_extents_are_moved),
        TEST(an_old_address_is_revived_as_it_was),
        TEST(a_cached_region_stays_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
