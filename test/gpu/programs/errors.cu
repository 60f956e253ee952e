/* SPDX-License-Identifier: MIT */
/* Bad input: every answer is printed, and memory stays usable afterwards. Argument "within":
 * nothing is written past the end of a block. */
#include "common.cuh"

#include <cuda.h>

#include <cstring>

namespace {

template <typename F> F entry(const char *name, unsigned version)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    MUST(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result));
    if (found == nullptr) {
        printf("no %s\n", name);
        _Exit(1);
    }
    return reinterpret_cast<F>(found);
}

typedef CUresult (*GetAddressRange)(CUdeviceptr *, size_t *, CUdeviceptr);
typedef CUresult (*GetAttribute)(void *, CUpointer_attribute, CUdeviceptr);

void refused_frees(size_t bytes, cudaStream_t stream)
{
    char *p;
    int on_host = 0;
    printf("block of %zu bytes\n", bytes);
    MUST(cudaMalloc(&p, bytes));
    SHOW(cudaFree(p + 256));
    SHOW(cudaFree(p + bytes / 2));
    SHOW(cudaFreeAsync(p + 256, stream));
    SHOW(cudaFree(p));
    SHOW(cudaFree(p));
    SHOW(cudaFreeAsync(p, stream));
    MUST(cudaMallocAsync(&p, bytes, stream));
    SHOW(cudaFreeAsync(p + 256, stream));
    SHOW(cudaFreeAsync(p, stream));
    SHOW(cudaFreeAsync(p, stream));
    SHOW(cudaFree(p));
    SHOW(cudaFree(&on_host));
    SHOW(cudaFreeAsync(&on_host, stream));
    SHOW(cudaFree(reinterpret_cast<void *>(0x10)));
    SHOW(cudaFreeAsync(nullptr, stream));
}

void too_large(cudaStream_t stream)
{
    void *p = nullptr;
    SHOW(cudaMalloc(&p, size_t{1} << 50));
    SHOW(cudaMallocAsync(&p, size_t{1} << 50, stream));
    SHOW(cudaMalloc(&p, SIZE_MAX));
    SHOW(cudaMallocAsync(&p, SIZE_MAX, stream));
    SHOW(cudaMalloc(&p, device_bytes() + GIB));
    SHOW(cudaMallocAsync(&p, device_bytes() + GIB, stream));
    SHOW(cudaMalloc(static_cast<void **>(nullptr), 4 * MIB));
    SHOW(cudaMallocAsync(static_cast<void **>(nullptr), 4 * MIB, stream));
    SHOW(cudaMallocAsync(&p, 0, stream));
    printf("untouched: %s\n", p == nullptr ? "yes" : "no");
}

void facts(size_t bytes, bool goes_past, cudaStream_t stream)
{
    GetAddressRange get_range = entry<GetAddressRange>("cuMemGetAddressRange", 3020);
    GetAttribute get_attribute = entry<GetAttribute>("cuPointerGetAttribute", 4000);
    for (int i = 0; i < 2; i++) {
        char *p;
        MUST(i == 0 ? cudaMalloc(&p, bytes) : cudaMallocAsync(&p, bytes, stream));
        MUST(cudaStreamSynchronize(stream));
        CUdeviceptr address = reinterpret_cast<CUdeviceptr>(p), base = 0, start = 0;
        size_t size = 0, range_size = 0;
        int ordinal = -1;
        unsigned ipc = 9;
        CUresult range = get_range(&base, &size, address + bytes - 1);
        get_attribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + bytes / 2);
        get_attribute(&range_size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + bytes / 2);
        get_attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
        get_attribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address);
        cudaPointerAttributes attributes;
        MUST(cudaPointerGetAttributes(&attributes, p + bytes / 2));
        printf("%s: range %d, base %d, size %zu, start %d, range size %zu, device %d %d, type %d, "
               "host %d, same %d\n",
               i == 0 ? "cudaMalloc" : "cudaMallocAsync", range, base == address, size,
               start == address, range_size, ordinal, attributes.device, attributes.type,
               attributes.hostPointer != nullptr, attributes.devicePointer == p + bytes / 2);
        printf("# %s legacy IPC capable %u\n", i == 0 ? "cudaMalloc" : "cudaMallocAsync", ipc);
        if (goes_past) {
            /* A measurement only: the page's rest is there to be written. */
            cudaError_t past = cudaMemset(p, 0, bytes + 1);
            printf("# memset of one byte past the end: %s\n", cudaGetErrorName(past));
            (void)cudaGetLastError();
            MUST(cudaDeviceSynchronize());
        }
        MUST(cudaFree(p));
    }
}

bool still_usable(cudaStream_t stream)
{
    Tally *tally = tally_make();
    for (int i = 0; i < 20; i++) {
        void *p;
        size_t bytes = (i + 1) * 7 * MIB;
        MUST(i % 2 == 0 ? cudaMalloc(&p, bytes) : cudaMallocAsync(&p, bytes, stream));
        fill(p, bytes, i, stream);
        check(p, bytes, i, tally, stream);
        MUST(cudaFreeAsync(p, stream));
    }
    return tally_end("still usable", tally);
}

} /* namespace */

int main(int argc, char **argv)
{
    begin();
    bool within = argc > 1 && strcmp(argv[1], "within") == 0;
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    too_large(stream);
    refused_frees(4096, stream);
    refused_frees(64 * MIB, stream);
    facts(5 * MIB + 13, !within, stream);
    facts(300 * MIB, false, stream);
    too_large(stream);
    bool good = still_usable(stream);
    MUST(cudaStreamDestroy(stream));
    return good ? 0 : 1;
}
