/* SPDX-License-Identifier: MIT */
/* The front cache of cudaMalloc and cudaFree on the simulated device: what it serves, and when. */
#include "fixture.h"

#include "heap/heap_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

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
    fixture_setup_eager(&f);
    struct vpmm_request request = {.bytes = 4 * f.page_bytes, .context = f.context};
    enum vpmm_status waited;
    uint64_t p = block_with_lane(&f, 4);
    uint64_t q = 0;
    struct vpmm_recalled recalled;
    uint64_t records = fixture_records(&f);
    uint64_t queries = sim_calls(f.sim, "cuEventQuery");
    uint64_t hits = fixture_hits(&f);
    assert_true(vpmm_cache_free_sync(f.heap, p, &waited));
    assert_int_equal(waited, VPMM_OK);
    vpmm_lock_take(&f.heap->lock);
    enum vpmm_status at_once = vpmm_cache_malloc_sync(f.heap, 4, &request, &q, &recalled);
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
    fixture_setup_eager(&f);
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
    fixture_setup_eager(&f);
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
    fixture_setup_eager(&f);
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
    fixture_setup_eager(&f);
    CUcontext second;
    struct vpmm_context *theirs;
    uint64_t p = block_with_lane(&f, 4);
    uint64_t q;
    struct vpmm_recalled recalled;
    assert_int_equal(sim_ctx_create(f.sim, 0, 0, &second), CUDA_SUCCESS);
    assert_int_equal(vpmm_order_context(f.order, (vpmm_context_handle)second, &theirs), VPMM_OK);
    struct vpmm_request request = {.bytes = 4 * f.page_bytes, .context = theirs};
    fixture_free(&f, p, NULL);
    (void)vpmm_order_poll(f.order);
    assert_int_equal(vpmm_cache_malloc_sync(f.heap, 4, &request, &q, &recalled), VPMM_NOT_FOUND);
    request.context = f.context;
    assert_int_equal(vpmm_cache_malloc_sync(f.heap, 4, &request, &q, &recalled), VPMM_OK);
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
    fixture_setup_eager(&f);
    enum vpmm_status waited;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, a);
    assert_false(vpmm_cache_free_sync(f.heap, p, &waited));
    fixture_free(&f, p, NULL);
    fixture_teardown(&f);
}

static void a_full_lane_makes_room(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
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
    fixture_setup_eager(&f);
    uint64_t p = block_with_lane(&f, 4);
    fixture_free(&f, p, NULL);
    assert_int_equal(fixture_try_free(&f, p, NULL), VPMM_NOT_FOUND);
    assert_int_equal(fixture_totals(&f).live_pages, 0);
    fixture_teardown(&f);
}

/* A program that frees and never allocates again looks for complete events all the same. */
static void frees_alone_use_events_again(void **state)
{
    (void)state;
    enum {
        BLOCKS = 1000
    };
    static uint64_t p[BLOCKS];
    struct fixture f;
    struct vpmm_order_totals totals;
    fixture_setup_eager(&f);
    for (unsigned i = 0; i < BLOCKS; i++)
        p[i] = fixture_malloc(&f, 1, NULL);
    for (unsigned i = 0; i < BLOCKS; i++)
        fixture_free(&f, p[i], NULL);
    vpmm_order_totals(f.order, &totals);
    assert_in_range(totals.events, 1, 64);
    fixture_teardown(&f);
}

static void a_context_that_is_gone_has_no_lane(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    enum vpmm_status waited;
    CUcontext second;
    struct vpmm_context *theirs;
    uint64_t p;
    assert_int_equal(sim_ctx_create(f.sim, 0, 0, &second), CUDA_SUCCESS);
    assert_int_equal(vpmm_order_context(f.order, (vpmm_context_handle)second, &theirs), VPMM_OK);
    struct vpmm_request request = {.bytes = 4 * f.page_bytes, .context = theirs};
    assert_int_equal(vpmm_heap_malloc(f.heap, &request, &p), VPMM_OK);
    struct vpmm_departure departure =
        vpmm_order_context_leaving(f.order, (vpmm_context_handle)second, true);
    assert_int_equal(sim_ctx_destroy(f.sim, second), CUDA_SUCCESS);
    vpmm_order_context_left(f.order, &departure, true);
    assert_false(vpmm_cache_free_sync(f.heap, p, &waited));
    vpmm_heap_context_gone(f.heap, vpmm_context_id(theirs));
    fixture_teardown(&f);
}

/* ---- what a lane took while somebody waited ---- */

static struct fixture full;
static CUstream other;
static uint64_t freed_meanwhile[2];
static unsigned n_freed_meanwhile;

/* Another thread's cudaFree, while the device works. */
static void free_one(void *self, const char *name)
{
    (void)self;
    enum vpmm_status waited;
    if (n_freed_meanwhile == 2 || !freed_meanwhile[n_freed_meanwhile] ||
        strcmp(name, "cuEventSynchronize") != 0)
        return;
    uint64_t p = freed_meanwhile[n_freed_meanwhile++];
    fixture_work(&full, other, p, 64, true, NULL);
    assert_int_equal(vpmm_heap_free(full.heap, p, NULL, &waited), VPMM_OK);
}

static void set_up_full(void)
{
    struct fixture_params params;
    fixture_params_cache(&params);
    params.sim.before_call = free_one;
    n_freed_meanwhile = 0;
    freed_meanwhile[0] = freed_meanwhile[1] = 0;
    fixture_setup(&full, &params);
    other = fixture_stream(&full, CU_STREAM_NON_BLOCKING);
}

static void growth_waits_for_what_a_lane_took_meanwhile(void **state)
{
    (void)state;
    set_up_full();
    CUstream a = fixture_stream(&full, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&full, 64, NULL);
    uint64_t q = fixture_malloc(&full, 64, NULL);
    fixture_work(&full, a, p, 64, true, NULL);
    fixture_free(&full, p, NULL);
    freed_meanwhile[0] = q;
    uint64_t large = fixture_malloc(&full, 128, NULL);
    assert_int_equal(n_freed_meanwhile, 1);
    assert_int_equal(fixture_totals(&full).held_pages, 128);
    fixture_free(&full, large, NULL);
    fixture_teardown(&full);
}

static void a_full_device_has_what_a_lane_took_meanwhile(void **state)
{
    (void)state;
    set_up_full();
    CUstream a = fixture_stream(&full, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&full, 64, NULL);
    uint64_t q = fixture_malloc(&full, 64, NULL);
    uint64_t r = fixture_malloc(&full, 64, NULL);
    uint64_t rest = fixture_malloc(&full, 64 * GIB / full.page_bytes - 3 * 64, NULL);
    uint64_t large = 0;
    fixture_work(&full, a, p, 64, true, NULL);
    fixture_free(&full, p, NULL);
    freed_meanwhile[0] = q;
    freed_meanwhile[1] = r;
    assert_int_equal(fixture_try_malloc(&full, 3 * 64, NULL, &large), VPMM_OK);
    fixture_free(&full, large, NULL);
    fixture_free(&full, rest, NULL);
    fixture_teardown(&full);
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
        cmocka_unit_test(frees_alone_use_events_again),
        cmocka_unit_test(a_context_that_is_gone_has_no_lane),
        cmocka_unit_test(growth_waits_for_what_a_lane_took_meanwhile),
        cmocka_unit_test(a_full_device_has_what_a_lane_took_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
