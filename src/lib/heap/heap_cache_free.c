/* SPDX-License-Identifier: MIT */
/* The front cache's half that puts frees into lanes, and closes their batches when it is time. Must
 * not call the driver while it holds a latch or the heap's lock. */
#include "heap/heap_cache.h"

#include "heap/heap_internal.h"

/* So many frees share an event where nobody else asks for their pages; a stream's first ones fewer:
 * where another stream has to have the event recorded, that waits for all that the context was
 * given meanwhile. */
#define BATCH_MAX 1024u

/* Until then a batch of several blocks is closed at so much. */
#define BATCH_BYTES_MAX ((uint64_t)64 << 20)

/* A larger share of the device is freed with an event of its own, so that a request for much of the
 * device can wait for it on the device. */
#define SHARE_MAX 64u

enum vpmm_status vpmm_cache_init(struct vpmm_heap *heap)
{
    uint64_t share = heap->capacity_pages / SHARE_MAX;
    heap->cached_pages_max = share < UINT32_MAX ? share : UINT32_MAX;
    return vpmm_lanes_init(heap);
}

/* The lane of that id with room for one more, with its latch; NULL where it cannot be had. `lane`:
 * it, with its latch, or NULL; `stream` as in vpmm_lane_adopt. */
static struct vpmm_lane *with_room(struct vpmm_heap *heap, uint64_t lane_id,
                                   const struct vpmm_stream *stream, struct vpmm_lane *lane)
{
    if (lane && lane->n < VPMM_LANE_REGIONS)
        return lane;
    if (lane)
        vpmm_lane_give(lane);
    vpmm_lane_adopt(heap, lane_id, stream);
    lane = vpmm_lane_take_of(heap->lanes, lane_id);
    if (lane && lane->n == VPMM_LANE_REGIONS) {
        vpmm_lane_give(lane);
        lane = NULL;
    }
    return lane;
}

/* As take_lane_for, where `lane`, which is the stream's and has its latch taken, or NULL, is not
 * enough. */
VPMM_NOINLINE static struct vpmm_lane *
prepare(struct vpmm_heap *heap, const struct vpmm_stream *stream, struct vpmm_lane *lane)
{
    lane = with_room(heap, stream->id, stream, lane);
    if (lane && !lane->batch)
        lane->batch = vpmm_order_open(heap->order, stream);
    if (lane && !lane->batch) {
        vpmm_lane_give(lane);
        lane = NULL;
    }
    return lane;
}

/* The stream's lane with room for one more and an open batch, with its latch; NULL where it cannot
 * be had. */
static struct vpmm_lane *take_lane_for(struct vpmm_heap *heap, const struct vpmm_stream *stream)
{
    struct vpmm_lane *lane = vpmm_lane_take_of(heap->lanes, stream->id);
    if (lane && lane->n < VPMM_LANE_REGIONS && lane->batch)
        return lane;
    return prepare(heap, stream, lane);
}

static bool may_cache(const struct vpmm_heap *heap, uint64_t pages,
                      const struct vpmm_context *context)
{
    return pages <= heap->cached_pages_max && !vpmm_order_captures(heap->order) &&
           vpmm_context_device(context) == heap->params.device;
}

/* With the latch, after a free has joined the batch: the fence to be closed, if it is time. */
static vpmm_fence due(const struct vpmm_heap *heap, struct vpmm_lane *lane)
{
    bool is_long = lane->n_joined >= lane->n_joined_max;
    bool is_large = lane->n > 1 && lane->n_joined_max < BATCH_MAX &&
                    lane->joined_pages > BATCH_BYTES_MAX / heap->page_bytes;
    if (!is_long && !is_large && !vpmm_atomic_load(&heap->is_tight))
        return VPMM_FENCE_NONE;
    if (lane->n_joined_max < BATCH_MAX)
        lane->n_joined_max *= 2;
    return vpmm_lane_detach(lane);
}

