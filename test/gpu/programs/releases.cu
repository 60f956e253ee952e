/* SPDX-License-Identifier: MIT */
/* One thread frees a block that a kernel still uses and asks for its size again. Meanwhile another
 * one gives up references to the context that are not the last ones, allocates, and only then lets
 * the kernel end. On bare CUDA the first thread waits and the other one does not, so nobody may
 * keep the other one waiting: a program that cannot hang must not hang. */
#include "common.cuh"

#include <atomic>
#include <cuda.h>
#include <thread>

namespace {

constexpr uint64_t PATIENCE_NS = 15ull * 1000 * 1000 * 1000;
constexpr double RELEASES_US = 20000;
constexpr int ROUNDS = 10, PERCENT = 60;

struct Flags {
    unsigned flag, late;
};

/* A bounded wait, so that a failure is seen and not only waited for. */
__global__ void wait_kernel(volatile unsigned *flag, unsigned *late, uint64_t *word)
{
    uint64_t start = device_ns();
    *word = start;
    while (*flag == 0) {
        if (device_ns() - start > PATIENCE_NS) {
            *late = 1;
            return;
        }
    }
}

typedef CUresult (*Retain)(CUcontext *, CUdevice);
typedef CUresult (*Release)(CUdevice);

template <typename Function> Function find(const char *name, unsigned version)
{
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    MUST(cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess) {
        printf("%s is not there\n", name);
        _Exit(1);
    }
    return reinterpret_cast<Function>(entry);
}

void must_release(CUresult result)
{
    if (result != CUDA_SUCCESS) {
        printf("a reference: %d\n", static_cast<int>(result));
        _Exit(1);
    }
}

/* All that comes between the free and the end of the kernel; more than once, so that the first
 * thread is met wherever it is. */
void release_and_allocate(Retain retain, Release release, cudaStream_t stream)
{
    CUcontext context;
    void *small;
    for (double start = now_us(); now_us() - start < RELEASES_US;) {
        must_release(retain(&context, 0));
        must_release(release(0));
        MUST(cudaMallocAsync(&small, 16 * MIB, stream));
        MUST(cudaFreeAsync(small, stream));
    }
}

bool try_once(Retain retain, Release release, int round)
{
    cudaStream_t held = stream_make(cudaStreamNonBlocking),
                 other = stream_make(cudaStreamNonBlocking);
    Tally *tally = tally_make();
    size_t bytes = device_bytes() / 100 * PERCENT;
    std::atomic<bool> has_begun{false};
    Flags *flags;
    void *p;
    MUST(cudaHostAlloc(&flags, sizeof *flags, cudaHostAllocMapped));
    *flags = {0, 0};
    MUST(cudaMalloc(&p, bytes));
    wait_kernel<<<1, 1, 0, held>>>(&flags->flag, &flags->late, static_cast<uint64_t *>(p));
    MUST(cudaGetLastError());
    std::thread freeing([&] {
        MUST(cudaSetDevice(0));
        has_begun = true;
        MUST(cudaFree(p));
        MUST(cudaMalloc(&p, bytes));
    });
    while (!has_begun) {
    }
    release_and_allocate(retain, release, other);
    *static_cast<volatile unsigned *>(&flags->flag) = 1;
    freeing.join();
    MUST(cudaDeviceSynchronize());
    bool late = flags->late != 0;
    fill(p, bytes, static_cast<uint64_t>(round), held);
    check(p, bytes, static_cast<uint64_t>(round), tally, held);
    MUST(cudaFree(p));
    MUST(cudaDeviceSynchronize());
    MUST(cudaFreeHost(flags));
    MUST(cudaStreamDestroy(held));
    MUST(cudaStreamDestroy(other));
    bool good = tally_end("the block", tally) && !late;
    printf("round %d: %s\n", round, late ? "waited for ever" : "went on");
    return good;
}

} /* namespace */

int main()
{
    begin();
    Retain retain = find<Retain>("cuDevicePrimaryCtxRetain", 7000);
    Release release = find<Release>("cuDevicePrimaryCtxRelease", 11000);
    bool good = true;
    for (int round = 0; round < ROUNDS && good; round++) {
        good = try_once(retain, release, round);
    }
    return good ? 0 : 1;
}
