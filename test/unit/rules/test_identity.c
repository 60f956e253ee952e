/* SPDX-License-Identifier: MIT */
/* docs/DESIGN.md section 3, rules 8 to 11: captures, who a stream is, one free, aliases. */
#include "blocks.h"

#include <string.h>

/* All that the heap does on its own, while somebody captures: the device reports whatever breaks
 * the capture, and the capture ends as it should. */
static void use_the_heap(struct fixture *f, CUstream captured, CUstream other)
{
    uint64_t big;
    uint64_t p = fixture_malloc(f, 4, NULL);
    struct block q = {fixture_malloc(f, 4, other), 4, 1};
    block_write(f, other, &q, NULL);
    fixture_free(f, q.address, other);
    fixture_free(f, p, NULL);
    p = fixture_malloc(f, 4, other);
    fixture_free(f, p, captured);
    p = fixture_malloc(f, 8, NULL);
    fixture_free(f, p, CU_STREAM_LEGACY);
    vpmm_heap_reap(f->heap);
    (void)vpmm_heap_trim(f->heap, 4 * f->page_bytes);
    p = fixture_malloc(f, 100, NULL);
    SAME(VPMM_NO_MEMORY, fixture_try_malloc(f, 60, other, &big));
    SAME(VPMM_NO_MEMORY, fixture_try_malloc(f, 60, NULL, &big));
    fixture_free(f, p, NULL);
}

static void rule_3_8_nothing_of_ours_breaks_a_capture(void **state)
{
    (void)state;
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                                CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                CU_STREAM_CAPTURE_MODE_RELAXED};
    for (size_t i = 0; i < 3; i++) {
        struct fixture f;
        rules_setup(&f);
        CUstream captured = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        CUstream other = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        fixture_free(&f, fixture_malloc(&f, 2, captured), captured);
        fixture_free(&f, fixture_malloc(&f, 2, other), NULL);
        gated_capture_begin(&f, captured, modes[i]);
        use_the_heap(&f, captured, other);
        gated_capture_end(&f, captured);
        SAME(0, sim_misuse_count(f.sim, SIM_CAPTURE_BROKEN));
        vpmm_heap_reap(f.heap);
        SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
        vpmm_heap_reap(f.heap);
        SAME(fixture_totals(&f).held_pages * f.page_bytes, vpmm_heap_releasable_bytes(f.heap));
        fixture_teardown(&f);
    }
}

/* cudaFree during a capture: nobody has the pages before the capture has ended and the record been
 * made, even when the work is long done. */
static void rule_3_8_pages_freed_during_a_capture_are_parked(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    struct block p = {fixture_malloc(&f, 4, NULL), 4, 1};
    block_write(&f, b, &p, &gate);
    gated_capture_begin(&f, a, CU_STREAM_CAPTURE_MODE_RELAXED);
    fixture_free(&f, p.address, NULL);
    SAME(0, sim_calls(f.sim, "cuCtxRecordEvent"));
    uint64_t q = fixture_malloc(&f, 4, NULL);
    assert_false(pages_overlap(&f, q, 4, p.address, 4));
    gated_capture_end(&f, a);
    vpmm_heap_reap(f.heap);
    SAME(1, sim_calls(f.sim, "cuCtxRecordEvent"));
    uint64_t r = fixture_malloc(&f, 4, NULL);
    assert_false(pages_overlap(&f, r, 4, p.address, 4));
    gate = true;
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
    SAME(p.address, fixture_malloc(&f, 4, NULL));
    fixture_free(&f, p.address, NULL);
    fixture_free(&f, q, NULL);
    fixture_free(&f, r, NULL);
    fixture_teardown(&f);
}

/* A handle value that comes back is another stream: what the old one freed is not its own. */
static void reused_handle(int driver_version)
{
    struct fixture f;
    struct fixture_params params;
    rules_params(&params);
    params.sim.driver_version = driver_version;
    params.sim.reuse_handles = true;
    fixture_setup(&f, &params);
    CUstream old = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    struct block p = {fixture_malloc(&f, 4, old), 4, 1};
    block_write(&f, old, &p, &gate);
    fixture_free(&f, p.address, old);
    vpmm_order_stream_gone(f.order, (vpmm_stream_handle)old);
    SAME(CUDA_SUCCESS, sim_stream_destroy(f.sim, old));
    CUstream next = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    assert_ptr_equal(next, old);
    struct block q = {fixture_malloc(&f, 4, next), 4, 2};
    assert_false(pages_overlap(&f, q.address, 4, p.address, 4));
    block_write(&f, next, &q, NULL);
    block_check(&f, next, &q);
    gate = true;
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
    SAME(0, blocks_wrong());
    fixture_free(&f, q.address, next);
    fixture_teardown(&f);
}

static void rule_3_9_a_reused_handle_is_another_stream(void **state)
{
    (void)state;
    reused_handle(13000);
    reused_handle(11080);
}

