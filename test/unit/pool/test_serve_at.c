/* SPDX-License-Identifier: MIT */
/* Requests that are served at the address they ask for. world_serve_at judges what becomes of every
 * page; here: which ranges are served, and what can be done with what they leave. */
#include "serve_scene.h"

static void a_free_region_serves_at_every_place_in_it(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 12, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    serve(4, 4, "[-4][4][-4][1]");
    serve(0, 2, "[2][-2][4][-4][1]");
    serve(10, 2, "[2][-2][4][-2][2][1]");
    serve(8, 1, "[2][-2][4][1][-1][2][1]");
    serve(2, 2, "[2][2][4][1][-1][2][1]");
    assert_int_equal(at(4).owner.bytes, 4 * w.page_bytes - 1);
    assert_int_equal(at(4).owner.stream_id, 1);
    assert_int_equal(at(4).fence, VPMM_FENCE_NONE);
    world_free(&w, 0, VPMM_FENCE_NONE);
    world_free(&w, 2, VPMM_FENCE_NONE);
    serve(0, 4, "[4][4][1][-1][2][1]");
}

/* An extent that is at home is cut at either end; what is whole beside it can still be released. */
static void what_is_at_home_stays_and_may_be_cut(void **state)
{
    (void)state;
    use_extents_of(4, 256);
    uint64_t a = world_malloc(&w, 16, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    serve(6, 5, "[-6][5][-5][1]");
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 8);
    world_free(&w, 6, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[-16][1]");
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 16);
}

static void several_free_regions_serve_together(void **state)
{
    (void)state;
    uint64_t pages[4];
    for (int i = 0; i < 4; i++)
        pages[i] = world_malloc(&w, 3, 1);
    vpmm_fence first = world_fence(&w, 1);
    vpmm_fence last = world_fence(&w, 1);
    world_free(&w, pages[0], first);
    world_free(&w, pages[1], VPMM_FENCE_NONE);
    world_free(&w, pages[2], last);
    refuse(1, 7, 2);
    refuse(1, 7, 0);
    serve(1, 7, "[-1][7][-1][3]");
    assert_int_equal(at(0).fence, first);
    assert_int_equal(at(8).fence, last);
    world_complete(&w, first);
    assert_false(world_is_complete(&w, at(1).fence));
    world_complete(&w, last);
    assert_true(world_is_complete(&w, at(1).fence));
}

