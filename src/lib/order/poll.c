/* SPDX-License-Identifier: MIT */
/* Asks the driver which fences are complete by now, and has parked ones recorded. Must not wait for
 * a fence, and must not hold the lock while the driver is asked. */
#include "order/order_internal.h"

/* With fewer fences that are not known complete nobody looks for the sake of their events. */
#define TIDIED_LEAST 32u

static vpmm_fence fence_in(const struct vpmm_order *order, uint32_t slot)
{
    return slot ? vpmm_atomic_load(&vpmm_slot_at(order, slot)->number) : VPMM_FENCE_NONE;
}

/* The next glances pass over the queue, twice as many as the last time, unless a fence of it
 * completes before. */
static void pass_over(struct vpmm_queue *queue)
{
    queue->n_passes = queue->n_passes ? 2 * queue->n_passes : 1;
    if (queue->n_passes > VPMM_PASSES_MAX)
        queue->n_passes = VPMM_PASSES_MAX;
    queue->n_passes_left = queue->n_passes;
}

/* Called with the lock, which is given up while the driver is asked: meanwhile the queue may have
 * become another's. While its oldest fence is not complete, no other is; and the newest vouches for
 * all. */
static void poll_queue(struct vpmm_order *order, struct vpmm_queue *queue)
{
    enum vpmm_status (*query)(void *, vpmm_event_handle) = order->driver->event_query;
    vpmm_fence oldest = fence_in(order, queue->first);
    pass_over(queue);
    if (!oldest || vpmm_fence_observe(order, oldest, query) != VPMM_OK)
        return;
    vpmm_fence newest = fence_in(order, queue->last);
    if (!newest || vpmm_fence_observe(order, newest, query) == VPMM_OK)
        return;
    while ((oldest = fence_in(order, queue->first)) != VPMM_FENCE_NONE && oldest != newest)
        if (vpmm_fence_observe(order, oldest, query) != VPMM_OK)
            return;
}

/* Called with the lock, which is given up where there is something to record. */
static void record_parked(struct vpmm_order *order, struct vpmm_context *context)
{
    if (!context->parked_used || vpmm_context_is_gone(context))
        return;
    vpmm_lock_give(&order->lock);
    vpmm_record_parked(order, context);
    vpmm_lock_take(&order->lock);
}

static bool is_passed_over(struct vpmm_queue *queue)
{
    bool is_passed = queue->n_passes_left > 0;
    if (is_passed)
        queue->n_passes_left--;
    return is_passed;
}

/* Of all queues, or of those that it is time for: then `has_passed_out` tells of others. */
static bool poll(struct vpmm_order *order, bool *has_passed_out)
{
    const struct vpmm_driver *driver = order->driver;
    int mode;
    if (!vpmm_atomic_load(&order->n_fences) || driver->capture_relax(driver->self, &mode))
        return false;
    vpmm_lock_take(&order->lock);
    for (uint32_t number = vpmm_atomic_load(&order->n_contexts); number; number--)
        record_parked(order, vpmm_context_at(order, number));
    uint64_t n_completed = vpmm_order_completions(order);
    for (uint32_t number = 1; number < order->queues_end; number++) {
        struct vpmm_queue *queue = vpmm_queue_at(order, number);
        if (!queue)
            continue;
        if (has_passed_out && is_passed_over(queue))
            *has_passed_out = true;
        else
            poll_queue(order, queue);
    }
    bool any = vpmm_order_completions(order) != n_completed;
    if (any)
        vpmm_joined_sweep(order);
    vpmm_lock_give(&order->lock);
    driver->capture_restore(driver->self, mode);
    return any;
}

bool vpmm_order_poll(struct vpmm_order *order)
{
    return poll(order, NULL);
}

bool vpmm_order_glance(struct vpmm_order *order, bool *has_passed_out)
{
    *has_passed_out = false;
    return poll(order, has_passed_out);
}

void vpmm_order_tidy(struct vpmm_order *order)
{
    uint64_t n_fences = vpmm_hint_load(&order->n_fences);
    if (n_fences < TIDIED_LEAST || n_fences < vpmm_hint_load(&order->n_fences_tidied))
        return;
    (void)vpmm_order_poll(order);
    vpmm_hint_store(&order->n_fences_tidied, 2 * vpmm_hint_load(&order->n_fences));
}
