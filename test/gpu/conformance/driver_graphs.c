/* SPDX-License-Identifier: MIT */
/* Captures and graphs by the driver API: one memory call at a time while a stream captures, then
 * graphs with memory of their own, from captures of one stream and of two. */
#include "driver.h"

#include <pthread.h>

#define BYTES (4 * MIB)

struct scene {
    CUcontext context;
    CUstream captured, other;
    CUmemoryPool pool;
    CUdeviceptr plain, ordered, got;
    CUresult (*call)(struct scene *);
    CUresult answer;
};

#define CALL(name, call)                                                                           \
    static CUresult name(struct scene *s)                                                          \
    {                                                                                              \
        return (call);                                                                             \
    }

CALL(alloc, cuMemAlloc(&s->got, BYTES))
CALL(alloc_small, cuMemAlloc(&s->got, 100))
CALL(alloc_none, cuMemAlloc(&s->got, 0))
CALL(alloc_captured, cuMemAllocAsync(&s->got, BYTES, s->captured))
CALL(alloc_small_captured, cuMemAllocAsync(&s->got, 100, s->captured))
CALL(alloc_none_captured, cuMemAllocAsync(&s->got, 0, s->captured))
CALL(alloc_other, cuMemAllocAsync(&s->got, BYTES, s->other))
CALL(alloc_legacy, cuMemAllocAsync(&s->got, BYTES, CU_STREAM_LEGACY))
CALL(alloc_thread, cuMemAllocAsync(&s->got, BYTES, CU_STREAM_PER_THREAD))
CALL(from_pool_captured, cuMemAllocFromPoolAsync(&s->got, BYTES, s->pool, s->captured))
CALL(from_pool_other, cuMemAllocFromPoolAsync(&s->got, BYTES, s->pool, s->other))
CALL(free_plain, cuMemFree(s->plain))
CALL(free_ordered, cuMemFree(s->ordered))
CALL(free_zero, ((void)s, cuMemFree(0)))
CALL(free_inside, cuMemFree(s->plain + 64))
CALL(free_plain_captured, cuMemFreeAsync(s->plain, s->captured))
CALL(free_plain_other, cuMemFreeAsync(s->plain, s->other))
CALL(free_ordered_captured, cuMemFreeAsync(s->ordered, s->captured))
CALL(free_ordered_other, cuMemFreeAsync(s->ordered, s->other))
CALL(free_ordered_legacy, cuMemFreeAsync(s->ordered, CU_STREAM_LEGACY))
CALL(free_inside_captured, cuMemFreeAsync(s->ordered + 64, s->captured))
CALL(trim_own, cuMemPoolTrimTo(s->pool, 0))

static const struct call {
    const char *name;
    CUresult (*call)(struct scene *);
} calls[] = {
    {"cuMemAlloc", alloc},
    {"cuMemAlloc, small", alloc_small},
    {"cuMemAlloc of 0 bytes", alloc_none},
    {"cuMemAllocAsync, captured", alloc_captured},
    {"cuMemAllocAsync, small, captured", alloc_small_captured},
    {"cuMemAllocAsync of 0 bytes, captured", alloc_none_captured},
    {"cuMemAllocAsync, other", alloc_other},
    {"cuMemAllocAsync, legacy", alloc_legacy},
    {"cuMemAllocAsync, stream of the thread", alloc_thread},
    {"cuMemAllocFromPoolAsync, captured", from_pool_captured},
    {"cuMemAllocFromPoolAsync, other", from_pool_other},
    {"cuMemFree of cuMemAlloc memory", free_plain},
    {"cuMemFree of cuMemAllocAsync memory", free_ordered},
    {"cuMemFree(0)", free_zero},
    {"cuMemFree of an interior address", free_inside},
    {"cuMemFreeAsync of cuMemAlloc memory, captured", free_plain_captured},
    {"cuMemFreeAsync of cuMemAlloc memory, other", free_plain_other},
    {"cuMemFreeAsync of cuMemAllocAsync memory, captured", free_ordered_captured},
    {"cuMemFreeAsync of cuMemAllocAsync memory, other", free_ordered_other},
    {"cuMemFreeAsync of cuMemAllocAsync memory, legacy", free_ordered_legacy},
    {"cuMemFreeAsync of an interior address, captured", free_inside_captured},
    {"cuMemPoolTrimTo", trim_own},
};

