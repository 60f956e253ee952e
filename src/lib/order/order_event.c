/* SPDX-License-Identifier: MIT */
/* The events that fences use again and again: made, taken, pinned and given back. Must not destroy
 * an event of a context that is ending or gone. */
#include "order/order_internal.h"

#include <assert.h>

static struct vpmm_context *context_of(const struct vpmm_order *order,
                                       const struct vpmm_event *event)
{
    return vpmm_context_at(order, event->context);
}

/* Nobody owns or pins the event any more: the next record may have it, unless its context took it
 * along. */
static void rest(struct vpmm_order *order, uint32_t number)
{
    struct vpmm_event *event = vpmm_event_at(order, number);
    struct vpmm_context *context = context_of(order, event);
    if (vpmm_atomic_load(&context->gone)) {
        event->handle = NULL;
        vpmm_table_give(&order->events, number);
        vpmm_atomic_sub(&order->n_events, 1);
        return;
    }
    event->next = context->idle_events;
    context->idle_events = number;
}

uint32_t vpmm_event_take(struct vpmm_order *order, struct vpmm_context *context)
{
    uint32_t number = context->idle_events;
    struct vpmm_event *event = vpmm_event_at(order, number);
    if (!event)
        return 0;
    context->idle_events = event->next;
    event->is_owned = true;
    return number;
}

enum vpmm_status vpmm_event_make(struct vpmm_order *order, struct vpmm_context *context,
                                 uint32_t *number_out)
{
    const struct vpmm_driver *driver = order->driver;
    vpmm_event_handle handle;
    enum vpmm_status status = driver->event_create(driver->self, context->handle, &handle);
    if (status)
        return status;
    vpmm_lock_take(&order->lock);
    uint32_t number = vpmm_table_take(&order->events);
    struct vpmm_event *event = vpmm_event_at(order, number);
    if (event) {
        *event =
            (struct vpmm_event){.handle = handle, .context = context->number, .is_owned = true};
        vpmm_atomic_add(&order->n_events, 1);
    }
    vpmm_lock_give(&order->lock);
    if (!event) {
        (void)driver->event_destroy(driver->self, handle);
        return VPMM_NO_METADATA;
    }
    *number_out = number;
    return VPMM_OK;
}

void vpmm_event_give(struct vpmm_order *order, uint32_t number)
{
    struct vpmm_event *event = vpmm_event_at(order, number);
    event->is_owned = false;
    if (!event->n_pins)
        rest(order, number);
}

void vpmm_event_discard(struct vpmm_order *order, uint32_t number)
{
    vpmm_lock_take(&order->lock);
    struct vpmm_event *event = vpmm_event_at(order, number);
    struct vpmm_context *context = context_of(order, event);
    vpmm_event_handle handle = event->handle;
    bool may_touch = !vpmm_atomic_load(&context->gone) && !vpmm_atomic_load(&context->n_leaving);
    event->handle = NULL;
    vpmm_table_give(&order->events, number);
    vpmm_atomic_sub(&order->n_events, 1);
    if (may_touch)
        context->n_users++;
    vpmm_lock_give(&order->lock);
    if (!may_touch)
        return;
    (void)order->driver->event_destroy(order->driver->self, handle);
    vpmm_lock_take(&order->lock);
    vpmm_context_calm(order, context);
    vpmm_lock_give(&order->lock);
}

vpmm_event_handle vpmm_event_pin(struct vpmm_order *order, uint32_t number)
{
    struct vpmm_event *event = vpmm_event_at(order, number);
    event->n_pins++;
    context_of(order, event)->n_users++;
    return event->handle;
}

void vpmm_event_unpin(struct vpmm_order *order, uint32_t number)
{
    struct vpmm_event *event = vpmm_event_at(order, number);
    assert(event->n_pins);
    vpmm_context_calm(order, context_of(order, event));
    if (!--event->n_pins && !event->is_owned)
        rest(order, number);
}

void vpmm_events_forget(struct vpmm_order *order, struct vpmm_context *context)
{
    uint32_t number;
    while ((number = context->idle_events) != 0) {
        context->idle_events = vpmm_event_at(order, number)->next;
        rest(order, number);
    }
}
