/* SPDX-License-Identifier: MIT */
#include "order/internal.h"

#include <assert.h>

static bool is_leaving(const struct vpmm_context *context)
{
    return vpmm_atomic_load(&context->n_leaving) != 0;
}

enum vpmm_status vpmm_fence_observe(struct vpmm_order *order, vpmm_fence fence,
                                    enum vpmm_status (*operation)(void *, vpmm_event_handle))
{
    struct vpmm_slot *slot = vpmm_slot_of(order, fence);
    if (!slot)
        return VPMM_OK;
    struct vpmm_context *context = vpmm_context_at(order, vpmm_atomic_load(&slot->context));
    if (is_leaving(context))
        return VPMM_NOT_READY;
    uint32_t event = slot->event;
    assert(event);
    vpmm_event_handle handle = vpmm_event_pin(order, event);
    vpmm_lock_give(&order->lock);
    assert(vpmm_lock_none_held());
    vpmm_atomic_add(&order->n_queries, 1);
    enum vpmm_status status = operation(order->driver->self, handle);
    bool is_lost = vpmm_context_is_lost(order, context, status);
    vpmm_lock_take(&order->lock);
    vpmm_event_unpin(order, event);
    if (is_lost) {
        vpmm_context_bury(order, context);
        return VPMM_OK;
    }
    if (!status && vpmm_slot_of(order, fence))
        vpmm_queue_complete(order, slot->queue, vpmm_atomic_load(&slot->begin));
    return status;
}

/* A destruction of the fence's context that is under way ends with the fence complete, or with the
 * context alive. */
static void await_departure(struct vpmm_order *order, vpmm_fence fence)
{
    struct vpmm_slot *slot;
    while ((slot = vpmm_slot_of(order, fence)) != NULL &&
           is_leaving(vpmm_context_at(order, vpmm_atomic_load(&slot->context))))
        vpmm_condition_wait(&order->calmed, &order->lock);
}

/* Of a part that has an event. */
static enum vpmm_status wait_for(struct vpmm_order *order, const struct vpmm_slot_view *view)
{
    vpmm_lock_take(&order->lock);
    await_departure(order, view->event_fence);
    enum vpmm_status status =
        vpmm_fence_observe(order, view->event_fence, order->driver->event_synchronize);
    vpmm_joined_sweep(order);
    vpmm_lock_give(&order->lock);
    return status;
}

enum vpmm_status vpmm_order_wait_host(struct vpmm_order *order, vpmm_fence fence)
{
    const struct vpmm_driver *driver = order->driver;
    struct vpmm_slot_view view;
    vpmm_fence part;
    if (vpmm_order_wait_kind(order, fence) == VPMM_WAIT_NEVER)
        return VPMM_INVALID;
    int mode;
    enum vpmm_status status = driver->capture_relax(driver->self, &mode);
    if (status)
        return status;
    while (!status && vpmm_part_next(order, &fence, &part, &view))
        status = wait_for(order, &view);
    driver->capture_restore(driver->self, mode);
    return status;
}

enum vpmm_status vpmm_order_synchronize(struct vpmm_order *order, vpmm_fence fence)
{
    const struct vpmm_driver *driver = order->driver;
    struct vpmm_slot_view view;
    vpmm_fence part;
    int mode;
    enum vpmm_status first = driver->capture_relax(driver->self, &mode);
    if (first)
        return first;
    while (vpmm_part_next(order, &fence, &part, &view)) {
        bool has_event = view.kind == VPMM_FENCE_IS_STREAM || view.kind == VPMM_FENCE_IS_CONTEXT;
        enum vpmm_status status = VPMM_CAPTURED;
        if (has_event)
            status = wait_for(order, &view);
        else if (view.kind == VPMM_FENCE_IS_OPEN)
            status = VPMM_NOT_READY;
        if (!first || (status && first == VPMM_NOT_READY))
            first = status;
    }
    driver->capture_restore(driver->self, mode);
    return first;
}

/* Makes the stream wait for one recorded fence. */
static enum vpmm_status wait_part(struct vpmm_order *order, vpmm_fence part,
                                  const struct vpmm_stream *stream)
{
    struct vpmm_context *waiting = stream->context;
    vpmm_lock_take(&order->lock);
    struct vpmm_slot *slot = vpmm_slot_of(order, part);
    enum vpmm_status status = VPMM_OK;
    if (slot && (is_leaving(waiting) || vpmm_atomic_load(&waiting->gone) ||
                 is_leaving(vpmm_context_at(order, vpmm_atomic_load(&slot->context)))))
        status = VPMM_CONTEXT_GONE;
    else if (slot && stream->is_legacy && !vpmm_gate_is_open(order))
        status = VPMM_CAPTURED;
    if (!slot || status) {
        vpmm_lock_give(&order->lock);
        return status;
    }
    uint32_t event = slot->event;
    vpmm_event_handle handle = vpmm_event_pin(order, event);
    waiting->n_users++;
    order->n_recorders += stream->is_legacy;
    vpmm_lock_give(&order->lock);
    assert(vpmm_lock_none_held());
    status = order->driver->stream_wait(order->driver->self, stream->handle, handle);
    vpmm_lock_take(&order->lock);
    order->n_recorders -= stream->is_legacy;
    vpmm_context_calm(order, waiting);
    vpmm_event_unpin(order, event);
    vpmm_lock_give(&order->lock);
    return status;
}

enum vpmm_status vpmm_order_wait_stream(struct vpmm_order *order, vpmm_fence fence,
                                        const struct vpmm_stream *stream)
{
    struct vpmm_slot_view view;
    vpmm_fence part;
    enum vpmm_status status = VPMM_OK;
    if (vpmm_order_wait_kind(order, fence) == VPMM_WAIT_NEVER)
        return VPMM_INVALID;
    /* Such a wait would break the capture. */
    if (stream->is_capturing)
        return VPMM_CAPTURED;
    while (!status && vpmm_part_next(order, &fence, &part, &view))
        if (view.stream_id != stream->id)
            status = wait_part(order, view.event_fence, stream);
    return status;
}
