/* SPDX-License-Identifier: MIT */
/* *Lanes*: what the front cache (heap_cache.h) keeps of each stream. A lane belongs to one stream
 * at a time; that changes under the heap's lock and the lane's latch, what it holds under the latch
 * alone. Private to this folder. */
#ifndef VPMM_HEAP_LANE_H
#define VPMM_HEAP_LANE_H

#include "base/atomic.h"
#include "base/lock.h"
#include "pool/pool_cache.h"

struct vpmm_heap;
struct vpmm_stream;
struct vpmm_track;

/* A test may build it with fewer. */
#ifndef VPMM_LANE_SETS
#    define VPMM_LANE_SETS 64u
#endif
#ifndef VPMM_LANE_WAYS
#    define VPMM_LANE_WAYS 4u
#endif
#define VPMM_LANES ((size_t)VPMM_LANE_SETS * VPMM_LANE_WAYS)
#ifndef VPMM_LANE_REGIONS
#    define VPMM_LANE_REGIONS 64u
#endif

/* Two kinds of region seldom share one. */
#define VPMM_LANE_BINS 16u

/* So many frees are in a stream's first batch. */
#ifndef VPMM_BATCH_FIRST
#    define VPMM_BATCH_FIRST 1u
#endif

/* In the kind of a slab: such are for slabs alone. */
#define VPMM_CACHED_IS_SLAB ((uint32_t)1 << 31)
#define VPMM_CACHED_PAGES_MAX (VPMM_CACHED_IS_SLAB - 1)

static inline uint64_t vpmm_cached_kind(uint64_t pages, bool is_slab)
{
    return pages | (is_slab ? VPMM_CACHED_IS_SLAB : 0);
}

struct vpmm_cached {
    uint64_t turn;  /* of the stream, that its free belongs to: see vpmm_order_turn */
    uint64_t stamp; /* of the block that it was: see habit.h */
    uint32_t number;
    uint32_t kind; /* vpmm_cached_kind */
};

struct vpmm_lane {
    _Alignas(64) struct vpmm_latch latch;
    uint32_t n;                   /* regions that it holds */
    vpmm_atomic64 stream_id;      /* 0: nobody's yet */
    struct vpmm_track *track;     /* of the stream; NULL: a context's lane, or without memory */
    vpmm_fence batch;             /* open, or VPMM_FENCE_NONE */
    uint32_t n_joined;            /* frees in the batch */
    uint32_t n_joined_max;        /* then it is closed */
    uint64_t joined_pages;        /* of all those frees */
    vpmm_atomic64 layout;         /* its part of the device's: habit.h */
    struct vpmm_pool_share share; /* requests on other lanes read the layout and how it begins */
    /* How often in turn another stream's request emptied it while its youngest region was of that
     * kind. */
    uint32_t n_robbed, robbed_kind;
    uint64_t next_id, end_id; /* numbers for allocations, set aside for this lane */
    uint64_t last_habit;      /* as in vpmm_habit_find */
    vpmm_atomic64 mallocs, frees;
    struct vpmm_lane *next; /* of those that have had a stream */
    /* A bit for each region whose kind belongs to the bin, at its place in the next two. */
    uint64_t bins[VPMM_LANE_BINS];
    uint64_t addresses[VPMM_LANE_REGIONS];
    struct vpmm_cached cached[VPMM_LANE_REGIONS];
};

_Static_assert(VPMM_LANE_REGIONS <= 64, "a bin has a bit for each region");

/* NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_lanes_init(struct vpmm_heap *heap);
void vpmm_lanes_finish(struct vpmm_heap *heap);

static inline void vpmm_lane_take(struct vpmm_lane *lane)
{
    vpmm_latch_take(&lane->latch, VPMM_RANK_LANE);
}

static inline void vpmm_lane_give(struct vpmm_lane *lane)
{
    vpmm_latch_give(&lane->latch, VPMM_RANK_LANE);
}

/* The lane of what cudaFree frees of a context's memory. No stream has that id: see order_stream.c.
 */
static inline uint64_t vpmm_lane_of_context(uint64_t context_id)
{
    return UINT64_C(1) << 62 | context_id;
}

/* The lanes that may be the stream's: VPMM_LANE_WAYS of them. */
static inline struct vpmm_lane *vpmm_lane_set(struct vpmm_lane *lanes, uint64_t stream_id)
{
    uint64_t mixed = stream_id * UINT64_C(0x9e3779b97f4a7c15);
    uint64_t set = (mixed >> 32) % VPMM_LANE_SETS;
    return &lanes[set * VPMM_LANE_WAYS];
}

