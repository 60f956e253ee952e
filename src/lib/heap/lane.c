/* SPDX-License-Identifier: MIT */
/* Lanes: who has one, what it holds, and how that is handed back to the pool. Must not call the
 * driver while it holds a latch or the heap's lock. */
#include "heap/lane.h"

#include "heap/heap_internal.h"

#define LANES_BYTES (sizeof(struct vpmm_lane) * VPMM_LANES)

enum vpmm_status vpmm_lanes_init(struct vpmm_heap *heap)
{
    heap->lanes = heap->memory->map(heap->memory->self, LANES_BYTES);
    if (heap->cached_pages_max > VPMM_CACHED_PAGES_MAX)
        heap->cached_pages_max = VPMM_CACHED_PAGES_MAX;
    return heap->lanes ? VPMM_OK : VPMM_NO_METADATA;
}

void vpmm_lanes_finish(struct vpmm_heap *heap)
{
    if (heap->lanes)
        heap->memory->unmap(heap->memory->self, heap->lanes, LANES_BYTES);
}

void vpmm_lanes_note_stream(struct vpmm_heap *heap, uint64_t stream_id)
{
    uint64_t only = vpmm_atomic_load(&heap->only_stream);
    if (stream_id && only != stream_id && only != UINT64_MAX)
        vpmm_atomic_store(&heap->only_stream, only ? UINT64_MAX : stream_id);
}

bool vpmm_lanes_have_one_stream(const struct vpmm_heap *heap)
{
    return vpmm_atomic_load(&heap->only_stream) != UINT64_MAX;
}

/* What frees of that turn which share the fence come after; VPMM_FENCE_NONE: it is complete. */
struct known {
    vpmm_fence fence;
    uint64_t turn;
    vpmm_fence of_turn;
};

static vpmm_fence later(void *self, vpmm_fence a, vpmm_fence b)
{
    return vpmm_order_later(self, a, b);
}

/* With the heap's lock and the latch. Many frees share a fence. While there is no other stream,
 * nobody is kept waiting where neighbours get one fence. */
static void hand_back(struct vpmm_heap *heap, struct vpmm_lane *lane, uint32_t i,
                      struct known *known)
{
    uint32_t number = lane->cached[i].number;
    uint64_t turn = lane->cached[i].turn;
    vpmm_fence fence = vpmm_pool_cached_fence(heap->pool, number);
    if (fence != known->fence || turn != known->turn) {
        bool is_pending = !vpmm_order_turn_over(lane->track, turn) &&
                          vpmm_order_ask(heap->order, fence, 0) != VPMM_VERDICT_COMPLETE;
        known->fence = fence;
        known->turn = turn;
        known->of_turn =
            is_pending ? vpmm_order_of_turn(heap->order, fence, turn) : VPMM_FENCE_NONE;
    }
    bool has_line = vpmm_lanes_have_one_stream(heap) && !vpmm_atomic_load(&heap->is_tight);
    const struct vpmm_fence_line line = {heap->order, later};
    vpmm_pool_hand_back(heap->pool, number, known->of_turn, &lane->share, has_line ? &line : NULL);
    vpmm_lane_remove(lane, i);
}

void vpmm_lane_drop_proven(struct vpmm_heap *heap, struct vpmm_lane *lane)
{
    if (lane->batch && vpmm_order_over(heap->order, lane->batch, lane->track))
        (void)vpmm_lane_detach(lane);
}

void vpmm_lane_empty(struct vpmm_heap *heap, struct vpmm_lane *lane)
{
    struct known known = {VPMM_FENCE_NONE, 0, VPMM_FENCE_NONE};
    vpmm_lane_drop_proven(heap, lane);
    while (lane->n)
        hand_back(heap, lane, lane->n - 1, &known);
}

void vpmm_lane_empty_range(struct vpmm_heap *heap, struct vpmm_lane *lane, uint64_t address,
                           uint64_t end)
{
    struct known known = {VPMM_FENCE_NONE, 0, VPMM_FENCE_NONE};
    uint64_t first = vpmm_pool_start_of(heap->pool, address);
    for (uint32_t i = lane->n; i-- > 0;)
        if (lane->addresses[i] - first < end - first)
            hand_back(heap, lane, i, &known);
}

/* So often a stream loses its block before it gets another one. */
#define ROBBED_MIN 16u

void vpmm_lane_rob(struct vpmm_lane *lane)
{
    uint32_t kind = lane->cached[lane->n - 1].kind;
    lane->n_robbed = kind == lane->robbed_kind ? lane->n_robbed + 1 : 1;
    lane->robbed_kind = kind;
}

bool vpmm_lane_is_victim(struct vpmm_heap *heap, uint64_t stream_id, uint64_t pages)
{
    struct vpmm_lane *lane = stream_id ? vpmm_lane_take_of(heap->lanes, stream_id) : NULL;
    if (!lane)
        return false;
    bool is_victim = lane->n_robbed >= ROBBED_MIN && lane->robbed_kind == pages;
    if (is_victim)
        lane->n_robbed = 0;
    vpmm_lane_give(lane);
    return is_victim;
}

