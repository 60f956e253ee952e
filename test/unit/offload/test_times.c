/* SPDX-License-Identifier: MIT */
/* What passes cost on the device, as events tell it later: here each pair of events is a
 * microsecond apart. */
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define N 16u
#define PAIR_NS 1000u

static enum vpmm_status (*real_elapsed)(void *, vpmm_event_handle, vpmm_event_handle, uint64_t *);
static bool is_never_ready;

static enum vpmm_status elapsed(void *self, vpmm_event_handle begin, vpmm_event_handle end,
                                uint64_t *ns_out)
{
    enum vpmm_status status = real_elapsed(self, begin, end, ns_out);
    if (is_never_ready)
        return VPMM_NOT_READY;
    *ns_out = PAIR_NS;
    return status;
}

static void setup(struct scene *scene)
{
    scene_setup(scene);
    is_never_ready = false;
    real_elapsed = scene->event_elapsed;
    scene->driver.event_elapsed = elapsed;
}

/* Groups of one chunk each, of which half fit. */
static void make(struct scene *scene)
{
    scene_make(scene, N / 2);
    for (uint32_t i = 0; i < N; i++)
        scene->order[scene->n_steps++] = scene_add(scene, VPMM_OFFLOAD_STREAMED, CHUNK);
    scene_order(scene);
    scene_seal(scene);
}

static void finish_work(struct scene *scene)
{
    assert_int_equal(sim_ctx_synchronize(scene->sim), CUDA_SUCCESS);
}

/* Every pass counts when the device is done with it, and every wait for a copy in it. */
static void test_steady(void **state)
{
    (void)state;
    struct scene scene;
    setup(&scene);
    make(&scene);
    assert_int_equal(vpmm_offload_begin(scene.offload, scene_handle(scene.stream)), VPMM_OK);
    uint64_t copied = scene_stats(&scene).copied_bytes;
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(scene_step(&scene, i, scene.stream), VPMM_OK);
    assert_int_equal(vpmm_offload_end(scene.offload, scene_handle(scene.stream)), VPMM_OK);
    sim_calls_reset(scene.sim);
    for (int i = 0; i < 20; i++) {
        finish_work(&scene);
        scene_pass(&scene);
    }
    assert_true(sim_calls(scene.sim, "cuEventElapsedTime") > 0);
    assert_int_equal(sim_calls(scene.sim, "cuEventCreate"), 0);
    assert_int_equal(sim_calls(scene.sim, "cuEventSynchronize"), 0);
    struct vpmm_offload_stats stats = scene_stats(&scene);
    uint64_t late = stats.late;
    copied = stats.copied_bytes - copied;
    finish_work(&scene);
    scene_pass(&scene);
    stats = scene_stats(&scene);
    assert_int_equal(stats.timed_passes, 21);
    assert_int_equal(stats.pass_ns, 21 * PAIR_NS);
    assert_true(late > 0);
    assert_int_equal(stats.stall_ns, late * PAIR_NS);
    assert_int_equal(stats.link_bytes_per_s, CHUNK * 1000000);
    assert_int_equal(stats.bound_ns, copied / CHUNK * PAIR_NS);
    scene_teardown(&scene);
}

/* A host far ahead of the device waits for no time, and times what it has events for. */
static void test_far_ahead(void **state)
{
    (void)state;
    struct scene scene;
    setup(&scene);
    make(&scene);
    is_never_ready = true;
    for (int i = 0; i < 100; i++)
        scene_pass(&scene);
    assert_int_equal(scene_stats(&scene).timed_passes, 0);
    assert_int_equal(scene_stats(&scene).stall_ns, 0);
    is_never_ready = false;
    finish_work(&scene);
    scene_pass(&scene);
    struct vpmm_offload_stats stats = scene_stats(&scene);
    assert_true(stats.timed_passes >= 2 && stats.timed_passes < 100);
    assert_int_equal(stats.pass_ns, stats.timed_passes * PAIR_NS);
    scene_teardown(&scene);
}

/* A pass that does not come to its end, or is captured, is not timed. */
static void test_not_timed(void **state)
{
    (void)state;
    struct scene scene;
    CUgraph graph;
    setup(&scene);
    make(&scene);
    vpmm_stream_handle stream = scene_handle(scene.stream);
    for (int pass = 0; pass < 10; pass++) {
        assert_int_equal(vpmm_offload_begin(scene.offload, stream), VPMM_OK);
        for (uint32_t i = 0; i < N - 1; i++)
            assert_int_equal(scene_step(&scene, i, scene.stream), VPMM_OK);
        assert_int_equal(vpmm_offload_cancel(scene.offload, stream), VPMM_OK);
        finish_work(&scene);
    }
    assert_true(scene_stats(&scene).late > 0);
    assert_int_equal(vpmm_offload_begin(scene.offload, stream), VPMM_OK);
    assert_int_equal(vpmm_offload_use(scene.offload, 5, stream), VPMM_OUT_OF_ORDER);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(scene_step(&scene, i, scene.stream), VPMM_OK);
    assert_int_equal(vpmm_offload_end(scene.offload, stream), VPMM_OK);
    finish_work(&scene);
    scene_pass(&scene);
    assert_int_equal(scene_stats(&scene).timed_passes, 0);
    assert_int_equal(scene_stats(&scene).stall_ns, 0);
    finish_work(&scene);
    assert_int_equal(
        sim_stream_begin_capture(scene.sim, scene.stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
        CUDA_SUCCESS);
    uint64_t asked = sim_calls(scene.sim, "cuEventElapsedTime");
    scene_pass(&scene);
    assert_int_equal(sim_stream_end_capture(scene.sim, scene.stream, &graph), CUDA_SUCCESS);
    assert_int_equal(sim_graph_destroy(scene.sim, graph), CUDA_SUCCESS);
    assert_int_equal(sim_calls(scene.sim, "cuEventElapsedTime"), asked);
    assert_int_equal(vpmm_offload_thaw(scene.offload), VPMM_OK);
    scene_pass(&scene);
    finish_work(&scene);
    scene_pass(&scene);
    assert_int_equal(scene_stats(&scene).timed_passes, 2);
    scene_teardown(&scene);
}

static void test_driver_without_times(void **state)
{
    (void)state;
    struct scene scene;
    setup(&scene);
    scene.driver.event_elapsed = NULL;
    make(&scene);
    for (int i = 0; i < 5; i++) {
        scene_pass(&scene);
        finish_work(&scene);
    }
    assert_int_equal(scene_stats(&scene).passes, 5);
    assert_int_equal(scene_stats(&scene).timed_passes, 0);
    assert_int_equal(sim_calls(scene.sim, "cuEventElapsedTime"), 0);
    scene_teardown(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steady),
        cmocka_unit_test(test_far_ahead),
        cmocka_unit_test(test_not_timed),
        cmocka_unit_test(test_driver_without_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
