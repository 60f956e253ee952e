/* SPDX-License-Identifier: MIT */
/* Each kind of step as the calls it stands for. */
#define _GNU_SOURCE
#include "execute.h"

#include <inttypes.h>
#include <string.h>

/* The step's stream as the program names it. */
CUstream turn_stream(const struct turn *turn)
{
    const struct step *step = turn->step;
    bool is_per_thread = step->spelling & 1;
    bool by_constant = step->spelling & 2;
    if (step->b >= STREAM_MADE)
        return turn->run->streams[step->b];
    if (step->b < CONTEXTS_MAX)
        return by_constant || is_per_thread ? CU_STREAM_LEGACY : NULL;
    return by_constant || !is_per_thread ? CU_STREAM_PER_THREAD : NULL;
}

/* The same for what has one spelling only. */
CUstream turn_stream_itself(const struct turn *turn)
{
    if (turn->step->b >= STREAM_MADE)
        return turn->run->streams[turn->step->b];
    return turn->step->b < CONTEXTS_MAX ? CU_STREAM_LEGACY : CU_STREAM_PER_THREAD;
}

uint64_t turn_scaled(const struct turn *turn, uint64_t bytes)
{
    return bytes * turn->run->scale;
}

static CUresult allocate_pitched(struct turn *turn, CUdeviceptr *address)
{
    const struct step *step = turn->step;
    size_t pitch = 0;
    uint64_t width =
        turn_scaled(turn, turn->run->scale == 1 ? step->n : step_bytes(step) / step->c);
    CUresult answer = OF(cuMemAllocPitch_v2)(address, &pitch, width, step->c, 4);
    if (answer == CUDA_SUCCESS && pitch * step->c != turn_scaled(turn, step_bytes(step)))
        fail(turn->number, "PITCH", "%zu bytes a row of %" PRIu64, pitch, step->n);
    return answer;
}

static CUresult allocate_any(struct turn *turn, CUdeviceptr *address)
{
    const struct step *step = turn->step;
    switch (step->kind) {
    case STEP_MALLOC_ASYNC:
        return ON(cuMemAllocAsync)(address, turn_scaled(turn, step->n), turn_stream(turn));
    case STEP_MALLOC_POOL:
        return ON(cuMemAllocFromPoolAsync)(address, turn_scaled(turn, step->n),
                                           turn->run->pools[step->c], turn_stream(turn));
    case STEP_MALLOC_PITCH:
        return allocate_pitched(turn, address);
    default:
        return OF(cuMemAlloc_v2)(address, turn_scaled(turn, step->n));
    }
}

/* Whether what is queued on the step's stream now comes to an end without another step. */
static bool is_clear(const struct turn *turn)
{
    struct set before = order_before(&turn->run->reference, turn->step->b);
    return order_is_clear(&turn->run->reference, &before);
}

void free_extras(struct run *run)
{
    bool needs_context = run->n_extras && run->reference.threads[0].context == CONTEXTS_MAX;
    CUcontext context;
    if (needs_context && (run->api->cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
                          run->api->cuCtxSetCurrent(context) != CUDA_SUCCESS))
        fail(run->number, "END", "no context to free memory in");
    for (unsigned i = 0; i < run->n_extras; i++)
        (void)run->api->cuMemFree_v2(run->extras[i]);
    if (needs_context && (run->api->cuCtxSetCurrent(NULL) != CUDA_SUCCESS ||
                          run->api->cuDevicePrimaryCtxRelease_v2(0) != CUDA_SUCCESS))
        fail(run->number, "END", "a context cannot be given up");
}

static CUresult allocate(struct turn *turn, unsigned block)
{
    const struct step *step = turn->step;
    CUdeviceptr *address = &turn->run->addresses[block];
    CUresult answer = allocate_any(turn, address);
    bool was_refused = turn->run->bare &&
                       turn->run->bare->answers[turn->number] == (uint16_t)CUDA_ERROR_OUT_OF_MEMORY;
    if (answer != CUDA_SUCCESS || !was_refused)
        return answer;
    /* Better than bare. It is given back, so that the two runs go on alike: asynchronously at once.
     * But cudaFree may wait for what only a later step lets go on, and so may others for a free
     * behind that, of which a bare run has none. */
    if (!step_is_malloc_async(step->kind) || !is_clear(turn)) {
        turn->run->extras[turn->run->n_extras++] = *address;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    answer = ON(cuMemFreeAsync)(*address, turn_stream(turn));
    return answer == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : answer;
}

static void CUDA_CB set_flag(void *flag)
{
    __atomic_store_n((uint32_t *)flag, 1, __ATOMIC_RELEASE);
}

static CUresult flag(struct turn *turn)
{
    uint32_t *flag = &turn->run->flags[turn->step->a];
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)flag;
    switch (turn->step->kind) {
    case STEP_WAIT_FLAG:
        return ON(cuStreamWaitValue32_v2)(turn_stream(turn), address, 1, CU_STREAM_WAIT_VALUE_GEQ);
    case STEP_WRITE_FLAG:
        return ON(cuStreamWriteValue32_v2)(turn_stream(turn), address, 1, 0);
    case STEP_CALL_FLAG:
        return ON(cuLaunchHostFunc)(turn_stream(turn), set_flag, flag);
    default:
        set_flag(flag);
        return CUDA_SUCCESS;
    }
}

