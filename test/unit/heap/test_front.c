/* SPDX-License-Identifier: MIT */
/* What the front cache and its batches must not cost: memory, and requests that would be served
 * without them. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void setup(struct fixture *fixture)
{
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.device_bytes = 130 * GIB;
    fixture_setup(fixture, &params);
}

/* So many single pages, in use until the gate opens (NULL: for a moment), freed on the stream. */
static void use_and_free(struct fixture *f, CUstream stream, int n, uint64_t pages,
                         const volatile bool *gate)
{
    uint64_t p[64];
    for (int i = 0; i < n; i++) {
        p[i] = fixture_malloc(f, pages, stream);
        fixture_work(f, stream, p[i], pages, true, gate);
    }
    for (int i = 0; i < n; i++)
        fixture_free(f, p[i], stream);
}

/* Old complete frees are found behind new pending ones, whatever slots their fences have. */
static void test_complete_frees_are_found_behind_pending_ones(void **state)
{
    (void)state;
    struct fixture f;
    volatile bool gate = false;
    setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < 8; round++) {
        use_and_free(&f, a, 3, 4, NULL);
        assert_int_equal(sim_stream_synchronize(f.sim, a), CUDA_SUCCESS);
        vpmm_heap_reap(f.heap);
    }
    uint64_t p[9];
    for (int i = 0; i < 9; i++)
        p[i] = fixture_malloc(&f, 4, a);
    for (int i = 0; i < 9; i++) {
        if (i == 3)
            assert_int_equal(sim_stream_synchronize(f.sim, a), CUDA_SUCCESS);
        fixture_work(&f, a, p[i], 4, true, i < 3 ? NULL : &gate);
        fixture_free(&f, p[i], a);
    }
    uint64_t held = fixture_totals(&f).held_pages;
    uint64_t q = fixture_malloc(&f, 4, b);
    assert_int_equal(fixture_totals(&f).held_pages, held);
    gate = true;
    fixture_free(&f, q, b);
    fixture_teardown(&f);
}

/* A stream that asks for more closes its own batch, whatever else runs in its context. */
static void test_own_batch_waits_for_no_other_stream(void **state)
{
    (void)state;
    enum {
        SMALL = 60
    };
    struct fixture f;
    volatile bool gate = false;
    setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream busy = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t long_used = fixture_malloc(&f, 1, busy);
    fixture_work(&f, busy, long_used, 1, true, &gate);
    use_and_free(&f, a, SMALL, 1, NULL);
    uint64_t own = fixture_malloc(&f, 4, a);
    assert_int_equal(sim_stream_synchronize(f.sim, a), CUDA_SUCCESS);
    uint64_t other;
    enum vpmm_status status = fixture_try_malloc(&f, 100, b, &other);
    gate = true;
    assert_int_equal(status, VPMM_OK);
    fixture_free(&f, other, b);
    fixture_free(&f, own, a);
    fixture_free(&f, long_used, busy);
    fixture_teardown(&f);
}

/* What many streams have left complete is had before new memory, however few of them one look takes
 * in. */
static void test_complete_frees_of_many_streams_are_found(void **state)
{
    (void)state;
    enum {
        STREAMS = 100
    };
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.device_bytes = 1024 * GIB;
    params.heap.root_bytes = 4096 * GIB;
    fixture_setup(&f, &params);
    CUstream streams[STREAMS];
    uint64_t p[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        p[i] = fixture_malloc(&f, 4, streams[i]);
        fixture_work(&f, streams[i], p[i], 4, true, NULL);
    }
    for (int i = 0; i < STREAMS; i++)
        fixture_free(&f, p[i], streams[i]);
    vpmm_heap_reap(f.heap);
    (void)sim_drain(f.sim);
    CUstream other = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < STREAMS; i++)
        p[i] = fixture_malloc(&f, 4, other);
    assert_int_equal(fixture_totals(&f).held_pages, 4 * STREAMS);
    for (int i = 0; i < STREAMS; i++)
        fixture_free(&f, p[i], other);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_complete_frees_are_found_behind_pending_ones),
        cmocka_unit_test(test_complete_frees_of_many_streams_are_found),
        cmocka_unit_test(test_own_batch_waits_for_no_other_stream),
    };
    return cmocka_run_group_tests_name("heap/front", tests, NULL, NULL);
}
