/* SPDX-License-Identifier: MIT */
/* What is waited for and what is not, and what long use leaves behind. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Bare cudaFree of cudaMallocAsync memory does not wait, so no cudaMalloc does in its place: what
 * runs may end only after that. */
static void test_free_of_async_memory_is_not_waited_for(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t p = fixture_malloc(&f, 4, a);
    fixture_work(&f, a, p, 4, true, &gate);
    fixture_free(&f, p, NULL);
    uint64_t q = fixture_malloc(&f, 4, NULL);
    assert_int_not_equal(q, p);
    gate = true;
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

/* cudaMallocAsync memory outlives its context. Its free then waits for the context that uses it
 * now. */
static void test_free_after_the_owner_is_gone(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUcontext second;
    assert_int_equal(sim_ctx_create(f.sim, 0, 0, &second), CUDA_SUCCESS);
    CUstream theirs = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, theirs);
    struct vpmm_departure departure =
        vpmm_order_context_leaving(f.order, (vpmm_context_handle)second, true);
    assert_int_equal(sim_ctx_destroy(f.sim, second), CUDA_SUCCESS);
    vpmm_order_context_left(f.order, &departure, true);
    assert_int_equal(sim_ctx_set_current(f.sim, f.handle), CUDA_SUCCESS);
    CUstream ours = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    fixture_work(&f, ours, p, 4, true, &gate);
    fixture_free(&f, p, NULL);
    CUstream other = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t q = fixture_malloc(&f, 4, other);
    assert_int_not_equal(q, p);
    gate = true;
    fixture_free(&f, q, other);
    fixture_teardown(&f);
}

/* However many streams have frees pending, the cudaFree behind them is found and waited for. */
static void test_many_stream_fences_hide_no_other(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.device_bytes = 128 * GIB;
    fixture_setup(&f, &params);
    enum {
        STREAMS = 80
    };
    uint64_t p[STREAMS];
    CUstream streams[STREAMS];
    volatile bool gate = false;
    CUcontext second;
    assert_int_equal(sim_ctx_create(f.sim, 0, 0, &second), CUDA_SUCCESS);
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        p[i] = fixture_malloc(&f, 1, streams[i]);
        fixture_work(&f, streams[i], p[i], 1, true, &gate);
    }
    assert_int_equal(sim_ctx_set_current(f.sim, f.handle), CUDA_SUCCESS);
    uint64_t q = fixture_malloc(&f, 20, NULL);
    CUstream own = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    fixture_work(&f, own, q, 20, true, NULL);
    for (int i = 0; i < STREAMS; i++)
        fixture_free(&f, p[i], streams[i]);
    fixture_free(&f, q, NULL);
    assert_int_equal(fixture_malloc(&f, 20, NULL), q);
    gate = true;
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

/* Address space that zombies hold is used again before more is reserved, and they do not pile up,
 * also where no round is like another. */
static void test_address_space_is_used_again(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.device_bytes = 20 * GIB;
    params.sim.eager = true;
    params.heap.root_bytes = 40 * GIB;
    fixture_setup(&f, &params);
    uint32_t dice = 1;
    for (int round = 0; round < 100; round++) {
        uint64_t p[20];
        bool is_kept[20] = {false};
        uint64_t n_freed = 0;
        for (int i = 0; i < 20; i++)
            p[i] = fixture_malloc(&f, 1, NULL);
        for (int i = 0; i < 20; i++) {
            dice = dice * 1664525u + 1013904223u;
            is_kept[i] = i > 0 && dice >> 31;
            if (is_kept[i])
                continue;
            fixture_free(&f, p[i], NULL);
            n_freed++;
        }
        uint64_t q[2] = {fixture_malloc(&f, 1 + n_freed / 3, NULL), 0};
        if (n_freed > 1)
            q[1] = fixture_malloc(&f, n_freed - 1 - n_freed / 3, NULL);
        for (int i = 0; i < 20; i++)
            if (is_kept[i])
                fixture_free(&f, p[i], NULL);
        fixture_free(&f, q[0], NULL);
        if (q[1])
            fixture_free(&f, q[1], NULL);
        assert_in_range(fixture_totals(&f).zombie_pages, 0, 20 + 20);
    }
    assert_in_range(fixture_totals(&f).moved_pages, 100, 10000);
    assert_in_range(fixture_totals(&f).roots, 1, 3);
    fixture_teardown(&f);
}

