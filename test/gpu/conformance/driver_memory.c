/* SPDX-License-Identifier: MIT */
/* Every kind of device memory in every size by the driver API: what its allocation answers, what is
 * said of its addresses, where it ends, and every way to free it, twice. */
#include "driver.h"

static CUstream stream, other;
static CUmemoryPool own_pool;

static CUresult plain(CUdeviceptr *p, size_t bytes)
{
    return cuMemAlloc(p, bytes);
}

static CUresult ordered(CUdeviceptr *p, size_t bytes)
{
    return cuMemAllocAsync(p, bytes, stream);
}

static CUresult ordered_legacy(CUdeviceptr *p, size_t bytes)
{
    return cuMemAllocAsync(p, bytes, CU_STREAM_LEGACY);
}

static CUresult ordered_thread(CUdeviceptr *p, size_t bytes)
{
    return cuMemAllocAsync(p, bytes, CU_STREAM_PER_THREAD);
}

static CUresult from_standard(CUdeviceptr *p, size_t bytes)
{
    CUmemoryPool standard;
    MUST(cuDeviceGetDefaultMemPool(&standard, 0));
    return cuMemAllocFromPoolAsync(p, bytes, standard, stream);
}

static CUresult from_own(CUdeviceptr *p, size_t bytes)
{
    return cuMemAllocFromPoolAsync(p, bytes, own_pool, stream);
}

static CUresult pitched(CUdeviceptr *p, size_t bytes)
{
    size_t pitch = 0;
    CUresult result = cuMemAllocPitch(p, &pitch, bytes / 4, 4, 16);
    VALUE(pitch);
    return result;
}

static const struct kind {
    const char *name;
    CUresult (*make)(CUdeviceptr *, size_t);
    bool is_ordered;
} kinds[] = {
    {"cuMemAlloc", plain, false},
    {"cuMemAllocAsync", ordered, true},
    {"cuMemAllocAsync, legacy stream", ordered_legacy, true},
    {"cuMemAllocAsync, stream of the thread", ordered_thread, true},
    {"cuMemAllocFromPoolAsync, default pool", from_standard, true},
    {"cuMemAllocFromPoolAsync, own pool", from_own, true},
    {"cuMemAllocPitch", pitched, false},
};

static CUresult free_ordered(CUdeviceptr p)
{
    return cuMemFreeAsync(p, stream);
}

static CUresult free_other(CUdeviceptr p)
{
    return cuMemFreeAsync(p, other);
}

static CUresult free_legacy(CUdeviceptr p)
{
    return cuMemFreeAsync(p, NULL);
}

static const struct way {
    const char *name;
    CUresult (*free)(CUdeviceptr);
} ways[] = {
    {"cuMemFree", cuMemFree},
    {"cuMemFreeAsync", free_ordered},
    {"cuMemFreeAsync on another stream", free_other},
    {"cuMemFreeAsync on the legacy stream", free_legacy},
};

static void ends(CUdeviceptr p, size_t bytes)
{
    char word[8] = {0};
    ANSWER(cuMemsetD8(p, 7, bytes));
    truth_ask("it holds what was set", truth_holds(p, bytes, 7));
    ANSWER(cuMemsetD8(p + bytes - 1, 9, 1));
    ANSWER(cuMemsetD8(p, 1, bytes + 1));
    ANSWER(cuMemsetD8(p + bytes - 1, 1, 2));
    ANSWER(cuMemsetD8Async(p, 1, bytes + 1, stream));
    ANSWER(cuStreamSynchronize(stream));
    ANSWER(cuMemcpyHtoD(p + bytes - 7, word, 8));
    ANSWER(cuMemcpyDtoH(word, p + bytes - 7, 8));
    ANSWER(cuMemcpyDtoH(word, p + bytes - 8, 8));
}

