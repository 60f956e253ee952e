/* SPDX-License-Identifier: MIT */
/* What is refused, with the sentence that says why, and that the object goes on after it: budgets,
 * orders, arguments, memory of the device and of the host. */
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void setup(struct scene *scene, uint64_t budget)
{
    scene_setup(scene);
    scene->random = 1; /* the largest group has three chunks, whatever the device draws */
    scene_make(scene, budget);
    scene_add_many(scene, 12, 3);
}

static void assert_says(const struct scene *scene, const char *words)
{
    if (!strstr(scene->message, words))
        fail_msg("\"%s\" does not say \"%s\"", scene->message, words);
}

static void test_floor(void **state)
{
    struct scene scene;
    struct vpmm_offload_need need;
    (void)state;
    setup(&scene, 2);
    assert_int_equal(vpmm_offload_seal(scene.offload, &need), VPMM_BELOW_FLOOR);
    assert_int_equal(need.floor_bytes, 3 * CHUNK);
    assert_int_equal(need.smooth_bytes, 6 * CHUNK);
    assert_true(need.all_bytes > need.smooth_bytes);
    assert_true(need.host_bytes > 0);
    assert_says(&scene, "at least 12288 bytes");
    assert_int_equal(scene_used(&scene), 0);
    scene_teardown(&scene);
    /* The floor is enough. */
    setup(&scene, 3);
    scene_seal(&scene);
    for (int i = 0; i < 4; i++)
        scene_pass(&scene);
    assert_int_equal(vpmm_offload_budget(scene.offload, 2 * CHUNK, &need), VPMM_BELOW_FLOOR);
    assert_int_equal(need.floor_bytes, 3 * CHUNK);
    scene_pass(&scene);
    scene_teardown(&scene);
}

static void test_budget_changes(void **state)
{
    struct scene scene;
    (void)state;
    setup(&scene, 5);
    scene_seal(&scene);
    for (int i = 0; i < 40; i++) {
        uint64_t budget = 3 + scene_random(&scene, 30);
        if (i == 10)
            assert_int_equal(vpmm_offload_begin(scene.offload, scene_handle(scene.stream)),
                             VPMM_OK);
        if (i == 10) {
            assert_int_equal(vpmm_offload_budget(scene.offload, budget * CHUNK, NULL),
                             VPMM_OCCUPIED);
            assert_int_equal(vpmm_offload_end(scene.offload, scene_handle(scene.stream)),
                             VPMM_OUT_OF_ORDER);
        }
        assert_int_equal(vpmm_offload_budget(scene.offload, budget * CHUNK, NULL), VPMM_OK);
        assert_true(scene_used(&scene) <= budget * CHUNK);
        scene_pass(&scene);
        if (scene_random(&scene, 2))
            scene_pass(&scene);
    }
    scene_teardown(&scene);
}

/* A change that the device has no memory for leaves the old budget and its plan. */
static void test_change_without_memory(void **state)
{
    struct scene scene;
    CUdeviceptr other;
    (void)state;
    setup(&scene, 5);
    scene_order(&scene);
    scene_seal(&scene);
    scene_pass(&scene);
    assert_int_equal(sim_mem_alloc(scene.sim, ((uint64_t)64 << 20) - 8 * CHUNK, &other),
                     CUDA_SUCCESS);
    assert_int_equal(vpmm_offload_budget(scene.offload, 20 * CHUNK, NULL), VPMM_NO_MEMORY);
    assert_says(&scene, "device memory");
    assert_int_equal(scene_stats(&scene).budget_bytes, 5 * CHUNK);
    scene_pass(&scene);
    assert_int_equal(sim_mem_free(scene.sim, other), CUDA_SUCCESS);
    assert_int_equal(vpmm_offload_budget(scene.offload, 20 * CHUNK, NULL), VPMM_OK);
    scene_pass(&scene);
    scene_teardown(&scene);
}

static void test_ledger(void **state)
{
    struct scene scene;
    (void)state;
    setup(&scene, 8);
    scene.limit_bytes = 6 * CHUNK;
    assert_int_equal(vpmm_offload_seal(scene.offload, NULL), VPMM_LIMITED);
    assert_says(&scene, "VPMM_LIMIT");
    assert_int_equal(scene_used(&scene), 0);
    scene.limit_bytes = 8 * CHUNK;
    scene_seal(&scene);
    scene_pass(&scene);
    assert_int_equal(vpmm_offload_budget(scene.offload, 20 * CHUNK, NULL), VPMM_LIMITED);
    scene_pass(&scene);
    scene_teardown(&scene);
}

