/* SPDX-License-Identifier: MIT */
/* One large block comes and goes. */
#include <cuda.h>

int main(void)
{
    CUcontext context;
    CUdeviceptr block;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
           cuMemAlloc(&block, 64 << 20) || cuMemFree(block);
}
