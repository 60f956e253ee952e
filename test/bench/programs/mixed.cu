/* SPDX-License-Identifier: MIT */
/* mixed API: blocks of random sizes from 1 to 256 MiB, 64 of them live: one is freed and another
 * one allocated in its place, 20,000 times after a warm start, or as often as three seconds allow.
 */
#include "bench.cuh"

namespace {

constexpr size_t N_LIVE = 64, LEAST_MIB = 1, MOST_MIB = 256;
constexpr int WARM_PAIRS = 2000, N_PAIRS = 20000;
constexpr double MOST_NS = 3e9;

struct Block {
    void *p;
    size_t bytes;
};

class Mix {
  public:
    explicit Mix(const Allocator &allocator)
        : allocator_(allocator), stream_(stream_make(cudaStreamNonBlocking)), blocks_(N_LIVE)
    {
        for (Block &block : blocks_) {
            fill_in(&block);
        }
    }

    void exchange(int n)
    {
        double end_ns = now_ns() + MOST_NS;
        for (int i = 0; i < n && now_ns() < end_ns; i++) {
            Block *block = &blocks_[random_.below(N_LIVE)];
            double start_ns = now_ns();
            allocator_.release(block->p, stream_);
            frees.add(now_ns() - start_ns);
            live_bytes_ -= block->bytes;
            fill_in(block);
        }
    }

    void finish()
    {
        for (const Block &block : blocks_) {
            allocator_.release(block.p, stream_);
        }
        MUST(cudaStreamSynchronize(stream_));
        MUST(cudaStreamDestroy(stream_));
    }

    size_t peak_bytes() const
    {
        return peak_bytes_;
    }

    Times mallocs, frees;

  private:
    void fill_in(Block *block)
    {
        block->bytes = LEAST_MIB * MIB + random_.below((MOST_MIB - LEAST_MIB) * MIB);
        double start_ns = now_ns();
        block->p = allocator_.allocate(block->bytes, stream_);
        mallocs.add(now_ns() - start_ns);
        live_bytes_ += block->bytes;
        peak_bytes_ = std::max(peak_bytes_, live_bytes_);
    }

    const Allocator &allocator_;
    cudaStream_t stream_;
    std::vector<Block> blocks_;
    Random random_{1};
    size_t live_bytes_ = 0, peak_bytes_ = 0;
};

} /* namespace */

int main(int argc, char **argv)
{
    begin();
    Allocator allocator(word_at(argc, argv, 1));
    Mix mix(allocator);
    mix.exchange(WARM_PAIRS);
    mix.mallocs = mix.frees = Times();
    mix.exchange(N_PAIRS);
    figure("pair", (mix.mallocs.total() + mix.frees.total()) / mix.frees.count(), "ns");
    figure("pairs", static_cast<double>(mix.frees.count()), "pairs");
    figure("malloc_p50", mix.mallocs.quantile(0.5), "ns");
    figure("malloc_p99", mix.mallocs.quantile(0.99), "ns");
    figure("malloc_max", mix.mallocs.quantile(1), "ns");
    figure("free_p50", mix.frees.quantile(0.5), "ns");
    figure("free_p99", mix.frees.quantile(0.99), "ns");
    figure("live_peak", static_cast<double>(mix.peak_bytes()), "bytes");
    wait_for_word("held");
    mix.finish();
    return 0;
}
