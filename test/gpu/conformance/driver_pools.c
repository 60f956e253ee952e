/* SPDX-License-Identifier: MIT */
/* Memory pools by the driver API: every attribute after every step, for the default pool and one of
 * the program's own; thresholds, trims, limits and pools made current. */
#include "driver.h"

static CUstream stream;

static const struct attribute {
    const char *name;
    CUmemPool_attribute attribute;
    bool is_wide;
} attributes[] = {
    {"follow event dependencies", CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, false},
    {"opportunistic", CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, false},
    {"internal dependencies", CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, false},
    {"release threshold", CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, true},
    {"reserved", CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, true},
    {"reserved, high", CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, true},
    {"used", CU_MEMPOOL_ATTR_USED_MEM_CURRENT, true},
    {"used, high", CU_MEMPOOL_ATTR_USED_MEM_HIGH, true},
};

/* A line for each, so that one that differs does not hide the others. */
static void show(const char *when, CUmemoryPool pool)
{
    for (size_t i = 0; i < COUNT(attributes); i++) {
        uint64_t wide = 0;
        int narrow = 0;
        void *into = attributes[i].is_wide ? (void *)&wide : (void *)&narrow;
        CUresult result = cuMemPoolGetAttribute(pool, attributes[i].attribute, into);
        printf("%s, %s: %s, %llu\n", when, attributes[i].name, truth_code(result),
               attributes[i].is_wide ? (unsigned long long)wide : (unsigned long long)narrow);
    }
}

/* One block of each size at a time; `pool` is current, or named. */
static void each_size(CUmemoryPool pool, bool is_named)
{
    for (size_t i = 0; i < COUNT(sizes); i++) {
        CUdeviceptr p = 0;
        part(is_named ? "named" : "current", sizes[i]);
        CUresult result = is_named ? cuMemAllocFromPoolAsync(&p, sizes[i], pool, stream)
                                   : cuMemAllocAsync(&p, sizes[i], stream);
        truth_answer("allocation", result);
        show("taken", pool);
        ANSWER(cuMemFreeAsync(p, stream));
        show("freed", pool);
        ANSWER(cuStreamSynchronize(stream));
        show("synchronised", pool);
        ANSWER(cuMemPoolTrimTo(pool, 0));
        show("trimmed", pool);
    }
}

static void set(CUmemoryPool pool, CUmemPool_attribute attribute, uint64_t value)
{
    printf("attribute %d to %llu\n", (int)attribute, (unsigned long long)value);
    ANSWER(cuMemPoolSetAttribute(pool, attribute, &value));
}

static void thresholds(CUmemoryPool pool)
{
    static const uint64_t keeps[] = {UINT64_MAX, 32 * MIB, 0};
    static const size_t leasts[] = {128 * MIB, 48 * MIB, 2 * MIB, 0};
    for (size_t i = 0; i < COUNT(keeps); i++) {
        CUdeviceptr p;
        set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, keeps[i]);
        ANSWER(cuMemAllocFromPoolAsync(&p, 64 * MIB, pool, stream));
        ANSWER(cuMemFreeAsync(p, stream));
        ANSWER(cuStreamSynchronize(stream));
        show("synchronised", pool);
        for (size_t k = 0; k < COUNT(leasts); k++) {
            ANSWER(cuMemPoolTrimTo(pool, leasts[k]));
            show("trimmed", pool);
        }
    }
}

static void marks(CUmemoryPool pool)
{
    static const CUmemPool_attribute all[] = {
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, CU_MEMPOOL_ATTR_USED_MEM_HIGH,
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT};
    for (size_t i = 0; i < COUNT(all); i++) {
        set(pool, all[i], 1);
        set(pool, all[i], 0);
    }
    show("high marks reset", pool);
}

static void limited(void)
{
    CUmemoryPool pool = pool_make(0, 64 * MIB);
    CUdeviceptr p = 0, q = 0;
    PART("a pool with a limit");
    ANSWER(cuMemAllocFromPoolAsync(&p, 40 * MIB, pool, stream));
    ANSWER(cuMemAllocFromPoolAsync(&q, 40 * MIB, pool, stream));
    ANSWER(cuMemAllocFromPoolAsync(&q, 16 * MIB, pool, stream));
    show("limited", pool);
    ANSWER(cuMemFreeAsync(p, stream));
    ANSWER(cuMemFreeAsync(q, stream));
    ANSWER(cuStreamSynchronize(stream));
    ANSWER(cuMemPoolDestroy(pool));
}

int main(void)
{
    CUdevice device = truth_start();
    CUmemoryPool standard, own = pool_make(0, 0);
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuDeviceGetDefaultMemPool(&standard, device));
    PART("the default pool");
    show("at first", standard);
    each_size(standard, false);
    each_size(standard, true);
    thresholds(standard);
    marks(standard);
    PART("an own pool");
    show("at first", own);
    each_size(own, true);
    ANSWER(cuDeviceSetMemPool(device, own));
    each_size(own, false);
    ANSWER(cuDeviceSetMemPool(device, standard));
    thresholds(own);
    marks(own);
    ANSWER(cuMemPoolDestroy(own));
    limited();
    each_size(standard, false);
    return 0;
}
