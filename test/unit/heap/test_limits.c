/* SPDX-License-Identifier: MIT */
/* The edges: a full device, address space, eager pages, trim, contexts that go, a second device. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_sizes_that_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    uint64_t address = 42;
    const struct vpmm_request nothing = {.bytes = 0, .context = f.context};
    const struct vpmm_request huge = {.bytes = (uint64_t)1 << 50, .context = f.context};
    const struct vpmm_request largest = {.bytes = UINT64_MAX, .context = f.context};
    assert_int_equal(vpmm_heap_malloc(f.heap, &nothing, &address), VPMM_INVALID);
    assert_int_equal(vpmm_heap_malloc(f.heap, &huge, &address), VPMM_INVALID);
    assert_int_equal(vpmm_heap_malloc(f.heap, &largest, &address), VPMM_INVALID);
    assert_int_equal(address, 42);
    assert_int_equal(fixture_totals(&f).held_pages, 0);
    fixture_teardown(&f);
}

static void test_frees_that_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    uint64_t p = fixture_malloc(&f, 3, NULL);
    assert_int_equal(fixture_try_free(&f, p + 1, NULL), VPMM_NOT_FOUND);
    assert_int_equal(fixture_try_free(&f, p + f.page_bytes, NULL), VPMM_NOT_FOUND);
    assert_int_equal(fixture_try_free(&f, p + 3 * f.page_bytes, NULL), VPMM_NOT_FOUND);
    assert_int_equal(fixture_try_free(&f, 4096, NULL), VPMM_NOT_FOUND);
    assert_string_equal(fixture_layout(&f), "[3]");
    fixture_free(&f, p, NULL);
    assert_int_equal(fixture_try_free(&f, p, NULL), VPMM_NOT_FOUND);
    fixture_teardown(&f);
}

/* With the device full, cudaMallocAsync lets its stream wait on the device; the host does not stop.
 */
static void test_full_device_waits_on_the_device(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t p = fixture_malloc(&f, 40, a);
    fixture_work(&f, a, p, 40, true, &gate);
    fixture_free(&f, p, a);
    uint64_t q = fixture_malloc(&f, 60, b);
    fixture_work(&f, b, q, 60, true, NULL);
    (void)sim_drain(f.sim);
    assert_int_equal(sim_stream_query(f.sim, b), CUDA_ERROR_NOT_READY);
    struct vpmm_heap_counts counts;
    vpmm_heap_counts(f.heap, &counts);
    assert_int_equal(counts.stream_waits, 1);
    assert_int_equal(counts.host_waits, 0);
    gate = true;
    assert_int_equal(sim_stream_synchronize(f.sim, b), CUDA_SUCCESS);
    fixture_free(&f, q, b);
    fixture_teardown(&f);
}

