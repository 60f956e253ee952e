/* SPDX-License-Identifier: MIT */
/* Which blocks can be exported, from which heap, and which devices reach what is imported. Must not
 * export memory of cudaMallocAsync, for which bare CUDA has no such handles. */
#include "route/router.h"

bool vpmm_router_can_export(struct vpmm_router *router, const struct vpmm_region_view *block,
                            int device)
{
    return router->config->ipc && router->driver->extent_export &&
           router->devices[device].facts.can_export && block->state == VPMM_REGION_LIVE &&
           !block->owner.is_async;
}

enum vpmm_status vpmm_router_export(struct vpmm_router *router, uint64_t address,
                                    struct vpmm_exported *exported_out)
{
    struct vpmm_region_view block;
    int device;
    if (!vpmm_router_find(router, address, &block, &device) ||
        !vpmm_router_can_export(router, &block, device) ||
        address - block.address >= block.owner.bytes)
        return VPMM_NOT_FOUND;
    struct vpmm_exported exported = {device, block.address, block.owner.id, block.owner.bytes, 0};
    enum vpmm_status status = vpmm_heap_export(vpmm_router_heap(router, device), exported.address,
                                               exported.id, &exported.shared_bytes);
    *exported_out = exported;
    return status;
}

struct vpmm_heap *vpmm_router_exporter(struct vpmm_router *router,
                                       const struct vpmm_exported *exported)
{
    struct vpmm_heap *heap = vpmm_router_heap(router, exported->device);
    return heap && vpmm_heap_holds(heap, exported->address) ? heap : NULL;
}

int vpmm_router_devices(struct vpmm_router *router, int device, int owner,
                        int devices_out[VPMM_DEVICES_MAX])
{
    int n = 0;
    vpmm_lock_take(&router->lock);
    uint64_t seen = router->seen_devices;
    vpmm_lock_give(&router->lock);
    devices_out[n++] = device;
    if (owner != device)
        devices_out[n++] = owner;
    for (int other = 0; other < VPMM_DEVICES_MAX && n < VPMM_DEVICES_MAX; other++)
        if (other != device && other != owner && (seen >> other & 1) != 0)
            devices_out[n++] = other;
    return n;
}
