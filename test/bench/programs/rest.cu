/* SPDX-License-Identifier: MIT */
/* rest API MIB: blocks of 256 bytes to 1 MiB, each power of two as often as any other, until so
 * much is live. Then nine of ten are freed, chosen at random, and the device is looked at again. */
#include "bench.cuh"

#include <cmath>

namespace {

constexpr double LEAST_BYTES = 256, MOST_BYTES = 1 << 20;
constexpr uint64_t STEPS = 1 << 20;

struct Block {
    void *p;
    size_t bytes;
};

size_t draw(Random *random)
{
    double share = static_cast<double>(random->below(STEPS)) / STEPS;
    return static_cast<size_t>(LEAST_BYTES * std::pow(MOST_BYTES / LEAST_BYTES, share));
}

} /* namespace */

int main(int argc, char **argv)
{
    begin();
    Allocator allocator(word_at(argc, argv, 1));
    size_t most_bytes = static_cast<size_t>(number_at(argc, argv, 2) * MIB), live_bytes = 0;
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    Random random(1);
    std::vector<Block> blocks;
    while (live_bytes < most_bytes) {
        size_t bytes = draw(&random);
        blocks.push_back({allocator.allocate(bytes, stream), bytes});
        live_bytes += bytes;
    }
    MUST(cudaStreamSynchronize(stream));
    figure("live_peak", static_cast<double>(live_bytes), "bytes");
    wait_for_word("held");
    for (size_t left = blocks.size(), n_stay = left / 10; left > n_stay; left--) {
        std::swap(blocks[random.below(left)], blocks[left - 1]);
        allocator.release(blocks.back().p, stream);
        live_bytes -= blocks.back().bytes;
        blocks.pop_back();
    }
    MUST(cudaStreamSynchronize(stream));
    figure("live_rest", static_cast<double>(live_bytes), "bytes");
    wait_for_word("rest");
    for (const Block &block : blocks) {
        allocator.release(block.p, stream);
    }
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaStreamDestroy(stream));
    return 0;
}
