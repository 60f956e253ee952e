/* SPDX-License-Identifier: MIT */
/* Waits for fences on the host, and makes streams wait for them. Must not hold a lock during a
 * driver call, and must not end a capture. */
#define _POSIX_C_SOURCE 200809L
#include "order/order_internal.h"

#include <assert.h>
#include <time.h>

/* Between two looks at an event that may not be waited for. */
#define PAUSE_NS 50000

/* The context's events may not be touched. `is_used`: the calling thread needs the context, so a
 * reference to it that another thread gives up is not the last one, and only its sure end counts.
 */
static bool is_closed(const struct vpmm_context *context, bool is_used)
{
    return vpmm_atomic_load(is_used ? &context->n_ending : &context->n_leaving) != 0;
}

enum vpmm_status vpmm_fence_observe(struct vpmm_order *order, vpmm_fence fence,
                                    enum vpmm_status (*operation)(void *, vpmm_event_handle))
{
    struct vpmm_slot *slot = vpmm_slot_of(order, fence);
    if (!slot)
        return VPMM_OK;
    struct vpmm_context *context = vpmm_context_at(order, vpmm_atomic_load(&slot->context));
    bool waits = operation == order->driver->event_synchronize;
    if (is_closed(context, waits))
        return VPMM_NOT_READY;
    uint32_t event = slot->event;
    assert(event);
    vpmm_event_handle handle = vpmm_event_pin(order, event);
    context->n_waiting += waits;
    vpmm_lock_give(&order->lock);
    assert(vpmm_lock_none_held());
    enum vpmm_status status = operation(order->driver->self, handle);
    bool is_lost = vpmm_context_is_lost(order, context, status);
    vpmm_lock_take(&order->lock);
    context->n_waiting -= waits;
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
static void await_departure(struct vpmm_order *order, vpmm_fence fence, bool waits)
{
    struct vpmm_slot *slot;
    while ((slot = vpmm_slot_of(order, fence)) != NULL &&
           is_closed(vpmm_context_at(order, vpmm_atomic_load(&slot->context)), waits))
        vpmm_condition_wait(&order->calmed, &order->lock);
}

static bool is_current(const struct vpmm_order *order, uint32_t context)
{
    vpmm_context_handle current;
    return order->driver->context_current(order->driver->self, &current) == VPMM_OK &&
           current == vpmm_context_at(order, context)->handle;
}

/* Of a part that has an event. Another thread may give up the context that the part is of, unless
 * it is the calling thread's current one: then its event is asked now and again, because nobody is
 * to wait until we have waited. */
static enum vpmm_status wait_for(struct vpmm_order *order, const struct vpmm_slot_view *view)
{
    const struct vpmm_driver *driver = order->driver;
    bool waits = is_current(order, view->context);
    enum vpmm_status status;
    vpmm_lock_take(&order->lock);
    for (;;) {
        await_departure(order, view->event_fence, waits);
        status = vpmm_fence_observe(order, view->event_fence,
                                    waits ? driver->event_synchronize : driver->event_query);
        if (status != VPMM_NOT_READY)
            break;
        vpmm_lock_give(&order->lock);
        (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        vpmm_lock_take(&order->lock);
    }
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

/* Neither the context of the fence nor that of the stream which is to wait ends now. */
static bool are_open(const struct vpmm_order *order, const struct vpmm_slot *slot,
                     const struct vpmm_context *waiting)
{
    uint32_t number = vpmm_atomic_load(&slot->context);
    return !vpmm_atomic_load(&waiting->gone) && !is_closed(waiting, true) &&
           !is_closed(vpmm_context_at(order, number), number == waiting->number);
}

/* Makes the stream wait for one recorded fence. */
static enum vpmm_status wait_part(struct vpmm_order *order, vpmm_fence part,
                                  const struct vpmm_stream *stream)
{
    struct vpmm_context *waiting = stream->context;
    vpmm_lock_take(&order->lock);
    struct vpmm_slot *slot = vpmm_slot_of(order, part);
    enum vpmm_status status = VPMM_OK;
    if (slot && !are_open(order, slot, waiting))
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
