/* SPDX-License-Identifier: MIT */
/* The front cache on the simulated device: what it serves, and whom. */
#include "fixture.h"

#include "heap/heap_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define PAGE (16 * MIB)
#define SHARE 64 /* a larger region is not cached */

/* Whether a request of that stream is served from its lane. */
static bool is_hit(struct fixture *f, uint64_t pages, CUstream stream)
{
    uint64_t before = fixture_hits(f);
    uint64_t p = fixture_malloc(f, pages, stream);
    bool is_one = fixture_hits(f) == before + 1;
    fixture_free(f, p, NULL);
    return is_one;
}

static void a_hit_and_a_free_need_neither_driver_nor_lock(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct vpmm_stream known;
    struct vpmm_request request = {.bytes = 4 * PAGE, .context = f.context, .stream = &known};
    enum vpmm_status status;
    bool has_habit;
    uint64_t p = fixture_malloc(&f, 4, a);
    uint64_t q = 0;
    fixture_free(&f, p, a);
    assert_int_equal(vpmm_order_stream(f.order, (vpmm_stream_handle)a, &known), VPMM_OK);
    uint64_t calls = sim_calls(f.sim, NULL);
    vpmm_lock_take(&f.heap->lock);
    assert_true(vpmm_heap_malloc_cached(f.heap, &request, &q, &has_habit));
    assert_true(vpmm_heap_free_cached(f.heap, q, &known, &status));
    vpmm_lock_give(&f.heap->lock);
    assert_int_equal(sim_calls(f.sim, NULL), calls);
    assert_int_equal(status, VPMM_OK);
    assert_int_equal(q, p);
    assert_int_equal(fixture_hits(&f), 1);
    fixture_audit(&f);
    fixture_teardown(&f);
}

static void only_the_exact_size_is_a_hit(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    fixture_cycle(&f, 4, a);
    assert_false(is_hit(&f, 3, a));
    fixture_cycle(&f, 4, a);
    assert_false(is_hit(&f, 5, a));
    fixture_cycle(&f, 4, a);
    assert_true(is_hit(&f, 4, a));
    fixture_teardown(&f);
}

/* The stream itself still has the pages at once, through the pool, after another's request has
 * looked for them in vain. */
static void only_the_stream_that_freed_is_served(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t p = fixture_malloc(&f, 4, a);
    fixture_work(&f, a, p, 4, true, &gate);
    fixture_free(&f, p, a);
    uint64_t q = fixture_malloc(&f, 4, b);
    uint64_t r = fixture_malloc(&f, 4, NULL);
    assert_int_not_equal(q, p);
    assert_int_not_equal(r, p);
    assert_int_equal(fixture_malloc(&f, 4, a), p);
    assert_int_equal(fixture_hits(&f), 0);
    gate = true;
    fixture_free(&f, p, a);
    fixture_free(&f, q, b);
    fixture_free(&f, r, NULL);
    fixture_teardown(&f);
}

/* What its last owner left behind comes before nothing of the stream that frees it now. */
static void a_block_of_another_streams_past_is_not_cached(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t p = fixture_malloc(&f, 4, a);
    fixture_work(&f, a, p, 4, true, &gate);
    fixture_free(&f, p, a);
    assert_int_equal(fixture_malloc(&f, 4, a), p);
    fixture_free(&f, p, b);
    uint64_t q = fixture_malloc(&f, 4, b);
    assert_int_not_equal(q, p);
    assert_int_equal(fixture_hits(&f), 1);
    gate = true;
    fixture_free(&f, q, b);
    fixture_teardown(&f);
}

static void a_lane_holds_so_many_and_no_more(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t blocks[VPMM_LANE_REGIONS + 8];
    for (unsigned i = 0; i < VPMM_LANE_REGIONS + 8; i++)
        blocks[i] = fixture_malloc(&f, 1, a);
    for (unsigned i = 0; i < VPMM_LANE_REGIONS; i++)
        fixture_free(&f, blocks[i], a);
    for (unsigned i = 0; i < VPMM_LANE_REGIONS; i++)
        blocks[i] = fixture_malloc(&f, 1, a);
    assert_int_equal(fixture_hits(&f), VPMM_LANE_REGIONS);
    for (unsigned i = 0; i < VPMM_LANE_REGIONS + 8; i++)
        fixture_free(&f, blocks[i], a);
    struct vpmm_pool_totals totals = fixture_totals(&f);
    assert_int_equal(totals.live_pages, 0);
    assert_int_equal(totals.free_pages, VPMM_LANE_REGIONS + 8);
    for (unsigned i = 0; i < VPMM_LANE_REGIONS + 8; i++)
        blocks[i] = fixture_malloc(&f, 1, a);
    assert_int_equal(fixture_hits(&f), VPMM_LANE_REGIONS + 8);
    assert_int_equal(fixture_totals(&f).held_pages, VPMM_LANE_REGIONS + 8);
    for (unsigned i = 0; i < VPMM_LANE_REGIONS + 8; i++)
        fixture_free(&f, blocks[i], a);
    fixture_teardown(&f);
}

