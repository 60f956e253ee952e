/* SPDX-License-Identifier: MIT */
#include "order/internal.h"

/* With fewer fences that are not known complete nobody looks for the sake of their events. */
#define TIDIED_LEAST 32u

static vpmm_fence fence_in(const struct vpmm_order *order, uint32_t slot)
{
    return slot ? vpmm_atomic_load(&vpmm_slot_at(order, slot)->number) : VPMM_FENCE_NONE;
}

/* Called with the lock, which is given up while the driver is asked: meanwhile the queue may have
 * become another's. */
static void poll_queue(struct vpmm_order *order, struct vpmm_queue *queue)
{
    enum vpmm_status (*query)(void *, vpmm_event_handle) = order->driver->event_query;
    vpmm_fence newest = fence_in(order, queue->last);
    if (!newest || vpmm_fence_observe(order, newest, query) == VPMM_OK)
        return;
    vpmm_fence oldest;
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

bool vpmm_order_poll(struct vpmm_order *order)
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
        if (queue)
            poll_queue(order, queue);
    }
    bool any = vpmm_order_completions(order) != n_completed;
    if (any)
        vpmm_joined_sweep(order);
    vpmm_lock_give(&order->lock);
    driver->capture_restore(driver->self, mode);
    return any;
}

void vpmm_order_tidy(struct vpmm_order *order)
{
    uint64_t n_fences = vpmm_hint_load(&order->n_fences);
    if (n_fences < TIDIED_LEAST || n_fences < vpmm_hint_load(&order->n_fences_tidied))
        return;
    (void)vpmm_order_poll(order);
    vpmm_hint_store(&order->n_fences_tidied, 2 * vpmm_hint_load(&order->n_fences));
}
