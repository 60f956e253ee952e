/* SPDX-License-Identifier: MIT */
/* The front cache: one *lane* a stream, which takes what cudaFreeAsync frees there and hands it
 * back to cudaMallocAsync there, without the heap's lock and without an event. All that is freed on
 * a stream between two closings is one *batch* with one open fence (order.h). One lane a context
 * does the same for cudaFree and cudaMalloc; there each free has an event, and is handed back when
 * that is known complete.
 *
 * Before the pool moves or creates anything for a request, all lanes are emptied into the pool, so
 * that a cached region never costs memory. Private to this folder. */
#ifndef VPMM_HEAP_CACHE_H
#define VPMM_HEAP_CACHE_H

#include "heap/habit.h"
#include "heap/heap.h"
#include "order/order_program.h"

/* NO_METADATA. What it made, vpmm_lanes_finish gives back. */
VPMM_MUST_CHECK enum vpmm_status vpmm_cache_init(struct vpmm_heap *heap);

/* A region of exactly `pages` that was freed on the request's stream, and the one that the program
 * is used to if that is one of them. No driver. False: there is none, or the one it is used to may
 * be had elsewhere, and `*recalled_out` is what is known of that. */
bool vpmm_cache_malloc(struct vpmm_heap *heap, uint64_t pages, const struct vpmm_request *request,
                       uint64_t *address_out, struct vpmm_recalled *recalled_out);
/* The same for cudaMalloc, of what cudaFree freed of its context's memory. NOT_FOUND; NOT_READY:
 * there is one, but it is not known complete. */
VPMM_MUST_CHECK enum vpmm_status vpmm_cache_malloc_sync(struct vpmm_heap *heap, uint64_t pages,
                                                        const struct vpmm_request *request,
                                                        uint64_t *address_out,
                                                        struct vpmm_recalled *recalled_out);

/* What is known of the habit of a request for `pages`. Any thread; takes the latch of its lane. */
struct vpmm_recalled vpmm_cache_recall(struct vpmm_heap *heap, const struct vpmm_request *request,
                                       uint64_t pages);

/* As vpmm_heap_free_cached. A driver call is made only where a batch is closed, and for the mark of
 * a blocking stream. */
bool vpmm_cache_free(struct vpmm_heap *heap, uint64_t address, const struct vpmm_stream *stream,
                     enum vpmm_status *status_out);

/* cudaFree of a live block of cudaMalloc (driver: it records, or, before driver 12.5, waits).
 * False: the block is as it was; then the pool has to take it. `*status_out` as in vpmm_heap_free.
 */
bool vpmm_cache_free_sync(struct vpmm_heap *heap, uint64_t address, enum vpmm_status *status_out);

/* Hands what the stream's lane holds to the pool; with the heap's lock. */
void vpmm_cache_drain(struct vpmm_heap *heap, uint64_t stream_id);
/* The same of what lies in those pages. */
void vpmm_cache_drain_range(struct vpmm_heap *heap, uint64_t stream_id, uint64_t address,
                            uint64_t pages);
/* Hands to the pool what the lanes of the follower's streams hold. False: it follows no other
 * stream although there are others, or another lane holds something. */
bool vpmm_cache_drain_followed(struct vpmm_heap *heap, const struct vpmm_follower *follower);
/* Closes all batches (driver). True if there was one, or lanes hold anything. `own`: the stream of
 * the request that it is for, inside which the calling thread is, or NULL. `empties`: and hands
 * what the lanes hold to the pool, before anything is closed. */
bool vpmm_cache_close(struct vpmm_heap *heap, const struct vpmm_stream *own, bool empties);
/* Hands what all lanes hold to the pool; with the heap's lock. */
void vpmm_cache_empty(struct vpmm_heap *heap);

#endif
