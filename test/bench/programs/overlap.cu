/* SPDX-License-Identifier: MIT */
/* overlap API: 32 MiB allocated, used by a kernel of 20 us and freed, over four streams in turn. An
 * iteration's time is that of the whole loop, its work included, by the number of iterations. */
#include "bench.cuh"

int main(int argc, char **argv)
{
    constexpr int N_STREAMS = 4, WARM = 100, N_ITERATIONS = 4000;
    begin();
    Allocator allocator(word_at(argc, argv, 1));
    cudaStream_t streams[N_STREAMS];
    for (cudaStream_t &stream : streams) {
        stream = stream_make(cudaStreamNonBlocking);
    }
    double start_ns = 0;
    for (int i = 0; i < WARM + N_ITERATIONS; i++) {
        if (i == WARM) {
            MUST(cudaDeviceSynchronize());
            start_ns = now_ns();
        }
        cudaStream_t stream = streams[i % N_STREAMS];
        void *p = allocator.allocate(32 * MIB, stream);
        use(p, 20, stream);
        allocator.release(p, stream);
    }
    double host_ns = now_ns() - start_ns;
    MUST(cudaDeviceSynchronize());
    figure("iteration", (now_ns() - start_ns) / N_ITERATIONS, "ns");
    figure("host_iteration", host_ns / N_ITERATIONS, "ns");
    for (cudaStream_t stream : streams) {
        MUST(cudaStreamDestroy(stream));
    }
    return 0;
}
