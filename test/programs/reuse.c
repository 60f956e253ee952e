/* SPDX-License-Identifier: MIT */
/* Which freed block cudaMallocAsync gives to another stream. The stream that frees is held, so that
 * only an order which the program made, or one that CUDA makes itself, allows the reuse. Each line
 * tells whether the address came again and whether the request's stream is held by that. */
#include "truth.h"

#include <time.h>

#define BYTES (64 * MIB)

static struct gate gate;
static CUdevice device;
static CUmemoryPool pool;
static CUcontext contexts[2];
static CUdeviceptr words;

struct scene {
    CUstream to, from, third; /* asks, frees, stands between */
    CUevent event, second;
    CUdeviceptr block;
};

static CUstream stream_new(unsigned flags)
{
    CUstream stream;
    MUST(cuStreamCreate(&stream, flags));
    return stream;
}

static void record(CUevent event, CUstream stream)
{
    MUST(cuEventRecord(event, stream));
}

static void wait_for(CUstream stream, CUevent event)
{
    MUST(cuStreamWaitEvent(stream, event, 0));
}

static void work(CUstream stream)
{
    MUST(cuMemsetD8Async(words, 1, 64, stream));
}

static void free_it(const struct scene *scene)
{
    MUST(cuMemFreeAsync(scene->block, scene->from));
}

/* ---- the scenes: each frees the block on `from`, which is held ---- */

static void nothing(struct scene *s)
{
    free_it(s);
}
static void record_then_wait(struct scene *s)
{
    free_it(s);
    record(s->event, s->from);
    wait_for(s->to, s->event);
}
static void record_before_free(struct scene *s)
{
    record(s->event, s->from);
    free_it(s);
    wait_for(s->to, s->event);
}
static void record_again_after_wait(struct scene *s)
{
    free_it(s);
    record(s->event, s->from);
    wait_for(s->to, s->event);
    record(s->event, s->third);
}
static void recorded_elsewhere_before_wait(struct scene *s)
{
    free_it(s);
    record(s->event, s->from);
    record(s->event, s->third);
    wait_for(s->to, s->event);
}
static void destroyed_after_wait(struct scene *s)
{
    free_it(s);
    record(s->event, s->from);
    wait_for(s->to, s->event);
    MUST(cuEventDestroy(s->event));
    MUST(cuEventCreate(&s->event, CU_EVENT_DISABLE_TIMING));
}
static void over_a_third(struct scene *s)
{
    free_it(s);
    record(s->event, s->from);
    wait_for(s->third, s->event);
    record(s->second, s->third);
    wait_for(s->to, s->second);
}
static void over_a_third_that_waited_before(struct scene *s)
{
    record(s->event, s->from);
    wait_for(s->third, s->event);
    free_it(s);
    record(s->second, s->third);
    wait_for(s->to, s->second);
}
static void over_a_third_with_work(struct scene *s)
{
    free_it(s);
    record(s->event, s->from);
    wait_for(s->third, s->event);
    work(s->third);
    record(s->second, s->third);
    wait_for(s->to, s->second);
}
static void second_record_covers(struct scene *s)
{
    record(s->event, s->from);
    free_it(s);
    work(s->from);
    record(s->second, s->from);
    wait_for(s->to, s->second);
}
static void over_the_legacy_stream(struct scene *s)
{
    free_it(s);
    work(CU_STREAM_LEGACY);
    work(s->to);
}
static void over_the_context(struct scene *s)
{
    CUcontext context;
    free_it(s);
    MUST(cuCtxGetCurrent(&context));
    MUST(cuCtxRecordEvent(context, s->event));
    wait_for(s->to, s->event);
}
static void context_waits(struct scene *s)
{
    CUcontext context;
    free_it(s);
    record(s->event, s->from);
    MUST(cuCtxGetCurrent(&context));
    MUST(cuCtxWaitEvent(context, s->event));
}

struct order {
    const char *name;
    void (*make)(struct scene *scene);
};
static const struct order orders[] = {
    {"no order", nothing},
    {"record, wait", record_then_wait},
    {"record before the free, wait", record_before_free},
    {"record, wait, record elsewhere", record_again_after_wait},
    {"record, record elsewhere, wait", recorded_elsewhere_before_wait},
    {"record, wait, destroy", destroyed_after_wait},
    {"over a third stream", over_a_third},
    {"over a third stream that waited before the free", over_a_third_that_waited_before},
    {"over a third stream with work", over_a_third_with_work},
    {"work after the free, record, wait", second_record_covers},
    {"legacy stream between", over_the_legacy_stream},
    {"record of the context, wait", over_the_context},
    {"record, wait of the context", context_waits},
};