/* The first of the zombie's pages are those at 9, the last of the free ones. */
static void zombies_and_what_is_free_beside_them_serve_together(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 8, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    world_malloc(&w, 4, 1);
    uint64_t b = world_malloc(&w, 5, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    world_free(&w, b, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[-4][z4][1][-5]");
    serve(2, 5, "[-2][5][z1][1][z3][-2]");
    world_free(&w, 2, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[-7][z1][1][z3][-2]");
    serve(9, 4, "[-4][z3][z1][1][4][-1]");
    serve(0, 4, "[4][z3][z1][1][4][-1]");
}

/* ---- extents that reach over the range ---- */

static void an_extent_over_the_low_end_comes_home_as_a_whole(void **state)
{
    (void)state;
    move_four_extents(0, 1);
    serve(6, 6, "[z4][-2][6][z4][1][-4][z8][-8]");
    assert_int_equal(at(4).fence, young);
    assert_int_equal(at(6).fence, young);
    assert_int_equal(at(21).fence, young);
    world_complete(&w, young);
    world_settle(&w);
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 12);
    world_free(&w, 6, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[z4][-8][z4][1][-4][z8][-8]");
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 20);
}

static void an_extent_over_the_high_end_comes_home_as_a_whole(void **state)
{
    (void)state;
    move_four_extents(0, 1);
    serve(4, 6, "[z4][6][-2][z4][1][-4][z8][-8]");
    assert_int_equal(at(10).fence, young);
    world_complete(&w, young);
    world_settle(&w);
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 12);
    world_free(&w, 4, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[z4][-8][z4][1][-4][z8][-8]");
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 20);
}

static void extents_over_both_ends_come_home_as_wholes(void **state)
{
    (void)state;
    move_four_extents(0, 0);
    serve(6, 4, "[z4][-2][4][-2][z4][1][-4][z8][-8]");
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 12);
    world_free(&w, 6, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[z4][-8][z4][1][-4][z8][-8]");
    struct vpmm_pool_totals before = world_totals(&w);
    assert_int_equal(world_malloc(&w, 21, 1), 29);
    assert_string_equal(world_layout(&w), "[z4][z8][z4][1][z4][z8][21]");
    assert_int_equal(world_totals(&w).moved_pages, before.moved_pages + 12);
    assert_int_equal(world_totals(&w).created_pages, before.created_pages + 1);
}

static void one_extent_over_both_ends_comes_home_as_a_whole(void **state)
{
    (void)state;
    move_four_extents(0, 0);
    serve(5, 2, "[z4][-1][2][-1][z8][1][-4][z4][-12]");
    serve(4, 1, "[z4][1][2][-1][z8][1][-4][z4][-12]");
    serve(7, 1, "[z4][1][2][1][z8][1][-4][z4][-12]");
    serve(0, 1, "[1][-3][1][2][1][z8][1][z4][z4][-12]");
}

/* Its other part is somebody else's. */
static void an_extent_at_home_over_an_end_stays_where_it_is(void **state)
{
    (void)state;
    move_four_extents(0, 0);
    serve(4, 4, "[z4][4][z8][1][-4][z4][-12]");
    world_free(&w, 4, VPMM_FENCE_NONE);
    serve(4, 1, "[z4][1][-3][z8][1][-4][z4][-12]");
    serve(6, 6, "[z4][1][-1][6][z4][1][-4][z4][z4][-8]");
    world_free(&w, 4, VPMM_FENCE_NONE);
    world_free(&w, 6, VPMM_FENCE_NONE);
    serve(7, 1, "[z4][-3][1][-4][z4][1][-4][z4][z4][-8]");
    serve(0, 6, "[6][-1][1][-4][z4][1][z4][z4][z4][-8]");
}

static void what_reaches_over_merges_with_what_is_free_beside_it(void **state)
{
    (void)state;
    move_four_extents(0, 0);
    serve(4, 4, "[z4][4][z8][1][-4][z4][-12]");
    world_free(&w, 4, VPMM_FENCE_NONE);
    serve(9, 3, "[z4][-5][3][z4][1][-4][z4][z4][-8]");
    serve(0, 3, "[3][-6][3][z4][1][z4][z4][z4][-8]");
}

/* Of the pages beside the range, too, who used them last where they were and where they are. */
static void what_reaches_over_waits_for_its_old_users(void **state)
{
    (void)state;
    move_four_extents(1, 1);
    serve(6, 4, "[z4][-2][4][-2][z4][1][-4][z8][-8]");
    const uint64_t pages[] = {4, 6, 10};
    for (int i = 0; i < 3; i++)
        assert_false(world_is_complete(&w, at(pages[i]).fence));
    world_complete(&w, old);
    for (int i = 0; i < 3; i++)
        assert_false(world_is_complete(&w, at(pages[i]).fence));
    world_complete(&w, young);
    for (int i = 0; i < 3; i++)
        assert_true(world_is_complete(&w, at(pages[i]).fence));
}

static void what_an_extent_leaves_waits_for_whom_it_left(void **state)
{
    (void)state;
    move_four_extents(1, 1);
    serve(6, 4, "[z4][-2][4][-2][z4][1][-4][z8][-8]");
    assert_int_equal(at(21).fence, young);
    assert_int_equal(at(0).fence, old);
    assert_int_equal(world_reap(&w, true), 0);
    world_complete(&w, young);
    assert_int_equal(world_reap(&w, true), 1);
    world_complete(&w, old);
    assert_int_equal(world_reap(&w, true), 2);
    assert_string_equal(world_layout(&w), "[*4][-2][4][-2][*4][1][-4][*8][-8]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_free_region_serves_at_every_place_in_it),
        TEST(what_is_at_home_stays_and_may_be_cut),
        TEST(several_free_regions_serve_together),
        TEST(zombies_and_what_is_free_beside_them_serve_together),
        TEST(an_extent_over_the_low_end_comes_home_as_a_whole),
        TEST(an_extent_over_the_high_end_comes_home_as_a_whole),
        TEST(extents_over_both_ends_come_home_as_wholes),
        TEST(one_extent_over_both_ends_comes_home_as_a_whole),
        TEST(an_extent_at_home_over_an_end_stays_where_it_is),
        TEST(what_reaches_over_merges_with_what_is_free_beside_it),
        TEST(what_reaches_over_waits_for_its_old_users),
        TEST(what_an_extent_leaves_waits_for_whom_it_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
