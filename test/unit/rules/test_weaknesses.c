/* SPDX-License-Identifier: MIT */
/* What went wrong elsewhere, each as a test of this heap: address space, merging, the choice of
 * what moves, growth before waiting, cudaMalloc's promise, other devices, contexts and handles. */
#include "blocks.h"

#include <string.h>

static void settle(struct fixture *f)
{
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f->sim));
    vpmm_heap_reap(f->heap);
}

/* A hole of the whole request is taken, but only its start is used: the rest is a hole again. */
static void weakness_w1_no_address_space_is_lost(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t first = fixture_malloc(&f, 1, a);
    fixture_free(&f, first, a);
    for (uint64_t n = 2; n <= 40; n++) {
        uint64_t p = fixture_malloc(&f, n, a);
        struct vpmm_pool_totals totals = fixture_totals(&f);
        SAME(first, p);
        SAME(n, totals.held_pages);
        SAME(totals.root_pages - n, totals.hole_pages);
        fixture_free(&f, p, a);
    }
    SAME(1, fixture_totals(&f).roots);
    fixture_teardown(&f);
}

/* While one free is inside the driver, others allocate, grow and free. */
static void weakness_w17_nobody_waits_for_anothers_driver_call(void **state)
{
    (void)state;
    struct fixture f;
    struct freeing freeing;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, a);
    stop_arm(&f);
    freeing_start(&freeing, &f, p, a);
    stop_await();
    uint64_t q = fixture_malloc(&f, 6, NULL);
    SAME(10, fixture_totals(&f).held_pages);
    fixture_free(&f, q, NULL);
    stop_open();
    freeing_end(&freeing);
    SAME(VPMM_OK, freeing.status);
    fixture_teardown(&f);
}

/* Neighbours of two streams, both complete, serve one request without a move. */
static void weakness_w6_complete_neighbours_have_no_owner(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, a);
    uint64_t q = fixture_malloc(&f, 4, b);
    fixture_free(&f, p, a);
    fixture_free(&f, q, b);
    settle(&f);
    SAME(p, fixture_malloc(&f, 8, b));
    SAME(0, fixture_totals(&f).moved_pages);
    SAME(8, fixture_totals(&f).created_pages);
    fixture_free(&f, p, b);
    fixture_teardown(&f);
}

/* A fresh free beside a complete region does not make that busy: another stream has it at once. */
static void weakness_w7_a_fresh_free_does_not_make_its_neighbour_busy(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t large = fixture_malloc(&f, 8, a);
    struct block small = {fixture_malloc(&f, 1, a), 1, 1};
    fixture_free(&f, large, a);
    settle(&f);
    block_write(&f, a, &small, &gate);
    fixture_free(&f, small.address, a);
    SAME(large, fixture_malloc(&f, 8, b));
    SAME(9, fixture_totals(&f).created_pages);
    gate = true;
    fixture_free(&f, large, b);
    fixture_teardown(&f);
}

/* What is left of a region that was split becomes one again with what comes back beside it. */
static void weakness_w8_the_rest_of_a_split_merges(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 10, a);
    fixture_free(&f, p, a);
    settle(&f);
    uint64_t low = fixture_malloc(&f, 3, b);
    uint64_t middle = fixture_malloc(&f, 3, a);
    assert_string_equal(fixture_layout(&f), "[3][3][-4]");
    fixture_free(&f, low, b);
    fixture_free(&f, middle, a);
    settle(&f);
    assert_string_equal(fixture_layout(&f), "[-10]");
    SAME(p, fixture_malloc(&f, 10, NULL));
    SAME(0, fixture_totals(&f).moved_pages);
    fixture_free(&f, p, NULL);
    fixture_teardown(&f);
}

/* The specification's case of 21 pages: what lies beside the hole is extended, one page moves. */
static void weakness_w9_a_free_run_is_extended_in_place(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    rules_params(&params);
    params.heap.eager_pages = 21;
    fixture_setup(&f, &params);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t ten = fixture_malloc(&f, 10, a);
    struct block one = {fixture_malloc(&f, 1, a), 1, 1};
    block_write(&f, a, &one, NULL);
    fixture_free(&f, ten, a);
    uint64_t four = fixture_malloc(&f, 4, a);
    uint64_t eleven = fixture_malloc(&f, 11, a);
    SAME(one.address + f.page_bytes, eleven);
    SAME(1, fixture_totals(&f).moved_pages);
    SAME(21, fixture_totals(&f).held_pages);
    settle(&f);
    assert_true(block_is_intact(&f, &one));
    fixture_free(&f, one.address, a);
    fixture_free(&f, four, a);
    fixture_free(&f, eleven, a);
    fixture_teardown(&f);
}

/* A region of just the size that is known complete is taken before a larger one of the stream is
 * split. */
