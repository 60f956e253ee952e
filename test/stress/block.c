/* SPDX-License-Identifier: MIT */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_STRIDE ((uint64_t)64 << 10) /* between two words of a pattern */

/* ---- kernels ---- */

struct pattern {
    uint64_t address, bytes;
    uint64_t expected; /* 0: nothing */
    uint64_t value;
};

static uint64_t word_at(const struct pattern *pattern, uint64_t at, uint64_t value)
{
    return value * 0x9E3779B97F4A7C15u ^ (pattern->address + at);
}

static void check_word(struct sim_view *view, const struct pattern *pattern, uint64_t at)
{
    uint64_t expected = word_at(pattern, at, pattern->expected);
    uint64_t found = 0;
    if (vpmm_sim_read(view, pattern->address + at, &found, sizeof found) && found == expected)
        return;
    fprintf(stderr, "block %#llx of %llu bytes: byte %llu is %#llx, not %#llx (seed %u)\n",
            (unsigned long long)pattern->address, (unsigned long long)pattern->bytes,
            (unsigned long long)at, (unsigned long long)found, (unsigned long long)expected,
            program.seed);
    abort();
}

static void check_and_fill(struct sim_view *view, void *argument)
{
    const struct pattern *pattern = argument;
    for (uint64_t at = 0; at + sizeof(uint64_t) <= pattern->bytes; at += WORD_STRIDE) {
        uint64_t word = word_at(pattern, at, pattern->value);
        if (pattern->expected)
            check_word(view, pattern, at);
        (void)vpmm_sim_write(view, pattern->address + at, &word, sizeof word);
    }
}

static void new_event(struct actor *actor, struct block *block, CUstream stream)
{
    CUevent event;
    MUST(actor, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    MUST(actor, cuEventRecord(event, stream));
    if (block->event)
        MUST(actor, cuEventDestroy(block->event));
    block->event = event;
    MUST(actor, cuCtxGetCurrent(&block->user));
}

void block_use(struct actor *actor, struct block *block, CUstream stream)
{
    struct pattern pattern = {block->address, block->bytes, block->value,
                              atomic_fetch_add(&program.n_values, 1) + 1};
    struct sim_range range = {block->address, block->bytes, true};
    struct sim_kernel kernel = {.name = "check and fill",
                                .run = check_and_fill,
                                .argument = &pattern,
                                .argument_bytes = sizeof pattern,
                                .ranges = &range,
                                .n_ranges = 1};
    if (block->event)
        MUST(actor, cuStreamWaitEvent(stream, block->event, 0));
    MUST(actor, vpmm_sim_launch(stream, &kernel));
    atomic_fetch_add(&program.n_checked, block->value != 0);
    block->value = pattern.value;
    new_event(actor, block, stream);
}

/* ---- making and freeing ---- */

static CUresult make_plain(struct actor *actor, uint64_t bytes, CUdeviceptr *address_out)
{
    size_t pitch;
    if (roll(&actor->dice, 32))
        return TRY(actor, cuMemAlloc(address_out, bytes));
    return TRY(actor, cuMemAllocPitch(address_out, &pitch, bytes, 1, 4));
}

/* NULL in the spelling in which it means `stream`, or the handle. */
static CUstream spelled(struct actor *actor, CUstream stream, bool *per_thread_out)
{
    *per_thread_out = roll(&actor->dice, 2);
    CUstream null_stream = *per_thread_out ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    return stream == null_stream && roll(&actor->dice, 2) ? NULL : stream;
}

/* What it tells may have changed meanwhile. */
static CUmemoryPool choose_pool(struct actor *actor, const struct place *place)
{
    unsigned n = (unsigned)roll(&actor->dice, 8);
    CUmemoryPool pool = n == 0   ? place->shared_pool
                        : n <= 3 ? place->own_pool
                                 : place->default_pool;
    cuuint64_t bytes;
    if (pool && roll(&actor->dice, 4) == 0)
        MUST(actor, cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &bytes));
    return pool;
}

