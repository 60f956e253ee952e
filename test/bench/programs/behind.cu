/* SPDX-License-Identifier: MIT */
/* behind API BYTES: how long a free of so much takes while a kernel of 50 ms runs on a non-blocking
 * stream. */
#include "bench.cuh"

int main(int argc, char **argv)
{
    constexpr int N_FREES = 11;
    begin();
    Allocator allocator(word_at(argc, argv, 1));
    size_t bytes = static_cast<size_t>(number_at(argc, argv, 2));
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    Times frees;
    for (int i = 0; i < N_FREES; i++) {
        void *p = allocator.allocate(bytes, stream);
        MUST(cudaDeviceSynchronize());
        use(p, 50e3, stream);
        double start_ns = now_ns();
        allocator.release(p, stream);
        frees.add(now_ns() - start_ns);
        MUST(cudaDeviceSynchronize());
    }
    figure("free_p50", frees.quantile(0.5), "ns");
    figure("free_max", frees.quantile(1), "ns");
    MUST(cudaStreamDestroy(stream));
    return 0;
}
