/* SPDX-License-Identifier: MIT */
/* Who may reuse what, and when: docs/DESIGN.md section 3, through the heap, on an adversarial
 * device. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* The table's first row: the freeing stream gets the pages at once, everybody else only when the
 * work is done. */
static void test_stream_free(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, a);
    fixture_work(&f, a, p, 4, true, NULL);
    fixture_free(&f, p, a);
    uint64_t other = fixture_malloc(&f, 4, b);
    assert_int_not_equal(other, p);
    assert_int_equal(fixture_malloc(&f, 4, a), p);
    fixture_work(&f, a, p, 4, true, NULL);
    fixture_free(&f, p, a);
    uint64_t host = fixture_malloc(&f, 4, NULL);
    assert_int_not_equal(host, p);
    assert_int_equal(sim_stream_synchronize(f.sim, a), CUDA_SUCCESS);
    assert_int_equal(fixture_malloc(&f, 4, b), p);
    fixture_free(&f, p, b);
    fixture_free(&f, other, b);
    fixture_free(&f, host, NULL);
    fixture_teardown(&f);
}

/* The second row: cudaFree returns at once with work queued, and its pages go to nobody before all
 * streams are done. */
static void test_host_free(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t p = fixture_malloc(&f, 4, NULL);
    fixture_work(&f, a, p, 4, true, &gate);
    fixture_free(&f, p, NULL);
    struct sim_counts counts;
    sim_live_counts(f.sim, &counts);
    assert_int_not_equal(counts.pending, 0);
    uint64_t on_b = fixture_malloc(&f, 4, b);
    uint64_t on_a = fixture_malloc(&f, 4, a);
    assert_int_not_equal(on_b, p);
    assert_int_not_equal(on_a, p);
    gate = true;
    assert_int_equal(sim_ctx_synchronize(f.sim), CUDA_SUCCESS);
    assert_int_equal(fixture_malloc(&f, 4, NULL), p);
    fixture_free(&f, p, NULL);
    fixture_free(&f, on_a, a);
    fixture_free(&f, on_b, b);
    fixture_teardown(&f);
}

/* 3.5: cudaMalloc waits for what cudaFree left pending rather than hold more than live and slack.
 */
static void test_host_malloc_waits_instead_of_growing(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, NULL);
    fixture_work(&f, a, p, 4, true, NULL);
    fixture_free(&f, p, NULL);
    assert_int_equal(fixture_malloc(&f, 4, NULL), p);
    assert_int_equal(fixture_totals(&f).held_pages, 4);
    struct vpmm_heap_counts counts;
    vpmm_heap_counts(f.heap, &counts);
    assert_int_equal(counts.host_waits, 1);
    fixture_free(&f, p, NULL);
    fixture_teardown(&f);
}

/* 3.5: but it never waits so for a stream's fence while the device has memory: the stream may be
 * waiting for us. */
