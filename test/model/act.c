/* SPDX-License-Identifier: MIT */
/* Each kind of step as the calls it stands for. */
#define _GNU_SOURCE
#include "execute.h"

#include <stdlib.h>
#include <string.h>

static bool is_per_thread_spelling(const struct step *step)
{
    return step->spelling & 1;
}

/* The step's stream as the program names it. */
static CUstream stream_of(const struct run *run)
{
    const struct step *step = run->step;
    bool by_constant = step->spelling & 2;
    if (step->b >= STREAM_MADE)
        return run->streams[step->b];
    if (step->b < CONTEXTS_MAX)
        return by_constant || is_per_thread_spelling(step) ? CU_STREAM_LEGACY : NULL;
    return by_constant || !is_per_thread_spelling(step) ? CU_STREAM_PER_THREAD : NULL;
}

/* The same for what has one spelling only. */
static CUstream stream_itself(const struct run *run)
{
    if (run->step->b >= STREAM_MADE)
        return run->streams[run->step->b];
    return run->step->b < CONTEXTS_MAX ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
}

#define ON(name) (run->api->name[is_per_thread_spelling(run->step)])
#define OF(name) (run->api->name)

static CUresult allocate(struct run *run)
{
    const struct step *step = run->step;
    CUdeviceptr *address = &run->addresses[step->a];
    CUresult answer = step->kind == STEP_MALLOC
                          ? OF(cuMemAlloc_v2)(address, step->n)
                          : ON(cuMemAllocAsync)(address, step->n, stream_of(run));
    bool was_refused =
        run->bare && run->bare->answers[run->number] == (uint16_t)CUDA_ERROR_OUT_OF_MEMORY;
    if (answer != CUDA_SUCCESS || !was_refused)
        return answer;
    /* Better than bare. It is given back, so that the two runs go on alike: asynchronously at once,
     * but cudaFree may wait for what only a later step lets go on. */
    if (step->kind == STEP_MALLOC) {
        run->extras[run->n_extras++] = *address;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    answer = ON(cuMemFreeAsync)(*address, stream_of(run));
    return answer == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : answer;
}

static CUresult use(struct run *run)
{
    const struct step *step = run->step;
    const struct block *block = &run->before.block;
    return pattern_launch(run, stream_itself(run),
                          (struct job){.block = step->a,
                                       .address = run->addresses[step->a],
                                       .bytes = block->bytes,
                                       .expected = block->content,
                                       .written = run->reference.blocks[step->a].content,
                                       .is_node = run->before.is_captured,
                                       .writes = step->kind == STEP_WRITE});
}

static CUresult copy(struct run *run)
{
    const struct step *step = run->step;
    uint64_t to_bytes = run->before.block.bytes;
    uint64_t from_bytes = run->before.from.bytes;
    uint64_t bytes = to_bytes < from_bytes ? to_bytes : from_bytes;
    CUdeviceptr to = run->addresses[step->a];
    CUdeviceptr from = run->addresses[step->c];
    if (step->kind == STEP_COPY)
        return ON(cuMemcpyAsync)(to, from, bytes, stream_of(run));
    return run->api->cuMemcpy[step->b >= CONTEXTS_MAX](to, from, bytes);
}

static CUresult to_host(struct run *run)
{
    unsigned landing = run->before.landing;
    const struct block *block = &run->before.block;
    if (!run->landings) {
        CUresult answer =
            OF(cuMemHostAlloc)((void **)&run->landings, LANDINGS_MAX * HOST_BLOCK_BYTES, 0);
        if (answer != CUDA_SUCCESS)
            return answer;
    }
    unsigned char *to = run->landings + landing * HOST_BLOCK_BYTES;
    run->landed[landing] = block->content;
    run->landed_blocks[landing] = run->step->a;
    return ON(cuMemcpyAsync)((CUdeviceptr)(uintptr_t)to, run->addresses[run->step->a], block->bytes,
                             stream_of(run));
}

static CUresult from_host(struct run *run)
{
    const struct block *block = &run->reference.blocks[run->step->a];
    unsigned char *bytes = malloc(HOST_BLOCK_BYTES);
    if (!bytes)
        abort();
    pattern_write(bytes, block->bytes, &block->content);
    CUresult answer = ON(cuMemcpyAsync)(run->addresses[run->step->a], (CUdeviceptr)(uintptr_t)bytes,
                                        block->bytes, stream_of(run));
    free(bytes);
    return answer;
}

static void CUDA_CB set_flag(void *flag)
{
    __atomic_store_n((uint32_t *)flag, 1, __ATOMIC_RELEASE);
}

static CUresult flag(struct run *run)
{
    uint32_t *flag = &run->flags[run->step->a];
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)flag;
    switch (run->step->kind) {
    case STEP_WAIT_FLAG:
        return ON(cuStreamWaitValue32_v2)(stream_of(run), address, 1, CU_STREAM_WAIT_VALUE_GEQ);
    case STEP_WRITE_FLAG:
        return ON(cuStreamWriteValue32_v2)(stream_of(run), address, 1, 0);
    case STEP_CALL_FLAG:
        return ON(cuLaunchHostFunc)(stream_of(run), set_flag, flag);
    default:
        set_flag(flag);
        return CUDA_SUCCESS;
    }
}

