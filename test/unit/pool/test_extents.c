/* SPDX-License-Identifier: MIT */
/* Extents of several pages: who must wait for whom, what moves whole, and what is given back. */
#include "scene.h"

/* A world of extents of up to 4 pages. */
static void use_extents_of_4(void)
{
    struct vpmm_pool_params params = {2 * MIB, 4, 1 << 18, 0};
    vpmm_pool_destroy(w.pool);
    assert_int_equal(vpmm_pool_create(&params, &w.memory, &w.pool), VPMM_OK);
    world_add_root(&w, 0, 256);
}

static void an_extent_waits_for_the_fences_of_all_its_last_owners(void **state)
{
    (void)state;
    use_extents_of_4();
    uint64_t a = world_malloc(&w, 16, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    uint64_t low = world_malloc(&w, 6, 1);
    uint64_t high = world_malloc(&w, 10, 1);
    world_malloc(&w, 1, 1);
    assert_int_equal(low, 0);
    assert_int_equal(high, 6);
    vpmm_fence fence_low = world_fence(&w, 1);
    vpmm_fence fence_high = world_fence(&w, 2);
    world_free(&w, low, fence_low);
    world_free(&w, high, fence_high);

    uint64_t page;
    assert_int_equal(world_try(&w, 12, 1, 7, NULL, &page), VPMM_NOT_FOUND);
    assert_int_equal(world_try(&w, 12, 1, 8, NULL, &page), VPMM_OK);
    assert_string_equal(world_layout(&w), "[z4][-2][-10][1][12]");
    world_complete(&w, fence_high);
    world_malloc(&w, 13, 1);
    assert_string_equal(world_layout(&w), "[z4][z4][z8][1][12][13]");

    uint64_t cursor = 0;
    struct vpmm_region_view zombies[3];
    for (int i = 0; i < 3; i++)
        assert_true(vpmm_pool_next(w.pool, &cursor, &zombies[i]));
    assert_int_equal(zombies[0].fence, fence_low);
    assert_int_equal(zombies[1].fence, fence_low);
    assert_int_equal(zombies[2].fence, VPMM_FENCE_NONE);
}

static void the_zombie_of_a_shared_extent_waits_for_both_fences(void **state)
{
    (void)state;
    use_extents_of_4();
    uint64_t a = world_malloc(&w, 16, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    uint64_t low = world_malloc(&w, 6, 1);
    uint64_t high = world_malloc(&w, 10, 1);
    world_malloc(&w, 1, 1);
    vpmm_fence fences[2] = {world_fence(&w, 1), world_fence(&w, 1)};
    world_free(&w, low, fences[0]);
    world_free(&w, high, fences[1]);
    world_malloc(&w, 20, 1);
    assert_string_equal(world_layout(&w), "[z4][z4][z8][1][20]");
    struct vpmm_region_view shared;
    struct vpmm_region_view live;
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, 5), &shared), VPMM_OK);
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, 17), &live), VPMM_OK);
    world_complete(&w, fences[1]);
    assert_false(world_is_complete(&w, shared.fence));
    assert_false(world_is_complete(&w, live.fence));
    assert_int_equal(world_reap(&w, true), 1);
    world_complete(&w, fences[0]);
    assert_true(world_is_complete(&w, live.fence));
    assert_int_equal(world_reap(&w, true), 1);
    assert_string_equal(world_layout(&w), "[*16][1][20]");
}