static void test_host_malloc_does_not_wait_for_streams(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t p = fixture_malloc(&f, 4, a);
    fixture_work(&f, a, p, 4, true, &gate);
    fixture_free(&f, p, a);
    uint64_t q = fixture_malloc(&f, 4, NULL);
    assert_int_not_equal(q, p);
    gate = true;
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

/* 3.5: stream A frees and then waits for a flag that the next work of B sets. Bare CUDA runs that,
 * also when memory is short: what B waits for was recorded before the flag's wait. */
static void test_flag_of_the_next_owner(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint32_t flag = 0;
    uint64_t p = fixture_malloc(&f, 40, a);
    fixture_work(&f, a, p, 40, true, NULL);
    fixture_free(&f, p, a);
    assert_int_equal(sim_stream_wait_value(f.sim, a, (CUdeviceptr)(uintptr_t)&flag, 1, 4,
                                           CU_STREAM_WAIT_VALUE_EQ),
                     CUDA_SUCCESS);
    uint64_t q = fixture_malloc(&f, 40, b);
    fixture_work(&f, b, q, 40, true, NULL);
    assert_int_equal(sim_stream_write_value(f.sim, b, (CUdeviceptr)(uintptr_t)&flag, 1, 4, 0),
                     CUDA_SUCCESS);
    assert_int_equal(sim_stream_synchronize(f.sim, a), CUDA_SUCCESS);
    struct vpmm_heap_counts counts;
    vpmm_heap_counts(f.heap, &counts);
    assert_int_equal(counts.stream_waits, 1);
    assert_int_equal(fixture_totals(&f).live_pages, 40);
    fixture_free(&f, q, b);
    fixture_teardown(&f);
}

/* 3.6: an extent that two free regions overlap is free only when both their fences are; its zombie
 * waits for both. */
static void test_second_fence_of_an_extent(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.device_bytes = 132 * MIB;
    params.heap.page_bytes = 2 * MIB;
    params.heap.root_bytes = GIB;
    params.heap.extent_pages_max = 8;
    params.heap.eager_pages = 64;
    fixture_setup(&f, &params);
    assert_int_equal(fixture_totals(&f).mappings, 8);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t low = fixture_malloc(&f, 4, a);
    uint64_t high = fixture_malloc(&f, 4, b);
    uint64_t rest = fixture_malloc(&f, 56, NULL);
    fixture_work(&f, b, high, 4, true, &gate);
    fixture_free(&f, low, a);
    fixture_free(&f, high, b);
    assert_int_equal(sim_stream_synchronize(f.sim, a), CUDA_SUCCESS);
    assert_string_equal(fixture_layout(&f), "[-4][-4][56]");

    uint64_t nine;
    assert_int_equal(fixture_try_malloc(&f, 9, NULL, &nine), VPMM_NO_MEMORY);
    assert_int_equal(fixture_totals(&f).moved_pages, 0);
    assert_int_equal(fixture_try_malloc(&f, 9, a, &nine), VPMM_OK);
    fixture_work(&f, a, nine, 9, true, NULL);
    (void)sim_drain_stream(f.sim, a);
    struct sim_counts counts;
    sim_live_counts(f.sim, &counts);
    assert_in_range(counts.pending, 2, 1000);
    vpmm_heap_reap(f.heap);
    assert_int_equal(fixture_totals(&f).zombie_pages, 8);
    gate = true;
    (void)sim_drain(f.sim);
    vpmm_heap_reap(f.heap);
    assert_int_equal(fixture_totals(&f).zombie_pages, 0);
    fixture_free(&f, nine, a);
    fixture_free(&f, rest, NULL);
    fixture_teardown(&f);
}

/* 3.7: one fresh free does not make its complete neighbour busy. */
static void test_fresh_free_next_to_a_complete_one(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.heap.eager_pages = 8;
    fixture_setup(&f, &params);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 2, a);
    fixture_work(&f, a, p, 2, true, NULL);
    fixture_free(&f, p, a);
    assert_string_equal(fixture_layout(&f), "[-2][-6]");
    assert_int_equal(fixture_malloc(&f, 6, b), p + 2 * f.page_bytes);
    assert_int_equal(fixture_totals(&f).created_pages, 8);
    fixture_free(&f, p + 2 * f.page_bytes, b);
    fixture_teardown(&f);
}

/* 3.3: two blocking streams keep the order that a free on the legacy stream gives them. */
static void test_legacy_stream_orders_blocking_streams(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUstream first = fixture_stream(&f, CU_STREAM_DEFAULT);
    CUstream second = fixture_stream(&f, CU_STREAM_DEFAULT);
    volatile bool gate = false;
    uint64_t p = fixture_malloc(&f, 1, CU_STREAM_LEGACY);
    uint64_t q = fixture_malloc(&f, 1, second);
    fixture_work(&f, first, q, 1, false, &gate);
    fixture_free(&f, p, CU_STREAM_LEGACY);
    assert_int_equal(fixture_malloc(&f, 1, CU_STREAM_LEGACY), p);
    fixture_work(&f, second, q, 1, false, NULL);
    (void)sim_drain(f.sim);
    assert_int_equal(sim_stream_query(f.sim, second), CUDA_ERROR_NOT_READY);
    gate = true;
    (void)sim_drain(f.sim);
    assert_int_equal(sim_stream_query(f.sim, second), CUDA_SUCCESS);
    fixture_free(&f, p, CU_STREAM_LEGACY);
    fixture_free(&f, q, second);
    fixture_teardown(&f);
}

/* A region taken by its own stream while old work was pending carries that work on: cudaFreeAsync
 * on another stream does not forget it. */
static void test_prior_fence_is_carried_on(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t p = fixture_malloc(&f, 4, a);
    fixture_work(&f, a, p, 4, true, &gate);
    fixture_free(&f, p, a);
    assert_int_equal(fixture_malloc(&f, 4, a), p);
    fixture_free(&f, p, b);
    (void)sim_drain_stream(f.sim, b);
    uint64_t q = fixture_malloc(&f, 4, b);
    assert_int_not_equal(q, p);
    gate = true;
    fixture_free(&f, q, b);
    fixture_teardown(&f);
}

/* 3.8: during a capture cudaFree neither breaks it nor loses pages: the region is parked until the
 * capture ends. */
