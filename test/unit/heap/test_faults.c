/* SPDX-License-Identifier: MIT */
/* Every driver call of a stitch, and every allocation of metadata, fails in turn, once and for
 * ever: the caller gets a status, nothing is lost, and the heap works again when the fault is gone.
 */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define PAGES 12

static void setup(struct fixture *fixture)
{
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.device_bytes = 64 * MIB;
    params.heap.page_bytes = 2 * MIB;
    params.heap.root_bytes = 512 * MIB;
    params.heap.eager_pages = PAGES;
    fixture_setup(fixture, &params);
}

/* The walkthrough's case D: its last call extends in place, harvests six extents, creates four, and
 * leaves zombies. The one after it has to unmap them. */
static void walk(struct fixture *f, CUstream stream)
{
    uint64_t addresses[6] = {0};
    static const uint64_t pages[6] = {10, 1, 0, 4, 11, 3};
    for (int i = 0; i < 6; i++) {
        if (i == 2) {
            if (addresses[0])
                fixture_free(f, addresses[0], stream);
            addresses[0] = 0;
        } else if (fixture_try_malloc(f, pages[i], stream, &addresses[i])) {
            addresses[i] = 0;
        } else {
            fixture_work(f, stream, addresses[i], pages[i], true, NULL);
        }
    }
    for (int i = 0; i < 6; i++)
        if (addresses[i])
            fixture_free(f, addresses[i], i % 2 ? stream : NULL);
    (void)sim_drain(f->sim);
    vpmm_heap_reap(f->heap);
    (void)vpmm_heap_trim(f->heap, 4 * MIB);
    fixture_audit(f);
    assert_int_equal(fixture_totals(f).live_pages, 0);
}

/* As walk, but everything must be served. */
static void walk_without_fault(struct fixture *f, CUstream stream)
{
    uint64_t p = fixture_malloc(f, 20, stream);
    uint64_t q = fixture_malloc(f, 7, NULL);
    fixture_work(f, stream, p, 20, true, NULL);
    fixture_free(f, p, stream);
    fixture_free(f, q, NULL);
    (void)sim_drain(f->sim);
    vpmm_heap_reap(f->heap);
    struct vpmm_pool_totals totals = fixture_totals(f);
    assert_int_equal(totals.live_pages, 0);
    assert_int_equal(totals.zombie_pages, 0);
    assert_int_equal(totals.busy_pages, 0);
}

struct fault {
    const char *name;
    CUresult code;
};

static const struct fault faults[] = {
    {"cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY},    {"cuMemCreate", CUDA_ERROR_INVALID_DEVICE},
    {"cuMemMap", CUDA_ERROR_OUT_OF_MEMORY},       {"cuMemMap", CUDA_ERROR_INVALID_VALUE},
    {"cuMemSetAccess", CUDA_ERROR_OUT_OF_MEMORY}, {"cuMemSetAccess", CUDA_ERROR_NOT_READY},
    {"cuMemUnmap", CUDA_ERROR_INVALID_VALUE},     {"cuMemRelease", CUDA_ERROR_INVALID_VALUE},
    {"cuEventCreate", CUDA_ERROR_OUT_OF_MEMORY},  {"cuEventRecord", CUDA_ERROR_INVALID_VALUE},
    {"cuCtxRecordEvent", CUDA_ERROR_UNKNOWN},     {"cuEventQuery", CUDA_ERROR_UNKNOWN},
};

static bool strike(const struct fault *fault, uint64_t nth, bool forever)
{
    struct fixture f;
    setup(&f);
    CUstream stream = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    sim_fault_set(f.sim, fault->name, nth, fault->code, forever);
    walk(&f, stream);
    bool struck = sim_fault_struck(f.sim, fault->name);
    sim_fault_clear(f.sim, fault->name);
    vpmm_heap_reap(f.heap);
    (void)sim_drain(f.sim);
    (void)vpmm_heap_trim(f.heap, UINT64_MAX);
    assert_int_equal(fixture_totals(&f).quarantined_pages, 0);
    walk_without_fault(&f, stream);
    fixture_teardown(&f);
    return struck;
}

static void test_driver_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        for (int forever = 0; forever < 2; forever++) {
            uint64_t nth = 1;
            while (strike(&faults[i], nth, forever))
                nth++;
            assert_int_not_equal(nth, 1);
            print_message("%s %s: %llu uses\n", faults[i].name, forever ? "for ever" : "once",
                          (unsigned long long)(nth - 1));
        }
    }
}

static void test_metadata_faults(void **state)
{
    (void)state;
    bool struck = true;
    for (uint64_t nth = 1; struck; nth++) {
        struct fixture f;
        setup(&f);
        CUstream stream = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        f.maps_until_failure = nth;
        walk(&f, stream);
        struck = f.maps_until_failure == 0;
        f.maps_until_failure = 0;
        walk_without_fault(&f, stream);
        fixture_teardown(&f);
    }
}

/* Creation undoes itself too. */
static void test_faults_of_creation(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    const struct vpmm_heap_params params = {
        .page_bytes = 2 * MIB, .root_bytes = 512 * MIB, .eager_pages = 4, .extent_pages_max = 1};
    struct vpmm_heap *heap = NULL;
    enum vpmm_status status = VPMM_NO_METADATA;
    uint64_t outstanding = f.maps_outstanding;
    for (uint64_t nth = 1; status; nth++) {
        f.maps_until_failure = nth;
        status = vpmm_heap_create(&params, &f.driver, f.order, &f.memory, &heap);
        f.maps_until_failure = 0;
        if (status) {
            assert_int_equal(status, VPMM_NO_METADATA);
            assert_int_equal(f.maps_outstanding, outstanding);
        }
    }
    vpmm_heap_destroy(heap);
    sim_fault_set(f.sim, "cuMemAddressReserve", 1, CUDA_ERROR_OUT_OF_MEMORY, true);
    assert_int_equal(vpmm_heap_create(&params, &f.driver, f.order, &f.memory, &heap),
                     VPMM_NO_MEMORY);
    sim_fault_clear(f.sim, NULL);
    assert_int_equal(f.maps_outstanding, outstanding);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_driver_faults),
        cmocka_unit_test(test_metadata_faults),
        cmocka_unit_test(test_faults_of_creation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
