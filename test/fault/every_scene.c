/* SPDX-License-Identifier: MIT */
#include "every_code.h"

#include <stdlib.h>

#define BLOCK (8 * MIB)
#define LARGE (264 * MIB) /* more than a 64th of the device: its free has an event of its own */

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context_out, unsigned flags, CUdevice device);

static CUcontext away;
static CUstream warm, fresh;
static CUdeviceptr block, parts[3];

void scenes_start(void)
{
    MUST(cuStreamCreate(&warm, CU_STREAM_NON_BLOCKING));
}

static void expect_pooled(void)
{
    if (!is_pooled(block))
        must("the block is not the pool's", CUDA_ERROR_UNKNOWN);
}

/* ---- frees ---- */

static void make_async_of(size_t bytes, CUstream stream)
{
    MUST(cuMemAllocAsync(&block, bytes, stream));
    expect_pooled();
}

static void have_async(void)
{
    make_async_of(BLOCK, warm);
}

static void have_large(void)
{
    make_async_of(LARGE, warm);
}

static void have_plain(void)
{
    MUST(cuMemAlloc(&block, BLOCK));
    expect_pooled();
}

static void have_async_and_fresh_stream(void)
{
    have_async();
    MUST(cuStreamCreate(&fresh, CU_STREAM_DEFAULT));
    MUST(cuStreamSynchronize(warm));
}

static void end_fresh(void)
{
    MUST(cuStreamDestroy(fresh));
}

/* The stream's context has had no memory yet. */
static void have_async_and_fresh_context(void)
{
    have_async();
    MUST(cuStreamSynchronize(warm));
    MUST(cuCtxCreate_v2(&away, 0, 0));
    MUST(cuStreamCreate(&fresh, CU_STREAM_NON_BLOCKING));
}

static void end_away(void)
{
    CUcontext popped;
    MUST(cuCtxPopCurrent(&popped));
    MUST(cuCtxDestroy(away));
}

/* The block's context is gone, and the current one has had no memory yet. */
static void have_left_behind(void)
{
    CUcontext gone;
    MUST(cuCtxCreate_v2(&gone, 0, 0));
    make_async_of(BLOCK, NULL);
    MUST(cuCtxSynchronize());
    MUST(cuCtxDestroy(gone));
    MUST(cuCtxCreate_v2(&away, 0, 0));
}

static CUresult free_warm(void)
{
    return cuMemFreeAsync(block, warm);
}

static CUresult free_fresh(void)
{
    return cuMemFreeAsync(block, fresh);
}

static CUresult free_legacy(void)
{
    return cuMemFreeAsync(block, NULL);
}

static CUresult free_per_thread(void)
{
    return cuMemFreeAsync(block, CU_STREAM_PER_THREAD);
}

static CUresult free_plain(void)
{
    return cuMemFree(block);
}

/* ---- allocations ---- */

static void nothing(void)
{
}

static void trim(void)
{
    uint64_t given_back;
    MUST(cuCtxSynchronize());
    (void)vpmm_interface_1()->reap(0, NULL);
    (void)vpmm_interface_1()->trim(0, 0, &given_back);
}

static void have_freed_async(void)
{
    have_async();
    MUST(free_warm());
}

static void have_freed_plain(void)
{
    have_plain();
    MUST(free_plain());
}

/* Free pieces on both sides of a live one, and nothing else. */
static void have_pieces(void)
{
    trim();
    for (int i = 0; i < 3; i++)
        MUST(cuMemAllocAsync(&parts[i], 8 * MIB, warm));
    MUST(cuMemFreeAsync(parts[0], warm));
    MUST(cuMemFreeAsync(parts[2], warm));
    MUST(cuStreamSynchronize(warm));
}

static void end_pieces(void)
{
    MUST(cuMemFreeAsync(parts[1], warm));
}

static void trim_and_have_fresh_stream(void)
{
    trim();
    MUST(cuStreamCreate(&fresh, CU_STREAM_DEFAULT));
}

static void have_fresh_context(void)
{
    MUST(cuCtxCreate_v2(&away, 0, 0));
}

static CUresult malloc_warm(void)
{
    return cuMemAllocAsync(&block, BLOCK, warm);
}

static CUresult malloc_twice(void)
{
    return cuMemAllocAsync(&block, 2 * BLOCK, warm);
}

static CUresult malloc_fresh(void)
{
    return cuMemAllocAsync(&block, BLOCK, fresh);
}

static CUresult malloc_legacy(void)
{
    return cuMemAllocAsync(&block, BLOCK, NULL);
}

static CUresult malloc_plain(void)
{
    return cuMemAlloc(&block, BLOCK);
}

static CUresult malloc_plain_twice(void)
{
    return cuMemAlloc(&block, 2 * BLOCK);
}

const struct scene scenes[] = {
    {"free", have_async, free_warm, NULL, NULL},
    {"free large", have_large, free_warm, NULL, NULL},
    {"free on a fresh stream", have_async_and_fresh_stream, free_fresh, NULL, end_fresh},
    {"free in a fresh context", have_async_and_fresh_context, free_fresh, NULL, end_away},
    {"free on the legacy stream", have_async, free_legacy, NULL, NULL},
    {"free on the thread's stream", have_async, free_per_thread, NULL, NULL},
    {"free plain", have_plain, free_plain, NULL, NULL},
    {"free plain on a stream", have_plain, free_warm, NULL, NULL},
    {"free async as plain", have_async, free_plain, NULL, NULL},
    {"free of a context that is gone", have_left_behind, free_plain, NULL, end_away},
    {"malloc", have_freed_async, malloc_warm, free_warm, NULL},
    {"malloc anew", trim, malloc_warm, free_warm, NULL},
    {"malloc on a fresh stream", trim_and_have_fresh_stream, malloc_fresh, free_fresh, end_fresh},
    {"malloc on the legacy stream", nothing, malloc_legacy, free_legacy, NULL},
    {"malloc stitched", have_pieces, malloc_twice, free_warm, end_pieces},
    {"malloc plain", have_freed_plain, malloc_plain, free_plain, NULL},
    {"malloc plain anew", trim, malloc_plain, free_plain, NULL},
    {"malloc plain stitched", have_pieces, malloc_plain_twice, free_plain, end_pieces},
    {"malloc plain in a fresh context", have_fresh_context, malloc_plain, free_plain, end_away},
    {NULL, NULL, NULL, NULL, NULL},
};
