/* SPDX-License-Identifier: MIT */
/* Requests that mapped pages serve as they lie: which region is taken, and which neighbours become
 * one. */
#include "scene.h"

static vpmm_fence pending(void)
{
    return world_fence(&w, 0);
}

static void freed_neighbours_serve_one_request_together(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 20, 1);
    uint64_t b = world_malloc(&w, 20, 1);
    uint64_t c = world_malloc(&w, 20, 1);
    world_free(&w, b, VPMM_FENCE_NONE);
    world_free(&w, a, VPMM_FENCE_NONE);
    world_free(&w, c, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[-60]");
    assert_int_equal(world_malloc(&w, 60, 1), a);
    assert_int_equal(world_totals(&w).held_pages, 60);
}

static void a_free_merges_with_the_neighbour_before_after_and_both(void **state)
{
    (void)state;
    uint64_t p[5];
    for (int i = 0; i < 5; i++)
        p[i] = world_malloc(&w, 2, 1);
    world_free(&w, p[0], VPMM_FENCE_NONE);
    world_free(&w, p[1], VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[-4][2][2][2]");
    world_free(&w, p[4], VPMM_FENCE_NONE);
    world_free(&w, p[3], VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[-4][2][-4]");
    world_free(&w, p[2], VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[-10]");
}

static void complete_neighbours_of_two_streams_serve_without_a_move(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 4, 1);
    uint64_t b = world_malloc(&w, 4, 2);
    vpmm_fence fence_a = world_fence(&w, 1);
    vpmm_fence fence_b = world_fence(&w, 2);
    world_free(&w, a, fence_a);
    world_free(&w, b, fence_b);
    assert_string_equal(world_layout(&w), "[-4][-4]");
    world_complete(&w, fence_a);
    world_complete(&w, fence_b);
    world_settle(&w);
    assert_string_equal(world_layout(&w), "[-8]");
    assert_int_equal(world_malloc(&w, 8, 3), a);
    assert_int_equal(world_totals(&w).moved_pages, 0);
}

static void a_fresh_free_leaves_its_complete_neighbour_complete(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 8, 1);
    uint64_t b = world_malloc(&w, 1, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    world_free(&w, b, pending());
    assert_string_equal(world_layout(&w), "[-8][-1]");
    assert_int_equal(world_malloc(&w, 8, 0), a);
}

static void pending_neighbours_merge_only_when_they_hold_the_same_fence(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 2, 1);
    uint64_t b = world_malloc(&w, 2, 1);
    uint64_t c = world_malloc(&w, 2, 1);
    vpmm_fence fence = pending();
    world_free(&w, a, fence);
    world_free(&w, b, fence);
    world_free(&w, c, pending());
    assert_string_equal(world_layout(&w), "[-4][-2]");
    world_complete(&w, fence);
    world_settle(&w);
    assert_string_equal(world_layout(&w), "[-4][-2]");
}

static void the_rest_of_a_split_keeps_its_fence_and_its_age(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 6, 1);
    uint64_t b = world_malloc(&w, 1, 1);
    uint64_t c = world_malloc(&w, 9, 1);
    vpmm_fence fence_a = world_fence(&w, 1);
    vpmm_fence fence_c = world_fence(&w, 1);
    world_free(&w, a, fence_a);
    world_free(&w, c, fence_c);
    assert_int_equal(world_malloc(&w, 2, 1), a);
    struct vpmm_region_view rest;
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, a + 2), &rest), VPMM_OK);
    assert_int_equal(rest.state, VPMM_REGION_FREE);
    assert_int_equal(rest.pages, 4);
    assert_int_equal(rest.fence, fence_a);
    vpmm_fence oldest[4];
    assert_int_equal(vpmm_pool_pending(w.pool, NULL, NULL, oldest, 4), 2);
    assert_int_equal(oldest[0], fence_a);
    assert_int_equal(oldest[1], fence_c);
    assert_int_equal(vpmm_pool_pending(w.pool, NULL, NULL, oldest, 1), 1);
    (void)b;
}

static void a_merged_region_is_as_old_as_its_oldest_part(void **state)
{
    (void)state;
    uint64_t p[3];
    for (int i = 0; i < 3; i++)
        p[i] = world_malloc(&w, 2, 1);
    vpmm_fence shared = pending();
    vpmm_fence other = pending();
    world_free(&w, p[1], shared);
    world_free(&w, p[2], other);
    world_free(&w, p[0], shared);
    assert_string_equal(world_layout(&w), "[-4][-2]");
    vpmm_fence oldest[4];
    assert_int_equal(vpmm_pool_pending(w.pool, NULL, NULL, oldest, 4), 2);
    assert_int_equal(oldest[0], shared);
}

