/* SPDX-License-Identifier: MIT */
/* Stream capture: its borders, what a graph replays, and memory that a graph owns. */
#include "fixture.h"

#define UNSUPPORTED CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
#define GLOBAL CU_STREAM_CAPTURE_MODE_GLOBAL
#define LOCAL CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
#define RELAXED CU_STREAM_CAPTURE_MODE_RELAXED

static void test_another_contexts_capture_does_not_matter(void **state)
{
    struct capture_scene s = capture_scene_new(CU_STREAM_NON_BLOCKING);
    CUcontext other;
    CUevent event;
    CUgraph graph;
    (void)state;
    OK(sim_ctx_create(s.f->sim, 0, 0, &other));
    OK(sim_event_create(s.f->sim, 0, &event));
    OK(sim_stream_begin_capture(s.f->sim, s.stream, GLOBAL));
    OK(sim_ctx_record_event(s.f->sim, other, event));
    OK(sim_stream_end_capture(s.f->sim, s.stream, &graph));
    fixture_end(s.f);
}

static void test_an_event_of_a_capture_is_no_fence(void **state)
{
    struct capture_scene s = capture_scene_new(CU_STREAM_NON_BLOCKING);
    struct trail trail = {0};
    CUgraph graph;
    CUstreamCaptureMode relaxed = RELAXED;
    (void)state;
    OK(sim_thread_exchange_stream_capture_mode(s.f->sim, &relaxed));
    OK(sim_stream_begin_capture(s.f->sim, s.stream, GLOBAL));
    OK(step_queue(s.f, s.stream, &trail, 1));
    OK(sim_event_record(s.f->sim, s.event, s.stream));
    IS(CUDA_ERROR_CAPTURED_EVENT, sim_event_query(s.f->sim, s.event));
    OK(sim_stream_end_capture(s.f->sim, s.stream, &graph));
    IS(CUDA_ERROR_CAPTURED_EVENT, sim_event_query(s.f->sim, s.event));
    IS(CUDA_ERROR_CAPTURED_EVENT, sim_stream_wait_event(s.f->sim, s.other, s.event, 0));
    OK(sim_event_record(s.f->sim, s.event, s.stream));
    OK(sim_event_synchronize(s.f->sim, s.event));
    fixture_end(s.f);
}

static void test_the_legacy_stream_during_a_blocking_capture(void **state)
{
    struct capture_scene s = capture_scene_new(CU_STREAM_NON_BLOCKING);
    struct trail trail = {0};
    CUstream blocking = stream_make(s.f, CU_STREAM_DEFAULT);
    CUstreamCaptureStatus status;
    CUgraph graph;
    (void)state;
    OK(sim_stream_begin_capture(s.f->sim, s.stream, RELAXED));
    OK(sim_stream_is_capturing(s.f->sim, CU_STREAM_LEGACY, &status));
    OK(step_queue(s.f, NULL, &trail, 1));
    OK(sim_stream_end_capture(s.f->sim, s.stream, &graph));
    OK(sim_stream_begin_capture(s.f->sim, blocking, RELAXED));
    IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
       sim_stream_is_capturing(s.f->sim, CU_STREAM_LEGACY, &status));
    OK(sim_stream_is_capturing(s.f->sim, blocking, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, sim_event_record(s.f->sim, s.event, NULL));
    misuse_taken(s.f, SIM_CAPTURE_BROKEN);
    IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, sim_stream_end_capture(s.f->sim, blocking, &graph));
    fixture_end(s.f);
}

