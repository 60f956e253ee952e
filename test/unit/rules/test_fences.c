/* SPDX-License-Identifier: MIT */
/* docs/DESIGN.md section 3, rules 1 to 4 and the table: what a fence stands for, and when it
 * counts. */
#define _GNU_SOURCE
#include "blocks.h"

#include <string.h>

static struct {
    pthread_t main_thread;
    bool is_freeing;
    uint64_t in_free, elsewhere;
} records;

static void note_record(void *self, const char *name)
{
    (void)self;
    if (strcmp(name, "cuEventRecord") != 0)
        return;
    if (records.is_freeing && pthread_equal(records.main_thread, pthread_self()))
        records.in_free++;
    else
        records.elsewhere++;
}

/* Nobody records on a stream of the program but the free on that stream, inside its call: not a
 * later request, not a reaper, not another thread. */
static void rule_3_1_only_the_free_itself_records_on_a_stream(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    rules_params(&params);
    params.sim.before_call = note_record;
    memset(&records, 0, sizeof records);
    records.main_thread = pthread_self();
    fixture_setup(&f, &params);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct block p = {fixture_malloc(&f, 40, a), 40, 1};
    block_write(&f, a, &p, NULL);
    records.is_freeing = true;
    fixture_free(&f, p.address, a);
    records.is_freeing = false;
    SAME(1, records.in_free);
    uint64_t q = fixture_malloc(&f, 80, b);
    uint64_t r = fixture_malloc(&f, 40, b);
    vpmm_heap_reap(f.heap);
    SAME(1, heap_count_stream_waits(&f));
    records.is_freeing = true;
    fixture_free(&f, q, b);
    fixture_free(&f, r, NULL);
    records.is_freeing = false;
    SAME(2, records.in_free);
    SAME(0, records.elsewhere);
    fixture_teardown(&f);
}

/* The fence stands for the stream that frees, whichever one allocated: weakness W12. */
static void rule_3_1_the_fence_is_of_the_stream_that_frees(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    struct block p = {fixture_malloc(&f, 4, a), 4, 1};
    block_write(&f, b, &p, &gate);
    fixture_free(&f, p.address, b);
    uint64_t on_a = fixture_malloc(&f, 4, a);
    uint64_t on_host = fixture_malloc(&f, 4, NULL);
    assert_false(pages_overlap(&f, on_a, 4, p.address, 4));
    assert_false(pages_overlap(&f, on_host, 4, p.address, 4));
    struct block again = {fixture_malloc(&f, 4, b), 4, 2};
    SAME(p.address, again.address);
    block_write(&f, b, &again, NULL);
    block_check(&f, b, &again);
    gate = true;
    fixture_free(&f, again.address, b);
    fixture_free(&f, on_a, a);
    fixture_free(&f, on_host, NULL);
    fixture_teardown(&f);
    SAME(0, blocks_wrong());
}

enum work_kind {
    NON_BLOCKING,
    BLOCKING,
    LEGACY,
    PER_THREAD,
    PER_THREAD_OF_ANOTHER,
    DESTROYED_STREAM,
    GRAPH,
    COPY,
    HOST_FUNCTION,
    GREEN,
    WORK_KINDS
};

static void do_nothing(void *data)
{
    (void)data;
}

