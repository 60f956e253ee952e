/* SPDX-License-Identifier: MIT */
/* How long the host is in cudaFree while a kernel of 50 ms runs on a non-blocking stream. */
#include "common.cuh"

#include <algorithm>
#include <vector>

int main()
{
    begin();
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    std::vector<double> times_us;
    for (int i = 0; i < 20; i++) {
        void *p;
        MUST(cudaMalloc(&p, 64 * MIB));
        MUST(cudaDeviceSynchronize());
        spin(50, stream);
        double start_us = now_us();
        MUST(cudaFree(p));
        times_us.push_back(now_us() - start_us);
        MUST(cudaDeviceSynchronize());
    }
    std::sort(times_us.begin(), times_us.end());
    printf("# free_median_us %.1f\n", (times_us[9] + times_us[10]) / 2);
    printf("# free_worst_us %.1f\n", times_us.back());
    MUST(cudaStreamDestroy(stream));
    printf("20 frees\n");
    return 0;
}
