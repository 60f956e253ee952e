/* SPDX-License-Identifier: MIT */
/* The front cache: serves mallocs from lanes and puts frees into them. Must not call the driver
 * while it holds a latch or the heap's lock. */
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

#define IDS_SET_ASIDE 1024u

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

/* ---- malloc ---- */

static uint64_t next_id(struct vpmm_heap *heap, struct vpmm_lane *lane)
{
    if (lane->next_id == lane->end_id) {
        lane->next_id = vpmm_heap_reserve_ids(heap, IDS_SET_ASIDE);
        lane->end_id = lane->next_id + IDS_SET_ASIDE;
    }
    return vpmm_heap_allocation_id(heap, lane->next_id++);
}

/* The lane of what cudaFree frees of a context's memory. No stream has that id: see order_stream.c.
 */
#define LANE_OF_CONTEXT (UINT64_C(1) << 62)

static uint64_t lane_of(const struct vpmm_request *request)
{
    return request->stream ? request->stream->id
                           : LANE_OF_CONTEXT | vpmm_context_id(request->context);
}

static bool is_complete(const struct vpmm_heap *heap, const struct vpmm_cached *cached)
{
    vpmm_fence fence = vpmm_pool_cached_fence(heap->pool, cached->number);
    return vpmm_order_ask(heap->order, fence, 0) == VPMM_VERDICT_COMPLETE;
}

/* As in struct vpmm_cached. */
static inline uint64_t kind_of(uint64_t pages, bool is_slab)
{
    return pages | (is_slab ? VPMM_CACHED_IS_SLAB : 0);
}

#define NO_PLACE UINT32_MAX

/* The place in the lane of the region that the request is to have; NO_PLACE: none. Where the
 * habit's is not among them, the pool may have to put it together, and that is better than to break
 * the habit. What a stream frees comes before its later work; cudaMalloc needs it complete. */
static VPMM_INLINE uint32_t search(const struct vpmm_heap *heap, struct vpmm_lane *lane,
                                   uint64_t kind, uint64_t habit, bool is_ordered,
                                   bool *is_pending_out)
{
    bool is_whole = vpmm_heap_gives_whole(heap, is_ordered);
    *is_pending_out = false;
    uint64_t left = *vpmm_lane_bin(lane, kind);
    for (uint32_t place; vpmm_lane_next(&left, &place);) {
        const struct vpmm_cached *cached = &lane->cached[place];
        if (cached->kind != kind || (habit && lane->addresses[place] != habit))
            continue;
        if (is_whole && !vpmm_pool_cached_is_whole(heap->pool, cached->number))
            continue;
        if (is_ordered || is_complete(heap, cached))
            return place;
        *is_pending_out = true;
    }
    return NO_PLACE;
}

/* The region at that place of the lane becomes the request's; with the latch. Its address. */
static VPMM_INLINE uint64_t hand_out(struct vpmm_heap *heap, struct vpmm_lane *lane, uint32_t place,
                                     const struct vpmm_request *request, uint64_t stream_id,
                                     uint64_t stamp)
{
    const struct vpmm_owner owner = {.bytes = request->bytes,
                                     .context_id = vpmm_context_id(request->context),
                                     .stream_id = stream_id,
                                     .id = next_id(heap, lane),
                                     .stamp = stamp,
                                     .is_async = stream_id != 0,
                                     .mempool = vpmm_mempool_number(request)};
    uint32_t number = lane->cached[place].number;
    vpmm_lane_remove(lane, place);
    vpmm_atomic_store(&lane->mallocs, vpmm_atomic_load(&lane->mallocs) + 1);
    vpmm_lane_stamp(lane, stamp);
    return vpmm_pool_uncache(heap->pool, number, &owner, &lane->share);
}

static VPMM_INLINE void note_hit(struct vpmm_heap *heap, const struct vpmm_request *request,
                                 const struct vpmm_recalled *recalled, uint64_t address)
{
    vpmm_heap_remember(heap, recalled, address);
    if (recalled->is_kept)
        vpmm_mempool_note_hit(heap, request->mempool);
}

/* Finds the request's habit. If the lane holds a block that was asked for with the same key, that
 * block's place is the habit. Then the log is not read; its own habit would be the next one there.
 */
static VPMM_INLINE void find_habit(const struct vpmm_heap *heap, struct vpmm_lane *lane,
                                   uint64_t kind, struct vpmm_recalled *recalled)
{
    if (!recalled->is_kept)
        return;
    uint64_t left = *vpmm_lane_bin(lane, kind);
    for (uint32_t place; vpmm_lane_next(&left, &place);) {
        const struct vpmm_cached *cached = &lane->cached[place];
        if (cached->stamp == recalled->stamp && cached->kind == kind) {
            recalled->address = lane->addresses[place];
            lane->last_habit++;
            return;
        }
    }
    recalled->address = vpmm_habit_find(heap->habits, recalled->key, &lane->last_habit);
}

