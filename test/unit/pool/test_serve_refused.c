/* SPDX-License-Identifier: MIT */
/* Requests at a given address that are refused, or fail, and change nothing. */
#include "serve_scene.h"

#include "pool/pool_internal.h"

static void what_somebody_has_is_refused(void **state)
{
    (void)state;
    move_four_extents(0, 0);
    refuse(12, 5, 1);
    refuse(16, 1, 1);
    refuse(16, 2, 1);
    struct vpmm_region_view region;
    assert_int_equal(vpmm_pool_claim(w.pool, world_address(&w, 16), &region), VPMM_OK);
    refuse(12, 5, 1);
    refuse(16, 1, 1);
    vpmm_pool_free(w.pool, region.address, world_fence(&w, 2), 2);
    refuse(12, 5, 1);
    refuse(16, 1, 1);
    assert_string_equal(world_layout(&w), "[z16][-1][-20]");
}

/* A view shows what a front cache holds as free; the pool does not take it for that. */
static void what_a_front_cache_holds_is_refused(void **state)
{
    (void)state;
    static struct vpmm_pool_share share;
    struct vpmm_want want = world_want(&w, 4, 1);
    struct vpmm_live live;
    vpmm_pool_add_share(w.pool, &share);
    uint64_t page = world_malloc(&w, 4, 1);
    world_malloc(&w, 4, 1);
    world_free(&w, 4, VPMM_FENCE_NONE);
    assert_true(vpmm_pool_look_live(w.pool, world_address(&w, page), &live));
    assert_true(vpmm_pool_cache(w.pool, &live, VPMM_FENCE_NONE, 1, &share));
    uint64_t address = world_address(&w, page);
    assert_int_equal(vpmm_pool_serve_at(w.pool, &want, address), VPMM_NOT_FOUND);
    address += 2 * w.page_bytes;
    assert_int_equal(vpmm_pool_serve_at(w.pool, &want, address), VPMM_NOT_FOUND);
    world_check(&w);
    vpmm_pool_hand_back(w.pool, live.number, VPMM_FENCE_NONE, &share, NULL);
    assert_int_equal(vpmm_pool_serve_at(w.pool, &want, address), VPMM_OK);
    world_check(&w);
    assert_string_equal(world_layout(&w), "[-2][4][-2]");
}

static void holes_and_quarantined_ranges_are_refused(void **state)
{
    (void)state;
    move_four_extents(0, 0);
    struct vpmm_removal removal;
    refuse(36, 2, 1);
    refuse(100, 1, 1);
    assert_int_equal(vpmm_pool_take_zombies(w.pool, &w.view, &removal, 1), 1);
    refuse(4, 4, 1);
    vpmm_pool_removal_done(w.pool, &removal, VPMM_STUCK);
    assert_string_equal(world_layout(&w), "[!16][1][-20]");
    refuse(4, 4, 1);
    refuse(5, 2, 1);
    world_retry(&w);
    assert_string_equal(world_layout(&w), "[*16][1][-20]");
    refuse(4, 4, 1);
    serve(17, 20, "[*16][1][20]");
}

static void what_another_stream_left_pending_is_refused(void **state)
{
    (void)state;
    move_four_extents(0, 2);
    refuse(17, 4, 1);
    refuse(17, 4, 0);
    refuse(0, 4, 1);
    refuse(0, 4, 0);
    refuse(1, 2, 1);
    assert_int_equal(world_serve_at(&w, 0, 4, 2), VPMM_OK);
    world_complete(&w, young);
    world_settle(&w);
    assert_int_equal(world_serve_at(&w, 4, 4, 0), VPMM_OK);
    assert_string_equal(world_layout(&w), "[4][4][z8][1][z4][z4][-12]");
}

static void a_zombie_waits_for_its_own_last_users(void **state)
{
    (void)state;
    move_four_extents(1, 0);
    refuse(0, 4, 2);
    refuse(0, 4, 0);
    refuse(2, 4, 2);
    serve(2, 4, "[-2][4][-2][z8][1][z8][-12]");
    assert_int_equal(at(0).fence, old);
    assert_int_equal(at(17).fence, VPMM_FENCE_NONE);
}

/* Of an extent only the part beside the range, or beside its home, is in use. */
static void an_extent_in_use_stays_where_it_is(void **state)
{
    (void)state;
    move_four_extents(0, 0);
    serve(17, 1, "[z16][1][1][-19]");
    refuse(2, 2, 1);
    refuse(1, 1, 1);
    refuse(2, 4, 1);
    serve(24, 1, "[z16][1][1][-6][1][-12]");
    refuse(4, 2, 1);
    refuse(6, 4, 1);
    serve(8, 4, "[z8][4][z4][1][1][-6][1][z4][-8]");
    refuse(10, 4, 1);
    world_free(&w, 8, world_fence(&w, 2));
    refuse(10, 4, 1);
    serve(13, 2, "[z8][-4][-1][2][-1][1][1][-6][1][z4][z4][-4]");
    world_free(&w, 17, VPMM_FENCE_NONE);
    serve(2, 2, "[-2][2][z4][-4][-1][2][-1][1][z4][-3][1][z4][z4][-4]");
}