/* ---- what is not cached ---- */

static void a_large_share_of_the_device_is_not_cached(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    fixture_cycle(&f, SHARE, a);
    assert_true(is_hit(&f, SHARE, a));
    fixture_cycle(&f, SHARE + 1, a);
    assert_false(is_hit(&f, SHARE + 1, a));
    fixture_teardown(&f);
}

static void nothing_is_cached_while_a_capture_is_under_way(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream c = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    vpmm_stream_handle handle = (vpmm_stream_handle)c;
    CUgraph graph;
    uint64_t p = fixture_malloc(&f, 4, a);
    fixture_cycle(&f, 2, a);
    struct vpmm_context *ticket = vpmm_order_capture_begin(f.order, handle);
    assert_int_equal(sim_stream_begin_capture(f.sim, c, CU_STREAM_CAPTURE_MODE_RELAXED),
                     CUDA_SUCCESS);
    vpmm_order_capture_began(f.order, ticket, handle, true);
    fixture_free(&f, p, a);
    assert_int_equal(fixture_malloc(&f, 4, a), p);
    assert_int_equal(fixture_hits(&f), 0);
    assert_int_equal(sim_stream_end_capture(f.sim, c, &graph), CUDA_SUCCESS);
    vpmm_order_capture_ended(f.order, handle);
    fixture_free(&f, p, a);
    assert_true(is_hit(&f, 4, a));
    assert_int_equal(sim_graph_destroy(f.sim, graph), CUDA_SUCCESS);
    fixture_teardown(&f);
}

static void a_stream_of_another_device_has_no_lane(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    CUcontext second;
    fixture_params_cache(&params);
    params.sim.n_devices = 2;
    fixture_setup(&f, &params);
    assert_int_equal(sim_ctx_create(f.sim, 0, 1, &second), CUDA_SUCCESS);
    CUstream there = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    assert_int_equal(sim_ctx_set_current(f.sim, f.handle), CUDA_SUCCESS);
    uint64_t p = fixture_malloc(&f, 4, NULL);
    fixture_free(&f, p, there);
    assert_int_equal(f.heap->n_lanes, 0);
    assert_int_equal(fixture_totals(&f).free_pages, 4);
    fixture_teardown(&f);
}

/* ---- who allocated and who frees ---- */

static void memory_of_cudamalloc_is_cached_by_the_stream_that_frees_it(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct vpmm_region_view view;
    uint64_t p = fixture_malloc(&f, 4, NULL);
    fixture_free(&f, p, a);
    assert_int_equal(vpmm_heap_find(f.heap, p, &view), VPMM_OK);
    assert_int_equal(view.state, VPMM_REGION_FREE);
    assert_int_equal(fixture_malloc(&f, 4, a), p);
    assert_int_equal(fixture_hits(&f), 1);
    assert_int_equal(vpmm_heap_find(f.heap, p, &view), VPMM_OK);
    assert_true(view.owner.is_async);
    assert_int_equal(view.owner.bytes, 4 * PAGE);
    fixture_free(&f, p, a);
    fixture_teardown(&f);
}

static void memory_of_a_lane_can_be_freed_by_cudafree(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    fixture_cycle(&f, 4, a);
    uint64_t p = fixture_malloc(&f, 4, a);
    assert_int_equal(fixture_hits(&f), 1);
    fixture_work(&f, a, p, 4, true, &gate);
    fixture_free(&f, p, NULL);
    uint64_t q = fixture_malloc(&f, 4, a);
    assert_int_not_equal(q, p);
    assert_int_equal(fixture_hits(&f), 1);
    gate = true;
    fixture_free(&f, q, a);
    fixture_teardown(&f);
}

