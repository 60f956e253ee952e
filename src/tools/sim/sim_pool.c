/* SPDX-License-Identifier: MIT */
/* CUDA's memory pools. Must not wait for a pending free while the device has room for more. */
#include "sim/sim_internal.h"

#include <stdlib.h>

struct pool *pool_new(struct sim *sim, int device, bool is_default)
{
    struct pool *pool = allocate(sizeof *pool);
    pool->device = device;
    pool->is_default = is_default;
    pool->readers = pool->writers = 1u << device;
    for (int i = 0; i < 3; i++)
        pool->reuse_flags[i] = 1;
    pool->handle = object_add(sim, OBJECT_POOL, pool);
    pool->next = sim->pools;
    sim->pools = pool;
    return pool;
}

CUresult pool_of(struct sim *sim, CUmemoryPool handle, struct pool **pool_out)
{
    struct pool *pool;
    enum object_life life = object_find(sim, OBJECT_POOL, (uintptr_t)handle, &pool);
    if (life == OBJECT_LIVE) {
        *pool_out = pool;
        return CUDA_SUCCESS;
    }
    if (life == OBJECT_DEAD)
        misuse(sim, SIM_DOUBLE_RELEASE, "use of a destroyed memory pool");
    return CUDA_ERROR_INVALID_VALUE;
}

static void pool_keep(struct sim *sim, struct pool *pool, uint64_t keep)
{
    uint64_t granularity = sim->config.granularity;
    uint64_t floor = pool->used + pool->busy;
    if (keep >= pool->reserved)
        return;
    keep = ((keep > floor ? keep : floor) + granularity - 1) / granularity * granularity;
    if (pool->reserved > keep) {
        device_refund(sim, pool->device, pool->reserved - keep);
        pool->reserved = keep;
    }
}

void pool_relax(struct sim *sim)
{
    for (struct pool *pool = sim->pools; pool != NULL; pool = pool->next) {
        pool->late = 0;
        pool_keep(sim, pool, pool->threshold);
    }
}

static bool pool_grow(struct sim *sim, struct pool *pool, uint64_t bytes)
{
    uint64_t granularity = sim->config.granularity;
    uint64_t need = pool->used + pool->busy + bytes;
    if (need <= pool->reserved)
        return true;
    uint64_t more = (need - pool->reserved + granularity - 1) / granularity * granularity;
    if (pool->limit != 0 && pool->reserved + more > pool->limit)
        return false;
    if (!device_charge(sim, pool->device, more))
        return false;
    pool->reserved += more;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    return true;
}

static struct op *free_pending(struct sim *sim, const struct pool *pool)
{
    for (struct op *op = sim->pending; op != NULL; op = op->next)
        if (op->work.plain != NULL && op->work.plain->pool == pool)
            return op_hold(op);
    return NULL;
}

/* What was freed but not reached by its stream is waited for only where the device has no room to
 * grow. */
