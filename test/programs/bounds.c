/* SPDX-License-Identifier: MIT */
/* Memory a program does not own: past the end of a block, after its free, after the end of its
 * context. The answers need the driver's own blocks, so this program is compared bare only. */
#include "truth.h"

#define BYTES (5 * MIB + 13)

static void ends(const char *kind, CUdeviceptr p)
{
    char bytes[64] = {0};
    PART(kind);
    ANSWER(cuMemsetD8(p, 1, BYTES));
    ANSWER(cuMemsetD8(p, 1, BYTES + 1));
    ANSWER(cuMemsetD8(p + BYTES - 1, 1, 1));
    ANSWER(cuMemsetD8(p + BYTES - 1, 1, 2));
    ANSWER(cuMemsetD8Async(p, 1, BYTES + 1, NULL));
    ANSWER(cuMemcpyDtoD(p, p + 2 * MIB, 3 * MIB + 13));
    ANSWER(cuMemcpyDtoD(p, p + 2 * MIB, 3 * MIB + 14));
    ANSWER(cuMemcpyHtoD(p + BYTES - 64, bytes, 64));
    ANSWER(cuMemcpyHtoD(p + BYTES - 63, bytes, 64));
    ANSWER(cuMemcpyDtoH(bytes, p + BYTES - 63, 64));
}

static void freed(void)
{
    CUdeviceptr p;
    char byte;
    PART("after free");
    MUST(cuMemAlloc(&p, 64 * MIB));
    MUST(cuMemFree(p));
    ANSWER(cuMemsetD8(p, 0, 16));
    ANSWER(cuMemcpyDtoH(&byte, p, 1));
    ANSWER(cuMemcpyHtoD(p, &byte, 1));
}

static void context_gone(void)
{
    CUcontext mine, second;
    CUdeviceptr p, q;
    PART("after the end of the context");
    MUST(cuCtxGetCurrent(&mine));
    MUST(cuCtxCreate_v2(&second, 0, 0));
    MUST(cuMemAlloc(&p, 16 * MIB));
    MUST(cuMemAllocAsync(&q, 16 * MIB, NULL));
    MUST(cuCtxSynchronize());
    MUST(cuCtxSetCurrent(mine));
    ANSWER(cuMemsetD8(p, 1, 16));
    ANSWER(cuCtxDestroy(second));
    ANSWER(cuMemsetD8(p, 1, 16));
    ANSWER(cuMemsetD8(q, 1, 16));
    ANSWER(cuMemFree(q));
}

int main(void)
{
    CUdeviceptr p, q;
    truth_start();
    MUST(cuMemAlloc(&p, BYTES));
    MUST(cuMemAllocAsync(&q, BYTES, NULL));
    MUST(cuCtxSynchronize());
    ends("cuMemAlloc", p);
    ends("cuMemAllocAsync", q);
    MUST(cuMemFree(p));
    MUST(cuMemFree(q));
    freed();
    context_gone();
    return 0;
}
