/* SPDX-License-Identifier: MIT */
/* What the GPU programs share: kernels that write and check a pattern, kernels that take time, and
 * how a program speaks. These are ordinary CUDA programs: nothing here knows that a library may be
 * preloaded.
 *
 * What a program prints must be the same in every run, except lines that begin with '#'
 * (measurements, "# name value") and lines that begin with '@' (the program waits there for a line
 * on standard input). A program ends with 0 when everything was as it expects. */
#ifndef VPMM_TEST_GPU_COMMON_CUH
#define VPMM_TEST_GPU_COMMON_CUH

#include <cuda_runtime.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

constexpr size_t KIB = size_t{1} << 10, MIB = size_t{1} << 20, GIB = size_t{1} << 30;

/* A call that must succeed: otherwise the program says which did not, and ends with 1. */
#define MUST(call) must((call), #call, __FILE__, __LINE__)
inline void must(cudaError_t status, const char *call, const char *file, int line)
{
    if (status == cudaSuccess) {
        return;
    }
    printf("%s:%d: %s: %s\n", file, line, call, cudaGetErrorName(status));
    fflush(stdout);
    _Exit(1);
}

/* A call whose answer is part of the output; it leaves no error behind. */
#define SHOW(call) show((call), #call)
inline cudaError_t show(cudaError_t status, const char *call)
{
    cudaError_t last = cudaGetLastError();
    printf("%s: %s, last error %s\n", call, cudaGetErrorName(status), cudaGetErrorName(last));
    return status;
}

/* To be called first. Loading a kernel lazily while another one spins would wait for it, with or
 * without us. */
inline void begin()
{
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    setvbuf(stdout, nullptr, _IOLBF, 0);
    MUST(cudaSetDevice(0));
    MUST(cudaFree(nullptr));
}

/* Says `mark` and waits until whoever started the program answers with a line. */
inline void wait_for_word(const char *mark)
{
    char word[16];
    printf("@%s\n", mark);
    fflush(stdout);
    if (fgets(word, sizeof word, stdin) == nullptr) {
        printf("standard input ended at %s\n", mark);
        _Exit(1);
    }
}

inline double now_us()
{
    using namespace std::chrono;
    return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

/* ---- numbers ---- */

/* splitmix64: the same on host and device. */
__host__ __device__ inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

class Random {
  public:
    explicit Random(uint64_t seed) : state_(mix(seed))
    {
    }
    /* In [0, n). */
    uint64_t below(uint64_t n)
    {
        state_ = mix(state_);
        return state_ % n;
    }

  private:
    uint64_t state_;
};

/* ---- patterns ---- */

struct Tally {
    unsigned long long wrong, sum;
};

constexpr int GRID = 1024, THREADS = 256;

__global__ void fill_kernel(uint64_t *words, size_t n, uint64_t seed)
{
    size_t step = size_t{gridDim.x} * blockDim.x;
    for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
        words[i] = mix(seed ^ i);
    }
}

__global__ void check_kernel(const uint64_t *words, size_t n, uint64_t seed, Tally *tally)
{
    unsigned long long wrong = 0, sum = 0;
    size_t step = size_t{gridDim.x} * blockDim.x;
    for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
        wrong += words[i] != mix(seed ^ i);
        sum += words[i];
    }
    if (wrong != 0) {
        atomicAdd(&tally->wrong, wrong);
    }
    atomicAdd(&tally->sum, sum);
}

/* Writes the pattern of `seed` over all whole words of `bytes`. */
inline void fill(void *p, size_t bytes, uint64_t seed, cudaStream_t stream)
{
    fill_kernel<<<GRID, THREADS, 0, stream>>>(static_cast<uint64_t *>(p), bytes / 8, seed);
    MUST(cudaGetLastError());
}

/* Counts the words that are not that pattern, and sums all words, into `tally` (device memory). */
inline void check(const void *p, size_t bytes, uint64_t seed, Tally *tally, cudaStream_t stream)
{
    check_kernel<<<GRID, THREADS, 0, stream>>>(static_cast<const uint64_t *>(p), bytes / 8, seed,
                                               tally);
    MUST(cudaGetLastError());
}

inline Tally *tally_make()
{
    Tally *tally;
    MUST(cudaMalloc(&tally, sizeof *tally));
    MUST(cudaMemset(tally, 0, sizeof *tally));
    MUST(cudaDeviceSynchronize());
    return tally;
}

/* Waits for the device and reads the tally. */
inline Tally tally_read(const Tally *tally)
{
    Tally copy;
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(&copy, tally, sizeof copy, cudaMemcpyDeviceToHost));
    return copy;
}

/* Prints what was counted and frees the tally; true when something was checked and nothing was
 * wrong. */
inline bool tally_end(const char *what, Tally *tally)
{
    Tally copy = tally_read(tally);
    printf("%s: wrong words %llu, sum %016llx\n", what, copy.wrong, copy.sum);
    MUST(cudaFree(tally));
    return copy.wrong == 0 && copy.sum != 0;
}

/* ---- time on the device ---- */

__device__ inline uint64_t device_ns()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

__global__ void spin_kernel(uint64_t ns)
{
    uint64_t start = device_ns();
    while (device_ns() - start < ns) {
    }
}

inline void spin(double ms, cudaStream_t stream)
{
    spin_kernel<<<1, 1, 0, stream>>>(static_cast<uint64_t>(ms * 1e6));
    MUST(cudaGetLastError());
}

inline cudaStream_t stream_make(unsigned flags)
{
    cudaStream_t stream;
    MUST(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

/* Later work of `after` comes after all present work of `before`. */
inline void order_streams(cudaStream_t before, cudaStream_t after)
{
    cudaEvent_t event;
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    MUST(cudaEventRecord(event, before));
    MUST(cudaStreamWaitEvent(after, event, 0));
    MUST(cudaEventDestroy(event));
}

/* Total memory of the device: the same in every run, unlike what is free. */
inline size_t device_bytes()
{
    size_t free_bytes, total_bytes;
    MUST(cudaMemGetInfo(&free_bytes, &total_bytes));
    return total_bytes;
}

#endif