static void test_other_order(void **state)
{
    struct scene scene;
    (void)state;
    setup(&scene, 6);
    scene_seal(&scene);
    scene_pass(&scene);
    scene_pass(&scene);
    vpmm_stream_handle stream = scene_handle(scene.stream);
    assert_int_equal(vpmm_offload_begin(scene.offload, stream), VPMM_OK);
    assert_int_equal(scene_step(&scene, 0, scene.stream), VPMM_OK);
    assert_int_equal(scene_step(&scene, 2, scene.stream), VPMM_OUT_OF_ORDER);
    assert_says(&scene, "the recorded order has");
    assert_int_equal(scene_step(&scene, 1, scene.stream), VPMM_OK);
    assert_int_equal(vpmm_offload_end(scene.offload, stream), VPMM_OUT_OF_ORDER);
    scene_pass(&scene);
    /* One more use than recorded. */
    assert_int_equal(vpmm_offload_begin(scene.offload, stream), VPMM_OK);
    for (uint32_t i = 0; i < scene.n_steps; i++)
        assert_int_equal(scene_step(&scene, i, scene.stream), VPMM_OK);
    assert_int_equal(scene_step(&scene, 0, scene.stream), VPMM_OUT_OF_ORDER);
    assert_says(&scene, "the end of the pass");
    assert_int_equal(vpmm_offload_end(scene.offload, stream), VPMM_OK);
    assert_int_equal(scene_stats(&scene).divergences, 3);
    scene_teardown(&scene);
}

/* With `follows` any order is served, whatever it costs. */
static void test_followed_order(void **state)
{
    struct scene scene;
    (void)state;
    scene_setup(&scene);
    scene.params.follows = true;
    scene_make(&scene, 7);
    scene_add_many(&scene, 12, 3);
    scene_seal(&scene);
    scene_pass(&scene);
    vpmm_stream_handle stream = scene_handle(scene.stream);
    for (int pass = 0; pass < 30; pass++) {
        assert_int_equal(vpmm_offload_begin(scene.offload, stream), VPMM_OK);
        uint32_t n = (uint32_t)scene_random(&scene, 14);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t group = pass % 3 && i < 6 ? i : (uint32_t)scene_random(&scene, 12);
            if (scene_step(&scene, group, scene.stream))
                fail_msg("%s", scene.message);
        }
        assert_int_equal(vpmm_offload_end(scene.offload, stream), VPMM_OK);
        if (pass % 4 == 0)
            scene_pass(&scene);
    }
    assert_true(scene_stats(&scene).divergences > 0);
    scene_teardown(&scene);
}

/* A pass that ends with a group in use: the next one begins when its work is over. */
static void test_unfinished(void **state)
{
    struct scene scene;
    (void)state;
    for (int is_recorded = 0; is_recorded < 2; is_recorded++) {
        setup(&scene, 6);
        if (is_recorded)
            scene_order(&scene);
        scene_seal(&scene);
        vpmm_stream_handle stream = scene_handle(scene.stream);
        assert_int_equal(vpmm_offload_begin(scene.offload, stream), VPMM_OK);
        assert_int_equal(vpmm_offload_begin(scene.offload, stream), VPMM_OCCUPIED);
        assert_int_equal(scene_step(&scene, 0, scene.stream), VPMM_OK);
        assert_int_equal(vpmm_offload_use(scene.offload, 1, stream), VPMM_OK);
        scene_read(&scene, 1, scene.stream);
        assert_int_equal(vpmm_offload_end(scene.offload, stream), VPMM_OUT_OF_ORDER);
        assert_says(&scene, "in use");
        assert_int_equal(vpmm_offload_use(scene.offload, 0, stream), VPMM_INVALID);
        scene_pass(&scene);
        scene_pass(&scene);
        scene_teardown(&scene);
    }
}

/* Checked: a group that is not in use is mapped nowhere, so a read of it faults. */
static void test_checks(void **state)
{
    struct scene scene;
    unsigned char byte;
    (void)state;
    scene_setup(&scene);
    scene.params.checks = true;
    scene_make(&scene, 6);
    scene_add_many(&scene, 12, 3);
    scene_seal(&scene);
    vpmm_stream_handle stream = scene_handle(scene.stream);
    for (int pass = 0; pass < 3; pass++) {
        assert_int_equal(vpmm_offload_begin(scene.offload, stream), VPMM_OK);
        for (uint32_t i = 0; i < scene.n_steps; i++) {
            assert_int_equal(vpmm_offload_use(scene.offload, i, stream), VPMM_OK);
            assert_true(sim_peek(scene.sim, 0, scene.addresses[i], &byte, 1));
            scene_read(&scene, i, scene.stream);
            assert_int_equal(vpmm_offload_done(scene.offload, i, stream), VPMM_OK);
            assert_false(sim_peek(scene.sim, 0, scene.addresses[i], &byte, 1));
        }
        assert_int_equal(vpmm_offload_end(scene.offload, stream), VPMM_OK);
    }
    assert_int_equal(vpmm_offload_begin(scene.offload, stream), VPMM_OK);
    assert_int_equal(vpmm_offload_use(scene.offload, 1, stream), VPMM_OUT_OF_ORDER);
    assert_int_equal(vpmm_offload_end(scene.offload, stream), VPMM_OUT_OF_ORDER);
    scene_teardown(&scene);
}

