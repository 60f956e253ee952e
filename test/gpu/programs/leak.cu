/* SPDX-License-Identifier: MIT */
/* Allocates and frees in every way on several streams and threads, until nothing is left, and waits
 * while somebody looks at what is held then; does it twice, because the second time everything is
 * reused. */
#include "common.cuh"

#include <thread>
#include <utility>
#include <vector>

namespace {

void use(int me)
{
    MUST(cudaSetDevice(0));
    cudaStream_t streams[] = {stream_make(cudaStreamNonBlocking), stream_make(cudaStreamDefault),
                              cudaStreamPerThread, cudaStreamLegacy};
    Random random(me);
    std::vector<void *> blocks;
    for (int i = 0; i < 400; i++) {
        cudaStream_t stream = streams[random.below(4)];
        if (blocks.size() < 20 || random.below(2) == 0) {
            void *p;
            size_t bytes = 4096 + random.below(96 * MIB);
            MUST(random.below(2) == 0 ? cudaMalloc(&p, bytes) : cudaMallocAsync(&p, bytes, stream));
            MUST(cudaMemsetAsync(p, 1, bytes, stream));
            MUST(cudaStreamSynchronize(stream));
            blocks.push_back(p);
        } else {
            std::swap(blocks[random.below(blocks.size())], blocks.back());
            MUST(random.below(2) == 0 ? cudaFree(blocks.back())
                                      : cudaFreeAsync(blocks.back(), stream));
            blocks.pop_back();
        }
    }
    for (void *p : blocks) {
        MUST(random.below(2) == 0 ? cudaFree(p) : cudaFreeAsync(p, streams[0]));
    }
    MUST(cudaStreamDestroy(streams[0]));
    MUST(cudaStreamDestroy(streams[1]));
}

} /* namespace */

int main()
{
    begin();
    for (int round = 0; round < 2; round++) {
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++) {
            threads.emplace_back(use, i);
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        MUST(cudaDeviceSynchronize());
        wait_for_word("idle");
    }
    printf("all freed\n");
    return 0;
}
