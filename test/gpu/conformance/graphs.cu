/* SPDX-License-Identifier: MIT */
/* Graphs that hold memory: allocation and free nodes made by hand and by capture, forked captures,
 * memory from before, in and after a capture, launches, clones, and the graph memory counters. */
#include "conformance.cuh"

#include <algorithm>

namespace {

cudaStream_t stream, second;

/* How many nodes there are of each type. */
void nodes_of(cudaGraph_t graph)
{
    size_t n = 0, edges = 0;
    int counts[32] = {};
    MUST(cudaGraphGetNodes(graph, nullptr, &n));
    std::vector<cudaGraphNode_t> nodes(n);
    MUST(cudaGraphGetNodes(graph, nodes.data(), &n));
    MUST(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    for (cudaGraphNode_t node : nodes) {
        cudaGraphNodeType type;
        MUST(cudaGraphNodeGetType(node, &type));
        counts[static_cast<int>(type)]++;
    }
    printf("%zu nodes, %zu edges, by type", n, edges);
    for (int i = 0; i < 32; i++) {
        if (counts[i] != 0) {
            printf(" %d: %d", i, counts[i]);
        }
    }
    printf("\n");
}

void counters(const char *when)
{
    static const cudaGraphMemAttributeType kinds[] = {
        cudaGraphMemAttrUsedMemCurrent, cudaGraphMemAttrUsedMemHigh,
        cudaGraphMemAttrReservedMemCurrent, cudaGraphMemAttrReservedMemHigh};
    printf("%s: graph memory", when);
    for (cudaGraphMemAttributeType kind : kinds) {
        uint64_t value = 0;
        MUST(cudaDeviceGetGraphMemAttribute(0, kind, &value));
        printf(" %llu", static_cast<unsigned long long>(value));
    }
    printf("\n");
}

cudaMemAllocNodeParams allocation(size_t bytes)
{
    cudaMemAllocNodeParams params = {};
    params.poolProps.allocType = cudaMemAllocationTypePinned;
    params.poolProps.location.type = cudaMemLocationTypeDevice;
    params.bytesize = bytes;
    return params;
}

void by_hand(size_t bytes)
{
    cudaGraph_t graph, clone = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaGraphNode_t taken, set, freed;
    cudaMemAllocNodeParams params = allocation(bytes);
    section("nodes by hand", bytes);
    CALL(cudaGraphCreate(&graph, 0));
    CALL(cudaGraphAddMemAllocNode(&taken, graph, nullptr, 0, &params));
    ASK(params.dptr != nullptr);
    cudaMemsetParams fill_params = {params.dptr, 0, 0x42, 1, std::min(bytes, 64 * KIB), 1};
    CALL(cudaGraphAddMemsetNode(&set, graph, &taken, 1, &fill_params));
    CALL(cudaGraphAddMemFreeNode(&freed, graph, &set, 1, params.dptr));
    CALL(cudaGraphAddMemFreeNode(&freed, graph, &set, 1, params.dptr));
    nodes_of(graph);
    CALL(cudaGraphClone(&clone, graph));
    runtime_attributes(params.dptr, params.dptr);
    CALL(cudaFree(params.dptr));
    CALL(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 3; i++) {
        CALL(cudaGraphLaunch(exec, stream));
    }
    CALL(cudaStreamSynchronize(stream));
    counters("after three launches");
    observe(params.dptr, params.dptr);
    CALL(cudaGraphExecDestroy(exec));
    CALL(cudaGraphDestroy(graph));
    CALL(cudaDeviceGraphMemTrim(0));
    counters("trimmed");
}

void outlives(size_t bytes, unsigned flags)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec = nullptr;
    cudaGraphNode_t taken;
    cudaMemAllocNodeParams params = allocation(bytes);
    section(flags == 0 ? "an allocation that outlives its launch" : "freed by the next launch",
            bytes);
    CALL(cudaGraphCreate(&graph, 0));
    CALL(cudaGraphAddMemAllocNode(&taken, graph, nullptr, 0, &params));
    CALL(cudaGraphInstantiate(&exec, graph, flags));
    CALL(cudaGraphLaunch(exec, stream));
    CALL(cudaStreamSynchronize(stream));
    CALL(cudaMemset(params.dptr, 5, bytes));
    ASK(holds(params.dptr, bytes, 5));
    observe(params.dptr, params.dptr);
    CALL(cudaGraphLaunch(exec, stream));
    CALL(cudaStreamSynchronize(stream));
    counters("launched twice");
    CALL(cudaFree(at(params.dptr, 1)));
    CALL(cudaFreeAsync(params.dptr, stream));
    CALL(cudaStreamSynchronize(stream));
    CALL(cudaFree(params.dptr));
    counters("freed");
    CALL(cudaGraphLaunch(exec, stream));
    CALL(cudaStreamSynchronize(stream));
    CALL(cudaFree(params.dptr));
    CALL(cudaGraphExecDestroy(exec));
    CALL(cudaGraphDestroy(graph));
    CALL(cudaDeviceGraphMemTrim(0));
    counters("trimmed");
}

/* Memory from before the capture, used in it and freed after it; memory of the capture itself. */
void captured(size_t bytes, cudaStreamCaptureMode mode)
{
    void *before, *ordered, *inside = nullptr, *stays = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    section("captured", bytes);
    CALL(cudaMalloc(&before, bytes));
    CALL(cudaMallocAsync(&ordered, bytes, stream));
    CALL(cudaStreamBeginCapture(stream, mode));
    CALL(cudaMemsetAsync(before, 0x21, bytes, stream));
    CALL(cudaMallocAsync(&inside, bytes, stream));
    CALL(cudaMallocAsync(&stays, bytes, stream));
    CALL(cudaMemcpyAsync(inside, before, bytes, cudaMemcpyDefault, stream));
    CALL(cudaMemcpyAsync(ordered, inside, bytes, cudaMemcpyDefault, stream));
    CALL(cudaMemcpyAsync(stays, inside, bytes, cudaMemcpyDefault, stream));
    CALL(cudaFreeAsync(inside, stream));
    CALL(cudaStreamEndCapture(stream, &graph));
    nodes_of(graph);
    CALL(cudaGraphInstantiate(&exec, graph, 0));
    CALL(cudaGraphLaunch(exec, stream));
    CALL(cudaStreamSynchronize(stream));
    ASK(holds(ordered, bytes, 0x21));
    ASK(holds(stays, bytes, 0x21));
    observe(stays, stays);
    CALL(cudaFreeAsync(stays, second));
    CALL(cudaStreamSynchronize(second));
    CALL(cudaGraphLaunch(exec, stream));
    CALL(cudaFreeAsync(ordered, stream));
    CALL(cudaStreamSynchronize(stream));
    CALL(cudaFree(before));
    CALL(cudaFree(stays));
    CALL(cudaGraphExecDestroy(exec));
    CALL(cudaGraphDestroy(graph));
    counters("destroyed");
    CALL(cudaDeviceGraphMemTrim(0));
}

/* Two streams in one capture, each allocating; `joined`: the second comes back before the end. */
void forked(cudaStreamCaptureMode mode, bool joined)
{
    cudaEvent_t fork, join;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    cudaStreamCaptureStatus status;
    void *p = nullptr, *q = nullptr, *outside;
    section(joined ? "forked and joined" : "forked and not joined");
    MUST(cudaMalloc(&outside, 8 * MIB));
    MUST(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    MUST(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    CALL(cudaStreamBeginCapture(stream, mode));
    CALL(cudaEventRecord(fork, stream));
    CALL(cudaStreamWaitEvent(second, fork, 0));
    CALL(cudaStreamIsCapturing(second, &status));
    VALUE(status);
    CALL(cudaMallocAsync(&p, 8 * MIB, stream));
    CALL(cudaMallocAsync(&q, 8 * MIB, second));
    CALL(cudaMemsetAsync(p, 1, 8 * MIB, stream));
    CALL(cudaMemsetAsync(q, 2, 8 * MIB, second));
    CALL(cudaMemcpyAsync(outside, q, 8 * MIB, cudaMemcpyDefault, second));
    CALL(cudaFreeAsync(q, second));
    if (joined) {
        CALL(cudaEventRecord(join, second));
        CALL(cudaStreamWaitEvent(stream, join, 0));
    }
    CALL(cudaFreeAsync(p, stream));
    CALL(cudaStreamEndCapture(stream, &graph));
    CALL(cudaStreamIsCapturing(second, &status));
    VALUE(status);
    if (graph != nullptr) {
        nodes_of(graph);
        CALL(cudaGraphInstantiate(&exec, graph, 0));
        CALL(cudaGraphLaunch(exec, stream));
        CALL(cudaStreamSynchronize(stream));
        ASK(holds(outside, 8 * MIB, 2));
        CALL(cudaGraphExecDestroy(exec));
        CALL(cudaGraphDestroy(graph));
    }
    CALL(cudaMallocAsync(&p, 8 * MIB, second));
    CALL(cudaFreeAsync(p, second));
    CALL(cudaDeviceSynchronize());
    CALL(cudaFree(outside));
    CALL(cudaEventDestroy(fork));
    CALL(cudaEventDestroy(join));
}

/* Nodes that cannot be. */
void wrong()
{
    cudaGraph_t graph;
    cudaGraphNode_t node;
    cudaMemAllocNodeParams params = allocation(0);
    void *plain, *ordered;
    section("wrong nodes");
    MUST(cudaMalloc(&plain, 8 * MIB));
    MUST(cudaMallocAsync(&ordered, 8 * MIB, stream));
    CALL(cudaGraphCreate(&graph, 0));
    CALL(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
    params = allocation(size_t{1} << 50);
    CALL(cudaGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
    CALL(cudaGraphAddMemFreeNode(&node, graph, nullptr, 0, plain));
    CALL(cudaGraphAddMemFreeNode(&node, graph, nullptr, 0, ordered));
    CALL(cudaGraphAddMemFreeNode(&node, graph, nullptr, 0, nullptr));
    nodes_of(graph);
    CALL(cudaGraphDestroy(graph));
    CALL(cudaFree(plain));
    CALL(cudaFreeAsync(ordered, stream));
    CALL(cudaStreamSynchronize(stream));
}

} /* namespace */

int main()
{
    begin();
    stream = stream_make(cudaStreamNonBlocking);
    second = stream_make(cudaStreamNonBlocking);
    for (size_t bytes : SIZES) {
        by_hand(bytes);
        outlives(bytes, 0);
        outlives(bytes, cudaGraphInstantiateFlagAutoFreeOnLaunch);
        for (cudaStreamCaptureMode mode :
             {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
              cudaStreamCaptureModeRelaxed}) {
            captured(bytes, mode);
        }
    }
    for (cudaStreamCaptureMode mode :
         {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
          cudaStreamCaptureModeRelaxed}) {
        forked(mode, true);
        forked(mode, false);
    }
    wrong();
    return 0;
}
