/* SPDX-License-Identifier: MIT */
/* Records events for fences, of a stream or of a whole context. Must not publish a fence before its
 * record has succeeded, because CUDA calls an event complete that was never recorded. */
#include "order/order_internal.h"

#include <assert.h>

/* One record that is being made: a fence in the state *closing*. Nobody else knows it until it has
 * succeeded. */
struct attempt {
    struct vpmm_context *context;
    const struct vpmm_stream *stream; /* NULL: the whole context */
    enum vpmm_wait wait;
    bool is_parked;       /* for the fence parked in the context */
    bool is_mark;         /* for no fence at all */
    vpmm_fence open;      /* the open fence that it is for, or VPMM_FENCE_NONE */
    bool is_beside_begun; /* captures were under way when it began */
    uint32_t event;
    uint32_t n_begins;
    uint64_t begin;
};

/* A capture excludes records of a whole context. One on the legacy stream is refused exactly where
 * the program's own free there is (measured on driver 580), and that is asked first. */
static bool is_gated(const struct attempt *attempt)
{
    return !attempt->stream;
}

/* Whether a capture may take the event along: the legacy stream is never captured. */
static bool can_be_captured(const struct attempt *attempt)
{
    return attempt->stream && !attempt->stream->is_legacy;
}

/* The driver may be asked about this context now. `is_used`: the program itself is in a call that
 * needs the context, so a reference to it that another thread gives up is not the last one; and
 * what the call does to the order of streams must not be left out. */
static enum vpmm_status check_alive(const struct vpmm_context *context, bool is_used)
{
    if (vpmm_atomic_load(&context->gone))
        return VPMM_CONTEXT_GONE;
    return vpmm_atomic_load(is_used ? &context->n_ending : &context->n_leaving) ? VPMM_NOT_READY
                                                                                : VPMM_OK;
}

static enum vpmm_status check_allowed(const struct vpmm_order *order, const struct attempt *attempt)
{
    enum vpmm_status status = check_alive(attempt->context, attempt->stream != NULL);
    if (status)
        return status;
    if (!attempt->stream && !order->driver->event_record_context)
        return VPMM_NOT_SUPPORTED;
    if (attempt->is_parked && !attempt->context->parked_used)
        return VPMM_NOT_FOUND;
    if (is_gated(attempt) && !vpmm_gate_is_open(order))
        return VPMM_CAPTURED;
    return attempt->stream && attempt->stream->is_capturing ? VPMM_CAPTURED : VPMM_OK;
}

static uint64_t next_moment(struct vpmm_order *order)
{
    return vpmm_atomic_add(&order->sequence, 1) + 1;
}

static enum vpmm_status begin(struct vpmm_order *order, struct attempt *attempt)
{
    struct vpmm_context *context = attempt->context;
    vpmm_lock_take(&order->lock);
    enum vpmm_status status = check_allowed(order, attempt);
    if (!status) {
        context->n_users++;
        order->n_recorders += is_gated(attempt);
        attempt->n_begins = order->n_begins;
        attempt->is_beside_begun = !vpmm_gate_is_open(order);
        attempt->begin = next_moment(order);
        struct vpmm_slot *open = vpmm_slot_of(order, attempt->open);
        if (open && vpmm_atomic_load(&open->kind) == VPMM_FENCE_IS_OPEN)
            vpmm_atomic_store(&open->begin, attempt->begin);
        attempt->event = vpmm_event_take(order, context);
    }
    vpmm_lock_give(&order->lock);
    return status;
}

/* Whether a capture that has ended since it was recorded took the event along. */
static enum vpmm_status check_own(const struct vpmm_driver *driver, vpmm_event_handle event)
{
    int mode;
    enum vpmm_status status = driver->capture_relax(driver->self, &mode);
    if (status)
        return status;
    status = driver->event_query(driver->self, event);
    driver->capture_restore(driver->self, mode);
    return status == VPMM_NOT_READY ? VPMM_OK : status;
}

