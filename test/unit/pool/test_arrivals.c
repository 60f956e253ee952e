/* SPDX-License-Identifier: MIT */
/* Free regions that are in no tree yet: most are taken again before anybody searches. */
#include "world.h"

#include "pool/pool_internal.h"

#define PAGE ((uint64_t)2 << 20)
#define STREAM 7

static struct world w;

static int set_up(void **state)
{
    (void)state;
    world_init(&w, PAGE, 1, 512);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_check(&w);
    world_finish(&w);
    return 0;
}

static uint32_t in_trees(void)
{
    return w.pool->complete.top | w.pool->pending.top | w.pool->waiting_regions.tree.top;
}

static void what_is_taken_again_enters_no_tree(void **state)
{
    (void)state;
    uint64_t page = world_malloc(&w, 8, STREAM);
    world_free(&w, page, world_fence(&w, STREAM));
    assert_int_equal(world_serve_at(&w, page, 5, STREAM), VPMM_OK);
    assert_int_equal(w.pool->n_arrivals, 1);
    world_free(&w, page, world_fence(&w, STREAM));
    assert_int_equal(w.pool->n_arrivals, 2);
    assert_int_equal(in_trees(), 0);
    assert_null(vpmm_pool_audit(w.pool));
    assert_int_equal(world_malloc(&w, 5, STREAM), page);
}

static void every_search_finds_what_has_arrived(void **state)
{
    (void)state;
    uint64_t page = world_malloc(&w, 8, STREAM);
    vpmm_fence fence = world_fence(&w, STREAM), oldest;
    struct vpmm_want want = world_want(&w, 8, STREAM);
    uint64_t address;
    world_free(&w, page, fence);
    assert_int_equal(vpmm_pool_pending(w.pool, NULL, NULL, &oldest, 1), 1);
    assert_int_equal(oldest, fence);
    assert_int_equal(vpmm_pool_fit(w.pool, &want, &address), VPMM_OK);
    world_free(&w, page, fence);
    world_complete(&w, fence);
    world_settle(&w);
    assert_int_equal(world_totals(&w).waiting_pages, 0);
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 8);
    assert_int_equal(world_malloc(&w, 8, STREAM), page);
    world_free(&w, page, VPMM_FENCE_NONE);
    assert_int_equal(world_trim(&w, 8, true), 8);
}

static void so_many_wait_and_no_more(void **state)
{
    (void)state;
    uint64_t pages[2 * VPMM_ARRIVALS_MAX + 2];
    for (size_t i = 0; i < 2 * VPMM_ARRIVALS_MAX + 2; i++)
        pages[i] = world_malloc(&w, 1, STREAM);
    for (size_t i = 0; i < VPMM_ARRIVALS_MAX; i++)
        world_free(&w, pages[2 * i], VPMM_FENCE_NONE);
    assert_int_equal(w.pool->n_arrivals, VPMM_ARRIVALS_MAX);
    assert_int_equal(in_trees(), 0);
    world_free(&w, pages[2 * VPMM_ARRIVALS_MAX], VPMM_FENCE_NONE);
    assert_int_equal(w.pool->n_arrivals, 1);
    assert_true(in_trees() != 0);
    assert_null(vpmm_pool_audit(w.pool));
}

/* The hole comes after the neighbour at its left became free, and before that enters a tree. */
static void a_hole_that_comes_beside_an_arrival_is_seen(void **state)
{
    (void)state;
    struct vpmm_removal removals[4];
    uint64_t page = world_malloc(&w, 4, STREAM);
    uint64_t right = world_malloc(&w, 2, STREAM);
    (void)world_malloc(&w, 1, STREAM);
    world_free(&w, right, VPMM_FENCE_NONE);
    assert_int_equal(vpmm_pool_take_extents(w.pool, 2, UINT64_MAX, removals, 4), 2);
    world_free(&w, page, world_fence(&w, STREAM));
    for (size_t i = 0; i < 2; i++) {
        world_unmap(&w, removals[i].address, removals[i].pages);
        vpmm_pool_removal_done(w.pool, &removals[i], VPMM_REMOVED);
        assert_null(vpmm_pool_audit(w.pool));
    }
    assert_string_equal(world_layout(&w), "[-4][*2][1]");
    assert_int_equal(world_malloc(&w, 6, STREAM), page);
    assert_int_equal(world_totals(&w).moved_pages, 0);
}

static void the_audit_misses_no_arrival(void **state)
{
    (void)state;
    uint64_t page = world_malloc(&w, 4, STREAM);
    world_free(&w, page, VPMM_FENCE_NONE);
    w.pool->n_arrivals = 0;
    assert_string_equal(vpmm_pool_audit(w.pool), "an arrival is in no list");
    w.pool->n_arrivals = 1;
    struct vpmm_region *region = vpmm_region_record(w.pool, w.pool->arrivals[0]);
    region->size_node.left = 1;
    assert_string_equal(vpmm_pool_audit(w.pool), "an arrival does not know its place");
    region->size_node.left = 0;
    region->is_arrival = 0;
    assert_string_equal(vpmm_pool_audit(w.pool),
                        "the running totals of extents are not the sums over them");
    region->is_arrival = 1;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_taken_again_enters_no_tree), TEST(every_search_finds_what_has_arrived),
        TEST(so_many_wait_and_no_more),           TEST(a_hole_that_comes_beside_an_arrival_is_seen),
        TEST(the_audit_misses_no_arrival),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
