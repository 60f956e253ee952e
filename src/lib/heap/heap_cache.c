/* SPDX-License-Identifier: MIT */
/* The front cache's half that serves mallocs from lanes, and finds their habits. Must not call the
 * driver, and must not take the heap's lock. */
#include "heap/heap_cache.h"

#include "heap/heap_internal.h"

#define IDS_SET_ASIDE 1024u

static uint64_t lane_of(const struct vpmm_request *request)
{
    return request->stream ? request->stream->id
                           : vpmm_lane_of_context(vpmm_context_id(request->context));
}

/* As vpmm_lane_take_of. No lane is of a stream without an id. */
static VPMM_INLINE struct vpmm_lane *take_lane(struct vpmm_heap *heap, uint64_t lane_id)
{
    return lane_id ? vpmm_lane_take_of(heap->lanes, lane_id) : NULL;
}

static uint64_t next_id(struct vpmm_heap *heap, struct vpmm_lane *lane)
{
    if (lane->next_id == lane->end_id) {
        lane->next_id = vpmm_heap_reserve_ids(heap, IDS_SET_ASIDE);
        lane->end_id = lane->next_id + IDS_SET_ASIDE;
    }
    return vpmm_heap_allocation_id(heap, lane->next_id++);
}

static bool is_complete(const struct vpmm_heap *heap, const struct vpmm_cached *cached)
{
    vpmm_fence fence = vpmm_pool_cached_fence(heap->pool, cached->number);
    return vpmm_order_ask(heap->order, fence, 0) == VPMM_VERDICT_COMPLETE;
}

#define NO_PLACE UINT32_MAX

/* Whether the request may have the lane's region at that place. What a stream frees comes before
 * its later work; cudaMalloc needs it complete. */
static VPMM_INLINE bool may_have(const struct vpmm_heap *heap, const struct vpmm_lane *lane,
                                 uint32_t place, bool is_ordered, bool *is_pending)
{
    const struct vpmm_cached *cached = &lane->cached[place];
    bool is_whole = vpmm_heap_gives_whole(heap, is_ordered);
    if (is_whole && !vpmm_pool_cached_is_whole(heap->pool, cached->number))
        return false;
    if (is_ordered || is_complete(heap, cached))
        return true;
    *is_pending = true;
    return false;
}

/* The place in the lane of the region that the request is to have; NO_PLACE: none. Where the
 * habit's is not among them, the pool may have to put it together, and that is better than to break
 * the habit. */
