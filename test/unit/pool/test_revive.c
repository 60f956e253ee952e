/* SPDX-License-Identifier: MIT */
/* Requests that are served at an old address, which still shows what they need. */
#include "world.h"

#define MIB ((uint64_t)1 << 20)

static struct world w;

static void use_extents_of(uint64_t pages)
{
    world_init(&w, 2 * MIB, pages, 256);
}

static int set_up(void **state)
{
    (void)state;
    use_extents_of(1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_finish(&w);
    return 0;
}

static struct vpmm_region_view at(uint64_t page)
{
    struct vpmm_region_view region;
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, page), &region), VPMM_OK);
    return region;
}

/* As world_malloc, but only at an old address. */
static enum vpmm_status revive(uint64_t pages, uint64_t stream, uint64_t *page_out)
{
    struct vpmm_want want = world_want(&w, pages, stream);
    uint64_t address;
    enum vpmm_status status = vpmm_pool_revive(w.pool, &want, &address);
    world_check(&w);
    if (status)
        return status;
    world_check_owner(&w, address, pages, stream);
    *page_out = world_page(&w, address);
    return VPMM_OK;
}

/* Two regions of 4 and 3 pages, freed with fences, became one of 7: [z4][1][z3][1][7]. */
static uint64_t stitch(vpmm_fence fence_a, vpmm_fence fence_b)
{
    uint64_t a = world_malloc(&w, 4, 1);
    world_malloc(&w, 1, 1);
    uint64_t b = world_malloc(&w, 3, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, a, fence_a);
    world_free(&w, b, fence_b);
    uint64_t page = world_malloc(&w, 7, 1);
    assert_string_equal(world_layout(&w), "[z4][1][z3][1][7]");
    return page;
}

static void a_layout_that_recurs_moves_nothing(void **state)
{
    (void)state;
    uint64_t large = stitch(VPMM_FENCE_NONE, VPMM_FENCE_NONE);
    uint64_t moved_pages = world_totals(&w).moved_pages;
    for (int i = 0; i < 3; i++) {
        uint64_t page;
        world_free(&w, large, VPMM_FENCE_NONE);
        assert_int_equal(revive(4, 1, &page), VPMM_OK);
        assert_int_equal(page, 0);
        assert_string_equal(world_layout(&w), "[4][1][z3][1][-3][z4]");
        assert_int_equal(revive(3, 1, &page), VPMM_OK);
        assert_int_equal(page, 5);
        assert_string_equal(world_layout(&w), "[4][1][3][1][z3][z4]");
        world_free(&w, 0, VPMM_FENCE_NONE);
        world_free(&w, 5, VPMM_FENCE_NONE);
        assert_int_equal(revive(7, 1, &large), VPMM_OK);
        assert_int_equal(large, 9);
        assert_string_equal(world_layout(&w), "[z4][1][z3][1][7]");
    }
    assert_int_equal(world_totals(&w).moved_pages, moved_pages);
    assert_int_equal(world_totals(&w).held_pages, 9);
    assert_int_equal(world_totals(&w).mappings, 16);
}

static void what_is_free_as_it_lies_comes_first(void **state)
{
    (void)state;
    uint64_t large = stitch(VPMM_FENCE_NONE, VPMM_FENCE_NONE);
    world_free(&w, large, VPMM_FENCE_NONE);
    assert_int_equal(world_malloc(&w, 4, 1), large);
    assert_string_equal(world_layout(&w), "[z4][1][z3][1][4][-3]");
    world_malloc(&w, 3, 1);
    uint64_t page = 0;
    assert_int_equal(revive(4, 1, &page), VPMM_NOT_FOUND);
}

static void one_extent_in_use_keeps_a_zombie_from_life(void **state)
{
    (void)state;
    uint64_t large = stitch(VPMM_FENCE_NONE, VPMM_FENCE_NONE);
    uint64_t page = 0;
    assert_int_equal(revive(4, 1, &page), VPMM_NOT_FOUND);
    world_free(&w, large, VPMM_FENCE_NONE);
    assert_int_equal(world_malloc(&w, 4, 1), large);
    assert_int_equal(revive(4, 1, &page), VPMM_NOT_FOUND);
    assert_int_equal(revive(3, 1, &page), VPMM_NOT_FOUND);
    assert_string_equal(world_layout(&w), "[z4][1][z3][1][4][-3]");
    world_free(&w, large, VPMM_FENCE_NONE);
    assert_int_equal(revive(4, 1, &page), VPMM_OK);
}