static void block(const struct kind *kind, size_t bytes)
{
    CUdeviceptr p = 0;
    part(kind->name, bytes);
    ANSWER(kind->make(&p, bytes));
    ASK(p != 0);
    ANSWER(cuCtxSynchronize());
    observe(p, p);
    printf("from inside\n");
    observe(p, p + bytes / 2);
    if (kind->make != pitched)
        ends(p, bytes);
    printf("last byte\n");
    observe(p, p + bytes - 1);
    ANSWER(cuMemFree(p + bytes / 2));
    ANSWER(cuMemFreeAsync(p + bytes / 2, stream));
    ANSWER(cuMemFree(p));
}

/* A free of plain memory that waits in a stream is not repeated before it is done: the driver takes
 * the second one, too, and crashes by it. */
static void pairs(size_t bytes)
{
    part("pairs", bytes);
    for (size_t k = 0; k < COUNT(kinds); k++) {
        for (size_t w = 0; w < COUNT(ways); w++) {
            CUdeviceptr p = 0;
            printf("%s, %s\n", kinds[k].name, ways[w].name);
            ANSWER(kinds[k].make(&p, bytes));
            ANSWER(cuCtxSynchronize());
            ANSWER(ways[w].free(p));
            if (kinds[k].is_ordered || ways[w].free == cuMemFree)
                ANSWER(ways[w].free(p));
            ANSWER(cuCtxSynchronize());
            ANSWER(ways[w].free(p));
        }
    }
}

/* What only memory that the program mapped itself allows. Last, because a driver that unmaps a
 * block may end the program at its free. */
static void mappings(size_t bytes)
{
    size_t pages = (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    part("as a mapping", bytes);
    for (size_t k = 0; k < COUNT(kinds); k++) {
        unsigned long long flags = 77;
        CUdeviceptr p = 0;
        printf("%s\n", kinds[k].name);
        MUST(kinds[k].make(&p, bytes));
        MUST(cuCtxSynchronize());
        ANSWER(cuMemGetAccess(&flags, &access.location, p));
        VALUE(flags);
        ANSWER(cuMemGetAccess(&flags, &access.location, p + bytes / 2));
        ANSWER(cuMemSetAccess(p, pages, &access, 1));
        ANSWER(cuMemUnmap(p, pages));
        ANSWER(cuMemsetD8(p, 1, kinds[k].make == pitched ? 1 : bytes));
        /* A free of stream-ordered memory does not wait for the fill. */
        ANSWER(cuCtxSynchronize());
        ANSWER(cuMemFree(p));
        ANSWER(cuMemGetAccess(&flags, &access.location, p));
    }
}

static void arguments(void)
{
    static const size_t odd[] = {0, (size_t)1 << 50, SIZE_MAX, SIZE_MAX - 2 * MIB};
    int local = 0;
    PART("arguments");
    for (size_t i = 0; i < COUNT(odd); i++) {
        printf("%zu bytes\n", odd[i]);
        for (size_t k = 0; k < COUNT(kinds); k++) {
            CUdeviceptr p = 77;
            printf("%s\n", kinds[k].name);
            ANSWER(kinds[k].make(&p, odd[i]));
            ASK(p == 77);
        }
    }
    ANSWER(cuMemAlloc(NULL, 4 * MIB));
    ANSWER(cuMemAllocAsync(NULL, 4 * MIB, stream));
    ANSWER(cuMemAllocFromPoolAsync(NULL, 4 * MIB, own_pool, stream));
    for (size_t w = 0; w < COUNT(ways); w++) {
        printf("%s\n", ways[w].name);
        ANSWER(ways[w].free(0));
        ANSWER(ways[w].free(1));
        ANSWER(ways[w].free(0x10000));
        ANSWER(ways[w].free((CUdeviceptr)(uintptr_t)&local));
        ANSWER(ways[w].free(UINT64_MAX));
    }
}

int main(void)
{
    truth_start();
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&other, CU_STREAM_DEFAULT));
    own_pool = pool_make(0, 0);
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (size_t i = 0; i < COUNT(sizes); i++)
            block(&kinds[k], sizes[i]);
    for (size_t i = 0; i < COUNT(sizes); i++)
        pairs(sizes[i]);
    arguments();
    for (size_t i = 0; i < COUNT(sizes); i++)
        mappings(sizes[i]);
    ANSWER(cuMemPoolDestroy(own_pool));
    return 0;
}
