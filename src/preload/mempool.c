/* SPDX-License-Identifier: MIT */
/* The wrappers of calls that express a choice about memory pools: they go to the original, and the
 * router hears of them. */
#include "preload/entry.h"
#include "preload/original.h"

/* The current pool of `device` may have changed: asks the driver what it is now. */
static void overhear_pool(CUdevice device)
{
    struct vpmm_router *router = vpmm_enter();
    if (!router)
        return;
    CUmemoryPool current, default_pool;
    bool is_default =
        VPMM_ORIGINAL(cuDeviceGetMemPool, &current, device) == CUDA_SUCCESS &&
        VPMM_ORIGINAL(cuDeviceGetDefaultMemPool, &default_pool, device) == CUDA_SUCCESS &&
        current == default_pool;
    vpmm_router_pool_set(router, device, is_default);
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

CUresult vpmm_wrap_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t n)
{
    CUresult result = VPMM_ORIGINAL(cuMemPoolSetAccess, pool, access, n);
    struct vpmm_router *router = result == CUDA_SUCCESS ? vpmm_enter() : NULL;
    if (!router)
        return result;
    int device = vpmm_entry_device_of_pool(pool);
    for (size_t i = 0; device >= 0 && i < n; i++) {
        if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && access[i].location.id != device)
            vpmm_router_pool_access(router, device, access[i].location.id);
    }
    vpmm_leave();
    return result;
}