static void test_free_during_a_capture_is_parked(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, NULL);
    struct vpmm_context *ticket = vpmm_order_capture_begin(f.order, (vpmm_stream_handle)a);
    assert_non_null(ticket);
    assert_int_equal(sim_stream_begin_capture(f.sim, a, CU_STREAM_CAPTURE_MODE_GLOBAL),
                     CUDA_SUCCESS);
    vpmm_order_capture_began(f.order, ticket, (vpmm_stream_handle)a, true);
    fixture_free(&f, p, NULL);
    uint64_t q = fixture_malloc(&f, 4, NULL);
    assert_int_not_equal(q, p);
    CUstreamCaptureStatus status;
    assert_int_equal(sim_stream_is_capturing(f.sim, a, &status), CUDA_SUCCESS);
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    CUgraph graph;
    assert_int_equal(sim_stream_end_capture(f.sim, a, &graph), CUDA_SUCCESS);
    vpmm_order_capture_recheck(f.order, (vpmm_stream_handle)a);
    assert_int_equal(sim_graph_destroy(f.sim, graph), CUDA_SUCCESS);
    vpmm_heap_reap(f.heap);
    (void)sim_drain(f.sim);
    assert_int_equal(fixture_malloc(&f, 4, NULL), p);
    fixture_free(&f, p, NULL);
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

/* A stream that was found busy so often that it is passed over is asked again before memory is
 * created. */
static void test_a_stream_that_was_long_busy_is_asked_again(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t q[2 * VPMM_PASSES_MAX];
    uint64_t p = fixture_malloc(&f, 4, a);
    fixture_work(&f, a, p, 4, true, &gate);
    fixture_free(&f, p, a);
    for (unsigned i = 0; i < 2 * VPMM_PASSES_MAX; i++)
        q[i] = fixture_malloc(&f, 1, b);
    gate = true;
    assert_int_equal(sim_stream_synchronize(f.sim, a), CUDA_SUCCESS);
    uint64_t held_pages = fixture_totals(&f).held_pages;
    assert_int_equal(fixture_malloc(&f, 4, b), p);
    assert_int_equal(fixture_totals(&f).held_pages, held_pages);
    fixture_free(&f, p, b);
    for (unsigned i = 0; i < 2 * VPMM_PASSES_MAX; i++)
        fixture_free(&f, q[i], b);
    fixture_teardown(&f);
}

/* What the legacy stream freed, a blocking stream may have at once. However much that stream has
 * freed itself, it leaves a mark then: the program may wait for it and use the block elsewhere. */
static void what_the_legacy_stream_freed_leaves_a_mark(void **state)
{
    (void)state;
    struct fixture f;
    volatile bool gate = false;
    fixture_setup_cache(&f);
    CUstream blocking = fixture_stream(&f, CU_STREAM_DEFAULT);
    uint64_t p = fixture_malloc(&f, 4, CU_STREAM_LEGACY);
    uint64_t own = fixture_malloc(&f, 8, blocking);
    fixture_free(&f, own, blocking);
    fixture_work(&f, CU_STREAM_LEGACY, p, 4, true, &gate);
    fixture_free(&f, p, CU_STREAM_LEGACY);
    uint64_t n_records = sim_calls(f.sim, "cuEventRecord");
    assert_int_equal(fixture_malloc(&f, 4, blocking), p);
    assert_int_equal(sim_calls(f.sim, "cuEventRecord"), n_records + 1);
    fixture_free(&f, p, blocking);
    n_records = sim_calls(f.sim, "cuEventRecord");
    assert_int_equal(fixture_malloc(&f, 8, blocking), own);
    assert_int_equal(sim_calls(f.sim, "cuEventRecord"), n_records);
    fixture_free(&f, own, blocking);
    gate = true;
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stream_free),
        cmocka_unit_test(test_host_free),
        cmocka_unit_test(test_host_malloc_waits_instead_of_growing),
        cmocka_unit_test(test_host_malloc_does_not_wait_for_streams),
        cmocka_unit_test(test_flag_of_the_next_owner),
        cmocka_unit_test(test_second_fence_of_an_extent),
        cmocka_unit_test(test_fresh_free_next_to_a_complete_one),
        cmocka_unit_test(test_legacy_stream_orders_blocking_streams),
        cmocka_unit_test(test_prior_fence_is_carried_on),
        cmocka_unit_test(test_free_during_a_capture_is_parked),
        cmocka_unit_test(test_a_stream_that_was_long_busy_is_asked_again),
        cmocka_unit_test(what_the_legacy_stream_freed_leaves_a_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