static void test_a_graph_replays_in_its_order(void **state)
{
    struct capture_scene s = capture_scene_new(CU_STREAM_NON_BLOCKING);
    struct trail trail = {0};
    CUevent back = event_make(s.f);
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes;
    (void)state;
    OK(sim_stream_begin_capture(s.f->sim, s.stream, GLOBAL));
    OK(step_queue(s.f, s.stream, &trail, 1));
    OK(sim_event_record(s.f->sim, s.event, s.stream));
    OK(sim_stream_wait_event(s.f->sim, s.other, s.event, 0));
    OK(step_queue(s.f, s.other, &trail, 2));
    OK(step_queue(s.f, s.stream, &trail, 3));
    OK(sim_event_record(s.f->sim, back, s.other));
    OK(sim_stream_wait_event(s.f->sim, s.stream, back, 0));
    OK(word_write(s.f, s.stream, s.plain, 77));
    OK(step_queue(s.f, s.stream, &trail, 4));
    OK(sim_stream_end_capture(s.f->sim, s.stream, &graph));
    OK(sim_graph_count(s.f->sim, graph, &nodes, NULL));
    assert_int_equal(nodes, 5);
    OK(sim_graph_instantiate(s.f->sim, graph, 0, &exec));
    OK(sim_graph_destroy(s.f->sim, graph));
    for (int i = 1; i <= 2; i++) {
        trail.n = 0;
        OK(sim_graph_launch(s.f->sim, exec, s.stream));
        OK(step_queue(s.f, s.stream, &trail, 5));
        assert_int_equal(trail.n, 0);
        OK(sim_stream_synchronize(s.f->sim, s.stream));
        assert_int_equal(trail.n, 5);
        assert_int_equal(step_at(&trail, 1), 0);
        assert_int_equal(step_at(&trail, 4), 3);
        assert_int_equal(step_at(&trail, 5), 4);
        assert_int_equal(word_peek(s.f, 0, s.plain), 77);
    }
    OK(sim_graph_launch(s.f->sim, exec, s.other));
    OK(sim_ctx_record_event(s.f->sim, s.f->context, s.spare));
    IS(CUDA_ERROR_NOT_READY, sim_event_query(s.f->sim, s.spare));
    OK(sim_event_synchronize(s.f->sim, s.spare));
    assert_int_equal(trail.n, 9);
    OK(sim_graph_exec_destroy(s.f->sim, exec));
    assert_int_equal(counts_of(s.f).graph_execs, 0);
    fixture_end(s.f);
}

static void test_the_border_of_a_capture(void **state)
{
    struct capture_scene s = capture_scene_new(CU_STREAM_NON_BLOCKING);
    struct trail trail = {0};
    CUgraph graph;
    (void)state;
    OK(sim_event_record(s.f->sim, s.spare, s.other));
    OK(sim_stream_begin_capture(s.f->sim, s.stream, RELAXED));
    IS(CUDA_ERROR_ILLEGAL_STATE, sim_stream_begin_capture(s.f->sim, s.stream, RELAXED));
    IS(UNSUPPORTED, sim_stream_begin_capture(s.f->sim, NULL, RELAXED));
    OK(step_queue(s.f, s.stream, &trail, 1));
    OK(sim_event_record(s.f->sim, s.event, s.stream));
    OK(sim_stream_wait_event(s.f->sim, s.other, s.event, 0));
    OK(step_queue(s.f, s.other, &trail, 2));
    IS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, sim_stream_end_capture(s.f->sim, s.stream, &graph));
    assert_null(graph);
    OK(sim_stream_begin_capture(s.f->sim, s.stream, RELAXED));
    IS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, sim_stream_wait_event(s.f->sim, s.stream, s.spare, 0));
    misuse_taken(s.f, SIM_CAPTURE_BROKEN);
    IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, sim_stream_end_capture(s.f->sim, s.stream, &graph));
    OK(sim_stream_begin_capture(s.f->sim, s.stream, GLOBAL));
    sim_thread_act_as(s.f->sim, 1);
    IS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, sim_stream_end_capture(s.f->sim, s.stream, &graph));
    sim_thread_act_as(s.f->sim, 0);
    IS(UNSUPPORTED, sim_stream_query(s.f->sim, s.stream));
    misuse_taken(s.f, SIM_CAPTURE_BROKEN);
    OK(sim_stream_destroy(s.f->sim, s.stream));
    assert_int_equal(counts_of(s.f).captures, 0);
    fixture_end(s.f);
}

