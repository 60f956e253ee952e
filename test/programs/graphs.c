/* SPDX-License-Identifier: MIT */
/* Captured work becomes a graph: its nodes, its instantiation, its launches, and allocations inside
 * it. */
#include "truth.h"

#define BYTES (4 * MIB)

static void nodes_of(CUgraph graph)
{
    size_t n_nodes = 0;
    MUST(cuGraphGetNodes(graph, NULL, &n_nodes));
    printf("%zu nodes\n", n_nodes);
}

static void CUDA_CB add_one(void *counter)
{
    ++*(int *)counter;
}

static void work(CUstream s)
{
    CUdeviceptr p;
    CUgraph graph;
    CUgraphExec exec;
    int counter = 0;
    PART("memset, copy and host function");
    MUST(cuMemAlloc(&p, BYTES));
    MUST(cuMemsetD8(p, 0, BYTES));
    MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ANSWER(cuMemsetD8Async(p, 0x42, BYTES / 2, s));
    ANSWER(cuMemcpyDtoDAsync(p + BYTES / 2, p, BYTES / 2, s));
    ANSWER(cuLaunchHostFunc(s, add_one, &counter));
    ANSWER(cuStreamEndCapture(s, &graph));
    nodes_of(graph);
    ANSWER(cuGraphInstantiate(&exec, graph, 0));
    truth_ask("nothing ran yet", truth_holds(p, BYTES, 0) && counter == 0);
    ANSWER(cuGraphLaunch(exec, s));
    ANSWER(cuGraphLaunch(exec, s));
    ANSWER(cuStreamSynchronize(s));
    VALUE(counter);
    truth_ask("both halves are written", truth_holds(p, BYTES, 0x42));
    ANSWER(cuGraphDestroy(graph));
    ANSWER(cuGraphExecDestroy(exec));
    ANSWER(cuMemFree(p));
}

static void captured_pair(CUstream s, CUdeviceptr out)
{
    CUdeviceptr p = 0;
    CUgraph graph;
    CUgraphExec exec;
    PART("an allocation and its free inside one graph");
    MUST(cuMemsetD8(out, 0, BYTES));
    MUST(cuCtxSynchronize());
    MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ANSWER(cuMemAllocAsync(&p, BYTES, s));
    ASK(p != 0);
    ANSWER(cuMemsetD8Async(p, 0x66, BYTES, s));
    ANSWER(cuMemcpyDtoDAsync(out, p, BYTES, s));
    ANSWER(cuMemFreeAsync(out, s));
    ANSWER(cuMemFreeAsync(p, s));
    ANSWER(cuStreamEndCapture(s, &graph));
    nodes_of(graph);
    ANSWER(cuGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++)
        ANSWER(cuGraphLaunch(exec, s));
    ANSWER(cuStreamSynchronize(s));
    truth_ask("the copy arrived", truth_holds(out, BYTES, 0x66));
    ANSWER(cuMemFree(p));
    ANSWER(cuGraphExecDestroy(exec));
    ANSWER(cuGraphDestroy(graph));
}

static void captured_alloc(CUstream s)
{
    CUdeviceptr p = 0;
    CUgraph graph;
    CUgraphExec exec;
    PART("an allocation that outlives its graph's launch");
    MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ANSWER(cuMemAllocAsync(&p, BYTES, s));
    ANSWER(cuMemsetD8Async(p, 0x13, BYTES, s));
    ANSWER(cuStreamEndCapture(s, &graph));
    nodes_of(graph);
    ANSWER(cuGraphInstantiate(&exec, graph, 0));
    ANSWER(cuGraphLaunch(exec, s));
    ANSWER(cuStreamSynchronize(s));
    truth_ask("it is written", truth_holds(p, BYTES, 0x13));
    ANSWER(cuMemFreeAsync(p, s));
    ANSWER(cuStreamSynchronize(s));
    ANSWER(cuGraphLaunch(exec, s));
    ANSWER(cuStreamSynchronize(s));
    ANSWER(cuMemFree(p));
    ANSWER(cuGraphExecDestroy(exec));
    ANSWER(cuGraphDestroy(graph));
}

/* Work of a second stream joins the capture through an event. */
static void fork_and_join(CUstream s, CUstream t)
{
    CUevent forked, joined;
    CUgraph graph = NULL;
    CUstreamCaptureStatus status;
    CUdeviceptr p;
    PART("a second stream joins");
    MUST(cuMemAlloc(&p, BYTES));
    MUST(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ANSWER(cuEventRecord(forked, s));
    ANSWER(cuStreamWaitEvent(t, forked, 0));
    ANSWER(cuStreamIsCapturing(t, &status));
    VALUE(status);
    ANSWER(cuMemsetD8Async(p, 2, 64, t));
    ANSWER(cuStreamEndCapture(t, &graph));
    ANSWER(cuEventRecord(joined, t));
    ANSWER(cuStreamWaitEvent(s, joined, 0));
    ANSWER(cuStreamEndCapture(s, &graph));
    ASK(graph != NULL);
    if (graph)
        MUST(cuGraphDestroy(graph));
    ANSWER(cuStreamIsCapturing(t, &status));
    VALUE(status);
    ANSWER(cuEventQuery(joined));
    graph = NULL;
    MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ANSWER(cuEventRecord(forked, s));
    ANSWER(cuStreamWaitEvent(t, forked, 0));
    ANSWER(cuStreamEndCapture(s, &graph));
    ASK(graph == NULL);
    ANSWER(cuStreamIsCapturing(t, &status));
    VALUE(status);
    ANSWER(cuMemFree(p));
}

static void wrong(CUstream s)
{
    CUgraph graph = NULL;
    CUgraphExec exec;
    PART("wrong use");
    ANSWER(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ANSWER(cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED));
    ANSWER(cuStreamEndCapture(s, &graph));
    ANSWER(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ANSWER(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ANSWER(cuStreamEndCapture(s, &graph));
    MUST(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ANSWER(cuStreamEndCapture(s, &graph));
    nodes_of(graph);
    ANSWER(cuGraphInstantiate(&exec, graph, 0));
    ANSWER(cuGraphLaunch(exec, s));
    ANSWER(cuStreamSynchronize(s));
    ANSWER(cuGraphExecDestroy(exec));
    ANSWER(cuGraphDestroy(graph));
}

int main(void)
{
    CUstream s, t;
    CUdeviceptr out;
    truth_start();
    MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc(&out, BYTES));
    work(s);
    captured_pair(s, out);
    captured_alloc(s);
    fork_and_join(s, t);
    wrong(s);
    MUST(cuMemFree(out));
    ANSWER(cuStreamDestroy(s));
    ANSWER(cuStreamDestroy(t));
    return 0;
}
