/* SPDX-License-Identifier: MIT */
/* What the benchmark programs share: the ways to allocate, how long calls take, and how figures are
 * printed. These are ordinary CUDA programs: nothing here knows that a library may be preloaded.
 *
 * A figure is a line "name,value,unit"; a line that begins with '@' is a mark, where the program
 * waits for a line on standard input while somebody looks at the device. Ends with 0 when all of
 * its work was done. */
#ifndef VPMM_TEST_BENCH_BENCH_CUH
#define VPMM_TEST_BENCH_BENCH_CUH

#include "../../gpu/programs/common.cuh"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

inline void figure(const std::string &name, double value, const char *unit)
{
    printf("%s,%.9g,%s\n", name.c_str(), value, unit);
    fflush(stdout);
}

/* Says on standard error what is wrong, and ends the program with 2. */
[[noreturn]] inline void give_up(const char *what)
{
    fprintf(stderr, "%s\n", what);
    _Exit(2);
}

inline double now_ns()
{
    using namespace std::chrono;
    return duration<double, std::nano>(steady_clock::now().time_since_epoch()).count();
}

/* cudaMalloc and cudaFree ("malloc"), or cudaMallocAsync and cudaFreeAsync while the default pool
 * keeps everything ("async") or nothing ("async0") at a synchronisation. */
class Allocator {
  public:
    explicit Allocator(const std::string &api) : is_async_(api != "malloc")
    {
        if (api != "malloc" && api != "async" && api != "async0") {
            give_up("the first argument is malloc, async or async0");
        }
        if (is_async_) {
            uint64_t threshold_bytes = api == "async" ? UINT64_MAX : 0;
            cudaMemPool_t pool;
            MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
            MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold_bytes));
        }
    }
    cudaError_t try_allocate(void **p, size_t bytes, cudaStream_t stream) const
    {
        return is_async_ ? cudaMallocAsync(p, bytes, stream) : cudaMalloc(p, bytes);
    }
    void *allocate(size_t bytes, cudaStream_t stream) const
    {
        void *p;
        MUST(try_allocate(&p, bytes, stream));
        return p;
    }
    void release(void *p, cudaStream_t stream) const
    {
        MUST(is_async_ ? cudaFreeAsync(p, stream) : cudaFree(p));
    }

  private:
    bool is_async_;
};

/* A sample of times. */
class Times {
  public:
    void add(double ns)
    {
        all_.push_back(ns);
    }
    void add(const Times &others)
    {
        all_.insert(all_.end(), others.all_.begin(), others.all_.end());
    }
    size_t count() const
    {
        return all_.size();
    }
    double total() const
    {
        double sum = 0;
        for (double ns : all_) {
            sum += ns;
        }
        return sum;
    }
    /* The smallest time that `share` of all times do not exceed; 0 of an empty sample. */
    double quantile(double share)
    {
        if (all_.empty()) {
            return 0;
        }
        size_t at = std::min(all_.size() - 1, static_cast<size_t>(share * all_.size()));
        std::nth_element(all_.begin(), all_.begin() + at, all_.end());
        return all_[at];
    }

  private:
    std::vector<double> all_;
};

/* Uses the first word of a block, for so long. */
__global__ void use_kernel(uint64_t *words, uint64_t ns)
{
    uint64_t start = device_ns();
    words[0] = start;
    while (device_ns() - start < ns) {
    }
}

inline void use(void *p, double us, cudaStream_t stream)
{
    use_kernel<<<1, 1, 0, stream>>>(static_cast<uint64_t *>(p), static_cast<uint64_t>(us * 1e3));
    MUST(cudaGetLastError());
}

/* The number that an argument is; the program ends where it is none. */
inline double number_at(int argc, char **argv, int i)
{
    char *end = nullptr;
    double value = i < argc ? strtod(argv[i], &end) : 0;
    if (i >= argc || end == argv[i] || *end != '\0' || value <= 0) {
        give_up("an argument that should be a positive number is missing or is none");
    }
    return value;
}

inline std::string word_at(int argc, char **argv, int i)
{
    if (i >= argc) {
        give_up("an argument is missing");
    }
    return argv[i];
}

#endif
