/* SPDX-License-Identifier: MIT */
/* The five calls +10 +1 -10 +4 +11 at 4 GiB a step on cudaMallocAsync, each block written by a
 * kernel. Says how long the host was in each call; somebody outside reads at the two marks what the
 * device holds. */
#include "common.cuh"

namespace {

void *allocate(size_t gib, uint64_t seed, cudaStream_t stream)
{
    void *p;
    double start_us = now_us();
    MUST(cudaMallocAsync(&p, gib * GIB, stream));
    printf("# malloc_%zu_us %.1f\n", gib, now_us() - start_us);
    fill(p, gib * GIB, seed, stream);
    return p;
}

} /* namespace */

int main()
{
    begin();
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    Tally *tally = tally_make();
    fill(tally, 8, 0, stream);
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaMemset(tally, 0, sizeof *tally));
    MUST(cudaDeviceSynchronize());
    wait_for_word("before");

    double start_us = now_us();
    void *ten = allocate(40, 1, stream);
    void *one = allocate(4, 2, stream);
    double free_us = now_us();
    MUST(cudaFreeAsync(ten, stream));
    printf("# free_40_us %.1f\n", now_us() - free_us);
    void *four = allocate(16, 3, stream);
    void *eleven = allocate(44, 4, stream);
    printf("# all_five_us %.1f\n", now_us() - start_us);
    check(one, 4 * GIB, 2, tally, stream);
    check(four, 16 * GIB, 3, tally, stream);
    check(eleven, 44 * GIB, 4, tally, stream);
    MUST(cudaDeviceSynchronize());
    wait_for_word("after");

    MUST(cudaFreeAsync(one, stream));
    MUST(cudaFreeAsync(four, stream));
    MUST(cudaFreeAsync(eleven, stream));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaStreamDestroy(stream));
    return tally_end("the five calls", tally) ? 0 : 1;
}
