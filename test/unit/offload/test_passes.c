/* SPDX-License-Identifier: MIT */
/* The bytes of many passes: recorded and given orders, every budget from the floor up, several
 * streams, groups that are used twice or inside others, and what a steady pass may not do. */
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static void test_given_order(void **state)
{
    (void)state;
    struct scene scene;
    scene_setup(&scene);
    scene_make(&scene, 12);
    scene_add_many(&scene, 20, 4);
    scene_order(&scene);
    scene_seal(&scene);
    for (int i = 0; i < 50; i++)
        scene_pass(&scene);
    struct vpmm_offload_stats stats = scene_stats(&scene);
    assert_int_equal(stats.passes, 50);
    assert_int_equal(stats.hits + stats.misses, 50 * 20);
    assert_true(stats.misses > 0 && stats.hits > 0);
    assert_true(stats.held_peak_bytes <= 12 * CHUNK);
    assert_int_equal(stats.held_bytes, stats.ring_bytes + stats.resident_bytes);
    scene_teardown(&scene);
    assert_int_equal(scene.n_read, 50 * 20);
}

static void test_recorded_order(void **state)
{
    (void)state;
    struct scene scene;
    scene_setup(&scene);
    scene_make(&scene, 10);
    scene_add_many(&scene, 20, 4);
    scene_seal(&scene);
    for (int i = 0; i < 50; i++)
        scene_pass(&scene);
    struct vpmm_offload_stats stats = scene_stats(&scene);
    assert_int_equal(stats.passes, 50);
    assert_true(stats.held_peak_bytes <= 10 * CHUNK);
    assert_true(stats.resident_bytes > 0);
    scene_teardown(&scene);
}

/* Random models: each budget from the floor to all of it holds no more and reads no wrong byte. */
static void test_every_budget(void **state)
{
    (void)state;
    for (uint64_t model = 0; model < 12; model++) {
        struct vpmm_offload_need need = {0};
        for (uint64_t budget = 1; !need.all_bytes || budget * CHUNK <= need.all_bytes; budget++) {
            struct scene scene;
            scene_setup(&scene);
            scene.random = 1000 + model;
            scene_make(&scene, budget);
            (void)scene_add(&scene, VPMM_OFFLOAD_KEPT, 1 + scene_random(&scene, CHUNK));
            scene_add_many(&scene, 6 + (uint32_t)scene_random(&scene, 6), 3);
            if (model % 2)
                scene_order(&scene);
            enum vpmm_status status = vpmm_offload_seal(scene.offload, &need);
            bool is_enough = budget * CHUNK >= need.floor_bytes;
            assert_int_equal(status, is_enough ? VPMM_OK : VPMM_BELOW_FLOOR);
            if (!is_enough)
                assert_int_equal(scene_used(&scene), 0);
            for (int i = 0; is_enough && i < 5; i++) {
                scene_pass(&scene);
                assert_true(scene_used(&scene) <= budget * CHUNK);
            }
            scene_teardown(&scene);
        }
    }
}

/* A steady pass makes no call of the VMM, allocates nothing and waits for nothing on the host. */
static void test_steady_calls(void **state)
{
    (void)state;
    static const char *const never[] = {
        "cuMemMap",           "cuMemUnmap",         "cuMemSetAccess",      "cuMemCreate",
        "cuMemRelease",       "cuEventSynchronize", "cuStreamSynchronize", "cuCtxSynchronize",
        "cuMemHostAlloc",     "cuMemHostRegister",  "cuEventCreate",       "cuStreamCreate",
        "cuMemAddressReserve"};
    struct scene scene;
    scene_setup(&scene);
    scene_make(&scene, 10);
    scene_add_many(&scene, 20, 4);
    scene_seal(&scene);
    scene_pass(&scene);
    scene_pass(&scene);
    struct vpmm_offload_stats before = scene_stats(&scene);
    uint64_t maps = scene.maps_outstanding;
    sim_calls_reset(scene.sim);
    for (int i = 0; i < 10; i++)
        scene_pass(&scene);
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        assert_int_equal(sim_calls(scene.sim, never[i]), 0);
    struct vpmm_offload_stats after = scene_stats(&scene);
    assert_int_equal(after.host_waits, before.host_waits);
    assert_int_equal(after.vmm_calls, before.vmm_calls);
    assert_true(before.vmm_calls > 20);
    assert_int_equal(scene.maps_outstanding, maps);
    /* What is not resident is copied once a pass, and nothing else is. */
    uint64_t copied = after.copied_bytes - before.copied_bytes;
    assert_int_equal(copied % 10, 0);
    assert_true(copied / 10 >= after.weight_bytes - after.resident_bytes);
    assert_true(copied / 10 <= after.weight_bytes);
    scene_teardown(&scene);
}

/* Ten thousand passes, with another budget now and then. */
static void test_ten_thousand(void **state)
{
    (void)state;
    struct scene scene;
    scene_setup(&scene);
    scene_make(&scene, 6);
    scene_add_many(&scene, 6, 2);
    scene_seal(&scene);
    for (int i = 0; i < 10000; i++) {
        scene_pass(&scene);
        if (i % 1000 == 999)
            assert_int_equal(
                vpmm_offload_budget(scene.offload, (2 + (uint64_t)i / 1000) * CHUNK, NULL),
                VPMM_OK);
    }
    assert_int_equal(scene_stats(&scene).passes, 10000);
    scene_teardown(&scene);
    assert_int_equal(scene.n_read, 60000);
}

