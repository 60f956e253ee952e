/* SPDX-License-Identifier: MIT */
/* blocks API BYTES GIB: as many blocks of that size as come to so much, and what the device holds
 * then. */
#include "bench.cuh"

int main(int argc, char **argv)
{
    begin();
    Allocator allocator(word_at(argc, argv, 1));
    size_t bytes = static_cast<size_t>(number_at(argc, argv, 2));
    size_t n_blocks = static_cast<size_t>(number_at(argc, argv, 3) * GIB) / bytes;
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    std::vector<void *> blocks(n_blocks);
    double start_ns = now_ns();
    for (void *&block : blocks) {
        block = allocator.allocate(bytes, stream);
    }
    figure("malloc", (now_ns() - start_ns) / n_blocks, "ns");
    MUST(cudaStreamSynchronize(stream));
    figure("live_peak", static_cast<double>(bytes * n_blocks), "bytes");
    wait_for_word("held");
    start_ns = now_ns();
    for (void *block : blocks) {
        allocator.release(block, stream);
    }
    figure("free", (now_ns() - start_ns) / n_blocks, "ns");
    MUST(cudaDeviceSynchronize());
    MUST(cudaStreamDestroy(stream));
    return 0;
}