static const char *state_of(CUstream stream)
{
    struct timespec pause = {0, 1000000};
    CUresult result = CUDA_ERROR_NOT_READY;
    for (int i = 0; i < 10 && (result = cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY; i++)
        nanosleep(&pause, NULL);
    return result == CUDA_SUCCESS ? "free" : "held";
}

enum pair {
    APART,
    BLOCKING,
    TO_LEGACY,
    FROM_LEGACY,
    PER_THREAD,
    FOREIGN,
    N_PAIRS
};
static const char *const pair_names[] = {
    "two non-blocking streams",
    "two blocking streams",
    "freed on a blocking stream, asked for on the legacy one",
    "freed on the legacy stream, asked for on a blocking one",
    "freed on a blocking stream, asked for on the per-thread one",
    "two streams of two contexts",
};

static struct scene scene_new(enum pair pair)
{
    unsigned flags = pair == APART || pair == FOREIGN ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
    struct scene scene = {.third = stream_new(flags)};
    scene.from = pair == FROM_LEGACY ? CU_STREAM_LEGACY : stream_new(flags);
    if (pair == FOREIGN)
        MUST(cuCtxSetCurrent(contexts[1]));
    scene.to = pair == TO_LEGACY    ? CU_STREAM_LEGACY
               : pair == PER_THREAD ? CU_STREAM_PER_THREAD
                                    : stream_new(flags);
    MUST(cuCtxSetCurrent(contexts[0]));
    MUST(cuEventCreate(&scene.event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventCreate(&scene.second, CU_EVENT_DISABLE_TIMING));
    return scene;
}

static void scene_end(struct scene *scene)
{
    MUST(cuEventDestroy(scene->event));
    MUST(cuEventDestroy(scene->second));
    if (scene->from != CU_STREAM_LEGACY)
        MUST(cuStreamDestroy(scene->from));
    if (scene->to != CU_STREAM_LEGACY && scene->to != CU_STREAM_PER_THREAD)
        MUST(cuStreamDestroy(scene->to));
    MUST(cuStreamDestroy(scene->third));
}

static void synchronize_all(void)
{
    for (int i = 1; i >= 0; i--) {
        MUST(cuCtxSetCurrent(contexts[i]));
        MUST(cuCtxSynchronize());
    }
}

static void play(const struct order *order, enum pair pair, CUmemoryPool from_pool)
{
    struct scene scene = scene_new(pair);
    CUdeviceptr made;
    synchronize_all();
    MUST(cuMemPoolTrimTo(from_pool, 0));
    MUST(cuMemAllocFromPoolAsync(&scene.block, BYTES, from_pool, scene.from));
    synchronize_all();
    gate_close(&gate, scene.from);
    order->make(&scene);
    CUresult result = cuMemAllocFromPoolAsync(&made, BYTES, from_pool, scene.to);
    if (result == CUDA_SUCCESS) {
        printf("%s: %s, %s\n", order->name, made == scene.block ? "the same" : "another",
               state_of(scene.to));
        MUST(cuMemFreeAsync(made, scene.to));
    } else {
        printf("%s: %s\n", order->name, truth_code(result));
    }
    fflush(stdout);
    gate_open(&gate);
    synchronize_all();
    scene_end(&scene);
}

static CUmemoryPool pool_new(int follow)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemoryPool made;
    cuuint64_t all = UINT64_MAX;
    MUST(cuMemPoolCreate(&made, &props));
    MUST(cuMemPoolSetAttribute(made, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    MUST(cuMemPoolSetAttribute(made, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &follow));
    return made;
}

int main(void)
{
    cuuint64_t all = UINT64_MAX;
    device = truth_start();
    MUST(cuCtxGetCurrent(&contexts[0]));
    MUST(cuCtxCreate_v2(&contexts[1], 0, device));
    MUST(cuCtxSetCurrent(contexts[0]));
    MUST(cuDeviceGetDefaultMemPool(&pool, device));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    gate_init(&gate);
    MUST(cuMemAlloc(&words, 4096));
    for (enum pair pair = 0; pair < N_PAIRS; pair++) {
        PART(pair_names[pair]);
        for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++)
            play(&orders[i], pair, pool);
    }
    for (int follow = 0; follow < 2; follow++) {
        CUmemoryPool own = pool_new(follow);
        printf("\n[a pool that follows events: %d]\n", follow);
        play(&orders[0], APART, own);
        play(&orders[1], APART, own);
        play(&orders[6], APART, own);
        MUST(cuMemPoolDestroy(own));
    }
    MUST(cuMemFree(words));
    return 0;
}
