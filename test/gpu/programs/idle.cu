/* SPDX-License-Identifier: MIT */
/* A program with pauses: it allocates, fills, frees, does nothing for a while, and begins anew,
 * also while a stream captures. Whatever becomes of freed memory meanwhile, what is live keeps its
 * content. */
#include "common.cuh"

#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr size_t BYTES = 512 * MIB;
constexpr int ROUNDS = 4;

void pause()
{
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
}

bool keeps(const void *block, unsigned char byte)
{
    std::vector<unsigned char> back(MIB);
    MUST(cudaMemcpy(back.data(), static_cast<const char *>(block) + BYTES - MIB, MIB,
                    cudaMemcpyDeviceToHost));
    for (unsigned char got : back) {
        if (got != byte) {
            return false;
        }
    }
    return true;
}

} // namespace

int main()
{
    bool good = true;
    void *live, *sync, *async;
    cudaStream_t stream;
    begin();
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaMalloc(&live, BYTES));
    MUST(cudaMemset(live, 7, BYTES));
    for (int round = 0; round < ROUNDS; round++) {
        MUST(cudaMalloc(&sync, BYTES));
        MUST(cudaMallocAsync(&async, BYTES, stream));
        MUST(cudaMemset(sync, round + 1, BYTES));
        MUST(cudaMemsetAsync(async, round + 2, BYTES, stream));
        MUST(cudaStreamSynchronize(stream));
        bool same = keeps(sync, static_cast<unsigned char>(round + 1)) &&
                    keeps(async, static_cast<unsigned char>(round + 2)) && keeps(live, 7);
        printf("round %d: content %s\n", round, same ? "same" : "differs");
        good = good && same;
        MUST(cudaFree(sync));
        MUST(cudaFreeAsync(async, stream));
        pause();
    }
    MUST(cudaMallocAsync(&async, BYTES, stream));
    MUST(cudaFreeAsync(async, stream));
    MUST(cudaStreamSynchronize(stream));
    cudaGraph_t graph;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    MUST(cudaMemsetAsync(live, 9, BYTES, stream));
    pause();
    SHOW(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec;
    SHOW(cudaGraphInstantiate(&exec, graph, 0));
    SHOW(cudaGraphLaunch(exec, stream));
    MUST(cudaStreamSynchronize(stream));
    good = keeps(live, 9) && good;
    MUST(cudaFree(live));
    printf("%s\n", good ? "good" : "bad");
    return good ? 0 : 1;
}
