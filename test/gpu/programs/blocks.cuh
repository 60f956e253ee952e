/* SPDX-License-Identifier: MIT */
/* Blocks that somebody keeps: every block has a number and a version, its pattern is made of both,
 * and it is checked on the device before each new version and before its free. The first wrong word
 * is remembered with the block that it is in. */
#ifndef VPMM_TEST_GPU_BLOCKS_CUH
#define VPMM_TEST_GPU_BLOCKS_CUH

#include "common.cuh"

#include <utility>
#include <vector>

constexpr size_t PAGE = 2 * MIB;

/* In device memory. `claimed` is nonzero once a wrong word was seen; the rest is about that one. */
struct Findings {
    unsigned long long checked, wrong, claimed, block, version, word, value;
};

__host__ __device__ inline uint64_t pattern_seed(uint64_t block, uint64_t version)
{
    return mix(block << 20 ^ version);
}

__global__ void verify_kernel(const uint64_t *words, size_t n, uint64_t block, uint64_t version,
                              Findings *findings)
{
    uint64_t seed = pattern_seed(block, version);
    unsigned long long checked = 0, wrong = 0;
    size_t step = size_t{gridDim.x} * blockDim.x;
    for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
        uint64_t value = words[i];
        checked++;
        if (value == mix(seed ^ i)) {
            continue;
        }
        wrong++;
        if (atomicExch(&findings->claimed, 1) == 0) {
            findings->block = block;
            findings->version = version;
            findings->word = i;
            findings->value = value;
        }
    }
    atomicAdd(&findings->checked, checked);
    if (wrong != 0) {
        atomicAdd(&findings->wrong, wrong);
    }
}

struct Block {
    char *p;
    size_t bytes;
    uint64_t number, version;
    cudaStream_t stream; /* its last user */
    bool is_async;       /* how it was allocated */
};

inline void write_version(Block &block)
{
    fill(block.p, block.bytes, pattern_seed(block.number, block.version), block.stream);
}

/* Some blocks within a budget, on some streams, belonging to one thread. */
class Keeper {
  public:
    Keeper(uint64_t number, size_t budget_bytes, std::vector<cudaStream_t> streams)
        : random_(number), next_number_(number << 24), budget_bytes_(budget_bytes / PAGE * PAGE),
          streams_(std::move(streams))
    {
        MUST(cudaDeviceGetDefaultMemPool(&default_pool_, 0));
        MUST(cudaMalloc(&findings_, sizeof *findings_));
        MUST(cudaMemsetAsync(findings_, 0, sizeof *findings_, streams_[0]));
        MUST(cudaStreamSynchronize(streams_[0]));
    }

    /* Blocks of `least` to `most` bytes until the budget is used up. A program that is refused
     * gives up some of what it has and goes on. */
    void fill_up(size_t least, size_t most)
    {
        while (live_bytes_ + PAGE <= budget_bytes_) {
            size_t bytes = least + random_.below(most - least + 1);
            size_t room = budget_bytes_ - live_bytes_;
            if (!allocate(bytes < room ? bytes : room)) {
                refused_++;
                release_every(3);
                return;
            }
        }
    }

    bool allocate(size_t bytes)
    {
        /* Now and then less than whole pages. */
        size_t pages = (bytes + PAGE - 1) / PAGE;
        bytes = pages * PAGE - (random_.below(2) == 0 ? random_.below(MIB) / 8 * 8 : 0);
        Block block = {nullptr, bytes, next_number_++, 0, any_stream(), random_.below(2) == 0};
        if (!ask(block)) {
            return false;
        }
        write_version(block);
        adopt(block);
        return true;
    }

    /* Checks and gives every `n`th block a new version, on any stream. */
    void renew_every(size_t n)
    {
        for (size_t i = 0; i < blocks_.size(); i += n) {
            Block &block = blocks_[i];
            move_to(block, any_stream());
            verify(block);
            block.version++;
            write_version(block);
        }
    }

    void verify_all()
    {
        for (Block &block : blocks_) {
            verify(block);
        }
    }

    void release_every(size_t n)
    {
        for (size_t i = blocks_.size(); i-- > 0;) {
            if (i % n == 0) {
                release(i);
            }
        }
    }

    /* One random step; `large` is the size of one request in four. */
    void step(size_t least, size_t most, size_t large)
    {
        size_t bytes = random_.below(4) == 0 ? large : least + random_.below(most - least + 1);
        bool has_room = live_bytes_ + bytes + PAGE <= budget_bytes_;
        if (blocks_.empty() || (has_room && random_.below(2) == 0)) {
            if (!has_room || !allocate(bytes)) {
                refused_ += has_room;
                release_every(3);
            }
        } else {
            release(random_.below(blocks_.size()));
        }
    }

