/* SPDX-License-Identifier: MIT */
/* Memory pools: the device's default one, its replacement, explicit ones and their attributes. */
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

static void defaults(CUdevice device)
{
    CUmemoryPool standard = NULL, current = NULL;
    int on = 7;
    uint64_t threshold = 7;
    PART("the default pool");
    ANSWER(cuDeviceGetDefaultMemPool(&standard, device));
    ANSWER(cuDeviceGetMemPool(&current, device));
    ASK(standard == current);
    ANSWER(cuMemPoolGetAttribute(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    VALUE(threshold);
    threshold = UINT64_MAX;
    ANSWER(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    ASK(attribute(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == UINT64_MAX);
    threshold = 0;
    ANSWER(cuMemPoolSetAttribute(standard, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    ANSWER(cuMemPoolGetAttribute(standard, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &on));
    VALUE(on);
    ANSWER(cuMemPoolGetAttribute(standard, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &on));
    VALUE(on);
    ANSWER(cuMemPoolGetAttribute(standard, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &on));
    VALUE(on);
    ANSWER(cuMemPoolTrimTo(standard, 0));
    ANSWER(cuMemPoolDestroy(standard));
    ANSWER(cuDeviceSetMemPool(device, NULL));
}

static void explicit_pool(CUdevice device, CUstream s)
{
    CUmemPoolProps props = props_of(device);
    CUmemoryPool pool = NULL, own = NULL;
    CUdeviceptr p, q;
    uint64_t zero = 0;
    PART("an explicit pool");
    ANSWER(cuMemPoolCreate(&pool, &props));
    VALUE(USED(pool));
    VALUE(RESERVED(pool));
    ANSWER(cuMemAllocFromPoolAsync(&p, BYTES, pool, s));
    ANSWER(cuMemAllocFromPoolAsync(&q, BYTES, pool, s));
    ANSWER(cuMemsetD8Async(p, 5, BYTES, s));
    ANSWER(cuStreamSynchronize(s));
    ANSWER(cuPointerGetAttribute(&own, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
    ASK(own == pool);
    ASK(USED(pool) == 2 * BYTES);
    ASK(USED_HIGH(pool) == 2 * BYTES);
    ASK(RESERVED(pool) >= 2 * BYTES);
    ANSWER(cuMemFreeAsync(p, s));
    ANSWER(cuStreamSynchronize(s));
    ASK(USED(pool) == BYTES);
    ANSWER(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    ASK(USED_HIGH(pool) == BYTES);
    zero = 1;
    ANSWER(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero));
    ANSWER(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &zero));
    truth_ask("q holds", cuMemsetD8(q, 9, BYTES) == CUDA_SUCCESS && truth_holds(q, BYTES, 9));
    ANSWER(cuMemFree(q));
    ANSWER(cuMemFreeAsync(q, s));
    VALUE(USED(pool));
    ANSWER(cuMemPoolTrimTo(pool, 0));
    VALUE(RESERVED(pool));
    ANSWER(cuMemAllocFromPoolAsync(&p, 0, pool, s));
    ANSWER(cuMemAllocFromPoolAsync(&p, (size_t)1 << 50, pool, s));
    ANSWER(cuMemAllocFromPoolAsync(NULL, BYTES, pool, s));
    ANSWER(cuMemPoolDestroy(pool));
}

/* With a threshold the pool keeps what is freed until it is trimmed. */
static void threshold(CUdevice device, CUstream s)
{
    CUmemPoolProps props = props_of(device);
    CUmemoryPool pool;
    CUdeviceptr p;
    uint64_t keep = UINT64_MAX;
    PART("a release threshold");
    MUST(cuMemPoolCreate(&pool, &props));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    MUST(cuMemAllocFromPoolAsync(&p, 64 * MIB, pool, s));
    MUST(cuMemFreeAsync(p, s));
    MUST(cuStreamSynchronize(s));
    VALUE(USED(pool));
    ASK(RESERVED(pool) >= 64 * MIB);
    ASK(RESERVED_HIGH(pool) >= 64 * MIB);
    ANSWER(cuMemPoolTrimTo(pool, 0));
    VALUE(RESERVED(pool));
    keep = 0;
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    MUST(cuMemAllocFromPoolAsync(&p, 64 * MIB, pool, s));
    MUST(cuMemFreeAsync(p, s));
    MUST(cuStreamSynchronize(s));
    VALUE(RESERVED(pool));
    ANSWER(cuMemPoolDestroy(pool));
}

/* The device's current pool is replaced: cuMemAllocAsync takes from that one. */
static void replaced(CUdevice device, CUstream s)
{
    CUmemPoolProps props = props_of(device);
    CUmemoryPool pool, standard, current, own;
    CUdeviceptr p, q;
    PART("another current pool");
    MUST(cuMemPoolCreate(&pool, &props));
    MUST(cuDeviceGetDefaultMemPool(&standard, device));
    MUST(cuMemAllocAsync(&q, BYTES, s));
    ANSWER(cuDeviceSetMemPool(device, pool));
    MUST(cuDeviceGetMemPool(&current, device));
    ASK(current == pool);
    ANSWER(cuMemAllocAsync(&p, BYTES, s));
    ANSWER(cuStreamSynchronize(s));
    ANSWER(cuPointerGetAttribute(&own, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
    ASK(own == pool);
    ANSWER(cuPointerGetAttribute(&own, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, q));
    ASK(own == standard);
    ASK(USED(pool) == BYTES);
    ANSWER(cuMemFreeAsync(p, s));
    ANSWER(cuMemFreeAsync(q, s));
    ANSWER(cuStreamSynchronize(s));
    ANSWER(cuMemPoolDestroy(pool));
    MUST(cuDeviceGetMemPool(&current, device));
    ASK(current == standard);
    ANSWER(cuDeviceSetMemPool(device, standard));
    ANSWER(cuMemAllocFromPoolAsync(&p, BYTES, standard, s));
    ANSWER(cuPointerGetAttribute(&own, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
    ASK(own == standard);
    ANSWER(cuMemFreeAsync(p, s));
    ANSWER(cuStreamSynchronize(s));
}

/* A pool that is destroyed while a block of it lives stays until that block is freed. */
static void destroyed_early(CUdevice device, CUstream s)
{
    CUmemPoolProps props = props_of(device);
    CUmemoryPool pool;
    CUdeviceptr p;
    PART("destroyed early");
    MUST(cuMemPoolCreate(&pool, &props));
    MUST(cuMemAllocFromPoolAsync(&p, BYTES, pool, s));
    ANSWER(cuMemPoolDestroy(pool));
    ANSWER(cuMemsetD8Async(p, 3, BYTES, s));
    ANSWER(cuMemFreeAsync(p, s));
    ANSWER(cuStreamSynchronize(s));
    props.location.id = 1000;
    ANSWER(cuMemPoolCreate(&pool, &props));
    ANSWER(cuMemPoolCreate(&pool, NULL));
}

int main(void)
{
    CUdevice device = truth_start();
    CUstream s;
    MUST(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    defaults(device);
    explicit_pool(device, s);
    threshold(device, s);
    replaced(device, s);
    destroyed_early(device, s);
    ANSWER(cuStreamDestroy(s));
    return 0;
}
