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

#define LANES_BYTES (sizeof(struct vpmm_lane) * VPMM_LANES)

enum vpmm_status vpmm_cache_init(struct vpmm_heap *heap)
{
    heap->lanes = heap->memory->map(heap->memory->self, LANES_BYTES);
    uint64_t share = heap->device_bytes / heap->page_bytes / SHARE_MAX;
    heap->cached_pages_max = share < UINT32_MAX ? share : UINT32_MAX;
    return heap->lanes ? VPMM_OK : VPMM_NO_METADATA;
}

void vpmm_cache_finish(struct vpmm_heap *heap)
{
    if (heap->lanes)
        heap->memory->unmap(heap->memory->self, heap->lanes, LANES_BYTES);
}

static void take(struct vpmm_lane *lane)
{
    vpmm_latch_take(&lane->latch, VPMM_RANK_LANE);
}

static void give(struct vpmm_lane *lane)
{
    vpmm_latch_give(&lane->latch, VPMM_RANK_LANE);
}

/* ---- which lane ---- */

static struct vpmm_lane *set_of(const struct vpmm_heap *heap, uint64_t stream_id)
{
    uint64_t mixed = stream_id * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t set = (mixed >> 32) % VPMM_LANE_SETS;
    return &heap->lanes[set * VPMM_LANE_WAYS];
}

/* The stream's lane, with its latch; NULL: it has none. */
static inline struct vpmm_lane *take_lane_of(const struct vpmm_heap *heap, uint64_t stream_id)
{
    struct vpmm_lane *set = set_of(heap, stream_id);
    for (unsigned i = 0; i < VPMM_LANE_WAYS; i++) {
        struct vpmm_lane *lane = &set[i];
        if (vpmm_atomic_load(&lane->stream_id) != stream_id)
            continue;
        take(lane);
        if (vpmm_atomic_load(&lane->stream_id) == stream_id)
            return lane;
        give(lane);
    }
    return NULL;
}

/* ---- out of a lane ---- */

/* With the heap's lock and the latch. */
static void empty(struct vpmm_heap *heap, struct vpmm_lane *lane)
{
    for (; lane->n; lane->n--) {
        uint32_t number = lane->cached[lane->n - 1].number;
        vpmm_fence fence = vpmm_pool_cached_fence(heap->pool, number);
        bool is_complete = vpmm_order_ask(heap->order, fence, 0) == VPMM_VERDICT_COMPLETE;
        vpmm_pool_free_cached(heap->pool, number, is_complete, &lane->share);
    }
}

/* With the latch. The batch, which no free joins from now on. */
static vpmm_fence detach(struct vpmm_lane *lane)
{
    vpmm_fence fence = lane->batch;
    lane->batch = VPMM_FENCE_NONE;
    lane->n_joined = 0;
    lane->joined_pages = 0;
    return fence;
}

void vpmm_cache_drain(struct vpmm_heap *heap, uint64_t stream_id)
{
    struct vpmm_lane *lane = take_lane_of(heap, stream_id);
    if (!lane)
        return;
    empty(heap, lane);
    give(lane);
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
        take(lane);
        uint64_t stream_id = vpmm_atomic_load(&lane->stream_id);
        had_any |= lane->n != 0 || lane->batch;
        empty(heap, lane);
        if (lane->batch && can_record_on(own, stream_id))
            own_fence = detach(lane);
        else if (lane->batch)
            fences[n_fences++] = detach(lane);
        /* Somebody else wants what is freed there: its next frees are told of at once. */
        if (!own || stream_id != own->id)
            lane->n_joined_max = 1;
        give(lane);
    }
    vpmm_heap_check(heap);
    vpmm_lock_give(&heap->lock);
    /* A device that is broken tells the request itself. */
    if (own_fence && vpmm_order_close(heap->order, own_fence, own, false))
        had_any = true;
    vpmm_order_close_all(heap->order, fences, n_fences);
    return had_any;
}

/* ---- a lane for a stream ---- */

/* With the heap's lock. One of the set's lanes that nobody has, or the next in turn. */
static struct vpmm_lane *choose(struct vpmm_heap *heap, uint64_t stream_id)
{
    struct vpmm_lane *set = set_of(heap, stream_id);
    for (unsigned i = 0; i < VPMM_LANE_WAYS; i++)
        if (!vpmm_atomic_load(&set[i].stream_id))
            return &set[i];
    return &set[heap->n_evictions++ % VPMM_LANE_WAYS];
}