static void weakness_w10_an_exact_fit_comes_first(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t exact = fixture_malloc(&f, 2, b);
    uint64_t wall = fixture_malloc(&f, 1, b);
    uint64_t own = fixture_malloc(&f, 20, a);
    fixture_free(&f, exact, b);
    vpmm_heap_reap(f.heap); /* records the event of the batch that it is in */
    settle(&f);
    fixture_free(&f, own, a);
    SAME(exact, fixture_malloc(&f, 2, a));
    assert_string_equal(fixture_layout(&f), "[2][1][-20]");
    fixture_free(&f, exact, a);
    fixture_free(&f, wall, b);
    fixture_teardown(&f);
}

/* While the device has memory, no stream is made to wait for another one. */
static void weakness_w11_growth_comes_before_a_wait_on_the_device(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    struct block p = {fixture_malloc(&f, 30, a), 30, 1};
    block_write(&f, a, &p, &gate);
    fixture_free(&f, p.address, a);
    struct block q = {fixture_malloc(&f, 30, b), 30, 2};
    block_write(&f, b, &q, NULL);
    SAME(CUDA_SUCCESS, sim_stream_synchronize(f.sim, b));
    SAME(0, sim_calls(f.sim, "cuStreamWaitEvent"));
    SAME(60, fixture_totals(&f).held_pages);
    gate = true;
    fixture_free(&f, q.address, b);
    fixture_teardown(&f);
}

/* cudaMalloc memory may be touched by anybody at once: no page under pending work backs it, not
 * even work of the calling thread's own streams. */
static void weakness_w13_cudamalloc_gets_complete_pages_only(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct block p = {fixture_malloc(&f, 4, a), 4, 1};
    block_write(&f, a, &p, NULL);
    fixture_free(&f, p.address, a);
    struct block q = {fixture_malloc(&f, 6, NULL), 6, 2};
    block_write(&f, b, &q, NULL);
    SAME(0, fixture_totals(&f).moved_pages);
    SAME(CUDA_SUCCESS, sim_stream_synchronize(f.sim, a));
    struct block r = {fixture_malloc(&f, 4, NULL), 4, 3};
    SAME(p.address, r.address);
    block_write(&f, b, &r, NULL);
    settle(&f);
    assert_true(block_is_intact(&f, &q));
    assert_true(block_is_intact(&f, &r));
    fixture_free(&f, q.address, NULL);
    fixture_free(&f, r.address, NULL);
    fixture_teardown(&f);
}

/* A second device reads and writes what there was and what there will be, moved pages included. */
static void weakness_w14_another_device_reaches_every_page(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    CUcontext second;
    rules_params(&params);
    params.sim.n_devices = 2;
    fixture_setup(&f, &params);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, a);
    struct block before = {fixture_malloc(&f, 2, a), 2, 1};
    block_write(&f, a, &before, NULL);
    fixture_free(&f, p, a);
    SAME(VPMM_OK, vpmm_heap_add_peer(f.heap, 1));
    struct block after = {fixture_malloc(&f, 7, a), 7, 2};
    SAME(4, fixture_totals(&f).moved_pages);
    settle(&f);
    SAME(CUDA_SUCCESS, sim_ctx_create(f.sim, 0, 1, &second));
    CUstream there = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    block_check(&f, there, &before);
    block_write(&f, there, &after, NULL);
    SAME(CUDA_SUCCESS, sim_memcpy_peer(f.sim, before.address, f.handle, after.address, second,
                                       f.page_bytes, there, false));
    SAME(CUDA_SUCCESS, sim_ctx_synchronize_of(f.sim, second));
    SAME(CUDA_SUCCESS, sim_ctx_set_current(f.sim, f.handle));
    assert_true(block_is_intact(&f, &after));
    struct block copied = {before.address, 1, 2};
    assert_true(block_is_intact(&f, &copied));
    SAME(0, blocks_wrong());
    fixture_free(&f, before.address, a);
    fixture_free(&f, after.address, a);
    fixture_teardown(&f);
}

/* A request larger than a root is served from a root of its own, and no block spans two. */
static void weakness_w22_a_request_larger_than_a_root(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    rules_params(&params);
    params.sim.device_bytes = 64 * MIB;
    params.heap.root_bytes = 8 * MIB;
    fixture_setup(&f, &params);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct block small = {fixture_malloc(&f, 3, a), 3, 1};
    struct block large = {fixture_malloc(&f, 20, a), 20, 2};
    SAME(2, fixture_totals(&f).roots);
    block_write(&f, a, &small, NULL);
    block_write(&f, a, &large, NULL);
    settle(&f);
    assert_true(block_is_intact(&f, &small));
    assert_true(block_is_intact(&f, &large));
    fixture_free(&f, small.address, a);
    fixture_free(&f, large.address, a);
    settle(&f);
    SAME(23, fixture_totals(&f).free_pages);
    fixture_teardown(&f);
}

