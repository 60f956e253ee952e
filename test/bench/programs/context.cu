/* SPDX-License-Identifier: MIT */
/* Makes a context and a stream, runs an empty kernel on it and allocates nothing, so that somebody
 * outside can see what that takes. */
#include "bench.cuh"

int main()
{
    begin();
    cudaStream_t stream = stream_make(cudaStreamNonBlocking);
    spin(0, stream);
    MUST(cudaStreamSynchronize(stream));
    wait_for_word("held");
    MUST(cudaStreamDestroy(stream));
    return 0;
}
