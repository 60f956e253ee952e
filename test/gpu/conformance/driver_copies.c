/* SPDX-License-Identifier: MIT */
/* Every copy and memset of the driver API into, out of and between blocks, whole and in part, with
 * the bytes that arrive, and with sizes and pitches that do not fit. */
#include "driver.h"

#define WIDTH ((size_t)3000)
#define ROWS ((size_t)1000)
#define BYTES (WIDTH * ROWS)

static CUstream stream;
static unsigned char *bytes, *back;

static uint64_t checksum(CUdeviceptr p)
{
    uint64_t sum = 14695981039346656037u;
    MUST(cuCtxSynchronize());
    MUST(cuMemcpyDtoH(back, p, BYTES));
    for (size_t i = 0; i < BYTES; i++)
        sum = (sum ^ back[i]) * 1099511628211u;
    return sum;
}

static void sum_of(CUdeviceptr p)
{
    printf("checksum %016llx\n", (unsigned long long)checksum(p));
}

static void linear(CUdeviceptr p, CUdeviceptr q)
{
    PART("linear");
    MUST(cuMemsetD8(q, 0, BYTES));
    ANSWER(cuMemcpyHtoD(p, bytes, BYTES));
    sum_of(p);
    ANSWER(cuMemcpyHtoDAsync(q, bytes, BYTES - 1, stream));
    sum_of(q);
    ANSWER(cuMemcpyDtoD(q, p, BYTES));
    sum_of(q);
    ANSWER(cuMemcpyDtoDAsync(q + 1, p, BYTES - 1, stream));
    sum_of(q);
    ANSWER(cuMemcpy(q, p, BYTES));
    ANSWER(cuMemcpyAsync(q + 7, p, 1001, stream));
    sum_of(q);
    ANSWER(cuMemcpyDtoHAsync(back, q, BYTES, stream));
    ANSWER(cuMemcpyDtoD(q, p, 0));
    ANSWER(cuMemcpyDtoD(0, p, 16));
    ANSWER(cuMemcpyDtoD(q, 0, 16));
    ANSWER(cuMemcpyHtoD(q, NULL, 0));
    sum_of(q);
}

static void sets(CUdeviceptr p)
{
    PART("memsets");
    ANSWER(cuMemsetD8(p, 0x11, BYTES));
    ANSWER(cuMemsetD16(p, 0x2222, BYTES / 2));
    ANSWER(cuMemsetD32(p, 0x33333333, BYTES / 4));
    sum_of(p);
    ANSWER(cuMemsetD16(p + 1, 0x2222, 10));
    ANSWER(cuMemsetD32(p + 2, 0x33333333, 10));
    ANSWER(cuMemsetD2D8(p, WIDTH, 0x44, WIDTH - 8, ROWS));
    ANSWER(cuMemsetD2D16(p, WIDTH, 0x5555, 100, ROWS));
    ANSWER(cuMemsetD2D32(p, WIDTH, 0x66666666, 10, ROWS));
    sum_of(p);
    ANSWER(cuMemsetD2D8(p, 10, 0x44, WIDTH, ROWS));
    ANSWER(cuMemsetD8Async(p, 0x77, BYTES / 2, stream));
    ANSWER(cuMemsetD16Async(p, 0x8888, BYTES / 8, stream));
    ANSWER(cuMemsetD32Async(p, 0x99999999, BYTES / 16, stream));
    sum_of(p);
}

static void plane(CUdeviceptr p, CUdeviceptr q)
{
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = p,
        .srcPitch = WIDTH,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = q,
        .dstPitch = WIDTH,
        .WidthInBytes = WIDTH / 2,
        .Height = ROWS,
    };
    PART("planes");
    MUST(cuMemcpyHtoD(p, bytes, BYTES));
    MUST(cuMemsetD8(q, 0, BYTES));
    ANSWER(cuMemcpy2D(&copy));
    sum_of(q);
    copy.srcXInBytes = copy.dstXInBytes = WIDTH / 2;
    ANSWER(cuMemcpy2DAsync(&copy, stream));
    sum_of(q);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = bytes;
    ANSWER(cuMemcpy2DUnaligned(&copy));
    sum_of(q);
}

/* All that reaches past an end, by itself: what it writes is not looked at. */
static void beyond(CUdeviceptr p, CUdeviceptr q)
{
    CUDA_MEMCPY2D tall = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = p,
        .srcPitch = WIDTH,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = q,
        .dstPitch = WIDTH,
        .WidthInBytes = WIDTH / 2,
        .Height = ROWS + 1,
    };
    PART("past the end");
    ANSWER(cuMemcpyDtoD(q, p + 1, BYTES));
    ANSWER(cuMemcpyDtoD(q + 1, p, BYTES));
    ANSWER(cuMemcpyDtoDAsync(q + 1, p, BYTES, stream));
    ANSWER(cuMemsetD16(p, 0x2222, BYTES / 2 + 1));
    ANSWER(cuMemsetD32(p, 0x2222, BYTES / 4 + 1));
    ANSWER(cuMemsetD2D8(p, WIDTH, 0x44, WIDTH, ROWS + 1));
    ANSWER(cuMemcpy2D(&tall));
    ANSWER(cuCtxSynchronize());
}

static void volume(CUdeviceptr p, CUdeviceptr q)
{
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = p,
        .srcPitch = WIDTH,
        .srcHeight = ROWS / 4,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = q,
        .dstPitch = WIDTH,
        .dstHeight = ROWS / 4,
        .WidthInBytes = WIDTH - 100,
        .Height = ROWS / 4 - 3,
        .Depth = 4,
    };
    PART("volumes");
    MUST(cuMemsetD8(q, 0, BYTES));
    ANSWER(cuMemcpy3D(&copy));
    sum_of(q);
    copy.srcZ = 1;
    copy.Depth = 3;
    ANSWER(cuMemcpy3DAsync(&copy, stream));
    sum_of(q);
}

static void all(const char *name, CUdeviceptr p, CUdeviceptr q)
{
    printf("\n[between blocks of %s]\n", name);
    linear(p, q);
    sets(p);
    plane(p, q);
    volume(p, q);
    beyond(p, q);
}

int main(void)
{
    CUdeviceptr p, q;
    truth_start();
    bytes = malloc(BYTES);
    back = malloc(BYTES);
    if (!bytes || !back)
        return 1;
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i * 31 + i / 4096);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc(&p, BYTES));
    MUST(cuMemAlloc(&q, BYTES));
    all("cuMemAlloc", p, q);
    MUST(cuMemFree(p));
    MUST(cuMemAllocAsync(&p, BYTES, stream));
    MUST(cuStreamSynchronize(stream));
    all("cuMemAllocAsync and cuMemAlloc", p, q);
    MUST(cuMemFree(q));
    MUST(cuMemAllocAsync(&q, BYTES, stream));
    MUST(cuStreamSynchronize(stream));
    all("cuMemAllocAsync", p, q);
    ANSWER(cuMemFreeAsync(p, stream));
    ANSWER(cuMemFreeAsync(q, stream));
    ANSWER(cuStreamSynchronize(stream));
    free(bytes);
    free(back);
    return 0;
}
