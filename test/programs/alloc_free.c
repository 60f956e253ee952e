/* SPDX-License-Identifier: MIT */
/* cuMemAlloc, cuMemAllocPitch and cuMemFree, used rightly and wrongly. */
#include "truth.h"

static void sizes(void)
{
    static const size_t all[] = {1,           511,           4096,         MIB - 1, MIB,
                                 2 * MIB - 1, 2 * MIB,       2 * MIB + 1,  3 * MIB, 5 * MIB + 13,
                                 32 * MIB,    100 * MIB + 7, 256 * MIB - 1};
    PART("sizes");
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        CUdeviceptr p = 0;
        CUresult result = cuMemAlloc(&p, all[i]);
        printf("%zu bytes: %s", all[i], truth_code(result));
        printf(", aligned to 512: %d, to 2 MiB if as large: %d", p % 512 == 0,
               all[i] < 2 * MIB || p % (2 * MIB) == 0);
        printf(", filled: %s", truth_code(cuMemsetD8(p, 0x5a, all[i])));
        printf(", freed: %s\n", truth_code(cuMemFree(p)));
    }
}

static void bad_requests(void)
{
    CUdeviceptr p = 0x1234;
    PART("bad requests");
    ANSWER(cuMemAlloc(&p, 0));
    ASK(p == 0x1234);
    ANSWER(cuMemAlloc(&p, (size_t)1 << 50));
    ASK(p == 0x1234);
    ANSWER(cuMemAlloc(&p, SIZE_MAX));
    ANSWER(cuMemAlloc(&p, SIZE_MAX - 4095));
    ANSWER(cuMemAlloc(NULL, 4 * MIB));
    ANSWER(cuMemAlloc(NULL, 0));
    ANSWER(cuMemAlloc(&p, 4 * MIB));
    ANSWER(cuMemFree(p));
}

static void bad_frees(size_t bytes)
{
    CUdeviceptr p, q;
    void *pinned;
    int on_stack = 0;
    printf("\n[bad frees around blocks of %zu bytes]\n", bytes);
    ANSWER(cuMemAlloc(&p, bytes));
    ANSWER(cuMemAlloc(&q, bytes));
    ASK(p != q);
    ANSWER(cuMemsetD8(q, 0x77, bytes));
    ANSWER(cuMemFree(0));
    ANSWER(cuMemFree(p + 1));
    ANSWER(cuMemFree(p + bytes / 2));
    ANSWER(cuMemFree(p + bytes - 1));
    ANSWER(cuMemFree(0x10));
    ANSWER(cuMemFree(0xdead0000));
    ANSWER(cuMemFree((CUdeviceptr)(uintptr_t)&on_stack));
    ANSWER(cuMemHostAlloc(&pinned, 4096, 0));
    ANSWER(cuMemFree((CUdeviceptr)(uintptr_t)pinned));
    ANSWER(cuMemFreeHost(pinned));
    ANSWER(cuMemFree(p));
    ANSWER(cuMemFree(p));
    ANSWER(cuMemFree(p));
    truth_ask("the other block is whole", truth_holds(q, bytes, 0x77));
    ANSWER(cuMemFree(q));
    ANSWER(cuMemFree(q));
}

static void freed_range(void)
{
    CUdeviceptr p;
    PART("the range of a freed block");
    MUST(cuMemAlloc(&p, 64 * MIB));
    ANSWER(cuMemGetAddressRange(NULL, NULL, p));
    ANSWER(cuMemFree(p));
    ANSWER(cuMemGetAddressRange(NULL, NULL, p));
}

static void pitched(void)
{
    CUdeviceptr p = 0;
    size_t pitch = 0;
    PART("pitched");
    ANSWER(cuMemAllocPitch(&p, &pitch, 1000, 3000, 4));
    VALUE(pitch);
    ANSWER(cuMemsetD2D8(p, pitch, 0x21, 1000, 3000));
    ANSWER(cuMemFree(p));
    ANSWER(cuMemFree(p));
    ANSWER(cuMemAllocPitch(&p, &pitch, 0, 4, 4));
    ANSWER(cuMemAllocPitch(&p, &pitch, 4, 0, 4));
    ANSWER(cuMemAllocPitch(&p, &pitch, 64, 4, 3));
}

static void many(void)
{
    CUdeviceptr blocks[64];
    bool distinct = true, whole = true;
    PART("many at once");
    for (int i = 0; i < 64; i++) {
        MUST(cuMemAlloc(&blocks[i], 2 * MIB + (size_t)i * 4096));
        MUST(cuMemsetD8(blocks[i], (unsigned char)i, 2 * MIB + (size_t)i * 4096));
        for (int k = 0; k < i; k++)
            distinct = distinct && blocks[k] != blocks[i];
    }
    for (int i = 0; i < 64; i++)
        whole = whole && truth_holds(blocks[i], 2 * MIB + (size_t)i * 4096, (unsigned char)i);
    ASK(distinct);
    ASK(whole);
    for (int i = 0; i < 64; i++)
        MUST(cuMemFree(blocks[i * 37 % 64]));
}

int main(void)
{
    CUdeviceptr p;
    ANSWER(cuMemAlloc(&p, 4 * MIB));
    ANSWER(cuMemFree(0));
    truth_start();
    sizes();
    bad_requests();
    bad_frees(4096);
    bad_frees(8 * MIB + 5);
    freed_range();
    pitched();
    many();
    return 0;
}
