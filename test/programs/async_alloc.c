/* SPDX-License-Identifier: MIT */
/* cuMemAllocAsync and cuMemFreeAsync: every kind of stream, every pair of allocating and freeing
 * call, wrong use. */
#include "truth.h"

struct named_stream {
    const char *name;
    CUstream stream;
};

static struct named_stream streams[5] = {{"NULL", NULL},
                                         {"legacy", CU_STREAM_LEGACY},
                                         {"per-thread", CU_STREAM_PER_THREAD},
                                         {"blocking", NULL},
                                         {"non-blocking", NULL}};

static void pairs(size_t bytes)
{
    printf("\n[alloc on one stream, free on another, %zu bytes]\n", bytes);
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 5; b++) {
            CUdeviceptr p = 0;
            CUstream from = streams[a].stream, to = streams[b].stream;
            CUresult got = cuMemAllocAsync(&p, bytes, from);
            CUresult filled = cuMemsetD8Async(p, 0x11, bytes, from);
            CUresult waited = cuStreamSynchronize(from);
            CUresult freed = cuMemFreeAsync(p, to);
            CUresult again = cuMemFreeAsync(p, to);
            printf("%s to %s: %s %s %s %s, again: %s\n", streams[a].name, streams[b].name,
                   truth_code(got), truth_code(filled), truth_code(waited), truth_code(freed),
                   truth_code(again));
        }
    ANSWER(cuCtxSynchronize());
}

/* No second free of cudaMalloc memory that was freed with cuMemFreeAsync: the driver crashes on it.
 */
static void kinds(size_t bytes)
{
    CUstream s = streams[4].stream;
    CUdeviceptr p, q;
    printf("\n[mixed kinds, %zu bytes]\n", bytes);
    ANSWER(cuMemAlloc(&p, bytes));
    ANSWER(cuMemFreeAsync(p, s));
    ANSWER(cuStreamSynchronize(s));
    ANSWER(cuMemAllocAsync(&q, bytes, s));
    ANSWER(cuStreamSynchronize(s));
    ANSWER(cuMemFree(q));
    ANSWER(cuMemFree(q));
    ANSWER(cuMemAllocAsync(&q, bytes, s));
    ANSWER(cuMemFreeAsync(q, s));
    ANSWER(cuStreamSynchronize(s));
}

static void bad_requests(void)
{
    CUstream s = streams[3].stream;
    CUdeviceptr p = 0x1234;
    PART("bad requests");
    ANSWER(cuMemAllocAsync(&p, 0, s));
    ASK(p == 0x1234);
    ASK(p == 0);
    p = 0x1234;
    ANSWER(cuMemAllocAsync(&p, (size_t)1 << 50, s));
    ASK(p == 0x1234);
    ANSWER(cuMemAllocAsync(&p, SIZE_MAX, s));
    ANSWER(cuMemAllocAsync(NULL, 4 * MIB, s));
    ANSWER(cuMemFreeAsync(0, s));
    ANSWER(cuMemFreeAsync(0x10, s));
    ANSWER(cuMemFreeAsync(0xdead0000, s));
    ANSWER(cuMemFreeAsync((CUdeviceptr)(uintptr_t)&p, s));
    MUST(cuMemAllocAsync(&p, 8 * MIB, s));
    ANSWER(cuMemFreeAsync(p + 512, s));
    ANSWER(cuMemFreeAsync(p + 4 * MIB, s));
    ANSWER(cuMemFree(p + 4 * MIB));
    ANSWER(cuMemsetD8Async(p, 1, 8 * MIB, s));
    ANSWER(cuMemFreeAsync(p, s));
    ANSWER(cuStreamSynchronize(s));
}

/* A block freed on a held stream stays whole until that stream reaches the free. */
static void held_free(void)
{
    struct gate gate;
    CUstream s = streams[4].stream;
    CUdeviceptr p, q;
    PART("a free that is not reached yet");
    gate_init(&gate);
    MUST(cuMemAllocAsync(&p, 16 * MIB, s));
    MUST(cuMemsetD8Async(p, 0x3c, 16 * MIB, s));
    MUST(cuStreamSynchronize(s));
    gate_close(&gate, s);
    ANSWER(cuMemFreeAsync(p, s));
    ANSWER(cuMemAllocAsync(&q, 16 * MIB, CU_STREAM_PER_THREAD));
    ANSWER(cuMemsetD8Async(q, 0x4d, 16 * MIB, CU_STREAM_PER_THREAD));
    ANSWER(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    ASK(p == q);
    ANSWER(cuStreamQuery(s));
    gate_open(&gate);
    ANSWER(cuStreamSynchronize(s));
    truth_ask("the second block is whole", truth_holds(q, 16 * MIB, 0x4d));
    ANSWER(cuMemFreeAsync(q, s));
    ANSWER(cuStreamSynchronize(s));
    ANSWER(cuMemFreeHost((void *)(uintptr_t)gate.word));
}

int main(void)
{
    truth_start();
    MUST(cuStreamCreate(&streams[3].stream, CU_STREAM_DEFAULT));
    MUST(cuStreamCreate(&streams[4].stream, CU_STREAM_NON_BLOCKING));
    pairs(4096);
    pairs(6 * MIB + 3);
    kinds(4096);
    kinds(12 * MIB);
    bad_requests();
    held_free();
    ANSWER(cuStreamDestroy(streams[3].stream));
    ANSWER(cuStreamDestroy(streams[4].stream));
    return 0;
}
