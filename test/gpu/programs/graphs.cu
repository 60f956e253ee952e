/* SPDX-License-Identifier: MIT */
/* Graphs captured from streams, with memory allocated before, inside and after the capture,
 * launched many times. */
#include "common.cuh"

namespace {

constexpr size_t BYTES = 40 * MIB;

/* Allocated and freed inside the capture: a graph's own memory. */
cudaGraphExec_t capture(void *before, Tally *tally, cudaStream_t stream, cudaStreamCaptureMode mode)
{
    void *inside;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamBeginCapture(stream, mode));
    fill(before, BYTES, 1, stream);
    MUST(cudaMallocAsync(&inside, BYTES, stream));
    MUST(cudaMemcpyAsync(inside, before, BYTES, cudaMemcpyDeviceToDevice, stream));
    check(inside, BYTES, 1, tally, stream);
    SHOW(cudaFreeAsync(before, stream));
    MUST(cudaFreeAsync(inside, stream));
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphDestroy(graph));
    return exec;
}

bool with_mode(const char *name, cudaStreamCaptureMode mode)
{
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    Tally *tally = tally_make();
    void *before, *async_before, *after;
    MUST(cudaMalloc(&before, BYTES));
    MUST(cudaMallocAsync(&async_before, BYTES, stream));
    cudaGraphExec_t one = capture(before, tally, stream, mode);
    cudaGraphExec_t two = capture(async_before, tally, stream, mode);
    MUST(cudaMallocAsync(&after, BYTES, stream));
    for (int i = 0; i < 20; i++) {
        fill(after, BYTES, i, stream);
        MUST(cudaGraphLaunch(one, stream));
        MUST(cudaGraphLaunch(two, stream));
        check(after, BYTES, i, tally, stream);
    }
    MUST(cudaFreeAsync(after, stream));
    MUST(cudaFreeAsync(async_before, stream));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaFree(before));
    MUST(cudaGraphExecDestroy(one));
    MUST(cudaGraphExecDestroy(two));
    MUST(cudaDeviceGraphMemTrim(0));
    MUST(cudaStreamDestroy(stream));
    return tally_end(name, tally);
}

/* A free queued behind a graph that uses the block: what is allocated next must not share it too
 * early. */
bool free_behind_launch()
{
    cudaStream_t stream = stream_make(cudaStreamNonBlocking),
                 other = stream_make(cudaStreamNonBlocking);
    Tally *tally = tally_make();
    for (int i = 0; i < 10; i++) {
        void *p, *q;
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        MUST(cudaMalloc(&p, BYTES));
        MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
        spin(5, stream);
        fill(p, BYTES, 3, stream);
        MUST(cudaStreamEndCapture(stream, &graph));
        MUST(cudaGraphInstantiate(&exec, graph, 0));
        MUST(cudaGraphLaunch(exec, stream));
        if (i % 2 == 0) {
            MUST(cudaFree(p));
        } else {
            MUST(cudaFreeAsync(p, stream));
        }
        MUST(cudaMallocAsync(&q, BYTES, other));
        fill(q, BYTES, i, other);
        MUST(cudaStreamSynchronize(stream));
        check(q, BYTES, i, tally, other);
        MUST(cudaFreeAsync(q, other));
        MUST(cudaStreamSynchronize(other));
        MUST(cudaGraphExecDestroy(exec));
        MUST(cudaGraphDestroy(graph));
    }
    MUST(cudaStreamDestroy(stream));
    MUST(cudaStreamDestroy(other));
    return tally_end("free behind a launch", tally);
}

} /* namespace */

int main()
{
    begin();
    bool good = with_mode("global", cudaStreamCaptureModeGlobal);
    good = with_mode("thread-local", cudaStreamCaptureModeThreadLocal) && good;
    good = with_mode("relaxed", cudaStreamCaptureModeRelaxed) && good;
    good = free_behind_launch() && good;
    return good ? 0 : 1;
}
