/* SPDX-License-Identifier: MIT */
/* The front cache of cudaMalloc and cudaFree on the simulated device: what it serves, and when. */
#include "fixture.h"

#include "heap/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* What no work keeps waiting is complete at once. */
static void setup(struct fixture *fixture)
{
    struct fixture_params params;
    fixture_params_cache(&params);
    params.sim.eager = true;
    fixture_setup(fixture, &params);
}

/* A block whose lane is there already, so that only the lane is asked. */
static uint64_t block_with_lane(struct fixture *f, uint64_t pages)
{
    fixture_cycle(f, pages, NULL);
    return fixture_malloc(f, pages, NULL);
}

static void a_pair_is_a_record_and_a_query(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    struct vpmm_request request = {.bytes = 4 * f.page_bytes, .context = f.context};
    enum vpmm_status waited;
    uint64_t p = block_with_lane(&f, 4);
    uint64_t q = 0;
    uint64_t records = fixture_records(&f);
    uint64_t queries = sim_calls(f.sim, "cuEventQuery");
    uint64_t hits = fixture_hits(&f);
    assert_true(vpmm_cache_free_waiting(f.heap, p, &waited));
    assert_int_equal(waited, VPMM_OK);
    vpmm_lock_take(&f.heap->lock);
    enum vpmm_status at_once = vpmm_cache_malloc_waiting(f.heap, 4, &request, &q);
    vpmm_lock_give(&f.heap->lock);
    assert_int_equal(at_once, VPMM_NOT_READY);
    assert_int_equal(vpmm_heap_malloc(f.heap, &request, &q), VPMM_OK);
    assert_int_equal(q, p);
    assert_int_equal(fixture_hits(&f), hits + 1);
    assert_int_equal(fixture_records(&f), records + 1);
    assert_int_equal(sim_calls(f.sim, "cuEventQuery"), queries + 1);
    fixture_audit(&f);
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

static void what_is_in_use_is_not_handed_out(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t p = block_with_lane(&f, 4);
    fixture_work(&f, a, p, 4, true, &gate);
    fixture_free(&f, p, NULL);
    uint64_t q = fixture_malloc(&f, 4, NULL);
    assert_int_not_equal(q, p);
    gate = true;
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

/* The newest is still in use, an older one of the same size is not. */
static void an_older_one_that_is_complete_serves(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t keep = fixture_malloc(&f, 1, NULL);
    uint64_t p = block_with_lane(&f, 4);
    uint64_t q = fixture_malloc(&f, 4, NULL);
    fixture_free(&f, p, NULL);
    fixture_free(&f, keep, NULL);
    fixture_work(&f, a, q, 4, true, &gate);
    fixture_free(&f, q, NULL);
    uint64_t hits = fixture_hits(&f);
    assert_int_equal(fixture_malloc(&f, 4, NULL), p);
    assert_int_equal(fixture_hits(&f), hits + 1);
    gate = true;
    fixture_free(&f, p, NULL);
    fixture_teardown(&f);
}

/* Also where nothing else is left to serve it with. */
static void it_never_costs_memory(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = block_with_lane(&f, 4);
    uint64_t held = fixture_totals(&f).held_pages;
    fixture_free(&f, p, NULL);
    assert_int_equal(fixture_malloc(&f, 4, a), p);
    fixture_free(&f, p, a);
    p = fixture_malloc(&f, 2, NULL);
    uint64_t q = fixture_malloc(&f, 2, NULL);
    assert_int_equal(fixture_totals(&f).held_pages, held);
    fixture_free(&f, p, NULL);
    fixture_free(&f, q, NULL);
    assert_int_equal(fixture_malloc(&f, 4, NULL), p < q ? p : q);
    assert_int_equal(fixture_totals(&f).held_pages, held);
    fixture_teardown(&f);
}

/* Bare cudaFree waits for the context that owns the memory, and so for no other. */
static void a_context_has_a_lane_of_its_own(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    CUcontext second;
    struct vpmm_context *theirs;
    uint64_t p = block_with_lane(&f, 4);
    uint64_t q;
    assert_int_equal(sim_ctx_create(f.sim, 0, 0, &second), CUDA_SUCCESS);
    assert_int_equal(vpmm_order_context(f.order, (vpmm_context_handle)second, &theirs), VPMM_OK);
    struct vpmm_request request = {.bytes = 4 * f.page_bytes, .context = theirs};
    fixture_free(&f, p, NULL);
    (void)vpmm_order_poll(f.order);
    assert_int_equal(vpmm_cache_malloc_waiting(f.heap, 4, &request, &q), VPMM_NOT_FOUND);
    request.context = f.context;
    assert_int_equal(vpmm_cache_malloc_waiting(f.heap, 4, &request, &q), VPMM_OK);
    assert_int_equal(q, p);
    fixture_free(&f, q, NULL);
    assert_int_equal(sim_ctx_destroy(f.sim, second), CUDA_SUCCESS);
    fixture_teardown(&f);
}

/* Their cudaFree waits for nothing in bare CUDA, so nobody may wait for it. */
static void what_cudamallocasync_gave_is_the_pools(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    enum vpmm_status waited;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, a);
    assert_false(vpmm_cache_free_waiting(f.heap, p, &waited));
    fixture_free(&f, p, NULL);
    fixture_teardown(&f);
}

static void a_full_lane_makes_room(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    uint64_t p[VPMM_LANE_REGIONS + 2];
    unsigned n = VPMM_LANE_REGIONS + 2;
    for (unsigned i = 0; i < n; i++)
        p[i] = fixture_malloc(&f, 1, NULL);
    for (unsigned i = 0; i < n; i++)
        fixture_free(&f, p[i], NULL);
    fixture_audit(&f);
    uint64_t held = fixture_totals(&f).held_pages;
    for (unsigned i = 0; i < n; i++)
        p[i] = fixture_malloc(&f, 1, NULL);
    assert_int_equal(fixture_totals(&f).held_pages, held);
    for (unsigned i = 0; i < n; i++)
        fixture_free(&f, p[i], NULL);
    fixture_teardown(&f);
}

static void what_is_cached_cannot_be_freed_again(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f);
    uint64_t p = block_with_lane(&f, 4);
    fixture_free(&f, p, NULL);
    assert_int_equal(fixture_try_free(&f, p, NULL), VPMM_NOT_FOUND);
    assert_int_equal(fixture_totals(&f).live_pages, 0);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pair_is_a_record_and_a_query),
        cmocka_unit_test(what_is_in_use_is_not_handed_out),
        cmocka_unit_test(an_older_one_that_is_complete_serves),
        cmocka_unit_test(it_never_costs_memory),
        cmocka_unit_test(a_context_has_a_lane_of_its_own),
        cmocka_unit_test(what_cudamallocasync_gave_is_the_pools),
        cmocka_unit_test(a_full_lane_makes_room),
        cmocka_unit_test(what_is_cached_cannot_be_freed_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