static void test_arguments(void **state)
{
    struct scene scene;
    uint64_t address;
    uint32_t number, bad = 99;
    void *host;
    (void)state;
    setup(&scene, 8);
    struct vpmm_offload_weight weight = {"later", VPMM_OFFLOAD_STREAMED, 20, 64};
    assert_int_equal(vpmm_offload_add(scene.offload, &weight, &address, &number), VPMM_INVALID);
    weight.group = 12;
    weight.bytes = 0;
    assert_int_equal(vpmm_offload_add(scene.offload, &weight, &address, &number), VPMM_INVALID);
    weight.bytes = UINT64_MAX - 5;
    assert_int_equal(vpmm_offload_add(scene.offload, &weight, &address, &number), VPMM_NO_MEMORY);
    weight.bytes = (uint64_t)1 << 40;
    assert_int_equal(vpmm_offload_add(scene.offload, &weight, &address, &number), VPMM_NO_MEMORY);
    weight.bytes = 64;
    assert_int_equal(vpmm_offload_add(scene.offload, &weight, &address, &number), VPMM_OK);
    weight.kind = VPMM_OFFLOAD_KEPT;
    assert_int_equal(vpmm_offload_add(scene.offload, &weight, &address, &number), VPMM_INVALID);
    assert_int_equal(vpmm_offload_seal(scene.offload, NULL), VPMM_INVALID);
    assert_says(&scene, "neither a file nor host memory");
    assert_int_equal(vpmm_offload_order(scene.offload, &bad, 1), VPMM_INVALID);
    assert_int_equal(vpmm_offload_host(scene.offload, 99, &host), VPMM_INVALID);
    assert_int_equal(vpmm_offload_host(scene.offload, 12, &host), VPMM_OK);
    memset(host, 0, 64);
    assert_int_equal(vpmm_offload_begin(scene.offload, scene_handle(scene.stream)), VPMM_INVALID);
    scene_seal(&scene);
    assert_int_equal(vpmm_offload_seal(scene.offload, NULL), VPMM_INVALID);
    assert_int_equal(vpmm_offload_host(scene.offload, 12, &host), VPMM_INVALID);
    assert_int_equal(vpmm_offload_end(scene.offload, scene_handle(scene.stream)), VPMM_INVALID);
    assert_int_equal(vpmm_offload_begin(scene.offload, scene_handle(scene.stream)), VPMM_OK);
    assert_int_equal(vpmm_offload_use(scene.offload, 99, scene_handle(scene.stream)), VPMM_INVALID);
    assert_int_equal(vpmm_offload_done(scene.offload, 0, scene_handle(scene.stream)), VPMM_INVALID);
    assert_int_equal(vpmm_offload_end(scene.offload, scene_handle(scene.stream)), VPMM_OK);
    scene_pass(&scene);
    assert_true(vpmm_offload_enter(scene.offload));
    assert_false(vpmm_offload_enter(scene.offload));
    vpmm_offload_leave(scene.offload);
    scene_teardown(&scene);
}

static void test_host_memory(void **state)
{
    struct scene scene;
    uint64_t address;
    uint32_t number;
    void *host;
    (void)state;
    scene_setup(&scene);
    scene.params.host_bytes_max = 10000;
    scene_make(&scene, 8);
    for (uint32_t i = 0; i < 2; i++) {
        struct vpmm_offload_weight weight = {"w", VPMM_OFFLOAD_STREAMED, i, 9000};
        assert_int_equal(vpmm_offload_add(scene.offload, &weight, &address, &number), VPMM_OK);
    }
    assert_int_equal(vpmm_offload_host(scene.offload, 0, &host), VPMM_OK);
    assert_int_equal(vpmm_offload_host(scene.offload, 1, &host), VPMM_NO_HOST_ROOM);
    assert_says(&scene, "9000 bytes are to be pinned, and 1000 may be used");
    scene_teardown(&scene);
}

