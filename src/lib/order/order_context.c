/* SPDX-License-Identifier: MIT */
/* Contexts: the record of each, its birth and its death. Must not take the record of a context that
 * has ended for a later one with the same handle. */
#include "order/order_internal.h"

#include <assert.h>
#include <string.h>

/* Newest first: a handle may have belonged to contexts that are gone. */
struct vpmm_context *vpmm_context_find(const struct vpmm_order *order, vpmm_context_handle handle)
{
    for (uint32_t number = vpmm_atomic_load(&order->n_contexts); number; number--) {
        struct vpmm_context *context = vpmm_context_at(order, number);
        if (context->handle == handle && !vpmm_atomic_load(&context->gone))
            return context;
    }
    return NULL;
}

static struct vpmm_context *add(struct vpmm_order *order, vpmm_context_handle handle, int device,
                                uint64_t driver_id)
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
    context->driver_id = driver_id;
    context->number = number;
    context->device = device;
    vpmm_atomic_store(&order->n_contexts, number);
    return context;
}

static bool is_leaving(const struct vpmm_context *context)
{
    return vpmm_atomic_load(&context->n_leaving) != 0;
}

/* 0: the driver has none, or does not say. */
static enum vpmm_status ask_id(const struct vpmm_order *order, vpmm_context_handle handle,
                               uint64_t *id_out)
{
    const struct vpmm_driver *driver = order->driver;
    *id_out = 0;
    enum vpmm_status status =
        driver->context_id ? driver->context_id(driver->self, handle, id_out) : VPMM_OK;
    return status == VPMM_CONTEXT_GONE ? status : VPMM_OK;
}

/* Whether that id, asked of the context's handle, is another context's. */
static bool is_of_another(const struct vpmm_context *context, uint64_t driver_id)
{
    return driver_id && context->driver_id && driver_id != context->driver_id;
}

/* Without ids nobody can tell whether the handle of a context that is leaving is another's already:
 * the end of that is awaited. */
static void await_departure(struct vpmm_order *order, vpmm_context_handle handle)
{
    const struct vpmm_context *context;
    vpmm_lock_take(&order->lock);
    while ((context = vpmm_context_find(order, handle)) != NULL && is_leaving(context))
        vpmm_condition_wait(&order->calmed, &order->lock);
    vpmm_lock_give(&order->lock);
}

/* The record for what the driver just said of the handle; NULL: without memory, or (`*again`) other
 * threads changed what is known of the handle meanwhile. `known` was its record before the driver
 * was asked: where that tells of another context, the record's own is gone. */
static struct vpmm_context *settle(struct vpmm_order *order, struct vpmm_context *known,
                                   vpmm_context_handle handle, int device, uint64_t driver_id,
                                   bool *again)
{
    vpmm_lock_take(&order->lock);
    struct vpmm_context *context = vpmm_context_find(order, handle);
    *again = context != known;
    if (!*again && context && is_of_another(context, driver_id)) {
        vpmm_context_bury(order, context);
        context = NULL;
    }
    if (!*again && !context)
        context = add(order, handle, device, driver_id);
    vpmm_lock_give(&order->lock);
    return *again ? NULL : context;
}

