/* SPDX-License-Identifier: MIT */
/* When an allocation on a stream comes after the pending work of the legacy stream. A stream that
 * takes back what it freed itself does not wait; one that takes other memory does. Each line tells
 * what came between the free and the allocation, and whether the stream is held afterwards. */
#include "truth.h"

#define BLOCK (6 * MIB)
#define BLOCKS 3

static struct gate gate;
static CUdeviceptr words; /* 64 bytes for each stream that works */

struct scene {
    CUstream stream, other;
    CUevent event;
    CUdeviceptr blocks[BLOCKS];
    CUdeviceptr made[BLOCKS];
};

static CUdeviceptr taken(size_t bytes, CUstream stream)
{
    CUdeviceptr block;
    MUST(cuMemAllocAsync(&block, bytes, stream));
    return block;
}

static void give(CUdeviceptr *block, CUstream stream)
{
    MUST(cuMemFreeAsync(*block, stream));
    *block = 0;
}

static void await(CUstream stream)
{
    CUresult result;
    do
        result = cuStreamQuery(stream);
    while (result == CUDA_ERROR_NOT_READY);
    MUST(result);
}

/* ---- what came between; the stream has freed one block, and its work is over ---- */

static void nothing(struct scene *s)
{
    (void)s;
}
static void query(struct scene *s)
{
    await(s->stream);
}
static void synchronize(struct scene *s)
{
    MUST(cuStreamSynchronize(s->stream));
}
static void synchronize_other(struct scene *s)
{
    MUST(cuMemsetD8Async(words, 1, 64, s->other));
    MUST(cuStreamSynchronize(s->other));
}
static void synchronize_context(struct scene *s)
{
    (void)s;
    MUST(cuCtxSynchronize());
}
static void synchronize_event(struct scene *s)
{
    MUST(cuEventRecord(s->event, s->stream));
    MUST(cuEventSynchronize(s->event));
}
static void query_event(struct scene *s)
{
    MUST(cuEventRecord(s->event, s->stream));
    await(s->stream);
    MUST(cuEventQuery(s->event));
}
static void work(struct scene *s)
{
    MUST(cuMemsetD8Async(words, 1, 64, s->stream));
}
static void copy_now(struct scene *s)
{
    unsigned char copy[64];
    (void)s;
    MUST(cuMemcpyDtoH(copy, words, sizeof copy));
}
static void plain(struct scene *s)
{
    CUdeviceptr block;
    (void)s;
    MUST(cuMemAlloc(&block, BLOCK));
    MUST(cuMemFree(block));
}
static void plain_malloc(struct scene *s)
{
    MUST(cuMemAlloc(&s->made[1], BLOCK));
}
static void grow(struct scene *s)
{
    s->made[1] = taken(4 * BLOCK, s->stream);
}
static void grow_other(struct scene *s)
{
    s->made[1] = taken(4 * BLOCK, s->other);
}
static void take_other(struct scene *s)
{
    s->made[1] = taken(BLOCK, s->other);
}
static void take_and_give(struct scene *s)
{
    s->made[1] = taken(BLOCK, s->stream);
    give(&s->made[1], s->stream);
}
static void take_half(struct scene *s)
{
    s->made[1] = taken(BLOCK / 2, s->stream);
}
static void take_more_than_half(struct scene *s)
{
    s->made[1] = taken(BLOCK / 2 + 2 * MIB, s->stream);
}
static void take_all(struct scene *s)
{
    s->made[1] = taken(BLOCK, s->stream);
}
static void trim(struct scene *s)
{
    CUmemoryPool pool;
    CUdevice device;
    (void)s;
    MUST(cuCtxGetDevice(&device));
    MUST(cuDeviceGetDefaultMemPool(&pool, device));
    MUST(cuMemPoolTrimTo(pool, 0));
}