static CUresult make_async(struct actor *actor, uint64_t bytes, CUstream stream,
                           CUdeviceptr *address_out)
{
    const struct place *place = &program.places[actor->device];
    CUmemoryPool pool = NULL;
    bool is_per_thread;
    stream = spelled(actor, stream, &is_per_thread);
    if (roll(&actor->dice, 4) == 0)
        pool = choose_pool(actor, place);
    if (pool)
        return TRY(actor, (is_per_thread ? cuMemAllocFromPoolAsync_ptsz : cuMemAllocFromPoolAsync)(
                              address_out, bytes, pool, stream));
    return TRY(actor, (is_per_thread ? cuMemAllocAsync_ptsz : cuMemAllocAsync)(address_out, bytes,
                                                                               stream));
}

bool block_make(struct actor *actor, uint64_t bytes, CUstream stream, struct block *block_out)
{
    CUdeviceptr address = 0;
    CUresult result =
        stream ? make_async(actor, bytes, stream, &address) : make_plain(actor, bytes, &address);
    atomic_fetch_add(result ? &program.n_refused : &program.n_served, 1);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return false;
    if (result)
        give_up(actor, "an allocation", (long long)result, __FILE__, __LINE__);
    struct block block = {
        .address = address, .bytes = bytes, .device = actor->device, .is_async = stream != NULL};
    MUST(actor, cuCtxGetCurrent(&block.context));
    block.user = block.context;
    if (stream)
        new_event(actor, &block, stream);
    atomic_store(&program.recent[roll(&actor->dice, RECENT_MAX)], address);
    *block_out = block;
    return true;
}

static CUresult free_async(struct actor *actor, CUdeviceptr address, CUstream stream)
{
    bool is_per_thread;
    stream = spelled(actor, stream, &is_per_thread);
    return TRY(actor, (is_per_thread ? cuMemFreeAsync_ptsz : cuMemFreeAsync)(address, stream));
}

/* cuMemFree waits for the context that owns the memory of cuMemAlloc, and for nothing else. */
void block_free(struct actor *actor, struct block *block, CUstream stream)
{
    if (stream) {
        if (block->event)
            MUST(actor, cuStreamWaitEvent(stream, block->event, 0));
        MUST(actor, free_async(actor, block->address, stream));
    } else {
        if (block->event && (block->is_async || block->user != block->context))
            MUST(actor, cuEventSynchronize(block->event));
        MUST(actor, cuMemFree(block->address));
    }
    if (block->event)
        MUST(actor, cuEventDestroy(block->event));
    *block = (struct block){0};
}

/* ---- questions ---- */

void block_ask(struct actor *actor, const struct block *block)
{
    CUdeviceptr inside = block->address + roll(&actor->dice, (uint32_t)block->bytes);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    size_t total = 0;
    int device = -1;
    CUcontext context = NULL;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
    void *values[] = {&base, &bytes, &device, &context};
    MUST(actor, cuMemGetAddressRange(&base, &bytes, inside));
    HOLDS(actor, base == block->address && bytes >= block->bytes);
    MUST(actor, cuPointerGetAttributes(sizeof names / sizeof *names, names, values, inside));
    HOLDS(actor, base == block->address && bytes >= block->bytes && device == block->device);
    HOLDS(actor, context == (block->is_async ? NULL : block->context));
    MUST(actor, cuMemGetInfo(&bytes, &total));
    HOLDS(actor, bytes <= total);
}

void ask_about_others(struct actor *actor)
{
    CUdeviceptr address = atomic_load(&program.recent[roll(&actor->dice, RECENT_MAX)]);
    CUdeviceptr base;
    size_t bytes;
    unsigned long long id = 0;
    CUmemGenericAllocationHandle handle;
    const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    unsigned long long flags = 0;
    CUresult result = TRY(actor, cuMemGetAddressRange(&base, &bytes, address));
    HOLDS(actor, result == CUDA_ERROR_NOT_FOUND || result == CUDA_ERROR_INVALID_VALUE ||
                     (result == CUDA_SUCCESS && base <= address && address - base < bytes));
    result = TRY(actor, cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    HOLDS(actor, (result == CUDA_SUCCESS && id) || result == CUDA_ERROR_INVALID_VALUE);
    result = TRY(actor, cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)address));
    HOLDS(actor, result == CUDA_ERROR_INVALID_VALUE);
    result = TRY(actor, cuMemGetAccess(&flags, &location, address));
    HOLDS(actor, result == CUDA_ERROR_INVALID_VALUE || (result == CUDA_SUCCESS && flags == 0));
}
