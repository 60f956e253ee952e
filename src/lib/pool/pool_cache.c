/* SPDX-License-Identifier: MIT */
/* Moves regions between live, cached and free for the lanes. Caching and serving run without the
 * heap's lock, so they must not touch an index. */
#include "pool/pool_internal.h"

#include <assert.h>

void vpmm_pool_add_share(struct vpmm_pool *pool, struct vpmm_pool_share *share)
{
    share->next = atomic_load_explicit(&pool->first_share, memory_order_relaxed);
    atomic_store_explicit(&pool->first_share, share, memory_order_release);
}

static struct vpmm_region *record_of(const struct vpmm_pool *pool, uint32_t number)
{
    return vpmm_table_record(&pool->regions, number);
}

/* Its writers exclude one another, so that this needs no atomic addition. */
static void change(vpmm_atomic64 *sum, uint64_t by)
{
    vpmm_atomic_store(sum, vpmm_atomic_load(sum) + by);
}

/* The cache's part grows by so much, modulo 2 to the 64; with its latch. */
static void change_share(struct vpmm_pool_share *share, uint64_t pages, uint64_t live_bytes)
{
    change(&share->cached_pages, pages);
    change(&share->live_bytes, live_bytes);
}

VPMM_NOINLINE static void tally_cached(struct vpmm_pool_share *share, uint64_t pages,
                                       uint64_t bytes, uint32_t mempool, bool is_added)
{
    const struct vpmm_tallied block = {pages, bytes, mempool};
    vpmm_tally_change(&share->tally, &block, is_added);
}

/* Most blocks change no tally: nothing is made ready for it before that is known. */
static VPMM_INLINE void count_cached(struct vpmm_pool_share *share, uint64_t pages, uint64_t bytes,
                                     uint64_t word)
{
    change_share(share, pages, -bytes);
    if (vpmm_word_has_tally(word))
        tally_cached(share, pages, bytes, vpmm_word_tallied(word), false);
}

static VPMM_INLINE void discount_cached(struct vpmm_pool_share *share, uint64_t pages,
                                        uint64_t bytes, uint64_t word)
{
    change_share(share, -pages, bytes);
    if (vpmm_word_has_tally(word))
        tally_cached(share, pages, bytes, vpmm_word_tallied(word), true);
}

void vpmm_shares_sum(const struct vpmm_pool *pool, struct vpmm_share_sum *sum_out)
{
    struct vpmm_share_sum sum = {0, 0};
    const struct vpmm_pool_share *share =
        atomic_load_explicit(&pool->first_share, memory_order_acquire);
    for (; share; share = share->next) {
        sum.cached_pages += vpmm_atomic_load(&share->cached_pages);
        sum.live_bytes += vpmm_atomic_load(&share->live_bytes);
    }
    *sum_out = sum;
}

bool vpmm_pool_look_live(const struct vpmm_pool *pool, uint64_t address, struct vpmm_live *live_out)
{
    const struct vpmm_root *root = vpmm_root_of(pool, address);
    if (!root)
        return false;
    uint32_t number = vpmm_region_at(root, vpmm_root_page(pool, root, address));
    if (!number)
        return false;
    const struct vpmm_region *region = record_of(pool, number);
    uint64_t word = vpmm_atomic_load(&region->word);
    *live_out = (struct vpmm_live){
        .word = word,
        .pages = vpmm_atomic_load(&region->pages),
        .bytes = vpmm_atomic_load(&region->bytes),
        .context_id = vpmm_atomic_load(&region->context_id),
        .stamp = vpmm_atomic_load(&region->stamp),
        .fence = vpmm_atomic_load(&region->fence),
        .number = number,
    };
    live_out->is_async = (live_out->word & VPMM_REGION_IS_ASYNC) != 0;
    live_out->is_slab =
        live_out->is_async && vpmm_word_mempool(live_out->word) == VPMM_MEMPOOL_NONE;
    return vpmm_region_is_private(live_out->word) && vpmm_atomic_load(&region->address) == address;
}

uint64_t vpmm_pool_start_of(const struct vpmm_pool *pool, uint64_t address)
{
    const struct vpmm_root *root = vpmm_root_of(pool, address);
    uint64_t start;
    bool has_start = root && vpmm_bits_last_to(&root->region_starts,
                                               vpmm_root_page(pool, root, address), &start);
    return has_start ? vpmm_root_address(pool, root, start) : address;
}

bool vpmm_pool_cache(struct vpmm_pool *pool, const struct vpmm_live *live, vpmm_fence fence,
                     uint64_t stream_id, struct vpmm_pool_share *share)
{
    struct vpmm_region *region = record_of(pool, live->number);
    if (!vpmm_region_swap_live(region, live->word, VPMM_REGION_CACHED))
        return false;
    vpmm_atomic_store(&region->fence, fence);
    vpmm_atomic_store(&region->stream_id, stream_id);
    count_cached(share, live->pages, live->bytes, live->word);
    return true;
}

uint64_t vpmm_pool_uncache(struct vpmm_pool *pool, uint32_t number, const struct vpmm_owner *owner,
                           struct vpmm_pool_share *share)
{
    struct vpmm_region *region = record_of(pool, number);
    assert(vpmm_region_state(region) == VPMM_REGION_CACHED);
    /* Once it is live, the end of its context may free it and put it together with others. */
    uint64_t pages = vpmm_region_pages(region);
    uint64_t address = vpmm_atomic_load(&region->address);
    uint64_t word = vpmm_region_own(region, owner);
    discount_cached(share, pages, owner->bytes, word);
    return address;
}

void vpmm_pool_hand_back(struct vpmm_pool *pool, uint32_t number, vpmm_fence fence,
                         struct vpmm_pool_share *share, const struct vpmm_fence_line *line)
{
    struct vpmm_region *region = record_of(pool, number);
    struct vpmm_content content = {
        .state = VPMM_REGION_FREE,
        .fence = fence,
        .owner = {.stream_id = vpmm_atomic_load(&region->stream_id)},
    };
    assert(vpmm_region_state(region) == VPMM_REGION_CACHED);
    discount_cached(share, vpmm_region_pages(region), vpmm_atomic_load(&region->bytes),
                    vpmm_atomic_load(&region->word));
    vpmm_region_turn_merged(pool, number, &content, line);
}

bool vpmm_pool_cached_is_whole(const struct vpmm_pool *pool, uint32_t number)
{
    return (vpmm_atomic_load(&record_of(pool, number)->word) & VPMM_REGION_IS_WHOLE) != 0;
}

vpmm_fence vpmm_pool_cached_fence(const struct vpmm_pool *pool, uint32_t number)
{
    return vpmm_region_fence(record_of(pool, number));
}
