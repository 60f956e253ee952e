/* SPDX-License-Identifier: MIT */
/* Single steps of a malloc and of a free, each of which could be left out without any harm to most
 * programs. */
#include "fixture.h"

#include "base/table.h"
#include "heap/heap_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void a_request_is_rounded_up_to_whole_pages(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    const struct {
        uint64_t bytes, pages;
    } cases[] = {{1, 1}, {GIB - 1, 1}, {GIB, 1}, {GIB + 1, 2}, {2 * GIB - 1, 2}, {2 * GIB, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct vpmm_request request = {.bytes = cases[i].bytes, .context = f.context};
        uint64_t p;
        assert_int_equal(vpmm_heap_malloc(f.heap, &request, &p), VPMM_OK);
        assert_int_equal(fixture_totals(&f).live_pages, cases[i].pages);
        assert_int_equal(fixture_totals(&f).live_bytes, cases[i].bytes);
        fixture_free(&f, p, NULL);
    }
    fixture_teardown(&f);
}

/* Everything else on the device comes to its end meanwhile. */
static void a_free_waits_for_its_own_stream(void **state)
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
    (void)sim_drain(f.sim);
    uint64_t q = fixture_malloc(&f, 4, b);
    assert_int_not_equal(q, p);
    gate = true;
    fixture_free(&f, q, b);
    fixture_teardown(&f);
}

/* Whatever context is current: the work of the one that owns the memory is what may still use it.
 */
static void a_free_under_another_context_waits_for_the_owner(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUcontext second;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t p = fixture_malloc(&f, 4, NULL);
    fixture_work(&f, a, p, 4, true, &gate);
    assert_int_equal(sim_ctx_create(f.sim, 0, 0, &second), CUDA_SUCCESS);
    fixture_free(&f, p, NULL);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    (void)sim_drain(f.sim);
    uint64_t q = fixture_malloc(&f, 4, b);
    assert_int_not_equal(q, p);
    gate = true;
    fixture_free(&f, q, b);
    fixture_teardown(&f);
}

/* With VPMM_FREE_SYNC=1 the program hears what the wait answers, not only what the record did. */
static void a_free_that_waits_tells_what_the_wait_answered(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.heap.free_waits = true;
    fixture_setup(&f, &params);
    uint64_t p = fixture_malloc(&f, 4, NULL);
    sim_fault_set(f.sim, "cuCtxSynchronize", 1, CUDA_ERROR_ILLEGAL_ADDRESS, false);
    assert_int_equal(fixture_try_free(&f, p, NULL), VPMM_BROKEN);
    assert_int_equal(fixture_totals(&f).live_pages, 0);
    fixture_teardown(&f);
}

static CUstreamCaptureMode exchange_mode(struct fixture *f, CUstreamCaptureMode mode)
{
    assert_int_equal(sim_thread_exchange_stream_capture_mode(f->sim, &mode), CUDA_SUCCESS);
    return mode;
}

