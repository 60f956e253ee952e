/* SPDX-License-Identifier: MIT */
/* Hands what lanes hold to the pool, so that it can be one with its neighbours. Must not call the
 * driver while it holds a latch or the heap's lock. */
#include "heap/heap_cache.h"
#include "heap/heap_internal.h"

void vpmm_cache_drain(struct vpmm_heap *heap, uint64_t stream_id)
{
    struct vpmm_lane *lane = stream_id ? vpmm_lane_take_of(heap->lanes, stream_id) : NULL;
    if (!lane)
        return;
    vpmm_lane_empty(heap, lane);
    vpmm_lane_give(lane);
}

void vpmm_cache_drain_range(struct vpmm_heap *heap, uint64_t stream_id, uint64_t address,
                            uint64_t pages)
{
    struct vpmm_lane *lane = stream_id ? vpmm_lane_take_of(heap->lanes, stream_id) : NULL;
    if (!lane)
        return;
    vpmm_lane_empty_range(heap, lane, address, address + pages * heap->page_bytes);
    vpmm_lane_give(lane);
}

static bool has_point(const struct vpmm_follower *follower, uint64_t stream_id)
{
    for (uint32_t i = 0; i < follower->n_points; i++)
        if (follower->points[i].stream_id == stream_id)
            return true;
    return false;
}

bool vpmm_cache_drain_followed(struct vpmm_heap *heap, const struct vpmm_follower *follower)
{
    bool is_all = true;
    if (!follower->n_points && !vpmm_lanes_have_one_stream(heap))
        return false;
    vpmm_lock_take(&heap->lock);
    for (struct vpmm_lane *lane = heap->first_lane; lane && is_all; lane = lane->next) {
        uint64_t stream_id = vpmm_atomic_load(&lane->stream_id);
        vpmm_lane_take(lane);
        is_all = !lane->n || stream_id == follower->stream_id || has_point(follower, stream_id);
        if (is_all)
            vpmm_lane_empty(heap, lane);
        vpmm_lane_give(lane);
    }
    vpmm_heap_check(heap);
    vpmm_lock_give(&heap->lock);
    return is_all;
}

/* An event on the stream itself does not wait for other streams' work as one of the context does.
 * On the legacy stream it would put work in order that bare CUDA leaves alone. */
static bool can_record_on(const struct vpmm_stream *own, uint64_t stream_id)
{
    return own && own->id == stream_id && !own->is_legacy;
}

/* With the heap's lock and the latch. Whether there was anything to be had; the fence to be closed,
 * or NONE, also where all that joined it is proven complete. */
static bool detach(struct vpmm_heap *heap, struct vpmm_lane *lane, bool is_own,
                   vpmm_fence *fence_out)
{
    bool had_any = lane->n || lane->batch;
    if (lane->n && !is_own)
        vpmm_lane_rob(lane);
    vpmm_lane_drop_proven(heap, lane);
    *fence_out = lane->batch ? vpmm_lane_detach(lane) : VPMM_FENCE_NONE;
    /* Somebody else wants what is freed there: its next frees are told of at once. */
    if (!is_own)
        lane->n_joined_max = 1;
    return had_any;
}

bool vpmm_cache_close(struct vpmm_heap *heap, const struct vpmm_stream *own, bool empties)
{
    vpmm_fence fences[VPMM_LANES];
    vpmm_fence own_fence = VPMM_FENCE_NONE;
    size_t n_fences = 0;
    bool had_any = false;
    if (!vpmm_atomic_load(&heap->n_lanes))
        return false;
    vpmm_lock_take(&heap->lock);
    for (struct vpmm_lane *lane = heap->first_lane; lane; lane = lane->next) {
        vpmm_fence fence;
        vpmm_lane_take(lane);
        uint64_t stream_id = vpmm_atomic_load(&lane->stream_id);
        had_any |= detach(heap, lane, own && stream_id == own->id, &fence);
        if (fence && can_record_on(own, stream_id))
            own_fence = fence;
        else if (fence)
            fences[n_fences++] = fence;
        if (empties)
            vpmm_lane_empty(heap, lane);
        vpmm_lane_give(lane);
    }
    vpmm_heap_check(heap);
    vpmm_lock_give(&heap->lock);
    /* A device that is broken tells the request itself. */
    if (own_fence && vpmm_order_close(heap->order, own_fence, own, false))
        had_any = true;
    vpmm_order_close_all(heap->order, fences, n_fences);
    return had_any;
}

void vpmm_cache_empty(struct vpmm_heap *heap)
{
    for (struct vpmm_lane *lane = heap->first_lane; lane; lane = lane->next) {
        vpmm_lane_take(lane);
        vpmm_lane_empty(heap, lane);
        vpmm_lane_give(lane);
    }
}