static void test_all_resident(void **state)
{
    (void)state;
    struct scene scene;
    scene_setup(&scene);
    scene_make(&scene, 200);
    scene_add_many(&scene, 20, 4);
    scene_seal(&scene);
    uint64_t copied = scene_stats(&scene).copied_bytes;
    for (int i = 0; i < 5; i++)
        scene_pass(&scene);
    assert_int_equal(scene_stats(&scene).copied_bytes, copied);
    assert_int_equal(scene_stats(&scene).ring_bytes, 0);
    assert_int_equal(scene_stats(&scene).misses, 0);
    scene_teardown(&scene);
}

/* Tied weights: the first and the last step use one group, another comes twice in a row. */
static void test_used_twice(void **state)
{
    (void)state;
    for (int is_given = 0; is_given < 2; is_given++) {
        struct scene scene;
        scene_setup(&scene);
        scene_make(&scene, 7);
        scene_add_many(&scene, 12, 3);
        scene.order[scene.n_steps++] = 0;
        scene.order[scene.n_steps++] = 5;
        scene.order[scene.n_steps++] = 5;
        if (is_given)
            scene_order(&scene);
        scene_seal(&scene);
        for (int i = 0; i < 20; i++)
            scene_pass(&scene);
        scene_teardown(&scene);
    }
}

static enum vpmm_status nested_pass(struct scene *scene)
{
    vpmm_stream_handle stream = scene_handle(scene->stream);
    enum vpmm_status status = vpmm_offload_begin(scene->offload, stream);
    for (uint32_t i = 0; !status && i < scene->n_groups; i += 3) {
        status = vpmm_offload_use(scene->offload, i, stream);
        if (!status)
            status = scene_step(scene, i + 1, scene->stream);
        if (!status)
            status = scene_step(scene, i + 2, scene->stream);
        if (status)
            break;
        scene_read(scene, i, scene->stream);
        status = vpmm_offload_done(scene->offload, i, stream);
    }
    enum vpmm_status ended = vpmm_offload_end(scene->offload, stream);
    return status ? status : ended;
}

/* Each third group stays in use while the next two are used. */
static void test_nested(void **state)
{
    (void)state;
    for (uint64_t budget = 6; budget < 24; budget++) {
        struct scene scene;
        scene_setup(&scene);
        scene_make(&scene, budget);
        scene_add_many(&scene, 12, 2);
        scene_seal(&scene);
        for (int i = 0; i < 10; i++) {
            enum vpmm_status status = nested_pass(&scene);
            if (status)
                fail_msg("budget %d: %s: %s", (int)budget, vpmm_status_text(status), scene.message);
        }
        scene_teardown(&scene);
    }
}

/* Steps on two streams that nothing orders within a pass. */
static void test_two_streams(void **state)
{
    (void)state;
    struct scene scene;
    CUstream other;
    CUevent event;
    scene_setup(&scene);
    assert_int_equal(sim_stream_create(scene.sim, CU_STREAM_NON_BLOCKING, 0, &other), CUDA_SUCCESS);
    assert_int_equal(sim_event_create(scene.sim, CU_EVENT_DISABLE_TIMING, &event), CUDA_SUCCESS);
    scene_make(&scene, 9);
    scene_add_many(&scene, 20, 3);
    scene_seal(&scene);
    for (int pass = 0; pass < 30; pass++) {
        assert_int_equal(vpmm_offload_begin(scene.offload, scene_handle(scene.stream)), VPMM_OK);
        for (uint32_t i = 0; i < scene.n_steps; i++)
            assert_int_equal(scene_step(&scene, scene.order[i], i % 3 ? scene.stream : other),
                             VPMM_OK);
        assert_int_equal(sim_event_record(scene.sim, event, other), CUDA_SUCCESS);
        assert_int_equal(sim_stream_wait_event(scene.sim, scene.stream, event, 0), CUDA_SUCCESS);
        assert_int_equal(vpmm_offload_end(scene.offload, scene_handle(scene.stream)), VPMM_OK);
    }
    assert_int_equal(sim_event_destroy(scene.sim, event), CUDA_SUCCESS);
    assert_int_equal(sim_ctx_synchronize(scene.sim), CUDA_SUCCESS);
    assert_int_equal(sim_stream_destroy(scene.sim, other), CUDA_SUCCESS);
    scene_teardown(&scene);
}

/* Kept and direct weights may be read at any time, in a pass and outside. */
static void test_kept_and_direct(void **state)
{
    (void)state;
    struct scene scene;
    scene_setup(&scene);
    scene_make(&scene, 8);
    uint32_t kept = scene_add(&scene, VPMM_OFFLOAD_KEPT, 5000);
    uint32_t direct = scene_add(&scene, VPMM_OFFLOAD_DIRECT, 9000);
    scene_add_many(&scene, 10, 3);
    scene_seal(&scene);
    assert_true(scene_used(&scene) <= 8 * CHUNK);
    for (int i = 0; i < 10; i++) {
        scene_read(&scene, kept, scene.stream);
        scene_read(&scene, direct, scene.stream);
        scene_pass(&scene);
    }
    assert_int_equal(scene_stats(&scene).direct_bytes, 3 * CHUNK);
    scene_teardown(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_given_order),     cmocka_unit_test(test_recorded_order),
        cmocka_unit_test(test_every_budget),    cmocka_unit_test(test_steady_calls),
        cmocka_unit_test(test_all_resident),    cmocka_unit_test(test_used_twice),
        cmocka_unit_test(test_nested),          cmocka_unit_test(test_two_streams),
        cmocka_unit_test(test_kept_and_direct), cmocka_unit_test(test_ten_thousand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
