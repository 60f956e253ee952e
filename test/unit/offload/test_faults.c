/* SPDX-License-Identifier: MIT */
/* Each driver call of a life fails in turn, once and for a while, and so does each request for
 * metadata: the call that meets it says so, no byte is wrong, nothing is lost, and the same object
 * works when the fault is gone. */
#include "scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct fault {
    const char *name;
    CUresult code;
    bool forever;
};

static bool make(struct scene *scene, bool has_order)
{
    scene->params.budget_bytes = 9 * CHUNK;
    if (vpmm_offload_create(&scene->params, &scene->driver, &scene->memory, &scene->offload)) {
        scene->offload = NULL;
        return false;
    }
    for (uint32_t i = 0; i < 12; i++) {
        enum vpmm_offload_kind kind = i == 3   ? VPMM_OFFLOAD_KEPT
                                      : i == 7 ? VPMM_OFFLOAD_DIRECT
                                               : VPMM_OFFLOAD_STREAMED;
        struct vpmm_offload_weight weight = {"weight", kind, i, scene->bytes[i]};
        void *host;
        if (vpmm_offload_add(scene->offload, &weight, &scene->addresses[i], &scene->numbers[i]) ||
            vpmm_offload_host(scene->offload, scene->numbers[i], &host))
            return false;
        memcpy(host, scene->expected[i], scene->bytes[i]);
    }
    return !has_order || !vpmm_offload_order(scene->offload, scene->order, scene->n_steps);
}

/* A life from its making on; where something fails, the fault ends and it goes on from there. */
static void live(struct scene *scene, const char *name, bool has_order)
{
    if (!make(scene, has_order)) {
        sim_fault_clear(scene->sim, name);
        scene->maps_until_failure = 0;
        if (scene->offload)
            assert_int_equal(vpmm_offload_destroy(scene->offload), VPMM_OK);
        scene->offload = NULL;
        assert_int_equal(scene->maps_outstanding, 0);
        assert_int_equal(scene_used(scene), 0);
        assert_true(make(scene, has_order));
    }
    if (vpmm_offload_seal(scene->offload, NULL)) {
        sim_fault_clear(scene->sim, name);
        scene->maps_until_failure = 0;
        scene_seal(scene);
    }
    for (int i = 0; i < 3; i++)
        if (scene_try_pass(scene))
            sim_fault_clear(scene->sim, name);
    if (vpmm_offload_budget(scene->offload, 12 * CHUNK, NULL)) {
        sim_fault_clear(scene->sim, name);
        scene->maps_until_failure = 0;
        assert_true(scene_try_pass(scene) == VPMM_OK);
        assert_int_equal(vpmm_offload_budget(scene->offload, 12 * CHUNK, NULL), VPMM_OK);
    }
    if (scene_try_pass(scene))
        sim_fault_clear(scene->sim, name);
    if (vpmm_offload_budget(scene->offload, 8 * CHUNK, NULL))
        sim_fault_clear(scene->sim, name);
    if (scene_try_pass(scene))
        sim_fault_clear(scene->sim, name);
    assert_true(scene_used(scene) <= 12 * CHUNK);
}

static bool strike(const struct fault *fault, uint64_t nth, uint64_t map, bool has_order)
{
    struct scene scene;
    scene_setup(&scene);
    scene.driver.event_elapsed = scene.event_elapsed;
    scene.random = 77;
    scene.n_groups = 12;
    for (uint32_t i = 0; i < scene.n_groups; i++) {
        scene.bytes[i] = scene_random(&scene, 2 * CHUNK) + 1;
        scene.expected[i] = scene_pattern(&scene, scene.bytes[i]);
        if (i != 3 && i != 7)
            scene.order[scene.n_steps++] = i;
    }
    if (fault)
        sim_fault_set(scene.sim, fault->name, nth, fault->code, fault->forever);
    scene.maps_until_failure = map;
    live(&scene, fault ? fault->name : NULL, has_order);
    bool has_struck =
        fault ? sim_fault_struck(scene.sim, fault->name) : scene.maps_until_failure == 0;
    if (fault)
        sim_fault_clear(scene.sim, fault->name);
    scene.maps_until_failure = 0;
    scene_pass(&scene);
    scene_pass(&scene);
    /* Whether it had struck before it was cleared cannot be asked afterwards. */
    has_struck = has_struck || (fault && nth <= sim_calls(scene.sim, fault->name));
    scene_teardown(&scene);
    return has_struck;
}

static void test_driver(void **state)
{
    static const struct fault faults[] = {
        {"cuMemAddressReserve", CUDA_ERROR_INVALID_VALUE, false},
        {"cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY, false},
        {"cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY, true},
        {"cuMemMap", CUDA_ERROR_OUT_OF_MEMORY, false},
        {"cuMemMap", CUDA_ERROR_INVALID_VALUE, true},
        {"cuMemSetAccess", CUDA_ERROR_OUT_OF_MEMORY, false},
        {"cuMemSetAccess", CUDA_ERROR_NOT_SUPPORTED, true},
        {"cuMemUnmap", CUDA_ERROR_INVALID_VALUE, false},
        {"cuStreamCreate", CUDA_ERROR_OUT_OF_MEMORY, false},
        {"cuEventCreate", CUDA_ERROR_OUT_OF_MEMORY, false},
        {"cuEventRecord", CUDA_ERROR_OUT_OF_MEMORY, false},
        {"cuEventRecord", CUDA_ERROR_OUT_OF_MEMORY, true},
        {"cuEventSynchronize", CUDA_ERROR_INVALID_VALUE, false},
        {"cuStreamWaitEvent", CUDA_ERROR_OUT_OF_MEMORY, false},
        {"cuStreamWaitEvent", CUDA_ERROR_OUT_OF_MEMORY, true},
        {"cuMemcpyAsync", CUDA_ERROR_INVALID_VALUE, false},
        {"cuMemcpyAsync", CUDA_ERROR_INVALID_VALUE, true},
        {"cuMemHostAlloc", CUDA_ERROR_OUT_OF_MEMORY, false},
        {"cuCtxSynchronize", CUDA_ERROR_INVALID_VALUE, false},
        {"cuStreamIsCapturing", CUDA_ERROR_INVALID_VALUE, false},
        {"cuEventElapsedTime", CUDA_ERROR_INVALID_VALUE, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        for (int has_order = 0; has_order < 2; has_order++)
            for (uint64_t nth = 1; strike(&faults[i], nth, 0, has_order); nth++)
                assert_true(nth < 2000);
}

static void test_metadata(void **state)
{
    (void)state;
    for (int has_order = 0; has_order < 2; has_order++)
        for (uint64_t nth = 1; strike(NULL, 0, nth, has_order); nth++)
            assert_true(nth < 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_driver),
        cmocka_unit_test(test_metadata),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
