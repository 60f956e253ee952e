/* SPDX-License-Identifier: MIT */
/* The simulated device's part of a program: kernels read and write what each block must hold, host
 * memory is looked at directly, and at the end nothing may be left on the device. */
#define _GNU_SOURCE
#include "pattern.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct landings {
    unsigned char *bytes;
    struct content content[LANDINGS_MAX];
    unsigned blocks[LANDINGS_MAX];
    struct set after[LANDINGS_MAX]; /* what the copy's end tells to be complete */
    bool is_checked[LANDINGS_MAX];
};

void fail(size_t number, const char *what, const char *format, ...)
{
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "model: step %zu (%s): %s\n", number + 1, what, text);
    _exit(1);
}

static void *host_memory(const struct run *run, size_t bytes)
{
    void *memory = NULL;
    if (run->api->cuMemHostAlloc(&memory, bytes, 0) != CUDA_SUCCESS)
        fail(run->number, "START", "no host memory");
    memset(memory, 0, bytes);
    return memory;
}

void device_start(struct run *run)
{
    run->flags = host_memory(run, FLAGS_MAX * sizeof *run->flags);
    run->landings = calloc(1, sizeof(struct landings));
    if (!run->landings)
        abort();
    clock_be_virtual(run->api, run->program->setting.seed);
}

bool device_holds_primary(void)
{
    return false;
}

void device_meet(struct run *run, CUcontext context)
{
    (void)run;
    (void)context;
}

uint64_t device_mallocs(const struct run *run)
{
    return run->api->vpmm_sim_calls("cuMemAlloc") + run->api->vpmm_sim_calls("cuMemAllocAsync");
}

CUresult device_use(struct turn *turn)
{
    const struct step *step = turn->step;
    const struct block *block = &turn->before.block;
    return pattern_launch(turn, turn_stream_itself(turn),
                          (struct job){.block = step->a,
                                       .address = turn->run->addresses[step->a],
                                       .bytes = block->bytes,
                                       .expected = block->content,
                                       .written = turn->run->reference.blocks[step->a].content,
                                       .is_node = turn->before.is_captured,
                                       .writes = step->kind == STEP_WRITE});
}

CUresult device_write_scratch(struct turn *turn, CUdeviceptr address)
{
    uint64_t bytes = turn->step->n;
    struct content content = {
        .kind = CONTENT_PATTERN, .stamp = 77, .valid_bytes = bytes, .tail = block_tail(bytes)};
    return pattern_launch(
        turn, turn_stream_itself(turn),
        (struct job){.address = address, .bytes = bytes, .written = content, .writes = true});
}

CUresult device_copy(struct turn *turn)
{
    const struct step *step = turn->step;
    uint64_t to_bytes = turn->before.block.bytes;
    uint64_t from_bytes = turn->before.from.bytes;
    uint64_t bytes = to_bytes < from_bytes ? to_bytes : from_bytes;
    CUdeviceptr to = turn->run->addresses[step->a];
    CUdeviceptr from = turn->run->addresses[step->c];
    if (step->kind == STEP_COPY)
        return ON(cuMemcpyAsync)(to, from, bytes, turn_stream(turn));
    return turn->run->api->cuMemcpy[step->b >= CONTEXTS_MAX](to, from, bytes);
}

CUresult device_fill(struct turn *turn)
{
    return ON(cuMemsetD8Async)(turn->run->addresses[turn->step->a], (unsigned char)turn->step->n,
                               turn->before.block.bytes, turn_stream(turn));
}

CUresult device_to_host(struct turn *turn)
{
    struct landings *landings = turn->run->landings;
    const struct reference *reference = &turn->run->reference;
    unsigned landing = turn->before.landing;
    if (!landings->bytes)
        landings->bytes = host_memory(turn->run, LANDINGS_MAX * HOST_BLOCK_BYTES);
    unsigned char *to = landings->bytes + landing * HOST_BLOCK_BYTES;
    landings->content[landing] = turn->before.block.content;
    landings->blocks[landing] = turn->step->a;
    landings->after[landing] = reference->operations[reference->n_operations - 1].before;
    return ON(cuMemcpyAsync)((CUdeviceptr)(uintptr_t)to, turn->run->addresses[turn->step->a],
                             turn->before.block.bytes, turn_stream(turn));
}

CUresult device_from_host(struct turn *turn)
{
    const struct block *block = &turn->run->reference.blocks[turn->step->a];
    unsigned char *bytes = malloc(HOST_BLOCK_BYTES);
    if (!bytes)
        abort();
    pattern_write(bytes, block->bytes, &block->content);
    CUresult answer =
        ON(cuMemcpyAsync)(turn->run->addresses[turn->step->a], (CUdeviceptr)(uintptr_t)bytes,
                          block->bytes, turn_stream(turn));
    free(bytes);
    return answer;
}

static uint64_t landing_differs(const struct landings *landings, unsigned number)
{
    return pattern_differs(landings->bytes + number * HOST_BLOCK_BYTES, &landings->content[number]);
}

