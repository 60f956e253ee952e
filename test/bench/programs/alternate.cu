/* SPDX-License-Identifier: MIT */
/* alternate API: 64 MiB allocated and freed on one stream, then on another, in turn. */
#include "bench.cuh"

int main(int argc, char **argv)
{
    constexpr int WARM_PAIRS = 200, N_PAIRS = 40000;
    begin();
    Allocator allocator(word_at(argc, argv, 1));
    cudaStream_t streams[2] = {stream_make(cudaStreamNonBlocking),
                               stream_make(cudaStreamNonBlocking)};
    double start_ns = 0;
    for (int i = 0; i < WARM_PAIRS + N_PAIRS; i++) {
        if (i == WARM_PAIRS) {
            start_ns = now_ns();
        }
        cudaStream_t stream = streams[i % 2];
        allocator.release(allocator.allocate(64 * MIB, stream), stream);
    }
    figure("pair", (now_ns() - start_ns) / N_PAIRS, "ns");
    MUST(cudaDeviceSynchronize());
    for (cudaStream_t stream : streams) {
        MUST(cudaStreamDestroy(stream));
    }
    return 0;
}
