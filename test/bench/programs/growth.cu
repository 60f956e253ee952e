/* SPDX-License-Identifier: MIT */
/* growth API GIB: one large allocation of a process that has made a small one only. */
#include "bench.cuh"

int main(int argc, char **argv)
{
    begin();
    Allocator allocator(word_at(argc, argv, 1));
    size_t bytes = static_cast<size_t>(number_at(argc, argv, 2) * GIB);
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    double start_ns = now_ns();
    void *first = allocator.allocate(2 * MIB, stream);
    figure("first", now_ns() - start_ns, "ns");
    use(first, 1, stream);
    MUST(cudaDeviceSynchronize());
    start_ns = now_ns();
    void *p = allocator.allocate(bytes, stream);
    figure("malloc", now_ns() - start_ns, "ns");
    use(p, 1, stream);
    MUST(cudaDeviceSynchronize());
    figure("live_peak", static_cast<double>(bytes + 2 * MIB), "bytes");
    wait_for_word("held");
    start_ns = now_ns();
    allocator.release(p, stream);
    figure("free", now_ns() - start_ns, "ns");
    allocator.release(first, stream);
    MUST(cudaDeviceSynchronize());
    MUST(cudaStreamDestroy(stream));
    return 0;
}
