/* SPDX-License-Identifier: MIT */
/* Memory that the program lacks: resident weights are given back between passes and taken again
 * later, and every byte that is read stays right. */
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void setup(struct scene *scene, uint64_t budget)
{
    scene_setup(scene);
    scene_make(scene, budget);
    scene_add_many(scene, 20, 3);
    scene_order(scene);
    scene_seal(scene);
    for (int i = 0; i < 3; i++)
        scene_pass(scene);
}

static void test_what_is_asked_for_is_given(void **state)
{
    struct scene scene;
    (void)state;
    setup(&scene, 24);
    uint64_t held = scene_used(&scene);
    assert_int_equal(vpmm_offload_yield(scene.offload, 5 * CHUNK), 5 * CHUNK);
    assert_int_equal(scene_used(&scene), held - 5 * CHUNK);
    assert_int_equal(scene_stats(&scene).yields, 1);
    for (int i = 0; i < 3; i++)
        scene_pass(&scene);
    assert_int_equal(scene_used(&scene), held - 5 * CHUNK);
    scene_teardown(&scene);
}

/* All of it but the floor; then there is nothing to give. */
static void test_the_floor_stays(void **state)
{
    struct scene scene;
    struct vpmm_offload_need need;
    (void)state;
    setup(&scene, 24);
    vpmm_offload_need(scene.offload, &need);
    assert_true(vpmm_offload_yield(scene.offload, UINT64_MAX) > 0);
    assert_int_equal(scene_used(&scene), need.floor_bytes);
    assert_int_equal(vpmm_offload_yield(scene.offload, CHUNK), 0);
    for (int i = 0; i < 4; i++)
        scene_pass(&scene);
    scene_teardown(&scene);
}

/* After so many passes without a request, and later after the second one. */
static void test_it_is_taken_again(void **state)
{
    struct scene scene;
    (void)state;
    setup(&scene, 24);
    uint64_t held = scene_used(&scene);
    for (unsigned round = 0, passes = 16; round < 3; round++, passes *= 2) {
        assert_true(vpmm_offload_yield(scene.offload, 6 * CHUNK) > 0);
        for (unsigned i = 1; i < passes; i++)
            scene_pass(&scene);
        assert_true(scene_used(&scene) < held);
        scene_pass(&scene);
        assert_int_equal(scene_used(&scene), held);
        scene_pass(&scene);
    }
    assert_int_equal(scene_stats(&scene).budget_bytes, 24 * CHUNK);
    scene_teardown(&scene);
}

/* What cannot be taken again is asked for less and less often. */
static void test_it_cannot_be_taken_again(void **state)
{
    struct scene scene;
    unsigned n_tried = 0;
    (void)state;
    setup(&scene, 24);
    uint64_t held = scene_used(&scene);
    assert_true(vpmm_offload_yield(scene.offload, 6 * CHUNK) > 0);
    scene.limit_bytes = scene.taken_bytes;
    for (unsigned i = 0; i < 16 + 32 + 64; i++) {
        uint64_t n_calls = scene_stats(&scene).vmm_calls;
        scene_pass(&scene);
        n_tried += scene_stats(&scene).vmm_calls > n_calls;
    }
    assert_int_equal(n_tried, 3);
    scene.limit_bytes = 0;
    for (unsigned i = 0; i < 128; i++)
        scene_pass(&scene);
    assert_int_equal(scene_used(&scene), held);
    scene_teardown(&scene);
}

/* Within a pass, or while another call is inside: at the end of the pass. */
static void test_not_within_a_pass(void **state)
{
    struct scene scene;
    (void)state;
    setup(&scene, 24);
    vpmm_stream_handle stream = scene_handle(scene.stream);
    uint64_t held = scene_used(&scene);
    for (int is_entered = 0; is_entered < 2; is_entered++) {
        assert_int_equal(vpmm_offload_begin(scene.offload, stream), VPMM_OK);
        assert_int_equal(scene_step(&scene, 0, scene.stream), VPMM_OK);
        assert_true(!is_entered || vpmm_offload_enter(scene.offload));
        assert_int_equal(vpmm_offload_yield(scene.offload, 3 * CHUNK), 0);
        if (is_entered)
            vpmm_offload_leave(scene.offload);
        for (uint32_t i = 1; i < scene.n_steps; i++)
            assert_int_equal(scene_step(&scene, i, scene.stream), VPMM_OK);
        assert_true(scene_used(&scene) >= held);
        assert_int_equal(vpmm_offload_end(scene.offload, stream), VPMM_OK);
        assert_int_equal(scene_used(&scene), held - 3 * CHUNK);
        held -= 3 * CHUNK;
    }
    for (int i = 0; i < 4; i++)
        scene_pass(&scene);
    scene_teardown(&scene);
}

