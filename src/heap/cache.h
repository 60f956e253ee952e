/* SPDX-License-Identifier: MIT */
/* The front cache: one *lane* a stream, which takes what cudaFreeAsync frees there and hands it
 * back to cudaMallocAsync there, without the heap's lock and without an event. All that is freed on
 * a stream between two closings is one *batch* with one open fence (order.h).
 *
 * Every other request looks at its own fit first; before the pool moves or creates anything for it,
 * all lanes are emptied into the pool, so that a cached region never costs memory.
 *
 * A lane belongs to one stream at a time; that changes under the heap's lock and the lane's latch,
 * what it holds under the latch alone. Private to this folder. */
#ifndef VPMM_HEAP_CACHE_H
#define VPMM_HEAP_CACHE_H

#include "base/lock.h"
#include "heap/heap.h"

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

/* So many frees are in a stream's first batch. */
#ifndef VPMM_BATCH_FIRST
#    define VPMM_BATCH_FIRST 1u
#endif

struct vpmm_cached {
    uint32_t number, pages;
};

struct vpmm_lane {
    _Alignas(64) struct vpmm_latch latch;
    uint32_t n;               /* regions that it holds */
    vpmm_atomic64 stream_id;  /* 0: nobody's yet */
    vpmm_fence batch;         /* open, or VPMM_FENCE_NONE */
    uint32_t n_joined;        /* frees in the batch */
    uint32_t n_joined_max;    /* then it is closed */
    uint64_t joined_pages;    /* of all those frees */
    uint64_t next_id, end_id; /* numbers for allocations, set aside for this lane */
    vpmm_atomic64 mallocs, frees;
    struct vpmm_pool_share share;
    struct vpmm_lane *next; /* of those that have had a stream */
    struct vpmm_cached cached[VPMM_LANE_REGIONS];
};

/* NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_cache_init(struct vpmm_heap *heap);
void vpmm_cache_finish(struct vpmm_heap *heap);

/* A region of exactly `pages` that was freed on the request's stream. No driver. False: there is
 * none. */
bool vpmm_cache_malloc(struct vpmm_heap *heap, uint64_t pages, const struct vpmm_request *request,
                       uint64_t *address_out);

/* As vpmm_heap_free_cached. A driver call is made only where a batch is closed, and on the legacy
 * stream. */
bool vpmm_cache_free(struct vpmm_heap *heap, uint64_t address, const struct vpmm_stream *stream,
                     enum vpmm_status *status_out);

/* Hands what the stream's lane holds to the pool; with the heap's lock. */
void vpmm_cache_drain(struct vpmm_heap *heap, uint64_t stream_id);
/* Hands what all lanes hold to the pool, and closes all batches, so that what is complete can be
 * one with its neighbours. True if there was any of either. `own`: the stream of the request that
 * it is for, inside which the calling thread is, or NULL (driver). */
bool vpmm_cache_gather(struct vpmm_heap *heap, const struct vpmm_stream *own);

/* Keeps all lanes as they are, while the pool is audited; with the heap's lock. */
void vpmm_cache_hold(struct vpmm_heap *heap);
bool vpmm_cache_try_hold(struct vpmm_heap *heap);
void vpmm_cache_let_go(struct vpmm_heap *heap);

/* Sums over all lanes. */
void vpmm_cache_counts(const struct vpmm_heap *heap, uint64_t *mallocs_out, uint64_t *frees_out);

#endif
