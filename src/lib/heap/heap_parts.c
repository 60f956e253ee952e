/* SPDX-License-Identifier: MIT */
/* Frees regions that are given out in parts, and asks their owner for those that nobody uses. Must
 * not take a region for reusable before all that its parts wait for is complete. */
#include "heap/heap_internal.h"

void vpmm_heap_set_keeper(struct vpmm_heap *heap, const struct vpmm_keeper *keeper)
{
    heap->keeper = *keeper;
}

void vpmm_heap_ask_keeper(struct vpmm_heap *heap)
{
    if (heap->keeper.give_back)
        heap->keeper.give_back(heap->keeper.self);
}

uint64_t vpmm_heap_keeper_pending(const struct vpmm_heap *heap)
{
    const struct vpmm_keeper *keeper = &heap->keeper;
    return keeper->pending_pages ? keeper->pending_pages(keeper->self) : 0;
}

bool vpmm_heap_is_wasteful(const struct vpmm_heap *heap)
{
    return vpmm_atomic_load(&heap->is_wasteful) != 0;
}

bool vpmm_heap_is_tight(const struct vpmm_heap *heap)
{
    return vpmm_atomic_load(&heap->is_tight) != 0;
}

enum vpmm_status vpmm_heap_free_fenced(struct vpmm_heap *heap, uint64_t address, uint64_t owner_id,
                                       vpmm_fence fence, uint64_t stream_id)
{
    struct vpmm_region_view region;
    struct vpmm_order *order = heap->order;
    enum vpmm_status status = vpmm_pool_claim_of(heap->pool, address, owner_id, &region);
    if (status)
        return status;
    vpmm_atomic_add(&heap->frees, 1);
    vpmm_hint_xor(&heap->layout, region.owner.stamp);
    if (vpmm_order_ask(order, region.fence, 0) != VPMM_VERDICT_COMPLETE) {
        vpmm_fence joined = vpmm_order_join(order, region.fence, fence);
        if (joined) {
            fence = joined;
        } else if (vpmm_order_ask(order, region.fence, 0) != VPMM_VERDICT_COMPLETE) {
            vpmm_atomic_add(&heap->lost_pages, region.pages);
            return VPMM_OK;
        }
    }
    vpmm_lock_take(&heap->lock);
    vpmm_lease_release(heap, &region, fence, stream_id);
    vpmm_lock_give(&heap->lock);
    vpmm_order_tidy(order);
    return VPMM_OK;
}