static void a_partly_live_extent_does_not_move(void **state)
{
    (void)state;
    use_extents_of_4();
    uint64_t a = world_malloc(&w, 16, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    world_malloc(&w, 2, 1);
    assert_string_equal(world_layout(&w), "[2][-14][1]");
    world_malloc(&w, 15, 1);
    assert_string_equal(world_layout(&w), "[2][-2][z12][1][15]");
    assert_int_equal(world_totals(&w).held_pages, 20);
}

/* A stream that has waited may have what others freed, as far as that is in order by now: the first
 * half of the first extent. */
static void an_extent_half_pending_does_not_move(void **state)
{
    (void)state;
    use_extents_of_4();
    uint64_t a = world_malloc(&w, 16, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    uint64_t low = world_malloc(&w, 2, 1);
    uint64_t high = world_malloc(&w, 14, 2);
    world_malloc(&w, 1, 1);
    vpmm_fence fence = world_fence(&w, 2);
    world_free(&w, low, VPMM_FENCE_NONE);
    world_free(&w, high, fence);
    assert_string_equal(world_layout(&w), "[-2][-14][1]");
    struct vpmm_want want = world_want(&w, 4, 1);
    struct vpmm_plan *plan;
    uint64_t page;
    want.asks_all = true;
    want.create_pages_max = 0;
    assert_int_equal(vpmm_pool_plan(w.pool, &want, &plan), VPMM_NOT_FOUND);
    world_complete(&w, fence);
    assert_int_equal(world_try(&w, 16, 1, 0, NULL, &page), VPMM_OK);
    assert_int_equal(page, low);
}

/* When its pages were last looked at, all of it was free; and its first half still is. */
static void an_extent_half_live_does_not_move(void **state)
{
    (void)state;
    use_extents_of_4();
    uint64_t a = world_malloc(&w, 16, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    uint64_t low = world_malloc(&w, 2, 1);
    uint64_t high = world_malloc(&w, 14, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, low, world_fence(&w, 1));
    world_free(&w, high, VPMM_FENCE_NONE);
    uint64_t page;
    assert_int_equal(world_try(&w, 20, 3, 0, NULL, &page), VPMM_NOT_FOUND);
    assert_int_equal(world_malloc(&w, 2, 3), high);
    assert_string_equal(world_layout(&w), "[-2][2][-12][1]");
    assert_int_equal(world_try(&w, 14, 1, 1, NULL, &page), VPMM_NOT_FOUND);
    assert_int_equal(world_try(&w, 14, 1, 2, NULL, &page), VPMM_OK);
    assert_string_equal(world_layout(&w), "[-2][2][z12][1][14]");
}

static void what_an_extent_has_too_much_stays_free(void **state)
{
    (void)state;
    use_extents_of_4();
    uint64_t a = world_malloc(&w, 16, 1);
    world_malloc(&w, 1, 1);
    vpmm_fence fence = world_fence(&w, 1);
    world_free(&w, a, fence);
    uint64_t b = world_malloc(&w, 1, 1);
    assert_int_equal(b, 0);
    world_malloc(&w, 3, 1);
    assert_int_equal(world_try(&w, 12, 1, 0, NULL, &b), VPMM_OK);
    assert_string_equal(world_layout(&w), "[1][3][12][1]");
    world_free(&w, b, VPMM_FENCE_NONE);
    world_malloc(&w, 2, 2);
    assert_string_equal(world_layout(&w), "[1][3][-12][1][2]");
    world_complete(&w, fence);
    world_settle(&w);
    assert_int_equal(world_try(&w, 2, 1, 0, NULL, &b), VPMM_OK);
    assert_int_equal(world_try(&w, 4, 1, 0, NULL, &b), VPMM_OK);
    assert_int_equal(b, 6);
    assert_int_equal(world_try(&w, 1, 1, 0, NULL, &b), VPMM_OK);
}

static void an_excess_waits_for_what_its_extent_left(void **state)
{
    (void)state;
    use_extents_of_4();
    uint64_t a = world_malloc(&w, 16, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    uint64_t p[4];
    for (int i = 0; i < 4; i++)
        p[i] = world_malloc(&w, 4, 1);
    vpmm_fence fences[2] = {world_fence(&w, 1), world_fence(&w, 1)};
    world_free(&w, p[0], fences[0]);
    world_free(&w, p[2], fences[1]);
    uint64_t page;
    assert_int_equal(world_try(&w, 6, 1, 0, NULL, &page), VPMM_OK);
    assert_string_equal(world_layout(&w), "[z4][4][z4][4][1][6][-2]");
    struct vpmm_region_view rest;
    struct vpmm_region_view live;
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, page + 6), &rest), VPMM_OK);
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, page), &live), VPMM_OK);
    assert_true(rest.fence == fences[0] || rest.fence == fences[1]);
    world_complete(&w, rest.fence);
    assert_false(world_is_complete(&w, live.fence));
}

static void an_excess_without_room_is_left_alone(void **state)
{
    (void)state;
    struct vpmm_pool_params params = {2 * MIB, 4, 1 << 18, 0};
    vpmm_pool_destroy(w.pool);
    assert_int_equal(vpmm_pool_create(&params, &w.memory, &w.pool), VPMM_OK);
    world_add_root(&w, 0, 17);
    uint64_t a = world_malloc(&w, 16, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    uint64_t p[4];
    for (int i = 0; i < 4; i++)
        p[i] = world_malloc(&w, 4, 1);
    world_free(&w, p[0], VPMM_FENCE_NONE);
    world_free(&w, p[2], VPMM_FENCE_NONE);
    uint64_t page;
    assert_int_equal(world_try(&w, 5, 1, 0, NULL, &page), VPMM_NO_SPACE);
    world_add_root(&w, 17, 6);
    assert_int_equal(world_try(&w, 5, 1, 0, NULL, &page), VPMM_NOT_FOUND);
    assert_int_equal(world_try(&w, 5, 1, 1, NULL, &page), VPMM_OK);
    assert_string_equal(world_layout(&w), "[z4][4][-4][4][1][5]");
}

static void trim_takes_whole_complete_extents_largest_runs_first(void **state)
{
    (void)state;
    use_extents_of_4();
    uint64_t a = world_malloc(&w, 16, 1);
    world_malloc(&w, 1, 1);
    uint64_t b = world_malloc(&w, 16, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    world_free(&w, b, VPMM_FENCE_NONE);
    world_malloc(&w, 1, 1);
    assert_string_equal(world_layout(&w), "[1][-15][1][-16][1]");
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 28);
    assert_int_equal(world_largest_run(&w), 16);
    assert_int_equal(world_trim(&w, 5, true), 8);
    assert_string_equal(world_layout(&w), "[1][-15][1][*8][-8][1]");
    assert_int_equal(world_trim(&w, 3, false), 4);
    assert_string_equal(world_layout(&w), "[1][-15][1][*8][-8][1]");
    assert_int_equal(world_trim(&w, 1000, true), 20);
    assert_string_equal(world_layout(&w), "[1][-3][*12][1][*16][1]");
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 0);
    assert_int_equal(world_totals(&w).released_pages, 28);
    assert_int_equal(world_totals(&w).held_pages, 6);
}

