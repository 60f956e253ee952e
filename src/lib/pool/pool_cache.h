/* SPDX-License-Identifier: MIT */
/* Front caches: free regions that one holds are in no index of the pool. */
#ifndef VPMM_POOL_POOL_CACHE_H
#define VPMM_POOL_POOL_CACHE_H

#include "pool/pool.h"

/* What a front cache adds to the running totals; it writes it under a latch of its own, and keeps
 * it while the pool lives. Zeroed at first. */
struct vpmm_pool_share {
    vpmm_atomic64 live_bytes; /* wraps around below 0 */
    struct vpmm_tally tally;
    struct vpmm_pool_share *next;
    vpmm_atomic64 cached_pages;
};
void vpmm_pool_add_share(struct vpmm_pool *pool, struct vpmm_pool_share *share);

/* Of all of them. */
struct vpmm_share_sum {
    uint64_t cached_pages, live_bytes;
};
/* Any thread. */
void vpmm_shares_sum(const struct vpmm_pool *pool, struct vpmm_share_sum *sum_out);

/* Any thread: its part of vpmm_pool_mempool_bytes. */
static inline uint64_t vpmm_share_mempool_part(const struct vpmm_pool_share *share,
                                               uint32_t mempool)
{
    uint64_t live = mempool == VPMM_MEMPOOL_DEFAULT ? vpmm_hint_load(&share->live_bytes) : 0;
    return live + vpmm_hint_load(&share->tally.by_mempool[mempool]);
}

/* A live region as it was found. What it says is true if vpmm_pool_cache then gets it. */
struct vpmm_live {
    uint64_t word, pages, bytes, context_id, stamp;
    vpmm_fence fence;
    uint32_t number;
    bool is_async, is_slab;
};
/* Any thread, no lock. The live region that starts exactly at `address`; false: there is none, or
 * it is exported and must not be cached. */
bool vpmm_pool_look_live(const struct vpmm_pool *pool, uint64_t address,
                         struct vpmm_live *live_out);

/* The next three: any thread, no lock but the cache's latch, under which a cached region is changed
 * by nobody else. */

/* live -> cached, in one compare-and-swap, with `fence`; `stream_id` as in vpmm_pool_free. False:
 * somebody else freed it. */
bool vpmm_pool_cache(struct vpmm_pool *pool, const struct vpmm_live *live, vpmm_fence fence,
                     uint64_t stream_id, struct vpmm_pool_share *share);
/* cached -> live, for a new owner; it keeps its fence. Returns its address. */
uint64_t vpmm_pool_uncache(struct vpmm_pool *pool, uint32_t number, const struct vpmm_owner *owner,
                           struct vpmm_pool_share *share);
vpmm_fence vpmm_pool_cached_fence(const struct vpmm_pool *pool, uint32_t number);

/* With the lock: where the region begins that holds `address`; the latter itself where that lies in
 * no root. */
uint64_t vpmm_pool_start_of(const struct vpmm_pool *pool, uint64_t address);

/* cached -> free with `fence`, as vpmm_pool_free: under the lock and the latch. In a `line` it is
 * one with neighbours of its stream that wait for other fences, and waits for the latest. */
void vpmm_pool_hand_back(struct vpmm_pool *pool, uint32_t number, vpmm_fence fence,
                         struct vpmm_pool_share *share, const struct vpmm_fence_line *line);

#endif
