/* SPDX-License-Identifier: MIT */
/* Pitched memory: the pitch for widths and element sizes of every kind, what is said of such a
 * block, where it ends, and what is refused. */
#include "driver.h"

static const size_t widths[] = {1, 511, 512, 513, 4096, 100003, 2 * MIB, 2 * MIB + 1};
static const size_t heights[] = {1, 3, 500};

static void block(size_t width, size_t height, unsigned element)
{
    CUdeviceptr p = 0;
    size_t pitch = 0;
    printf("%zu by %zu, elements of %u\n", width, height, element);
    CUresult result = cuMemAllocPitch(&p, &pitch, width, height, element);
    truth_answer("cuMemAllocPitch", result);
    VALUE(pitch);
    if (result != CUDA_SUCCESS)
        return;
    observe_range(&observer, p, p);
    observe_range(&observer, p, p + pitch * (height - 1) + width - 1);
    ANSWER(cuMemsetD2D8(p, pitch, 5, width, height));
    ANSWER(cuMemsetD8(p, 6, pitch * (height - 1) + width));
    truth_ask("it holds", truth_holds(p, pitch * (height - 1) + width, 6));
    ANSWER(cuMemFree(p + 1));
    ANSWER(cuMemFree(p));
    ANSWER(cuMemFree(p));
}

static void refused(void)
{
    CUdeviceptr p = 0;
    size_t pitch = 0;
    PART("refused");
    ANSWER(cuMemAllocPitch(&p, &pitch, 0, 4, 4));
    ANSWER(cuMemAllocPitch(&p, &pitch, 4, 0, 4));
    ANSWER(cuMemAllocPitch(&p, &pitch, 4096, 1024, 0));
    ANSWER(cuMemAllocPitch(&p, &pitch, 4096, 1024, 3));
    ANSWER(cuMemAllocPitch(&p, &pitch, 4096, 1024, 32));
    ANSWER(cuMemAllocPitch(&p, &pitch, (size_t)1 << 40, 1 << 10, 4));
    ANSWER(cuMemAllocPitch(&p, &pitch, SIZE_MAX, 2, 4));
    ANSWER(cuMemAllocPitch(&p, &pitch, SIZE_MAX / 2, SIZE_MAX / 2, 4));
    ASK(p == 0);
}

/* Beside plain memory: a row after the other is as good as a pitch. */
static void packed(void)
{
    CUdeviceptr p, q;
    size_t pitch = 0, width = 4000, height = 1000;
    PART("packed into plain memory");
    ANSWER(cuMemAllocPitch(&p, &pitch, width, height, 4));
    ANSWER(cuMemAlloc(&q, width * height));
    ANSWER(cuMemsetD2D8(p, pitch, 7, width, height));
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = p,
                          .srcPitch = pitch,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = q,
                          .dstPitch = width,
                          .WidthInBytes = width,
                          .Height = height};
    ANSWER(cuMemcpy2D(&copy));
    truth_ask("it holds", truth_holds(q, width * height, 7));
    ANSWER(cuMemFree(p));
    ANSWER(cuMemFree(q));
}

int main(void)
{
    static const unsigned elements[] = {4, 8, 16};
    CUdeviceptr p;
    size_t pitch;
    truth_start();
    for (size_t w = 0; w < COUNT(widths); w++)
        for (size_t h = 0; h < COUNT(heights); h++)
            for (size_t e = 0; e < COUNT(elements); e++)
                if (widths[w] * heights[h] <= 128 * MIB)
                    block(widths[w], heights[h], elements[e]);
    refused();
    packed();
    PART("attributes");
    ANSWER(cuMemAllocPitch(&p, &pitch, 100003, 100, 16));
    observe(p, p);
    observe(p, p + 4 * MIB + 5);
    ANSWER(cuMemFreeAsync(p, CU_STREAM_LEGACY));
    ANSWER(cuCtxSynchronize());
    return 0;
}
