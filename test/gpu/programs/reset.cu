/* SPDX-License-Identifier: MIT */
/* cudaDeviceReset with memory alive, and work after it; then the end of the program with memory and
 * work alive. */
#include "common.cuh"

int main()
{
    begin();
    bool good = true;
    for (int i = 0; i < 3; i++) {
        void *p, *q, *again;
        cudaStream_t stream = stream_make(cudaStreamNonBlocking);
        MUST(cudaMalloc(&p, 200 * MIB));
        MUST(cudaMallocAsync(&q, 300 * MIB, stream));
        fill(p, 200 * MIB, 1, stream);
        fill(q, 300 * MIB, 2, stream);
        SHOW(cudaDeviceReset());
        SHOW(cudaFree(p));
        Tally *tally = tally_make();
        MUST(cudaMalloc(&again, 200 * MIB));
        fill(again, 200 * MIB, 3, nullptr);
        check(again, 200 * MIB, 3, tally, nullptr);
        good = tally_end("after the reset", tally) && good;
        SHOW(cudaFree(q));
        SHOW(cudaFree(again));
    }
    void *p;
    MUST(cudaMalloc(&p, 500 * MIB));
    spin(50, cudaStreamPerThread);
    fill(p, 500 * MIB, 4, cudaStreamPerThread);
    return good ? 0 : 1;
}
