/* SPDX-License-Identifier: MIT */
/* What is live and what is pending, to the page; and the wait that ends the latter. Must not count
 * as reusable what belongs to a batch that is still being closed. */
#include "heap/heap_internal.h"

/* So many fences are waited for between two looks at the pool. */
#define FENCES 64

/* How often a batch that another thread is closing is looked at again. */
#define TRIES 500

/* With the latch. */
static uint64_t cached_pending_pages(const struct vpmm_heap *heap, const struct vpmm_lane *lane)
{
    uint64_t pages = 0;
    for (uint32_t i = 0; i < lane->n; i++) {
        vpmm_fence fence = vpmm_pool_cached_fence(heap->pool, lane->cached[i].number);
        if (vpmm_order_ask(heap->order, fence, 0) != VPMM_VERDICT_COMPLETE)
            pages += lane->cached[i].kind & VPMM_CACHED_PAGES_MAX;
    }
    return pages;
}

/* With the lock and all latches: only claims go on, and those move pages from what is read first to
 * what is read last. */
static void take_account(const struct vpmm_heap *heap, struct vpmm_heap_account *account_out)
{
    struct vpmm_heap_account account = {.pending_pages = 0};
    uint64_t cached_pages = 0;
    for (const struct vpmm_lane *lane = heap->first_lane; lane; lane = lane->next)
        cached_pages += cached_pending_pages(heap, lane);
    vpmm_pool_totals(heap->pool, &account.totals);
    uint64_t pending_pages = account.totals.waiting_pages + cached_pages;
    account.pending_pages = pending_pages + account.totals.claimed_pages;
    account.ready_pages = account.totals.free_pages - pending_pages;
    account.withheld_pages = vpmm_atomic_load(&heap->withheld_pages);
    account.lost_pages = vpmm_atomic_load(&heap->lost_pages);
    *account_out = account;
}

void vpmm_heap_account(struct vpmm_heap *heap, struct vpmm_heap_account *account_out)
{
    vpmm_lock_take(&heap->lock);
    vpmm_lanes_hold(heap);
    take_account(heap, account_out);
    vpmm_lanes_let_go(heap);
    vpmm_lock_give(&heap->lock);
}

/* Fences are numbered in their order, so that these two bound what was pending at first and has not
 * been waited for. */
struct range {
    vpmm_fence after, last;
};

static bool find_last(void *self, vpmm_fence fence)
{
    struct range *range = self;
    range->last = fence > range->last ? fence : range->last;
    return false;
}

static bool lies_between(void *self, vpmm_fence fence)
{
    const struct range *range = self;
    return fence > range->after && fence <= range->last;
}

/* Of the failures the first, and NOT_READY where there is none but a batch is open. */
static enum vpmm_status wait_until(struct vpmm_heap *heap, vpmm_fence last)
{
    vpmm_fence fences[FENCES];
    struct range range = {VPMM_FENCE_NONE, last};
    enum vpmm_status first = VPMM_OK;
    size_t n = last ? FENCES : 0;
    while (n == FENCES) {
        n = vpmm_heap_pending(heap, lies_between, &range, fences, FENCES);
        for (size_t i = 0; i < n; i++) {
            enum vpmm_status status = vpmm_order_synchronize(heap->order, fences[i]);
            if (!first || (status && first == VPMM_NOT_READY))
                first = status;
            range.after = fences[i];
        }
    }
    enum vpmm_status status = vpmm_leases_synchronize(heap);
    return !first || (status && first == VPMM_NOT_READY) ? status : first;
}

/* What lanes hold is closed before the look. A batch that is open all the same was opened since, or
 * another thread has emptied the lane and is just closing it: what it stands for was freed before,
 * and must not be told as reusable. */
enum vpmm_status vpmm_heap_synchronize(struct vpmm_heap *heap)
{
    vpmm_fence fences[FENCES];
    struct range range = {VPMM_FENCE_NONE, VPMM_FENCE_NONE};
    vpmm_heap_reap(heap);
    (void)vpmm_heap_pending(heap, find_last, &range, fences, FENCES);
    enum vpmm_status status = wait_until(heap, range.last);
    for (int i = 0; status == VPMM_NOT_READY && i < TRIES; i++) {
        vpmm_pause();
        vpmm_heap_reap(heap);
        status = wait_until(heap, range.last);
    }
    vpmm_heap_reap(heap);
    return status;
}
