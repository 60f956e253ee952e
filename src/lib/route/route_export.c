/* SPDX-License-Identifier: MIT */
/* Which blocks can be exported, from which heap, and which devices reach what is imported. Must not
 * export memory of cudaMallocAsync, for which bare CUDA has no such handles. */
#include "route/router.h"

static bool may_share(const struct vpmm_router *router, const struct vpmm_region_view *block)
{
    return !block->is_part || !router->config->ipc_refuses_shared;
}

static bool is_exportable(const struct vpmm_router *router, const struct vpmm_region_view *block,
                          int device)
{
    return router->config->ipc && router->driver->extent_export &&
           router->devices[device].facts.can_export && block->state == VPMM_REGION_LIVE &&
           !block->owner.is_async;
}

bool vpmm_router_can_export(struct vpmm_router *router, const struct vpmm_region_view *block,
                            int device)
{
    return is_exportable(router, block, device) && may_share(router, block);
}

/* The region that a block of that address and id lies in, which is live. The region is looked at
 * before the block: an id never comes again, so while the block is there that is its region. */
static bool find_region(struct vpmm_router *router, const struct vpmm_exported *exported,
                        struct vpmm_region_view *region_out)
{
    struct vpmm_region_view block;
    int device;
    const struct vpmm_heap *heap = vpmm_router_heap(router, exported->device);
    return heap && vpmm_heap_holds(heap, exported->address) &&
           !vpmm_heap_find(heap, exported->address, region_out) &&
           vpmm_router_find(router, exported->address, &block, &device) &&
           block.state == VPMM_REGION_LIVE && block.address == exported->address &&
           block.owner.id == exported->id;
}

/* All that lies beside a block of a slab is other memory, too. */
static enum vpmm_status export_part(struct vpmm_router *router, bool may_be_shared,
                                    struct vpmm_exported *exported)
{
    struct vpmm_region_view region;
    struct vpmm_heap *heap = vpmm_router_heap(router, exported->device);
    enum vpmm_status status = VPMM_NOT_SUPPORTED;
    vpmm_atomic_store(&router->exports_parts, 1);
    if (!find_region(router, exported, &region))
        return VPMM_NOT_FOUND;
    if (may_be_shared) {
        vpmm_small_retire(vpmm_router_small_of(router, exported->address), exported->address);
        status = vpmm_heap_export(heap, region.address, region.owner.id, &exported->shared_bytes);
    }
    exported->shared_bytes += region.pages * vpmm_heap_page_bytes(heap) - exported->bytes;
    return status;
}

enum vpmm_status vpmm_router_export(struct vpmm_router *router, uint64_t address,
                                    struct vpmm_exported *exported_out)
{
    struct vpmm_region_view block;
    int device;
    if (!vpmm_router_find(router, address, &block, &device) ||
        !is_exportable(router, &block, device) || address - block.address >= block.owner.bytes)
        return VPMM_NOT_FOUND;
    struct vpmm_exported exported = {device, block.address, block.owner.id, block.owner.bytes, 0};
    enum vpmm_status status =
        block.is_part ? export_part(router, may_share(router, &block), &exported)
                      : vpmm_heap_export(vpmm_router_heap(router, device), exported.address,
                                         exported.id, &exported.shared_bytes);
    *exported_out = exported;
    return status;
}

/* ---- leases ---- */

enum vpmm_status vpmm_router_lease(struct vpmm_router *router, const struct vpmm_exported *exported,
                                   uint64_t *start_out, uint64_t *end_out)
{
    struct vpmm_region_view region;
    return find_region(router, exported, &region)
               ? vpmm_heap_lease(vpmm_router_heap(router, exported->device), region.address,
                                 region.owner.id, start_out, end_out)
               : VPMM_NOT_FOUND;
}

/* While it is leased the region stays, also when the block is freed. */
static struct vpmm_heap *find_leased(struct vpmm_router *router,
                                     const struct vpmm_exported *exported,
                                     struct vpmm_region_view *region_out)
{
    struct vpmm_heap *heap = vpmm_router_heap(router, exported->device);
    bool is_found = heap && vpmm_heap_holds(heap, exported->address) &&
                    !vpmm_heap_find(heap, exported->address, region_out);
    return is_found ? heap : NULL;
}

void vpmm_router_unlease(struct vpmm_router *router, const struct vpmm_exported *exported)
{
    struct vpmm_region_view region;
    struct vpmm_heap *heap = find_leased(router, exported, &region);
    if (heap)
        vpmm_heap_unlease(heap, region.address, region.owner.id);
}

size_t vpmm_router_leased_extents(struct vpmm_router *router, const struct vpmm_exported *exported,
                                  uint64_t from, struct vpmm_shown_extent *extents_out, size_t room,
                                  uint64_t *page_bytes_out)
{
    struct vpmm_region_view region;
    struct vpmm_heap *heap = find_leased(router, exported, &region);
    if (!heap)
        return 0;
    *page_bytes_out = vpmm_heap_page_bytes(heap);
    return vpmm_heap_leased_extents(heap, region.address, from, extents_out, room);
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