static CUstream stream_for(struct fixture *f, enum work_kind kind)
{
    CUgreenCtx green;
    CUstream stream = NULL;
    if (kind == LEGACY)
        return CU_STREAM_LEGACY;
    if (kind == PER_THREAD || kind == PER_THREAD_OF_ANOTHER)
        return CU_STREAM_PER_THREAD;
    if (kind == GREEN) {
        SAME(CUDA_SUCCESS, sim_green_ctx_create(f->sim, 0, &green));
        SAME(CUDA_SUCCESS,
             sim_green_ctx_stream_create(f->sim, green, CU_STREAM_NON_BLOCKING, 0, &stream));
        return stream;
    }
    return fixture_stream(f, kind == BLOCKING ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
}

static void launch_graph(struct fixture *f, CUstream stream, const struct block *block)
{
    CUgraph graph;
    CUgraphExec exec;
    SAME(CUDA_SUCCESS,
         sim_stream_begin_capture(f->sim, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    block_write(f, stream, block, NULL);
    SAME(CUDA_SUCCESS, sim_stream_end_capture(f->sim, stream, &graph));
    SAME(CUDA_SUCCESS, sim_graph_instantiate(f->sim, graph, 0, &exec));
    SAME(CUDA_SUCCESS, sim_graph_destroy(f->sim, graph));
    SAME(CUDA_SUCCESS, sim_graph_launch(f->sim, exec, stream));
}

static void queue_work(struct fixture *f, enum work_kind kind, const struct block *block)
{
    CUstream stream = stream_for(f, kind);
    if (kind == PER_THREAD_OF_ANOTHER) {
        sim_thread_act_as(f->sim, 2);
        SAME(CUDA_SUCCESS, sim_ctx_set_current(f->sim, f->handle));
    }
    if (kind == GRAPH)
        launch_graph(f, stream, block);
    else if (kind == COPY)
        SAME(CUDA_SUCCESS, sim_memcpy_async(f->sim, block->address + f->page_bytes, block->address,
                                            f->page_bytes, stream));
    else if (kind == HOST_FUNCTION)
        SAME(CUDA_SUCCESS, sim_launch_host_func(f->sim, stream, do_nothing, NULL));
    else
        block_write(f, stream, block, NULL);
    if (kind == DESTROYED_STREAM)
        SAME(CUDA_SUCCESS, sim_stream_destroy(f->sim, stream));
    sim_thread_act_as(f->sim, 0);
}

/* cudaFree returns with the work queued; its pages are nobody's until that work is done, wherever
 * in the owning context it was queued. */
static void rule_3_2_a_context_fence_covers_every_kind_of_work(void **state)
{
    (void)state;
    for (enum work_kind kind = 0; kind < WORK_KINDS; kind++) {
        struct fixture f;
        struct sim_counts counts;
        rules_setup(&f);
        if (kind == GREEN) {
            SAME(CUDA_SUCCESS, sim_device_primary_ctx_retain(f.sim, 0, &f.handle));
            SAME(CUDA_SUCCESS, sim_ctx_set_current(f.sim, f.handle));
            SAME(VPMM_OK, vpmm_order_context(f.order, NULL, &f.context));
        }
        print_message("kind %d\n", (int)kind);
        struct block p = {fixture_malloc(&f, 4, NULL), 4, 1};
        queue_work(&f, kind, &p);
        fixture_free(&f, p.address, NULL);
        sim_live_counts(f.sim, &counts);
        assert_int_not_equal(counts.pending, 0);
        uint64_t q = fixture_malloc(&f, 4, NULL);
        assert_false(pages_overlap(&f, q, 4, p.address, 4));
        SAME(CUDA_SUCCESS, sim_ctx_synchronize_of(f.sim, f.handle));
        SAME(p.address, fixture_malloc(&f, 4, NULL));
        fixture_free(&f, p.address, NULL);
        fixture_free(&f, q, NULL);
        fixture_teardown(&f);
    }
}

/* Bare cudaFree waits for the context that owns the memory and no other: so does the fence. */
static void rule_3_2_work_of_another_context_holds_nothing_up(void **state)
{
    (void)state;
    struct fixture f;
    CUcontext other;
    rules_setup(&f);
    struct block p = {fixture_malloc(&f, 4, NULL), 4, 1};
    struct block q = {fixture_malloc(&f, 4, NULL), 4, 2};
    volatile bool gate = false;
    SAME(CUDA_SUCCESS, sim_ctx_create(f.sim, 0, 0, &other));
    CUstream elsewhere = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    block_write(&f, elsewhere, &q, &gate);
    SAME(CUDA_SUCCESS, sim_ctx_set_current(f.sim, f.handle));
    fixture_free(&f, p.address, NULL);
    SAME(CUDA_SUCCESS, sim_ctx_synchronize_of(f.sim, f.handle));
    SAME(p.address, fixture_malloc(&f, 4, NULL));
    gate = true;
    fixture_free(&f, p.address, NULL);
    fixture_free(&f, q.address, NULL);
    SAME(CUDA_SUCCESS, sim_ctx_synchronize_of(f.sim, other));
    fixture_teardown(&f);
}

/* Without cuCtxRecordEvent cudaFree waits as bare CUDA does, and its pages are anybody's at once.
 */
static void rule_3_2_an_older_driver_waits_in_cudafree(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    rules_params(&params);
    params.sim.driver_version = 12040;
    fixture_setup(&f, &params);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct block p = {fixture_malloc(&f, 4, NULL), 4, 1};
    block_write(&f, a, &p, NULL);
    SAME(CUDA_ERROR_NOT_READY, sim_stream_query(f.sim, a));
    fixture_free(&f, p.address, NULL);
    SAME(CUDA_SUCCESS, sim_stream_query(f.sim, a));
    SAME(p.address, fixture_malloc(&f, 4, NULL));
    fixture_free(&f, p.address, NULL);
    fixture_teardown(&f);
}

/* There CUDA takes all use of cudaMallocAsync memory to be over in cudaFree, and waits for nothing.
 * What the last owner but one had queued still counts. */
static void rule_3_2_an_older_driver_waits_for_no_cudamallocasync_memory(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    rules_params(&params);
    params.sim.driver_version = 12040;
    fixture_setup(&f, &params);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t unused = fixture_malloc(&f, 4, a);
    struct block p = {fixture_malloc(&f, 2, a), 2, 1};
    block_write(&f, a, &p, NULL);
    fixture_free(&f, unused, NULL);
    SAME(CUDA_ERROR_NOT_READY, sim_stream_query(f.sim, a));
    SAME(unused, fixture_malloc(&f, 4, b));
    fixture_free(&f, p.address, a);
    SAME(p.address, fixture_malloc(&f, 2, a));
    fixture_free(&f, p.address, NULL);
    SAME(CUDA_ERROR_NOT_READY, sim_stream_query(f.sim, a));
    uint64_t other = fixture_malloc(&f, 2, b);
    assert_true(other != p.address);
    fixture_free(&f, other, b);
    fixture_free(&f, unused, b);
    fixture_teardown(&f);
}

/* Bare CUDA puts an action on the legacy stream there, which stands between the blocking streams. A
 * program may rely on it: the second stream reads what the first one writes. */
static void rule_3_3_a_free_on_the_legacy_stream_orders_two_blocking_streams(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    CUstream first = fixture_stream(&f, CU_STREAM_DEFAULT);
    CUstream second = fixture_stream(&f, CU_STREAM_DEFAULT);
    uint64_t p = fixture_malloc(&f, 1, CU_STREAM_LEGACY);
    struct block q = {fixture_malloc(&f, 2, first), 2, 7};
    block_write(&f, first, &q, NULL);
    fixture_free(&f, p, CU_STREAM_LEGACY);
    SAME(p, fixture_malloc(&f, 1, CU_STREAM_LEGACY));
    block_check(&f, second, &q);
    SAME(CUDA_SUCCESS, sim_stream_synchronize(f.sim, second));
    SAME(1, blocks_checked());
    SAME(0, blocks_wrong());
    fixture_free(&f, p, CU_STREAM_LEGACY);
    fixture_free(&f, q.address, second);
    fixture_teardown(&f);
}

/* An event that was never recorded reads as complete. While the record of a free is being made,
 * others poll and ask for the pages: nobody gets them, then or afterwards, before the work is done.
 */
static void publish_after_record(bool is_async)
{
    struct fixture f;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    struct block p = {fixture_malloc(&f, 4, NULL), 4, 1};
    block_write(&f, a, &p, &gate);
    struct freeing freeing;
    stop_arm(&f);
    freeing_start(&freeing, &f, p.address, is_async ? a : NULL);
    stop_await();
    uint64_t others[4];
    for (int i = 0; i < 2; i++) {
        (void)vpmm_order_poll(f.order);
        vpmm_heap_reap(f.heap);
        others[i] = fixture_malloc(&f, 4, i ? b : NULL);
    }
    stop_open();
    freeing_end(&freeing);
    SAME(VPMM_OK, freeing.status);
    for (int i = 2; i < 4; i++)
        others[i] = fixture_malloc(&f, 4, i % 2 ? b : NULL);
    for (int i = 0; i < 4; i++) {
        assert_false(pages_overlap(&f, others[i], 4, p.address, 4));
        fixture_free(&f, others[i], NULL);
    }
    gate = true;
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
    vpmm_heap_reap(f.heap);
    SAME(0, fixture_totals(&f).live_pages);
    assert_string_equal(fixture_layout(&f), "[-20]");
    fixture_teardown(&f);
}

static void rule_3_4_a_stream_fence_counts_only_once_recorded(void **state)
{
    (void)state;
    publish_after_record(true);
}

static void rule_3_4_a_context_fence_counts_only_once_recorded(void **state)
{
    (void)state;
    publish_after_record(false);
}

/* Where the record on the stream fails, the whole context stands in for it. */
static void rule_3_4_a_failed_record_becomes_a_context_fence(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    struct block p = {fixture_malloc(&f, 4, a), 4, 1};
    struct block q = {fixture_malloc(&f, 4, b), 4, 2};
    block_write(&f, a, &p, NULL);
    block_write(&f, b, &q, &gate);
    sim_fault_set(f.sim, "cuEventRecord", 1, CUDA_ERROR_INVALID_VALUE, false);
    fixture_free(&f, p.address, a);
    assert_true(sim_fault_struck(f.sim, "cuEventRecord"));
    SAME(1, sim_calls(f.sim, "cuCtxRecordEvent"));
    (void)sim_drain_stream(f.sim, a);
    uint64_t other = fixture_malloc(&f, 4, NULL);
    assert_false(pages_overlap(&f, other, 4, p.address, 4));
    gate = true;
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
    SAME(p.address, fixture_malloc(&f, 4, NULL));
    fixture_free(&f, p.address, NULL);
    fixture_free(&f, q.address, b);
    fixture_free(&f, other, NULL);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rule_3_1_only_the_free_itself_records_on_a_stream),
        cmocka_unit_test(rule_3_1_the_fence_is_of_the_stream_that_frees),
        cmocka_unit_test(rule_3_2_a_context_fence_covers_every_kind_of_work),
        cmocka_unit_test(rule_3_2_work_of_another_context_holds_nothing_up),
        cmocka_unit_test(rule_3_2_an_older_driver_waits_in_cudafree),
        cmocka_unit_test(rule_3_2_an_older_driver_waits_for_no_cudamallocasync_memory),
        cmocka_unit_test(rule_3_3_a_free_on_the_legacy_stream_orders_two_blocking_streams),
        cmocka_unit_test(rule_3_4_a_stream_fence_counts_only_once_recorded),
        cmocka_unit_test(rule_3_4_a_context_fence_counts_only_once_recorded),
        cmocka_unit_test(rule_3_4_a_failed_record_becomes_a_context_fence),
    };
    return cmocka_run_group_tests_name("rules/fences", tests, NULL, NULL);
}
