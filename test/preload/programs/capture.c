/* SPDX-License-Identifier: MIT */
/* What threads see of captures. The first argument names a scene; each call of interest prints one
 * line, the same ones with and without a pool. Standard error tells which blocks are the pool's.
 *
 * Scenes that end in `returns` free 120 MiB during a capture, end the capture in their own way and
 * then want 200 MiB: on a device of 256 MiB that works only once the freed memory may be used
 * again. */
#include <cuda.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1ul << 20)
#define ID_OURS (1ull << 63)

static CUcontext context;
static CUstream stream, other;
static CUdeviceptr pooled;

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

/* Whose block it is. */
static void whose(const char *what, CUdeviceptr address)
{
    unsigned long long id = 0;
    must(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    fprintf(stderr, "%s %s\n", what, id >= ID_OURS ? "pool" : "driver");
}

static void begin(CUstreamCaptureMode mode)
{
    tell("begin", cuStreamBeginCapture(stream, mode));
}

static void end(void)
{
    CUgraph graph = NULL;
    size_t n_nodes = 0;
    CUresult result = tell("end", cuStreamEndCapture(stream, &graph));
    if (result)
        return;
    must(cuGraphGetNodes(graph, NULL, &n_nodes));
    printf("nodes %zu\n", n_nodes);
    must(cuGraphDestroy(graph));
}

static void tell_capture(void)
{
    CUstreamCaptureStatus status;
    tell("is capturing", cuStreamIsCapturing(stream, &status));
    printf("status %d\n", (int)status);
}

static void *run_elsewhere(void *argument)
{
    void (*scene)(void);
    memcpy(&scene, argument, sizeof scene);
    must(cuCtxSetCurrent(context));
    scene();
    return NULL;
}

static void elsewhere(void (*scene)(void))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_elsewhere, &scene) != 0)
        exit(1);
    (void)pthread_join(thread, NULL);
}

/* Allocates and frees in every way that names no capturing stream. */
static void use_memory(void)
{
    CUdeviceptr block = 0, async_block = 0, small = 0;
    if (!tell("malloc", cuMemAlloc(&block, 8 * MIB)))
        whose("malloc", block);
    if (!tell("async", cuMemAllocAsync(&async_block, 8 * MIB, other)))
        whose("async", async_block);
    (void)tell("small", cuMemAlloc(&small, 1000));
    (void)tell("free", cuMemFree(block ? block : pooled));
    (void)tell("freeasync", cuMemFreeAsync(async_block ? async_block : pooled, other));
    if (small)
        tell("free small", cuMemFree(small));
}

static void scene_thread_local(void)
{
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    elsewhere(use_memory);
    tell_capture();
    must(cuMemsetD8Async(pooled, 1, 100, stream));
    end();
    use_memory();
}

static void scene_global(void)
{
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    use_memory();
    tell_capture();
    end();
    use_memory();
}

static void scene_global_elsewhere(void)
{
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    elsewhere(use_memory);
    tell_capture();
    end();
    use_memory();
}

static void scene_on_the_stream(void)
{
    CUdeviceptr node = 0;
    begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
    if (!tell("async", cuMemAllocAsync(&node, 8 * MIB, stream)))
        (void)tell("free of the node", cuMemFreeAsync(node, stream));
    (void)tell("freeasync", cuMemFreeAsync(pooled, stream));
    (void)tell("freeasync again", cuMemFreeAsync(pooled, stream));
    tell_capture();
    end();
    (void)tell("free", cuMemFree(pooled));
}

/* A free that a capture of any kind allows, though its context cannot be recorded meanwhile. */
static CUdeviceptr large;

static void free_large(void)
{
    (void)tell("free", cuMemFree(large));
}

static void ask_back(void)
{
    CUdeviceptr wanted = 0;
    if (!tell("malloc", cuMemAlloc(&wanted, 200 * MIB)))
        whose("malloc", wanted);
}