/* A direct window's memory is the host's, and counts there. */
static void test_direct_memory(void **state)
{
    struct scene scene;
    struct vpmm_offload_need need;
    (void)state;
    for (uint64_t short_of = 0; short_of < 2; short_of++) {
        scene_setup(&scene);
        scene.params.host_bytes_max = 9000 + 3 * CHUNK - short_of;
        scene_make(&scene, 8);
        uint32_t direct = scene_add(&scene, VPMM_OFFLOAD_DIRECT, 9000);
        enum vpmm_status status = vpmm_offload_seal(scene.offload, &need);
        assert_int_equal(status, short_of ? VPMM_NO_HOST_ROOM : VPMM_OK);
        assert_int_equal(need.host_bytes, 9000 + (short_of ? 0 : 3 * CHUNK));
        assert_int_equal(scene_stats(&scene).host_bytes, need.host_bytes);
        assert_int_equal(scene_stats(&scene).direct_bytes, short_of ? 0 : 3 * CHUNK);
        if (!short_of)
            scene_read(&scene, direct, scene.stream);
        scene_teardown(&scene);
    }
}

/* A change that could not begin leaves the plan as it is. */
static void test_change_that_cannot_wait(void **state)
{
    struct scene scene;
    (void)state;
    setup(&scene, 8);
    scene_order(&scene);
    scene_seal(&scene);
    scene_pass(&scene);
    sim_fault_set(scene.sim, "cuCtxSynchronize", 1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, true);
    uint64_t calls = scene_stats(&scene).vmm_calls;
    assert_int_equal(vpmm_offload_budget(scene.offload, 10 * CHUNK, NULL), VPMM_CAPTURED);
    scene_pass(&scene);
    sim_fault_clear(scene.sim, "cuCtxSynchronize");
    assert_int_equal(scene_stats(&scene).vmm_calls, calls);
    assert_int_equal(scene_stats(&scene).budget_bytes, 8 * CHUNK);
    assert_int_equal(vpmm_offload_budget(scene.offload, 10 * CHUNK, NULL), VPMM_OK);
    scene_pass(&scene);
    scene_teardown(&scene);
}

/* What may be read at any time is there again when a begin has arranged anew. */
static void test_kept_after_failure(void **state)
{
    struct scene scene;
    (void)state;
    scene_setup(&scene);
    scene_make(&scene, 8);
    uint32_t kept = scene_add(&scene, VPMM_OFFLOAD_KEPT, 5000);
    uint32_t direct = scene_add(&scene, VPMM_OFFLOAD_DIRECT, 5000);
    scene_add_many(&scene, 8, 2);
    scene_order(&scene);
    scene_seal(&scene);
    scene_pass(&scene);
    sim_fault_set(scene.sim, "cuMemMap", 1, CUDA_ERROR_OUT_OF_MEMORY, true);
    assert_int_equal(vpmm_offload_budget(scene.offload, 10 * CHUNK, NULL), VPMM_NO_MEMORY);
    sim_fault_clear(scene.sim, "cuMemMap");
    assert_int_equal(scene_stats(&scene).held_bytes, 0);
    assert_int_equal(vpmm_offload_begin(scene.offload, scene_handle(scene.stream)), VPMM_OK);
    scene_read(&scene, kept, scene.stream);
    scene_read(&scene, direct, scene.stream);
    assert_int_equal(sim_stream_synchronize(scene.sim, scene.stream), CUDA_SUCCESS);
    for (uint32_t i = 0; i < scene.n_steps; i++)
        assert_int_equal(scene_step(&scene, scene.order[i], scene.stream), VPMM_OK);
    assert_int_equal(vpmm_offload_end(scene.offload, scene_handle(scene.stream)), VPMM_OK);
    scene_teardown(&scene);
}

static void test_small_address_space(void **state)
{
    struct scene scene;
    (void)state;
    scene_setup(&scene);
    scene.params.chunk_bytes = CHUNK + 1;
    assert_int_equal(
        vpmm_offload_create(&scene.params, &scene.driver, &scene.memory, &scene.offload),
        VPMM_INVALID);
    scene.params.chunk_bytes = 0;
    struct vpmm_driver without = scene.driver;
    without.copy_in = NULL;
    assert_int_equal(vpmm_offload_create(&scene.params, &without, &scene.memory, &scene.offload),
                     VPMM_NOT_SUPPORTED);
    scene.offload = NULL;
    scene_teardown(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floor),
        cmocka_unit_test(test_budget_changes),
        cmocka_unit_test(test_change_without_memory),
        cmocka_unit_test(test_ledger),
        cmocka_unit_test(test_other_order),
        cmocka_unit_test(test_followed_order),
        cmocka_unit_test(test_unfinished),
        cmocka_unit_test(test_checks),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_host_memory),
        cmocka_unit_test(test_direct_memory),
        cmocka_unit_test(test_change_that_cannot_wait),
        cmocka_unit_test(test_kept_after_failure),
        cmocka_unit_test(test_small_address_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