/* The driver's part, with no lock held. */
static enum vpmm_status make(struct vpmm_order *order, struct attempt *attempt)
{
    const struct vpmm_driver *driver = order->driver;
    struct vpmm_context *context = attempt->context;
    enum vpmm_status status = VPMM_OK;
    assert(vpmm_lock_none_held());
    if (!attempt->event)
        status = vpmm_event_make(order, context, &attempt->event);
    if (status)
        return status;
    /* An owned event does not change, and records do not move. */
    vpmm_event_handle event = vpmm_event_at(order, attempt->event)->handle;
    if (!attempt->stream)
        return driver->event_record_context(driver->self, event, context->handle);
    status = driver->event_record(driver->self, event, attempt->stream->handle);
    if (status || !can_be_captured(attempt))
        return status;
    /* Another thread may have begun a capture on this stream, or drawn it into one: then the event
     * is the graph's. */
    bool is_captured;
    status = driver->stream_captures(driver->self, attempt->stream->handle, &is_captured);
    if (!status && is_captured)
        return VPMM_CAPTURED;
    return !status && attempt->is_beside_begun ? check_own(driver, event) : status;
}

/* The parked fence is recorded, if nobody parked since the record began; the context gets a new
 * one. */
static uint32_t unpark(struct vpmm_order *order, struct vpmm_context *context, uint64_t begin)
{
    uint32_t number = context->parked;
    if (!context->parked_used || vpmm_atomic_load(&vpmm_slot_at(order, number)->begin) > begin)
        return 0;
    uint32_t next = vpmm_slot_take(order, VPMM_FENCE_IS_PARKED, VPMM_WAIT_NEVER, context->number);
    if (!next)
        return 0;
    context->parked = next;
    vpmm_parked_set(order, context, false);
    return number;
}

/* The event is recorded: the fence that was open has it. */
static enum vpmm_status publish_open(struct vpmm_order *order, const struct attempt *attempt)
{
    struct vpmm_slot *slot = vpmm_slot_of(order, attempt->open);
    if (!slot || vpmm_atomic_load(&slot->kind) != VPMM_FENCE_IS_OPEN)
        return VPMM_NOT_FOUND;
    uint32_t number = vpmm_slot_number(attempt->open);
    /* Nobody without the lock may see it counted nowhere. */
    vpmm_atomic_add(&order->n_fences, 1);
    vpmm_open_drop(order, number);
    vpmm_atomic_store(&slot->begin, attempt->begin);
    enum vpmm_status status =
        vpmm_queue_put(order, number, attempt->stream ? attempt->stream->id : 0);
    if (status) {
        vpmm_atomic_store(&slot->begin, UINT64_MAX);
        vpmm_open_add(order, number);
        vpmm_atomic_sub(&order->n_fences, 1);
        return status;
    }
    slot->event = attempt->event;
    vpmm_atomic_store(&slot->wait, (uint32_t)attempt->wait);
    vpmm_atomic_store(&slot->kind,
                      (uint32_t)(attempt->stream ? VPMM_FENCE_IS_STREAM : VPMM_FENCE_IS_CONTEXT));
    return VPMM_OK;
}

static enum vpmm_status publish(struct vpmm_order *order, const struct attempt *attempt,
                                vpmm_fence *fence_out)
{
    struct vpmm_context *context = attempt->context;
    enum vpmm_fence_kind kind = attempt->stream ? VPMM_FENCE_IS_STREAM : VPMM_FENCE_IS_CONTEXT;
    if (attempt->is_mark) {
        if (attempt->stream->is_legacy && !vpmm_atomic_load(&context->mark))
            vpmm_atomic_store(&context->mark, attempt->event);
        else
            vpmm_event_give(order, attempt->event);
        return VPMM_OK;
    }
    if (attempt->open)
        return publish_open(order, attempt);
    uint32_t number = attempt->is_parked
                          ? unpark(order, context, attempt->begin)
                          : vpmm_slot_take(order, kind, attempt->wait, context->number);
    struct vpmm_slot *slot = vpmm_slot_at(order, number);
    if (!slot)
        return VPMM_NO_METADATA;
    uint64_t parked_begin = vpmm_atomic_load(&slot->begin);
    vpmm_atomic_store(&slot->begin, attempt->begin);
    if (attempt->stream)
        vpmm_atomic_store(&slot->stream_id, attempt->stream->id);
    enum vpmm_status status =
        vpmm_queue_put(order, number, attempt->stream ? attempt->stream->id : 0);
    if (status && attempt->is_parked) {
        vpmm_slot_give(order, context->parked);
        vpmm_atomic_store(&slot->begin, parked_begin);
        context->parked = number;
        vpmm_parked_set(order, context, true);
    } else if (status) {
        vpmm_slot_give(order, number);
    } else {
        slot->event = attempt->event;
        if (attempt->wait == VPMM_WAIT_OWN_CALL)
            vpmm_atomic_store(&slot->thread, vpmm_thread_number(order));
        vpmm_atomic_store(&slot->kind, (uint32_t)kind);
        vpmm_atomic_add(&order->n_fences, !attempt->is_parked);
        *fence_out = vpmm_atomic_load(&slot->number);
    }
    return status;
}

