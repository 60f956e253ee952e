/* SPDX-License-Identifier: MIT */
/* Frees a block: finds the fence of its last users, and gives the pages to the pool with it. Must
 * not make pages reusable where nobody knows what they must wait for. */
#include "heap/heap_internal.h"

/* A context that cannot get a record has no fence: its work is waited for on the host. False beside
 * a capture, which that might break. */
static bool wait_for_unknown(struct vpmm_heap *heap)
{
    const struct vpmm_driver *driver = heap->driver;
    vpmm_context_handle current;
    int mode;
    if (!vpmm_order_misses_current(heap->order, &current))
        return true;
    if (vpmm_order_captures(heap->order))
        return false;
    if (driver->capture_relax(driver->self, &mode) == VPMM_OK) {
        (void)!driver->context_synchronize(driver->self, current);
        driver->capture_restore(driver->self, mode);
    }
    return true;
}

/* CUDA leaves it to the program that all use of cudaMallocAsync memory is over in cudaFree, and
 * waits for nothing. So that is what counts where only a wait could tell more. */
static bool is_taken_to_be_over(const struct vpmm_heap *heap, const struct vpmm_owner *owner,
                                enum vpmm_status *status_out)
{
    const struct vpmm_driver *driver = heap->driver;
    struct vpmm_stream_facts facts;
    if (!owner->is_async || driver->event_record_context)
        return false;
    enum vpmm_status status = driver->stream_facts(driver->self, VPMM_STREAM_LEGACY, &facts);
    *status_out = status == VPMM_BROKEN || status == VPMM_SHUT_DOWN ? status : VPMM_OK;
    return true;
}

/* Without a record of the context it is waited for instead, but beside a capture. */
static vpmm_fence fence_of(struct vpmm_heap *heap, struct vpmm_context *context,
                           const struct vpmm_owner *owner, enum vpmm_status *wait_out)
{
    uint64_t begin_ns = vpmm_heap_now_ns(heap);
    vpmm_fence fence = vpmm_order_fence_context(heap->order, context, !owner->is_async, wait_out);
    if (fence == VPMM_FENCE_NONE && !heap->driver->event_record_context)
        vpmm_heap_tell_wait(heap, NULL, begin_ns);
    return fence;
}

/* The fence of a cudaFree: all work of the context that owns the memory. cudaMallocAsync memory may
 * outlive that; then of the current one, whose work may use it, or of all where nobody can tell
 * which that is. False without memory. Sets `*wait_out` where it waited. Bare CUDA waits for
 * nothing where the memory came from cudaMallocAsync: it takes all use to be over. */
static bool fence_owner(struct vpmm_heap *heap, const struct vpmm_owner *owner,
                        vpmm_fence *fence_out, enum vpmm_status *wait_out)
{
    struct vpmm_context *context = vpmm_order_context_by_id(heap->order, owner->context_id);
    enum vpmm_status status = VPMM_OK;
    *fence_out = VPMM_FENCE_NONE;
    if (is_taken_to_be_over(heap, owner, wait_out))
        return true;
    if (!context || vpmm_context_is_gone(context))
        status = vpmm_order_context(heap->order, NULL, &context);
    if (!status)
        *fence_out = fence_of(heap, context, owner, wait_out);
    else if (status == VPMM_BROKEN || status == VPMM_SHUT_DOWN)
        *wait_out = status;
    else if (!wait_for_unknown(heap))
        return false;
    vpmm_context_handle current;
    return !status || status == VPMM_CONTEXT_GONE ||
           heap->driver->context_current(heap->driver->self, &current) == VPMM_NO_CONTEXT ||
           (status != VPMM_NO_METADATA && !vpmm_order_fence_all(heap->order, fence_out));
}

