/* SPDX-License-Identifier: MIT */
#include "order/internal.h"

#include <assert.h>
#include <string.h>

/* Newest first: a handle may have belonged to contexts that are gone. */
static struct vpmm_context *find(const struct vpmm_order *order, vpmm_context_handle handle)
{
    for (uint32_t number = vpmm_atomic_load(&order->n_contexts); number; number--) {
        struct vpmm_context *context = vpmm_context_at(order, number);
        if (context->handle == handle && !vpmm_atomic_load(&context->gone))
            return context;
    }
    return NULL;
}

static struct vpmm_context *add(struct vpmm_order *order, vpmm_context_handle handle, int device)
{
    uint32_t number = vpmm_table_take(&order->contexts);
    struct vpmm_context *context = vpmm_context_at(order, number);
    if (!context)
        return NULL;
    memset(context, 0, sizeof *context);
    context->parked = vpmm_slot_take(order, VPMM_FENCE_IS_PARKED, VPMM_WAIT_NEVER, number);
    if (!context->parked) {
        vpmm_table_give(&order->contexts, number);
        return NULL;
    }
    context->handle = handle;
    context->number = number;
    context->device = device;
    vpmm_atomic_store(&order->n_contexts, number);
    return context;
}

/* The living record of `handle`. While its context is being destroyed the handle may already be
 * another's, so the end of that is awaited: only a program that uses a context while it destroys it
 * waits longer than a moment. */
static struct vpmm_context *find_living(struct vpmm_order *order, vpmm_context_handle handle)
{
    struct vpmm_context *context = find(order, handle);
    if (!context || !vpmm_atomic_load(&context->n_leaving))
        return context;
    vpmm_lock_take(&order->lock);
    while ((context = find(order, handle)) != NULL && vpmm_atomic_load(&context->n_leaving))
        vpmm_condition_wait(&order->calmed, &order->lock);
    vpmm_lock_give(&order->lock);
    return context;
}

static enum vpmm_status find_or_add(struct vpmm_order *order, vpmm_context_handle handle,
                                    struct vpmm_context **context_out)
{
    struct vpmm_context *context = find_living(order, handle);
    if (!context) {
        int device;
        enum vpmm_status status =
            order->driver->context_device(order->driver->self, handle, &device);
        if (status)
            return status;
        vpmm_lock_take(&order->lock);
        context = find(order, handle);
        if (!context)
            context = add(order, handle, device);
        vpmm_lock_give(&order->lock);
    }
    if (!context)
        return VPMM_NO_METADATA;
    *context_out = context;
    return VPMM_OK;
}

/* What the current context's streams are of. It may be a green one, which has no record of its own:
 * its streams are its primary context's. While a blocking stream captures there, the legacy stream
 * answers nothing, and the thread's own stream is asked. */
static enum vpmm_status root_of_current(const struct vpmm_driver *driver,
                                        vpmm_context_handle *handle_out)
{
    struct vpmm_stream_facts facts;
    enum vpmm_status status = driver->stream_facts(driver->self, VPMM_STREAM_LEGACY, &facts);
    if (status == VPMM_CAPTURED)
        status = driver->stream_facts(driver->self, VPMM_STREAM_PER_THREAD, &facts);
    if (!status)
        *handle_out = facts.context;
    return status;
}

enum vpmm_status vpmm_order_context(struct vpmm_order *order, vpmm_context_handle handle,
                                    struct vpmm_context **context_out)
{
    const struct vpmm_driver *driver = order->driver;
    if (handle)
        return find_or_add(order, handle, context_out);
    enum vpmm_status status = driver->context_current(driver->self, &handle);
    if (status)
        return status;
    struct vpmm_context *context = find_living(order, handle);
    if (context) {
        *context_out = context;
        return VPMM_OK;
    }
    status = root_of_current(driver, &handle);
    return status ? status : find_or_add(order, handle, context_out);
}

uint64_t vpmm_context_id(const struct vpmm_context *context)
{
    return context->number;
}

int vpmm_context_device(const struct vpmm_context *context)
{
    return context->device;
}