static void an_exact_complete_fit_beats_a_larger_one_of_the_own_stream(void **state)
{
    (void)state;
    uint64_t own = world_malloc(&w, 20, 1);
    uint64_t wall = world_malloc(&w, 1, 1);
    uint64_t foreign = world_malloc(&w, 2, 2);
    uint64_t wall_2 = world_malloc(&w, 1, 1);
    world_free(&w, own, world_fence(&w, 1));
    world_free(&w, foreign, VPMM_FENCE_NONE);
    assert_int_equal(world_malloc(&w, 2, 1), foreign);
    assert_string_equal(world_layout(&w), "[-20][1][2][1]");
    (void)wall;
    (void)wall_2;
}

static void the_smallest_ordered_region_beats_a_larger_complete_one(void **state)
{
    (void)state;
    uint64_t large = world_malloc(&w, 20, 1);
    world_malloc(&w, 1, 1);
    uint64_t small = world_malloc(&w, 3, 1);
    world_malloc(&w, 1, 1);
    uint64_t foreign = world_malloc(&w, 2, 2);
    world_malloc(&w, 1, 1);
    world_free(&w, large, VPMM_FENCE_NONE);
    world_free(&w, small, world_fence(&w, 1));
    world_free(&w, foreign, world_fence(&w, 2));
    assert_int_equal(world_malloc(&w, 2, 1), small);
    struct vpmm_region_view live;
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, small), &live), VPMM_OK);
    assert_int_equal(live.fence, 1);
    assert_int_equal(world_malloc(&w, 2, 3), large);
    assert_int_equal(world_malloc(&w, 2, 2), foreign);
}

static void of_equal_sizes_the_own_one_then_the_lowest(void **state)
{
    (void)state;
    uint64_t low = world_malloc(&w, 3, 1);
    world_malloc(&w, 1, 1);
    uint64_t ordered = world_malloc(&w, 3, 1);
    world_malloc(&w, 1, 1);
    uint64_t high = world_malloc(&w, 3, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, ordered, world_fence(&w, 1));
    world_free(&w, high, VPMM_FENCE_NONE);
    world_free(&w, low, VPMM_FENCE_NONE);
    assert_int_equal(world_malloc(&w, 3, 1), ordered);
    assert_int_equal(world_malloc(&w, 3, 1), low);
    assert_int_equal(world_malloc(&w, 3, 1), high);
}

static void pending_pages_of_others_are_not_given_away(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 4, 1);
    world_free(&w, a, world_fence(&w, 1));
    assert_int_equal(world_malloc(&w, 4, 2), 4);
    assert_int_equal(world_totals(&w).moved_pages, 0);
    assert_int_equal(world_malloc(&w, 4, 0), 8);
    assert_int_equal(world_malloc(&w, 4, 1), a);
}

static void a_run_of_usable_neighbours_serves_without_a_move(void **state)
{
    (void)state;
    uint64_t p[4];
    for (int i = 0; i < 4; i++)
        p[i] = world_malloc(&w, 3, 1);
    vpmm_fence fences[4];
    for (int i = 0; i < 4; i++)
        world_free(&w, p[i], i == 2 ? VPMM_FENCE_NONE : (fences[i] = world_fence(&w, 1)));
    assert_int_equal(world_malloc(&w, 10, 1), p[0]);
    assert_string_equal(world_layout(&w), "[10][-2]");
    assert_int_equal(world_totals(&w).moved_pages, 0);
    struct vpmm_region_view live;
    struct vpmm_region_view rest;
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, 0), &live), VPMM_OK);
    world_complete(&w, fences[0]);
    world_complete(&w, fences[1]);
    assert_false(world_is_complete(&w, live.fence));
    world_complete(&w, fences[3]);
    assert_true(world_is_complete(&w, live.fence));
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, 10), &rest), VPMM_OK);
    assert_int_equal(rest.fence, fences[3]);
}

static void a_fit_over_two_regions_waits_for_both(void **state)
{
    (void)state;
    uint64_t low = world_malloc(&w, 4, 1);
    uint64_t high = world_malloc(&w, 4, 1);
    vpmm_fence first = world_fence(&w, 1);
    vpmm_fence last = world_fence(&w, 1);
    world_free(&w, low, first);
    world_free(&w, high, last);
    struct vpmm_want want = world_want(&w, 6, 1);
    struct vpmm_region_view live;
    struct vpmm_region_view rest;
    uint64_t address;
    assert_int_equal(vpmm_pool_fit(w.pool, &want, &address), VPMM_OK);
    assert_int_equal(address, world_address(&w, low));
    assert_string_equal(world_layout(&w), "[6][-2]");
    assert_int_equal(vpmm_pool_find(w.pool, address, &live), VPMM_OK);
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, 6), &rest), VPMM_OK);
    assert_int_equal(rest.fence, last);
    world_complete(&w, last);
    assert_false(world_is_complete(&w, live.fence));
    world_complete(&w, first);
    assert_true(world_is_complete(&w, live.fence));
}