static CUresult end_capture(struct turn *turn)
{
    CUgraph graph = NULL;
    CUresult answer = ON(cuStreamEndCapture)(turn_stream(turn), &graph);
    if (answer != CUDA_SUCCESS)
        return answer;
    answer = OF(cuGraphInstantiateWithFlags)(&turn->run->graphs[turn->step->a], graph, 0);
    CUresult destroyed = OF(cuGraphDestroy)(graph);
    return answer != CUDA_SUCCESS ? answer : destroyed;
}

/* Memory of the graph's own: allocated, written and freed on the capturing stream. */
static CUresult scratch(struct turn *turn)
{
    CUdeviceptr address;
    CUresult answer =
        ON(cuMemAllocAsync)(&address, turn_scaled(turn, turn->step->n), turn_stream(turn));
    if (answer != CUDA_SUCCESS)
        return answer;
    answer = device_write_scratch(turn, address);
    CUresult freed = ON(cuMemFreeAsync)(address, turn_stream(turn));
    return answer != CUDA_SUCCESS ? answer : freed;
}

static CUresult exchange(struct turn *turn)
{
    CUresult answer = OF(cuMemFree_v2)(turn->run->addresses[turn->step->a]);
    return answer == CUDA_SUCCESS ? allocate(turn, turn->step->c) : answer;
}

static CUresult detach(struct turn *turn)
{
    CUresult answer = OF(cuCtxDetach)(turn->run->contexts[turn->step->a]);
    return answer == CUDA_SUCCESS ? OF(cuCtxSetCurrent)(NULL) : answer;
}

static CUresult change_context(struct turn *turn)
{
    unsigned number = turn->step->a;
    CUresult answer;
    switch (turn->step->kind) {
    case STEP_CONTEXT_CREATE:
        answer = OF(cuCtxCreate_v2)(&turn->run->contexts[number], 0, (int)turn->step->b);
        if (answer == CUDA_SUCCESS)
            answer = OF(cuCtxPopCurrent_v2)(NULL);
        break;
    case STEP_CONTEXT_DESTROY:
        return OF(cuCtxDestroy_v2)(turn->run->contexts[number]);
    case STEP_CONTEXT_DETACH:
        return detach(turn);
    case STEP_CONTEXT_SET:
        return OF(cuCtxSetCurrent)(number == CONTEXTS_MAX ? NULL : turn->run->contexts[number]);
    case STEP_PRIMARY_RETAIN:
        answer = OF(cuDevicePrimaryCtxRetain)(&turn->run->contexts[number], (int)number);
        break;
    case STEP_PRIMARY_RELEASE:
        return OF(cuDevicePrimaryCtxRelease_v2)((int)number);
    case STEP_PRIMARY_RESET:
        return OF(cuDevicePrimaryCtxReset_v2)((int)number);
    default:
        return OF(cuCtxEnablePeerAccess)(turn->run->contexts[number], 0);
    }
    if (answer == CUDA_SUCCESS && turn->before.is_new)
        device_meet(turn->run, turn->run->contexts[number]);
    return answer;
}

static CUresult query_block(struct turn *turn)
{
    CUdeviceptr base;
    size_t bytes;
    CUdeviceptr address = turn->run->addresses[turn->step->a];
    const struct block *block = &turn->before.block;
    CUresult answer = OF(cuMemGetAddressRange_v2)(
        &base, &bytes, address + turn_scaled(turn, block_tail(block->bytes)));
    if (answer == CUDA_SUCCESS && (base != address || bytes != turn_scaled(turn, block->bytes)))
        fail(turn->number, "RANGE", "block %u is not where and what it is", turn->step->a);
    return answer;
}

static CUresult look(struct turn *turn)
{
    size_t bytes, total_bytes;
    CUmemoryPool pool;
    CUstreamCaptureMode mode = (CUstreamCaptureMode)turn->step->n;
    switch (turn->step->kind) {
    case STEP_INFO:
        return OF(cuMemGetInfo_v2)(&bytes, &total_bytes);
    case STEP_TRIM:
        (void)OF(cuDeviceGetDefaultMemPool)(&pool, (int)turn->before.device);
        return OF(cuMemPoolTrimTo)(pool, 0);
    case STEP_CAPTURE_MODE:
        return OF(cuThreadExchangeStreamCaptureMode)(&mode);
    case STEP_QUERY_BLOCK:
        return query_block(turn);
    default:
        device_get_on(turn->run, turn->step->n);
        return CUDA_SUCCESS;
    }
}

