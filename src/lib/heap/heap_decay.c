/* SPDX-License-Identifier: MIT */
/* Decay: memory that was not needed for a while goes back to the device while the program works on.
 * A caller with a clock ends one slot of the window after another and asks for slices. Nobody waits
 * for a slice longer than for one driver call. Must not make that call under the lock. */
#include "heap/heap_internal.h"

/* Less than this is not worth a driver call. */
#define SURPLUS_BYTES_MIN ((uint64_t)64 << 20)

/* A slice ends with the extent that reaches this many bytes, or with this many extents. */
#define SLICE_BYTES ((uint64_t)1 << 30)
#define SLICE_EXTENTS 32

/* A block in a front cache looks needed until the cache is emptied. */
#define LOOKS_A_GATHER 2u

static uint64_t max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

bool vpmm_heap_may_decay(const struct vpmm_heap *heap)
{
    return vpmm_heap_held_bytes(heap) >= heap->params.slack_bytes + SURPLUS_BYTES_MIN;
}

/* Whether what is cached or pending may be worth a look. */
static bool hides_much(const struct vpmm_heap *heap)
{
    struct vpmm_pool_totals totals;
    vpmm_pool_totals(heap->pool, &totals);
    uint64_t live_pages = totals.live_pages;
    uint64_t hidden_pages = less(vpmm_pool_need_pages(heap->pool), live_pages);
    return hidden_pages >= SURPLUS_BYTES_MIN / heap->page_bytes;
}

static void learn(struct vpmm_heap *heap, bool may_gather)
{
    if (!hides_much(heap))
        return;
    if (may_gather)
        vpmm_heap_gather_settled(heap, NULL);
    else
        (void)vpmm_heap_settle(heap);
    (void)vpmm_heap_settle_rest(heap);
}

void vpmm_heap_decay_look(struct vpmm_heap *heap, bool may_record)
{
    bool may_gather = may_record && heap->decay_slot % LOOKS_A_GATHER == 0;
    if (may_gather)
        vpmm_heap_ask_keeper(heap);
    learn(heap, may_gather);
    vpmm_lock_take(&heap->lock);
    heap->need_pages_highs[heap->decay_slot % VPMM_DECAY_SLOTS] =
        vpmm_pool_need_pages_high(heap->pool);
    vpmm_pool_need_restart(heap->pool);
    heap->decay_slot++;
    vpmm_lock_give(&heap->lock);
}

/* With the lock. The free pages kept beyond the highest need: so much may have to be moved about,
 * or be pending, before the program gets its highest need again. */
static uint64_t margin_pages(const struct vpmm_heap *heap, uint64_t need_pages)
{
    uint64_t percent = max(heap->params.slack_percent, heap->params.spare_percent);
    return max(heap->params.slack_bytes / heap->page_bytes, need_pages * percent / 100);
}

/* With the lock. Only whole extents count as there for the next highest need: they can be moved to
 * where it is, so that it creates nothing. */
static uint64_t surplus_pages(const struct vpmm_heap *heap, uint64_t keep_bytes)
{
    uint64_t need = vpmm_pool_need_pages(heap->pool);
    uint64_t high = vpmm_pool_need_pages_high(heap->pool);
    for (unsigned i = 0; i < VPMM_DECAY_SLOTS; i++)
        high = max(high, heap->need_pages_highs[i]);
    uint64_t keep = max(high - need + margin_pages(heap, high), keep_bytes / heap->page_bytes);
    uint64_t surplus = less(vpmm_pool_releasable_pages(heap->pool), keep);
    uint64_t above_eager = less(vpmm_pool_held_pages(heap->pool), heap->params.eager_pages);
    surplus = surplus < above_eager ? surplus : above_eager;
    return surplus < SURPLUS_BYTES_MIN / heap->page_bytes ? 0 : surplus;
}

/* An extent that an old address still shows cannot be given back. */
static bool unmap_some_zombies(struct vpmm_heap *heap)
{
    uint64_t before = vpmm_pool_zombie_pages(heap->pool);
    vpmm_heap_unmap_zombies(heap, SLICE_EXTENTS);
    return vpmm_pool_zombie_pages(heap->pool) < before;
}

bool vpmm_heap_decay_slice(struct vpmm_heap *heap, uint64_t keep_bytes)
{
    struct vpmm_removal removals[SLICE_EXTENTS];
    vpmm_edit_begin(heap);
    uint64_t surplus = surplus_pages(heap, keep_bytes);
    uint64_t slice = SLICE_BYTES / heap->page_bytes;
    size_t n =
        surplus ? vpmm_pool_take_extents(heap->pool, slice, surplus, removals, SLICE_EXTENTS) : 0;
    uint64_t removed_pages = n ? vpmm_heap_remove(heap, removals, n, NULL) : 0;
    vpmm_edit_end(heap);
    vpmm_atomic_add(&heap->decayed_bytes, removed_pages * heap->page_bytes);
    return surplus && (n ? removed_pages > 0 : unmap_some_zombies(heap));
}