static void a_neat_fit_takes_all_or_a_quarter_at_most(void **state)
{
    (void)state;
    uint64_t free = world_malloc(&w, 8, 1);
    world_free(&w, free, VPMM_FENCE_NONE);
    for (uint64_t pages = 1; pages <= 8; pages++) {
        struct vpmm_want want = world_want(&w, pages, 1);
        uint64_t address;
        want.is_neat = true;
        if (pages > 2 && pages < 8) {
            assert_int_equal(vpmm_pool_fit(w.pool, &want, &address), VPMM_NOT_FOUND);
            continue;
        }
        assert_int_equal(vpmm_pool_fit(w.pool, &want, &address), VPMM_OK);
        world_free(&w, free, VPMM_FENCE_NONE);
        assert_string_equal(world_layout(&w), "[-8]");
    }
}

static void a_neat_fit_is_no_run(void **state)
{
    (void)state;
    uint64_t low = world_malloc(&w, 4, 1);
    uint64_t high = world_malloc(&w, 4, 1);
    world_free(&w, low, world_fence(&w, 1));
    world_free(&w, high, world_fence(&w, 1));
    struct vpmm_want want = world_want(&w, 8, 1);
    uint64_t address;
    want.is_neat = true;
    assert_int_equal(vpmm_pool_fit(w.pool, &want, &address), VPMM_NOT_FOUND);
    want.is_neat = false;
    assert_int_equal(vpmm_pool_fit(w.pool, &want, &address), VPMM_OK);
}

/* Three fences of one stream are not complete, and the fourth is. */
static void who_has_waited_settles_all(void **state)
{
    (void)state;
    vpmm_fence fences[4];
    uint64_t pages[4];
    for (int i = 0; i < 4; i++) {
        pages[i] = world_malloc(&w, 2, 1);
        fences[i] = world_fence(&w, 1);
    }
    for (int i = 0; i < 4; i++)
        world_free(&w, pages[i], fences[i]);
    world_complete(&w, fences[3]);
    vpmm_fence oldest[4];
    w.stream = 0;
    vpmm_pool_settle(w.pool, &w.view);
    assert_int_equal(vpmm_pool_pending(w.pool, NULL, NULL, oldest, 4), 4);
    vpmm_pool_settle_all(w.pool, &w.view);
    assert_int_equal(vpmm_pool_pending(w.pool, NULL, NULL, oldest, 4), 3);
    world_check(&w);
}

static void a_join_without_memory_fails_before_any_change(void **state)
{
    (void)state;
    uint64_t p[4];
    for (int i = 0; i < 4; i++)
        p[i] = world_malloc(&w, 3, 1);
    for (int i = 0; i < 4; i++)
        if (i != 2)
            world_free(&w, p[i], world_fence(&w, 1));
    w.joins_fail = true;
    uint64_t page;
    assert_int_equal(world_try(&w, 6, 1, UINT64_MAX, NULL, &page), VPMM_NO_METADATA);
    assert_int_equal(world_try(&w, 9, 1, UINT64_MAX, NULL, &page), VPMM_NO_METADATA);
    assert_string_equal(world_layout(&w), "[-3][-3][3][-3]");
    w.joins_fail = false;
    assert_int_equal(world_try(&w, 6, 1, UINT64_MAX, NULL, &page), VPMM_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(freed_neighbours_serve_one_request_together),
        TEST(a_free_merges_with_the_neighbour_before_after_and_both),
        TEST(complete_neighbours_of_two_streams_serve_without_a_move),
        TEST(a_fresh_free_leaves_its_complete_neighbour_complete),
        TEST(pending_neighbours_merge_only_when_they_hold_the_same_fence),
        TEST(the_rest_of_a_split_keeps_its_fence_and_its_age),
        TEST(a_merged_region_is_as_old_as_its_oldest_part),
        TEST(an_exact_complete_fit_beats_a_larger_one_of_the_own_stream),
        TEST(the_smallest_ordered_region_beats_a_larger_complete_one),
        TEST(of_equal_sizes_the_own_one_then_the_lowest),
        TEST(pending_pages_of_others_are_not_given_away),
        TEST(a_run_of_usable_neighbours_serves_without_a_move),
        TEST(a_fit_over_two_regions_waits_for_both),
        TEST(a_neat_fit_takes_all_or_a_quarter_at_most),
        TEST(a_neat_fit_is_no_run),
        TEST(who_has_waited_settles_all),
        TEST(a_join_without_memory_fails_before_any_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
