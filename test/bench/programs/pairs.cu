/* SPDX-License-Identifier: MIT */
/* pairs API BYTES SECONDS THREADS...: an allocation and its free, again and again, by so many
 * threads with a non-blocking stream each, warm. Per number of threads: the mean of a pair, timed
 * over batches, and the percentiles of single pairs, each of which carries the price of reading the
 * clock. */
#include "bench.cuh"

#include <atomic>
#include <thread>

namespace {

constexpr int WARM_PAIRS = 64;
constexpr size_t SAMPLES_MAX = 200000;
constexpr double BATCH_NS = 50e3;

/* All threads that meet here go on together. */
class Meeting {
  public:
    explicit Meeting(int n) : n_(n)
    {
    }
    void wait()
    {
        int round = round_.load();
        if (arrived_.fetch_add(1) + 1 == n_) {
            arrived_.store(0);
            round_.fetch_add(1);
            return;
        }
        while (round_.load() == round) {
            std::this_thread::yield();
        }
    }

  private:
    int n_;
    std::atomic<int> arrived_{0}, round_{0};
};

struct Worker {
    double ns = 0, n_pairs = 0;
    Times singles;
};

class Bench {
  public:
    Bench(const Allocator &allocator, size_t bytes, double seconds, int n_threads)
        : allocator_(allocator), bytes_(bytes), phase_ns_(seconds * 1e9), meeting_(n_threads)
    {
    }

    void work(Worker *me)
    {
        MUST(cudaSetDevice(0));
        cudaStream_t stream = stream_make(cudaStreamNonBlocking);
        pairs(1, stream);
        double start_ns = now_ns();
        pairs(WARM_PAIRS, stream);
        double pair_ns = (now_ns() - start_ns) / WARM_PAIRS;
        int batch = std::max(1, std::min(1000, static_cast<int>(BATCH_NS / pair_ns)));
        meeting_.wait();
        measure_batches(me, batch, stream);
        meeting_.wait();
        measure_singles(me, stream);
        meeting_.wait();
        MUST(cudaStreamSynchronize(stream));
        MUST(cudaStreamDestroy(stream));
    }

  private:
    void pairs(int n, cudaStream_t stream) const
    {
        for (int i = 0; i < n; i++) {
            allocator_.release(allocator_.allocate(bytes_, stream), stream);
        }
    }

    void measure_batches(Worker *me, int batch, cudaStream_t stream) const
    {
        double start_ns = now_ns(), end_ns;
        do {
            pairs(batch, stream);
            me->n_pairs += batch;
            end_ns = now_ns();
        } while (end_ns - start_ns < phase_ns_);
        me->ns = end_ns - start_ns;
    }

    void measure_singles(Worker *me, cudaStream_t stream) const
    {
        double start_ns = now_ns(), before_ns = start_ns;
        while (before_ns - start_ns < phase_ns_ && me->singles.count() < SAMPLES_MAX) {
            pairs(1, stream);
            double after_ns = now_ns();
            me->singles.add(after_ns - before_ns);
            before_ns = after_ns;
        }
    }

    const Allocator &allocator_;
    size_t bytes_;
    double phase_ns_;
    Meeting meeting_;
};

} /* namespace */

int main(int argc, char **argv)
{
    begin();
    Allocator allocator(word_at(argc, argv, 1));
    size_t bytes = static_cast<size_t>(number_at(argc, argv, 2));
    double seconds = number_at(argc, argv, 3);
    for (int i = 4; i < argc; i++) {
        int n_threads = static_cast<int>(number_at(argc, argv, i));
        Bench bench(allocator, bytes, seconds, n_threads);
        std::vector<Worker> workers(n_threads);
        std::vector<std::thread> threads;
        for (Worker &worker : workers) {
            threads.emplace_back(&Bench::work, &bench, &worker);
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        double ns = 0, n_pairs = 0;
        Times singles;
        for (const Worker &worker : workers) {
            ns += worker.ns;
            n_pairs += worker.n_pairs;
            singles.add(worker.singles);
        }
        std::string suffix = "_t" + std::to_string(n_threads);
        figure("pair" + suffix, ns / n_pairs, "ns");
        figure("p50" + suffix, singles.quantile(0.5), "ns");
        figure("p99" + suffix, singles.quantile(0.99), "ns");
    }
    return 0;
}
