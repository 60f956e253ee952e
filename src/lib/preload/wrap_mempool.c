/* SPDX-License-Identifier: MIT */
/* The wrappers of CUDA's memory pools. The original does the work, and has what passed through: the
 * router hears of it, and adds what it has served of the same memory pool. Must not know a handle
 * any more when the original destroys it, because the next pool may get it. */
#include "preload/entry.h"
#include "preload/original.h"

#include <stddef.h>
#include <string.h>

/* ---- which one is meant ---- */

struct vpmm_mempool *vpmm_entry_mempool(struct vpmm_router *router, CUmemoryPool pool,
                                        int *device_out)
{
    CUmemoryPool default_pool;
    struct vpmm_mempool *known = vpmm_router_mempool(router, vpmm_mempool_of(pool), device_out);
    for (int device = 0; device < VPMM_DEVICES_MAX && !known && pool; device++) {
        if (VPMM_ORIGINAL(cuDeviceGetDefaultMemPool, &default_pool, device) != CUDA_SUCCESS)
            return NULL;
        if (default_pool != pool)
            continue;
        vpmm_router_mempool_default(router, vpmm_mempool_of(pool), device);
        known = vpmm_router_mempool(router, vpmm_mempool_of(pool), device_out);
    }
    return known;
}

/* ---- which one is current ---- */

/* The current pool of `device` may have changed: asks the driver what it is now. */
static void overhear_pool(CUdevice device)
{
    struct vpmm_router *router = vpmm_enter();
    if (!router)
        return;
    CUmemoryPool current;
    int of_device = device;
    struct vpmm_mempool *mempool = NULL;
    if (VPMM_ORIGINAL(cuDeviceGetMemPool, &current, device) == CUDA_SUCCESS)
        mempool = vpmm_entry_mempool(router, current, &of_device);
    vpmm_router_mempool_set(router, device, of_device == device ? mempool : NULL);
    vpmm_leave();
}

CUresult vpmm_wrap_cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    CUresult result = VPMM_ORIGINAL(cuDeviceSetMemPool, device, pool);
    if (result == CUDA_SUCCESS)
        overhear_pool(device);
    return result;
}

CUresult vpmm_wrap_cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type,
                                   CUmemoryPool pool)
{
    CUresult result = VPMM_ORIGINAL(cuMemSetMemPool, location, type, pool);
    if (result == CUDA_SUCCESS && location && location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        overhear_pool(location->id);
    return result;
}

/* ---- birth and death ---- */

/* The properties after those of every release: maxSize, which older ones keep as 0, and others that
 * may come to mean anything. */
#define MAX_SIZE_AT (offsetof(CUmemPoolProps, win32SecurityAttributes) + sizeof(void *))
#define REST_AT (MAX_SIZE_AT + sizeof(uint64_t))

/* Ordinary memory of a device that no other process sees. */
static bool can_serve(const CUmemPoolProps *properties, uint64_t *limit_bytes_out)
{
    static const unsigned char zeros[sizeof *properties - REST_AT];
    const unsigned char *bytes = (const unsigned char *)properties;
    memcpy(limit_bytes_out, bytes + MAX_SIZE_AT, sizeof *limit_bytes_out);
    return properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
           properties->handleTypes == CU_MEM_HANDLE_TYPE_NONE &&
           properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
           !properties->win32SecurityAttributes && !memcmp(bytes + REST_AT, zeros, sizeof zeros);
}

CUresult vpmm_wrap_cuMemPoolCreate(CUmemoryPool *pool_out, const CUmemPoolProps *properties)
{
    uint64_t limit_bytes;
    CUresult result = VPMM_ORIGINAL(cuMemPoolCreate, pool_out, properties);
    bool is_ours = result == CUDA_SUCCESS && can_serve(properties, &limit_bytes);
    struct vpmm_router *router = is_ours ? vpmm_enter() : NULL;
    if (!router)
        return result;
    vpmm_router_mempool_made(router, vpmm_mempool_of(*pool_out), properties->location.id,
                             limit_bytes);
    vpmm_leave();
    return result;
}

/* The device whose current memory pool it is; -1: none's. */
static CUdevice device_with_current(CUmemoryPool pool)
{
    CUmemoryPool current;
    for (CUdevice device = 0; device < VPMM_DEVICES_MAX; device++) {
        CUresult result = VPMM_ORIGINAL(cuDeviceGetMemPool, &current, device);
        if (result == CUDA_SUCCESS && current == pool)
            return device;
        /* A device without memory pools may stand before others. */
        if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_SUPPORTED)
            return -1;
    }
    return -1;
}

/* The driver's handle may mean another one as soon as the original has returned: it is forgotten
 * before. Where it was current, the default one is again. */
