/* SPDX-License-Identifier: MIT */
#include "heap/internal.h"

#define LEASES_MAX 16384u

/* A region that other processes have open. */
struct vpmm_lease {
    uint64_t address, owner_id;
    uint64_t n;         /* how often */
    uint64_t pages;     /* withheld: freed meanwhile */
    vpmm_fence fence;   /* of that free */
    uint64_t stream_id; /* the same */
    bool is_withheld;
};

void vpmm_leases_finish(struct vpmm_heap *heap)
{
    if (heap->leases)
        heap->memory->unmap(heap->memory->self, heap->leases, LEASES_MAX * sizeof *heap->leases);
    heap->leases = NULL;
}

bool vpmm_heap_export(struct vpmm_heap *heap, uint64_t address, uint64_t owner_id)
{
    return vpmm_pool_export(heap->pool, address, owner_id);
}

static struct vpmm_lease *find(const struct vpmm_heap *heap, uint64_t address, uint64_t owner_id)
{
    uint64_t n = vpmm_atomic_load(&heap->n_leases);
    for (uint64_t i = 0; i < n; i++)
        if (heap->leases[i].address == address && heap->leases[i].owner_id == owner_id)
            return &heap->leases[i];
    return NULL;
}

static struct vpmm_lease *find_or_make(struct vpmm_heap *heap, uint64_t address, uint64_t owner_id)
{
    struct vpmm_lease *lease = find(heap, address, owner_id);
    uint64_t n = vpmm_atomic_load(&heap->n_leases);
    if (lease || n == LEASES_MAX)
        return lease;
    if (!heap->leases)
        heap->leases = heap->memory->map(heap->memory->self, LEASES_MAX * sizeof *lease);
    if (!heap->leases)
        return NULL;
    lease = &heap->leases[n];
    *lease = (struct vpmm_lease){.address = address, .owner_id = owner_id};
    vpmm_atomic_store(&heap->n_leases, n + 1);
    return lease;
}

/* A free of the region that comes later needs this lock, and then sees the lease. */
enum vpmm_status vpmm_heap_lease(struct vpmm_heap *heap, uint64_t address, uint64_t owner_id,
                                 uint64_t *start_out, uint64_t *end_out)
{
    struct vpmm_region_view region;
    struct vpmm_shown_extent first, last;
    enum vpmm_status status = VPMM_NOT_FOUND;
    vpmm_lock_take(&heap->lock);
    if (!vpmm_pool_find(heap->pool, address, &region) && region.state == VPMM_REGION_LIVE &&
        region.is_exported && region.address == address && region.owner.id == owner_id) {
        uint64_t last_page = address + (region.pages - 1) * heap->page_bytes;
        struct vpmm_lease *lease = find_or_make(heap, address, owner_id);
        (void)vpmm_pool_shown_extents(heap->pool, address, address, &first, 1);
        (void)vpmm_pool_shown_extents(heap->pool, address, last_page, &last, 1);
        status = lease ? VPMM_OK : VPMM_NO_METADATA;
        if (lease) {
            lease->n++;
            *start_out = first.address;
            *end_out = last.address + last.pages * heap->page_bytes;
        }
    }
    vpmm_lock_give(&heap->lock);
    return status;
}

size_t vpmm_heap_leased_extents(struct vpmm_heap *heap, uint64_t address, uint64_t from,
                                struct vpmm_shown_extent *extents_out, size_t room)
{
    vpmm_lock_take(&heap->lock);
    uint64_t start = from < address ? address : from;
    size_t n = vpmm_pool_shown_extents(heap->pool, address, start, extents_out, room);
    vpmm_lock_give(&heap->lock);
    return n;
}

void vpmm_heap_unlease(struct vpmm_heap *heap, uint64_t address, uint64_t owner_id)
{
    vpmm_lock_take(&heap->lock);
    struct vpmm_lease *lease = find(heap, address, owner_id);
    if (lease && --lease->n == 0) {
        struct vpmm_lease ended = *lease;
        uint64_t n = vpmm_atomic_load(&heap->n_leases) - 1;
        *lease = heap->leases[n];
        vpmm_atomic_store(&heap->n_leases, n);
        if (ended.is_withheld) {
            vpmm_atomic_sub(&heap->withheld_pages, ended.pages);
            vpmm_heap_release(heap, address, ended.fence, ended.stream_id);
        }
    }
    vpmm_lock_give(&heap->lock);
}

void vpmm_lease_release(struct vpmm_heap *heap, const struct vpmm_region_view *region,
                        vpmm_fence fence, uint64_t stream_id)
{
    struct vpmm_lease *lease =
        region->is_exported ? find(heap, region->address, region->owner.id) : NULL;
    if (!lease) {
        vpmm_heap_release(heap, region->address, fence, stream_id);
        return;
    }
    lease->is_withheld = true;
    lease->pages = region->pages;
    lease->fence = fence;
    lease->stream_id = stream_id;
    vpmm_atomic_add(&heap->withheld_pages, region->pages);
}
