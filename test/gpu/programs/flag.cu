/* SPDX-License-Identifier: MIT */
/* Stream A frees a block and then waits for a flag that the next work of stream B sets, after B's
 * own allocation. Bare CUDA never waits there for what A does after its free, so nobody else may: a
 * program that cannot hang must not hang. Once with room for both blocks, once where B must get A's
 * memory. */
#include "common.cuh"

#include <cuda.h>

namespace {

constexpr uint64_t PATIENCE_NS = 15ull * 1000 * 1000 * 1000;

/* Waits for the flag; a bounded wait, so that a failure is seen and not only waited for. */
__global__ void wait_kernel(volatile unsigned *flag, unsigned *late)
{
    uint64_t start = device_ns();
    while (*flag == 0) {
        if (device_ns() - start > PATIENCE_NS) {
            *late = 1;
            return;
        }
    }
}

__global__ void set_kernel(volatile unsigned *flag)
{
    *flag = 1;
    __threadfence_system();
}

typedef CUresult (*WaitValue)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

WaitValue find_wait_value()
{
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    MUST(cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &entry, 12000, cudaEnableDefault,
                                          &found));
    return found == cudaDriverEntryPointSuccess ? reinterpret_cast<WaitValue>(entry) : nullptr;
}

struct Way {
    const char *name;
    bool free_async, request_async, wait_by_driver;
    bool is_tight; /* the device has room for one of the two blocks only */
};

struct Flags {
    unsigned flag, late;
};

void wait_for_flag(const Way &way, Flags *flags, WaitValue wait_value, cudaStream_t stream)
{
    if (way.wait_by_driver && wait_value != nullptr) {
        CUdeviceptr address = reinterpret_cast<CUdeviceptr>(&flags->flag);
        if (wait_value(stream, address, 1, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS) {
            return;
        }
    }
    wait_kernel<<<1, 1, 0, stream>>>(&flags->flag, &flags->late);
    MUST(cudaGetLastError());
}

bool try_way(const Way &way, WaitValue wait_value)
{
    cudaStream_t a = stream_make(cudaStreamNonBlocking), b = stream_make(cudaStreamNonBlocking);
    Tally *tally = tally_make();
    Flags *flags;
    MUST(cudaHostAlloc(&flags, sizeof *flags, cudaHostAllocMapped));
    *flags = {0, 0};

    size_t bytes = device_bytes() / 100 * (way.is_tight ? 60 : 10);
    void *p, *q;
    MUST(way.free_async ? cudaMallocAsync(&p, bytes, a) : cudaMalloc(&p, bytes));
    fill(p, bytes, 1, a);
    check(p, bytes, 1, tally, a);
    MUST(way.free_async ? cudaFreeAsync(p, a) : cudaFree(p));
    if (way.is_tight) {
        /* What was queued before the free is over: only what comes after it is not. */
        MUST(cudaStreamSynchronize(a));
    }
    wait_for_flag(way, flags, wait_value, a);

    MUST(way.request_async ? cudaMallocAsync(&q, bytes, b) : cudaMalloc(&q, bytes));
    fill(q, bytes, 2, b);
    check(q, bytes, 2, tally, b);
    set_kernel<<<1, 1, 0, b>>>(&flags->flag);
    MUST(cudaGetLastError());
    MUST(cudaDeviceSynchronize());
    bool late = flags->late != 0;
    printf("%s: %s\n", way.name, late ? "waited for ever" : "went on");

    MUST(way.request_async ? cudaFreeAsync(q, b) : cudaFree(q));
    MUST(cudaDeviceSynchronize());
    MUST(cudaFreeHost(flags));
    MUST(cudaStreamDestroy(a));
    MUST(cudaStreamDestroy(b));
    return tally_end(way.name, tally) && !late;
}

} /* namespace */

int main()
{
    const Way ways[] = {
        {"room, async, async, kernel", true, true, false, false},
        {"room, async, cudaMalloc, kernel", true, false, false, false},
        {"room, cudaFree, cudaMalloc, kernel", false, false, false, false},
        {"room, cudaFree, async, kernel", false, true, false, false},
        {"room, async, async, wait value", true, true, true, false},
        {"room, cudaFree, cudaMalloc, wait value", false, false, true, false},
        {"tight, async, async, kernel", true, true, false, true},
        {"tight, cudaFree, cudaMalloc, kernel", false, false, false, true},
        {"tight, async, async, wait value", true, true, true, true},
    };
    begin();
    WaitValue wait_value = find_wait_value();
    printf("# cuStreamWaitValue32: %s\n", wait_value != nullptr ? "found" : "not found");
    bool good = true;
    for (const Way &way : ways) {
        good = try_way(way, wait_value) && good;
    }
    return good ? 0 : 1;
}