bool vpmm_heap_fence_free(struct vpmm_heap *heap, const struct vpmm_owner *owner,
                          const struct vpmm_stream *stream, vpmm_fence *fence_out,
                          enum vpmm_status *wait_out)
{
    if (!stream)
        return fence_owner(heap, owner, fence_out, wait_out);
    *fence_out = vpmm_order_fence_stream(heap->order, stream);
    /* CUDA's memory pool may wait for what it gave out itself, and for nothing else. */
    if (!owner->is_async)
        vpmm_order_forbid_wait(heap->order, *fence_out);
    /* The record of a fence on the legacy stream is its mark, too. */
    if (!stream->is_legacy)
        *wait_out = vpmm_order_mark_free(heap->order, stream, owner->is_async ? owner->bytes : 0);
    return true;
}

/* The last owner's fence (the region's) still counts unless the new one covers it. Without a new
 * one it is the fence. Joining needs memory; where there is none, the prior fence is put before a
 * new one instead: on the stream that frees, or, for cudaFree, on the host, where bare CUDA would
 * have waited too. False where that fails as well: nobody knows when the pages may be reused. */
static bool fence_with_prior(struct vpmm_heap *heap, const struct vpmm_region_view *region,
                             const struct vpmm_stream *stream, vpmm_fence *fence,
                             enum vpmm_status *wait_out)
{
    struct vpmm_order *order = heap->order;
    vpmm_fence prior = region->fence;
    if (vpmm_order_ask(order, prior, 0) == VPMM_VERDICT_COMPLETE)
        return true;
    if (*fence == VPMM_FENCE_NONE) {
        *fence = prior;
        return true;
    }
    if ((stream ? vpmm_order_follows(order, prior, stream)
                : vpmm_order_covers(order, prior, region->owner.context_id, 0)))
        return true;
    vpmm_fence joined = vpmm_order_join(order, prior, *fence);
    if (joined != VPMM_FENCE_NONE) {
        *fence = joined;
        return true;
    }
    if (vpmm_order_ask(order, prior, 0) == VPMM_VERDICT_COMPLETE)
        return true;
    uint64_t begin_ns = vpmm_heap_now_ns(heap);
    if (stream ? vpmm_order_wait_stream(order, prior, stream) : vpmm_order_wait_host(order, prior))
        return false;
    vpmm_heap_tell_wait(heap, stream, begin_ns);
    return vpmm_heap_fence_free(heap, &region->owner, stream, fence, wait_out);
}

void vpmm_heap_make_free(struct vpmm_heap *heap, uint64_t address, vpmm_fence fence,
                         uint64_t stream_id)
{
    bool is_complete = vpmm_order_ask(heap->order, fence, 0) == VPMM_VERDICT_COMPLETE;
    bool is_own = vpmm_order_ask(heap->order, fence, stream_id) != VPMM_VERDICT_PENDING;
    vpmm_pool_free(heap->pool, address, is_complete ? VPMM_FENCE_NONE : fence,
                   is_own ? stream_id : 0);
    vpmm_heap_check(heap);
}

/* What no lane takes. */
static enum vpmm_status free_whole(struct vpmm_heap *heap, uint64_t address,
                                   const struct vpmm_stream *stream, enum vpmm_status *wait_out)
{
    struct vpmm_region_view region;
    enum vpmm_status status = vpmm_pool_claim(heap->pool, address, &region);
    if (status)
        return status;
    vpmm_fence fence;
    vpmm_atomic_add(&heap->frees, 1);
    vpmm_hint_xor(&heap->layout, region.owner.stamp);
    if (!vpmm_heap_fence_free(heap, &region.owner, stream, &fence, wait_out) ||
        !fence_with_prior(heap, &region, stream, &fence, wait_out)) {
        vpmm_atomic_add(&heap->lost_pages, region.pages);
        return VPMM_OK;
    }
    bool has_waited = !heap->driver->event_record_context;
    if (!stream && heap->params.free_waits && !has_waited && !region.owner.is_async) {
        struct vpmm_context *owner = vpmm_order_context_by_id(heap->order, region.owner.context_id);
        if (owner && !vpmm_context_is_gone(owner)) {
            uint64_t begin_ns = vpmm_heap_now_ns(heap);
            *wait_out = vpmm_order_wait_context(heap->order, owner);
            vpmm_heap_tell_wait(heap, NULL, begin_ns);
        }
    }
    vpmm_lock_take(&heap->lock);
    vpmm_lease_release(heap, &region, fence, stream ? stream->id : 0);
    vpmm_lock_give(&heap->lock);
    vpmm_leases_give_back(heap);
    vpmm_order_tidy(heap->order);
    return VPMM_OK;
}

