/* SPDX-License-Identifier: MIT */
/* What cudaMemGetInfo says before and after each step, by the difference to the step before, in
 * pages. The device is otherwise idle. */
#include "conformance.cuh"

namespace {

size_t before_bytes;

void step(const char *what)
{
    size_t free_bytes = 0, total_bytes = 0;
    MUST(cudaMemGetInfo(&free_bytes, &total_bytes));
    long long pages = (static_cast<long long>(free_bytes) - static_cast<long long>(before_bytes)) /
                      static_cast<long long>(2 * MIB);
    if (before_bytes != 0) {
        printf("%s: %lld pages\n", what, pages);
    }
    before_bytes = free_bytes;
}

void blocks(size_t bytes, bool ordered, cudaStream_t stream)
{
    void *held[3];
    section(ordered ? "cudaMallocAsync" : "cudaMalloc", bytes);
    step("before");
    for (void *&p : held) {
        MUST(ordered ? cudaMallocAsync(&p, bytes, stream) : cudaMalloc(&p, bytes));
    }
    MUST(cudaDeviceSynchronize());
    step("three blocks taken");
    MUST(ordered ? cudaFreeAsync(held[1], stream) : cudaFree(held[1]));
    MUST(cudaDeviceSynchronize());
    step("the middle one freed");
    for (int i : {0, 2}) {
        MUST(ordered ? cudaFreeAsync(held[i], stream) : cudaFree(held[i]));
    }
    MUST(cudaDeviceSynchronize());
    step("all freed");
}

} /* namespace */

int main()
{
    begin();
    size_t total_bytes = 0, free_bytes = 0;
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    step("at first");
    CALL(cudaMemGetInfo(&free_bytes, &total_bytes));
    VALUE(total_bytes);
    for (size_t bytes : {64 * MIB, 512 * MIB, 4 * GIB}) {
        blocks(bytes, false, stream);
        blocks(bytes, true, stream);
    }
    return 0;
}
