/* SPDX-License-Identifier: MIT */
/* Threads that the driver refuses, or that somebody cancels. The first argument names a scene; each
 * call of interest prints one line, the same ones with and without a pool. Standard error tells
 * which blocks are the pool's. */
#define _GNU_SOURCE
#include <cuda.h>

#include "sim/libcuda/control.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1ul << 20)
#define ID_OURS (1ull << 63)

/* Newer headers have it no more. */
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context_out, unsigned flags, CUdevice device);

static CUstream stream, other;
static CUdeviceptr plain, ordered;

static CUresult tell(const char *what, CUresult result)
{
    printf("%s %d\n", what, (int)result);
    return result;
}

static void must(CUresult result)
{
    if (result && tell("unexpected", result))
        exit(1);
}

static void whose(const char *what, CUdeviceptr address)
{
    unsigned long long id = 0;
    must(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    fprintf(stderr, "%s %s\n", what, id >= ID_OURS ? "pool" : "driver");
}

/* ---- inside a host function ---- */

static void CUDA_CB use_memory(void *none)
{
    CUdeviceptr p = 0;
    (void)none;
    tell("malloc", cuMemAlloc(&p, 8 * MIB));
    tell("async", cuMemAllocAsync(&p, 8 * MIB, other));
    tell("async on the legacy stream", cuMemAllocAsync(&p, 8 * MIB, NULL));
    tell("freeasync", cuMemFreeAsync(ordered, other));
    tell("freeasync of plain memory", cuMemFreeAsync(plain, other));
    tell("free", cuMemFree(plain));
    tell("free of ordered memory", cuMemFree(ordered));
}

static void scene_host_function(void)
{
    for (int i = 0; i < 2; i++) {
        must(cuMemAllocAsync(&ordered, 8 * MIB, other));
        whose("async", ordered);
        must(cuLaunchHostFunc(stream, use_memory, NULL));
        must(cuStreamSynchronize(stream));
        tell("later freeasync", cuMemFreeAsync(ordered, other));
        tell("again", cuMemFreeAsync(ordered, other));
    }
    tell("later free", cuMemFree(plain));
    tell("again", cuMemFree(plain));
}

/* ---- a thread that is cancelled in a call ---- */

static CUcontext context;
static atomic_int has_begun;

static void *want_much(void *none)
{
    CUdeviceptr p = 0;
    must(cuCtxSetCurrent(context));
    atomic_store(&has_begun, 1);
    tell("malloc", cuMemAlloc(&p, 200 * MIB));
    tell("free", cuMemFree(p));
    pthread_testcancel();
    return none;
}

/* It waits for what cudaFree left behind a kernel that goes on. Nobody may hang afterwards: not the
 * next request, and not the end of the context. */
static void scene_cancelled(void)
{
    CUdeviceptr much = 0;
    CUcontext second;
    pthread_t thread;
    void *result = NULL;
    must(cuCtxCreate_v2(&second, 0, 0));
    context = second;
    must(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    must(cuMemAlloc(&much, 200 * MIB));
    struct vpmm_sim_spin *spin = vpmm_sim_spin(other, false, 0, 0, 0);
    must(cuMemFree(much));
    if (!spin || pthread_create(&thread, NULL, want_much, NULL) != 0)
        exit(1);
    while (!atomic_load(&has_begun) || vpmm_sim_calls("cuEventSynchronize") == 0)
        (void)sched_yield();
    (void)pthread_cancel(thread);
    vpmm_sim_spin_release(spin);
    (void)pthread_join(thread, &result);
    printf("cancelled %d\n", result == PTHREAD_CANCELED);
    must(cuMemAlloc(&much, 200 * MIB));
    whose("malloc", much);
    tell("free", cuMemFree(much));
    tell("destroy", cuCtxDestroy(second));
}

/* ---- a thread that is cancelled while it waits for a stream or a context ---- */

/* Newer headers declare it for programs that are built for per-thread default streams. */
CUresult cuStreamSynchronize_ptsz(CUstream stream);

static CUstream blocking;
static bool is_per_thread;

static void free_ordered(void *none)
{
    (void)none;
    tell("freed at the end", cuMemFreeAsync(ordered, stream));
}

/* Its allocation on the stream comes after what the legacy stream does. */
static void *wait_for_stream(void *none)
{
    CUdeviceptr p;
    must(cuCtxSetCurrent(context));
    must(cuMemAllocAsync(&p, 8 * MIB, is_per_thread ? CU_STREAM_PER_THREAD : blocking));
    must(cuMemFreeAsync(p, is_per_thread ? CU_STREAM_PER_THREAD : blocking));
    pthread_cleanup_push(free_ordered, NULL);
    atomic_store(&has_begun, 1);
    must(is_per_thread ? cuStreamSynchronize_ptsz(NULL) : cuStreamSynchronize(blocking));
    pthread_cleanup_pop(0);
    return none;
}

static void *destroy_context(void *none)
{
    atomic_store(&has_begun, 1);
    must(cuCtxDestroy(context));
    return none;
}

static void cancel_in(void *(*call)(void *))
{
    pthread_t thread;
    void *result = NULL;
    if (pthread_create(&thread, NULL, call, NULL) != 0)
        exit(1);
    while (!atomic_load(&has_begun))
        (void)sched_yield();
    (void)pthread_cancel(thread);
    (void)pthread_join(thread, &result);
    printf("cancelled %d\n", result == PTHREAD_CANCELED);
}

/* Nothing that it waits for ends before it does. */
static void cancel_in_wait(bool is_busy)
{
    must(cuCtxCreate_v2(&context, 0, 0));
    must(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    must(cuMemAllocAsync(&ordered, 8 * MIB, stream));
    whose("async", ordered);
    must(cuStreamSynchronize(stream));
    struct vpmm_sim_spin *legacy = vpmm_sim_spin(NULL, false, 0, 0, 0);
    struct vpmm_sim_spin *own = is_busy ? vpmm_sim_spin(blocking, false, 0, 0, 0) : NULL;
    cancel_in(wait_for_stream);
    vpmm_sim_spin_release(legacy);
    if (own)
        vpmm_sim_spin_release(own);
    tell("synchronize", cuStreamSynchronize(blocking));
    tell("destroy", cuCtxDestroy(context));
}

static void scene_cancelled_wait(void)
{
    cancel_in_wait(false);
}

static void scene_cancelled_busy_wait(void)
{
    cancel_in_wait(true);
}

static void scene_cancelled_wait_per_thread(void)
{
    is_per_thread = true;
    cancel_in_wait(false);
}

/* The context goes on, and so does what is pending in it. */
static void scene_cancelled_destroy(void)
{
    CUdeviceptr much = 0;
    must(cuCtxCreate_v2(&context, 0, 0));
    must(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    must(cuMemAlloc(&much, 200 * MIB));
    struct vpmm_sim_spin *spin = vpmm_sim_spin(other, false, 0, 0, 0);
    must(cuMemFree(much));
    cancel_in(destroy_context);
    vpmm_sim_spin_release(spin);
    must(cuMemAlloc(&much, 200 * MIB));
    whose("malloc", much);
    tell("free", cuMemFree(much));
    tell("destroy", cuCtxDestroy(context));
}

int main(int n, char **arguments)
{
    static const struct {
        const char *name;
        void (*play)(void);
    } scenes[] = {
        {"host_function", scene_host_function},
        {"cancelled", scene_cancelled},
        {"cancelled_wait", scene_cancelled_wait},
        {"cancelled_busy_wait", scene_cancelled_busy_wait},
        {"cancelled_wait_per_thread", scene_cancelled_wait_per_thread},
        {"cancelled_destroy", scene_cancelled_destroy},
    };
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    must(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    must(cuMemAlloc(&plain, 4 * MIB));
    whose("malloc", plain);
    for (size_t i = 0; n > 1 && i < sizeof scenes / sizeof *scenes; i++)
        if (strcmp(arguments[1], scenes[i].name) == 0)
            scenes[i].play();
    return 0;
}
