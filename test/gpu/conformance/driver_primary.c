/* SPDX-License-Identifier: MIT */
/* The primary context by the driver API, released and reset with memory of it alive, and retained
 * again: what is left of memory of each kind, and that everything works as before. */
#include "driver.h"

static void ended(bool by_reset, size_t bytes)
{
    CUcontext context = NULL, again = NULL;
    CUdeviceptr p = 0, q = 0;
    unsigned flags;
    int active = -1;
    part(by_reset ? "the primary context is reset" : "the primary context is released", bytes);
    ANSWER(cuDevicePrimaryCtxRetain(&context, 0));
    ANSWER(cuCtxSetCurrent(context));
    ANSWER(cuMemAlloc(&p, bytes));
    ANSWER(cuMemAllocAsync(&q, bytes, CU_STREAM_LEGACY));
    ANSWER(cuCtxSynchronize());
    ANSWER(by_reset ? cuDevicePrimaryCtxReset(0) : cuDevicePrimaryCtxRelease(0));
    ANSWER(cuDevicePrimaryCtxGetState(0, &flags, &active));
    VALUE(active);
    ANSWER(cuMemAlloc(&p, bytes));
    ANSWER(cuDevicePrimaryCtxRetain(&again, 0));
    ANSWER(cuCtxSetCurrent(again));
    ANSWER(cuMemFree(p));
    ANSWER(cuMemsetD8(q, 1, bytes));
    ANSWER(cuCtxSynchronize());
    ANSWER(cuMemFree(q));
    for (size_t i = 0; i < COUNT(sizes); i++) {
        ANSWER(cuMemAlloc(&p, sizes[i]));
        ANSWER(cuMemsetD8(p, 1, sizes[i]));
        truth_ask("it holds", truth_holds(p, sizes[i], 1));
        ANSWER(cuMemFree(p));
    }
    ANSWER(cuDevicePrimaryCtxRelease(0));
    if (by_reset)
        cuDevicePrimaryCtxRelease(0);
    ANSWER(cuCtxSetCurrent(NULL));
}

int main(void)
{
    truth_start();
    MUST(cuDevicePrimaryCtxRelease(0));
    for (size_t i = 0; i < COUNT(sizes); i++) {
        ended(false, sizes[i]);
        ended(true, sizes[i]);
    }
    return 0;
}