static enum vpmm_status finish(struct vpmm_order *order, const struct attempt *attempt,
                               enum vpmm_status status, vpmm_fence *fence_out)
{
    struct vpmm_context *context = attempt->context;
    bool is_lost = vpmm_context_is_lost(order, context, status);
    vpmm_lock_take(&order->lock);
    order->n_recorders -= is_gated(attempt);
    vpmm_context_calm(order, context);
    /* A capture that began since may even have ended since. */
    if (!status && can_be_captured(attempt) && order->n_begins != attempt->n_begins)
        status = VPMM_CAPTURED;
    if (is_lost)
        vpmm_context_bury(order, context);
    if (!status && vpmm_atomic_load(&context->gone))
        status = VPMM_CONTEXT_GONE;
    if (!status)
        status = publish(order, attempt, fence_out);
    if (status && status != VPMM_CAPTURED && attempt->event)
        vpmm_event_give(order, attempt->event);
    vpmm_lock_give(&order->lock);
    if (status == VPMM_CAPTURED && attempt->event)
        vpmm_event_discard(order, attempt->event);
    return status;
}

static enum vpmm_status record(struct vpmm_order *order, struct attempt attempt,
                               vpmm_fence *fence_out)
{
    enum vpmm_status status = begin(order, &attempt);
    if (status)
        return status;
    status = make(order, &attempt);
    return finish(order, &attempt, status, fence_out);
}

vpmm_fence vpmm_park(struct vpmm_order *order, struct vpmm_context *context)
{
    struct vpmm_slot *slot = vpmm_slot_at(order, context->parked);
    vpmm_atomic_store(&slot->begin, next_moment(order));
    vpmm_atomic_add(&order->n_fences, !context->parked_used);
    vpmm_parked_set(order, context, true);
    return vpmm_atomic_load(&slot->number);
}

vpmm_fence vpmm_park_living(struct vpmm_order *order, struct vpmm_context *context)
{
    vpmm_fence fence = VPMM_FENCE_NONE;
    vpmm_lock_take(&order->lock);
    if (!vpmm_atomic_load(&context->gone))
        fence = vpmm_park(order, context);
    vpmm_lock_give(&order->lock);
    return fence;
}

enum vpmm_status vpmm_record_verdict(enum vpmm_status status)
{
    return status == VPMM_BROKEN || status == VPMM_SHUT_DOWN ? status : VPMM_OK;
}

enum vpmm_status vpmm_record_open(struct vpmm_order *order, struct vpmm_context *context,
                                  const struct vpmm_stream *stream, enum vpmm_wait wait,
                                  vpmm_fence fence)
{
    struct attempt attempt = {.context = context, .stream = stream, .wait = wait, .open = fence};
    return record(order, attempt, &fence);
}

enum vpmm_status vpmm_record_mark(struct vpmm_order *order, const struct vpmm_stream *stream)
{
    struct attempt attempt = {.context = stream->context, .stream = stream, .is_mark = true};
    vpmm_fence none;
    return record(order, attempt, &none);
}

vpmm_fence vpmm_order_fence_stream(struct vpmm_order *order, const struct vpmm_stream *stream)
{
    struct vpmm_context *context = stream->context;
    struct attempt attempt = {.context = context, .stream = stream, .wait = VPMM_WAIT_STREAM};
    vpmm_fence fence;
    enum vpmm_status status = record(order, attempt, &fence);
    /* The whole context instead: that covers other streams' work, for which bare cudaFreeAsync
     * would not have waited, so nobody may. Not when the stream captures, because that would end
     * the capture, counted here or not. */
    if (status && status != VPMM_CAPTURED) {
        attempt.stream = NULL;
        attempt.wait = VPMM_WAIT_NEVER;
        status = record(order, attempt, &fence);
    }
    return status ? vpmm_park_living(order, context) : fence;
}

