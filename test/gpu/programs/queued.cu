/* SPDX-License-Identifier: MIT */
/* cudaFree while a non-blocking stream has work queued that writes the block; then at once
 * cudaMalloc, a memset by the host and use on another stream. The old work must not touch the new
 * block. */
#include "common.cuh"

namespace {

bool rounds(const char *name, size_t bytes, int n)
{
    cudaStream_t old_stream = stream_make(cudaStreamNonBlocking);
    cudaStream_t new_stream = stream_make(cudaStreamNonBlocking);
    Tally *tally = tally_make();
    for (int i = 0; i < n; i++) {
        void *old_block, *new_block;
        MUST(cudaMalloc(&old_block, bytes));
        spin(10, old_stream);
        fill(old_block, bytes, 2 * i, old_stream);
        MUST(cudaFree(old_block));

        MUST(cudaMalloc(&new_block, bytes));
        MUST(cudaMemset(new_block, 0x5a, bytes));
        /* A memset on the legacy stream is not ordered before a non-blocking one. */
        MUST(cudaStreamSynchronize(nullptr));
        fill(new_block, bytes / 2, 2 * i + 1, new_stream);
        check(new_block, bytes / 2, 2 * i + 1, tally, new_stream);
        MUST(cudaStreamSynchronize(old_stream));
        check(new_block, bytes / 2, 2 * i + 1, tally, new_stream);

        unsigned char last[64];
        MUST(cudaMemcpyAsync(last, static_cast<char *>(new_block) + bytes - sizeof last,
                             sizeof last, cudaMemcpyDeviceToHost, new_stream));
        MUST(cudaStreamSynchronize(new_stream));
        for (unsigned char byte : last) {
            if (byte != 0x5a) {
                printf("round %d: the memset was overwritten\n", i);
                return false;
            }
        }
        MUST(cudaFree(new_block));
    }
    MUST(cudaStreamDestroy(old_stream));
    MUST(cudaStreamDestroy(new_stream));
    return tally_end(name, tally);
}

} /* namespace */

int main()
{
    begin();
    bool good = rounds("2 MiB", 2 * MIB, 30);
    good = rounds("256 MiB", 256 * MIB, 30) && good;
    good = rounds("3 GiB", 3 * GIB, 20) && good;
    return good ? 0 : 1;
}