    /* Hands a block over: its work is complete, whoever takes it may use it on any stream. */
    bool give(Block &block_out)
    {
        if (blocks_.empty()) {
            return false;
        }
        block_out = take_out(random_.below(blocks_.size()));
        MUST(cudaStreamSynchronize(block_out.stream));
        return true;
    }

    void take(Block block)
    {
        block.stream = any_stream();
        adopt(block);
    }

    /* Frees all, waits for its own streams, and reports: true when nothing was wrong and everything
     * was looked at. */
    bool finish(const char *what, int number)
    {
        release_every(1);
        for (cudaStream_t stream : streams_) {
            MUST(cudaStreamSynchronize(stream));
        }
        Findings seen;
        MUST(cudaMemcpyAsync(&seen, findings_, sizeof seen, cudaMemcpyDeviceToHost, streams_[0]));
        MUST(cudaStreamSynchronize(streams_[0]));
        MUST(cudaFreeAsync(findings_, streams_[0]));
        bool all_seen = seen.checked == expected_words_ && expected_words_ != 0;
        if (seen.wrong != 0 || !all_seen) {
            printf("%s %d: wrong words %llu of %llu, expected to check %llu\n", what, number,
                   seen.wrong, seen.checked, expected_words_);
        }
        if (seen.claimed != 0) {
            printf("%s %d: first, block %llx version %llu word %llu: %016llx, not %016llx\n", what,
                   number, seen.block, seen.version, seen.word, seen.value,
                   static_cast<unsigned long long>(
                       mix(pattern_seed(seen.block, seen.version) ^ seen.word)));
        }
        wrong_ = seen.wrong;
        return seen.wrong == 0 && all_seen;
    }

    /* In place of finish, where there was nothing to keep. */
    void drop()
    {
        MUST(cudaFreeAsync(findings_, streams_[0]));
    }

    size_t allocated() const
    {
        return allocated_;
    }
    size_t refused() const
    {
        return refused_;
    }
    size_t asked_again() const
    {
        return asked_again_;
    }
    unsigned long long wrong() const
    {
        return wrong_;
    }

  private:
    static constexpr int TRIES = 3;

    cudaStream_t any_stream()
    {
        return streams_[random_.below(streams_.size())];
    }

    static size_t page_bytes(const Block &block)
    {
        return (block.bytes + PAGE - 1) / PAGE * PAGE;
    }

    /* A program that is told that there is no memory waits for its own work, gives back what CUDA's
     * pool keeps, and asks again. */
    bool ask(Block &block)
    {
        for (int i = 0; i < TRIES; i++) {
            cudaError_t status = block.is_async
                                     ? cudaMallocAsync(&block.p, block.bytes, block.stream)
                                     : cudaMalloc(&block.p, block.bytes);
            if (status == cudaSuccess) {
                return true;
            }
            if (status != cudaErrorMemoryAllocation) {
                MUST(status);
            }
            (void)cudaGetLastError();
            asked_again_++;
            for (cudaStream_t stream : streams_) {
                MUST(cudaStreamSynchronize(stream));
            }
            MUST(cudaMemPoolTrimTo(default_pool_, 0));
        }
        return false;
    }

    void adopt(const Block &block)
    {
        allocated_++;
        live_bytes_ += page_bytes(block);
        blocks_.push_back(block);
    }

    Block take_out(size_t at)
    {
        std::swap(blocks_[at], blocks_.back());
        Block block = blocks_.back();
        blocks_.pop_back();
        live_bytes_ -= page_bytes(block);
        return block;
    }

    static void move_to(Block &block, cudaStream_t stream)
    {
        if (stream != block.stream) {
            order_streams(block.stream, stream);
            block.stream = stream;
        }
    }

    void verify(const Block &block)
    {
        verify_kernel<<<GRID, THREADS, 0, block.stream>>>(
            reinterpret_cast<const uint64_t *>(block.p), block.bytes / 8, block.number,
            block.version, findings_);
        MUST(cudaGetLastError());
        expected_words_ += block.bytes / 8;
    }

    void release(size_t at)
    {
        Block block = take_out(at);
        move_to(block, any_stream());
        verify(block);
        if (random_.below(2) == 0) {
            MUST(cudaFreeAsync(block.p, block.stream));
            return;
        }
        if (block.is_async) {
            /* cudaFree does not wait for the users of stream-ordered memory: the program must. */
            MUST(cudaStreamSynchronize(block.stream));
        }
        MUST(cudaFree(block.p));
    }

    Random random_;
    uint64_t next_number_;
    size_t budget_bytes_, live_bytes_ = 0;
    size_t allocated_ = 0, refused_ = 0, asked_again_ = 0;
    unsigned long long expected_words_ = 0, wrong_ = 0;
    std::vector<cudaStream_t> streams_;
    std::vector<Block> blocks_;
    cudaMemPool_t default_pool_;
    Findings *findings_;
};

#endif