/* What a stream freed outlives the stream: its work goes on, and the pages come back after it. */
static void weakness_w23_pages_outlive_the_stream_that_freed_them(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct block p = {fixture_malloc(&f, 4, a), 4, 1};
    block_write(&f, a, &p, NULL);
    fixture_free(&f, p.address, a);
    vpmm_order_stream_gone(f.order, (vpmm_stream_handle)a);
    SAME(CUDA_SUCCESS, sim_stream_destroy(f.sim, a));
    uint64_t q = fixture_malloc(&f, 4, NULL);
    assert_false(pages_overlap(&f, q, 4, p.address, 4));
    settle(&f);
    SAME(p.address, fixture_malloc(&f, 4, NULL));
    fixture_free(&f, p.address, NULL);
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

/* A reset takes cudaMalloc memory along, and nothing of the dead context is touched afterwards: the
 * device reports any use of its events. The next context starts afresh. */
static void weakness_w24_a_reset_takes_cudamalloc_memory_along(void **state)
{
    (void)state;
    struct fixture f;
    CUcontext primary;
    struct vpmm_context *context, *next;
    rules_setup(&f);
    SAME(CUDA_SUCCESS, sim_device_primary_ctx_retain(f.sim, 0, &primary));
    SAME(CUDA_SUCCESS, sim_ctx_set_current(f.sim, primary));
    SAME(VPMM_OK, vpmm_order_context(f.order, NULL, &context));
    f.context = context;
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t sync = fixture_malloc(&f, 4, NULL);
    uint64_t async = fixture_malloc(&f, 2, a);
    struct block freed = {fixture_malloc(&f, 3, a), 3, 1};
    block_write(&f, a, &freed, NULL);
    fixture_free(&f, freed.address, a);
    struct vpmm_departure departure =
        vpmm_order_context_leaving(f.order, (vpmm_context_handle)primary, true);
    SAME(CUDA_SUCCESS, sim_device_primary_ctx_reset(f.sim, 0));
    vpmm_order_context_left(f.order, &departure, true);
    vpmm_heap_context_gone(f.heap, vpmm_context_id(context));
    fixture_audit(&f);
    SAME(2, fixture_totals(&f).live_pages);
    vpmm_heap_reap(f.heap);
    SAME(7 * f.page_bytes, vpmm_heap_releasable_bytes(f.heap));
    SAME(VPMM_NOT_FOUND, fixture_try_free(&f, sync, NULL));
    SAME(CUDA_SUCCESS, sim_device_primary_ctx_retain(f.sim, 0, &primary));
    SAME(CUDA_SUCCESS, sim_ctx_set_current(f.sim, primary));
    SAME(VPMM_OK, vpmm_order_context(f.order, NULL, &next));
    assert_int_not_equal(vpmm_context_id(next), vpmm_context_id(context));
    f.context = next;
    struct block again = {fixture_malloc(&f, 4, NULL), 4, 2};
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    block_write(&f, b, &again, NULL);
    fixture_free(&f, again.address, NULL);
    fixture_free(&f, async, b);
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
    fixture_teardown(&f);
}

/* Three rounds of the walkthrough on one heap: every block is what was written, and what is held
 * does not grow after the first. */
static void several_cycles_of_stitching_hold_no_more_than_the_first(void **state)
{
    (void)state;
    struct fixture f;
    uint64_t held = 0;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    for (int cycle = 0; cycle < 3; cycle++) {
        static const uint64_t pages[] = {10, 1, 4, 11};
        struct block blocks[4];
        for (uint64_t i = 0; i < 4; i++) {
            blocks[i] = (struct block){fixture_malloc(&f, pages[i], a), pages[i], i + 1};
            block_write(&f, a, &blocks[i], NULL);
            if (i == 1)
                fixture_free(&f, blocks[0].address, a);
        }
        held = cycle ? held : fixture_totals(&f).held_pages;
        SAME(16, held);
        SAME(held, fixture_totals(&f).held_pages);
        for (int i = 1; i < 4; i++) {
            block_check(&f, a, &blocks[i]);
            fixture_free(&f, blocks[i].address, a);
        }
    }
    settle(&f);
    SAME(9, blocks_checked());
    SAME(0, blocks_wrong());
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weakness_w1_no_address_space_is_lost),
        cmocka_unit_test(weakness_w6_complete_neighbours_have_no_owner),
        cmocka_unit_test(weakness_w7_a_fresh_free_does_not_make_its_neighbour_busy),
        cmocka_unit_test(weakness_w8_the_rest_of_a_split_merges),
        cmocka_unit_test(weakness_w9_a_free_run_is_extended_in_place),
        cmocka_unit_test(weakness_w10_an_exact_fit_comes_first),
        cmocka_unit_test(weakness_w11_growth_comes_before_a_wait_on_the_device),
        cmocka_unit_test(weakness_w13_cudamalloc_gets_complete_pages_only),
        cmocka_unit_test(weakness_w14_another_device_reaches_every_page),
        cmocka_unit_test(weakness_w17_nobody_waits_for_anothers_driver_call),
        cmocka_unit_test(weakness_w22_a_request_larger_than_a_root),
        cmocka_unit_test(weakness_w23_pages_outlive_the_stream_that_freed_them),
        cmocka_unit_test(weakness_w24_a_reset_takes_cudamalloc_memory_along),
        cmocka_unit_test(several_cycles_of_stitching_hold_no_more_than_the_first),
    };
    return cmocka_run_group_tests_name("rules/weaknesses", tests, NULL, NULL);
}