static const struct mode {
    const char *name;
    CUstreamCaptureMode mode;
} modes[] = {
    {"global", CU_STREAM_CAPTURE_MODE_GLOBAL},
    {"thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL},
    {"relaxed", CU_STREAM_CAPTURE_MODE_RELAXED},
};

static void *elsewhere(void *argument)
{
    struct scene *s = argument;
    MUST(cuCtxSetCurrent(s->context));
    s->answer = s->call(s);
    return NULL;
}

static void attempt(const struct call *call, CUstreamCaptureMode mode, bool other_thread)
{
    struct scene s = {.pool = pool_make(0, 0), .call = call->call};
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = NULL;
    size_t n_nodes = 0;
    pthread_t thread;
    MUST(cuCtxGetCurrent(&s.context));
    MUST(cuStreamCreate(&s.captured, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&s.other, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc(&s.plain, BYTES));
    MUST(cuMemAllocAsync(&s.ordered, BYTES, s.other));
    MUST(cuCtxSynchronize());
    MUST(cuStreamBeginCapture(s.captured, mode));
    if (other_thread) {
        pthread_create(&thread, NULL, elsewhere, &s);
        pthread_join(thread, NULL);
    } else {
        elsewhere(&s);
    }
    CUresult asked = cuStreamIsCapturing(s.captured, &status);
    CUresult ended = cuStreamEndCapture(s.captured, &graph);
    if (graph) {
        MUST(cuGraphGetNodes(graph, NULL, &n_nodes));
        MUST(cuGraphDestroy(graph));
    }
    printf("%s: %s; then %s, %d; end %s, %zu nodes\n", call->name, truth_code(s.answer),
           truth_code(asked), (int)status, truth_code(ended), n_nodes);
    MUST(cuCtxSynchronize());
    cuMemFree(s.plain);
    cuMemFree(s.ordered);
    cuMemFree(s.got);
    MUST(cuMemPoolDestroy(s.pool));
    MUST(cuStreamDestroy(s.captured));
    MUST(cuStreamDestroy(s.other));
}

/* Memory from before the capture, used in it and freed after it; memory of the capture itself. */
static void captured(CUstream s, CUstream t, CUstreamCaptureMode mode, size_t bytes)
{
    CUdeviceptr before, ordered, inside = 0, stays = 0;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    size_t n_nodes = 0;
    part("captured", bytes);
    ANSWER(cuMemAlloc(&before, bytes));
    ANSWER(cuMemAllocAsync(&ordered, bytes, s));
    ANSWER(cuStreamBeginCapture(s, mode));
    ANSWER(cuMemsetD8Async(before, 0x21, bytes, s));
    ANSWER(cuMemAllocAsync(&inside, bytes, s));
    ANSWER(cuMemAllocAsync(&stays, bytes, s));
    ANSWER(cuMemcpyDtoDAsync(inside, before, bytes, s));
    ANSWER(cuMemcpyDtoDAsync(ordered, inside, bytes, s));
    ANSWER(cuMemcpyDtoDAsync(stays, inside, bytes, s));
    ANSWER(cuMemFreeAsync(inside, s));
    ANSWER(cuStreamEndCapture(s, &graph));
    MUST(cuGraphGetNodes(graph, NULL, &n_nodes));
    VALUE(n_nodes);
    ANSWER(cuGraphInstantiate(&exec, graph, 0));
    ANSWER(cuGraphLaunch(exec, s));
    ANSWER(cuStreamSynchronize(s));
    truth_ask("the first copy arrived", truth_holds(ordered, bytes, 0x21));
    truth_ask("the second copy arrived", truth_holds(stays, bytes, 0x21));
    observe(stays, stays);
    ANSWER(cuMemFreeAsync(stays, t));
    ANSWER(cuStreamSynchronize(t));
    ANSWER(cuGraphLaunch(exec, s));
    ANSWER(cuMemFreeAsync(ordered, s));
    ANSWER(cuStreamSynchronize(s));
    ANSWER(cuMemFree(before));
    ANSWER(cuMemFree(stays));
    ANSWER(cuGraphExecDestroy(exec));
    ANSWER(cuGraphDestroy(graph));
}

/* Two streams in one capture, each allocating. */
static void forked(CUstream s, CUstream t, CUstreamCaptureMode mode)
{
    CUevent fork, join;
    CUgraph graph = NULL;
    CUgraphExec exec;
    CUdeviceptr p = 0, q = 0, outside;
    size_t n_nodes = 0;
    PART("forked");
    MUST(cuMemAlloc(&outside, BYTES));
    MUST(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    ANSWER(cuStreamBeginCapture(s, mode));
    ANSWER(cuEventRecord(fork, s));
    ANSWER(cuStreamWaitEvent(t, fork, 0));
    ANSWER(cuMemAllocAsync(&p, BYTES, s));
    ANSWER(cuMemAllocAsync(&q, BYTES, t));
    ANSWER(cuMemsetD8Async(p, 1, BYTES, s));
    ANSWER(cuMemsetD8Async(q, 2, BYTES, t));
    ANSWER(cuMemcpyDtoDAsync(outside, q, BYTES, t));
    ANSWER(cuMemFreeAsync(q, t));
    ANSWER(cuEventRecord(join, t));
    ANSWER(cuStreamWaitEvent(s, join, 0));
    ANSWER(cuMemFreeAsync(p, s));
    ANSWER(cuStreamEndCapture(s, &graph));
    MUST(cuGraphGetNodes(graph, NULL, &n_nodes));
    VALUE(n_nodes);
    ANSWER(cuGraphInstantiate(&exec, graph, 0));
    ANSWER(cuGraphLaunch(exec, s));
    ANSWER(cuStreamSynchronize(s));
    truth_ask("the copy arrived", truth_holds(outside, BYTES, 2));
    ANSWER(cuGraphExecDestroy(exec));
    ANSWER(cuGraphDestroy(graph));
    ANSWER(cuMemAllocAsync(&p, BYTES, t));
    ANSWER(cuMemFreeAsync(p, t));
    ANSWER(cuMemFree(outside));
    MUST(cuEventDestroy(fork));
    MUST(cuEventDestroy(join));
}

int main(void)
{
    CUstream s, t;
    truth_start();
    MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    for (size_t m = 0; m < COUNT(modes); m++) {
        for (int other_thread = 0; other_thread < 2; other_thread++) {
            printf("\n[%s, %s thread]\n", modes[m].name, other_thread ? "another" : "the same");
            for (size_t i = 0; i < COUNT(calls); i++)
                attempt(&calls[i], modes[m].mode, other_thread);
        }
        for (size_t i = 0; i < COUNT(sizes); i++)
            captured(s, t, modes[m].mode, sizes[i]);
        forked(s, t, modes[m].mode);
    }
    ANSWER(cuStreamDestroy(s));
    ANSWER(cuStreamDestroy(t));
    return 0;
}
