/* SPDX-License-Identifier: MIT */
/* The specification's walkthrough, +10 +1 -10 +4 +11 pages on one stream, for every P from 11
 * to 24. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct outcome {
    uint64_t pages; /* P */
    const char *after_four;
    uint64_t moved_most, created;
};

static const struct outcome outcomes[] = {
    {11, "[4][-6][1]", 6, 5},      {12, "[4][-6][1][-1]", 7, 4},  {13, "[4][-6][1][-2]", 8, 3},
    {14, "[4][-6][1][-3]", 9, 2},  {15, "[-10][1][4]", 10, 1},    {16, "[-10][1][4][-1]", 10, 0},
    {17, "[-10][1][4][-2]", 9, 0}, {18, "[-10][1][4][-3]", 8, 0}, {19, "[-10][1][4][-4]", 7, 0},
    {20, "[-10][1][4][-5]", 6, 0}, {21, "[4][-6][1][-10]", 1, 0}, {22, "[4][-6][1][-11]", 0, 0},
    {23, "[4][-6][1][-12]", 0, 0}, {24, "[4][-6][1][-13]", 0, 0},
};

static void walk(const struct outcome *outcome)
{
    struct fixture fixture;
    struct fixture_params params;
    fixture_params_default(&params);
    params.heap.eager_pages = outcome->pages;
    fixture_setup(&fixture, &params);
    CUstream stream = fixture_stream(&fixture, CU_STREAM_NON_BLOCKING);

    uint64_t ten = fixture_malloc(&fixture, 10, stream);
    uint64_t one = fixture_malloc(&fixture, 1, stream);
    fixture_free(&fixture, ten, stream);
    uint64_t four = fixture_malloc(&fixture, 4, stream);
    assert_string_equal(fixture_layout(&fixture), outcome->after_four);
    struct vpmm_pool_totals before = fixture_totals(&fixture);
    assert_int_equal(before.created_pages, outcome->pages);
    uint64_t eleven = fixture_malloc(&fixture, 11, stream);
    struct vpmm_pool_totals after = fixture_totals(&fixture);

    assert_int_equal(after.live_pages, 16);
    assert_int_equal(after.held_pages, outcome->pages > 16 ? outcome->pages : 16);
    assert_in_range(after.moved_pages - before.moved_pages, 0, outcome->moved_most);
    assert_int_equal(after.created_pages - before.created_pages, outcome->created);
    assert_int_equal(after.live_pages + after.free_pages + after.hole_pages + after.zombie_pages,
                     after.root_pages);
    assert_int_equal(after.roots, 1);

    fixture_work(&fixture, stream, eleven, 11, true, NULL);
    fixture_free(&fixture, one, stream);
    fixture_free(&fixture, four, stream);
    fixture_free(&fixture, eleven, stream);
    (void)sim_drain(fixture.sim);
    vpmm_heap_reap(fixture.heap);
    after = fixture_totals(&fixture);
    assert_int_equal(after.live_pages, 0);
    assert_int_equal(after.zombie_pages, 0);
    assert_int_equal(after.free_pages + after.hole_pages, after.root_pages);
    fixture_teardown(&fixture);
}

static void test_walkthrough(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; i++) {
        print_message("P = %llu\n", (unsigned long long)outcomes[i].pages);
        walk(&outcomes[i]);
    }
}

/* With pages of 2 MiB and extents as the policy cuts them, at 4 GiB a step: 64 GiB are held for 64
 * GiB live. */
static void test_walkthrough_in_gigabytes(void **state)
{
    (void)state;
    struct fixture fixture;
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.device_bytes = 140 * GIB;
    params.heap.page_bytes = 2 * MIB;
    params.heap.extent_pages_max = 0;
    fixture_setup(&fixture, &params);
    CUstream stream = fixture_stream(&fixture, CU_STREAM_DEFAULT);
    uint64_t pages = 4 * GIB / (2 * MIB);
    uint64_t ten = fixture_malloc(&fixture, 10 * pages, stream);
    uint64_t one = fixture_malloc(&fixture, 1 * pages, stream);
    fixture_free(&fixture, ten, stream);
    uint64_t four = fixture_malloc(&fixture, 4 * pages, stream);
    uint64_t eleven = fixture_malloc(&fixture, 11 * pages, stream);
    struct vpmm_pool_totals totals = fixture_totals(&fixture);
    assert_int_equal(totals.live_pages, 16 * pages);
    assert_int_equal(totals.held_pages, 16 * pages);
    struct sim_counts counts;
    sim_live_counts(fixture.sim, &counts);
    assert_int_equal(counts.used_bytes[0], 64 * GIB);
    assert_in_range(totals.mappings, 1, 64);
    fixture_free(&fixture, one, stream);
    fixture_free(&fixture, four, stream);
    fixture_free(&fixture, eleven, stream);
    fixture_teardown(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walkthrough),
        cmocka_unit_test(test_walkthrough_in_gigabytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
