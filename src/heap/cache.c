/* SPDX-License-Identifier: MIT */
#include "heap/cache.h"

#include "heap/internal.h"

/* So many frees share an event where nobody else asks for their pages; a stream's first ones fewer.
 */
#define BATCH_MAX 64u

/* A batch of several blocks is closed at so much: where another stream has to have its event
 * recorded, that waits for all that the context was given meanwhile. */
#define BATCH_BYTES_MAX ((uint64_t)64 << 20)

/* A larger share of the device is freed with an event of its own, so that a request for much of the
 * device can wait for it on the device. */
#define SHARE_MAX 64u

#define IDS_SET_ASIDE 1024u

enum vpmm_status vpmm_cache_init(struct vpmm_heap *heap)
{
    uint64_t share = heap->device_bytes / heap->page_bytes / SHARE_MAX;
    heap->cached_pages_max = share < UINT32_MAX ? share : UINT32_MAX;
    return vpmm_lanes_init(heap);
}

void vpmm_cache_drain(struct vpmm_heap *heap, uint64_t stream_id)
{
    struct vpmm_lane *lane = stream_id ? vpmm_lane_take_of(heap->lanes, stream_id) : NULL;
    if (!lane)
        return;
    vpmm_lane_empty(heap, lane);
    vpmm_lane_give(lane);
}

/* An event on the stream itself does not wait for other streams' work as one of the context does.
 * On the legacy stream it would put work in order that bare CUDA leaves alone. */
static bool can_record_on(const struct vpmm_stream *own, uint64_t stream_id)
{
    return own && own->id == stream_id && !own->is_legacy;
}

