/* SPDX-License-Identifier: MIT */
/* replay API FILE [LEAST_BYTES]: replays the requests of a trace of LEAST_BYTES (2 MiB) and more,
 * twice. Kernels, events and waits of the trace run on the same streams as they did; the recorded
 * times are not kept. Prints the host time of all mallocs and frees of each pass and the most that
 * was live at once, in bytes as requested and in bytes rounded up to 2 MiB. */
#include "bench.cuh"

extern "C" {
#include "../load.h"
}

namespace {

/* The stream that a recorded handle stands for: the default and the per-thread one have numbers of
 * their own. */
cudaStream_t stream_of(uint64_t handle)
{
    switch (handle) {
    case 0:
    case 1:
        return nullptr;
    case 2:
        return cudaStreamPerThread;
    default:
        return stream_make(cudaStreamNonBlocking);
    }
}

/* The trace's streams and events as real ones. */
class Replay {
  public:
    Replay(const Allocator &allocator, const vpmm_tape &events)
        : allocator_(allocator), tape_(events), streams_(events.n_streams),
          events_(events.n_events), blocks_(events.n_allocations)
    {
        for (uint32_t i = 0; i < events.n_streams; i++) {
            streams_[i] = stream_of(events.streams[i]);
        }
        for (cudaEvent_t &event : events_) {
            MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        }
    }

    /* One pass from and to nothing live. */
    void pass(const std::string &name)
    {
        Times mallocs, frees;
        for (size_t i = 0; i < tape_.n_ops; i++) {
            play(tape_.ops[i], &mallocs, &frees);
        }
        MUST(cudaDeviceSynchronize());
        wait_for_word("held");
        free_the_rest();
        figure(name + "_total", mallocs.total() + frees.total(), "ns");
        figure(name + "_malloc_p50", mallocs.quantile(0.5), "ns");
        figure(name + "_malloc_p99", mallocs.quantile(0.99), "ns");
        figure(name + "_malloc_max", mallocs.quantile(1), "ns");
        figure(name + "_free_p50", frees.quantile(0.5), "ns");
        figure(name + "_free_p99", frees.quantile(0.99), "ns");
        figure(name + "_free_max", frees.quantile(1), "ns");
        figure(name + "_calls", static_cast<double>(mallocs.count() + frees.count()), "calls");
    }

    size_t peak_bytes() const
    {
        return peak_bytes_;
    }

    size_t peak_rounded_bytes() const
    {
        return peak_rounded_bytes_;
    }

  private:
    static size_t rounded(size_t bytes)
    {
        return (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    }

    struct Block {
        void *p = nullptr;
        size_t bytes = 0;
    };

    void play(const vpmm_tape_op &op, Times *mallocs, Times *frees)
    {
        cudaStream_t stream = streams_[op.stream];
        switch (op.kind) {
        case VPMM_TAPE_MALLOC:
            allocate(&blocks_[op.object], op.amount, stream, mallocs);
            break;
        case VPMM_TAPE_FREE:
            release(&blocks_[op.object], stream, frees);
            break;
        case VPMM_TAPE_WORK:
            spin_kernel<<<1, 1, 0, stream>>>(op.amount);
            MUST(cudaGetLastError());
            break;
        case VPMM_TAPE_RECORD:
            MUST(cudaEventRecord(events_[op.object], stream));
            break;
        case VPMM_TAPE_FOLLOW:
            MUST(cudaStreamWaitEvent(stream, events_[op.object], 0));
            break;
        }
    }

    void allocate(Block *block, size_t bytes, cudaStream_t stream, Times *mallocs)
    {
        double start_ns = now_ns();
        cudaError_t status = allocator_.try_allocate(&block->p, bytes, stream);
        mallocs->add(now_ns() - start_ns);
        MUST(status);
        block->bytes = bytes;
        live_bytes_ += bytes;
        live_rounded_bytes_ += rounded(bytes);
        peak_bytes_ = std::max(peak_bytes_, live_bytes_);
        peak_rounded_bytes_ = std::max(peak_rounded_bytes_, live_rounded_bytes_);
    }

    void release(Block *block, cudaStream_t stream, Times *frees)
    {
        double start_ns = now_ns();
        allocator_.release(block->p, stream);
        frees->add(now_ns() - start_ns);
        live_bytes_ -= block->bytes;
        live_rounded_bytes_ -= rounded(block->bytes);
        *block = Block();
    }

    /* What the recorded program left to its end: no part of the trace. */
    void free_the_rest()
    {
        Times untold;
        for (Block &block : blocks_) {
            if (block.p != nullptr) {
                release(&block, streams_.empty() ? nullptr : streams_[0], &untold);
            }
        }
        MUST(cudaDeviceSynchronize());
    }

    const Allocator &allocator_;
    const vpmm_tape &tape_;
    std::vector<cudaStream_t> streams_;
    std::vector<cudaEvent_t> events_;
    std::vector<Block> blocks_;
    size_t live_bytes_ = 0, peak_bytes_ = 0, live_rounded_bytes_ = 0, peak_rounded_bytes_ = 0;
};

} /* namespace */

int main(int argc, char **argv)
{
    begin();
    Allocator allocator(word_at(argc, argv, 1));
    std::string path = word_at(argc, argv, 2);
    uint64_t least_bytes =
        argc > 3 ? static_cast<uint64_t>(number_at(argc, argv, 3)) : uint64_t{2 * MIB};
    char message[LOAD_MESSAGE_BYTES];
    vpmm_tape events;
    if (!load_tape(path.c_str(), least_bytes, &events, message)) {
        give_up(message);
    }
    Replay replay(allocator, events);
    replay.pass("cold");
    replay.pass("second");
    figure("live_peak", static_cast<double>(replay.peak_bytes()), "bytes");
    figure("live_peak_rounded", static_cast<double>(replay.peak_rounded_bytes()), "bytes");
    vpmm_tape_finish(&events);
    return 0;
}
