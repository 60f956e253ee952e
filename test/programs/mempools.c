/* SPDX-License-Identifier: MIT */
/* What memory pools tell of themselves: the default one beside cuMemAlloc, several explicit ones,
 * their highest figures, limits and thresholds, and what trimming and synchronising gives back. */
#include "truth.h"

#define BYTES (8 * MIB)

static CUmemPoolProps props_of(CUdevice device)
{
    CUmemPoolProps props;
    memset(&props, 0, sizeof(props));
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
    props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    props.location.id = device;
    return props;
}

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute name)
{
    uint64_t value = 0;
    MUST(cuMemPoolGetAttribute(pool, name, &value));
    return value;
}

#define USED(pool) attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
#define USED_HIGH(pool) attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH)
#define RESERVED(pool) attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
#define RESERVED_HIGH(pool) attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)

static CUresult set(CUmemoryPool pool, CUmemPool_attribute name, uint64_t value)
{
    return cuMemPoolSetAttribute(pool, name, &value);
}

static CUmemoryPool pool_of(CUdeviceptr address)
{
    CUmemoryPool pool = NULL;
    MUST(cuPointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    return pool;
}

static void used(CUmemoryPool standard, CUstream s)
{
    CUdeviceptr p, q, plain, small;
    PART("what is used of the default pool");
    VALUE(USED(standard));
    MUST(cuMemAlloc(&plain, BYTES));
    VALUE(USED(standard));
    MUST(cuMemAllocAsync(&p, BYTES, s));
    MUST(cuMemAllocAsync(&q, BYTES, s));
    VALUE(USED(standard));
    ANSWER(cuMemFreeAsync(plain, s));
    VALUE(USED(standard));
    MUST(cuMemFreeAsync(q, s));
    VALUE(USED(standard));
    VALUE(USED_HIGH(standard));
    MUST(cuMemAllocAsync(&q, 2 * BYTES + 13, s));
    VALUE(USED(standard));
    MUST(cuMemAllocAsync(&small, 64 * KIB, s));
    VALUE(USED(standard));
    VALUE(USED_HIGH(standard));
    ASK(RESERVED(standard) >= USED(standard));
    ASK(RESERVED_HIGH(standard) >= RESERVED(standard));
    MUST(cuMemFreeAsync(q, s));
    ANSWER(set(standard, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0));
    VALUE(USED_HIGH(standard));
    ANSWER(set(standard, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 5));
    ANSWER(set(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 5));
    ANSWER(set(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 0));
    ANSWER(cuMemPoolGetAttribute(standard, CU_MEMPOOL_ATTR_USED_MEM_HIGH, NULL));
    MUST(cuMemFreeAsync(small, s));
    MUST(cuMemFreeAsync(p, s));
    MUST(cuStreamSynchronize(s));
    VALUE(USED(standard));
}

/* Of two streams, each of which has again what it freed. */
static void highest(CUmemoryPool standard, CUstream s, CUstream t)
{
    CUdeviceptr p, q;
    PART("the highest of two streams");
    MUST(cuMemAllocAsync(&p, BYTES, s));
    MUST(cuMemAllocAsync(&q, BYTES, t));
    MUST(cuMemFreeAsync(p, s));
    MUST(cuMemFreeAsync(q, t));
    MUST(set(standard, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0));
    VALUE(USED_HIGH(standard));
    MUST(cuMemAllocAsync(&p, BYTES, s));
    MUST(cuMemFreeAsync(p, s));
    MUST(cuMemAllocAsync(&q, BYTES, t));
    MUST(cuMemFreeAsync(q, t));
    VALUE(USED_HIGH(standard));
    MUST(cuMemAllocAsync(&q, BYTES, t));
    MUST(cuMemAllocAsync(&p, BYTES, s));
    MUST(cuMemFreeAsync(q, t));
    MUST(cuMemFreeAsync(p, s));
    VALUE(USED_HIGH(standard));
    MUST(cuStreamSynchronize(s));
    MUST(cuStreamSynchronize(t));
}

static void given_back(CUmemoryPool standard, CUstream s)
{
    CUdeviceptr p, q;
    PART("what the default pool keeps");
    ANSWER(set(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX));
    MUST(cuMemAllocAsync(&p, 64 * MIB, s));
    MUST(cuMemFreeAsync(p, s));
    ANSWER(cuStreamSynchronize(s));
    ASK(RESERVED(standard) >= 64 * MIB);
    ANSWER(cuMemPoolTrimTo(standard, 0));
    VALUE(RESERVED(standard));
    ASK(RESERVED_HIGH(standard) >= 64 * MIB);
    ANSWER(set(standard, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0));
    VALUE(RESERVED_HIGH(standard));
    MUST(cuMemAllocAsync(&p, 64 * MIB, s));
    MUST(cuMemAllocAsync(&q, 64 * MIB, s));
    MUST(cuMemFreeAsync(q, s));
    MUST(cuStreamSynchronize(s));
    ANSWER(cuMemPoolTrimTo(standard, 0));
    ASK(RESERVED(standard) >= 64 * MIB);
    ASK(RESERVED(standard) < 128 * MIB);
    truth_ask("p holds", cuMemsetD8(p, 9, 64 * MIB) == CUDA_SUCCESS && truth_holds(p, 64 * MIB, 9));
    MUST(cuMemFreeAsync(p, s));
    ANSWER(set(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0));
    VALUE(attribute(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
    ANSWER(cuStreamSynchronize(s));
    VALUE(RESERVED(standard));
    MUST(cuMemAllocAsync(&p, 64 * MIB, s));
    MUST(cuMemFreeAsync(p, s));
    ANSWER(cuCtxSynchronize());
    VALUE(RESERVED(standard));
    MUST(set(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 32 * MIB));
    MUST(cuMemAllocAsync(&p, 64 * MIB, s));
    MUST(cuMemFreeAsync(p, s));
    ANSWER(cuCtxSynchronize());
    ASK(RESERVED(standard) <= 32 * MIB);
    MUST(set(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX));
}

static void several(CUdevice device, CUmemoryPool standard, CUstream s, CUstream t)
{
    CUmemPoolProps props = props_of(device);
    CUmemoryPool one = NULL, two = NULL;
    CUdeviceptr p, q, r;
    PART("two pools of a device");
    MUST(cuMemPoolCreate(&one, &props));
    MUST(cuMemPoolCreate(&two, &props));
    ASK(one == two);
    ANSWER(cuMemAllocFromPoolAsync(&p, BYTES, one, s));
    ANSWER(cuMemAllocFromPoolAsync(&q, 2 * BYTES, two, s));
    ANSWER(cuMemAllocFromPoolAsync(&r, 3 * BYTES, standard, s));
    ASK(pool_of(p) == one);
    ASK(pool_of(q + BYTES) == two);
    ASK(pool_of(r) == standard);
    VALUE(USED(one));
    VALUE(USED(two));
    VALUE(USED(standard));
    MUST(cuMemFreeAsync(p, t));
    MUST(cuMemAllocFromPoolAsync(&p, BYTES, two, t));
    ASK(pool_of(p) == two);
    VALUE(USED(one));
    VALUE(USED_HIGH(one));
    VALUE(USED(two));
    VALUE(USED_HIGH(two));
    MUST(cuMemFreeAsync(p, t));
    MUST(cuMemFreeAsync(q, s));
    MUST(cuMemFreeAsync(r, s));
    for (int i = 0; i < 3; i++) {
        MUST(cuMemAllocFromPoolAsync(&p, BYTES, one, s));
        MUST(cuMemFreeAsync(p, s));
    }
    VALUE(USED(one));
    VALUE(USED_HIGH(one));
    VALUE(USED(two));
    MUST(cuStreamSynchronize(t));
    MUST(cuStreamSynchronize(s));
    ANSWER(cuMemPoolTrimTo(one, 0));
    ANSWER(cuMemPoolTrimTo(two, 0));
    VALUE(RESERVED(one));
    VALUE(RESERVED(two));
    ANSWER(cuMemPoolDestroy(two));
    ANSWER(cuMemPoolDestroy(one));
}

static void choices(CUdevice device)
{
    CUmemPoolProps props = props_of(device);
    CUmemoryPool pool;
    CUmemAccessDesc access = {.location = props.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags flags = 0;
    int off = 0, on = 7;
    PART("choices");
    MUST(cuMemPoolCreate(&pool, &props));
    for (int i = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES;
         i <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES; i++) {
        ANSWER(cuMemPoolSetAttribute(pool, (CUmemPool_attribute)i, &off));
        ANSWER(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)i, &on));
        VALUE(on);
    }
    ANSWER(cuMemPoolSetAccess(pool, &access, 1));
    ANSWER(cuMemPoolGetAccess(&flags, pool, &access.location));
    VALUE(flags);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    ANSWER(cuMemPoolSetAccess(pool, &access, 1));
    ANSWER(cuMemPoolDestroy(pool));
}

/* The default pool is current again where the current one is destroyed; blocks outlive their pool.
 */
static void outlived(CUdevice device, CUmemoryPool standard, CUstream s)
{
    CUmemPoolProps props = props_of(device);
    CUmemoryPool pool, next;
    CUdeviceptr p, q;
    PART("a current pool that ends");
    MUST(cuMemPoolCreate(&pool, &props));
    ANSWER(cuDeviceSetMemPool(device, pool));
    ANSWER(cuMemAllocAsync(&p, BYTES, s));
    ASK(pool_of(p) == pool);
    VALUE(USED(pool));
    ANSWER(cuMemPoolDestroy(pool));
    ANSWER(cuMemAllocAsync(&q, BYTES, s));
    ASK(pool_of(q) == standard);
    VALUE(USED(standard));
    MUST(cuMemPoolCreate(&next, &props));
    VALUE(USED(next));
    VALUE(USED_HIGH(next));
    truth_ask("p holds", cuMemsetD8(p, 4, BYTES) == CUDA_SUCCESS && truth_holds(p, BYTES, 4));
    ANSWER(cuMemFreeAsync(p, s));
    VALUE(USED(next));
    ANSWER(cuMemFreeAsync(q, s));
    ANSWER(cuStreamSynchronize(s));
    ANSWER(cuMemPoolDestroy(next));
}

#if CUDA_VERSION >= 12020
static void limited(CUdevice device, CUstream s)
{
    CUmemPoolProps props = props_of(device);
    CUmemoryPool pool;
    CUdeviceptr p, q = 7;
    PART("a pool with a limit");
    props.maxSize = 64 * MIB;
    ANSWER(cuMemPoolCreate(&pool, &props));
    ANSWER(cuMemAllocFromPoolAsync(&p, 128 * MIB, pool, s));
    ANSWER(cuMemAllocFromPoolAsync(&p, 48 * MIB, pool, s));
    ANSWER(cuMemAllocFromPoolAsync(&q, 48 * MIB, pool, s));
    VALUE(USED(pool));
    MUST(cuMemFreeAsync(p, s));
    MUST(cuStreamSynchronize(s));
    ANSWER(cuMemAllocFromPoolAsync(&q, 64 * MIB, pool, s));
    MUST(cuMemFreeAsync(q, s));
    MUST(cuStreamSynchronize(s));
    ANSWER(cuMemPoolDestroy(pool));
}
#endif

int main(void)
{
    CUdevice device = truth_start();
    CUmemoryPool standard;
    CUstream s, t;
    MUST(cuDeviceGetDefaultMemPool(&standard, device));
    MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    MUST(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    used(standard, s);
    highest(standard, s, t);
    given_back(standard, s);
    several(device, standard, s, t);
    choices(device);
    outlived(device, standard, s);
#if CUDA_VERSION >= 12020
    limited(device, s);
#endif
    ANSWER(cuStreamDestroy(s));
    ANSWER(cuStreamDestroy(t));
    return 0;
}
