/* SPDX-License-Identifier: MIT */
/* Marks: what an allocation or a free of ours leaves behind so that the program sees the order
 * which bare CUDA gives there (docs/DESIGN.md, section 3, "Marks"). Must not make a stream wait for
 * anything, and touches no fence. */
#include "order/internal.h"

#include <assert.h>

/* So many marks may be over before anybody looks for them. */
#define MARKS_KEPT 64u

static vpmm_atomic32 *bucket_of(struct vpmm_order *order, uint64_t stream_id)
{
    uint64_t mixed = stream_id * UINT64_C(0x9e3779b97f4a7c15);
    return &order->mark_buckets[mixed >> 32 & (VPMM_ORDER_BUCKETS - 1)];
}

static struct vpmm_mark *at(const struct vpmm_order *order, uint32_t number)
{
    return vpmm_table_at(&order->marks, number);
}

/* 0: the stream has none, or, without the lock, it was not found beside a change. */
static uint32_t find(struct vpmm_order *order, uint64_t stream_id)
{
    uint32_t number = vpmm_atomic_load(bucket_of(order, stream_id));
    uint32_t n_steps = 0;
    while (number && vpmm_atomic_load(&at(order, number)->stream_id) != stream_id)
        number = ++n_steps < VPMM_ORDER_BUCKETS ? vpmm_atomic_load(&at(order, number)->next) : 0;
    return number;
}

/* ---- taking away; with the lock ---- */

/* One that is being recorded stays. */
static bool take_away(struct vpmm_order *order, uint32_t number)
{
    struct vpmm_mark *mark = at(order, number);
    uint32_t none = 0;
    if (!vpmm_atomic_swap_if(&mark->n_users, &none, VPMM_MARKS_END))
        return false;
    vpmm_atomic32 *link = bucket_of(order, vpmm_atomic_load(&mark->stream_id));
    while (vpmm_atomic_load(link) != number)
        link = &at(order, vpmm_atomic_load(link))->next;
    vpmm_atomic_store(link, vpmm_atomic_load(&mark->next));
    vpmm_atomic_store(&mark->stream_id, 0);
    vpmm_event_give(order, vpmm_atomic_load(&mark->event));
    vpmm_table_give(&order->marks, number);
    vpmm_atomic_sub(&order->n_marks, 1);
    return true;
}

void vpmm_mark_forget(struct vpmm_order *order, uint64_t stream_id)
{
    uint32_t number = find(order, stream_id);
    if (number)
        (void)take_away(order, number);
}

static uint32_t numbers_end(const struct vpmm_order *order)
{
    return order->marks.n_chunks * VPMM_TABLE_CHUNK_RECORDS;
}

void vpmm_marks_forget(struct vpmm_order *order, const struct vpmm_context *context)
{
    if (!vpmm_atomic_load(&order->n_marks))
        return;
    for (uint32_t number = 1; number < numbers_end(order); number++) {
        const struct vpmm_mark *mark = at(order, number);
        if (vpmm_atomic_load(&mark->stream_id) && mark->context == context->number)
            (void)take_away(order, number);
    }
}

/* ---- asking ---- */

/* Asks about the stream's mark; with the lock, which it gives up meanwhile. */
static enum vpmm_status observe(struct vpmm_order *order, uint64_t stream_id,
                                enum vpmm_status (*operation)(void *, vpmm_event_handle))
{
    struct vpmm_mark *mark = at(order, find(order, stream_id));
    if (!mark)
        return VPMM_OK;
    uint64_t n_records = vpmm_atomic_load(&mark->n_records);
    struct vpmm_context *context = vpmm_context_at(order, mark->context);
    if (vpmm_atomic_load(&mark->n_over) == n_records || vpmm_atomic_load(&context->n_ending))
        return VPMM_OK;
    uint32_t event = vpmm_atomic_load(&mark->event);
    bool waits = operation == order->driver->event_synchronize;
    vpmm_event_handle handle = vpmm_event_pin(order, event);
    context->n_waiting += waits;
    vpmm_lock_give(&order->lock);
    assert(vpmm_lock_none_held());
    enum vpmm_status status = operation(order->driver->self, handle);
    vpmm_lock_take(&order->lock);
    context->n_waiting -= waits;
    vpmm_event_unpin(order, event);
    if (!status && vpmm_atomic_load(&mark->stream_id) == stream_id)
        vpmm_atomic_store(&mark->n_over, n_records);
    return status;
}

/* Streams of threads that have ended leave their marks behind: those that are over go where there
 * are twice as many as the last time (driver). */
static void sweep(struct vpmm_order *order)
{
    const struct vpmm_driver *driver = order->driver;
    int mode;
    if (vpmm_atomic_load(&order->n_marks) < vpmm_atomic_load(&order->n_marks_swept) ||
        driver->capture_relax(driver->self, &mode))
        return;
    vpmm_lock_take(&order->lock);
    vpmm_atomic_store(&order->n_marks_swept, UINT32_MAX);
    for (uint32_t number = 1; number < numbers_end(order); number++) {
        uint64_t stream_id = vpmm_atomic_load(&at(order, number)->stream_id);
        if (stream_id && !observe(order, stream_id, driver->event_query))
            vpmm_mark_forget(order, stream_id);
    }
    vpmm_atomic_store(&order->n_marks_swept, 2 * vpmm_atomic_load(&order->n_marks) + MARKS_KEPT);
    vpmm_lock_give(&order->lock);
    driver->capture_restore(driver->self, mode);
}

/* ---- making ---- */