static void test_memory_in_a_capture(void **state)
{
    struct capture_scene s = capture_scene_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr outside;
    CUdeviceptr inside;
    CUdeviceptr left;
    CUgraph graph;
    size_t nodes;
    size_t memory_nodes;
    (void)state;
    OK(sim_mem_alloc_async(s.f->sim, PAGE, s.other, &outside));
    OK(sim_stream_begin_capture(s.f->sim, s.stream, GLOBAL));
    OK(sim_mem_alloc_async(s.f->sim, PAGE, s.stream, &inside));
    OK(sim_mem_alloc_async(s.f->sim, PAGE, s.stream, &left));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_free_async(s.f->sim, s.plain, s.stream));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_free_async(s.f->sim, outside, s.stream));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_free_async(s.f->sim, s.mapped, s.stream));
    OK(word_write(s.f, s.stream, inside, 1));
    OK(sim_mem_free_async(s.f->sim, inside, s.stream));
    OK(sim_stream_end_capture(s.f->sim, s.stream, &graph));
    OK(sim_graph_count(s.f->sim, graph, &nodes, &memory_nodes));
    assert_int_equal(nodes, 4);
    assert_int_equal(memory_nodes, 3);
    assert_int_equal(counts_of(s.f).async, 3);
    OK(sim_mem_free_async(s.f->sim, left, s.other));
    OK(sim_mem_free_async(s.f->sim, outside, s.other));
    OK(sim_graph_destroy(s.f->sim, graph));
    OK(sim_ctx_synchronize(s.f->sim));
    assert_int_equal(counts_of(s.f).async, 0);
    fixture_end(s.f);
}

/* A graph's own free makes its address the graph's alone. */
static void test_memory_that_a_graph_frees(void **state)
{
    struct capture_scene s = capture_scene_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr inside;
    CUgraph graph;
    CUgraphExec exec;
    (void)state;
    OK(sim_stream_begin_capture(s.f->sim, s.stream, GLOBAL));
    OK(sim_mem_alloc_async(s.f->sim, PAGE, s.stream, &inside));
    OK(word_write(s.f, s.stream, inside, 1));
    OK(sim_mem_free_async(s.f->sim, inside, s.stream));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_free_async(s.f->sim, inside, s.stream));
    OK(sim_stream_end_capture(s.f->sim, s.stream, &graph));
    OK(sim_graph_instantiate(s.f->sim, graph, 0, &exec));
    for (int i = 0; i < 3; i++)
        OK(sim_graph_launch(s.f->sim, exec, s.stream));
    OK(sim_stream_synchronize(s.f->sim, s.stream));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_free(s.f->sim, inside));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_free_async(s.f->sim, inside, s.other));
    assert_int_equal(counts_of(s.f).async, 1);
    OK(sim_graph_exec_destroy(s.f->sim, exec));
    OK(sim_graph_destroy(s.f->sim, graph));
    OK(sim_ctx_synchronize(s.f->sim));
    assert_int_equal(counts_of(s.f).async, 0);
    assert_int_equal(counts_of(s.f).used_bytes[0], 2 * PAGE);
    fixture_end(s.f);
}

/* Each launch allocates what was freed since the one before, also when that free is still queued.
 */