static enum vpmm_status find_or_add(struct vpmm_order *order, vpmm_context_handle handle,
                                    struct vpmm_context **context_out)
{
    const struct vpmm_driver *driver = order->driver;
    struct vpmm_context *context = NULL;
    for (bool again = true; again;) {
        int device;
        uint64_t driver_id;
        struct vpmm_context *known = vpmm_context_find(order, handle);
        if (known && !is_leaving(known)) {
            *context_out = known;
            return VPMM_OK;
        }
        if (known && !known->driver_id) {
            await_departure(order, handle);
            continue;
        }
        enum vpmm_status status = driver->context_device(driver->self, handle, &device);
        if (status)
            return status;
        /* Of a context that is just met, the id alone proves nothing. */
        if (ask_id(order, handle, &driver_id) != VPMM_OK && known)
            return VPMM_CONTEXT_GONE;
        context = settle(order, known, handle, device, driver_id, &again);
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

bool vpmm_order_misses_current(struct vpmm_order *order, vpmm_context_handle *handle_out)
{
    const struct vpmm_driver *driver = order->driver;
    int device;
    uint64_t id;
    if (driver->context_current(driver->self, handle_out) ||
        vpmm_context_find(order, *handle_out) || ask_id(order, *handle_out, &id))
        return false;
    return id || driver->context_device(driver->self, *handle_out, &device) != VPMM_CONTEXT_GONE;
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
    struct vpmm_context *context = vpmm_context_find(order, handle);
    if (context && !is_leaving(context)) {
        *context_out = context;
        return VPMM_OK;
    }
    if (context)
        return find_or_add(order, handle, context_out);
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

/* Driver calls that wait for the context's work are over before it is destroyed, as that work is;
 * a call that may leave it alive does not wait for them. */
static bool is_in_use(const struct vpmm_context *context, bool is_ending)
{
    uint32_t n_passed_over = is_ending ? 0 : context->n_waiting;
    return context->n_users > n_passed_over ||
           vpmm_atomic_load(&context->n_marking) % VPMM_MARKS_END;
}

void vpmm_context_bury(struct vpmm_order *order, struct vpmm_context *context)
{
    if (vpmm_atomic_load(&context->gone))
        return;
    vpmm_atomic_store(&context->gone, 1);
    vpmm_atomic_add(&order->n_untold, 1);
    vpmm_atomic_add(&order->epoch, 1);
    vpmm_queues_complete(order, context->number, UINT64_MAX);
    vpmm_open_complete(order, context->number);
    if (context->parked_used)
        vpmm_slot_complete(order, context->parked);
    else
        vpmm_slot_give(order, context->parked);
    context->parked = 0;
    vpmm_parked_set(order, context, false);
    vpmm_tracks_forget(order, context);
    vpmm_events_forget(order, context);
    vpmm_atomic_sub(&order->n_events, vpmm_atomic_load(&context->mark) != 0);
    vpmm_captures_forget(order, context);
    vpmm_joined_sweep(order);
    vpmm_condition_broadcast(&order->calmed);
}

bool vpmm_context_is_lost(struct vpmm_order *order, const struct vpmm_context *context,
                          enum vpmm_status answer)
{
    const struct vpmm_driver *driver = order->driver;
    int device;
    uint64_t id;
    if (answer != VPMM_CONTEXT_GONE)
        return false;
    /* A context that has ended can be made current without an error (measured), and who uses it
     * then may crash: the id is asked for first. */
    if (ask_id(order, context->handle, &id) != VPMM_OK || is_of_another(context, id))
        return true;
    return !id &&
           driver->context_device(driver->self, context->handle, &device) == VPMM_CONTEXT_GONE;
}

/* ---- births and deaths ---- */

bool vpmm_order_context_lives(struct vpmm_order *order, const struct vpmm_context *context)
{
    const struct vpmm_driver *driver = order->driver;
    int device;
    uint64_t id;
    if (vpmm_context_is_gone(context) || ask_id(order, context->handle, &id) != VPMM_OK ||
        is_of_another(context, id))
        return false;
    return driver->context_device(driver->self, context->handle, &device) != VPMM_CONTEXT_GONE;
}

void vpmm_order_context_made(struct vpmm_order *order, vpmm_context_handle handle, bool is_new)
{
    uint64_t id;
    struct vpmm_context *context = vpmm_context_find(order, handle);
    if (!context || ask_id(order, handle, &id) != VPMM_OK)
        return;
    bool is_known = id && context->driver_id;
    if (is_known ? !is_of_another(context, id) : !is_new)
        return;
    vpmm_lock_take(&order->lock);
    vpmm_context_bury(order, context);
    vpmm_lock_give(&order->lock);
}

uint64_t vpmm_order_next_gone(struct vpmm_order *order)
{
    uint64_t id = 0;
    if (!vpmm_atomic_load(&order->n_untold))
        return id;
    vpmm_lock_take(&order->lock);
    for (uint32_t number = vpmm_atomic_load(&order->n_contexts); number && !id; number--) {
        struct vpmm_context *context = vpmm_context_at(order, number);
        if (!context || context->is_told || !vpmm_context_is_gone(context))
            continue;
        context->is_told = true;
        vpmm_atomic_sub(&order->n_untold, 1);
        id = number;
    }
    vpmm_lock_give(&order->lock);
    return id;
}

struct vpmm_departure vpmm_order_context_leaving(struct vpmm_order *order,
                                                 vpmm_context_handle handle, bool is_ending)
{
    vpmm_lock_take(&order->lock);
    struct vpmm_context *context = vpmm_context_find(order, handle);
    if (context) {
        vpmm_atomic_add(&context->n_leaving, 1);
        if (is_ending) {
            vpmm_atomic_add(&context->n_ending, 1);
            vpmm_atomic_add(&context->n_marking, VPMM_MARKS_END);
        }
        vpmm_atomic_add(&order->epoch, 1);
        while (is_in_use(context, is_ending))
            vpmm_condition_wait(&order->calmed, &order->lock);
    }
    vpmm_lock_give(&order->lock);
    return (struct vpmm_departure){context, is_ending};
}

void vpmm_order_context_left(struct vpmm_order *order, const struct vpmm_departure *departure,
                             bool destroyed)
{
    struct vpmm_context *context = departure->context;
    if (!context)
        return;
    vpmm_lock_take(&order->lock);
    /* Gone before it is not leaving any more: those who look without the lock see either. */
    if (destroyed)
        vpmm_context_bury(order, context);
    vpmm_atomic_sub(&context->n_leaving, 1);
    if (departure->is_ending) {
        vpmm_atomic_sub(&context->n_ending, 1);
        vpmm_atomic_sub(&context->n_marking, VPMM_MARKS_END);
    }
    vpmm_condition_broadcast(&order->calmed);
    vpmm_lock_give(&order->lock);
}
