/* SPDX-License-Identifier: MIT */
/* What cudaMemGetInfo says: less by the size of an allocation, more again after its free. */
#include "common.cuh"

namespace {

size_t free_bytes_now()
{
    size_t free_bytes, total_bytes;
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemGetInfo(&free_bytes, &total_bytes));
    if (free_bytes > total_bytes) {
        printf("more free than there is\n");
    }
    return free_bytes;
}

const char *yes(bool is)
{
    return is ? "yes" : "no";
}

bool near(size_t a, size_t b)
{
    return (a > b ? a - b : b - a) <= 64 * MIB;
}

} /* namespace */

int main()
{
    begin();
    void *p, *q;
    size_t at_first = free_bytes_now();
    for (int i = 0; i < 3; i++) {
        size_t before = free_bytes_now();
        MUST(cudaMalloc(&p, 4 * GIB));
        size_t held = free_bytes_now();
        MUST(cudaFree(p));
        size_t after = free_bytes_now();
        printf("cudaMalloc: falls by its size %s, back after cudaFree %s\n",
               yes(near(before - held, 4 * GIB)), yes(near(before, after)));

        MUST(cudaMallocAsync(&q, 3 * GIB, nullptr));
        held = free_bytes_now();
        MUST(cudaFreeAsync(q, nullptr));
        after = free_bytes_now();
        printf("cudaMallocAsync: falls by its size %s, back after cudaFreeAsync %s\n",
               yes(near(after - held, 3 * GIB)), yes(near(before, after)));
    }
    /* A program that takes what it is told is free, less a little, must get it. */
    size_t most = free_bytes_now() - 2 * GIB;
    SHOW(cudaMalloc(&p, most));
    MUST(cudaMemset(p, 1, most));
    printf("nearly nothing left: %s\n", yes(free_bytes_now() < 3 * GIB));
    SHOW(cudaMalloc(&q, 4 * GIB));
    MUST(cudaFree(p));
    SHOW(cudaMalloc(&q, 4 * GIB));
    MUST(cudaFree(q));
    printf("back at the start: %s\n", yes(near(at_first, free_bytes_now())));
    return 0;
}