static CUresult ask(struct turn *turn)
{
    const struct step *step = turn->step;
    return step->kind == STEP_QUERY_EVENT ? OF(cuEventQuery)(turn->run->events[step->a])
                                          : ON(cuStreamQuery)(turn_stream(turn));
}

/* Whether work is complete is certain where it was waited for, or where nothing goes on any more
 * but by a later step. Otherwise it may differ from bare. */
static CUresult query(struct turn *turn)
{
    bool is_settled = turn->step->n;
    CUresult answer = is_settled ? device_ask_settled(turn, ask) : ask(turn);
    if (answer == CUDA_ERROR_NOT_READY && turn->before.is_over)
        fail(turn->number, "UNREADY", "%s tells of unfinished work that was waited for",
             step_name(turn->step->kind));
    return answer == CUDA_ERROR_NOT_READY && !is_settled ? CUDA_SUCCESS : answer;
}

static CUresult act_on_object(struct turn *turn)
{
    const struct step *step = turn->step;
    switch (step->kind) {
    case STEP_STREAM_CREATE:
        return OF(cuStreamCreate)(&turn->run->streams[step->b], (unsigned)step->n);
    case STEP_STREAM_DESTROY:
        return OF(cuStreamDestroy_v2)(turn->run->streams[step->b]);
    case STEP_EVENT_CREATE:
        return OF(cuEventCreate)(&turn->run->events[step->a], CU_EVENT_DISABLE_TIMING);
    case STEP_EVENT_DESTROY:
        return OF(cuEventDestroy_v2)(turn->run->events[step->a]);
    case STEP_SYNC_EVENT:
        return OF(cuEventSynchronize)(turn->run->events[step->a]);
    case STEP_QUERY_EVENT:
        return query(turn);
    case STEP_LOOK:
        note_seen(turn, device_look(turn->run));
        return CUDA_SUCCESS;
    case STEP_POOL_CREATE:
    case STEP_POOL_DESTROY:
    case STEP_POOL_TRIM:
    case STEP_POOL_USE:
    case STEP_POOL_USED:
        return act_on_pool(turn);
    case STEP_SYNC_CONTEXT:
        return OF(cuCtxSynchronize)();
    case STEP_GRAPH_DESTROY:
        return OF(cuGraphExecDestroy)(turn->run->graphs[step->a]);
    case STEP_INFO:
    case STEP_TRIM:
    case STEP_CAPTURE_MODE:
    case STEP_QUERY_BLOCK:
    case STEP_PROGRESS:
        return look(turn);
    default:
        return change_context(turn);
    }
}

CUresult act(struct turn *turn)
{
    const struct step *step = turn->step;
    switch (step->kind) {
    case STEP_MALLOC:
    case STEP_MALLOC_ASYNC:
    case STEP_MALLOC_POOL:
    case STEP_MALLOC_PITCH:
        return allocate(turn, step->a);
    case STEP_EXCHANGE:
        return exchange(turn);
    case STEP_FREE:
        return OF(cuMemFree_v2)(turn->run->addresses[step->a]);
    case STEP_FREE_ASYNC:
        return ON(cuMemFreeAsync)(turn->run->addresses[step->a], turn_stream(turn));
    case STEP_FREE_WRONG:
        return free_wrongly(turn);
    case STEP_WRITE:
    case STEP_CHECK:
        return device_use(turn);
    case STEP_COPY:
    case STEP_COPY_NOW:
        return device_copy(turn);
    case STEP_FILL:
        return device_fill(turn);
    case STEP_TO_HOST:
        return device_to_host(turn);
    case STEP_FROM_HOST:
        return device_from_host(turn);
    case STEP_RECORD:
        return ON(cuEventRecord)(turn->run->events[step->a], turn_stream(turn));
    case STEP_WAIT:
        return ON(cuStreamWaitEvent)(turn_stream(turn), turn->run->events[step->a], 0);
    case STEP_WAIT_FLAG:
    case STEP_WRITE_FLAG:
    case STEP_CALL_FLAG:
    case STEP_HOST_FLAG:
        return flag(turn);
    case STEP_SYNC_STREAM:
        return ON(cuStreamSynchronize)(turn_stream(turn));
    case STEP_QUERY_STREAM:
        return query(turn);
    case STEP_CAPTURE_BEGIN:
        return ON(cuStreamBeginCapture_v2)(turn_stream(turn), (CUstreamCaptureMode)step->n);
    case STEP_CAPTURE_END:
        return end_capture(turn);
    case STEP_SCRATCH:
        return scratch(turn);
    case STEP_LAUNCH:
        return ON(cuGraphLaunch)(turn->run->graphs[step->a], turn_stream(turn));
    default:
        return act_on_object(turn);
    }
}
