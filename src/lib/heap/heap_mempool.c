/* SPDX-License-Identifier: MIT */
/* Figures and limits of memory pools, and what a synchronisation gives back of them. Must not take
 * the heap's lock to read a figure, because each synchronisation may read one. */
#include "base/bytes.h"
#include "heap/heap_internal.h"

void vpmm_mempool_init(struct vpmm_mempool *mempool, uint32_t number, uint64_t limit_bytes)
{
    mempool->number = number;
    mempool->limit_bytes = limit_bytes;
    vpmm_atomic_store(&mempool->threshold_bytes, UINT64_MAX);
    vpmm_atomic_store(&mempool->has_threshold, 0);
    vpmm_atomic_store(&mempool->is_cautious, 0);
    vpmm_atomic_store(&mempool->follows_never, 0);
    vpmm_atomic_store(&mempool->waits_never, 0);
    vpmm_atomic_store(&mempool->was_used, 0);
    vpmm_atomic_store(&mempool->is_asked, 0);
    vpmm_atomic_store(&mempool->used_high_bytes, 0);
    vpmm_atomic_store(&mempool->reserved_high_bytes, 0);
    vpmm_atomic_store(&mempool->kept_bytes, 0);
}

/* Others may raise it meanwhile. */
static void raise_to(vpmm_atomic64 *high, uint64_t bytes)
{
    uint64_t seen = vpmm_atomic_load(high);
    while (seen < bytes && !vpmm_atomic_swap_if(high, &seen, bytes))
        ;
}

static uint64_t in_pages(const struct vpmm_heap *heap, uint64_t bytes)
{
    uint64_t rounded = UINT64_MAX;
    (void)vpmm_bytes_round_up(bytes, heap->page_bytes, &rounded);
    return rounded;
}

/* The lanes' own list is nearer than the pool's. */
static uint64_t used_bytes(const struct vpmm_heap *heap, uint32_t number)
{
    uint32_t n_lanes = vpmm_atomic_load(&heap->n_lanes);
    uint64_t sum = vpmm_pool_mempool_part(heap->pool, number);
    for (uint32_t i = 0; i < n_lanes; i++)
        sum += vpmm_share_mempool_part(&heap->used_lanes[i]->share, number);
    return sum >> 63 ? 0 : sum;
}

static uint64_t keeper_used_bytes(const struct vpmm_heap *heap)
{
    const struct vpmm_keeper *keeper = &heap->keeper;
    return keeper->used_bytes ? keeper->used_bytes(keeper->self) : 0;
}

static uint64_t keeper_reserved_bytes(const struct vpmm_heap *heap)
{
    const struct vpmm_keeper *keeper = &heap->keeper;
    return keeper->reserved_pages ? keeper->reserved_pages(keeper->self) * heap->page_bytes : 0;
}

/* With the parts of regions that its keeper has given out. */
static uint64_t used_bytes_in_all(const struct vpmm_heap *heap, uint32_t number)
{
    uint64_t used = used_bytes(heap, number);
    return number == VPMM_MEMPOOL_DEFAULT ? used + keeper_used_bytes(heap) : used;
}

/* What cudaMalloc and the other memory pools have live is not the default one's; what is free is.
 */
static uint64_t default_reserved_bytes(const struct vpmm_heap *heap)
{
    uint64_t held_pages = vpmm_pool_held_pages(heap->pool);
    uint64_t other_pages = vpmm_pool_other_pages(heap->pool);
    return held_pages > other_pages ? (held_pages - other_pages) * heap->page_bytes : 0;
}

/* What a pool of the program was given is no longer there where the device has had it back since:
 * it has no more than its live blocks and all that is free. */
static uint64_t made_reserved_bytes(const struct vpmm_heap *heap,
                                    const struct vpmm_mempool *mempool, uint64_t used)
{
    uint64_t held_pages = vpmm_pool_held_pages(heap->pool), live_pages, unused;
    uint64_t kept = vpmm_atomic_load(&mempool->kept_bytes);
    vpmm_pool_live(heap->pool, &live_pages, &unused);
    uint64_t free_pages = held_pages > live_pages ? held_pages - live_pages : 0;
    uint64_t most = in_pages(heap, used) + free_pages * heap->page_bytes;
    return kept < most ? kept : most;
}