/* The zombie's last extent belongs to the end of what is free beside it. */
static void an_extent_does_not_come_home_from_the_range(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 4, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    uint64_t b = world_malloc(&w, 5, 1);
    world_free(&w, 4, VPMM_FENCE_NONE);
    world_free(&w, b, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[z4][-6]");
    assert_int_equal(w.pages[3].extent, w.pages[8].extent);
    refuse(3, 6, 1);
    refuse(0, 10, 1);
    serve(3, 5, "[z3][5][z1][-1]");
}

static void an_extent_that_cannot_be_moved_stays(void **state)
{
    (void)state;
    move_four_extents(0, 0);
    struct vpmm_want want = world_want(&w, 24, 1);
    struct vpmm_plan *plan;
    world_malloc(&w, 20, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, 17, VPMM_FENCE_NONE);
    assert_int_equal(vpmm_pool_plan(w.pool, &want, &plan), VPMM_OK);
    assert_int_equal(plan->steps[0].extent, w.pages[0].extent);
    vpmm_pool_fix_extent(w.pool, plan, 0);
    w.extents[plan->steps[0].extent].is_fixed = true;
    vpmm_pool_abandon(w.pool, plan, 0);
    assert_string_equal(world_layout(&w), "[z16][1][-20][1]");
    refuse(0, 4, 1);
    refuse(3, 2, 1);
    serve(4, 4, "[z4][4][z8][1][-4][z4][-12][1]");
}

static void nothing_is_served_outside_roots_or_over_their_ends(void **state)
{
    (void)state;
    use_extents_of(1, 8);
    world_add_root(&w, 8, 8);
    world_malloc(&w, 8, 1);
    world_malloc(&w, 8, 1);
    world_free(&w, 0, VPMM_FENCE_NONE);
    world_free(&w, 8, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[-8][-8]");
    refuse(4, 5, 1);
    refuse(7, 2, 1);
    refuse(12, 5, 1);
    refuse(16, 1, 1);
    struct vpmm_want want = world_want(&w, 4, 1);
    uint64_t before = world_address(&w, 0) - w.page_bytes;
    assert_int_equal(vpmm_pool_serve_at(w.pool, &want, before), VPMM_NOT_FOUND);
    assert_int_equal(vpmm_pool_serve_at(w.pool, &want, 0), VPMM_NOT_FOUND);
    want.pages = UINT64_MAX - 2;
    assert_int_equal(vpmm_pool_serve_at(w.pool, &want, world_address(&w, 3)), VPMM_NOT_FOUND);
    serve(12, 4, "[-8][-4][4]");
    serve(0, 8, "[8][-4][4]");
}

/* ---- metadata ---- */

static void a_join_without_memory_changes_nothing(void **state)
{
    (void)state;
    move_four_extents(1, 1);
    w.joins_fail = true;
    assert_int_equal(world_serve_at(&w, 6, 4, 1), VPMM_NO_METADATA);
    assert_string_equal(world_layout(&w), "[z16][1][-20]");
    w.joins_fail = false;
    serve(6, 4, "[z4][-2][4][-2][z4][1][-4][z8][-8]");
}

/* Of four extents the middle ones are to come home. */
static void records_that_cannot_be_had_change_nothing(void **state)
{
    (void)state;
    use_extents_of(4, 2 * VPMM_TABLE_CHUNK_RECORDS);
    world_malloc(&w, 16, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, 0, VPMM_FENCE_NONE);
    uint64_t b = world_malloc(&w, 20, 1);
    world_grow(&w, VPMM_TABLE_CHUNK_RECORDS);
    struct vpmm_want one = world_want(&w, 1, 1);
    uint64_t address;
    while (w.pool->regions.n_free > 7)
        assert_int_equal(vpmm_pool_fit(w.pool, &one, &address), VPMM_OK);
    world_free(&w, b, VPMM_FENCE_NONE);
    w.maps_left = 0;
    assert_int_equal(world_serve_at(&w, 6, 4, 1), VPMM_NO_METADATA);
    assert_int_equal(at(6).pages, 16);
    assert_int_equal(at(b).pages, 20);
    w.maps_left = 1;
    assert_int_equal(world_serve_at(&w, 6, 4, 1), VPMM_OK);
    assert_int_equal(at(4).pages, 2);
    assert_int_equal(at(10).pages, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_somebody_has_is_refused),
        TEST(what_a_front_cache_holds_is_refused),
        TEST(holes_and_quarantined_ranges_are_refused),
        TEST(what_another_stream_left_pending_is_refused),
        TEST(a_zombie_waits_for_its_own_last_users),
        TEST(an_extent_in_use_stays_where_it_is),
        TEST(an_extent_does_not_come_home_from_the_range),
        TEST(an_extent_that_cannot_be_moved_stays),
        TEST(nothing_is_served_outside_roots_or_over_their_ends),
        TEST(a_join_without_memory_changes_nothing),
        TEST(records_that_cannot_be_had_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
