/* SPDX-License-Identifier: MIT */
#include "heap/internal.h"

static bool is_mapped(enum vpmm_region_state state)
{
    return state == VPMM_REGION_LIVE || state == VPMM_REGION_FREE;
}

/* Mappings of neighbouring roots are not one range to the driver. */
static bool starts_root(const struct vpmm_heap *heap, uint64_t address)
{
    uint64_t root;
    uint64_t pages;
    for (uint32_t i = 0; vpmm_pool_root(heap->pool, i, &root, &pages); i++)
        if (root == address)
            return true;
    return false;
}

/* Sets the access of every mapped span. A span runs over neighbouring live and free regions,
 * because an extent may overlap several; with no edit under way its ends are ends of extents. */
static enum vpmm_status set_access_everywhere(struct vpmm_heap *heap)
{
    const struct vpmm_driver *driver = heap->driver;
    uint64_t cursor = 0;
    uint64_t address = 0;
    uint64_t bytes = 0;
    struct vpmm_region_view region;
    bool more = true;
    while (more) {
        more = vpmm_pool_next(heap->pool, &cursor, &region);
        bool mapped = more && (is_mapped(region.state) || region.state == VPMM_REGION_BUSY);
        if (mapped && bytes && region.address == address + bytes &&
            !starts_root(heap, region.address)) {
            bytes += region.pages * heap->page_bytes;
            continue;
        }
        if (bytes) {
            enum vpmm_status status =
                driver->set_access(driver->self, address, bytes, heap->devices, heap->n_devices);
            if (status)
                return status;
        }
        address = mapped ? region.address : 0;
        bytes = mapped ? region.pages * heap->page_bytes : 0;
    }
    return VPMM_OK;
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
    while (heap->is_frozen || heap->n_edits > 0)
        (void)pthread_cond_wait(&heap->edits_done, &heap->lock.mutex);
    if (!has_access(heap, peer)) {
        heap->is_frozen = true;
        heap->devices[heap->n_devices++] = peer;
        vpmm_lock_give(&heap->lock);
        status = set_access_everywhere(heap);
        vpmm_lock_take(&heap->lock);
        heap->n_devices -= status != VPMM_OK;
        heap->is_frozen = false;
        (void)pthread_cond_broadcast(&heap->edits_done);
    }
    vpmm_lock_give(&heap->lock);
    return status;
}