static void begin_and_free(CUstreamCaptureMode mode)
{
    must(cuMemAlloc(&large, 120 * MIB));
    begin(mode);
    elsewhere(free_large);
}

static void scene_invalidated_returns(void)
{
    begin_and_free(CU_STREAM_CAPTURE_MODE_RELAXED);
    (void)tell("synchronize", cuStreamSynchronize(stream));
    tell_capture();
    end();
    ask_back();
}

static void scene_ended_elsewhere_returns(void)
{
    begin_and_free(CU_STREAM_CAPTURE_MODE_RELAXED);
    elsewhere(end);
    ask_back();
}

static void scene_wrong_thread_returns(void)
{
    begin_and_free(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    elsewhere(end);
    end();
    ask_back();
}

static void scene_destroyed_returns(void)
{
    begin_and_free(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    (void)tell("destroy", cuStreamDestroy(stream));
    ask_back();
}

static void scene_begun_twice_returns(void)
{
    begin_and_free(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    end();
    end();
    ask_back();
}

/* NULL is the thread's own stream in the spelling for that. */
static void scene_default_stream_returns(void)
{
    CUdeviceptr node = 0;
    must(cuStreamDestroy(stream));
    stream = NULL;
    begin_and_free(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (!tell("async", cuMemAllocAsync(&node, 8 * MIB, NULL)))
        (void)tell("free of the node", cuMemFreeAsync(node, NULL));
    (void)tell("freeasync", cuMemFreeAsync(pooled, NULL));
    tell_capture();
    end();
    ask_back();
}

/* ---- contexts that are met beside a capture ---- */

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context_out, unsigned flags, CUdevice device);

static CUcontext met;

static void meet(void)
{
    CUdeviceptr block = 0;
    must(cuCtxSetCurrent(met));
    if (!tell("malloc", cuMemAlloc(&block, 8 * MIB)))
        whose("malloc", block);
    (void)tell("free", cuMemFree(block));
}

/* A blocking stream of a context that has had no memory is drawn into a capture of another's. */
static void scene_met(void)
{
    CUevent fork, join;
    CUstream drawn;
    must(cuCtxCreate_v2(&met, 0, 0));
    must(cuStreamCreate(&drawn, CU_STREAM_DEFAULT));
    must(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    must(cuCtxSetCurrent(context));
    must(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    must(cuEventRecord(fork, stream));
    must(cuStreamWaitEvent(drawn, fork, 0));
    elsewhere(meet);
    tell_capture();
    must(cuEventRecord(join, drawn));
    must(cuStreamWaitEvent(stream, join, 0));
    end();
}

/* A green context has no record of its own. */
static void scene_met_green(void)
{
    CUgreenCtx green;
    must(cuStreamDestroy(stream));
    must(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
    must(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    must(cuCtxFromGreenCtx(&met, green));
    begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    elsewhere(meet);
    tell_capture();
    end();
    elsewhere(meet);
}

#define SCENE(name)                                                                                \
    {                                                                                              \
#        name, scene_##name                                                                        \
    }
static const struct {
    const char *name;
    void (*run)(void);
} scenes[] = {
    SCENE(thread_local),
    SCENE(global),
    SCENE(global_elsewhere),
    SCENE(on_the_stream),
    SCENE(invalidated_returns),
    SCENE(ended_elsewhere_returns),
    SCENE(wrong_thread_returns),
    SCENE(destroyed_returns),
    SCENE(begun_twice_returns),
    SCENE(default_stream_returns),
    SCENE(met),
    SCENE(met_green),
};

int main(int n, char **arguments)
{
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&context, 0));
    must(cuCtxSetCurrent(context));
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    must(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    must(cuMemAlloc(&pooled, 4 * MIB));
    for (size_t i = 0; n > 1 && i < sizeof scenes / sizeof *scenes; i++)
        if (strcmp(arguments[1], scenes[i].name) == 0)
            scenes[i].run();
    return 0;
}
