/* SPDX-License-Identifier: MIT */
/* Leases of blocks that other processes have open, and what becomes of such a block when it is
 * freed. Must not let anybody reuse its pages while another process has it open. */
#include "heap/heap_internal.h"

#define LEASES_MAX 16384u

/* A region that other processes have open, or had: who keeps the descriptors can reach its extents
 * for ever, so once it is free and nobody leases it they go back to the device. */
struct vpmm_lease {
    uint64_t address, owner_id;
    uint64_t n;       /* how often */
    uint64_t pages;   /* withheld: freed meanwhile */
    vpmm_fence fence; /* of that free */
    bool is_withheld;
};

void vpmm_leases_finish(struct vpmm_heap *heap)
{
    if (heap->leases)
        heap->memory->unmap(heap->memory->self, heap->leases, LEASES_MAX * sizeof *heap->leases);
    heap->leases = NULL;
}

/* The region cannot become another one meanwhile: that takes the lock. */
enum vpmm_status vpmm_heap_export(struct vpmm_heap *heap, uint64_t address, uint64_t owner_id,
                                  uint64_t *shared_bytes_out)
{
    enum vpmm_status status = VPMM_NOT_SUPPORTED;
    vpmm_atomic_store(&heap->gives_whole, 1);
    vpmm_lock_take(&heap->lock);
    uint64_t shared_bytes = vpmm_pool_shared_pages(heap->pool, address) * heap->page_bytes;
    if (!shared_bytes || !heap->params.exports_whole)
        status = vpmm_pool_export(heap->pool, address, owner_id) ? VPMM_OK : VPMM_NOT_FOUND;
    vpmm_lock_give(&heap->lock);
    *shared_bytes_out = shared_bytes;
    return status;
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
            if (lease->n++ == 0)
                vpmm_atomic_add(&heap->leased_regions, 1);
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
    if (lease && lease->n > 0 && --lease->n == 0) {
        vpmm_atomic_sub(&heap->leased_regions, 1);
        if (lease->is_withheld)
            vpmm_atomic_sub(&heap->withheld_pages, lease->pages);
    }
    vpmm_lock_give(&heap->lock);
}

void vpmm_lease_release(struct vpmm_heap *heap, const struct vpmm_region_view *region,
                        vpmm_fence fence, uint64_t stream_id)
{
    struct vpmm_lease *lease =
        region->is_exported ? find(heap, region->address, region->owner.id) : NULL;
    if (!lease) {
        vpmm_heap_make_free(heap, region->address, fence, stream_id);
        return;
    }
    lease->is_withheld = true;
    lease->pages = region->pages;
    lease->fence = fence;
    if (lease->n > 0)
        vpmm_atomic_add(&heap->withheld_pages, region->pages);
}

/* ---- giving back ---- */

static bool is_over(const struct vpmm_heap *heap, const struct vpmm_lease *lease)
{
    (void)heap;
    return lease->is_withheld && lease->n == 0;
}

static bool is_due(const struct vpmm_heap *heap, const struct vpmm_lease *lease)
{
    return is_over(heap, lease) &&
           vpmm_order_ask(heap->order, lease->fence, 0) == VPMM_VERDICT_COMPLETE;
}

static bool has_one(struct vpmm_heap *heap,
                    bool (*is_one)(const struct vpmm_heap *heap, const struct vpmm_lease *lease))
{
    bool has = false;
    vpmm_lock_take(&heap->lock);
    uint64_t n = vpmm_atomic_load(&heap->n_leases);
    for (uint64_t i = 0; i < n && !has; i++)
        has = is_one(heap, &heap->leases[i]);
    vpmm_lock_give(&heap->lock);
    return has;
}

/* The oldest fence after `after` of what is only waiting to be given back; NONE: there is none. */
static vpmm_fence next_fence(struct vpmm_heap *heap, vpmm_fence after)
{
    vpmm_fence next = VPMM_FENCE_NONE;
    vpmm_lock_take(&heap->lock);
    uint64_t n = vpmm_atomic_load(&heap->n_leases);
    for (uint64_t i = 0; i < n; i++) {
        const struct vpmm_lease *lease = &heap->leases[i];
        if (is_over(heap, lease) && lease->fence > after && (!next || lease->fence < next))
            next = lease->fence;
    }
    vpmm_lock_give(&heap->lock);
    return next;
}

enum vpmm_status vpmm_leases_synchronize(struct vpmm_heap *heap)
{
    enum vpmm_status first = VPMM_OK;
    vpmm_fence fence = VPMM_FENCE_NONE;
    while ((fence = next_fence(heap, fence)) != VPMM_FENCE_NONE) {
        enum vpmm_status status = vpmm_order_synchronize(heap->order, fence);
        if (!first || (status && first == VPMM_NOT_READY))
            first = status;
    }
    return first;
}

/* In an edit, with the lock. Another one is found when the lock has been given and taken again. */
static struct vpmm_lease *find_due(const struct vpmm_heap *heap)
{
    uint64_t n = vpmm_atomic_load(&heap->n_leases);
    for (uint64_t i = 0; i < n; i++)
        if (is_due(heap, &heap->leases[i]) &&
            vpmm_pool_is_alone(heap->pool, heap->leases[i].address))
            return &heap->leases[i];
    return NULL;
}

/* The zombies that show such extents, too, go first. */
void vpmm_leases_give_back(struct vpmm_heap *heap)
{
    struct vpmm_lease *lease;
    if (!vpmm_atomic_load(&heap->n_leases) || !has_one(heap, is_over))
        return;
    (void)vpmm_order_poll(heap->order);
    if (!has_one(heap, is_due))
        return;
    vpmm_heap_unmap_zombies(heap, UINT64_MAX);
    vpmm_edit_begin(heap);
    while ((lease = find_due(heap)) != NULL) {
        const struct vpmm_lease ended = *lease;
        const uint64_t bytes = ended.pages * sizeof(struct vpmm_removal);
        struct vpmm_removal *removals = heap->memory->map(heap->memory->self, bytes);
        if (!removals)
            break;
        uint64_t n = vpmm_atomic_load(&heap->n_leases) - 1;
        *lease = heap->leases[n];
        vpmm_atomic_store(&heap->n_leases, n);
        vpmm_heap_free_for_good(heap, ended.address, removals, ended.pages);
        heap->memory->unmap(heap->memory->self, removals, bytes);
    }
    vpmm_edit_end(heap);
}