vpmm_fence vpmm_lane_detach(struct vpmm_lane *lane)
{
    vpmm_fence fence = lane->batch;
    lane->batch = VPMM_FENCE_NONE;
    lane->n_joined = 0;
    lane->joined_pages = 0;
    return fence;
}

/* With the heap's lock. One of the set's lanes that nobody has had, or the next in turn. */
static struct vpmm_lane *choose(struct vpmm_heap *heap, uint64_t stream_id)
{
    struct vpmm_lane *set = vpmm_lane_set(heap->lanes, stream_id);
    for (unsigned i = 0; i < VPMM_LANE_WAYS; i++)
        if (!vpmm_atomic_load(&set[i].stream_id))
            return &set[i];
    return &set[heap->n_evictions++ % VPMM_LANE_WAYS];
}

void vpmm_lane_adopt(struct vpmm_heap *heap, uint64_t stream_id, const struct vpmm_stream *stream)
{
    vpmm_fence left = VPMM_FENCE_NONE;
    struct vpmm_track *track = stream ? vpmm_order_track(heap->order, stream) : NULL;
    vpmm_lanes_note_stream(heap, stream ? stream_id : 0);
    vpmm_lock_take(&heap->lock);
    struct vpmm_lane *lane = vpmm_lane_take_of(heap->lanes, stream_id);
    if (!lane) {
        lane = choose(heap, stream_id);
        vpmm_lane_take(lane);
        vpmm_lane_empty(heap, lane);
        left = vpmm_lane_detach(lane);
        if (!vpmm_atomic_load(&lane->stream_id)) {
            vpmm_pool_add_share(heap->pool, &lane->share);
            lane->next = heap->first_lane;
            heap->first_lane = lane;
            uint32_t n = vpmm_atomic_load(&heap->n_lanes);
            heap->used_lanes[n] = lane;
            vpmm_atomic_store(&heap->n_lanes, n + 1);
        }
        lane->n_joined_max = VPMM_BATCH_FIRST;
        struct vpmm_track *last = lane->track;
        lane->track = track;
        track = last;
        vpmm_atomic_store(&lane->stream_id, stream_id);
    } else if (lane->n == VPMM_LANE_REGIONS) {
        vpmm_lane_empty(heap, lane);
    }
    vpmm_lane_give(lane);
    vpmm_heap_check(heap);
    vpmm_lock_give(&heap->lock);
    vpmm_order_track_end(track);
    if (left)
        vpmm_order_close_all(heap->order, &left, 1);
}

/* ---- looking ---- */

void vpmm_lanes_hold(struct vpmm_heap *heap)
{
    for (struct vpmm_lane *lane = heap->first_lane; lane; lane = lane->next)
        vpmm_lane_take(lane);
}

void vpmm_lanes_let_go(struct vpmm_heap *heap)
{
    for (struct vpmm_lane *lane = heap->first_lane; lane; lane = lane->next)
        vpmm_lane_give(lane);
}

bool vpmm_lanes_try_hold(struct vpmm_heap *heap)
{
    for (struct vpmm_lane *lane = heap->first_lane; lane; lane = lane->next) {
        if (vpmm_latch_try(&lane->latch, VPMM_RANK_LANE))
            continue;
        for (struct vpmm_lane *held = heap->first_lane; held != lane; held = held->next)
            vpmm_lane_give(held);
        return false;
    }
    return true;
}

/* Whether the lane's bins tell of each of its regions once, and the pool has them as it says. */
static bool is_sound(const struct vpmm_heap *heap, struct vpmm_lane *lane)
{
    struct vpmm_region_view view;
    uint64_t found = 0;
    for (uint64_t *bin = lane->bins; bin < lane->bins + VPMM_LANE_BINS; bin++) {
        uint64_t left = *bin;
        bool is_told_twice = (found & left) != 0;
        found |= left;
        for (uint32_t place; vpmm_lane_next(&left, &place);)
            if (is_told_twice || vpmm_lane_bin(lane, lane->cached[place].kind) != bin ||
                vpmm_pool_find(heap->pool, lane->addresses[place], &view) ||
                view.address != lane->addresses[place] ||
                view.pages != (lane->cached[place].kind & VPMM_CACHED_PAGES_MAX))
                return false;
    }
    return found == (lane->n < 64 ? ((uint64_t)1 << lane->n) - 1 : UINT64_MAX);
}

const char *vpmm_lanes_audit(const struct vpmm_heap *heap)
{
    for (struct vpmm_lane *lane = heap->first_lane; lane; lane = lane->next)
        if (!is_sound(heap, lane))
            return "a lane has other regions than its bins tell";
    return NULL;
}

void vpmm_lanes_counts(const struct vpmm_heap *heap, uint64_t *mallocs_out, uint64_t *frees_out)
{
    *mallocs_out = *frees_out = 0;
    for (unsigned i = 0; i < VPMM_LANES && vpmm_atomic_load(&heap->n_lanes); i++) {
        *mallocs_out += vpmm_atomic_load(&heap->lanes[i].mallocs);
        *frees_out += vpmm_atomic_load(&heap->lanes[i].frees);
    }
}
