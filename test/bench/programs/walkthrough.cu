/* SPDX-License-Identifier: MIT */
/* walkthrough API: the five calls +10 +1 -10 +4 +11 at 4 GiB a step, each block used by a kernel.
 */
#include "bench.cuh"

namespace {

void *timed(const Allocator &allocator, const char *name, size_t gib, cudaStream_t stream)
{
    double start_ns = now_ns();
    void *p = allocator.allocate(gib * GIB, stream);
    figure(name, now_ns() - start_ns, "ns");
    use(p, 1, stream);
    return p;
}

} /* namespace */

int main(int argc, char **argv)
{
    begin();
    Allocator allocator(word_at(argc, argv, 1));
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    double start_ns = now_ns();
    void *ten = timed(allocator, "malloc_40", 40, stream);
    void *one = timed(allocator, "malloc_4", 4, stream);
    double free_ns = now_ns();
    allocator.release(ten, stream);
    figure("free_40", now_ns() - free_ns, "ns");
    void *four = timed(allocator, "malloc_16", 16, stream);
    void *eleven = timed(allocator, "malloc_44", 44, stream);
    figure("all", now_ns() - start_ns, "ns");
    MUST(cudaDeviceSynchronize());
    figure("live_peak", 64.0 * GIB, "bytes");
    wait_for_word("held");
    allocator.release(one, stream);
    allocator.release(four, stream);
    allocator.release(eleven, stream);
    MUST(cudaDeviceSynchronize());
    MUST(cudaStreamDestroy(stream));
    return 0;
}
