/* SPDX-License-Identifier: MIT */
/* Waits on the host for what is pending, the oldest first. Must not wait without bound for a fence
 * that bare CUDA would not have waited for. */
#define _POSIX_C_SOURCE 200809L
#include "heap/heap_internal.h"

#include <time.h>

/* Between two polls: short against a wait that is noticed, long against what a poll costs others.
 */
#define PAUSE_NS 100000

void vpmm_pause(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

/* So often a request that waits looks into the lanes. */
#define GATHERS_MAX 16u

/* So often it waits for what was freed since it began to wait. */
#define LATER_MAX 16u

struct waiter {
    struct vpmm_order *order;
    const struct vpmm_context *context;
    const struct vpmm_stream *stream;
    vpmm_fence newest; /* that it waits for */
};

static bool may_wait_host(void *self, vpmm_fence fence)
{
    const struct waiter *waiter = self;
    return fence <= waiter->newest &&
           vpmm_order_may_wait_host(waiter->order, fence, waiter->context);
}

static bool may_wait_stream(void *self, vpmm_fence fence)
{
    const struct waiter *waiter = self;
    return vpmm_order_may_wait_stream(waiter->order, fence, waiter->stream);
}

size_t vpmm_heap_pending(struct vpmm_heap *heap, bool (*is_wanted)(void *self, vpmm_fence fence),
                         void *self, vpmm_fence *fences_out, size_t room)
{
    vpmm_lock_take(&heap->lock);
    size_t n = vpmm_pool_pending(heap->pool, is_wanted, self, fences_out, room);
    vpmm_lock_give(&heap->lock);
    return n;
}

size_t vpmm_heap_pending_of_streams(struct vpmm_heap *heap, const struct vpmm_stream *stream,
                                    vpmm_fence *fences_out, size_t room)
{
    struct waiter waiter = {.order = heap->order, .stream = stream};
    return vpmm_heap_pending(heap, may_wait_stream, &waiter, fences_out, room);
}

bool vpmm_heap_has_pending(struct vpmm_heap *heap)
{
    vpmm_fence fence;
    return vpmm_heap_pending(heap, NULL, NULL, &fence, 1) > 0;
}

struct vpmm_endurance vpmm_endurance_begin(struct vpmm_heap *heap)
{
    struct vpmm_endurance endurance = {.newest = vpmm_order_newest(heap->order),
                                       .later_left = LATER_MAX,
                                       .gathers_left = GATHERS_MAX};
    vpmm_lock_take(&heap->lock);
    endurance.newest_free = heap->n_waiting_frees;
    vpmm_lock_give(&heap->lock);
    return endurance;
}

void vpmm_waiting_free_begin(struct vpmm_heap *heap, struct vpmm_waiting_free *waiting,
                             uint64_t context_id)
{
    vpmm_lock_take(&heap->lock);
    *waiting = (struct vpmm_waiting_free){context_id, ++heap->n_waiting_frees, heap->waiting_frees};
    heap->waiting_frees = waiting;
    vpmm_lock_give(&heap->lock);
}

void vpmm_waiting_free_end(struct vpmm_heap *heap, const struct vpmm_waiting_free *waiting)
{
    vpmm_lock_take(&heap->lock);
    struct vpmm_waiting_free **link = &heap->waiting_frees;
    while (*link != waiting)
        link = &(*link)->next;
    *link = waiting->next;
    vpmm_condition_broadcast(&heap->frees_done);
    vpmm_lock_give(&heap->lock);
}

/* With the lock. The number of the oldest one of the context; 0: there is none. */
static uint64_t oldest_waiting(const struct vpmm_heap *heap, uint64_t context_id)
{
    uint64_t number = 0;
    for (const struct vpmm_waiting_free *waiting = heap->waiting_frees; waiting;
         waiting = waiting->next)
        if (waiting->context_id == context_id)
            number = waiting->number;
    return number;
}

/* NOT_FOUND as vpmm_heap_wait_oldest says. */
static enum vpmm_status await_free(struct vpmm_heap *heap, const struct vpmm_context *context,
                                   struct vpmm_endurance *endurance)
{
    uint64_t context_id = context ? vpmm_context_id(context) : 0;
    uint64_t begin_ns = vpmm_heap_now_ns(heap);
    vpmm_lock_take(&heap->lock);
    uint64_t number = context ? oldest_waiting(heap, context_id) : 0;
    bool is_later = number > endurance->newest_free;
    bool waits = number && (!is_later || endurance->later_left);
    while (waits && oldest_waiting(heap, context_id) == number)
        vpmm_condition_wait(&heap->frees_done, &heap->lock);
    vpmm_lock_give(&heap->lock);
    if (!waits)
        return VPMM_NOT_FOUND;
    endurance->later_left -= is_later;
    vpmm_atomic_add(&heap->host_waits, 1);
    vpmm_heap_tell_wait(heap, NULL, begin_ns);
    return VPMM_OK;
}

enum vpmm_status vpmm_heap_wait_oldest(struct vpmm_heap *heap, const struct vpmm_context *context,
                                       struct vpmm_endurance *endurance)
{
    struct waiter waiter = {
        .order = heap->order,
        .context = context,
        .newest = endurance->later_left ? UINT64_MAX : endurance->newest,
    };
    vpmm_fence fence;
    bool has_one = vpmm_heap_pending(heap, may_wait_host, &waiter, &fence, 1) > 0;
    if (!has_one && endurance->gathers_left) {
        endurance->gathers_left--;
        if (vpmm_cache_close(heap, NULL, true))
            has_one = vpmm_heap_pending(heap, may_wait_host, &waiter, &fence, 1) > 0;
    }
    bool is_part = !has_one && heap->keeper.oldest;
    if (is_part) {
        fence = heap->keeper.oldest(heap->keeper.self, context);
        has_one = fence != VPMM_FENCE_NONE && fence <= waiter.newest;
    }
    if (!has_one)
        return await_free(heap, context, endurance);
    endurance->later_left -= fence > endurance->newest;
    uint64_t begin_ns = vpmm_heap_now_ns(heap);
    enum vpmm_status status = vpmm_order_wait_host(heap->order, fence);
    vpmm_atomic_add(&heap->host_waits, 1);
    vpmm_heap_tell_wait(heap, NULL, begin_ns);
    if (is_part)
        vpmm_heap_ask_keeper(heap);
    vpmm_heap_settle_all(heap);
    /* A driver that is out of memory for the wait says nothing of the request, which would wait for
     * the same fence for ever. */
    return status == VPMM_NO_MEMORY ? VPMM_FAILED : status;
}