static void the_low_end_of_a_zombie_may_do(void **state)
{
    (void)state;
    uint64_t large = stitch(VPMM_FENCE_NONE, VPMM_FENCE_NONE);
    world_free(&w, large, VPMM_FENCE_NONE);
    uint64_t page = 0;
    assert_int_equal(revive(2, 1, &page), VPMM_OK);
    assert_int_equal(page, 5);
    assert_string_equal(world_layout(&w), "[z4][1][2][z1][1][z2][-5]");
    assert_int_equal(revive(3, 1, &page), VPMM_OK);
    assert_int_equal(page, 0);
    assert_string_equal(world_layout(&w), "[3][z1][1][2][z1][1][z2][-1][z3][-1]");
}

static void an_extent_comes_home_as_a_whole(void **state)
{
    (void)state;
    world_finish(&w);
    use_extents_of(4);
    world_malloc(&w, 16, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, 0, VPMM_FENCE_NONE);
    uint64_t large = world_malloc(&w, 20, 1);
    vpmm_fence fence = world_fence(&w, 1);
    world_free(&w, large, fence);
    uint64_t page = large;
    assert_string_equal(world_layout(&w), "[z16][1][-20]");
    assert_int_equal(revive(6, 1, &page), VPMM_OK);
    assert_string_equal(world_layout(&w), "[6][-2][z8][1][z8][-12]");
    for (uint64_t i = 0; i < 8; i += 2)
        assert_int_equal(at(i).fence, fence);
    assert_int_equal(at(large).fence, fence);
    assert_int_equal(world_reap(&w, true), 1);
    world_complete(&w, fence);
    world_settle(&w);
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 12);
    world_free(&w, page, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[-8][*8][1][z8][-12]");
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 20);
}