static void an_extent_cut_by_the_end_of_a_free_region_stays(void **state)
{
    (void)state;
    use_extents_of_4();
    uint64_t a = world_malloc(&w, 16, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    uint64_t low = world_malloc(&w, 6, 1);
    world_malloc(&w, 9, 1);
    world_free(&w, low, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[-6][9][-1]");
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 4);
    assert_int_equal(world_trim(&w, 100, true), 4);
    assert_string_equal(world_layout(&w), "[*4][-2][9][-1]");
}

static void trim_leaves_pending_and_aliased_extents(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 4, 1);
    world_malloc(&w, 1, 1);
    vpmm_fence fence = world_fence(&w, 1);
    world_free(&w, a, fence);
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 0);
    uint64_t b = world_malloc(&w, 5, 1);
    assert_string_equal(world_layout(&w), "[z4][1][5]");
    world_free(&w, b, VPMM_FENCE_NONE);
    world_complete(&w, fence);
    world_settle(&w);
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 5);
    assert_int_equal(world_trim(&w, 100, true), 1);
    assert_int_equal(world_reap(&w, true), 1);
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 4);
    assert_int_equal(world_trim(&w, 100, true), 4);
    assert_string_equal(world_layout(&w), "[*4][1]");
}

static void trim_without_metadata_takes_fewer(void **state)
{
    (void)state;
    uint64_t used = 0;
    uint64_t first = world_malloc(&w, 3, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, first, VPMM_FENCE_NONE);
    w.maps_left = 0;
    struct vpmm_removal removals[4];
    size_t n = vpmm_pool_take_extents(w.pool, 3, UINT64_MAX, removals, 4);
    assert_in_range(n, 1, 3);
    for (size_t i = 0; i < n; i++) {
        vpmm_pool_removal_done(w.pool, &removals[i], VPMM_KEPT);
        used += removals[i].pages;
    }
    world_check(&w);
    assert_int_equal(used, n);
    assert_string_equal(world_layout(&w), "[-3][1]");
}

/* Of 1 GiB each, and the last one partly from what is free at the end. */
static void a_row_of_large_blocks_is_cut_once_from_the_fifth_on(void **state)
{
    (void)state;
    static struct world large;
    world_init(&large, 2 * MIB, 0, 8192);
    world_malloc(&large, 512, 1);
    assert_int_equal(world_totals(&large).extents, 2);
    for (int i = 0; i < 3; i++)
        world_malloc(&large, 512, 1);
    assert_int_equal(world_totals(&large).extents, 2 + 3 * 16);
    world_malloc(&large, 512, 1);
    assert_int_equal(world_totals(&large).extents, 2 + 3 * 16 + 2);
    world_free(&large, world_malloc(&large, 16, 1), VPMM_FENCE_NONE);
    world_malloc(&large, 512, 1);
    assert_int_equal(world_totals(&large).extents, 2 + 3 * 16 + 2 + 1 + 4);
    assert_int_equal(world_totals(&large).held_pages, 6 * 512 + 16);
    world_finish(&large);
}

static void an_abandoned_plan_is_no_part_of_a_row(void **state)
{
    (void)state;
    static const struct world_trouble trouble = {true, 1, false};
    static struct world large;
    uint64_t page;
    world_init(&large, 2 * MIB, 0, 8192);
    world_malloc(&large, 512, 1);
    for (int i = 0; i < 4; i++)
        (void)world_try(&large, 512, 1, UINT64_MAX, &trouble, &page);
    for (int i = 0; i < 3; i++)
        world_malloc(&large, 512, 1);
    assert_int_equal(world_totals(&large).extents, 2 + 3 * 16);
    world_malloc(&large, 512, 1);
    assert_int_equal(world_totals(&large).extents, 2 + 3 * 16 + 2);
    world_finish(&large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_extent_waits_for_the_fences_of_all_its_last_owners),
        TEST(the_zombie_of_a_shared_extent_waits_for_both_fences),
        TEST(a_partly_live_extent_does_not_move),
        TEST(an_extent_half_pending_does_not_move),
        TEST(an_extent_half_live_does_not_move),
        TEST(what_an_extent_has_too_much_stays_free),
        TEST(an_excess_waits_for_what_its_extent_left),
        TEST(an_excess_without_room_is_left_alone),
        TEST(trim_takes_whole_complete_extents_largest_runs_first),
        TEST(an_extent_cut_by_the_end_of_a_free_region_stays),
        TEST(trim_leaves_pending_and_aliased_extents),
        TEST(trim_without_metadata_takes_fewer),
        cmocka_unit_test(a_row_of_large_blocks_is_cut_once_from_the_fifth_on),
        cmocka_unit_test(an_abandoned_plan_is_no_part_of_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