/* The stream's lane, with its latch; NULL: it has none. */
static VPMM_INLINE struct vpmm_lane *vpmm_lane_take_of(struct vpmm_lane *lanes, uint64_t stream_id)
{
    struct vpmm_lane *set = vpmm_lane_set(lanes, stream_id);
    for (unsigned i = 0; i < VPMM_LANE_WAYS; i++) {
        struct vpmm_lane *lane = &set[i];
        if (vpmm_atomic_load(&lane->stream_id) != stream_id)
            continue;
        vpmm_lane_take(lane);
        if (vpmm_atomic_load(&lane->stream_id) == stream_id)
            return lane;
        vpmm_lane_give(lane);
    }
    return NULL;
}

static VPMM_INLINE uint64_t *vpmm_lane_bin(struct vpmm_lane *lane, uint64_t kind)
{
    return &lane->bins[(kind * UINT64_C(0x9e3779b97f4a7c15) >> 32) % VPMM_LANE_BINS];
}

/* Takes a place out of what is left of a bin, the one that was filled last. False: none is left. */
static VPMM_INLINE bool vpmm_lane_next(uint64_t *left, uint32_t *place_out)
{
    if (!*left)
        return false;
    *place_out = 63 - (uint32_t)__builtin_clzll(*left);
    *left ^= UINT64_C(1) << *place_out;
    return true;
}

/* There is room for one more; with the latch. */
static VPMM_INLINE void vpmm_lane_put(struct vpmm_lane *lane, uint64_t address,
                                      const struct vpmm_cached *cached)
{
    *vpmm_lane_bin(lane, cached->kind) |= UINT64_C(1) << lane->n;
    lane->addresses[lane->n] = address;
    lane->cached[lane->n++] = *cached;
}

/* The last one gets its place; with the latch. */
static VPMM_INLINE void vpmm_lane_remove(struct vpmm_lane *lane, uint32_t place)
{
    *vpmm_lane_bin(lane, lane->cached[place].kind) ^= UINT64_C(1) << place;
    if (place == --lane->n)
        return;
    lane->addresses[place] = lane->addresses[lane->n];
    lane->cached[place] = lane->cached[lane->n];
    *vpmm_lane_bin(lane, lane->cached[place].kind) ^= UINT64_C(1) << lane->n | UINT64_C(1) << place;
}

/* Ends the lane's batch without a record where all that joined it is proven complete; with the
 * latch. */
void vpmm_lane_drop_proven(struct vpmm_heap *heap, struct vpmm_lane *lane);

/* Hands what the lane holds to the pool; with the heap's lock and the latch. */
void vpmm_lane_empty(struct vpmm_heap *heap, struct vpmm_lane *lane);
/* The same of the regions that overlap these addresses. */
void vpmm_lane_empty_range(struct vpmm_heap *heap, struct vpmm_lane *lane, uint64_t address,
                           uint64_t end);

/* A stream asks or frees; 0: none. Whether it was always the same one. Any thread. */
void vpmm_lanes_note_stream(struct vpmm_heap *heap, uint64_t stream_id);
bool vpmm_lanes_have_one_stream(const struct vpmm_heap *heap);

/* Another stream's request is about to empty the lane; with the latch. */
void vpmm_lane_rob(struct vpmm_lane *lane);
/* Whether the stream was robbed of a block of so many pages again and again; then the count begins
 * anew. */
bool vpmm_lane_is_victim(struct vpmm_heap *heap, uint64_t stream_id, uint64_t pages);

/* The lane's batch, which no free joins from now on; with the latch. */
vpmm_fence vpmm_lane_detach(struct vpmm_lane *lane);

/* Gives the stream a lane, and one that is full room; may close another stream's batch (driver).
 * `stream` NULL: the id is a context's. */
VPMM_NOINLINE void vpmm_lane_adopt(struct vpmm_heap *heap, uint64_t stream_id,
                                   const struct vpmm_stream *stream);

/* A block has become live or is freed through the lane; with the latch. */
static inline void vpmm_lane_stamp(struct vpmm_lane *lane, uint64_t stamp)
{
    vpmm_hint_store(&lane->layout, vpmm_hint_load(&lane->layout) ^ stamp);
}

/* What is wrong with a lane, or NULL; with the heap's lock and all latches. */
const char *vpmm_lanes_audit(const struct vpmm_heap *heap);

/* Keeps all lanes as they are, while the pool is audited; with the heap's lock. */
void vpmm_lanes_hold(struct vpmm_heap *heap);
bool vpmm_lanes_try_hold(struct vpmm_heap *heap);
void vpmm_lanes_let_go(struct vpmm_heap *heap);

/* What they served and took, in all. Any thread, no lock. */
void vpmm_lanes_counts(const struct vpmm_heap *heap, uint64_t *mallocs_out, uint64_t *frees_out);

#endif
