/* SPDX-License-Identifier: MIT */
/* Settles, unmaps zombies, and gives extents back to the device. Must not hold the heap's lock
 * during a driver call. */
#include "heap/heap_internal.h"

/* So many zombies are unmapped at a time for the sake of one request. */
#define SMALL_BATCH 4

/* `gathers`: the lanes' regions go to the pool in the same breath. */
static bool settle(struct vpmm_heap *heap, bool gathers)
{
    struct vpmm_request_view view;
    vpmm_request_view_init(&view, heap->order, NULL, false);
    bool has_passed;
    bool learnt = vpmm_order_glance(heap->order, &has_passed);
    uint64_t completions = vpmm_order_completions(heap->order);
    vpmm_lock_take(&heap->lock);
    if (gathers)
        vpmm_cache_empty(heap);
    heap->has_unasked = has_passed;
    if (heap->is_unsettled || heap->settled_completions != completions) {
        heap->settled_completions = completions;
        heap->is_unsettled = vpmm_pool_settle(heap->pool, &view.view);
    }
    vpmm_heap_check(heap);
    vpmm_lock_give(&heap->lock);
    return learnt;
}

bool vpmm_heap_settle(struct vpmm_heap *heap)
{
    return settle(heap, false);
}

void vpmm_heap_gather_settled(struct vpmm_heap *heap, const struct vpmm_stream *own)
{
    (void)vpmm_cache_close(heap, own, false);
    (void)settle(heap, true);
}

/* All that is known complete by now; `has_unasked`: there are fences that nobody was asked about.
 */
static void settle_known(struct vpmm_heap *heap, bool has_unasked)
{
    struct vpmm_request_view view;
    vpmm_request_view_init(&view, heap->order, NULL, false);
    vpmm_lock_take(&heap->lock);
    heap->is_unsettled = false;
    heap->has_unasked = has_unasked;
    vpmm_pool_settle_all(heap->pool, &view.view);
    vpmm_heap_check(heap);
    vpmm_lock_give(&heap->lock);
}

void vpmm_heap_settle_all(struct vpmm_heap *heap)
{
    (void)vpmm_order_poll(heap->order);
    settle_known(heap, false);
}

/* Whether the last settling left some for another time. */
static bool has_rest(struct vpmm_heap *heap)
{
    vpmm_lock_take(&heap->lock);
    bool has_rest = heap->is_unsettled || heap->has_unasked;
    vpmm_lock_give(&heap->lock);
    return has_rest;
}

bool vpmm_heap_settle_rest(struct vpmm_heap *heap)
{
    if (!has_rest(heap))
        return false;
    vpmm_heap_settle_all(heap);
    return true;
}

bool vpmm_heap_settle_more(struct vpmm_heap *heap)
{
    bool has_unasked;
    if (!has_rest(heap))
        return false;
    (void)vpmm_order_poll_more(heap->order, &has_unasked);
    settle_known(heap, has_unasked);
    return true;
}

/* An extent's handle goes first, because that alone can fail without a trace: the memory lives
 * until the unmap. Called between begin and end of an edit, without the lock. */
static enum vpmm_removal_outcome carry_out_removal(struct vpmm_heap *heap,
                                                   const struct vpmm_removal *removal)
{
    const struct vpmm_driver *driver = heap->driver;
    if (removal->extent && driver->extent_release(driver->self, removal->extent))
        return VPMM_KEPT;
    uint64_t bytes = removal->pages * heap->page_bytes;
    return driver->unmap(driver->self, removal->address, bytes) ? VPMM_STUCK : VPMM_REMOVED;
}

uint64_t vpmm_heap_remove(struct vpmm_heap *heap, const struct vpmm_removal *removals, size_t n,
                          uint64_t *unheld_bytes)
{
    enum vpmm_removal_outcome outcomes[VPMM_REMOVALS_MAX];
    uint64_t pages = 0;
    vpmm_lock_give(&heap->lock);
    for (size_t i = 0; i < n; i++) {
        uint64_t begin_ns = vpmm_heap_now_ns(heap);
        outcomes[i] = carry_out_removal(heap, &removals[i]);
        if (outcomes[i] == VPMM_REMOVED)
            vpmm_heap_tell_removal(heap, &removals[i], begin_ns);
    }
    vpmm_lock_take(&heap->lock);
    for (size_t i = 0; i < n; i++) {
        uint64_t held_bytes = vpmm_heap_held_bytes(heap);
        vpmm_pool_removal_done(heap->pool, &removals[i], outcomes[i]);
        if (unheld_bytes)
            *unheld_bytes += held_bytes - vpmm_heap_held_bytes(heap);
        pages += outcomes[i] == VPMM_REMOVED ? removals[i].pages : 0;
        vpmm_heap_check(heap);
    }
    return pages;
}