static void test_full_device_fails_and_recovers(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    uint64_t p = fixture_malloc(&f, 60, NULL);
    uint64_t q = 0;
    assert_int_equal(fixture_try_malloc(&f, 10, NULL, &q), VPMM_NO_MEMORY);
    assert_int_equal(q, 0);
    assert_string_equal(fixture_layout(&f), "[60]");
    fixture_free(&f, p, NULL);
    q = fixture_malloc(&f, 64, NULL);
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

/* W22, W1: requests larger than a root get one of their own; small roots are added as they fill up;
 * none merge. */
static void test_further_roots(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.heap.root_bytes = 4 * GIB;
    fixture_setup(&f, &params);
    uint64_t p[4];
    for (int i = 0; i < 4; i++)
        p[i] = fixture_malloc(&f, 3, NULL);
    assert_int_equal(fixture_totals(&f).roots, 4);
    uint64_t large = fixture_malloc(&f, 9, NULL);
    assert_int_equal(fixture_totals(&f).roots, 5);
    for (int i = 0; i < 4; i++)
        fixture_free(&f, p[i], NULL);
    fixture_free(&f, large, NULL);
    fixture_teardown(&f);
}

/* A root that cannot be had at its full size is tried smaller, down to twice the device. */
static void test_root_is_tried_smaller(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.va_bytes = 300 * GIB;
    fixture_setup(&f, &params);
    uint64_t root_pages = fixture_totals(&f).root_pages;
    assert_in_range(root_pages, 128, 300);
    fixture_teardown(&f);
}

static void test_eager_pages_as_many_as_can_be_had(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.heap.eager_pages = 1000;
    fixture_setup(&f, &params);
    assert_int_equal(fixture_totals(&f).free_pages, 64);
    assert_string_equal(fixture_layout(&f), "[-64]");
    fixture_teardown(&f);
}

/* A small live region in the middle of eager memory pins no more than the extent it lies in. */
static void test_eager_extents_are_small(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.heap.page_bytes = 2 * MIB;
    params.heap.extent_pages_max = 0;
    params.heap.eager_pages = 16 * GIB / (2 * MIB);
    fixture_setup(&f, &params);
    assert_string_equal(fixture_layout(&f), "[-8192]");
    uint64_t p = fixture_malloc(&f, 1, NULL);
    assert_in_range(vpmm_heap_releasable_bytes(f.heap), 16 * GIB - 64 * MIB, 16 * GIB - 2 * MIB);
    fixture_free(&f, p, NULL);
    fixture_teardown(&f);
}

static void test_trim(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    uint64_t p = fixture_malloc(&f, 4, NULL);
    uint64_t q = fixture_malloc(&f, 4, NULL);
    fixture_free(&f, p, NULL);
    (void)sim_drain(f.sim);
    vpmm_heap_reap(f.heap);
    assert_int_equal(vpmm_heap_releasable_bytes(f.heap), 4 * GIB);
    assert_int_equal(vpmm_heap_trim(f.heap, GIB + 1), 2 * GIB);
    assert_int_equal(vpmm_heap_trim(f.heap, UINT64_MAX), 2 * GIB);
    assert_int_equal(vpmm_heap_trim(f.heap, UINT64_MAX), 0);
    struct sim_counts counts;
    sim_live_counts(f.sim, &counts);
    assert_int_equal(counts.used_bytes[0], 4 * GIB);
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

static void test_trim_keeps_so_much(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    uint64_t p = fixture_malloc(&f, 8, NULL);
    uint64_t q = fixture_malloc(&f, 4, NULL);
    fixture_free(&f, p, NULL);
    (void)sim_drain(f.sim);
    assert_int_equal(vpmm_heap_trim_to(f.heap, 12 * GIB), 0);
    assert_int_equal(vpmm_heap_trim_to(f.heap, 10 * GIB), 2 * GIB);
    assert_int_equal(fixture_totals(&f).held_pages, 10);
    assert_int_equal(vpmm_heap_trim_to(f.heap, 0), 6 * GIB);
    assert_int_equal(fixture_totals(&f).held_pages, 4);
    assert_int_equal(vpmm_heap_trim_to(f.heap, 0), 0);
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

/* cuCtxDestroy frees cudaMalloc memory of the context, not cudaMallocAsync memory. */
static void test_context_gone(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUcontext second;
    struct vpmm_context *context;
    assert_int_equal(sim_ctx_create(f.sim, 0, 0, &second), CUDA_SUCCESS);
    assert_int_equal(vpmm_order_context(f.order, NULL, &context), VPMM_OK);
    CUstream stream = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t async = fixture_malloc(&f, 2, stream);
    const struct vpmm_request request = {.bytes = 3 * GIB, .context = context};
    uint64_t sync;
    assert_int_equal(vpmm_heap_malloc(f.heap, &request, &sync), VPMM_OK);
    uint64_t other = fixture_malloc(&f, 1, NULL);
    fixture_free(&f, fixture_malloc(&f, 5, stream), stream);

    struct vpmm_departure departure =
        vpmm_order_context_leaving(f.order, (vpmm_context_handle)second, true);
    assert_int_equal(sim_ctx_destroy(f.sim, second), CUDA_SUCCESS);
    vpmm_order_context_left(f.order, &departure, true);
    vpmm_heap_context_gone(f.heap, vpmm_context_id(context));
    fixture_audit(&f);
    assert_int_equal(fixture_totals(&f).live_pages, 3);
    vpmm_heap_reap(f.heap);
    assert_int_equal(vpmm_heap_releasable_bytes(f.heap), 8 * GIB);
    fixture_free(&f, async, NULL);
    fixture_free(&f, other, NULL);
    fixture_teardown(&f);
}

static bool can_read(struct fixture *f, CUdevice device, uint64_t address)
{
    char byte;
    return sim_peek(f->sim, device, address, &byte, 1);
}

/* A second device gets access to what is mapped already and to what will be. */
static void test_add_peer(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.n_devices = 2;
    params.sim.device_bytes = 64 * MIB;
    params.sim.has_bytes = true;
    params.heap.page_bytes = 2 * MIB;
    params.heap.root_bytes = 512 * MIB;
    params.heap.extent_pages_max = 4;
    fixture_setup(&f, &params);
    uint64_t p = fixture_malloc(&f, 6, NULL);
    uint64_t q = fixture_malloc(&f, 2, NULL);
    fixture_free(&f, p, NULL);
    p = fixture_malloc(&f, 3, NULL);
    assert_false(can_read(&f, 1, p));
    assert_int_equal(vpmm_heap_add_peer(f.heap, 1), VPMM_OK);
    assert_true(can_read(&f, 1, p));
    assert_true(can_read(&f, 1, q));
    uint64_t r = fixture_malloc(&f, 9, NULL);
    assert_true(can_read(&f, 1, r + 9 * f.page_bytes - 1));
    assert_true(can_read(&f, 0, r));
    assert_int_equal(vpmm_heap_add_peer(f.heap, 1), VPMM_OK);
    fixture_free(&f, p, NULL);
    fixture_free(&f, q, NULL);
    fixture_free(&f, r, NULL);
    fixture_teardown(&f);
}

/* VPMM_FREE_SYNC: cudaFree of cudaMalloc memory waits for its context and reports what that
 * reports. */
static void test_free_waits(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.heap.free_waits = true;
    fixture_setup(&f, &params);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, NULL);
    fixture_work(&f, a, p, 4, true, NULL);
    fixture_free(&f, p, NULL);
    assert_int_equal(sim_stream_query(f.sim, a), CUDA_SUCCESS);
    assert_int_equal(fixture_malloc(&f, 4, NULL), p);
    sim_device_break(f.sim, 0, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(fixture_try_free(&f, p, NULL), VPMM_BROKEN);
    assert_int_equal(fixture_totals(&f).live_pages, 0);
    sim_device_break(f.sim, 0, CUDA_SUCCESS);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_that_are_refused),
        cmocka_unit_test(test_frees_that_are_refused),
        cmocka_unit_test(test_full_device_waits_on_the_device),
        cmocka_unit_test(test_full_device_fails_and_recovers),
        cmocka_unit_test(test_further_roots),
        cmocka_unit_test(test_root_is_tried_smaller),
        cmocka_unit_test(test_eager_pages_as_many_as_can_be_had),
        cmocka_unit_test(test_eager_extents_are_small),
        cmocka_unit_test(test_trim),
        cmocka_unit_test(test_trim_keeps_so_much),
        cmocka_unit_test(test_context_gone),
        cmocka_unit_test(test_add_peer),
        cmocka_unit_test(test_free_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
