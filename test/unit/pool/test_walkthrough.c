/* SPDX-License-Identifier: MIT */
/* The specification's five calls, +10 +1 -10 +4 +11, for every number of pages mapped beforehand.
 */
#include "world.h"

#include <stdio.h>

#define GIB ((uint64_t)1 << 30)

struct row {
    uint64_t pages;
    const char *after_4, *after_5;
    uint64_t moved, created;
};

static const struct row rows[] = {
    {11, "[4][-6][1]", "[4][z6][1][11]", 6, 5},
    {12, "[4][-6][1][-1]", "[4][z6][1][11]", 6, 4},
    {13, "[4][-6][1][-2]", "[4][z6][1][11]", 6, 3},
    {14, "[4][-6][1][-3]", "[4][z6][1][11]", 6, 2},
    {15, "[-10][1][4]", "[z10][1][4][11]", 10, 1},
    {16, "[-10][1][4][-1]", "[z10][1][4][11]", 10, 0},
    {17, "[-10][1][4][-2]", "[z9][-1][1][4][11]", 9, 0},
    {18, "[-10][1][4][-3]", "[z8][-2][1][4][11]", 8, 0},
    {19, "[-10][1][4][-4]", "[z7][-3][1][4][11]", 7, 0},
    {20, "[-10][1][4][-5]", "[z6][-4][1][4][11]", 6, 0},
    {21, "[4][-6][1][-10]", "[4][z1][-5][1][11]", 1, 0},
    {22, "[4][-6][1][-11]", "[4][-6][1][11]", 0, 0},
    {23, "[4][-6][1][-12]", "[4][-6][1][11][-1]", 0, 0},
    {24, "[4][-6][1][-13]", "[4][-6][1][11][-2]", 0, 0},
};

static void check_row(const struct row *row, uint64_t fence_stream)
{
    struct world world;
    world_init(&world, GIB, 1, 4096);
    world_grow(&world, row->pages);
    uint64_t ten = world_malloc(&world, 10, 1);
    uint64_t one = world_malloc(&world, 1, 1);
    assert_int_equal(ten, 0);
    assert_int_equal(one, 10);
    world_free(&world, ten, fence_stream ? world_fence(&world, fence_stream) : VPMM_FENCE_NONE);
    world_malloc(&world, 4, 1);
    assert_string_equal(world_layout(&world), row->after_4);
    struct vpmm_pool_totals before = world_totals(&world);
    world_malloc(&world, 11, 1);
    assert_string_equal(world_layout(&world), row->after_5);
    struct vpmm_pool_totals after = world_totals(&world);
    assert_int_equal(after.moved_pages - before.moved_pages, row->moved);
    assert_int_equal(after.created_pages - before.created_pages, row->created);
    assert_int_equal(after.live_pages, 16);
    assert_int_equal(after.held_pages, row->pages > 16 ? row->pages : 16);
    for (vpmm_fence i = 1; i <= world.n_fences; i++)
        world_complete(&world, i);
    world_reap(&world, true);
    after = world_totals(&world);
    assert_int_equal(after.zombie_pages, 0);
    assert_int_equal(after.hole_pages, 4096 - after.held_pages);
    assert_int_equal(after.mappings, after.held_pages);
    world_finish(&world);
}

static void every_row_moves_and_creates_what_the_design_says(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_row(&rows[i], 0);
}

/* The stream's own fence still pending: the same, but for the tie, which goes to the complete pages
 * then. */
static void a_pending_free_of_the_same_stream_serves_as_well(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_row(&rows[i], 1);
}

/* The same at 4 GiB a page with the policy's own extents: 40 GiB are cut so that what is left of
 * them can move whole. */
static void five_calls_of_4_gib_a_step_hold_64_gib(void **state)
{
    struct world world;
    (void)state;
    uint64_t pages = 4 * GIB >> 21;
    world_init(&world, (uint64_t)1 << 21, 0, 100000);
    uint64_t ten = world_malloc(&world, 10 * pages, 1);
    world_malloc(&world, pages, 1);
    world_free(&world, ten, VPMM_FENCE_NONE);
    world_malloc(&world, 4 * pages, 1);
    uint64_t extents = world_totals(&world).extents;
    world_malloc(&world, 11 * pages, 1);
    struct vpmm_pool_totals totals = world_totals(&world);
    assert_int_equal(totals.live_pages, 16 * pages);
    assert_int_equal(totals.held_pages, 16 * pages);
    assert_int_equal(totals.moved_pages, 6 * pages);
    assert_in_range(extents, 8, 48);
    assert_in_range(totals.extents - extents, 4, 24);
    world_finish(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_moves_and_creates_what_the_design_says),
        cmocka_unit_test(a_pending_free_of_the_same_stream_serves_as_well),
        cmocka_unit_test(five_calls_of_4_gib_a_step_hold_64_gib),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
