/* SPDX-License-Identifier: MIT */
/* Passes as CUDA graphs: launched often, between ordinary passes, after a capture that failed, and
 * what is refused while graphs live. */
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void setup(struct scene *scene, uint64_t budget)
{
    scene_setup(scene);
    scene_make(scene, budget);
    scene_add_many(scene, 16, 3);
    scene_seal(scene);
}

static CUgraphExec capture(struct scene *scene, CUstreamCaptureMode mode)
{
    CUgraph graph;
    CUgraphExec exec;
    assert_int_equal(sim_stream_begin_capture(scene->sim, scene->stream, mode), CUDA_SUCCESS);
    scene_pass(scene);
    assert_int_equal(sim_stream_end_capture(scene->sim, scene->stream, &graph), CUDA_SUCCESS);
    assert_int_equal(sim_graph_instantiate(scene->sim, graph, 0, &exec), CUDA_SUCCESS);
    assert_int_equal(sim_graph_destroy(scene->sim, graph), CUDA_SUCCESS);
    return exec;
}

static void launch(struct scene *scene, CUgraphExec exec)
{
    assert_int_equal(sim_graph_launch(scene->sim, exec, scene->stream), CUDA_SUCCESS);
    scene_stir(scene);
}

static void finish(struct scene *scene, CUgraphExec exec)
{
    assert_int_equal(sim_ctx_synchronize(scene->sim), CUDA_SUCCESS);
    assert_int_equal(sim_graph_exec_destroy(scene->sim, exec), CUDA_SUCCESS);
}

static void test_graphs_and_passes(void **state)
{
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                                CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                CU_STREAM_CAPTURE_MODE_RELAXED};
    (void)state;
    for (uint64_t budget = 3; budget < 30; budget += 2) {
        struct scene scene;
        setup(&scene, budget);
        scene_pass(&scene);
        if (budget % 4 == 1)
            scene_pass(&scene);
        CUgraphExec exec = capture(&scene, modes[budget % 3]);
        uint64_t read = scene.n_read;
        if (budget % 3 == 0)
            scene_pass(&scene);
        for (int i = 0; i < 12; i++) {
            launch(&scene, exec);
            if (scene_random(&scene, 3) == 0)
                scene_pass(&scene);
            if (scene_random(&scene, 6) == 0) {
                finish(&scene, exec);
                exec = capture(&scene, modes[(budget + (uint64_t)i) % 3]);
            }
        }
        finish(&scene, exec);
        assert_true(scene.n_read >= read + 12u * 16);
        assert_true(scene_stats(&scene).captured_passes >= 1);
        scene_teardown(&scene);
    }
}