/* Graphs of captured passes need what is held. */
static void test_not_while_graphs_live(void **state)
{
    struct scene scene;
    CUgraph graph;
    (void)state;
    setup(&scene, 24);
    assert_int_equal(
        sim_stream_begin_capture(scene.sim, scene.stream, CU_STREAM_CAPTURE_MODE_RELAXED),
        CUDA_SUCCESS);
    scene_pass(&scene);
    assert_int_equal(sim_stream_end_capture(scene.sim, scene.stream, &graph), CUDA_SUCCESS);
    uint64_t held = scene_used(&scene);
    assert_int_equal(vpmm_offload_yield(scene.offload, 3 * CHUNK), 0);
    scene_pass(&scene);
    assert_int_equal(scene_used(&scene), held);
    assert_int_equal(sim_graph_destroy(scene.sim, graph), CUDA_SUCCESS);
    assert_int_equal(vpmm_offload_thaw(scene.offload), VPMM_OK);
    assert_int_equal(vpmm_offload_yield(scene.offload, 3 * CHUNK), 3 * CHUNK);
    scene_pass(&scene);
    scene_teardown(&scene);
}

/* What is sealed at the second try gives as much as what was at the first, and its first pass moves
 * nothing. */
static void test_after_a_seal_that_failed(void **state)
{
    struct scene scene;
    (void)state;
    scene_setup(&scene);
    scene_make(&scene, 24);
    scene_add_many(&scene, 20, 3);
    scene_order(&scene);
    scene.limit_bytes = 2 * CHUNK;
    assert_int_equal(vpmm_offload_seal(scene.offload, NULL), VPMM_LIMITED);
    scene.limit_bytes = 0;
    scene_seal(&scene);
    struct vpmm_offload_stats before = scene_stats(&scene);
    scene_pass(&scene);
    assert_int_equal(scene_stats(&scene).vmm_calls, before.vmm_calls);
    assert_int_equal(scene_stats(&scene).host_waits, before.host_waits);
    scene_teardown(&scene);
}

/* At any moment, with passes on several streams whose work is late. */
static void test_at_any_moment(void **state)
{
    struct scene scene;
    CUstream streams[6];
    (void)state;
    setup(&scene, 24);
    for (int i = 0; i < 6; i++)
        assert_int_equal(sim_stream_create(scene.sim, CU_STREAM_NON_BLOCKING, 0, &streams[i]),
                         CUDA_SUCCESS);
    CUstream own = scene.stream;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(sim_ctx_synchronize(scene.sim), CUDA_SUCCESS);
        scene.stream = streams[scene_random(&scene, 6)];
        scene_pass(&scene);
        if (scene_random(&scene, 3) == 0)
            (void)vpmm_offload_yield(scene.offload, scene_random(&scene, 9) * CHUNK);
        if (scene_random(&scene, 4) == 0)
            assert_int_equal(vpmm_offload_budget(scene.offload, 24 * CHUNK, NULL), VPMM_OK);
        assert_true(scene_used(&scene) <= 24 * CHUNK);
    }
    assert_true(scene_stats(&scene).yields > 10);
    scene.stream = own;
    assert_int_equal(sim_ctx_synchronize(scene.sim), CUDA_SUCCESS);
    for (int i = 0; i < 6; i++)
        assert_int_equal(sim_stream_destroy(scene.sim, streams[i]), CUDA_SUCCESS);
    scene_teardown(&scene);
}

/* Where nothing is streamed, a pass need not tell its uses: it reads what has arrived, and what it
 * reads is given back only when that is over. */
static void test_whole_passes(void **state)
{
    struct scene scene;
    struct vpmm_offload_need need;
    (void)state;
    setup(&scene, 24);
    vpmm_offload_need(scene.offload, &need);
    vpmm_stream_handle stream = scene_handle(scene.stream);
    for (int i = 0; i < 60; i++) {
        assert_int_equal(vpmm_offload_budget(scene.offload, need.all_bytes, NULL), VPMM_OK);
        for (int passes = 0; passes < 2; passes++) {
            assert_int_equal(vpmm_offload_begin(scene.offload, stream), VPMM_OK);
            for (uint32_t group = 0; group < scene.n_groups; group++)
                scene_read(&scene, group, scene.stream);
            assert_int_equal(vpmm_offload_end(scene.offload, stream), VPMM_OK);
        }
        (void)vpmm_offload_yield(scene.offload, 9 * CHUNK);
        scene_pass(&scene);
    }
    assert_true(scene_stats(&scene).yields > 30);
    scene_teardown(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_asked_for_is_given),
        cmocka_unit_test(test_the_floor_stays),
        cmocka_unit_test(test_it_is_taken_again),
        cmocka_unit_test(test_it_cannot_be_taken_again),
        cmocka_unit_test(test_not_within_a_pass),
        cmocka_unit_test(test_not_while_graphs_live),
        cmocka_unit_test(test_after_a_seal_that_failed),
        cmocka_unit_test(test_at_any_moment),
        cmocka_unit_test(test_whole_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