bool vpmm_cache_gather(struct vpmm_heap *heap, const struct vpmm_stream *own)
{
    vpmm_fence fences[VPMM_LANES];
    vpmm_fence own_fence = VPMM_FENCE_NONE;
    size_t n_fences = 0;
    bool had_any = false;
    if (!vpmm_atomic_load(&heap->n_lanes))
        return false;
    vpmm_lock_take(&heap->lock);
    for (struct vpmm_lane *lane = heap->first_lane; lane; lane = lane->next) {
        vpmm_lane_take(lane);
        uint64_t stream_id = vpmm_atomic_load(&lane->stream_id);
        had_any |= lane->n != 0 || lane->batch;
        vpmm_lane_empty(heap, lane);
        if (lane->batch && can_record_on(own, stream_id))
            own_fence = vpmm_lane_detach(lane);
        else if (lane->batch)
            fences[n_fences++] = vpmm_lane_detach(lane);
        /* Somebody else wants what is freed there: its next frees are told of at once. */
        if (!own || stream_id != own->id)
            lane->n_joined_max = 1;
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

/* As take_lane_for, where `lane`, which is the stream's and has its latch taken, or NULL, is not
 * enough. */
VPMM_APART static struct vpmm_lane *
prepare(struct vpmm_heap *heap, const struct vpmm_stream *stream, struct vpmm_lane *lane)
{
    if (!lane || lane->n == VPMM_LANE_REGIONS) {
        if (lane)
            vpmm_lane_give(lane);
        vpmm_lane_adopt(heap, stream->id);
        lane = vpmm_lane_take_of(heap->lanes, stream->id);
    }
    if (lane && !lane->batch)
        lane->batch = vpmm_order_open(heap->order, stream);
    if (lane && (lane->n == VPMM_LANE_REGIONS || !lane->batch)) {
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

/* ---- malloc ---- */

static uint64_t next_id(struct vpmm_heap *heap, struct vpmm_lane *lane)
{
    if (lane->next_id == lane->end_id) {
        lane->next_id = vpmm_heap_reserve_ids(heap, IDS_SET_ASIDE);
        lane->end_id = lane->next_id + IDS_SET_ASIDE;
    }
    return vpmm_heap_allocation_id(heap, lane->next_id++);
}

/* Which of the lane's regions the request is to have, counted from 1; 0: none. Where the habit's is
 * not among them, the pool may have to put it together, and that is better than to break the habit.
 */
static uint32_t search(const struct vpmm_lane *lane, uint64_t pages, uint64_t habit)
{
    for (uint32_t i = lane->n; i > 0; i--) {
        const struct vpmm_cached *cached = &lane->cached[i - 1];
        if (cached->pages != pages)
            continue;
        if (!habit || cached->address == habit)
            return i;
    }
    return 0;
}

bool vpmm_cache_malloc(struct vpmm_heap *heap, uint64_t pages, const struct vpmm_request *request,
                       uint64_t *address_out)
{
    struct vpmm_lane *lane = vpmm_lane_take_of(heap->lanes, request->stream->id);
    if (!lane)
        return false;
    bool has_habits = vpmm_atomic_load(&heap->n_lanes) <= VPMM_HABIT_LANES;
    uint64_t layout = has_habits ? vpmm_habit_layout(heap) : 0;
    uint64_t key = vpmm_habit_key(layout, request->stream->id, pages);
    uint64_t habit = has_habits ? vpmm_habit_find(heap->habits, key) : 0;
    uint32_t i = search(lane, pages, habit);
    if (i > 0) {
        uint32_t number = lane->cached[i - 1].number;
        lane->cached[i - 1] = lane->cached[--lane->n];
        const struct vpmm_owner owner = {.bytes = request->bytes,
                                         .context_id = vpmm_context_id(request->context),
                                         .stream_id = request->stream->id,
                                         .id = next_id(heap, lane),
                                         .is_async = true};
        *address_out = vpmm_pool_uncache(heap->pool, number, &owner, &lane->share);
        vpmm_atomic_store(&lane->mallocs, vpmm_atomic_load(&lane->mallocs) + 1);
        if (has_habits && *address_out != habit)
            vpmm_habit_keep(heap->habits, key, *address_out);
        vpmm_lane_mark(lane, vpmm_habit_mark(*address_out, pages));
    }
    vpmm_lane_give(lane);
    return i > 0;
}

/* ---- free ---- */

static bool may_cache(const struct vpmm_heap *heap, uint64_t pages,
                      const struct vpmm_stream *stream)
{
    return pages <= heap->cached_pages_max && !vpmm_order_has_captures(heap->order) &&
           vpmm_context_device(stream->context) == heap->params.device;
}

/* Whether the region's last owner, too, leaves nothing behind but what the stream comes after. */
static bool follows(const struct vpmm_heap *heap, vpmm_fence prior,
                    const struct vpmm_stream *stream)
{
    return vpmm_order_covers(heap->order, prior, vpmm_context_id(stream->context), stream->id);
}

/* With the latch, after a free has joined the batch: the fence to be closed, if it is time. */
static vpmm_fence due(const struct vpmm_heap *heap, struct vpmm_lane *lane)
{
    bool is_long = lane->n_joined >= lane->n_joined_max;
    bool is_large = lane->n > 1 && lane->joined_pages > BATCH_BYTES_MAX / heap->page_bytes;
    if (!is_long && !is_large && !vpmm_atomic_load(&heap->is_tight))
        return VPMM_FENCE_NONE;
    if (is_long && lane->n_joined_max < BATCH_MAX)
        lane->n_joined_max *= 2;
    return vpmm_lane_detach(lane);
}

/* With the latch. */
static bool push(struct vpmm_heap *heap, struct vpmm_lane *lane, uint64_t address,
                 const struct vpmm_live *live, const struct vpmm_stream *stream)
{
    vpmm_fence prior = live->fence;
    if (prior && prior != lane->batch && !follows(heap, prior, stream))
        return false;
    if (!vpmm_pool_cache(heap->pool, live, lane->batch, stream->id, &lane->share))
        return false;
    lane->cached[lane->n++] = (struct vpmm_cached){address, live->number, (uint32_t)live->pages};
    lane->n_joined++;
    lane->joined_pages += live->pages;
    vpmm_atomic_store(&lane->frees, vpmm_atomic_load(&lane->frees) + 1);
    return true;
}

bool vpmm_cache_free(struct vpmm_heap *heap, uint64_t address, const struct vpmm_stream *stream,
                     enum vpmm_status *status_out)
{
    struct vpmm_live live;
    if (!vpmm_pool_look_live(heap->pool, address, &live) || !may_cache(heap, live.pages, stream))
        return false;
    struct vpmm_lane *lane = take_lane_for(heap, stream);
    if (!lane)
        return false;
    bool is_first = lane->n_joined == 0;
    bool has_it = push(heap, lane, address, &live, stream);
    if (has_it)
        vpmm_lane_mark(lane, vpmm_habit_mark(address, live.pages));
    vpmm_fence closing = has_it ? due(heap, lane) : VPMM_FENCE_NONE;
    vpmm_lane_give(lane);
    *status_out = VPMM_OK;
    if (closing)
        *status_out = vpmm_order_close(heap->order, closing, stream, is_first);
    else if (has_it && stream->is_legacy)
        *status_out = vpmm_order_mark(heap->order, stream);
    if (closing)
        vpmm_order_tidy(heap->order);
    return has_it;
}