uint64_t device_look(struct run *run)
{
    uint64_t seen = 0;
    (void)run->api->vpmm_sim_drain();
    for (unsigned i = 0; i < run->reference.n_landings; i++)
        if (landing_differs(run->landings, i) == UINT64_MAX)
            seen |= (uint64_t)1 << i;
    return seen;
}

CUresult device_ask_settled(struct turn *turn, CUresult (*ask)(struct turn *))
{
    (void)turn->run->api->vpmm_sim_drain();
    return ask(turn);
}

void device_get_on(struct run *run, uint64_t n_operations)
{
    for (uint64_t i = 0; i < n_operations; i++)
        (void)run->api->vpmm_sim_step();
}

void device_check_known(struct run *run)
{
    const struct reference *reference = &run->reference;
    struct landings *landings = run->landings;
    for (unsigned i = 0; i < reference->n_landings; i++) {
        if (landings->is_checked[i] || !set_has_all(&reference->done, &landings->after[i]))
            continue;
        uint64_t offset = landing_differs(landings, i);
        if (offset != UINT64_MAX)
            fail(run->number, "BYTES", "a copy of block %u to the host differs at %" PRIu64,
                 landings->blocks[i], offset);
        landings->is_checked[i] = true;
    }
    for (unsigned i = 0; i < BLOCKS_MAX; i++)
        if (reference->blocks[i].state == BLOCK_LIVE)
            pattern_peek(run, i, &reference->blocks[i], &reference->done);
}

void device_check_freed(struct turn *turn)
{
    pattern_peek(turn->run, turn->step->a, &turn->before.block, &turn->before.done);
}

/* What of the driver's work was the library's: all calls less the program's own. */
static void count_calls(struct run *run)
{
    struct outcome *outcome = run->outcome;
    uint64_t own_waits = 0, own_syncs = 0;
    for (size_t i = 0; i < run->program->n; i++) {
        bool was_made = outcome->answers[i] != NOT_MADE;
        own_waits += was_made && run->program->steps[i].kind == STEP_WAIT;
        own_syncs += was_made && run->program->steps[i].kind == STEP_SYNC_EVENT;
    }
    uint64_t n_maps = run->api->vpmm_sim_calls("cuMemMap");
    outcome->created = run->api->vpmm_sim_calls("cuMemCreate");
    if (n_maps < outcome->created)
        outcome->created = n_maps;
    outcome->moved = n_maps - outcome->created;
    outcome->unmapped = run->api->vpmm_sim_calls("cuMemUnmap");
    outcome->stream_waits = run->api->vpmm_sim_calls("cuStreamWaitEvent") - own_waits;
    outcome->host_waits = run->api->vpmm_sim_calls("cuEventSynchronize") - own_syncs;
}

/* What the current device could give a program. Asking lets the library record what a capture kept
 * it from recording, and the answer counts what is complete. */
static size_t free_bytes_of(const struct run *run, unsigned context)
{
    const struct api *api = run->api;
    CUmemoryPool pool;
    size_t free_bytes = 0, total_bytes;
    bool known = api->cuCtxSetCurrent(run->contexts[context]) == CUDA_SUCCESS &&
                 api->cuDeviceGetDefaultMemPool(
                     &pool, (int)run->reference.contexts[context].device) == CUDA_SUCCESS &&
                 api->cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS;
    for (int i = 0; i < 2 && known; i++) {
        known = api->cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS;
        (void)api->vpmm_sim_drain();
    }
    return known ? free_bytes : 0;
}

/* Where no context can be recorded, what was freed beside a capture waits for the next wait for its
 * context. */
static void wait_for_contexts(const struct run *run)
{
    for (unsigned i = 0; i < CONTEXTS_MAX; i++)
        if (run->reference.contexts[i].is_alive &&
            (run->api->cuCtxSetCurrent(run->contexts[i]) != CUDA_SUCCESS ||
             run->api->cuCtxSynchronize() != CUDA_SUCCESS))
            fail(run->number, "END", "context %u cannot be waited for", i);
}

/* All is freed and complete: nothing may be missing, and nothing be left. */
void device_end(struct run *run)
{
    struct sim_counts counts;
    count_calls(run);
    free_extras(run);
    (void)run->api->vpmm_sim_drain();
    run->api->vpmm_sim_live_counts(&counts);
    if (counts.plain || counts.async || counts.pending || counts.captures || counts.graph_execs)
        fail(run->number, "LEAK",
             "left: %" PRIu64 " plain and %" PRIu64 " asynchronous blocks, %" PRIu64 " operations",
             counts.plain, counts.async, counts.pending);
    if (run->api->is_old)
        wait_for_contexts(run);
    for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
        if (!run->reference.contexts[i].is_alive)
            continue;
        size_t free_bytes = free_bytes_of(run, i);
        if (free_bytes != run->program->setting.device_pages * GRANULE)
            fail(run->number, "LEAK", "device %u has %zu bytes free at the end",
                 run->reference.contexts[i].device, free_bytes);
    }
}