VPMM_APART static void adopt(struct vpmm_heap *heap, uint64_t stream_id)
{
    vpmm_fence left = VPMM_FENCE_NONE;
    vpmm_lock_take(&heap->lock);
    struct vpmm_lane *lane = take_lane_of(heap, stream_id);
    if (!lane) {
        lane = choose(heap, stream_id);
        take(lane);
        empty(heap, lane);
        left = detach(lane);
        if (!vpmm_atomic_load(&lane->stream_id)) {
            vpmm_pool_add_share(heap->pool, &lane->share);
            lane->next = heap->first_lane;
            heap->first_lane = lane;
            vpmm_atomic_add(&heap->n_lanes, 1);
        }
        lane->n_joined_max = VPMM_BATCH_FIRST;
        vpmm_atomic_store(&lane->stream_id, stream_id);
    } else if (lane->n == VPMM_LANE_REGIONS) {
        empty(heap, lane);
    }
    give(lane);
    vpmm_heap_check(heap);
    vpmm_lock_give(&heap->lock);
    if (left)
        vpmm_order_close_all(heap->order, &left, 1);
}

/* As take_lane_for, where `lane`, which is the stream's and has its latch taken, or NULL, is not
 * enough. */
VPMM_APART static struct vpmm_lane *
prepare(struct vpmm_heap *heap, const struct vpmm_stream *stream, struct vpmm_lane *lane)
{
    if (!lane || lane->n == VPMM_LANE_REGIONS) {
        if (lane)
            give(lane);
        adopt(heap, stream->id);
        lane = take_lane_of(heap, stream->id);
    }
    if (lane && !lane->batch)
        lane->batch = vpmm_order_open(heap->order, stream);
    if (lane && (lane->n == VPMM_LANE_REGIONS || !lane->batch)) {
        give(lane);
        lane = NULL;
    }
    return lane;
}

/* The stream's lane with room for one more and an open batch, with its latch; NULL where it cannot
 * be had. */
static struct vpmm_lane *take_lane_for(struct vpmm_heap *heap, const struct vpmm_stream *stream)
{
    struct vpmm_lane *lane = take_lane_of(heap, stream->id);
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

bool vpmm_cache_malloc(struct vpmm_heap *heap, uint64_t pages, const struct vpmm_request *request,
                       uint64_t *address_out)
{
    struct vpmm_lane *lane = take_lane_of(heap, request->stream->id);
    if (!lane)
        return false;
    uint32_t i = lane->n;
    while (i > 0 && lane->cached[i - 1].pages != pages)
        i--;
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
    }
    give(lane);
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
    return detach(lane);
}

/* With the latch. */
static bool push(struct vpmm_heap *heap, struct vpmm_lane *lane, const struct vpmm_live *live,
                 const struct vpmm_stream *stream)
{
    vpmm_fence prior = live->fence;
    if (prior && prior != lane->batch && !follows(heap, prior, stream))
        return false;
    if (!vpmm_pool_cache(heap->pool, live, lane->batch, stream->id, &lane->share))
        return false;
    lane->cached[lane->n++] = (struct vpmm_cached){live->number, (uint32_t)live->pages};
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
    bool has_it = push(heap, lane, &live, stream);
    vpmm_fence closing = has_it ? due(heap, lane) : VPMM_FENCE_NONE;
    give(lane);
    *status_out = VPMM_OK;
    if (closing)
        *status_out = vpmm_order_close(heap->order, closing, stream, is_first);
    else if (has_it && stream->is_legacy)
        *status_out = vpmm_order_mark(heap->order, stream);
    return has_it;
}

/* ---- looking ---- */

void vpmm_cache_hold(struct vpmm_heap *heap)
{
    for (struct vpmm_lane *lane = heap->first_lane; lane; lane = lane->next)
        take(lane);
}

void vpmm_cache_let_go(struct vpmm_heap *heap)
{
    for (struct vpmm_lane *lane = heap->first_lane; lane; lane = lane->next)
        give(lane);
}

bool vpmm_cache_try_hold(struct vpmm_heap *heap)
{
    for (struct vpmm_lane *lane = heap->first_lane; lane; lane = lane->next) {
        if (vpmm_latch_try(&lane->latch, VPMM_RANK_LANE))
            continue;
        for (struct vpmm_lane *held = heap->first_lane; held != lane; held = held->next)
            give(held);
        return false;
    }
    return true;
}

void vpmm_cache_counts(const struct vpmm_heap *heap, uint64_t *mallocs_out, uint64_t *frees_out)
{
    *mallocs_out = *frees_out = 0;
    for (unsigned i = 0; i < VPMM_LANES && vpmm_atomic_load(&heap->n_lanes); i++) {
        *mallocs_out += vpmm_atomic_load(&heap->lanes[i].mallocs);
        *frees_out += vpmm_atomic_load(&heap->lanes[i].frees);
    }
}