static void a_request_that_fails_leaves_the_threads_capture_mode(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    uint64_t p = fixture_malloc(&f, 60, NULL);
    uint64_t q;
    (void)exchange_mode(&f, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    assert_int_equal(fixture_try_malloc(&f, 10, NULL, &q), VPMM_NO_MEMORY);
    assert_int_equal(exchange_mode(&f, CU_STREAM_CAPTURE_MODE_GLOBAL),
                     CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    fixture_free(&f, p, NULL);
    fixture_teardown(&f);
}

/* What CUDA's own allocator keeps for reuse is given back before a request fails. */
static void cudas_default_pool_makes_room(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUmemoryPool pool;
    cuuint64_t all = UINT64_MAX;
    CUdeviceptr theirs;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    assert_int_equal(sim_device_get_default_mem_pool(f.sim, 0, &pool), CUDA_SUCCESS);
    assert_int_equal(
        sim_mem_pool_set_attribute(f.sim, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all),
        CUDA_SUCCESS);
    assert_int_equal(sim_mem_alloc_async(f.sim, 40 * GIB, a, &theirs), CUDA_SUCCESS);
    assert_int_equal(sim_mem_free_async(f.sim, theirs, a), CUDA_SUCCESS);
    assert_int_equal(sim_stream_synchronize(f.sim, a), CUDA_SUCCESS);
    fixture_free(&f, fixture_malloc(&f, 60, NULL), NULL);
    fixture_teardown(&f);
}

/* Frees every other one of eight pages and takes four: none of them lie together. */
static uint64_t scatter_and_stitch(struct fixture *f, uint64_t p[8])
{
    for (int i = 0; i < 8; i++)
        p[i] = fixture_malloc(f, 1, NULL);
    for (int i = 0; i < 8; i += 2)
        fixture_free(f, p[i], NULL);
    return fixture_malloc(f, 4, NULL);
}

/* The device has eight pages and the root sixteen, of which zombies come to hold eight: two
 * requests take every other page each. */
static void zombies_give_way_before_a_root_is_added(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.device_bytes = 8 * GIB;
    params.sim.eager = true;
    params.heap.root_bytes = 16 * GIB;
    fixture_setup(&f, &params);
    uint64_t p[8];
    uint64_t q = scatter_and_stitch(&f, p);
    for (int i = 1; i < 8; i += 2)
        fixture_free(&f, p[i], NULL);
    uint64_t r = fixture_malloc(&f, 4, NULL);
    fixture_free(&f, q, NULL);
    fixture_free(&f, r, NULL);
    assert_string_equal(fixture_layout(&f), "[z1][z1][z1][z1][z1][z1][z1][z1][-4][-4]");
    assert_int_equal(fixture_totals(&f).hole_pages, 0);
    for (int i = 0; i < 4; i++)
        p[i] = fixture_malloc(&f, 2, NULL);
    fixture_free(&f, p[0], NULL);
    fixture_free(&f, p[3], NULL);
    q = fixture_malloc(&f, 4, NULL);
    assert_int_equal(fixture_totals(&f).roots, 1);
    assert_int_equal(fixture_totals(&f).held_pages, 8);
    fixture_free(&f, p[1], NULL);
    fixture_free(&f, p[2], NULL);
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

/* Access is refused, and then the mappings cannot be taken back either: what they show is not
 * handed out until they are gone. */
static void what_cannot_be_undone_is_quarantined(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    uint64_t p;
    sim_fault_set(f.sim, "cuMemSetAccess", 1, CUDA_ERROR_INVALID_VALUE, false);
    sim_fault_set(f.sim, "cuMemUnmap", 1, CUDA_ERROR_INVALID_VALUE, false);
    assert_int_not_equal(fixture_try_malloc(&f, 4, NULL, &p), VPMM_OK);
    assert_string_equal(fixture_layout(&f), "[!4]");
    assert_int_equal(fixture_totals(&f).held_pages, 4);
    p = fixture_malloc(&f, 2, NULL);
    assert_string_equal(fixture_layout(&f), "[!4][2]");
    (void)vpmm_heap_trim(f.heap, UINT64_MAX);
    assert_int_equal(fixture_totals(&f).quarantined_pages, 0);
    fixture_free(&f, p, NULL);
    fixture_teardown(&f);
}

/* Fences pending on `a` until the order has no room for one more but `n_left`. */
static void fill_with_fences(struct fixture *f, CUstream a, unsigned n_left)
{
    struct vpmm_order_totals totals;
    do {
        fixture_free(f, fixture_malloc(f, 1, a), a);
        vpmm_order_totals(f->order, &totals);
    } while (totals.fences + n_left < VPMM_TABLE_CHUNK_RECORDS);
}

static void a_join_without_memory_puts_the_last_owner_first(void **state)
{
    (void)state;
    bool has_failed = false;
    for (unsigned n_left = 8; n_left > 0; n_left--) {
        struct fixture f;
        fixture_setup_default(&f);
        CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        CUstream c = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        volatile bool gate = false;
        uint64_t p = fixture_malloc(&f, 1, a);
        fixture_work(&f, a, p, 1, true, &gate);
        fixture_free(&f, p, a);
        fill_with_fences(&f, a, n_left);
        assert_int_equal(fixture_malloc(&f, 1, a), p);
        f.maps_until_failure = 1;
        fixture_free(&f, p, b);
        has_failed |= f.maps_until_failure == 0;
        f.maps_until_failure = 0;
        (void)sim_drain(f.sim);
        uint64_t q = fixture_malloc(&f, 1, c);
        assert_int_not_equal(q, p);
        gate = true;
        fixture_free(&f, q, c);
        fixture_teardown(&f);
    }
    assert_true(has_failed);
}

/* The driver refuses for good to map one extent again: that one stays where it is, and still serves
 * there and is given back. */
static void an_extent_that_cannot_be_moved_is_left_where_it_is(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    uint64_t p = fixture_malloc(&f, 3, NULL);
    uint64_t wall = fixture_malloc(&f, 1, NULL);
    uint64_t q = fixture_malloc(&f, 3, NULL);
    fixture_free(&f, p, NULL);
    fixture_free(&f, q, NULL);
    (void)sim_drain(f.sim);
    vpmm_heap_reap(f.heap);
    sim_fault_set(f.sim, "cuMemMap", 1, CUDA_ERROR_UNKNOWN, false);
    uint64_t five = fixture_malloc(&f, 5, NULL);
    assert_true(sim_fault_struck(f.sim, "cuMemMap"));
    assert_int_equal(fixture_totals(&f).held_pages, 7);
    assert_int_equal(fixture_totals(&f).moved_pages, 2);
    fixture_free(&f, five, NULL);
    uint64_t six = fixture_malloc(&f, 6, NULL);
    assert_int_equal(fixture_totals(&f).held_pages, 8);
    assert_int_equal(fixture_totals(&f).moved_pages, 2);
    uint64_t one = fixture_malloc(&f, 1, NULL);
    assert_int_equal(fixture_totals(&f).held_pages, 8);
    assert_true(one >= p && one < p + 3 * GIB);
    fixture_free(&f, one, NULL);
    fixture_free(&f, six, NULL);
    fixture_free(&f, wall, NULL);
    (void)sim_drain(f.sim);
    vpmm_heap_reap(f.heap);
    assert_int_equal(vpmm_heap_trim(f.heap, UINT64_MAX), 8 * GIB);
    assert_int_equal(fixture_totals(&f).held_pages, 0);
    fixture_teardown(&f);
}

/* What another thread's cudaFree left pending may end only when the caller goes on: a relief waits
 * for it on the host where cudaMalloc may, and nowhere else. */
static void a_relief_waits_only_where_it_may(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t p = fixture_malloc(&f, 4, NULL);
    fixture_work(&f, a, p, 4, true, &gate);
    fixture_free(&f, p, NULL);
    struct vpmm_relief relief = {.bytes = GIB};
    assert_false(vpmm_heap_relieve(f.heap, &relief));
    assert_int_equal(sim_calls(f.sim, "cuEventSynchronize"), 0);
    gate = true;
    relief.may_wait = true;
    assert_true(vpmm_heap_relieve(f.heap, &relief));
    assert_int_equal(fixture_totals(&f).held_pages, 0);
    fixture_teardown(&f);
}

/* Others take what is given back, again and again. */
static void a_relief_comes_to_an_end(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    struct vpmm_relief relief = {.bytes = GIB, .may_wait = true, .may_poll = true};
    unsigned n = 0;
    do {
        uint64_t p = fixture_malloc(&f, 1, NULL);
        fixture_free(&f, p, NULL);
        assert_true(n++ < 1000);
    } while (vpmm_heap_relieve(f.heap, &relief));
    struct vpmm_relief vain = {.bytes = 65 * GIB, .may_wait = true, .may_poll = true};
    assert_false(vpmm_heap_relieve(f.heap, &vain));
    assert_int_equal(fixture_totals(&f).held_pages, 1);
    fixture_teardown(&f);
}

/* Pages that are lost come back to nobody, so nobody waits for them. */
static void a_full_device_does_not_wait_for_what_is_lost(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    uint64_t p = fixture_malloc(&f, 4, NULL);
    uint64_t q = fixture_malloc(&f, 50, NULL);
    uint64_t r;
    sim_calls_reset(f.sim);
    assert_int_equal(fixture_try_malloc(&f, 14, NULL, &r), VPMM_NO_MEMORY);
    uint64_t calls = sim_calls(f.sim, NULL);
    assert_true(vpmm_heap_give_up(f.heap, p));
    assert_int_equal(fixture_totals(&f).busy_pages, 4);
    sim_calls_reset(f.sim);
    assert_int_equal(fixture_try_malloc(&f, 14, NULL, &r), VPMM_NO_MEMORY);
    assert_int_equal(sim_calls(f.sim, NULL), calls);
    vpmm_pool_free(f.heap->pool, p, VPMM_FENCE_NONE, 0);
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_rounded_up_to_whole_pages),
        cmocka_unit_test(a_free_waits_for_its_own_stream),
        cmocka_unit_test(a_free_under_another_context_waits_for_the_owner),
        cmocka_unit_test(a_free_that_waits_tells_what_the_wait_answered),
        cmocka_unit_test(a_request_that_fails_leaves_the_threads_capture_mode),
        cmocka_unit_test(cudas_default_pool_makes_room),
        cmocka_unit_test(zombies_give_way_before_a_root_is_added),
        cmocka_unit_test(what_cannot_be_undone_is_quarantined),
        cmocka_unit_test(a_join_without_memory_puts_the_last_owner_first),
        cmocka_unit_test(an_extent_that_cannot_be_moved_is_left_where_it_is),
        cmocka_unit_test(a_relief_waits_only_where_it_may),
        cmocka_unit_test(a_relief_comes_to_an_end),
        cmocka_unit_test(a_full_device_does_not_wait_for_what_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