static void test_memory_that_outlives_its_launch(void **state)
{
    struct capture_scene s = capture_scene_new(CU_STREAM_NON_BLOCKING);
    CUdeviceptr inside;
    CUgraph graph;
    CUgraphExec exec;
    (void)state;
    OK(sim_stream_begin_capture(s.f->sim, s.stream, GLOBAL));
    OK(sim_mem_alloc_async(s.f->sim, PAGE, s.stream, &inside));
    OK(word_write(s.f, s.stream, inside, 5));
    OK(sim_stream_end_capture(s.f->sim, s.stream, &graph));
    OK(sim_graph_instantiate(s.f->sim, graph, 0, &exec));
    OK(sim_graph_launch(s.f->sim, exec, s.stream));
    OK(sim_stream_synchronize(s.f->sim, s.stream));
    OK(sim_mem_free_async(s.f->sim, inside, s.stream));
    OK(sim_stream_synchronize(s.f->sim, s.stream));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_free(s.f->sim, inside));
    assert_int_equal(counts_of(s.f).async, 0);
    assert_int_equal(counts_of(s.f).used_bytes[0], 2 * PAGE);
    OK(word_write(s.f, s.stream, inside, 6));
    OK(sim_stream_synchronize(s.f->sim, s.stream));
    misuse_taken(s.f, SIM_NO_ACCESS);
    for (int i = 0; i < 2; i++) {
        OK(sim_graph_launch(s.f->sim, exec, s.stream));
        assert_int_equal(counts_of(s.f).async, 1);
        OK(sim_mem_free_async(s.f->sim, inside, s.stream));
    }
    OK(sim_graph_launch(s.f->sim, exec, s.stream));
    OK(sim_stream_synchronize(s.f->sim, s.stream));
    assert_int_equal(word_peek(s.f, 0, inside), 5);
    OK(sim_mem_free(s.f->sim, inside));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_free(s.f->sim, inside));
    OK(sim_graph_exec_destroy(s.f->sim, exec));
    OK(sim_graph_destroy(s.f->sim, graph));
    assert_int_equal(counts_of(s.f).async, 0);
    OK(sim_ctx_synchronize(s.f->sim));
    assert_int_equal(counts_of(s.f).used_bytes[0], 2 * PAGE);
    fixture_end(s.f);
}

/* Its pool lasts as long as the graph may allocate from it, and no longer. */
static void test_a_pool_outlives_its_graphs(void **state)
{
    struct capture_scene s = capture_scene_new(CU_STREAM_NON_BLOCKING);
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    cuuint64_t keep = UINT64_MAX;
    CUmemoryPool pool;
    CUdeviceptr inside;
    CUgraph graph;
    CUgraphExec exec;
    (void)state;
    OK(sim_mem_pool_create(s.f->sim, &props, &pool));
    OK(sim_mem_pool_set_attribute(s.f->sim, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(sim_stream_begin_capture(s.f->sim, s.stream, GLOBAL));
    OK(sim_mem_alloc_from_pool_async(s.f->sim, PAGE, pool, s.stream, &inside));
    OK(sim_stream_end_capture(s.f->sim, s.stream, &graph));
    OK(sim_graph_instantiate(s.f->sim, graph, 0, &exec));
    OK(sim_mem_pool_destroy(s.f->sim, pool));
    for (int i = 0; i < 2; i++) {
        OK(sim_graph_launch(s.f->sim, exec, s.stream));
        OK(sim_mem_free_async(s.f->sim, inside, s.stream));
        OK(sim_stream_synchronize(s.f->sim, s.stream));
        assert_int_equal(counts_of(s.f).used_bytes[0], 3 * PAGE);
    }
    OK(sim_graph_exec_destroy(s.f->sim, exec));
    OK(sim_graph_destroy(s.f->sim, graph));
    assert_int_equal(counts_of(s.f).used_bytes[0], 2 * PAGE);
    fixture_end(s.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_contexts_capture_does_not_matter),
        cmocka_unit_test(test_an_event_of_a_capture_is_no_fence),
        cmocka_unit_test(test_the_legacy_stream_during_a_blocking_capture),
        cmocka_unit_test(test_a_graph_replays_in_its_order),
        cmocka_unit_test(test_the_border_of_a_capture),
        cmocka_unit_test(test_memory_in_a_capture),
        cmocka_unit_test(test_memory_that_a_graph_frees),
        cmocka_unit_test(test_memory_that_outlives_its_launch),
        cmocka_unit_test(test_a_pool_outlives_its_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