CUresult pool_take(struct sim *sim, struct pool *pool, uint64_t bytes)
{
    if (bytes > sim->config.device_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    while (!pool_grow(sim, pool, bytes)) {
        struct op *op = free_pending(sim, pool);
        if (op == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        CUresult result = op_wait_one(sim, op);
        op_drop(op);
        TRY(result);
    }
    pool->late = 0;
    pool->used += bytes;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    pool->n_live++;
    return CUDA_SUCCESS;
}

void pool_give(struct sim *sim, struct plain *plain)
{
    struct pool *pool = plain->pool;
    if (plain->freed && !plain->parked)
        pool->busy -= plain->charged;
    else if (!plain->freed)
        pool->used -= plain->charged;
    pool->n_live--;
    pool_end_if_unused(sim, pool);
}

/* A destroyed pool lives on while allocations of it do. */
void pool_end_if_unused(struct sim *sim, struct pool *pool)
{
    if (!pool->destroyed || pool->n_live != 0)
        return;
    device_refund(sim, pool->device, pool->reserved);
    for (struct pool **at = &sim->pools; *at != NULL; at = &(*at)->next)
        if (*at == pool) {
            *at = pool->next;
            break;
        }
    returned_end(pool);
    free(pool);
}

static CUmemoryPool pool_made(struct sim *sim, const CUmemPoolProps *props)
{
    struct pool *pool = pool_new(sim, props->location.id, false);
#if CUDA_VERSION >= 12020
    uint64_t granularity = sim->config.granularity;
    pool->limit = (props->maxSize + granularity - 1) / granularity * granularity;
#endif
    return (CUmemoryPool)(uintptr_t)pool->handle;
}

CUresult sim_mem_pool_create(struct sim *sim, const CUmemPoolProps *props, CUmemoryPool *pool_out)
{
    CUresult result = call_enter(sim, "cuMemPoolCreate");
    if (result == CUDA_SUCCESS &&
        (props == NULL || pool_out == NULL || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
         props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || props->location.id < 0 ||
         props->location.id >= sim->config.n_devices))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = capture_unsafe(sim, "cuMemPoolCreate");
    if (result == CUDA_SUCCESS)
        *pool_out = pool_made(sim, props);
    return call_leave(sim, "cuMemPoolCreate", result);
}

static CUresult pool_destroy(struct sim *sim, CUmemoryPool handle)
{
    struct pool *pool;
    TRY(pool_of(sim, handle, &pool));
    if (pool->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    struct device *device = &sim->devices[pool->device];
    if (device->pool == pool)
        device->pool = device->default_pool;
    object_retire(sim, pool->handle);
    pool->destroyed = true;
    pool_end_if_unused(sim, pool);
    return CUDA_SUCCESS;
}

CUresult sim_mem_pool_destroy(struct sim *sim, CUmemoryPool pool)
{
    CUresult result = call_enter(sim, "cuMemPoolDestroy");
    if (result == CUDA_SUCCESS)
        result = capture_unsafe(sim, "cuMemPoolDestroy");
    if (result == CUDA_SUCCESS)
        result = pool_destroy(sim, pool);
    return call_leave(sim, "cuMemPoolDestroy", result);
}

static const uint64_t *counter_of(const struct pool *pool, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &pool->used_high;
    default:
        return NULL;
    }
}

static bool is_reuse_flag(CUmemPool_attribute attribute)
{
    return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
           attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

CUresult sim_mem_pool_get_attribute(struct sim *sim, CUmemoryPool handle,
                                    CUmemPool_attribute attribute, void *value_out)
{
    struct pool *pool = NULL;
    CUresult result = call_enter(sim, "cuMemPoolGetAttribute");
    if (result == CUDA_SUCCESS)
        result = pool_of(sim, handle, &pool);
    if (result == CUDA_SUCCESS && value_out == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && is_reuse_flag(attribute))
        *(int *)value_out = (int)pool->reuse_flags[attribute - 1];
    else if (result == CUDA_SUCCESS && counter_of(pool, attribute) != NULL)
        *(cuuint64_t *)value_out = *counter_of(pool, attribute) +
                                   (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT ? pool->late : 0);
    else if (result == CUDA_SUCCESS)
        result = CUDA_ERROR_INVALID_VALUE;
    return call_leave(sim, "cuMemPoolGetAttribute", result);
}

/* The two highs can only be set to zero, which means: to the present value. */
static CUresult attribute_set(struct pool *pool, CUmemPool_attribute attribute, const void *value)
{
    if (is_reuse_flag(attribute)) {
        pool->reuse_flags[attribute - 1] = *(const int *)value != 0;
    } else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        pool->threshold = *(const cuuint64_t *)value;
    } else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && *(const cuuint64_t *)value == 0) {
        pool->reserved_high = pool->reserved;
    } else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && *(const cuuint64_t *)value == 0) {
        pool->used_high = pool->used;
    } else {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult sim_mem_pool_set_attribute(struct sim *sim, CUmemoryPool handle,
                                    CUmemPool_attribute attribute, const void *value)
{
    struct pool *pool = NULL;
    CUresult result = call_enter(sim, "cuMemPoolSetAttribute");
    if (result == CUDA_SUCCESS)
        result = pool_of(sim, handle, &pool);
    if (result == CUDA_SUCCESS)
        result = capture_unsafe(sim, "cuMemPoolSetAttribute");
    if (result == CUDA_SUCCESS)
        result = value == NULL ? CUDA_ERROR_INVALID_VALUE : attribute_set(pool, attribute, value);
    return call_leave(sim, "cuMemPoolSetAttribute", result);
}

CUresult sim_mem_pool_trim_to(struct sim *sim, CUmemoryPool handle, size_t keep_bytes)
{
    struct pool *pool = NULL;
    CUresult result = call_enter(sim, "cuMemPoolTrimTo");
    if (result == CUDA_SUCCESS)
        result = pool_of(sim, handle, &pool);
    if (result == CUDA_SUCCESS)
        result = capture_unsafe(sim, "cuMemPoolTrimTo");
    if (result == CUDA_SUCCESS) {
        pool->late = 0;
        pool_keep(sim, pool, keep_bytes);
    }
    return call_leave(sim, "cuMemPoolTrimTo", result);
}

static CUresult device_pool_get(struct sim *sim, const char *name, CUdevice device, bool is_default,
                                CUmemoryPool *pool_out)
{
    CUresult result = call_enter(sim, name);
    if (result == CUDA_SUCCESS && (device < 0 || device >= sim->config.n_devices))
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS) {
        const struct device *of = &sim->devices[device];
        const struct pool *pool = is_default ? of->default_pool : of->pool;
        *pool_out = (CUmemoryPool)(uintptr_t)pool->handle;
    }
    return call_leave(sim, name, result);
}

CUresult sim_device_get_default_mem_pool(struct sim *sim, CUdevice device, CUmemoryPool *pool_out)
{
    return device_pool_get(sim, "cuDeviceGetDefaultMemPool", device, true, pool_out);
}

CUresult sim_device_get_mem_pool(struct sim *sim, CUdevice device, CUmemoryPool *pool_out)
{
    return device_pool_get(sim, "cuDeviceGetMemPool", device, false, pool_out);
}

CUresult sim_device_set_mem_pool(struct sim *sim, CUdevice device, CUmemoryPool handle)
{
    struct pool *pool = NULL;
    CUresult result = call_enter(sim, "cuDeviceSetMemPool");
    if (result == CUDA_SUCCESS && (device < 0 || device >= sim->config.n_devices))
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS)
        result = pool_of(sim, handle, &pool);
    if (result == CUDA_SUCCESS && pool->device != device)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        sim->devices[device].pool = pool;
    return call_leave(sim, "cuDeviceSetMemPool", result);
}
