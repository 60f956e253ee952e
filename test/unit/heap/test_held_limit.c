/* SPDX-License-Identifier: MIT */
/* A limit on what may be held: at it the heap behaves as at the end of the device. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define LIMIT_PAGES 10u

static struct fixture f;

static void set_up_with(uint64_t limit_bytes, uint64_t eager_pages)
{
    struct fixture_params params;
    fixture_params_default(&params);
    params.heap.limit_bytes = limit_bytes;
    params.heap.eager_pages = eager_pages;
    fixture_setup(&f, &params);
}

static int set_up(void **state)
{
    (void)state;
    set_up_with(LIMIT_PAGES * GIB, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_teardown(&f);
    return 0;
}

static enum vpmm_status try_malloc(uint64_t pages, CUstream stream)
{
    uint64_t address;
    enum vpmm_status status = fixture_try_malloc(&f, pages, stream, &address);
    if (!status)
        fixture_free(&f, address, stream);
    return status;
}

static struct vpmm_heap_counts counts(void)
{
    struct vpmm_heap_counts counts;
    vpmm_heap_counts(f.heap, &counts);
    return counts;
}

static void no_more_is_held(void **state)
{
    (void)state;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 6, NULL);
    uint64_t q = fixture_malloc(&f, 4, a);
    assert_int_equal(try_malloc(1, NULL), VPMM_LIMITED);
    assert_int_equal(try_malloc(1, a), VPMM_LIMITED);
    assert_int_equal(try_malloc(LIMIT_PAGES + 1, NULL), VPMM_LIMITED);
    assert_int_equal(fixture_totals(&f).held_pages, LIMIT_PAGES);
    assert_int_equal(counts().failures, 3);
    fixture_free(&f, q, a);
    q = fixture_malloc(&f, 3, a);
    fixture_free(&f, q, a);
    fixture_free(&f, p, NULL);
    (void)sim_drain(f.sim);
    fixture_free(&f, fixture_malloc(&f, LIMIT_PAGES, NULL), NULL);
    assert_int_equal(fixture_totals(&f).held_pages_peak, LIMIT_PAGES);
    assert_int_equal(vpmm_heap_limit_bytes(f.heap), LIMIT_PAGES * GIB);
}

static void pieces_are_put_together_at_it(void **state)
{
    (void)state;
    uint64_t p[5];
    for (int i = 0; i < 5; i++)
        p[i] = fixture_malloc(&f, 2, NULL);
    for (int i = 0; i < 5; i += 2)
        fixture_free(&f, p[i], NULL);
    (void)sim_drain(f.sim);
    uint64_t q = fixture_malloc(&f, 6, NULL);
    assert_int_equal(fixture_totals(&f).held_pages, LIMIT_PAGES);
    assert_true(fixture_totals(&f).moved_pages > 0);
    fixture_free(&f, q, NULL);
    fixture_free(&f, p[1], NULL);
    fixture_free(&f, p[3], NULL);
}

static void a_stream_waits_on_the_device_for_what_another_left_pending(void **state)
{
    (void)state;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t p = fixture_malloc(&f, 7, a);
    fixture_work(&f, a, p, 7, true, &gate);
    fixture_free(&f, p, a);
    uint64_t q = fixture_malloc(&f, 9, b);
    assert_int_equal(counts().stream_waits, 1);
    assert_int_equal(fixture_totals(&f).held_pages, LIMIT_PAGES - 1);
    gate = true;
    fixture_free(&f, q, b);
    (void)sim_drain(f.sim);
}

static void cudamalloc_waits_for_what_cudafree_left_pending(void **state)
{
    (void)state;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 7, NULL);
    fixture_work(&f, a, p, 7, true, NULL);
    fixture_free(&f, p, NULL);
    uint64_t q = fixture_malloc(&f, 9, NULL);
    assert_true(counts().host_waits > 0);
    assert_int_equal(sim_stream_query(f.sim, a), CUDA_SUCCESS);
    fixture_free(&f, q, NULL);
}

/* What waiting could not give is not waited for: neither on the host nor on the device. */
static void nobody_waits_in_vain_at_it(void **state)
{
    (void)state;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t keep = fixture_malloc(&f, 4, NULL);
    uint64_t p = fixture_malloc(&f, 6, a);
    fixture_work(&f, a, p, 6, true, &gate);
    fixture_free(&f, p, a);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    assert_int_equal(try_malloc(7, b), VPMM_LIMITED);
    assert_int_equal(try_malloc(7, NULL), VPMM_LIMITED);
    assert_int_equal(counts().stream_waits + counts().host_waits, 0);
    gate = true;
    (void)sim_drain(f.sim);
    fixture_free(&f, keep, NULL);
}

static void what_the_device_refuses_below_it_is_no_matter_of_the_limit(void **state)
{
    (void)state;
    fixture_teardown(&f);
    set_up_with(100 * GIB, 0);
    uint64_t p = fixture_malloc(&f, 60, NULL);
    assert_int_equal(try_malloc(5, NULL), VPMM_NO_MEMORY);
    fixture_free(&f, p, NULL);
}

static void eager_pages_stop_at_it(void **state)
{
    (void)state;
    fixture_teardown(&f);
    set_up_with(LIMIT_PAGES * GIB + GIB / 2, 64);
    assert_int_equal(fixture_totals(&f).held_pages, LIMIT_PAGES);
    assert_int_equal(vpmm_heap_limit_bytes(f.heap), LIMIT_PAGES * GIB);
}

/* From three quarters of the limit on each free has an event of its own, which others can wait for
 * on the device. */
static void a_pool_near_it_is_tight(void **state)
{
    (void)state;
    fixture_teardown(&f);
    struct fixture_params params;
    fixture_params_cache(&params);
    params.heap.limit_bytes = 1000 * params.heap.page_bytes;
    fixture_setup(&f, &params);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 800, NULL);
    fixture_cycle(&f, 4, a);
    uint64_t before = fixture_records(&f);
    for (int i = 0; i < 8; i++)
        fixture_cycle(&f, 4, a);
    assert_int_equal(fixture_records(&f) - before, 8);
    fixture_free(&f, p, NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_more_is_held),
        TEST(pieces_are_put_together_at_it),
        TEST(a_stream_waits_on_the_device_for_what_another_left_pending),
        TEST(cudamalloc_waits_for_what_cudafree_left_pending),
        TEST(nobody_waits_in_vain_at_it),
        TEST(what_the_device_refuses_below_it_is_no_matter_of_the_limit),
        TEST(eager_pages_stop_at_it),
        TEST(a_pool_near_it_is_tight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