void vpmm_context_completed(struct vpmm_order *order, struct vpmm_context *context, uint64_t moment)
{
    vpmm_queues_complete(order, context->number, moment);
    uint32_t parked = unpark(order, context, moment);
    if (parked)
        vpmm_slot_complete(order, parked);
    vpmm_joined_sweep(order);
}

/* Waits as bare cudaFree does. A capture that begins beside it may be ended. */
static enum vpmm_status synchronize(struct vpmm_order *order, struct vpmm_context *context)
{
    const struct vpmm_driver *driver = order->driver;
    int mode;
    vpmm_lock_take(&order->lock);
    enum vpmm_status status = check_alive(context, true);
    if (!status && !vpmm_gate_is_open(order))
        status = VPMM_CAPTURED;
    uint64_t moment = next_moment(order);
    context->n_users += !status;
    context->n_waiting += !status;
    vpmm_lock_give(&order->lock);
    if (status)
        return status;
    assert(vpmm_lock_none_held());
    status = driver->capture_relax(driver->self, &mode);
    if (!status) {
        status = driver->context_synchronize(driver->self, context->handle);
        driver->capture_restore(driver->self, mode);
    }
    bool is_lost = vpmm_context_is_lost(order, context, status);
    vpmm_lock_take(&order->lock);
    context->n_waiting--;
    vpmm_context_calm(order, context);
    if (is_lost)
        vpmm_context_bury(order, context);
    if (!status && !vpmm_atomic_load(&context->gone))
        vpmm_context_completed(order, context, moment);
    vpmm_lock_give(&order->lock);
    return status;
}

vpmm_fence vpmm_order_fence_context(struct vpmm_order *order, struct vpmm_context *context,
                                    bool bare_waits, enum vpmm_status *status_out)
{
    vpmm_fence fence = VPMM_FENCE_NONE;
    *status_out = VPMM_OK;
    if (order->driver->event_record_context) {
        struct attempt attempt = {.context = context,
                                  .wait = bare_waits ? VPMM_WAIT_OWN_CALL : VPMM_WAIT_NEVER};
        enum vpmm_status recorded = record(order, attempt, &fence);
        *status_out = vpmm_record_verdict(recorded);
        return recorded ? vpmm_park_living(order, context) : fence;
    }
    enum vpmm_status status = synchronize(order, context);
    if (!status)
        return VPMM_FENCE_NONE;
    if (status != VPMM_CAPTURED && status != VPMM_NOT_READY && status != VPMM_CONTEXT_GONE)
        *status_out = status;
    return vpmm_park_living(order, context);
}

/* Whether captures may begin at any time, and there is a wait that ends none. */
static bool must_spare_captures(struct vpmm_order *order)
{
    vpmm_lock_take(&order->lock);
    bool has_seen_one = order->n_begins != 0;
    vpmm_lock_give(&order->lock);
    return has_seen_one && order->driver->event_record_context;
}

enum vpmm_status vpmm_order_drain_context(struct vpmm_order *order, struct vpmm_context *context)
{
    struct attempt attempt = {.context = context, .wait = VPMM_WAIT_OWN_CALL};
    vpmm_fence fence = VPMM_FENCE_NONE;
    bool is_sparing = must_spare_captures(order);
    enum vpmm_status status =
        is_sparing ? record(order, attempt, &fence) : synchronize(order, context);
    if (is_sparing && !status)
        status = vpmm_order_wait_host(order, fence);
    return status == VPMM_CONTEXT_GONE ? VPMM_OK : status;
}

enum vpmm_status vpmm_order_wait_context(struct vpmm_order *order, struct vpmm_context *context)
{
    enum vpmm_status status = vpmm_order_drain_context(order, context);
    return status == VPMM_CAPTURED || status == VPMM_NOT_READY ? VPMM_OK : status;
}

void vpmm_record_parked(struct vpmm_order *order, struct vpmm_context *context)
{
    struct attempt attempt = {.context = context, .wait = VPMM_WAIT_NEVER, .is_parked = true};
    vpmm_fence fence;
    (void)record(order, attempt, &fence);
}