static void a_zombie_and_what_is_free_beside_it_become_one(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 8, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    world_malloc(&w, 2, 1);
    world_malloc(&w, 2, 1);
    assert_string_equal(world_layout(&w), "[2][2][-4][1]");
    uint64_t b = world_malloc(&w, 5, 1);
    assert_string_equal(world_layout(&w), "[2][2][z4][1][5]");
    world_free(&w, 0, VPMM_FENCE_NONE);
    world_free(&w, 2, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[-4][z4][1][5]");
    uint64_t page = 0;
    assert_int_equal(revive(8, 1, &page), VPMM_NOT_FOUND);
    world_free(&w, b, VPMM_FENCE_NONE);
    assert_int_equal(revive(8, 1, &page), VPMM_OK);
    assert_int_equal(page, 0);
    assert_string_equal(world_layout(&w), "[8][1][z4][-1]");
}

static void what_a_range_shows_twice_does_not_live_in_it_twice(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 4, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    uint64_t b = world_malloc(&w, 5, 1);
    assert_string_equal(world_layout(&w), "[z4][1][5]");
    world_free(&w, 4, VPMM_FENCE_NONE);
    world_free(&w, b, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[z4][-6]");
    uint64_t page = 0;
    assert_int_equal(revive(9, 1, &page), VPMM_NOT_FOUND);
    assert_int_equal(revive(6, 1, &page), VPMM_NOT_FOUND);
    assert_int_equal(revive(5, 1, &page), VPMM_OK);
    assert_string_equal(world_layout(&w), "[5][z4][-1]");
}

/* The first page of the first zombie is the first of the second one, too: [z2][z2] shows three. */
static void two_zombies_of_one_extent_are_not_one_range(void **state)
{
    (void)state;
    uint64_t page = 0;
    uint64_t a = world_malloc(&w, 2, 1);
    uint64_t b = world_malloc(&w, 2, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, b, VPMM_FENCE_NONE);
    world_malloc(&w, 3, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    uint64_t c = world_malloc(&w, 3, 1);
    world_malloc(&w, 1, 1);
    struct vpmm_removal removal;
    assert_int_equal(vpmm_pool_take_zombies(w.pool, &w.view, &removal, 1), 1);
    world_unmap(&w, removal.address, removal.pages);
    vpmm_pool_removal_done(w.pool, &removal, VPMM_REMOVED);
    assert_string_equal(world_layout(&w), "[z2][*2][1][3][3][1]");
    world_free(&w, c, VPMM_FENCE_NONE);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(world_malloc(&w, 1, 1), c + i);
    world_free(&w, c, VPMM_FENCE_NONE);
    world_free(&w, c + 2, VPMM_FENCE_NONE);
    assert_int_equal(world_malloc(&w, 2, 1), b);
    assert_string_equal(world_layout(&w), "[z2][2][1][3][z1][1][z1][1]");
    world_free(&w, b, VPMM_FENCE_NONE);
    world_free(&w, c + 1, VPMM_FENCE_NONE);
    uint64_t d = world_malloc(&w, 3, 1);
    assert_string_equal(world_layout(&w), "[z2][z2][1][3][3][1]");
    world_free(&w, d, VPMM_FENCE_NONE);
    assert_int_equal(revive(4, 1, &page), VPMM_NOT_FOUND);
    assert_int_equal(revive(2, 1, &page), VPMM_OK);
}

/* The extents' present fence: in order for the stream that freed them, not for another one. */
static void pending_pages_of_another_stream_do_not_come_home(void **state)
{
    (void)state;
    uint64_t large = stitch(VPMM_FENCE_NONE, VPMM_FENCE_NONE);
    vpmm_fence fence = world_fence(&w, 1);
    world_free(&w, large, fence);
    uint64_t page = 0;
    assert_int_equal(revive(4, 2, &page), VPMM_NOT_FOUND);
    assert_int_equal(revive(4, 0, &page), VPMM_NOT_FOUND);
    assert_int_equal(revive(4, 1, &page), VPMM_OK);
    assert_int_equal(at(page).fence, fence);
    assert_string_equal(world_layout(&w), "[4][1][z3][1][-3][z4]");
    assert_int_equal(at(12).fence, fence);
    assert_int_equal(world_reap(&w, true), 1);
    world_complete(&w, fence);
    world_settle(&w);
    assert_int_equal(world_reap(&w, true), 1);
}

/* The zombie's own fence, though its extents are complete where they are now. */
static void a_zombie_waits_for_its_own_last_users(void **state)
{
    (void)state;
    vpmm_fence fence = world_fence(&w, 1);
    uint64_t large = stitch(fence, VPMM_FENCE_NONE);
    struct vpmm_region_view region;
    assert_int_equal(vpmm_pool_claim(w.pool, world_address(&w, large), &region), VPMM_OK);
    vpmm_pool_free(w.pool, region.address, VPMM_FENCE_NONE, 0);
    uint64_t page = 0;
    assert_int_equal(revive(4, 2, &page), VPMM_NOT_FOUND);
    assert_int_equal(revive(4, 0, &page), VPMM_NOT_FOUND);
    assert_int_equal(revive(4, 1, &page), VPMM_OK);
    assert_int_equal(page, 0);
    assert_int_equal(at(page).fence, fence);
}

static void the_new_owner_comes_after_all_old_ones(void **state)
{
    (void)state;
    vpmm_fence old = world_fence(&w, 1);
    uint64_t large = stitch(old, VPMM_FENCE_NONE);
    vpmm_fence young = world_fence(&w, 1);
    struct vpmm_region_view region;
    assert_int_equal(vpmm_pool_claim(w.pool, world_address(&w, large), &region), VPMM_OK);
    vpmm_pool_free(w.pool, region.address, young, 1);
    uint64_t page = 0;
    assert_int_equal(revive(4, 1, &page), VPMM_OK);
    vpmm_fence joined = at(page).fence;
    world_complete(&w, old);
    assert_false(world_is_complete(&w, joined));
    world_complete(&w, young);
    assert_true(world_is_complete(&w, joined));
}

static void a_join_without_memory_changes_nothing(void **state)
{
    (void)state;
    vpmm_fence old = world_fence(&w, 1);
    uint64_t large = stitch(old, VPMM_FENCE_NONE);
    struct vpmm_region_view region;
    assert_int_equal(vpmm_pool_claim(w.pool, world_address(&w, large), &region), VPMM_OK);
    vpmm_pool_free(w.pool, region.address, world_fence(&w, 1), 1);
    w.joins_fail = true;
    uint64_t page = 0;
    assert_int_equal(revive(4, 1, &page), VPMM_NO_METADATA);
    assert_string_equal(world_layout(&w), "[z4][1][z3][1][-7]");
    w.joins_fail = false;
    assert_int_equal(revive(4, 1, &page), VPMM_OK);
}

static void two_zombies_of_one_extent_take_turns(void **state)
{
    (void)state;
    uint64_t large = stitch(VPMM_FENCE_NONE, VPMM_FENCE_NONE);
    world_free(&w, large, VPMM_FENCE_NONE);
    uint64_t larger = world_malloc(&w, 8, 1);
    assert_int_equal(larger, large);
    world_malloc(&w, 1, 1);
    world_free(&w, larger, VPMM_FENCE_NONE);
    larger = world_malloc(&w, 9, 1);
    assert_string_equal(world_layout(&w), "[z4][1][z3][1][z8][1][9]");
    world_free(&w, larger, VPMM_FENCE_NONE);
    uint64_t page = 0;
    assert_int_equal(revive(4, 1, &page), VPMM_OK);
    assert_int_equal(page, 0);
    assert_int_equal(revive(8, 1, &page), VPMM_NOT_FOUND);
    world_free(&w, 0, VPMM_FENCE_NONE);
    assert_int_equal(revive(8, 1, &page), VPMM_OK);
    assert_int_equal(page, 9);
    assert_int_equal(revive(4, 1, &page), VPMM_NOT_FOUND);
}

static void quarantined_and_unmapped_ranges_stay_dead(void **state)
{
    (void)state;
    uint64_t large = stitch(VPMM_FENCE_NONE, VPMM_FENCE_NONE);
    struct vpmm_removal removals[2];
    assert_int_equal(vpmm_pool_take_zombies(w.pool, &w.view, removals, 2), 2);
    world_free(&w, large, VPMM_FENCE_NONE);
    uint64_t page = 0;
    assert_int_equal(revive(4, 1, &page), VPMM_NOT_FOUND);
    vpmm_pool_removal_done(w.pool, &removals[0], VPMM_STUCK);
    world_unmap(&w, removals[1].address, removals[1].pages);
    vpmm_pool_removal_done(w.pool, &removals[1], VPMM_REMOVED);
    assert_string_equal(world_layout(&w), "[!4][1][*3][1][-7]");
    assert_int_equal(revive(4, 1, &page), VPMM_NOT_FOUND);
    assert_int_equal(revive(3, 1, &page), VPMM_NOT_FOUND);
}

/* A plan for 8 pages wants to move some of the 7, and is told that the first cannot be. */
static void an_extent_that_cannot_be_moved_stays(void **state)
{
    (void)state;
    uint64_t large = stitch(VPMM_FENCE_NONE, VPMM_FENCE_NONE);
    world_malloc(&w, 1, 1);
    world_free(&w, large, VPMM_FENCE_NONE);
    struct vpmm_want want = world_want(&w, 8, 1);
    struct vpmm_plan *plan;
    assert_int_equal(vpmm_pool_plan(w.pool, &want, &plan), VPMM_OK);
    assert_int_equal(plan->steps[0].kind, VPMM_STEP_MOVE);
    vpmm_pool_fix_extent(w.pool, plan, 0);
    vpmm_pool_abandon(w.pool, plan, 0);
    assert_string_equal(world_layout(&w), "[z4][1][z3][1][-7][1]");
    uint64_t page = 0;
    assert_int_equal(revive(4, 1, &page), VPMM_OK);
    assert_int_equal(revive(3, 1, &page), VPMM_NOT_FOUND);
}

static void the_longest_abandoned_zombie_is_unmapped_first(void **state)
{
    (void)state;
    uint64_t large = stitch(VPMM_FENCE_NONE, VPMM_FENCE_NONE);
    uint64_t page = 0;
    world_free(&w, large, VPMM_FENCE_NONE);
    assert_int_equal(revive(4, 1, &page), VPMM_OK);
    world_free(&w, page, VPMM_FENCE_NONE);
    assert_int_equal(revive(7, 1, &page), VPMM_OK);
    assert_string_equal(world_layout(&w), "[z4][1][z3][1][7]");
    struct vpmm_removal removal;
    assert_int_equal(vpmm_pool_take_zombies(w.pool, &w.view, &removal, 1), 1);
    assert_int_equal(removal.address, world_address(&w, 5));
    world_unmap(&w, removal.address, removal.pages);
    vpmm_pool_removal_done(w.pool, &removal, VPMM_REMOVED);
    assert_string_equal(world_layout(&w), "[z4][1][*3][1][7]");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_layout_that_recurs_moves_nothing),
        TEST(what_is_free_as_it_lies_comes_first),
        TEST(one_extent_in_use_keeps_a_zombie_from_life),
        TEST(the_low_end_of_a_zombie_may_do),
        TEST(an_extent_comes_home_as_a_whole),
        TEST(a_zombie_and_what_is_free_beside_it_become_one),
        TEST(what_a_range_shows_twice_does_not_live_in_it_twice),
        TEST(two_zombies_of_one_extent_are_not_one_range),
        TEST(pending_pages_of_another_stream_do_not_come_home),
        TEST(a_zombie_waits_for_its_own_last_users),
        TEST(the_new_owner_comes_after_all_old_ones),
        TEST(a_join_without_memory_changes_nothing),
        TEST(two_zombies_of_one_extent_take_turns),
        TEST(quarantined_and_unmapped_ranges_stay_dead),
        TEST(an_extent_that_cannot_be_moved_stays),
        TEST(the_longest_abandoned_zombie_is_unmapped_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