/* A program that never allocated from it sees a pool that never held anything. Without what the
 * keeper has. */
static uint64_t reserved_bytes(const struct vpmm_heap *heap, const struct vpmm_mempool *mempool,
                               uint64_t used)
{
    if (mempool->number != VPMM_MEMPOOL_DEFAULT)
        return made_reserved_bytes(heap, mempool, used);
    uint64_t reserved = vpmm_atomic_load(&mempool->was_used) ? default_reserved_bytes(heap) : 0;
    uint64_t of_keeper = keeper_used_bytes(heap);
    uint64_t whole = used > of_keeper ? used - of_keeper : 0;
    return reserved > whole ? reserved : in_pages(heap, whole);
}

/* With the pages that the keeper has. */
static uint64_t reserved_bytes_in_all(const struct vpmm_heap *heap,
                                      const struct vpmm_mempool *mempool, uint64_t used)
{
    uint64_t reserved = reserved_bytes(heap, mempool, used);
    return mempool->number == VPMM_MEMPOOL_DEFAULT ? reserved + keeper_reserved_bytes(heap)
                                                   : reserved;
}

uint64_t vpmm_mempool_note_used(const struct vpmm_heap *heap, struct vpmm_mempool *mempool)
{
    uint64_t used = used_bytes_in_all(heap, mempool->number);
    if (used && !vpmm_atomic_load(&mempool->was_used))
        vpmm_atomic_store(&mempool->was_used, 1);
    raise_to(&mempool->used_high_bytes, used);
    if (mempool->number != VPMM_MEMPOOL_DEFAULT && used > vpmm_atomic_load(&mempool->kept_bytes))
        raise_to(&mempool->kept_bytes, in_pages(heap, used));
    return used;
}

void vpmm_heap_note_parts(const struct vpmm_heap *heap, struct vpmm_mempool *mempool, bool is_sure)
{
    if (is_sure)
        vpmm_mempool_note(heap, mempool);
    else
        vpmm_mempool_note_hit(heap, mempool);
}

/* Whether its highest use is no lower than what anybody has on the device. Nothing has to be added
 * up over all streams then: what it has reserved is no less than what it uses. */
static bool is_below_high(const struct vpmm_heap *heap, const struct vpmm_mempool *mempool)
{
    uint64_t most = vpmm_pool_owned_pages(heap->pool) * heap->page_bytes;
    return mempool->number == VPMM_MEMPOOL_DEFAULT && vpmm_atomic_load(&mempool->was_used) &&
           most <= vpmm_atomic_load(&mempool->used_high_bytes);
}

/* No more than is held can be reserved. */
static bool may_reserve_more(const struct vpmm_heap *heap, const struct vpmm_mempool *mempool)
{
    return vpmm_heap_held_bytes(heap) > vpmm_atomic_load(&mempool->reserved_high_bytes);
}

void vpmm_mempool_note(const struct vpmm_heap *heap, struct vpmm_mempool *mempool)
{
    if (is_below_high(heap, mempool)) {
        raise_to(&mempool->reserved_high_bytes,
                 default_reserved_bytes(heap) + keeper_reserved_bytes(heap));
        return;
    }
    uint64_t used = vpmm_mempool_note_used(heap, mempool);
    if (may_reserve_more(heap, mempool))
        raise_to(&mempool->reserved_high_bytes, reserved_bytes_in_all(heap, mempool, used));
}

void vpmm_heap_mempool_figures(struct vpmm_heap *heap, struct vpmm_mempool *mempool,
                               struct vpmm_mempool_figures *figures_out)
{
    uint64_t used = vpmm_mempool_note_used(heap, mempool);
    uint64_t reserved = reserved_bytes_in_all(heap, mempool, used);
    raise_to(&mempool->reserved_high_bytes, reserved);
    vpmm_atomic_store(&mempool->is_asked, 1);
    *figures_out = (struct vpmm_mempool_figures){
        .used_bytes = used,
        .used_high_bytes = vpmm_atomic_load(&mempool->used_high_bytes),
        .reserved_bytes = reserved,
        .reserved_high_bytes = vpmm_atomic_load(&mempool->reserved_high_bytes),
    };
}

