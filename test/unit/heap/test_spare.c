/* SPDX-License-Identifier: MIT */
/* Memory that takes the place of moves: of 480 pages every other one is freed, and then two at a
 * time are asked for, until that has moved extents 97 times. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define SINGLES 480
#define MOVES_BEFORE 97

static struct fixture f;
static CUstream stream;
static uint64_t held[SINGLES / 2 + MOVES_BEFORE];

static void scatter(uint64_t device_bytes, bool has_another_stream)
{
    struct fixture_params params;
    uint64_t p[SINGLES];
    fixture_params_default(&params);
    params.heap.spare_percent = 50;
    params.sim.device_bytes = device_bytes;
    fixture_setup(&f, &params);
    stream = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    if (has_another_stream)
        fixture_cycle(&f, 1, fixture_stream(&f, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < SINGLES; i++)
        p[i] = fixture_malloc(&f, 1, stream);
    for (int i = 0; i < SINGLES; i += 2)
        fixture_free(&f, p[i], stream);
    for (int i = 0; i < SINGLES / 2; i++)
        held[i] = p[2 * i + 1];
}

static void set_up_with(uint64_t device_bytes)
{
    scatter(device_bytes, false);
    for (int i = 0; i < MOVES_BEFORE; i++)
        held[SINGLES / 2 + i] = fixture_malloc(&f, 2, stream);
    assert_int_equal(fixture_totals(&f).moved_pages, 2 * MOVES_BEFORE);
    assert_int_equal(fixture_totals(&f).held_pages, SINGLES);
}

static int set_up(void **state)
{
    (void)state;
    set_up_with(768 * GIB);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof held / sizeof held[0]; i++)
        fixture_free(&f, held[i], stream);
    fixture_teardown(&f);
    return 0;
}

/* Frees a block of two that `caller` asks for, and says whether it made the pool move extents. */
static bool moves(CUstream caller)
{
    uint64_t before = fixture_totals(&f).moved_pages;
    fixture_free(&f, fixture_malloc(&f, 2, caller), caller);
    return fixture_totals(&f).moved_pages != before;
}

static void test_new_memory_takes_the_place_of_moves(void **state)
{
    (void)state;
    assert_false(moves(stream));
    assert_int_equal(fixture_totals(&f).held_pages, SINGLES + 2);
}

/* Its slack is what it may grow by before it waits; this is not growth in place of a wait. */
static void test_cudamalloc_is_spared_moves_too(void **state)
{
    (void)state;
    (void)sim_drain(f.sim);
    assert_false(moves(NULL));
    assert_int_equal(fixture_totals(&f).held_pages, SINGLES + 2);
}

static void test_requests_of_a_lane_ease_the_toll(void **state)
{
    (void)state;
    for (int i = 0; i < 600; i++)
        fixture_cycle(&f, 1, stream);
    assert_true(moves(stream));
    assert_int_equal(fixture_totals(&f).held_pages, SINGLES);
}

/* The device has none to spare after all: then the request is served as if nobody had asked. */
static void test_a_refused_growth_moves_extents_after_all(void **state)
{
    (void)state;
    sim_fault_set(f.sim, "cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY, true);
    assert_true(moves(stream));
    sim_fault_clear(f.sim, NULL);
    assert_int_equal(fixture_totals(&f).held_pages, SINGLES);
}

/* Nor has the device run out of memory for that: nothing is given back, and the next request that
 * pays for moves is spared them. */
static void test_a_refused_growth_is_no_tightness(void **state)
{
    (void)state;
    uint64_t blocks[2];
    uint64_t zombie_pages = fixture_totals(&f).zombie_pages;
    assert_int_not_equal(zombie_pages, 0);
    sim_calls_reset(f.sim);
    sim_fault_set(f.sim, "cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY, false);
    blocks[0] = fixture_malloc(&f, 2, stream);
    assert_int_equal(fixture_totals(&f).moved_pages, 2 * MOVES_BEFORE + 2);
    assert_int_equal(fixture_totals(&f).zombie_pages, zombie_pages + 2);
    assert_int_equal(sim_calls(f.sim, "cuMemPoolTrimTo"), 0);
    blocks[1] = fixture_malloc(&f, 2, stream);
    assert_int_equal(fixture_totals(&f).moved_pages, 2 * MOVES_BEFORE + 2);
    assert_int_equal(fixture_totals(&f).held_pages, SINGLES + 2);
    for (int i = 0; i < 2; i++)
        fixture_free(&f, blocks[i], stream);
}

/* A program that is far ahead of the device needs what is pending as much as what is live. */
static void test_the_share_is_of_what_is_pending_too(void **state)
{
    (void)state;
    volatile bool gate = false;
    set_up_with(4096 * GIB);
    for (int i = 0; i < 5; i++) {
        CUstream ahead = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        uint64_t p = fixture_malloc(&f, 100, ahead);
        fixture_work(&f, ahead, p, 100, true, &gate);
        fixture_free(&f, p, ahead);
    }
    struct vpmm_pool_totals totals = fixture_totals(&f);
    assert_true(totals.held_pages > totals.live_pages_peak + totals.live_pages_peak / 2);
    assert_int_equal(totals.moved_pages, 2 * MOVES_BEFORE);
    assert_false(moves(stream));
    gate = true;
    (void)tear_down(NULL);
}

static void test_a_full_device_has_none_to_spare(void **state)
{
    (void)state;
    set_up_with(600 * GIB);
    assert_true(moves(stream));
    assert_int_equal(fixture_totals(&f).held_pages, SINGLES);
    (void)tear_down(NULL);
}

/* Each request moves two extents: half as many requests pay as much. */
static void test_among_several_streams_each_extent_counts(void **state)
{
    (void)state;
    scatter(768 * GIB, true);
    for (int i = 0; i < MOVES_BEFORE / 2 + 1; i++)
        held[SINGLES / 2 + i] = fixture_malloc(&f, 2, stream);
    assert_int_equal(fixture_totals(&f).moved_pages, MOVES_BEFORE + 1);
    assert_false(moves(stream));
    for (int i = 0; i < SINGLES / 2 + MOVES_BEFORE / 2 + 1; i++)
        fixture_free(&f, held[i], stream);
    fixture_teardown(&f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_new_memory_takes_the_place_of_moves),
        TEST(test_cudamalloc_is_spared_moves_too),
        TEST(test_requests_of_a_lane_ease_the_toll),
        TEST(test_a_refused_growth_moves_extents_after_all),
        TEST(test_a_refused_growth_is_no_tightness),
        cmocka_unit_test(test_the_share_is_of_what_is_pending_too),
        cmocka_unit_test(test_a_full_device_has_none_to_spare),
        cmocka_unit_test(test_among_several_streams_each_extent_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