static void what_is_cached_cannot_be_freed_again(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, a);
    assert_int_equal(fixture_try_free(&f, p + PAGE, a), VPMM_NOT_FOUND);
    fixture_free(&f, p, a);
    assert_int_equal(fixture_try_free(&f, p, a), VPMM_NOT_FOUND);
    assert_int_equal(fixture_try_free(&f, p, NULL), VPMM_NOT_FOUND);
    assert_int_equal(fixture_totals(&f).free_pages, 4);
    fixture_teardown(&f);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Also once a lane has used up the numbers that were set aside for it. */
static void no_two_allocations_have_one_id(void **state)
{
    (void)state;
    enum {
        ROUNDS = 1100,
        N = 3 * ROUNDS
    };
    static uint64_t ids[N];
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream streams[3] = {fixture_stream(&f, CU_STREAM_NON_BLOCKING),
                           fixture_stream(&f, CU_STREAM_NON_BLOCKING), NULL};
    for (int i = 0; i < N; i++) {
        struct vpmm_region_view view;
        CUstream stream = streams[i / ROUNDS];
        uint64_t p = fixture_malloc(&f, 1, stream);
        assert_int_equal(vpmm_heap_find(f.heap, p, &view), VPMM_OK);
        ids[i] = view.owner.id;
        fixture_free(&f, p, stream);
    }
    assert_true(fixture_hits(&f) > 2 * 1024);
    qsort(ids, N, sizeof ids[0], compare);
    assert_true(ids[0] > 0);
    for (int i = 1; i < N; i++)
        assert_true(ids[i] > ids[i - 1]);
    fixture_teardown(&f);
}

/* The context is gone. */
static void without_an_open_fence_a_free_goes_to_the_pool(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct vpmm_stream known;
    enum vpmm_status status;
    uint64_t p = fixture_malloc(&f, 4, a);
    assert_int_equal(vpmm_order_stream(f.order, (vpmm_stream_handle)a, &known), VPMM_OK);
    struct vpmm_departure departure =
        vpmm_order_context_leaving(f.order, (vpmm_context_handle)f.handle, true);
    vpmm_order_context_left(f.order, &departure, true);
    assert_false(vpmm_heap_free_cached(f.heap, p, &known, &status));
    assert_int_equal(fixture_totals(&f).live_pages, 4);
    assert_int_equal(vpmm_heap_free(f.heap, p, &known, &status), VPMM_OK);
    assert_int_equal(fixture_totals(&f).live_pages, 0);
    fixture_teardown(&f);
}

/* What is found by bins must be what the lane holds. */
static void an_audit_looks_into_the_bins(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, a), q = fixture_malloc(&f, 2, a);
    fixture_free(&f, p, a);
    fixture_free(&f, q, a);
    struct vpmm_lane *lane = f.heap->first_lane;
    assert_null(vpmm_heap_audit(f.heap));
    for (unsigned i = 0; i < VPMM_LANE_BINS; i++) {
        uint64_t was = lane->bins[i];
        lane->bins[i] ^= 1;
        assert_non_null(vpmm_heap_audit(f.heap));
        lane->bins[i] = was | 4;
        assert_non_null(vpmm_heap_audit(f.heap));
        lane->bins[i] = was;
    }
    lane->addresses[0] += PAGE;
    assert_non_null(vpmm_heap_audit(f.heap));
    lane->addresses[0] -= PAGE;
    assert_null(vpmm_heap_audit(f.heap));
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hit_and_a_free_need_neither_driver_nor_lock),
        cmocka_unit_test(only_the_exact_size_is_a_hit),
        cmocka_unit_test(only_the_stream_that_freed_is_served),
        cmocka_unit_test(a_block_of_another_streams_past_is_not_cached),
        cmocka_unit_test(a_lane_holds_so_many_and_no_more),
        cmocka_unit_test(a_large_share_of_the_device_is_not_cached),
        cmocka_unit_test(nothing_is_cached_while_a_capture_is_under_way),
        cmocka_unit_test(a_stream_of_another_device_has_no_lane),
        cmocka_unit_test(memory_of_cudamalloc_is_cached_by_the_stream_that_frees_it),
        cmocka_unit_test(memory_of_a_lane_can_be_freed_by_cudafree),
        cmocka_unit_test(what_is_cached_cannot_be_freed_again),
        cmocka_unit_test(no_two_allocations_have_one_id),
        cmocka_unit_test(without_an_open_fence_a_free_goes_to_the_pool),
        cmocka_unit_test(an_audit_looks_into_the_bins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