void vpmm_heap_free_for_good(struct vpmm_heap *heap, uint64_t address,
                             struct vpmm_removal *removals, size_t room)
{
    size_t n = vpmm_pool_free_and_take(heap->pool, address, removals, room);
    for (size_t i = 0; i < n; i += VPMM_REMOVALS_MAX)
        (void)vpmm_heap_remove(heap, removals + i,
                               n - i < VPMM_REMOVALS_MAX ? n - i : VPMM_REMOVALS_MAX, NULL);
}

void vpmm_heap_unmap_zombies(struct vpmm_heap *heap, uint64_t pages)
{
    struct vpmm_removal removals[VPMM_REMOVALS_MAX];
    struct vpmm_request_view view;
    vpmm_request_view_init(&view, heap->order, NULL, false);
    vpmm_edit_begin(heap);
    size_t n = 1;
    for (uint64_t taken = 0; taken < pages && n > 0;) {
        size_t room = pages == UINT64_MAX ? VPMM_REMOVALS_MAX : SMALL_BATCH;
        n = vpmm_pool_take_zombies(heap->pool, &view.view, removals, room);
        for (size_t i = 0; i < n; i++)
            taken += removals[i].pages;
        if (n)
            (void)vpmm_heap_remove(heap, removals, n, NULL);
    }
    vpmm_edit_end(heap);
}

void vpmm_heap_gather(struct vpmm_heap *heap)
{
    vpmm_heap_ask_keeper(heap);
    (void)vpmm_cache_close(heap, NULL, true);
}

void vpmm_heap_reap(struct vpmm_heap *heap)
{
    vpmm_heap_ask_keeper(heap);
    (void)vpmm_cache_close(heap, NULL, true);
    vpmm_heap_settle_all(heap);
    vpmm_heap_unmap_zombies(heap, UINT64_MAX);
    vpmm_leases_give_back(heap);
}

/* Another try at the unmaps that failed, one each. Returns the pages unmapped. */
static uint64_t reap_quarantined(struct vpmm_heap *heap)
{
    struct vpmm_removal removals[VPMM_REMOVALS_MAX];
    vpmm_edit_begin(heap);
    size_t n = vpmm_pool_take_quarantined(heap->pool, removals, VPMM_REMOVALS_MAX);
    uint64_t unheld_bytes = 0;
    uint64_t pages = n ? vpmm_heap_remove(heap, removals, n, &unheld_bytes) : 0;
    vpmm_edit_end(heap);
    vpmm_heap_tell_release(heap, unheld_bytes);
    return pages;
}

/* `most_pages`: never more than so many. */
static uint64_t trim(struct vpmm_heap *heap, uint64_t wanted_pages, uint64_t most_pages)
{
    struct vpmm_removal removals[VPMM_REMOVALS_MAX];
    uint64_t removed_pages = 0;
    vpmm_heap_reap(heap);
    uint64_t recovered_pages = reap_quarantined(heap);
    vpmm_edit_begin(heap);
    uint64_t progress = 1;
    while (removed_pages < wanted_pages && progress) {
        size_t n = vpmm_pool_take_extents(heap->pool, wanted_pages - removed_pages,
                                          most_pages - removed_pages, removals, VPMM_REMOVALS_MAX);
        progress = n ? vpmm_heap_remove(heap, removals, n, NULL) : 0;
        removed_pages += progress;
    }
    vpmm_edit_end(heap);
    uint64_t removed_bytes = removed_pages * heap->page_bytes;
    vpmm_atomic_add(&heap->trimmed_bytes, removed_bytes);
    return removed_bytes + recovered_pages * heap->page_bytes;
}

uint64_t vpmm_heap_trim(struct vpmm_heap *heap, uint64_t bytes)
{
    uint64_t pages = bytes / heap->page_bytes + (bytes % heap->page_bytes != 0);
    return trim(heap, pages, UINT64_MAX);
}

uint64_t vpmm_heap_trim_within(struct vpmm_heap *heap, uint64_t bytes)
{
    uint64_t pages = bytes / heap->page_bytes;
    return trim(heap, pages, pages);
}

uint64_t vpmm_heap_held_bytes(const struct vpmm_heap *heap)
{
    return vpmm_pool_held_pages(heap->pool) * heap->page_bytes;
}

uint64_t vpmm_heap_trim_to(struct vpmm_heap *heap, uint64_t keep_bytes)
{
    uint64_t held_bytes = vpmm_heap_held_bytes(heap);
    return held_bytes > keep_bytes ? vpmm_heap_trim(heap, held_bytes - keep_bytes) : 0;
}

uint64_t vpmm_heap_releasable_bytes(struct vpmm_heap *heap)
{
    vpmm_lock_take(&heap->lock);
    uint64_t pages = vpmm_pool_releasable_pages(heap->pool);
    vpmm_lock_give(&heap->lock);
    return pages * heap->page_bytes;
}
