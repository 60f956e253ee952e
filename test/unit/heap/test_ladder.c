/* SPDX-License-Identifier: MIT */
/* Which rung of the ladder serves a request, by who asks and what there is. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct fixture f;
static volatile bool gate;
static uint64_t served[VPMM_RUNG_COUNT];

/* A device of 64 pages whose work is done at once, but for that which the gate holds. */
static int setup(void **state)
{
    (void)state;
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.eager = true;
    gate = false;
    fixture_setup(&f, &params);
    return 0;
}

/* One whose work is done when somebody waits for it, if not by chance before. */
static int setup_slow(void **state)
{
    (void)state;
    gate = false;
    fixture_setup_default(&f);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gate = true;
    fixture_teardown(&f);
    return 0;
}

/* The rung that serves the request, which is freed at the end of the device's work. */
static enum vpmm_rung rung_of(uint64_t pages, CUstream stream)
{
    struct vpmm_heap_counts counts;
    vpmm_heap_counts(f.heap, &counts);
    for (int i = 0; i < VPMM_RUNG_COUNT; i++)
        served[i] = counts.rungs[i];
    uint64_t p = fixture_malloc(&f, pages, stream);
    vpmm_heap_counts(f.heap, &counts);
    enum vpmm_rung found = VPMM_RUNG_NONE;
    for (int i = 1; i < VPMM_RUNG_COUNT; i++) {
        if (counts.rungs[i] == served[i])
            continue;
        assert_int_equal(counts.rungs[i], served[i] + 1);
        assert_int_equal(found, VPMM_RUNG_NONE);
        found = (enum vpmm_rung)i;
    }
    gate = true;
    fixture_free(&f, p, stream);
    return found;
}

static void test_new_memory(void **state)
{
    (void)state;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    assert_int_equal(rung_of(4, a), VPMM_RUNG_CREATE);
    assert_int_equal(rung_of(8, NULL), VPMM_RUNG_SLACK);
}

static void test_what_was_freed(void **state)
{
    (void)state;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    fixture_free(&f, fixture_malloc(&f, 8, a), a);
    assert_int_equal(rung_of(2, a), VPMM_RUNG_FOLLOW);
    assert_int_equal(rung_of(2, NULL), VPMM_RUNG_SETTLE);
}

/* One page is the largest block that a lane of this device holds. */
static void test_what_another_stream_freed(void **state)
{
    (void)state;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    fixture_free(&f, fixture_malloc(&f, 1, a), a);
    assert_int_equal(rung_of(1, b), VPMM_RUNG_GATHER);
}

/* What lies free beside the lanes leaves them as they are, if it is of the size. */
static void test_what_lies_free(void **state)
{
    (void)state;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t free = fixture_malloc(&f, 3, a), kept = fixture_malloc(&f, 1, a);
    fixture_free(&f, fixture_malloc(&f, 1, b), b);
    fixture_free(&f, free, b);
    fixture_free(&f, kept, a);
    assert_int_equal(rung_of(3, b), VPMM_RUNG_SPOT);
    assert_int_equal(fixture_malloc(&f, 1, a), kept);
    fixture_free(&f, kept, a);
    assert_int_equal(rung_of(2, b), VPMM_RUNG_GATHER);
}

/* Where all lanes were emptied, none of the streams that lost their blocks does so again. */
static void test_one_miss_leads_to_no_other(void **state)
{
    (void)state;
    CUstream streams[6];
    uint64_t blocks[6], between[6];
    for (int i = 0; i < 6; i++) {
        streams[i] = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        blocks[i] = fixture_malloc(&f, 1, streams[i]);
        between[i] = fixture_malloc(&f, 1, streams[i]);
    }
    for (int i = 0; i < 6; i++)
        fixture_free(&f, blocks[i], streams[i]);
    vpmm_heap_gather(f.heap);
    vpmm_heap_reap(f.heap);
    for (int i = 0; i < 6; i++)
        assert_int_equal(rung_of(1, streams[i]), VPMM_RUNG_SPOT);
    for (int i = 0; i < 6; i++)
        assert_int_equal(rung_of(1, streams[i]), VPMM_RUNG_NONE);
    for (int i = 0; i < 6; i++)
        fixture_free(&f, between[i], streams[i]);
}

/* A habit is looked for in all lanes before what lies free elsewhere is taken. */
static void test_habit_in_a_lane(void **state)
{
    (void)state;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    fixture_free(&f, fixture_malloc(&f, 2, a), a);
    uint64_t block = fixture_malloc(&f, 1, b);
    fixture_free(&f, block, a);
    uint64_t again = fixture_malloc(&f, 1, b);
    assert_int_equal(again, block);
    fixture_free(&f, again, b);
}

/* The second round is served where the first one was. */
static void test_habit(void **state)
{
    (void)state;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    enum vpmm_rung rung = VPMM_RUNG_NONE;
    for (int round = 0; round < 2; round++) {
        fixture_free(&f, fixture_malloc(&f, 8, a), a);
        rung = rung_of(3, a);
    }
    assert_int_equal(rung, VPMM_RUNG_HABIT);
}

/* Of the device's pages 40 are freed behind work that the gate holds. */
static void test_full_device(void **state)
{
    (void)state;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 40, a);
    fixture_work(&f, a, p, 40, true, &gate);
    fixture_free(&f, p, a);
    assert_int_equal(rung_of(40, b), VPMM_RUNG_DEVICE_WAIT);
}

/* cudaMalloc waits for what cudaFree left pending before it grows beyond its slack. */
static void test_pending_cudafree(void **state)
{
    (void)state;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 40, NULL);
    fixture_work(&f, a, p, 40, true, NULL);
    fixture_free(&f, p, NULL);
    assert_int_equal(rung_of(40, NULL), VPMM_RUNG_FREE_WAIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_new_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_was_freed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_another_stream_freed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_lies_free, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_miss_leads_to_no_other, setup, teardown),
        cmocka_unit_test_setup_teardown(test_habit_in_a_lane, setup, teardown),
        cmocka_unit_test_setup_teardown(test_habit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_device, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pending_cudafree, setup_slow, teardown),
    };
    return cmocka_run_group_tests_name("heap/ladder", tests, NULL, NULL);
}