static const struct {
    const char *name;
    void (*make)(struct scene *scene);
    size_t bytes;
    unsigned blocks; /* that the stream freed */
    bool by_other;   /* that stream freed them */
} scenes[] = {
    {"nothing", nothing, BLOCK, 1, false},
    {"nothing, half the size", nothing, BLOCK / 2, 1, false},
    {"nothing, twice the size", nothing, 2 * BLOCK, 1, false},
    {"nothing, one of two blocks", nothing, BLOCK, 2, false},
    {"nothing, the size of two blocks", nothing, 2 * BLOCK, 2, false},
    {"nothing, the size of two of three blocks", nothing, 2 * BLOCK, 3, false},
    {"nothing, freed by another stream", nothing, BLOCK, 1, true},
    {"queries", query, BLOCK, 1, false},
    {"a synchronisation", synchronize, BLOCK, 1, false},
    {"a synchronisation of another stream", synchronize_other, BLOCK, 1, false},
    {"a synchronisation of the context", synchronize_context, BLOCK, 1, false},
    {"a synchronisation of an event", synchronize_event, BLOCK, 1, false},
    {"a query of an event", query_event, BLOCK, 1, false},
    {"work", work, BLOCK, 1, false},
    {"a copy to the host", copy_now, BLOCK, 1, false},
    {"cuMemAlloc", plain_malloc, BLOCK, 1, false},
    {"cuMemAlloc and cuMemFree", plain, BLOCK, 1, false},
    {"an allocation that grows the pool", grow, BLOCK, 1, false},
    {"one that grows it on another stream", grow_other, BLOCK, 1, false},
    {"an allocation of the same size on another stream", take_other, BLOCK, 1, false},
    {"the same size on another stream, one of two blocks", take_other, BLOCK, 2, false},
    {"an allocation and its free", take_and_give, BLOCK, 1, false},
    {"an allocation of half", take_half, BLOCK / 2, 1, false},
    {"an allocation of more than half", take_more_than_half, BLOCK / 2, 1, false},
    {"an allocation of all", take_all, BLOCK, 1, false},
    {"a trim", trim, BLOCK, 1, false},
};

static void look(size_t number, unsigned flags, CUmemoryPool pool)
{
    struct scene scene = {0};
    MUST(cuMemPoolTrimTo(pool, 0));
    MUST(cuStreamCreate(&scene.stream, flags));
    MUST(cuStreamCreate(&scene.other, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&scene.event, CU_EVENT_DISABLE_TIMING));
    CUstream from = scenes[number].by_other ? scene.other : scene.stream;
    for (unsigned i = 0; i < scenes[number].blocks; i++)
        scene.blocks[i] = taken(BLOCK, from);
    for (unsigned i = 0; i < scenes[number].blocks; i++)
        give(&scene.blocks[i], from);
    scenes[number].make(&scene);
    gate_close(&gate, CU_STREAM_LEGACY);
    scene.made[0] = taken(scenes[number].bytes, scene.stream);
    printf("%s: %s\n", scenes[number].name, truth_state(scene.stream));
    fflush(stdout);
    gate_open(&gate);
    MUST(cuCtxSynchronize());
    for (unsigned i = 0; i < BLOCKS; i++)
        if (scene.made[i])
            MUST(cuMemFree(scene.made[i]));
    MUST(cuEventDestroy(scene.event));
    MUST(cuStreamDestroy(scene.stream));
    MUST(cuStreamDestroy(scene.other));
}

int main(void)
{
    CUmemoryPool pool;
    cuuint64_t all = UINT64_MAX;
    CUdevice device = truth_start();
    MUST(cuDeviceGetDefaultMemPool(&pool, device));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    gate_init(&gate);
    MUST(cuMemAlloc(&words, 4096));
    PART("a blocking stream");
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++)
        look(i, CU_STREAM_DEFAULT, pool);
    PART("a non-blocking stream");
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++)
        look(i, CU_STREAM_NON_BLOCKING, pool);
    MUST(cuMemFree(words));
    return 0;
}