void vpmm_heap_mempool_reset_used(struct vpmm_heap *heap, struct vpmm_mempool *mempool)
{
    vpmm_atomic_store(&mempool->is_asked, 1);
    vpmm_atomic_store(&mempool->used_high_bytes, used_bytes_in_all(heap, mempool->number));
}

void vpmm_heap_mempool_reset_reserved(struct vpmm_heap *heap, struct vpmm_mempool *mempool)
{
    uint64_t used = used_bytes_in_all(heap, mempool->number);
    vpmm_atomic_store(&mempool->reserved_high_bytes, reserved_bytes_in_all(heap, mempool, used));
}

bool vpmm_heap_mempool_has_room(struct vpmm_heap *heap, const struct vpmm_mempool *mempool,
                                uint64_t bytes)
{
    uint64_t limit_bytes = in_pages(heap, mempool->limit_bytes);
    uint64_t used = mempool->limit_bytes ? used_bytes(heap, mempool->number) : 0;
    return !mempool->limit_bytes ||
           (bytes <= limit_bytes && in_pages(heap, used) <= limit_bytes - bytes);
}

/* What its live blocks take: no trim gives that back. */
static uint64_t live_bytes(const struct vpmm_heap *heap, const struct vpmm_mempool *mempool,
                           uint64_t used)
{
    struct vpmm_pool_totals totals;
    if (mempool->number != VPMM_MEMPOOL_DEFAULT)
        return in_pages(heap, used);
    vpmm_pool_totals(heap->pool, &totals);
    uint64_t others = vpmm_pool_other_pages(heap->pool);
    return totals.live_pages > others ? (totals.live_pages - others) * heap->page_bytes : 0;
}

uint64_t vpmm_heap_mempool_kept_bytes(const struct vpmm_heap *heap,
                                      const struct vpmm_mempool *mempool)
{
    uint64_t used = used_bytes(heap, mempool->number);
    uint64_t kept = reserved_bytes(heap, mempool, used);
    uint64_t threshold_bytes = vpmm_atomic_load(&mempool->threshold_bytes);
    if (!vpmm_atomic_load(&mempool->has_threshold))
        return 0;
    kept = kept < threshold_bytes ? kept : threshold_bytes;
    uint64_t live = live_bytes(heap, mempool, used);
    return kept > live ? kept - live : 0;
}

/* What may be pending of a pool of the program it goes on reserving. */
static void keep_pending(const struct vpmm_heap *heap, struct vpmm_mempool *mempool, uint64_t live,
                         uint64_t keep)
{
    struct vpmm_pool_totals totals;
    uint64_t reserved = vpmm_atomic_load(&mempool->kept_bytes);
    vpmm_pool_totals(heap->pool, &totals);
    uint64_t pending = live + totals.waiting_pages * heap->page_bytes;
    uint64_t kept = pending < reserved ? pending : reserved;
    vpmm_atomic_store(&mempool->kept_bytes, kept > keep ? kept : keep);
}

/* Most synchronisations end at the first look. */
void vpmm_heap_mempool_trim(struct vpmm_heap *heap, struct vpmm_mempool *mempool,
                            uint64_t keep_bytes, bool keeps_all)
{
    bool is_default = mempool->number == VPMM_MEMPOOL_DEFAULT;
    if (is_default)
        vpmm_heap_ask_keeper(heap);
    uint64_t reserved =
        is_default ? default_reserved_bytes(heap) : vpmm_atomic_load(&mempool->kept_bytes);
    if (reserved <= keep_bytes)
        return;
    uint64_t live = live_bytes(heap, mempool, vpmm_mempool_note_used(heap, mempool));
    uint64_t keep = live > keep_bytes ? live : in_pages(heap, keep_bytes);
    if (reserved <= keep)
        return;
    if (keeps_all && keep_bytes)
        (void)vpmm_heap_trim_within(heap, reserved - keep);
    else
        (void)vpmm_heap_trim(heap, reserved - keep);
    if (!is_default)
        keep_pending(heap, mempool, live, keep);
}
