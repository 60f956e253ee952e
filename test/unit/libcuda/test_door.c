/* SPDX-License-Identifier: MIT */
/* The fake libcuda as tests use it: the side door, the environment, a forked child. */
#define _GNU_SOURCE
#include "sim/libcuda/control.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

static CUcontext context;

static void the_environment_decides(void **state)
{
    int n = 0, version = 0;
    size_t free_bytes = 0, total = 0;
    CUdeviceptr p;
    (void)state;
    assert_int_equal(cuDeviceGetCount(&n), CUDA_SUCCESS);
    assert_int_equal(n, 2);
    assert_int_equal(cuDriverGetVersion(&version), CUDA_SUCCESS);
    assert_int_equal(version, 12080);
    assert_int_equal(cuMemGetInfo(&free_bytes, &total), CUDA_SUCCESS);
    assert_int_equal(free_bytes, 256 * MIB);
    assert_true(total > free_bytes);
    assert_int_equal(cuMemAlloc(&p, 256 * MIB), CUDA_SUCCESS);
    assert_int_equal(cuMemAlloc(&p, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    assert_true(p == 0);
    assert_int_equal(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

static void a_fault_comes_from_the_environment(void **state)
{
    void *memory = NULL;
    (void)state;
    assert_int_equal(cuMemHostAlloc(&memory, 64, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeHost(memory), CUDA_SUCCESS);
    assert_int_equal(cuMemHostAlloc(&memory, 64, 0), CUDA_ERROR_OPERATING_SYSTEM);
    assert_true(vpmm_sim_fault_struck("cuMemHostAlloc"));
    assert_int_equal(cuMemHostAlloc(&memory, 64, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemFreeHost(memory), CUDA_SUCCESS);
}

static void a_fault_strikes_once(void **state)
{
    CUdeviceptr p;
    (void)state;
    vpmm_sim_calls_reset();
    vpmm_sim_fault_set("cuMemAlloc", 2, CUDA_ERROR_UNKNOWN, false);
    assert_int_equal(cuMemAlloc(&p, MIB), CUDA_SUCCESS);
    assert_int_equal(cuMemFree(p), CUDA_SUCCESS);
    assert_false(vpmm_sim_fault_struck("cuMemAlloc"));
    assert_int_equal(cuMemAlloc(&p, MIB), CUDA_ERROR_UNKNOWN);
    assert_true(vpmm_sim_fault_struck("cuMemAlloc"));
    assert_int_equal(cuMemAlloc(&p, MIB), CUDA_SUCCESS);
    assert_int_equal(cuMemFree(p), CUDA_SUCCESS);
    assert_int_equal(vpmm_sim_calls("cuMemAlloc"), 3);
    vpmm_sim_fault_clear(NULL);
}

static void a_spin_holds_its_stream(void **state)
{
    CUstream held, apart;
    CUdeviceptr p;
    unsigned char byte = 0;
    struct sim_counts counts;
    (void)state;
    assert_int_equal(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cuMemAlloc(&p, 3 * MIB), CUDA_SUCCESS);
    struct vpmm_sim_spin *spin = vpmm_sim_spin(held, false, p, 3 * MIB, 0x77);
    assert_non_null(spin);
    assert_int_equal(cuMemsetD8Async(p, 0x11, 3 * MIB, apart), CUDA_SUCCESS);
    assert_int_equal(cuStreamSynchronize(apart), CUDA_SUCCESS);
    assert_int_equal(cuStreamQuery(held), CUDA_ERROR_NOT_READY);
    assert_true(vpmm_sim_peek(0, p + 3 * MIB - 1, &byte, 1));
    assert_int_equal(byte, 0x11);
    assert_false(vpmm_sim_spin_done(spin));
    vpmm_sim_live_counts(&counts);
    assert_int_equal(counts.streams, 2);
    assert_int_equal(counts.plain, 1);
    assert_int_equal(counts.pending, 1);
    vpmm_sim_spin_release(spin);
    assert_int_equal(cuStreamSynchronize(held), CUDA_SUCCESS);
    assert_true(vpmm_sim_spin_done(spin));
    assert_true(vpmm_sim_peek(0, p + 3 * MIB - 1, &byte, 1));
    assert_int_equal(byte, 0x77);
    assert_int_equal(cuMemFree(p), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy(held), CUDA_SUCCESS);
    assert_int_equal(cuStreamDestroy(apart), CUDA_SUCCESS);
}

static void a_null_stream_means_what_the_spelling_says(void **state)
{
    CUresult CUDAAPI cuStreamGetId_ptsz(CUstream stream, unsigned long long *id_out);
    unsigned long long legacy, own, named, named_own;
    (void)state;
    assert_int_equal(cuStreamGetId(NULL, &legacy), CUDA_SUCCESS);
    assert_int_equal(cuStreamGetId_ptsz(NULL, &own), CUDA_SUCCESS);
    assert_int_equal(cuStreamGetId_ptsz(CU_STREAM_LEGACY, &named), CUDA_SUCCESS);
    assert_int_equal(cuStreamGetId(CU_STREAM_PER_THREAD, &named_own), CUDA_SUCCESS);
    assert_int_equal(legacy, named);
    assert_int_equal(own, named_own);
    assert_int_not_equal(legacy, own);
}

static void a_forked_child_has_no_driver(void **state)
{
    int status = 0;
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        CUdeviceptr p;
        bool none = cuMemAlloc(&p, MIB) == CUDA_ERROR_NOT_INITIALIZED &&
                    cuInit(0) == CUDA_ERROR_NOT_INITIALIZED && vpmm_sim_calls(NULL) == 0;
        _exit(none ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
}

static void a_shut_down_driver_says_so(void **state)
{
    CUdeviceptr p;
    (void)state;
    vpmm_sim_shut_down();
    assert_int_equal(cuMemAlloc(&p, MIB), CUDA_ERROR_DEINITIALIZED);
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_DEINITIALIZED);
}

static int start(void **state)
{
    (void)state;
    return vpmm_sim_calls(NULL) != 0 || cuInit(0) != CUDA_SUCCESS ||
           cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
           cuCtxSetCurrent(context) != CUDA_SUCCESS;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_decides),
        cmocka_unit_test(a_fault_comes_from_the_environment),
        cmocka_unit_test(a_fault_strikes_once),
        cmocka_unit_test(a_spin_holds_its_stream),
        cmocka_unit_test(a_null_stream_means_what_the_spelling_says),
        cmocka_unit_test(a_forked_child_has_no_driver),
        cmocka_unit_test(a_shut_down_driver_says_so),
    };
    setenv("VPMM_SIM_DEVICES", "2", 1);
    setenv("VPMM_SIM_BYTES", "256M", 1);
    setenv("VPMM_SIM_VERSION", "12080", 1);
    setenv("VPMM_SIM_FAULT", "cuMemHostAlloc:2:304", 1);
    return cmocka_run_group_tests(tests, start, NULL);
}