/* With the latch. False: somebody else freed it. */
static bool push(struct vpmm_heap *heap, struct vpmm_lane *lane, uint64_t address,
                 const struct vpmm_live *live, vpmm_fence fence, uint64_t stream_id)
{
    uint64_t turn = vpmm_order_turn(lane->track);
    if (!vpmm_pool_cache(heap->pool, live, fence, stream_id, &lane->share))
        return false;
    const struct vpmm_cached cached = {.turn = turn,
                                       .stamp = live->stamp,
                                       .number = live->number,
                                       .kind =
                                           (uint32_t)vpmm_cached_kind(live->pages, live->is_slab)};
    vpmm_lane_put(lane, address, &cached);
    vpmm_order_joined(heap->order, fence, turn);
    vpmm_atomic_store(&lane->frees, vpmm_atomic_load(&lane->frees) + 1);
    vpmm_lane_stamp(lane, live->stamp);
    return true;
}

/* With the latch. The region's last owner, too, must leave nothing behind but what the stream comes
 * after. */
static bool join(struct vpmm_heap *heap, struct vpmm_lane *lane, uint64_t address,
                 const struct vpmm_live *live, const struct vpmm_stream *stream)
{
    vpmm_fence prior = live->fence;
    if (prior && prior != lane->batch && !vpmm_order_follows(heap->order, prior, stream))
        return false;
    if (!push(heap, lane, address, live, lane->batch, stream->id))
        return false;
    lane->n_joined++;
    lane->joined_pages += live->pages;
    return true;
}

bool vpmm_cache_free(struct vpmm_heap *heap, uint64_t address, const struct vpmm_stream *stream,
                     enum vpmm_status *status_out)
{
    struct vpmm_live live;
    if (!vpmm_pool_look_live(heap->pool, address, &live) ||
        !may_cache(heap, live.pages, stream->context))
        return false;
    struct vpmm_lane *lane = take_lane_for(heap, stream);
    if (!lane)
        return false;
    bool is_first = lane->n_joined == 0;
    bool has_it = join(heap, lane, address, &live, stream);
    vpmm_fence closing = has_it ? due(heap, lane) : VPMM_FENCE_NONE;
    vpmm_lane_give(lane);
    *status_out = VPMM_OK;
    if (closing)
        *status_out = vpmm_order_close(heap->order, closing, stream, is_first && live.is_async);
    /* The record that closes a batch on the legacy stream is its mark, too. */
    if (has_it && !*status_out && !(closing && stream->is_legacy))
        *status_out = vpmm_order_mark_free(heap->order, stream, live.is_async ? live.bytes : 0);
    if (closing)
        vpmm_order_tidy(heap->order);
    return has_it;
}

/* The context whose work a cudaFree of the block has to come after; NULL where that takes more than
 * a record, or must wait. No fence of the last owner is left: cudaMalloc gets what is complete. */
static struct vpmm_context *context_of(const struct vpmm_heap *heap, const struct vpmm_live *live)
{
    struct vpmm_context *context = vpmm_order_context_by_id(heap->order, live->context_id);
    bool would_wait = heap->params.free_waits || !heap->driver->event_record_context;
    bool is_plain = !live->is_async && !would_wait;
    bool is_ours = is_plain && context && !vpmm_context_is_gone(context);
    return is_ours && may_cache(heap, live->pages, context) ? context : NULL;
}

bool vpmm_cache_free_sync(struct vpmm_heap *heap, uint64_t address, enum vpmm_status *status_out)
{
    struct vpmm_live live;
    struct vpmm_context *context =
        vpmm_pool_look_live(heap->pool, address, &live) ? context_of(heap, &live) : NULL;
    if (!context)
        return false;
    vpmm_fence fence = vpmm_order_fence_context(heap->order, context, true, status_out);
    uint64_t lane_id = vpmm_lane_of_context(live.context_id);
    struct vpmm_lane *lane =
        with_room(heap, lane_id, NULL, vpmm_lane_take_of(heap->lanes, lane_id));
    if (!lane)
        return false;
    bool has_it = push(heap, lane, address, &live, fence, 0);
    vpmm_lane_give(lane);
    if (has_it)
        vpmm_order_tidy(heap->order);
    return has_it;
}