static CUresult end_capture(struct run *run)
{
    CUgraph graph = NULL;
    CUresult answer = ON(cuStreamEndCapture)(stream_of(run), &graph);
    if (answer != CUDA_SUCCESS)
        return answer;
    answer = OF(cuGraphInstantiateWithFlags)(&run->graphs[run->step->a], graph, 0);
    CUresult destroyed = OF(cuGraphDestroy)(graph);
    return answer != CUDA_SUCCESS ? answer : destroyed;
}

/* Memory of the graph's own: allocated, written and freed on the capturing stream. */
static CUresult scratch(struct run *run)
{
    CUdeviceptr address;
    uint64_t bytes = run->step->n;
    CUresult answer = ON(cuMemAllocAsync)(&address, bytes, stream_of(run));
    if (answer != CUDA_SUCCESS)
        return answer;
    struct content content = {
        .kind = CONTENT_PATTERN, .stamp = 77, .valid_bytes = bytes, .tail = block_tail(bytes)};
    answer = pattern_launch(
        run, stream_itself(run),
        (struct job){.address = address, .bytes = bytes, .written = content, .writes = true});
    CUresult freed = ON(cuMemFreeAsync)(address, stream_of(run));
    return answer != CUDA_SUCCESS ? answer : freed;
}

static CUresult change_context(struct run *run)
{
    unsigned number = run->step->a;
    CUresult answer;
    switch (run->step->kind) {
    case STEP_CONTEXT_CREATE:
        answer = OF(cuCtxCreate_v2)(&run->contexts[number], 0, (int)run->step->b);
        return answer == CUDA_SUCCESS ? OF(cuCtxPopCurrent_v2)(NULL) : answer;
    case STEP_CONTEXT_DESTROY:
        return OF(cuCtxDestroy_v2)(run->contexts[number]);
    case STEP_CONTEXT_SET:
        return OF(cuCtxSetCurrent)(number == CONTEXTS_MAX ? NULL : run->contexts[number]);
    case STEP_PRIMARY_RETAIN:
        return OF(cuDevicePrimaryCtxRetain)(&run->contexts[number], (int)number);
    case STEP_PRIMARY_RELEASE:
        return OF(cuDevicePrimaryCtxRelease_v2)((int)number);
    case STEP_PRIMARY_RESET:
        return OF(cuDevicePrimaryCtxReset_v2)((int)number);
    default:
        return OF(cuCtxEnablePeerAccess)(run->contexts[number], 0);
    }
}

static CUresult query_block(struct run *run)
{
    CUdeviceptr base;
    size_t bytes;
    CUdeviceptr address = run->addresses[run->step->a];
    const struct block *block = &run->before.block;
    CUresult answer =
        OF(cuMemGetAddressRange_v2)(&base, &bytes, address + block_tail(block->bytes));
    if (answer == CUDA_SUCCESS && (base != address || bytes != block->bytes))
        fail(run->number, "RANGE", "block %u is not where and what it is", run->step->a);
    return answer;
}

