/* SPDX-License-Identifier: MIT */
/* compact API: 64 blocks of 1.5 GiB, every other one freed, then 40 GiB in one piece. */
#include "bench.cuh"

int main(int argc, char **argv)
{
    constexpr size_t N_BLOCKS = 64, BLOCK_BYTES = 3 * GIB / 2, LARGE_BYTES = 40 * GIB;
    begin();
    Allocator allocator(word_at(argc, argv, 1));
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    std::vector<void *> blocks(N_BLOCKS);
    double start_ns = now_ns();
    for (void *&block : blocks) {
        block = allocator.allocate(BLOCK_BYTES, stream);
        use(block, 1, stream);
    }
    figure("malloc_all", now_ns() - start_ns, "ns");
    for (size_t i = 0; i < N_BLOCKS; i += 2) {
        allocator.release(blocks[i], stream);
    }
    MUST(cudaDeviceSynchronize());
    start_ns = now_ns();
    void *large = allocator.allocate(LARGE_BYTES, stream);
    figure("malloc_40", now_ns() - start_ns, "ns");
    use(large, 1, stream);
    MUST(cudaDeviceSynchronize());
    figure("live_peak", static_cast<double>(N_BLOCKS * BLOCK_BYTES), "bytes");
    wait_for_word("held");
    allocator.release(large, stream);
    for (size_t i = 1; i < N_BLOCKS; i += 2) {
        allocator.release(blocks[i], stream);
    }
    MUST(cudaDeviceSynchronize());
    MUST(cudaStreamDestroy(stream));
    return 0;
}