struct vpmm_recalled vpmm_cache_recall(struct vpmm_heap *heap, const struct vpmm_request *request,
                                       uint64_t pages)
{
    uint64_t stream_id = request->stream ? request->stream->id : 0;
    struct vpmm_recalled recalled = vpmm_heap_recall_key(heap, stream_id, pages, request->is_slab);
    if (!recalled.is_kept)
        return recalled;
    struct vpmm_lane *lane = vpmm_lane_take_of(heap->lanes, lane_of(request));
    uint64_t last = lane ? lane->last_habit : 0;
    recalled.address = vpmm_habit_find(heap->habits, recalled.key, &last);
    if (lane) {
        lane->last_habit = last;
        vpmm_lane_give(lane);
    }
    return recalled;
}

/* `stream_id` 0: cudaMalloc. */
static VPMM_INLINE enum vpmm_status serve(struct vpmm_heap *heap, uint64_t lane_id,
                                          uint64_t stream_id, uint64_t pages,
                                          const struct vpmm_request *request, uint64_t *address_out)
{
    struct vpmm_lane *lane = vpmm_lane_take_of(heap->lanes, lane_id);
    if (!lane)
        return VPMM_NOT_FOUND;
    bool is_pending;
    uint64_t kind = kind_of(pages, request->is_slab);
    struct vpmm_recalled recalled = vpmm_heap_recall_key(heap, stream_id, pages, request->is_slab);
    find_habit(heap, lane, kind, &recalled);
    uint32_t place = search(heap, lane, kind, recalled.address, stream_id != 0, &is_pending);
    if (place != NO_PLACE) {
        *address_out = hand_out(heap, lane, place, request, stream_id, recalled.stamp);
        note_hit(heap, request, &recalled, *address_out);
    }
    vpmm_lane_give(lane);
    if (place != NO_PLACE)
        return VPMM_OK;
    return is_pending ? VPMM_NOT_READY : VPMM_NOT_FOUND;
}

/* Serves from what another stream freed up to that point, which the request comes after. */
static bool serve_followed(struct vpmm_heap *heap, const struct vpmm_point *point, uint64_t pages,
                           const struct vpmm_recalled *recalled, const struct vpmm_request *request,
                           uint64_t *address_out)
{
    struct vpmm_lane *lane = vpmm_lane_take_of(heap->lanes, point->stream_id);
    if (!lane)
        return false;
    uint64_t kind = kind_of(pages, request->is_slab);
    uint64_t left = *vpmm_lane_bin(lane, kind);
    bool has_one = false;
    for (uint32_t place; !has_one && vpmm_lane_next(&left, &place);) {
        const struct vpmm_cached *cached = &lane->cached[place];
        bool is_ordered =
            point->turn == UINT64_MAX || (cached->turn && cached->turn <= point->turn);
        has_one = cached->kind == kind && is_ordered &&
                  (!recalled->address || lane->addresses[place] == recalled->address);
        if (has_one)
            *address_out =
                hand_out(heap, lane, place, request, request->stream->id, recalled->stamp);
    }
    vpmm_lane_give(lane);
    return has_one;
}

/* The same of whatever other streams the program has put before this one. */
VPMM_NOINLINE static bool serve_from_followed(struct vpmm_heap *heap, uint64_t pages,
                                              const struct vpmm_request *request,
                                              uint64_t *address_out)
{
    struct vpmm_follower follower;
    if (request->mempool && vpmm_atomic_load(&request->mempool->follows_never))
        return false;
    vpmm_order_follower(heap->order, request->stream, &follower);
    if (!follower.n_points)
        return false;
    const struct vpmm_recalled recalled = vpmm_cache_recall(heap, request, pages);
    for (uint32_t i = 0; i < follower.n_points; i++) {
        if (!serve_followed(heap, &follower.points[i], pages, &recalled, request, address_out))
            continue;
        note_hit(heap, request, &recalled, *address_out);
        return true;
    }
    return false;
}

bool vpmm_cache_malloc(struct vpmm_heap *heap, uint64_t pages, const struct vpmm_request *request,
                       uint64_t *address_out)
{
    uint64_t id = request->stream->id;
    if (!id)
        return false;
    return serve(heap, id, id, pages, request, address_out) == VPMM_OK ||
           serve_from_followed(heap, pages, request, address_out);
}

enum vpmm_status vpmm_cache_malloc_sync(struct vpmm_heap *heap, uint64_t pages,
                                        const struct vpmm_request *request, uint64_t *address_out)
{
    return serve(heap, lane_of(request), 0, pages, request, address_out);
}

/* ---- free ---- */

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
                                       .kind = (uint32_t)kind_of(live->pages, live->is_slab)};
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
    uint64_t lane_id = LANE_OF_CONTEXT | live.context_id;
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