/* One handle, two threads, two streams. */
static void rule_3_9_the_per_thread_stream_is_the_threads_own(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    volatile bool gate = false;
    struct block p = {fixture_malloc(&f, 4, CU_STREAM_PER_THREAD), 4, 1};
    block_write(&f, CU_STREAM_PER_THREAD, &p, &gate);
    fixture_free(&f, p.address, CU_STREAM_PER_THREAD);
    sim_thread_act_as(f.sim, 2);
    SAME(CUDA_SUCCESS, sim_ctx_set_current(f.sim, f.handle));
    uint64_t q = fixture_malloc(&f, 4, CU_STREAM_PER_THREAD);
    assert_false(pages_overlap(&f, q, 4, p.address, 4));
    sim_thread_act_as(f.sim, 0);
    SAME(p.address, fixture_malloc(&f, 4, CU_STREAM_PER_THREAD));
    gate = true;
    fixture_free(&f, p.address, NULL);
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

/* The second free comes while the first is still recording its fence: it is refused, and the pages
 * have one owner afterwards. (heap/test_order races real threads for the same.) */
static void rule_3_10_a_second_free_is_refused_while_the_first_is_under_way(void **state)
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
    SAME(VPMM_NOT_FOUND, fixture_try_free(&f, p, a));
    SAME(VPMM_NOT_FOUND, fixture_try_free(&f, p, NULL));
    stop_open();
    freeing_end(&freeing);
    SAME(VPMM_OK, freeing.status);
    SAME(VPMM_NOT_FOUND, fixture_try_free(&f, p, a));
    uint64_t first = fixture_malloc(&f, 4, a);
    uint64_t second = fixture_malloc(&f, 4, a);
    assert_false(pages_overlap(&f, first, 4, second, 4));
    fixture_free(&f, first, a);
    fixture_free(&f, second, a);
    fixture_teardown(&f);
}

/* The old address of moved pages stays mapped while old work uses it; the next owner's work on the
 * new one comes after it. */
static void rule_3_11_an_alias_is_used_in_order(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct block p = {fixture_malloc(&f, 4, a), 4, 1};
    uint64_t wall = fixture_malloc(&f, 1, a);
    block_write(&f, a, &p, NULL);
    block_check(&f, a, &p);
    fixture_free(&f, p.address, a);
    struct block q = {fixture_malloc(&f, 5, a), 5, 2};
    assert_string_equal(fixture_layout(&f), "[z4][1][5]");
    block_write(&f, a, &q, NULL);
    block_check(&f, a, &q);
    vpmm_heap_reap(f.heap);
    SAME(4, fixture_totals(&f).zombie_pages);
    SAME(CUDA_SUCCESS, sim_stream_synchronize(f.sim, a));
    vpmm_heap_reap(f.heap);
    SAME(0, fixture_totals(&f).zombie_pages);
    SAME(2, blocks_checked());
    SAME(0, blocks_wrong());
    fixture_free(&f, q.address, a);
    fixture_free(&f, wall, a);
    fixture_teardown(&f);
}

#define CAP ((uint64_t)256 * 1024)

/* At the cap a request that needs more mappings unmaps what it can; where that does not help it is
 * passed on, and the driver's own limit is never met. */
static void rule_3_11_mappings_are_capped(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    uint64_t big;
    rules_params(&params);
    params.sim.device_bytes = 1024 * GIB;
    params.sim.has_bytes = false;
    params.sim.check_races = false;
    params.sim.mappings_max = CAP;
    params.heap.root_bytes = 8192 * GIB;
    params.heap.slack_bytes = 0;
    fixture_setup(&f, &params);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t pages = CAP / 2 - 2;
    uint64_t p = fixture_malloc(&f, pages, a);
    uint64_t wall = fixture_malloc(&f, 1, a);
    volatile bool gate = false;
    fixture_work(&f, a, p, 1, true, &gate);
    fixture_free(&f, p, a);
    uint64_t q = fixture_malloc(&f, pages + 1, a);
    SAME(CAP - 2, fixture_totals(&f).mappings);
    SAME(VPMM_NOT_SUPPORTED, fixture_try_malloc(&f, 3, a, &big));
    gate = true;
    SAME(CUDA_SUCCESS, sim_stream_synchronize(f.sim, a));
    big = fixture_malloc(&f, 3, a);
    SAME(0, fixture_totals(&f).zombie_pages);
    fixture_free(&f, big, a);
    fixture_free(&f, wall, a);
    fixture_free(&f, q, a);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rule_3_8_nothing_of_ours_breaks_a_capture),
        cmocka_unit_test(rule_3_8_pages_freed_during_a_capture_are_parked),
        cmocka_unit_test(rule_3_9_a_reused_handle_is_another_stream),
        cmocka_unit_test(rule_3_9_the_per_thread_stream_is_the_threads_own),
        cmocka_unit_test(rule_3_10_a_second_free_is_refused_while_the_first_is_under_way),
        cmocka_unit_test(rule_3_11_an_alias_is_used_in_order),
        cmocka_unit_test(rule_3_11_mappings_are_capped),
    };
    return cmocka_run_group_tests_name("rules/identity", tests, NULL, NULL);
}