struct held {
    volatile bool gate;
    unsigned queries_left; /* then the gate opens */
};

static void count_query(void *self, const char *name)
{
    struct held *held = self;
    if (strcmp(name, "cuEventQuery") == 0 && held->queries_left && --held->queries_left == 0)
        held->gate = true;
}

/* A device whose work is done at once, but for that which the gate holds. Of its 64 pages 40 wait
 * for the gate, freed. */
static void setup_held(struct fixture *f, struct held *held)
{
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.eager = true;
    params.sim.before_call = count_query;
    params.sim.self = held;
    fixture_setup(f, &params);
    CUstream stream = fixture_stream(f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(f, 40, stream);
    fixture_work(f, stream, p, 40, true, &held->gate);
    fixture_free(f, p, stream);
}

/* A request on the legacy stream, with the device full. Bare CUDA lets one blocking stream wait for
 * a flag that later work of another sets. A wait on the legacy stream between them would keep that
 * work back, so what ends by itself is polled for. */
static void test_legacy_stream_orders_nothing_for_a_request(void **state)
{
    (void)state;
    struct fixture f;
    struct held held = {.gate = false};
    uint32_t value = 0;
    CUdeviceptr flag = (CUdeviceptr)(uintptr_t)&value;
    setup_held(&f, &held);
    CUstream a = fixture_stream(&f, CU_STREAM_DEFAULT);
    CUstream b = fixture_stream(&f, CU_STREAM_DEFAULT);
    assert_int_equal(sim_stream_wait_value(f.sim, a, flag, 1, 4, CU_STREAM_WAIT_VALUE_EQ),
                     CUDA_SUCCESS);
    held.queries_left = 50;
    uint64_t q = fixture_malloc(&f, 40, CU_STREAM_LEGACY);
    assert_int_equal(sim_stream_write_value(f.sim, b, flag, 1, 4, 0), CUDA_SUCCESS);
    struct vpmm_heap_counts counts;
    vpmm_heap_counts(f.heap, &counts);
    assert_int_equal(counts.stream_waits, 0);
    assert_int_equal(counts.rungs[VPMM_RUNG_POLL], 1);
    assert_int_equal(sim_stream_synchronize(f.sim, a), CUDA_SUCCESS);
    fixture_free(&f, q, CU_STREAM_LEGACY);
    fixture_teardown(&f);
}

/* But a request is not refused for the sake of that. */
static void test_legacy_stream_waits_at_last(void **state)
{
    (void)state;
    struct fixture f;
    struct held held = {.gate = false};
    setup_held(&f, &held);
    uint64_t q = fixture_malloc(&f, 40, CU_STREAM_LEGACY);
    struct vpmm_heap_counts counts;
    vpmm_heap_counts(f.heap, &counts);
    assert_int_equal(counts.stream_waits, 1);
    assert_int_equal(counts.rungs[VPMM_RUNG_DEVICE_WAIT], 1);
    held.gate = true;
    fixture_free(&f, q, CU_STREAM_LEGACY);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_free_of_async_memory_is_not_waited_for),
        cmocka_unit_test(test_free_after_the_owner_is_gone),
        cmocka_unit_test(test_many_stream_fences_hide_no_other),
        cmocka_unit_test(test_address_space_is_used_again),
        cmocka_unit_test(test_legacy_stream_orders_nothing_for_a_request),
        cmocka_unit_test(test_legacy_stream_waits_at_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