static enum vpmm_status add(struct vpmm_order *order, const struct vpmm_stream *stream,
                            uint32_t event)
{
    uint32_t number = vpmm_table_take(&order->marks);
    struct vpmm_mark *mark = at(order, number);
    if (!mark)
        return VPMM_NO_METADATA;
    vpmm_atomic32 *bucket = bucket_of(order, stream->id);
    vpmm_atomic_store(&mark->event, event);
    vpmm_atomic_store(&mark->n_records, 0);
    vpmm_atomic_store(&mark->n_over, 0);
    vpmm_atomic_store(&mark->next, vpmm_atomic_load(bucket));
    mark->context = stream->context->number;
    vpmm_atomic_store(&mark->stream_id, stream->id);
    if (vpmm_atomic_load(&mark->n_users) >= VPMM_MARKS_END)
        vpmm_atomic_sub(&mark->n_users, VPMM_MARKS_END);
    vpmm_atomic_store(bucket, number);
    vpmm_atomic_add(&order->n_marks, 1);
    return VPMM_OK;
}

/* Gives the stream a mark (driver). */
static enum vpmm_status make(struct vpmm_order *order, const struct vpmm_stream *stream)
{
    enum vpmm_status status = VPMM_OK;
    sweep(order);
    vpmm_lock_take(&order->lock);
    uint32_t event = vpmm_event_take(order, stream->context);
    vpmm_lock_give(&order->lock);
    if (!event)
        status = vpmm_event_make(order, stream->context, &event);
    if (status)
        return status;
    vpmm_lock_take(&order->lock);
    bool has_one = find(order, stream->id) != 0;
    if (!has_one)
        status = add(order, stream, event);
    if (has_one || status)
        vpmm_event_give(order, event);
    vpmm_lock_give(&order->lock);
    return status;
}

/* ---- recording ---- */

/* All threads may record the event, and without the lock; the context does not end meanwhile. */
static enum vpmm_status record(struct vpmm_order *order, const struct vpmm_stream *stream,
                               uint32_t event)
{
    const struct vpmm_driver *driver = order->driver;
    struct vpmm_context *context = stream->context;
    enum vpmm_status status = VPMM_NOT_READY;
    assert(vpmm_lock_none_held());
    if (vpmm_context_mark_begin(context)) {
        status =
            driver->event_record(driver->self, vpmm_event_at(order, event)->handle, stream->handle);
        vpmm_atomic_add(&order->n_records, status == VPMM_OK);
    }
    bool is_lost = vpmm_context_is_lost(order, context, status);
    vpmm_context_mark_end(order, context);
    if (is_lost) {
        vpmm_lock_take(&order->lock);
        vpmm_context_bury(order, context);
        vpmm_lock_give(&order->lock);
    }
    return status;
}

/* NOT_FOUND: the stream has no mark that can be recorded. */
static enum vpmm_status record_own(struct vpmm_order *order, const struct vpmm_stream *stream)
{
    struct vpmm_mark *mark = at(order, find(order, stream->id));
    if (!mark)
        return VPMM_NOT_FOUND;
    bool may_use = vpmm_atomic_add(&mark->n_users, 1) < VPMM_MARKS_END &&
                   vpmm_atomic_load(&mark->stream_id) == stream->id;
    enum vpmm_status status = VPMM_NOT_FOUND;
    if (may_use)
        status = record(order, stream, vpmm_atomic_load(&mark->event));
    /* Counted when it is made: whoever saw the event complete before does not take it for over. */
    if (!status)
        vpmm_atomic_add(&mark->n_records, 1);
    vpmm_atomic_sub(&mark->n_users, 1);
    return status;
}

static enum vpmm_status mark_blocking(struct vpmm_order *order, const struct vpmm_stream *stream)
{
    enum vpmm_status status = record_own(order, stream);
    if (status != VPMM_NOT_FOUND)
        return status;
    status = make(order, stream);
    return status ? status : record_own(order, stream);
}

static enum vpmm_status mark_legacy(struct vpmm_order *order, const struct vpmm_stream *stream)
{
    uint32_t event = vpmm_atomic_load(&stream->context->mark);
    return event ? record(order, stream, event) : vpmm_record_mark(order, stream);
}

enum vpmm_status vpmm_order_mark(struct vpmm_order *order, const struct vpmm_stream *stream)
{
    if (stream->is_legacy)
        return vpmm_record_verdict(mark_legacy(order, stream));
    if (stream->is_blocking && !stream->is_capturing)
        return vpmm_record_verdict(mark_blocking(order, stream));
    return VPMM_OK;
}

bool vpmm_order_has_marks(const struct vpmm_order *order)
{
    return vpmm_atomic_load(&order->n_marks) != 0;
}

enum vpmm_status vpmm_order_mark_state(struct vpmm_order *order, vpmm_stream_handle handle,
                                       bool waits)
{
    const struct vpmm_driver *driver = order->driver;
    struct vpmm_stream stream;
    int mode;
    if (!vpmm_order_has_marks(order) || handle == VPMM_STREAM_LEGACY ||
        vpmm_order_stream(order, handle, &stream) || !stream.is_blocking ||
        driver->capture_relax(driver->self, &mode))
        return VPMM_OK;
    vpmm_lock_take(&order->lock);
    enum vpmm_status status =
        observe(order, stream.id, waits ? driver->event_synchronize : driver->event_query);
    vpmm_lock_give(&order->lock);
    driver->capture_restore(driver->self, mode);
    return status == VPMM_NOT_READY ? VPMM_NOT_READY : VPMM_OK;
}
