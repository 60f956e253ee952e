/* SPDX-License-Identifier: MIT */
/* A library that allocates: when it is asked to, and, with EARLY, already in its constructor. */
#include <cuda.h>

#include <stdio.h>

CUdeviceptr allocate(size_t bytes);
CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr address = 0;
    printf("allocate %d\n", (int)cuMemAlloc(&address, bytes));
    (void)fflush(stdout);
    return address;
}

#ifdef EARLY
__attribute__((constructor)) static void early(void)
{
    CUcontext context;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return;
    CUdeviceptr address = allocate(8ul << 20);
    printf("free %d\n", (int)cuMemFree(address));
    (void)fflush(stdout);
}
#endif
