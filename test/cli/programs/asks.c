/* SPDX-License-Identifier: MIT */
/* Asks CUDA for as much as its number of arguments says: nothing, a start, what memory is free, and
 * a block that is too small for the pool. */
#include <cuda.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    CUcontext context;
    CUdeviceptr block;
    size_t free_bytes, all_bytes;
    (void)argv;
    if (puts("asks") < 0 || argc < 2)
        return 0;
    if (cuInit(0) || argc < 3)
        return argc >= 3;
    if (cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
        cuMemGetInfo(&free_bytes, &all_bytes))
        return 1;
    return argc >= 4 && cuMemAlloc(&block, 100);
}
