/* SPDX-License-Identifier: MIT */
/* After a kernel has touched an illegal address every call answers that error, and the process ends
 * in order. Argument: what is made before the fault. */
#include "conformance.cuh"

namespace {

__global__ void fault_kernel(int *nowhere)
{
    *nowhere = 1;
}

void after(void *plain, void *ordered, cudaStream_t stream, cudaMemPool_t pool)
{
    void *p = nullptr;
    size_t free_bytes, total_bytes, bytes = 0;
    cudaPointerAttributes attributes;
    cudaEvent_t event;
    cudaStream_t fresh;
    cudaMemPool_t standard;
    CUdeviceptr base = 0;
    CALL(cudaDeviceSynchronize());
    CALL(cudaMalloc(&p, 100));
    CALL(cudaMalloc(&p, 4 * MIB));
    CALL(cudaMalloc(&p, 64 * MIB));
    CALL(cudaMalloc(&p, 0));
    CALL(cudaMallocAsync(&p, 100, stream));
    CALL(cudaMallocAsync(&p, 64 * MIB, stream));
    CALL(cudaMallocFromPoolAsync(&p, 64 * MIB, pool, stream));
    CALL(cudaMallocManaged(&p, 4 * MIB));
    CALL(cudaMallocHost(&p, 4096));
    CALL(cudaMemset(plain, 0, 16));
    CALL(cudaMemsetAsync(ordered, 0, 16, stream));
    CALL(cudaMemGetInfo(&free_bytes, &total_bytes));
    CALL(cudaPointerGetAttributes(&attributes, plain));
    CALL(cudaEventCreate(&event));
    CALL(cudaStreamCreate(&fresh));
    CALL(cudaStreamSynchronize(stream));
    CALL(cudaStreamQuery(stream));
    CALL(cudaDeviceGetDefaultMemPool(&standard, 0));
    CALL(cudaMemPoolTrimTo(standard, 0));
    CALL(cudaMemPoolTrimTo(pool, 0));
    printf("range: %s\n", observe_code(&driver_observer(),
                                       driver_observer().range(
                                           &base, &bytes, reinterpret_cast<CUdeviceptr>(plain))));
    CALL(cudaFreeAsync(ordered, stream));
    CALL(cudaFreeAsync(ordered, stream));
    CALL(cudaFree(plain));
    CALL(cudaFree(plain));
    CALL(cudaFree(nullptr));
    CALL(cudaMemPoolDestroy(pool));
    CALL(cudaStreamDestroy(stream));
}

} /* namespace */

int main(int argc, char **argv)
{
    begin();
    bool reset = argc > 1 && strcmp(argv[1], "reset") == 0;
    void *plain, *ordered, *p;
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    cudaMemPool_t pool = pool_make();
    driver_observer();
    MUST(cudaMalloc(&plain, 64 * MIB));
    MUST(cudaMallocAsync(&ordered, 64 * MIB, stream));
    MUST(cudaStreamSynchronize(stream));
    fault_kernel<<<1, 1, 0, stream>>>(nullptr);
    MUST(cudaGetLastError());
    CALL(cudaStreamSynchronize(stream));
    if (reset) {
        CALL(cudaDeviceReset());
        CALL(cudaMalloc(&p, 64 * MIB));
        CALL(cudaMemset(p, 0, 64 * MIB));
        CALL(cudaDeviceSynchronize());
        CALL(cudaFree(p));
    } else {
        after(plain, ordered, stream, pool);
    }
    return 0;
}