static CUresult look(struct run *run)
{
    size_t bytes, total_bytes;
    CUmemoryPool pool;
    CUstreamCaptureMode mode = (CUstreamCaptureMode)run->step->n;
    switch (run->step->kind) {
    case STEP_INFO:
        return OF(cuMemGetInfo_v2)(&bytes, &total_bytes);
    case STEP_TRIM:
        (void)OF(cuDeviceGetDefaultMemPool)(&pool, (int)run->before.device);
        return OF(cuMemPoolTrimTo)(pool, 0);
    case STEP_CAPTURE_MODE:
        return OF(cuThreadExchangeStreamCaptureMode)(&mode);
    case STEP_QUERY_BLOCK:
        return query_block(run);
    default:
        for (uint64_t i = 0; i < run->step->n; i++)
            (void)run->api->vpmm_sim_step();
        return CUDA_SUCCESS;
    }
}

/* Whether work is complete already may differ from bare: the library's own waits let it get on. */
static CUresult asked(CUresult answer)
{
    return answer == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : answer;
}

static CUresult act_on_object(struct run *run)
{
    const struct step *step = run->step;
    switch (step->kind) {
    case STEP_STREAM_CREATE:
        return OF(cuStreamCreate)(&run->streams[step->b], (unsigned)step->n);
    case STEP_STREAM_DESTROY:
        return OF(cuStreamDestroy_v2)(run->streams[step->b]);
    case STEP_EVENT_CREATE:
        return OF(cuEventCreate)(&run->events[step->a], CU_EVENT_DISABLE_TIMING);
    case STEP_EVENT_DESTROY:
        return OF(cuEventDestroy_v2)(run->events[step->a]);
    case STEP_SYNC_EVENT:
        return OF(cuEventSynchronize)(run->events[step->a]);
    case STEP_QUERY_EVENT:
        return asked(OF(cuEventQuery)(run->events[step->a]));
    case STEP_SYNC_CONTEXT:
        return OF(cuCtxSynchronize)();
    case STEP_GRAPH_DESTROY:
        return OF(cuGraphExecDestroy)(run->graphs[step->a]);
    case STEP_INFO:
    case STEP_TRIM:
    case STEP_CAPTURE_MODE:
    case STEP_QUERY_BLOCK:
    case STEP_PROGRESS:
        return look(run);
    default:
        return change_context(run);
    }
}

CUresult act(struct run *run)
{
    const struct step *step = run->step;
    switch (step->kind) {
    case STEP_MALLOC:
    case STEP_MALLOC_ASYNC:
        return allocate(run);
    case STEP_FREE:
        return OF(cuMemFree_v2)(run->addresses[step->a]);
    case STEP_FREE_ASYNC:
        return ON(cuMemFreeAsync)(run->addresses[step->a], stream_of(run));
    case STEP_WRITE:
    case STEP_CHECK:
        return use(run);
    case STEP_COPY:
    case STEP_COPY_WAIT:
        return copy(run);
    case STEP_FILL:
        return ON(cuMemsetD8Async)(run->addresses[step->a], (unsigned char)step->n,
                                   run->before.block.bytes, stream_of(run));
    case STEP_TO_HOST:
        return to_host(run);
    case STEP_FROM_HOST:
        return from_host(run);
    case STEP_RECORD:
        return ON(cuEventRecord)(run->events[step->a], stream_of(run));
    case STEP_WAIT:
        return ON(cuStreamWaitEvent)(stream_of(run), run->events[step->a], 0);
    case STEP_WAIT_FLAG:
    case STEP_WRITE_FLAG:
    case STEP_CALL_FLAG:
    case STEP_HOST_FLAG:
        return flag(run);
    case STEP_SYNC_STREAM:
        return ON(cuStreamSynchronize)(stream_of(run));
    case STEP_QUERY_STREAM:
        return asked(ON(cuStreamQuery)(stream_of(run)));
    case STEP_CAPTURE_BEGIN:
        return ON(cuStreamBeginCapture_v2)(stream_of(run), (CUstreamCaptureMode)step->n);
    case STEP_CAPTURE_END:
        return end_capture(run);
    case STEP_SCRATCH:
        return scratch(run);
    case STEP_LAUNCH:
        return ON(cuGraphLaunch)(run->graphs[step->a], stream_of(run));
    default:
        return act_on_object(run);
    }
}
