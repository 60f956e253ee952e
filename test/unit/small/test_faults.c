/* SPDX-License-Identifier: MIT */
/* One scene with each driver call failing in turn, once and for good, and with each mapping of
 * metadata failing: nothing is lost but what nobody can tell the fence of, and nothing overlaps. */
#include "scene.h"

#include <stdio.h>

#define BLOCKS 40

static struct scene scene;

/* What is served is used, and freed from the other stream, by cudaFree, or on its own. */
static void play(CUstream streams[2], bool is_told)
{
    uint64_t blocks[BLOCKS];
    CUstream owners[BLOCKS];
    unsigned n = 0;
    for (unsigned i = 0; i < BLOCKS; i++) {
        uint64_t bytes = (uint64_t)(i + 1) * 7001;
        CUstream stream = i % 3 == 2 ? NULL : streams[i % 3];
        enum vpmm_status status = scene_try_malloc(&scene, bytes, stream, &blocks[n]);
        if (status)
            continue;
        scene_work(&scene, streams[i % 2], blocks[n], bytes, NULL);
        owners[n++] = i % 7 == 3 ? streams[0] : stream;
        if (i % 5 == 4) {
            (void)sim_drain(scene.f.sim);
            n--;
            assert_int_not_equal(scene_try_free(&scene, blocks[n], owners[n]), VPMM_NOT_FOUND);
        }
        if (i % 16 == 15)
            (void)vpmm_heap_trim(scene.f.heap, UINT64_MAX);
    }
    (void)sim_drain(scene.f.sim);
    while (n-- > 0) {
        enum vpmm_status status = scene_try_free(&scene, blocks[n], owners[n]);
        assert_int_not_equal(status, VPMM_NOT_FOUND);
        assert_true(is_told || !status || status == VPMM_FAILED);
        SAME(VPMM_NOT_FOUND, scene_try_free(&scene, blocks[n], owners[n]));
    }
    (void)vpmm_heap_trim(scene.f.heap, UINT64_MAX);
}

static void begin(CUstream streams[2])
{
    struct fixture_params params;
    scene_params(&params);
    scene = (struct scene){.params = {.free_waits = true}};
    scene_setup_with(&scene, &params);
    for (int i = 0; i < 2; i++)
        streams[i] = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
}

/* Once the fault is gone everything is served again. */
static void end(CUstream streams[2])
{
    sim_fault_clear(scene.f.sim, NULL);
    play(streams, false);
    SAME(0, scene_figures(&scene).blocks);
    (void)sim_drain(scene.f.sim);
    vpmm_heap_reap(scene.f.heap);
    vpmm_heap_reap(scene.f.heap);
    scene_audit(&scene);
    SAME(0, scene_figures(&scene).waiting_blocks);
    SAME(0, scene_figures(&scene).slabs);
    scene_abandon(&scene);
}

static const char *const calls[] = {
    "cuMemCreate",   "cuMemMap",      "cuMemSetAccess",   "cuMemUnmap",   "cuMemRelease",
    "cuEventCreate", "cuEventRecord", "cuCtxRecordEvent", "cuEventQuery", "cuCtxSynchronize"};

static void every_driver_call_may_fail(void **state)
{
    (void)state;
    CUstream streams[2];
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        unsigned n_struck = 0;
        for (unsigned nth = 1; nth < 60; nth++) {
            begin(streams);
            sim_fault_set(scene.f.sim, calls[i], nth, CUDA_ERROR_UNKNOWN, nth % 2);
            play(streams, true);
            bool has_struck = sim_fault_struck(scene.f.sim, calls[i]);
            n_struck += has_struck;
            end(streams);
            if (!has_struck)
                break;
        }
        if (!n_struck)
            fail_msg("%s was never called", calls[i]);
    }
}

static void host_memory_may_run_out(void **state)
{
    (void)state;
    CUstream streams[2];
    for (uint64_t nth = 1; nth < 12; nth++) {
        begin(streams);
        vpmm_atomic_store(&scene.f.maps_until_failure, nth);
        play(streams, false);
        vpmm_atomic_store(&scene.f.maps_until_failure, 0);
        end(streams);
    }
}

/* The device is full: the layer gives back what it keeps, and says no at last. */
static void a_full_device_refuses(void **state)
{
    (void)state;
    struct fixture_params params;
    uint64_t blocks[600], address;
    unsigned n = 0;
    scene_params(&params);
    params.sim.device_bytes = 32 * MIB;
    scene = (struct scene){.params = {.free_waits = true}};
    scene_setup_with(&scene, &params);
    CUstream one = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    CUstream other = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    while (n < 600 && !scene_try_malloc(&scene, 200000, one, &blocks[n]))
        n++;
    assert_in_range(n, 10 * 14, 600 - 1);
    SAME(VPMM_NO_MEMORY, scene_try_malloc(&scene, 200000, other, &address));
    while (n)
        scene_free(&scene, blocks[--n], one);
    while (n < 600 && !scene_try_malloc(&scene, 200000, other, &blocks[n]))
        n++;
    assert_in_range(n, 10 * 14, 600 - 1);
    while (n)
        scene_free(&scene, blocks[--n], other);
    scene_teardown(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_driver_call_may_fail),
        cmocka_unit_test(host_memory_may_run_out),
        cmocka_unit_test(a_full_device_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