vpmm_context_handle vpmm_context_raw(const struct vpmm_context *context)
{
    return context->handle;
}

bool vpmm_context_is_gone(const struct vpmm_context *context)
{
    return vpmm_atomic_load(&context->gone) != 0;
}

struct vpmm_context *vpmm_order_context_by_id(struct vpmm_order *order, uint64_t id)
{
    return id && id <= vpmm_atomic_load(&order->n_contexts) ? vpmm_context_at(order, (uint32_t)id)
                                                            : NULL;
}

void vpmm_context_calm(struct vpmm_order *order, struct vpmm_context *context)
{
    assert(context->n_users);
    context->n_users--;
    if (vpmm_atomic_load(&order->n_closing) || vpmm_atomic_load(&context->n_leaving))
        vpmm_condition_broadcast(&order->calmed);
}

bool vpmm_context_mark_begin(struct vpmm_context *context)
{
    return vpmm_atomic_add(&context->n_marking, 1) < VPMM_MARKS_END &&
           !vpmm_atomic_load(&context->gone);
}

void vpmm_context_mark_end(struct vpmm_order *order, struct vpmm_context *context)
{
    if (vpmm_atomic_sub(&context->n_marking, 1) < VPMM_MARKS_END)
        return;
    vpmm_lock_take(&order->lock);
    vpmm_condition_broadcast(&order->calmed);
    vpmm_lock_give(&order->lock);
}

static bool is_in_use(const struct vpmm_context *context)
{
    return context->n_users || vpmm_atomic_load(&context->n_marking) % VPMM_MARKS_END;
}

void vpmm_context_bury(struct vpmm_order *order, struct vpmm_context *context)
{
    if (vpmm_atomic_load(&context->gone))
        return;
    vpmm_atomic_store(&context->gone, 1);
    vpmm_atomic_add(&order->epoch, 1);
    vpmm_queues_complete(order, context->number, UINT64_MAX);
    vpmm_open_complete(order, context->number);
    if (context->parked_used)
        vpmm_slot_complete(order, context->parked);
    else
        vpmm_slot_give(order, context->parked);
    context->parked = 0;
    context->parked_used = false;
    vpmm_marks_forget(order, context);
    vpmm_events_forget(order, context);
    vpmm_atomic_sub(&order->n_events, vpmm_atomic_load(&context->mark) != 0);
    vpmm_captures_forget(order, context);
    vpmm_joined_sweep(order);
    vpmm_condition_broadcast(&order->calmed);
}

bool vpmm_context_is_lost(struct vpmm_order *order, const struct vpmm_context *context,
                          enum vpmm_status answer)
{
    int device;
    return answer == VPMM_CONTEXT_GONE &&
           order->driver->context_device(order->driver->self, context->handle, &device) ==
               VPMM_CONTEXT_GONE;
}

void vpmm_order_context_leaving(struct vpmm_order *order, vpmm_context_handle handle)
{
    vpmm_lock_take(&order->lock);
    struct vpmm_context *context = find(order, handle);
    if (context) {
        vpmm_atomic_add(&context->n_leaving, 1);
        vpmm_atomic_add(&context->n_marking, VPMM_MARKS_END);
        vpmm_atomic_add(&order->epoch, 1);
        while (is_in_use(context))
            vpmm_condition_wait(&order->calmed, &order->lock);
    }
    vpmm_lock_give(&order->lock);
}

void vpmm_order_context_left(struct vpmm_order *order, vpmm_context_handle handle, bool destroyed)
{
    vpmm_lock_take(&order->lock);
    struct vpmm_context *context = find(order, handle);
    if (context && vpmm_atomic_load(&context->n_leaving)) {
        /* Gone before it is not leaving any more: those who look without the lock see either. */
        if (destroyed)
            vpmm_context_bury(order, context);
        vpmm_atomic_sub(&context->n_leaving, 1);
        vpmm_atomic_sub(&context->n_marking, VPMM_MARKS_END);
        vpmm_condition_broadcast(&order->calmed);
    }
    vpmm_lock_give(&order->lock);
}
