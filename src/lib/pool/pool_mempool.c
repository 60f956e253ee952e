/* SPDX-License-Identifier: MIT */
/* Sums up what is live of each memory pool. The parts are read while they change, so a sum must not
 * be shown where it has fallen below 0. */
#include "pool/pool_internal.h"

struct vpmm_tallied vpmm_region_tallied(const struct vpmm_region *region)
{
    return (struct vpmm_tallied){vpmm_region_pages(region), vpmm_atomic_load(&region->bytes),
                                 vpmm_word_tallied(vpmm_atomic_load(&region->word))};
}

typedef void adding(vpmm_atomic64 *sum, uint64_t by);

static inline void add_alone(vpmm_atomic64 *sum, uint64_t by)
{
    vpmm_hint_store(sum, vpmm_hint_load(sum) + by);
}

static inline void add_together(vpmm_atomic64 *sum, uint64_t by)
{
    vpmm_hint_add(sum, by);
}

static VPMM_INLINE void change(struct vpmm_tally *tally, const struct vpmm_tallied *block,
                               bool is_added, adding *add)
{
    vpmm_atomic64 *sums = tally->by_mempool;
    uint64_t sign = is_added ? 1 : UINT64_MAX;
    if (!vpmm_tally_has(block))
        return;
    add(&sums[VPMM_MEMPOOL_DEFAULT], sign * -block->bytes);
    add(&sums[VPMM_MEMPOOL_NONE], sign * block->pages);
    if (block->mempool != VPMM_MEMPOOL_NONE)
        add(&sums[block->mempool], sign * block->bytes);
}

void vpmm_tally_change(struct vpmm_tally *tally, const struct vpmm_tallied *block, bool is_added)
{
    change(tally, block, is_added, add_alone);
}

void vpmm_pool_tally(struct vpmm_pool *pool, const struct vpmm_tallied *block, bool is_added)
{
    change(&pool->counters.tally, block, is_added, add_together);
}

uint64_t vpmm_pool_mempool_part(const struct vpmm_pool *pool, uint32_t mempool)
{
    const struct vpmm_counters *counters = &pool->counters;
    uint64_t live = mempool == VPMM_MEMPOOL_DEFAULT ? vpmm_hint_load(&counters->live_bytes) : 0;
    return live + vpmm_hint_load(&counters->tally.by_mempool[mempool]);
}

/* Where a block that moves counted not at all, it may have fallen below 0. */
uint64_t vpmm_pool_mempool_bytes(const struct vpmm_pool *pool, uint32_t mempool)
{
    uint64_t sum = vpmm_pool_mempool_part(pool, mempool);
    const struct vpmm_pool_share *share =
        atomic_load_explicit(&pool->first_share, memory_order_acquire);
    for (; share; share = share->next)
        sum += vpmm_share_mempool_part(share, mempool);
    return sum >> 63 ? 0 : sum;
}

uint64_t vpmm_pool_other_pages(const struct vpmm_pool *pool)
{
    return vpmm_pool_mempool_bytes(pool, VPMM_MEMPOOL_NONE);
}
