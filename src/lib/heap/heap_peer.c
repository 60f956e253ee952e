/* SPDX-License-Identifier: MIT */
/* Gives another device access to all that is mapped. Must not change the list of devices while an
 * edit is under way, because an edit maps for all of them. */
#include "heap/heap_internal.h"

static bool is_mapped(enum vpmm_region_state state)
{
    return state == VPMM_REGION_LIVE || state == VPMM_REGION_FREE || state == VPMM_REGION_BUSY ||
           state == VPMM_REGION_ZOMBIE;
}

/* Sets the access of every mapped span of a root, zombies included, as a request may come to live
 * there. A span runs over neighbouring regions, because an extent may overlap several; with no edit
 * under way its ends are ends of extents. Regions split and merge meanwhile, so each step asks what
 * holds the next address: what is mapped stays so. */
static enum vpmm_status set_access_in_root(struct vpmm_heap *heap, uint64_t address, uint64_t end)
{
    const struct vpmm_driver *driver = heap->driver;
    uint64_t start = address;
    enum vpmm_status status = VPMM_OK;
    while (address < end && !status) {
        struct vpmm_region_view region;
        if (vpmm_pool_find(heap->pool, address, &region))
            break;
        bool mapped = is_mapped(region.state);
        if (!mapped && start < address)
            status = driver->set_access(driver->self, start, address - start, heap->devices,
                                        heap->n_devices);
        address = region.address + region.pages * heap->page_bytes;
        start = mapped ? start : address;
    }
    if (!status && start < end)
        status =
            driver->set_access(driver->self, start, end - start, heap->devices, heap->n_devices);
    return status;
}

static enum vpmm_status set_access_everywhere(struct vpmm_heap *heap)
{
    uint64_t address;
    uint64_t pages;
    enum vpmm_status status = VPMM_OK;
    for (uint32_t i = 0; !status && vpmm_pool_root(heap->pool, i, &address, &pages); i++)
        status = set_access_in_root(heap, address, address + pages * heap->page_bytes);
    return status;
}

static bool has_access(const struct vpmm_heap *heap, int device)
{
    for (int i = 0; i < heap->n_devices; i++)
        if (heap->devices[i] == device)
            return true;
    return false;
}

enum vpmm_status vpmm_heap_add_peer(struct vpmm_heap *heap, int peer)
{
    enum vpmm_status status = VPMM_OK;
    vpmm_lock_take(&heap->lock);
    while (heap->is_frozen)
        vpmm_condition_wait(&heap->edits_done, &heap->lock);
    if (!has_access(heap, peer)) {
        /* Frozen first: where edits never cease, their number may never be seen to be 0. */
        heap->is_frozen = true;
        while (heap->n_edits > 0)
            vpmm_condition_wait(&heap->edits_done, &heap->lock);
        heap->devices[heap->n_devices++] = peer;
        vpmm_lock_give(&heap->lock);
        status = set_access_everywhere(heap);
        vpmm_lock_take(&heap->lock);
        heap->n_devices -= status != VPMM_OK;
        heap->is_frozen = false;
        vpmm_condition_broadcast(&heap->edits_done);
    }
    vpmm_lock_give(&heap->lock);
    return status;
}