CUresult vpmm_wrap_cuMemPoolDestroy(CUmemoryPool pool)
{
    CUdevice device = -1;
    uint32_t number = 0;
    struct vpmm_router *router = pool ? vpmm_enter_served() : NULL;
    if (router) {
        device = device_with_current(pool);
        number = vpmm_router_mempool_gone(router, vpmm_mempool_of(pool));
        vpmm_leave();
    }
    CUresult result = VPMM_ORIGINAL(cuMemPoolDestroy, pool);
    if (result != CUDA_SUCCESS && number && vpmm_enter()) {
        vpmm_router_mempool_stays(router, number, vpmm_mempool_of(pool));
        vpmm_leave();
    }
    if (device >= 0)
        overhear_pool(device);
    return result;
}

/* ---- figures and choices ---- */

/* What the router has of `pool`, on its device; false: nothing. */
static bool find_figures(struct vpmm_router *router, CUmemoryPool pool,
                         struct vpmm_mempool_figures *figures_out)
{
    int device;
    struct vpmm_mempool *mempool = vpmm_entry_mempool(router, pool, &device);
    struct vpmm_heap *heap = mempool ? vpmm_router_heap(router, device) : NULL;
    if (heap)
        vpmm_heap_mempool_figures(heap, mempool, figures_out);
    return heap != NULL;
}

/* NULL: the attribute is no figure. */
static const uint64_t *figure_of(const struct vpmm_mempool_figures *figures,
                                 CUmemPool_attribute attribute)
{
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &figures->used_bytes;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &figures->used_high_bytes;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &figures->reserved_bytes;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &figures->reserved_high_bytes;
    default:
        return NULL;
    }
}

CUresult vpmm_wrap_cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                         void *value_out)
{
    struct vpmm_mempool_figures figures;
    CUresult result = VPMM_ORIGINAL(cuMemPoolGetAttribute, pool, attribute, value_out);
    const uint64_t *figure = figure_of(&figures, attribute);
    bool adds = result == CUDA_SUCCESS && value_out && figure;
    struct vpmm_router *router = adds ? vpmm_enter() : NULL;
    if (!router)
        return result;
    if (find_figures(router, pool, &figures))
        *(cuuint64_t *)value_out += *figure;
    vpmm_leave();
    return result;
}

static void overhear_choice(struct vpmm_router *router, CUmemoryPool pool,
                            CUmemPool_attribute attribute, const void *value)
{
    int device;
    struct vpmm_mempool *mempool = vpmm_entry_mempool(router, pool, &device);
    struct vpmm_heap *heap = mempool ? vpmm_router_heap(router, device) : NULL;
    if (!mempool)
        return;
    switch ((int)attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        vpmm_router_mempool_keep(router, mempool, *(const cuuint64_t *)value);
        break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        vpmm_router_mempool_choose(router, &mempool->is_cautious, !*(const int *)value);
        break;
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        vpmm_router_mempool_choose(router, &mempool->follows_never, !*(const int *)value);
        break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        vpmm_router_mempool_choose(router, &mempool->waits_never, !*(const int *)value);
        break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (heap)
            vpmm_heap_mempool_reset_used(heap, mempool);
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        if (heap)
            vpmm_heap_mempool_reset_reserved(heap, mempool);
        break;
    default:
        break;
    }
}

CUresult vpmm_wrap_cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute,
                                         void *value)
{
    CUresult result = VPMM_ORIGINAL(cuMemPoolSetAttribute, pool, attribute, value);
    struct vpmm_router *router = result == CUDA_SUCCESS ? vpmm_enter() : NULL;
    if (!router)
        return result;
    overhear_choice(router, pool, attribute, value);
    vpmm_leave();
    return result;
}

/* What the original keeps is part of what may be kept in all. */
CUresult vpmm_wrap_cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes)
{
    int device;
    cuuint64_t elsewhere = 0;
    CUresult result = VPMM_ORIGINAL(cuMemPoolTrimTo, pool, keep_bytes);
    struct vpmm_router *router = result == CUDA_SUCCESS ? vpmm_enter() : NULL;
    if (!router)
        return result;
    struct vpmm_mempool *mempool = vpmm_entry_mempool(router, pool, &device);
    struct vpmm_heap *heap = mempool ? vpmm_router_heap(router, device) : NULL;
    if (heap) {
        (void)VPMM_ORIGINAL(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                            &elsewhere);
        vpmm_heap_mempool_trim(heap, mempool, keep_bytes > elsewhere ? keep_bytes - elsewhere : 0,
                               true);
    }
    vpmm_leave();
    return result;
}

CUresult vpmm_wrap_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t n)
{
    int device = -1;
    CUresult result = VPMM_ORIGINAL(cuMemPoolSetAccess, pool, access, n);
    struct vpmm_router *router = result == CUDA_SUCCESS ? vpmm_enter() : NULL;
    if (!router)
        return result;
    bool is_ours = vpmm_entry_mempool(router, pool, &device) != NULL;
    for (size_t i = 0; is_ours && i < n; i++) {
        if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && access[i].location.id != device)
            vpmm_router_pool_access(router, device, access[i].location.id);
    }
    vpmm_leave();
    return result;
}
