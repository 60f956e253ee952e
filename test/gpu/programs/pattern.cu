/* SPDX-License-Identifier: MIT */
/* Blocks of 2 to 512 MiB, each with a pattern of its own written by a kernel, come and go on six
 * streams through both ways to allocate and both ways to free; every block is checked before its
 * free, and all of them after each request so large that a remapping pool must remap. Arguments:
 * the number of threads (1), and the MiB that they share (as much as the device and the time
 * allow). */
#include "common.cuh"

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Block {
    void *p;
    size_t bytes;
    uint64_t seed;
    size_t stream; /* its last user */
    bool is_async; /* how it was allocated */
};

class Churn {
  public:
    Churn(uint64_t seed, size_t budget_bytes) : random_(seed), budget_bytes_(budget_bytes)
    {
        streams_ = {stream_make(cudaStreamDefault),
                    stream_make(cudaStreamDefault),
                    stream_make(cudaStreamNonBlocking),
                    stream_make(cudaStreamNonBlocking),
                    cudaStreamPerThread,
                    cudaStreamLegacy};
        tally_ = tally_make();
    }

    /* Fill, free every other block, ask for large ones, then random requests. */
    void cycle()
    {
        while (live_bytes_ < budget_bytes_) {
            allocate(small_size());
        }
        check_all();
        free_every_other();
        for (int i = 0; i < 6; i++) {
            allocate(budget_bytes_ / 20 + random_.below(budget_bytes_ / 15));
            check_all();
        }
        for (int i = 0; i < 300; i++) {
            bool grow = live_bytes_ < budget_bytes_ / 2 || random_.below(2) == 0;
            if (grow && live_bytes_ < budget_bytes_) {
                allocate(small_size());
            } else {
                free_one(random_.below(blocks_.size()));
            }
            if (i % 50 == 49) {
                check_all();
            }
        }
    }

    Tally finish()
    {
        while (!blocks_.empty()) {
            free_one(blocks_.size() - 1);
        }
        MUST(cudaDeviceSynchronize());
        for (size_t i = 0; i < 4; i++) {
            MUST(cudaStreamDestroy(streams_[i]));
        }
        return tally_read(tally_);
    }

    size_t allocations() const
    {
        return allocations_;
    }

  private:
    size_t small_size()
    {
        size_t most = std::min(512 * MIB, budget_bytes_ / 8);
        return 2 * MIB + random_.below(most - 2 * MIB + 1);
    }

    void allocate(size_t bytes)
    {
        Block block = {nullptr, bytes, mix(++allocations_), random_.below(streams_.size()),
                       random_.below(2) == 0};
        cudaStream_t stream = streams_[block.stream];
        if (block.is_async) {
            MUST(cudaMallocAsync(&block.p, bytes, stream));
        } else {
            MUST(cudaMalloc(&block.p, bytes));
        }
        fill(block.p, bytes, block.seed, stream);
        blocks_.push_back(block);
        live_bytes_ += bytes;
    }

    void check_block(Block &block, size_t stream)
    {
        if (stream != block.stream) {
            order_streams(streams_[block.stream], streams_[stream]);
            block.stream = stream;
        }
        check(block.p, block.bytes, block.seed, tally_, streams_[stream]);
    }

    void check_all()
    {
        for (Block &block : blocks_) {
            check_block(block, block.stream);
        }
    }

    void free_one(size_t at)
    {
        Block block = blocks_[at];
        blocks_[at] = blocks_.back();
        blocks_.pop_back();
        live_bytes_ -= block.bytes;
        check_block(block, random_.below(streams_.size()));
        if (random_.below(2) == 0) {
            MUST(cudaFreeAsync(block.p, streams_[block.stream]));
            return;
        }
        if (block.is_async) {
            /* cudaFree does not wait for the users of stream-ordered memory: the program must. */
            MUST(cudaStreamSynchronize(streams_[block.stream]));
        }
        MUST(cudaFree(block.p));
    }

    void free_every_other()
    {
        for (size_t i = blocks_.size(); i-- > 0;) {
            if (i % 2 == 0) {
                free_one(i);
            }
        }
    }

    Random random_;
    size_t budget_bytes_, live_bytes_ = 0, allocations_ = 0;
    std::vector<cudaStream_t> streams_;
    std::vector<Block> blocks_;
    Tally *tally_;
};

} /* namespace */

int main(int argc, char **argv)
{
    begin();
    int n = argc > 1 ? std::stoi(argv[1]) : 1;
    size_t budget_bytes =
        argc > 2 ? std::stoul(argv[2]) * MIB : std::min(60 * GIB, device_bytes() / 20 * 9);
    budget_bytes /= n;
    std::vector<Tally> tallies(n);
    std::vector<size_t> allocations(n);
    std::vector<std::thread> threads;
    for (int i = 0; i < n; i++) {
        threads.emplace_back([&, i] {
            MUST(cudaSetDevice(0));
            Churn churn(1000 + i, budget_bytes);
            for (int cycle = 0; cycle < 3; cycle++) {
                churn.cycle();
            }
            tallies[i] = churn.finish();
            allocations[i] = churn.allocations();
        });
    }
    bool good = true;
    for (int i = 0; i < n; i++) {
        threads[i].join();
        printf("thread %d: blocks %zu, wrong words %llu, sum %016llx\n", i, allocations[i],
               tallies[i].wrong, tallies[i].sum);
        good = good && tallies[i].wrong == 0 && tallies[i].sum != 0;
    }
    return good ? 0 : 1;
}
