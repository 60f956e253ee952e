/* SPDX-License-Identifier: MIT */
/* One thread captures while another allocates, uses and frees: first in lockstep, then as fast as
 * both can. Neither may disturb the other where bare CUDA lets both go on. Argument "global": only
 * beside a global capture, and only with cudaMallocAsync, because bare CUDA refuses another
 * thread's cudaMalloc then and ends the capture. */
#include "common.cuh"

#include <atomic>
#include <cstring>
#include <thread>

namespace {

constexpr size_t BYTES = 32 * MIB;

struct Other {
    bool use_async;
    Tally *tally;
    cudaError_t first_error = cudaSuccess;
    uint64_t seed = 1000;

    void note(cudaError_t status)
    {
        if (first_error == cudaSuccess) {
            first_error = status;
        }
    }

    /* What the other thread does once; a stream that captures elsewhere must not matter to it. */
    void round(cudaStream_t stream)
    {
        void *p = nullptr;
        cudaError_t status = use_async ? cudaMallocAsync(&p, BYTES, stream) : cudaMalloc(&p, BYTES);
        note(status);
        if (status != cudaSuccess) {
            return;
        }
        fill(p, BYTES, seed, stream);
        check(p, BYTES, seed++, tally, stream);
        note(use_async ? cudaFreeAsync(p, stream) : cudaFree(p));
    }
};

cudaGraphExec_t capture(cudaStream_t stream, cudaStreamCaptureMode mode, void *p, Tally *tally,
                        void (*between)(void *), void *argument)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamBeginCapture(stream, mode));
    fill(p, BYTES, 9, stream);
    between(argument);
    check(p, BYTES, 9, tally, stream);
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    MUST(cudaGraphDestroy(graph));
    return exec;
}

void launch_and_destroy(cudaGraphExec_t exec, cudaStream_t stream)
{
    for (int i = 0; i < 3; i++) {
        MUST(cudaGraphLaunch(exec, stream));
    }
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaGraphExecDestroy(exec));
}

struct Lockstep {
    Other *other;
    cudaStream_t stream;
};

void ten_rounds(void *argument)
{
    Lockstep *lockstep = static_cast<Lockstep *>(argument);
    std::thread([lockstep] {
        MUST(cudaSetDevice(0));
        for (int i = 0; i < 10; i++) {
            lockstep->other->round(lockstep->stream);
        }
    }).join();
}

void nothing(void *)
{
}

bool lockstep(const char *name, cudaStreamCaptureMode mode, bool use_async)
{
    cudaStream_t stream = stream_make(cudaStreamNonBlocking),
                 beside = stream_make(cudaStreamNonBlocking);
    Tally *tally = tally_make();
    Other other = {use_async, tally};
    Lockstep argument = {&other, beside};
    void *p;
    MUST(cudaMalloc(&p, BYTES));
    for (int i = 0; i < 5; i++) {
        launch_and_destroy(capture(stream, mode, p, tally, ten_rounds, &argument), stream);
    }
    MUST(cudaDeviceSynchronize());
    MUST(cudaFree(p));
    MUST(cudaStreamDestroy(stream));
    MUST(cudaStreamDestroy(beside));
    printf("%s, %s beside it: %s\n", name, use_async ? "cudaMallocAsync" : "cudaMalloc",
           cudaGetErrorName(other.first_error));
    return tally_end(name, tally) && other.first_error == cudaSuccess;
}

/* How often the other thread comes round is chance, so its sum is not printed. */
bool race(const char *name, cudaStreamCaptureMode mode, bool use_async)
{
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    Tally *tally = tally_make(), *other_tally = tally_make();
    Other other = {use_async, other_tally};
    std::atomic<bool> stop{false};
    std::thread thread([&] {
        MUST(cudaSetDevice(0));
        cudaStream_t beside = stream_make(cudaStreamNonBlocking);
        while (!stop) {
            other.round(beside);
        }
        MUST(cudaStreamSynchronize(beside));
        MUST(cudaStreamDestroy(beside));
    });
    void *p;
    MUST(cudaMalloc(&p, BYTES));
    for (int i = 0; i < 50; i++) {
        launch_and_destroy(capture(stream, mode, p, tally, nothing, nullptr), stream);
    }
    stop = true;
    thread.join();
    MUST(cudaFree(p));
    MUST(cudaStreamDestroy(stream));
    unsigned long long wrong = tally_read(other_tally).wrong;
    MUST(cudaFree(other_tally));
    printf("%s, racing with %s: %s, wrong words %llu\n", name,
           use_async ? "cudaMallocAsync" : "cudaMalloc", cudaGetErrorName(other.first_error),
           wrong);
    return tally_end(name, tally) && wrong == 0 && other.first_error == cudaSuccess;
}

} /* namespace */

int main(int argc, char **argv)
{
    begin();
    if (argc > 1 && strcmp(argv[1], "global") == 0) {
        return lockstep("global", cudaStreamCaptureModeGlobal, true) ? 0 : 1;
    }
    bool good = true;
    for (bool use_async : {true, false}) {
        good = lockstep("relaxed", cudaStreamCaptureModeRelaxed, use_async) && good;
        good = lockstep("thread-local", cudaStreamCaptureModeThreadLocal, use_async) && good;
        good = race("relaxed", cudaStreamCaptureModeRelaxed, use_async) && good;
        good = race("thread-local", cudaStreamCaptureModeThreadLocal, use_async) && good;
    }
    return good ? 0 : 1;
}
