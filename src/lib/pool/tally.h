/* SPDX-License-Identifier: MIT */
/* The word of a region's record, and what its block counts to the figures of CUDA's memory pools
 * (pool_mempool.c). Private to this folder. */
#ifndef VPMM_POOL_TALLY_H
#define VPMM_POOL_TALLY_H

#include "pool/pool.h"

struct vpmm_region;

/* Of a record's word. */
#define VPMM_REGION_STATE_MASK ((uint64_t)7)
#define VPMM_REGION_IS_ASYNC ((uint64_t)8)
#define VPMM_REGION_IS_EXPORTED ((uint64_t)16)
#define VPMM_REGION_IS_WHOLE ((uint64_t)32)
#define VPMM_REGION_MEMPOOL_SHIFT 6
#define VPMM_REGION_MEMPOOL_MASK ((uint64_t)(VPMM_MEMPOOLS - 1) << VPMM_REGION_MEMPOOL_SHIFT)
#define VPMM_REGION_GENERATION ((uint64_t)VPMM_MEMPOOLS << VPMM_REGION_MEMPOOL_SHIFT)

/* A live block, as far as memory pools are concerned. */
struct vpmm_tallied {
    uint64_t pages, bytes;
    uint32_t mempool;
};

static inline uint32_t vpmm_word_mempool(uint64_t word)
{
    return (uint32_t)((word & VPMM_REGION_MEMPOOL_MASK) >> VPMM_REGION_MEMPOOL_SHIFT);
}

/* A record's word tells, while it is live, or cached, which memory pool its block counts to. */
static inline uint32_t vpmm_word_tallied(uint64_t word)
{
    return (word & VPMM_REGION_IS_ASYNC) != 0 ? vpmm_word_mempool(word) : VPMM_MEMPOOL_NONE;
}

/* Whether such a block changes a tally at all. */
static inline bool vpmm_word_has_tally(uint64_t word)
{
    uint64_t kind = word & (VPMM_REGION_IS_ASYNC | VPMM_REGION_MEMPOOL_MASK);
    return kind != VPMM_REGION_IS_ASYNC;
}

static inline uint32_t vpmm_owner_tallied(const struct vpmm_owner *owner)
{
    return owner->is_async ? owner->mempool : VPMM_MEMPOOL_NONE;
}

/* A live or cached region's block. */
struct vpmm_tallied vpmm_region_tallied(const struct vpmm_region *region);

/* The same of a block. */
static inline bool vpmm_tally_has(const struct vpmm_tallied *block)
{
    return block->mempool != VPMM_MEMPOOL_DEFAULT;
}

/* The block becomes live (`is_added`), or ceases to be, in a tally whose writers exclude one
 * another. */
void vpmm_tally_change(struct vpmm_tally *tally, const struct vpmm_tallied *block, bool is_added);
/* The same in that of the pool itself, which anybody may write. */
void vpmm_pool_tally(struct vpmm_pool *pool, const struct vpmm_tallied *block, bool is_added);

#endif