static VPMM_INLINE uint32_t search(const struct vpmm_heap *heap, struct vpmm_lane *lane,
                                   uint64_t kind, uint64_t habit, bool is_ordered, bool *is_pending)
{
    uint64_t left = *vpmm_lane_bin(lane, kind);
    for (uint32_t place; vpmm_lane_next(&left, &place);)
        if (lane->cached[place].kind == kind && (!habit || lane->addresses[place] == habit) &&
            may_have(heap, lane, place, is_ordered, is_pending))
            return place;
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

/* The place of a block in the lane that was asked for with the same key, mostly the youngest one;
 * NO_PLACE: there is none. */
static VPMM_INLINE uint32_t find_same(struct vpmm_lane *lane, uint64_t kind, uint64_t stamp)
{
    uint32_t youngest = lane->n - 1;
    if (lane->n && lane->cached[youngest].stamp == stamp && lane->cached[youngest].kind == kind)
        return youngest;
    uint64_t left = *vpmm_lane_bin(lane, kind);
    for (uint32_t place; vpmm_lane_next(&left, &place);)
        if (lane->cached[place].stamp == stamp && lane->cached[place].kind == kind)
            return place;
    return NO_PLACE;
}

/* As search, and finds the request's habit. If the lane holds a block that was asked for with the
 * same key, that block's place is the habit, and the log is not searched. */
static VPMM_INLINE uint32_t search_by_habit(const struct vpmm_heap *heap, struct vpmm_lane *lane,
                                            uint64_t kind, struct vpmm_recalled *recalled,
                                            bool is_ordered, bool *is_pending)
{
    uint32_t same = recalled->is_kept ? find_same(lane, kind, recalled->stamp) : NO_PLACE;
    if (same != NO_PLACE) {
        recalled->address = lane->addresses[same];
        vpmm_habit_step(heap->habits, recalled->key, &lane->last_habit);
        return may_have(heap, lane, same, is_ordered, is_pending) ? same : NO_PLACE;
    }
    if (recalled->is_kept)
        vpmm_habit_find(heap->habits, recalled, &lane->last_habit);
    return search(heap, lane, kind, recalled->address, is_ordered, is_pending);
}

struct vpmm_recalled vpmm_cache_recall(struct vpmm_heap *heap, const struct vpmm_request *request,
                                       uint64_t pages)
{
    uint64_t stream_id = request->stream ? request->stream->id : 0, nowhere = 0;
    struct vpmm_lane *lane = take_lane(heap, lane_of(request));
    struct vpmm_recalled recalled = vpmm_heap_recall_key(heap, stream_id, pages, request->is_slab);
    if (recalled.is_kept)
        vpmm_habit_find(heap->habits, &recalled, lane ? &lane->last_habit : &nowhere);
    if (lane)
        vpmm_lane_give(lane);
    return recalled;
}

/* `stream_id` 0: cudaMalloc. */
static VPMM_INLINE enum vpmm_status serve(struct vpmm_heap *heap, uint64_t lane_id,
                                          uint64_t stream_id, uint64_t pages,
                                          const struct vpmm_request *request, uint64_t *address_out,
                                          struct vpmm_recalled *recalled_out)
{
    struct vpmm_lane *lane = take_lane(heap, lane_id);
    if (!lane) {
        *recalled_out = vpmm_cache_recall(heap, request, pages);
        return VPMM_NOT_FOUND;
    }
    bool is_pending = false;
    uint64_t kind = vpmm_cached_kind(pages, request->is_slab);
    struct vpmm_recalled recalled = vpmm_heap_recall_key(heap, stream_id, pages, request->is_slab);
    uint32_t place = search_by_habit(heap, lane, kind, &recalled, stream_id != 0, &is_pending);
    if (place != NO_PLACE) {
        *address_out = hand_out(heap, lane, place, request, stream_id, recalled.stamp);
        note_hit(heap, request, &recalled, *address_out);
    }
    vpmm_lane_give(lane);
    if (place != NO_PLACE)
        return VPMM_OK;
    *recalled_out = recalled;
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
    uint64_t kind = vpmm_cached_kind(pages, request->is_slab);
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
                                              const struct vpmm_recalled *recalled,
                                              uint64_t *address_out)
{
    struct vpmm_follower follower;
    if (request->mempool && vpmm_atomic_load(&request->mempool->follows_never))
        return false;
    vpmm_order_follower(heap->order, request->stream, &follower);
    if (!follower.n_points)
        return false;
    for (uint32_t i = 0; i < follower.n_points; i++) {
        if (!serve_followed(heap, &follower.points[i], pages, recalled, request, address_out))
            continue;
        note_hit(heap, request, recalled, *address_out);
        return true;
    }
    return false;
}

bool vpmm_cache_malloc(struct vpmm_heap *heap, uint64_t pages, const struct vpmm_request *request,
                       uint64_t *address_out, struct vpmm_recalled *recalled_out)
{
    uint64_t id = request->stream->id;
    return serve(heap, id, id, pages, request, address_out, recalled_out) == VPMM_OK ||
           (id && serve_from_followed(heap, pages, request, recalled_out, address_out));
}

enum vpmm_status vpmm_cache_malloc_sync(struct vpmm_heap *heap, uint64_t pages,
                                        const struct vpmm_request *request, uint64_t *address_out,
                                        struct vpmm_recalled *recalled_out)
{
    return serve(heap, lane_of(request), 0, pages, request, address_out, recalled_out);
}
