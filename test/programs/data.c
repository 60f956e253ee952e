/* SPDX-License-Identifier: MIT */
/* Bytes survive: patterns through memset and copies on several streams, and large blocks freed and
 * allocated again. */
#include "truth.h"

#define N_STREAMS 4
#define N_BLOCKS 24

static uint64_t checksum(const unsigned char *bytes, size_t n)
{
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ bytes[i]) * 1099511628211u;
    return sum;
}

static void pattern(unsigned char *bytes, size_t n, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(state >> 24);
    }
}

/* Host to device on one stream, device to device on a second, device to host on a third, ordered by
 * events. */
static void chain(CUstream *streams, size_t bytes)
{
    unsigned char *in, *out;
    CUdeviceptr a, b;
    CUevent first, second;
    MUST(cuMemHostAlloc((void **)&in, bytes, 0));
    MUST(cuMemHostAlloc((void **)&out, bytes, 0));
    MUST(cuEventCreate(&first, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventCreate(&second, CU_EVENT_DISABLE_TIMING));
    pattern(in, bytes, (uint32_t)bytes);
    memset(out, 0, bytes);
    MUST(cuMemAllocAsync(&a, bytes, streams[0]));
    MUST(cuMemAlloc(&b, bytes));
    MUST(cuMemcpyHtoDAsync(a, in, bytes, streams[0]));
    MUST(cuEventRecord(first, streams[0]));
    MUST(cuStreamWaitEvent(streams[1], first, 0));
    MUST(cuMemcpyDtoDAsync(b, a, bytes, streams[1]));
    MUST(cuMemsetD8Async(b + bytes / 2, 0xee, bytes / 4, streams[1]));
    MUST(cuEventRecord(second, streams[1]));
    MUST(cuStreamWaitEvent(streams[2], second, 0));
    MUST(cuMemcpyDtoHAsync(out, b, bytes, streams[2]));
    MUST(cuMemFreeAsync(a, streams[2]));
    MUST(cuStreamSynchronize(streams[2]));
    memset(in + bytes / 2, 0xee, bytes / 4);
    printf("%zu bytes: same %d, checksum %016llx\n", bytes, memcmp(in, out, bytes) == 0,
           (unsigned long long)checksum(out, bytes));
    MUST(cuMemFree(b));
    MUST(cuEventDestroy(first));
    MUST(cuEventDestroy(second));
    MUST(cuMemFreeHost(in));
    MUST(cuMemFreeHost(out));
}

static void widths(void)
{
    CUdeviceptr p;
    unsigned char *bytes = malloc(MIB);
    MUST(cuMemAlloc(&p, MIB));
    MUST(cuMemsetD8(p, 0x01, MIB));
    MUST(cuMemsetD16(p + 4096, 0x1234, 1000));
    MUST(cuMemsetD32(p + 65536, 0x89abcdef, 5000));
    MUST(cuMemsetD2D8(p + 200000, 1024, 0x7e, 100, 50));
    MUST(cuMemsetD16Async(p + 300000, 0x4321, 77, NULL));
    MUST(cuMemsetD32Async(p + 400000, 0x10203040, 77, CU_STREAM_LEGACY));
    MUST(cuMemcpy(p + 600000, p + 65536, 20000));
    MUST(cuMemcpyAsync(p + 700000, p + 200000, 60000, NULL));
    MUST(cuMemcpyDtoH(bytes, p, MIB));
    printf("memset widths: checksum %016llx\n", (unsigned long long)checksum(bytes, MIB));
    MUST(cuMemFree(p));
    free(bytes);
}

/* A seeded program of frees and allocations of both kinds; every block keeps its own byte until it
 * is freed. */
static void churn(CUstream *streams)
{
    CUdeviceptr blocks[N_BLOCKS] = {0};
    size_t sizes[N_BLOCKS] = {0};
    unsigned char bytes[N_BLOCKS] = {0};
    uint32_t state = 12345;
    int wrong = 0, n_checked = 0;
    for (int step = 0; step < 300; step++) {
        state = state * 1664525u + 1013904223u;
        int i = (int)(state >> 16) % N_BLOCKS;
        CUstream stream = streams[step % N_STREAMS];
        if (blocks[i]) {
            MUST(cuStreamSynchronize(streams[(i + 1) % N_STREAMS]));
            MUST(cuCtxSynchronize());
            unsigned char ends[2] = {0, 0};
            MUST(cuMemcpyDtoH(&ends[0], blocks[i], 1));
            MUST(cuMemcpyDtoH(&ends[1], blocks[i] + sizes[i] - 1, 1));
            wrong += ends[0] != bytes[i] || ends[1] != bytes[i];
            n_checked++;
            MUST(step % 3 ? cuMemFreeAsync(blocks[i], stream) : cuMemFree(blocks[i]));
            blocks[i] = 0;
            continue;
        }
        sizes[i] = (3 + (state >> 8) % 62) * MIB - state % 5;
        bytes[i] = (unsigned char)step;
        MUST(step % 2 ? cuMemAllocAsync(&blocks[i], sizes[i], stream)
                      : cuMemAlloc(&blocks[i], sizes[i]));
        MUST(cuMemsetD8Async(blocks[i], bytes[i], sizes[i], stream));
    }
    MUST(cuCtxSynchronize());
    for (int i = 0; i < N_BLOCKS; i++)
        if (blocks[i]) {
            wrong += !truth_holds(blocks[i], sizes[i], bytes[i]);
            n_checked++;
            MUST(cuMemFree(blocks[i]));
        }
    printf("churn: %d blocks checked, %d wrong\n", n_checked, wrong);
}

static void CUDA_CB append(void *log)
{
    size_t n = strlen(log);
    ((char *)log)[n] = (char)('a' + n);
}

static void host_functions(CUstream stream)
{
    char log[8] = "";
    for (int i = 0; i < 5; i++)
        MUST(cuLaunchHostFunc(stream, append, log));
    MUST(cuStreamSynchronize(stream));
    printf("host functions ran in order: %s\n", log);
}

int main(void)
{
    static const size_t sizes[] = {4096, MIB + 1, 3 * MIB, 8 * MIB, 33 * MIB + 77, 64 * MIB};
    CUstream streams[N_STREAMS];
    truth_start();
    for (int i = 0; i < N_STREAMS; i++)
        MUST(cuStreamCreate(&streams[i], i % 2 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        chain(streams, sizes[i]);
    widths();
    churn(streams);
    host_functions(streams[1]);
    for (int i = 0; i < N_STREAMS; i++)
        ANSWER(cuStreamDestroy(streams[i]));
    return 0;
}