static void test_first_pass_is_refused(void **state)
{
    struct scene scene;
    CUgraph graph;
    (void)state;
    setup(&scene, 8);
    assert_int_equal(
        sim_stream_begin_capture(scene.sim, scene.stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
        CUDA_SUCCESS);
    assert_int_equal(vpmm_offload_begin(scene.offload, scene_handle(scene.stream)), VPMM_CAPTURED);
    assert_int_equal(sim_stream_end_capture(scene.sim, scene.stream, &graph), CUDA_SUCCESS);
    assert_int_equal(sim_graph_destroy(scene.sim, graph), CUDA_SUCCESS);
    scene_pass(&scene);
    scene_teardown(&scene);
}

/* A captured pass that is given up: its graph is never launched, and what it would have loaded is
 * not there. */
static void test_abandoned(void **state)
{
    (void)state;
    for (int leaves_one = 0; leaves_one < 2; leaves_one++) {
        struct scene scene;
        CUgraph graph;
        setup(&scene, 8);
        scene_pass(&scene);
        vpmm_stream_handle stream = scene_handle(scene.stream);
        assert_int_equal(
            sim_stream_begin_capture(scene.sim, scene.stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_SUCCESS);
        assert_int_equal(vpmm_offload_begin(scene.offload, stream), VPMM_OK);
        for (uint32_t i = 0; i < 9; i++)
            assert_int_equal(scene_step(&scene, i, scene.stream), VPMM_OK);
        if (leaves_one)
            assert_int_equal(vpmm_offload_use(scene.offload, 9, stream), VPMM_OK);
        assert_int_equal(vpmm_offload_end(scene.offload, stream), VPMM_OUT_OF_ORDER);
        assert_int_equal(sim_stream_end_capture(scene.sim, scene.stream, &graph), CUDA_SUCCESS);
        assert_int_equal(sim_graph_destroy(scene.sim, graph), CUDA_SUCCESS);
        for (int i = 0; i < 3; i++)
            scene_pass(&scene);
        scene_teardown(&scene);
    }
}

static void test_budget_while_graphs_live(void **state)
{
    struct scene scene;
    (void)state;
    setup(&scene, 12);
    scene_pass(&scene);
    CUgraphExec exec = capture(&scene, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(vpmm_offload_budget(scene.offload, 10 * CHUNK, NULL), VPMM_CAPTURED);
    assert_int_equal(vpmm_offload_budget(scene.offload, 16 * CHUNK, NULL), VPMM_OK);
    assert_true(scene_used(&scene) <= 12 * CHUNK);
    for (int i = 0; i < 4; i++)
        launch(&scene, exec);
    finish(&scene, exec);
    assert_int_equal(vpmm_offload_thaw(scene.offload), VPMM_OK);
    assert_int_equal(scene_stats(&scene).budget_bytes, 16 * CHUNK);
    scene_pass(&scene);
    assert_int_equal(vpmm_offload_budget(scene.offload, 8 * CHUNK, NULL), VPMM_OK);
    assert_true(scene_used(&scene) <= 8 * CHUNK);
    scene_pass(&scene);
    scene_teardown(&scene);
}

/* Some of the graph's work is done, some is not. */
static void launch_partly(struct scene *scene, CUgraphExec exec, int n_done)
{
    assert_int_equal(sim_graph_launch(scene->sim, exec, scene->stream), CUDA_SUCCESS);
    for (int i = 0; i < n_done; i++)
        (void)sim_step(scene->sim);
}

/* A pass that leaves a group in use, between two launches. */
static void test_broken_off_between_graphs(void **state)
{
    (void)state;
    for (int is_cancelled = 0; is_cancelled < 2; is_cancelled++) {
        struct scene scene;
        setup(&scene, 8);
        scene_pass(&scene);
        CUgraphExec exec = capture(&scene, CU_STREAM_CAPTURE_MODE_RELAXED);
        vpmm_stream_handle stream = scene_handle(scene.stream);
        launch(&scene, exec);
        assert_int_equal(vpmm_offload_begin(scene.offload, stream), VPMM_OK);
        for (uint32_t i = 0; i < 9; i++)
            assert_int_equal(scene_step(&scene, i, scene.stream), VPMM_OK);
        assert_int_equal(vpmm_offload_use(scene.offload, 9, stream), VPMM_OK);
        if (is_cancelled)
            assert_int_equal(vpmm_offload_cancel(scene.offload, stream), VPMM_OK);
        else
            assert_int_equal(vpmm_offload_end(scene.offload, stream), VPMM_OUT_OF_ORDER);
        launch(&scene, exec);
        scene_pass(&scene);
        finish(&scene, exec);
        scene_teardown(&scene);
    }
}

/* What a graph needs next cannot be loaded: that is told, also where the pass is no error. */
static void test_failed_loads_are_told(void **state)
{
    static const char *const names[] = {"cuMemcpyAsync", "cuMemcpyAsync", "cuCtxSynchronize"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct scene scene;
        setup(&scene, 8);
        scene_pass(&scene);
        CUgraphExec exec = capture(&scene, CU_STREAM_CAPTURE_MODE_RELAXED);
        vpmm_stream_handle stream = scene_handle(scene.stream);
        assert_int_equal(vpmm_offload_begin(scene.offload, stream), VPMM_OK);
        for (uint32_t step = 0; step < 9; step++)
            assert_int_equal(scene_step(&scene, step, scene.stream), VPMM_OK);
        if (i > 0)
            assert_int_equal(vpmm_offload_use(scene.offload, 9, stream), VPMM_OK);
        sim_fault_set(scene.sim, names[i], 1, CUDA_ERROR_INVALID_VALUE, true);
        assert_int_equal(vpmm_offload_cancel(scene.offload, stream), VPMM_INVALID);
        sim_fault_clear(scene.sim, names[i]);
        scene_pass(&scene);
        launch(&scene, exec);
        finish(&scene, exec);
        scene_teardown(&scene);
    }
}

/* Copies of a pass in another order may lie anywhere in the ring, which a graph still reads. */
static void test_another_order_while_a_graph_runs(void **state)
{
    (void)state;
    for (int n_done = 0; n_done < 60; n_done += 4) {
        struct scene scene;
        scene_setup(&scene);
        scene.params.follows = true;
        scene_make(&scene, 8);
        scene_add_many(&scene, 16, 3);
        scene_seal(&scene);
        scene_pass(&scene);
        CUgraphExec exec = capture(&scene, CU_STREAM_CAPTURE_MODE_RELAXED);
        vpmm_stream_handle stream = scene_handle(scene.stream);
        launch_partly(&scene, exec, n_done);
        assert_int_equal(vpmm_offload_begin(scene.offload, stream), VPMM_OK);
        for (uint32_t i = 16; i-- > 0;)
            assert_int_equal(scene_step(&scene, i, scene.stream), VPMM_OK);
        assert_int_equal(vpmm_offload_end(scene.offload, stream), VPMM_OK);
        launch(&scene, exec);
        finish(&scene, exec);
        scene_teardown(&scene);
    }
}

/* The end of a pass that used nothing loads the first steps anew. */
static void test_cancelled_while_a_graph_runs(void **state)
{
    (void)state;
    for (uint64_t budget = 6; budget < 24; budget += 4) {
        for (int n_done = 0; n_done < 60; n_done += 20) {
            struct scene scene;
            setup(&scene, budget);
            scene_pass(&scene);
            CUgraphExec exec = capture(&scene, CU_STREAM_CAPTURE_MODE_RELAXED);
            vpmm_stream_handle stream = scene_handle(scene.stream);
            launch_partly(&scene, exec, n_done);
            for (int i = 0; i < 3; i++) {
                assert_int_equal(vpmm_offload_begin(scene.offload, stream), VPMM_OK);
                assert_int_equal(vpmm_offload_cancel(scene.offload, stream), VPMM_OK);
                launch(&scene, exec);
            }
            finish(&scene, exec);
            scene_teardown(&scene);
        }
    }
}

/* Launches may still run; then memory may move. */
static void test_thaw_waits_for_graphs(void **state)
{
    (void)state;
    for (int is_due = 0; is_due < 2; is_due++) {
        struct scene scene;
        setup(&scene, 24);
        scene_pass(&scene);
        CUgraphExec exec = capture(&scene, CU_STREAM_CAPTURE_MODE_RELAXED);
        if (is_due)
            assert_int_equal(vpmm_offload_budget(scene.offload, 28 * CHUNK, NULL), VPMM_OK);
        launch_partly(&scene, exec, 5);
        sim_fault_set(scene.sim, "cuCtxSynchronize", 1, CUDA_ERROR_INVALID_VALUE, false);
        assert_int_not_equal(vpmm_offload_thaw(scene.offload), VPMM_OK);
        assert_int_equal(vpmm_offload_budget(scene.offload, 20 * CHUNK, NULL), VPMM_CAPTURED);
        assert_int_equal(vpmm_offload_thaw(scene.offload), VPMM_OK);
        assert_true(vpmm_offload_yield(scene.offload, 4 * CHUNK) > 0);
        finish(&scene, exec);
        scene_pass(&scene);
        scene_teardown(&scene);
    }
}

/* The old budget holds then, and no pass moves memory for the larger one. */
static void test_a_thaw_that_cannot_grow(void **state)
{
    struct scene scene;
    (void)state;
    setup(&scene, 12);
    scene_pass(&scene);
    CUgraphExec exec = capture(&scene, CU_STREAM_CAPTURE_MODE_RELAXED);
    finish(&scene, exec);
    assert_int_equal(vpmm_offload_budget(scene.offload, 20 * CHUNK, NULL), VPMM_OK);
    scene.limit_bytes = 14 * CHUNK;
    assert_int_equal(vpmm_offload_thaw(scene.offload), VPMM_LIMITED);
    struct vpmm_offload_stats before = scene_stats(&scene);
    assert_int_equal(before.budget_bytes, 12 * CHUNK);
    for (int i = 0; i < 40; i++)
        scene_pass(&scene);
    assert_int_equal(scene_stats(&scene).vmm_calls, before.vmm_calls);
    assert_int_equal(scene_stats(&scene).host_waits, before.host_waits);
    scene_teardown(&scene);
}

/* What it held before it made room is taken again, and no more. */
static void test_a_thaw_that_fails_under_pressure(void **state)
{
    struct scene scene;
    (void)state;
    setup(&scene, 20);
    scene_pass(&scene);
    assert_true(vpmm_offload_yield(scene.offload, 4 * CHUNK) > 0);
    assert_true(scene_stats(&scene).budget_bytes < 20 * CHUNK);
    scene_pass(&scene);
    CUgraphExec exec = capture(&scene, CU_STREAM_CAPTURE_MODE_RELAXED);
    finish(&scene, exec);
    assert_int_equal(vpmm_offload_budget(scene.offload, 28 * CHUNK, NULL), VPMM_OK);
    uint64_t limit_bytes = scene.limit_bytes;
    scene.limit_bytes = 14 * CHUNK;
    assert_int_equal(vpmm_offload_thaw(scene.offload), VPMM_LIMITED);
    scene.limit_bytes = limit_bytes;
    for (int i = 0; i < 100; i++)
        scene_pass(&scene);
    assert_int_equal(scene_stats(&scene).budget_bytes, 20 * CHUNK);
    scene_teardown(&scene);
}

static struct sim *asked;
static enum vpmm_status (*real_host_alloc)(void *, vpmm_context_handle, uint64_t, void **);
static unsigned n_unrelaxed;

static enum vpmm_status host_alloc(void *self, vpmm_context_handle context, uint64_t bytes,
                                   void **memory_out)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    assert_int_equal(sim_thread_exchange_stream_capture_mode(asked, &mode), CUDA_SUCCESS);
    n_unrelaxed += mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    assert_int_equal(sim_thread_exchange_stream_capture_mode(asked, &mode), CUDA_SUCCESS);
    return real_host_alloc(self, context, bytes, memory_out);
}

/* To pin memory is a call that ends captures of threads which are not relaxed. */
static void test_memory_is_pinned_by_a_relaxed_thread(void **state)
{
    struct scene scene;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    (void)state;
    scene_setup(&scene);
    asked = scene.sim;
    real_host_alloc = scene.driver.host_alloc;
    scene.driver.host_alloc = host_alloc;
    n_unrelaxed = 0;
    scene_make(&scene, 8);
    scene_add_many(&scene, 4, 3);
    assert_int_equal(n_unrelaxed, 0);
    assert_int_equal(sim_thread_exchange_stream_capture_mode(scene.sim, &mode), CUDA_SUCCESS);
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    assert_int_equal(sim_thread_exchange_stream_capture_mode(scene.sim, &mode), CUDA_SUCCESS);
    scene_seal(&scene);
    scene_pass(&scene);
    scene_teardown(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graphs_and_passes),
        cmocka_unit_test(test_first_pass_is_refused),
        cmocka_unit_test(test_abandoned),
        cmocka_unit_test(test_budget_while_graphs_live),
        cmocka_unit_test(test_broken_off_between_graphs),
        cmocka_unit_test(test_failed_loads_are_told),
        cmocka_unit_test(test_another_order_while_a_graph_runs),
        cmocka_unit_test(test_cancelled_while_a_graph_runs),
        cmocka_unit_test(test_thaw_waits_for_graphs),
        cmocka_unit_test(test_a_thaw_that_cannot_grow),
        cmocka_unit_test(test_a_thaw_that_fails_under_pressure),
        cmocka_unit_test(test_memory_is_pinned_by_a_relaxed_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