/* Whether a free of the block waits for its context itself; then that has begun. */
static bool begins_to_wait(struct vpmm_heap *heap, uint64_t address,
                           struct vpmm_waiting_free *waiting)
{
    struct vpmm_region_view region;
    if (heap->driver->event_record_context || vpmm_pool_find(heap->pool, address, &region) ||
        region.state != VPMM_REGION_LIVE || region.owner.is_async)
        return false;
    vpmm_waiting_free_begin(heap, waiting, region.owner.context_id);
    return true;
}

enum vpmm_status vpmm_heap_free(struct vpmm_heap *heap, uint64_t address,
                                const struct vpmm_stream *stream, enum vpmm_status *wait_out)
{
    struct vpmm_waiting_free waiting;
    *wait_out = VPMM_OK;
    if (stream ? vpmm_heap_free_cached(heap, address, stream, wait_out)
               : vpmm_cache_free_sync(heap, address, wait_out))
        return VPMM_OK;
    bool waits = !stream && begins_to_wait(heap, address, &waiting);
    enum vpmm_status status = free_whole(heap, address, stream, wait_out);
    if (waits)
        vpmm_waiting_free_end(heap, &waiting);
    return status;
}

bool vpmm_heap_free_cached(struct vpmm_heap *heap, uint64_t address,
                           const struct vpmm_stream *stream, enum vpmm_status *status_out)
{
    return stream->id && vpmm_cache_free(heap, address, stream, status_out);
}

bool vpmm_heap_give_up(struct vpmm_heap *heap, uint64_t address)
{
    struct vpmm_region_view region;
    if (vpmm_pool_claim(heap->pool, address, &region))
        return false;
    vpmm_atomic_add(&heap->frees, 1);
    vpmm_atomic_add(&heap->lost_pages, region.pages);
    vpmm_hint_xor(&heap->layout, region.owner.stamp);
    return true;
}

bool vpmm_heap_free_unknown(struct vpmm_heap *heap, uint64_t address)
{
    vpmm_fence fence;
    if (vpmm_order_fence_all(heap->order, &fence))
        return vpmm_heap_give_up(heap, address);
    return !vpmm_heap_free_fenced(heap, address, 0, fence, 0);
}

uint64_t vpmm_heap_busy_pages(const struct vpmm_heap *heap, const struct vpmm_pool_totals *totals)
{
    uint64_t idle_pages =
        vpmm_atomic_load(&heap->lost_pages) + vpmm_atomic_load(&heap->withheld_pages);
    return totals->busy_pages > idle_pages ? totals->busy_pages - idle_pages : 0;
}

static bool dies_with(const struct vpmm_region_view *region, uint64_t context_id)
{
    return region->state == VPMM_REGION_LIVE && !region->owner.is_async &&
           region->owner.context_id == context_id;
}

void vpmm_heap_context_gone(struct vpmm_heap *heap, uint64_t context_id)
{
    uint64_t cursor = 0;
    struct vpmm_region_view region;
    while (vpmm_pool_next(heap->pool, &cursor, &region)) {
        if (!dies_with(&region, context_id))
            continue;
        uint64_t begin_ns = vpmm_heap_now_ns(heap);
        /* The address may have changed hands since: only under the lock does it not. */
        vpmm_lock_take(&heap->lock);
        bool is_claimed = !vpmm_pool_find(heap->pool, region.address, &region) &&
                          dies_with(&region, context_id) &&
                          !vpmm_pool_claim(heap->pool, region.address, &region);
        if (is_claimed) {
            vpmm_hint_xor(&heap->layout, region.owner.stamp);
            vpmm_lease_release(heap, &region, region.fence, 0);
        }
        vpmm_lock_give(&heap->lock);
        if (is_claimed)
            vpmm_heap_tell_death(heap, &region, begin_ns);
    }
}
