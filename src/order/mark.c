/* SPDX-License-Identifier: MIT */
/* Marks: what an allocation or a free of ours leaves behind so that the program sees the order
 * which bare CUDA gives there (docs/DESIGN.md, section 3, "Marks"). Must not make a stream wait for
 * anything, and touches no fence. */
#include "order/internal.h"

#include <assert.h>

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

/* Gives the track an event (driver). */
static enum vpmm_status equip(struct vpmm_order *order, const struct vpmm_stream *stream,
                              struct vpmm_track *track)
{
    enum vpmm_status status = VPMM_OK;
    vpmm_lock_take(&order->lock);
    uint32_t event = vpmm_event_take(order, stream->context);
    vpmm_lock_give(&order->lock);
    if (!event)
        status = vpmm_event_make(order, stream->context, &event);
    if (status)
        return status;
    vpmm_lock_take(&order->lock);
    if (vpmm_atomic_load(&track->event))
        vpmm_event_give(order, event);
    else
        vpmm_atomic_store(&track->event, event);
    vpmm_lock_give(&order->lock);
    return VPMM_OK;
}

static enum vpmm_status mark_blocking(struct vpmm_order *order, const struct vpmm_stream *stream)
{
    struct vpmm_track *track = vpmm_track_use(order, stream);
    enum vpmm_status status = track ? VPMM_OK : VPMM_NO_METADATA;
    if (track && !vpmm_atomic_load(&track->event))
        status = equip(order, stream, track);
    if (!status)
        status = record(order, stream, vpmm_atomic_load(&track->event));
    /* Counted when it is made: whoever saw the event complete before does not take it for over. */
    if (!status)
        vpmm_atomic_add(&track->n_records, 1);
    vpmm_track_leave(track);
    return status;
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

/* ---- asking ---- */

bool vpmm_order_has_marks(const struct vpmm_order *order)
{
    return vpmm_atomic_load(&order->n_tracks) != 0;
}

enum vpmm_status vpmm_mark_observe(struct vpmm_order *order, uint64_t stream_id,
                                   enum vpmm_status (*operation)(void *, vpmm_event_handle))
{
    struct vpmm_track *track = vpmm_track_find(order, stream_id);
    if (!track || !vpmm_atomic_load(&track->event))
        return VPMM_OK;
    uint64_t n_records = vpmm_atomic_load(&track->n_records);
    struct vpmm_context *context = vpmm_context_at(order, track->context);
    if (vpmm_atomic_load(&track->n_over) == n_records || vpmm_atomic_load(&context->n_ending))
        return VPMM_OK;
    uint32_t event = vpmm_atomic_load(&track->event);
    bool waits = operation == order->driver->event_synchronize;
    vpmm_event_handle handle = vpmm_event_pin(order, event);
    context->n_waiting += waits;
    vpmm_lock_give(&order->lock);
    assert(vpmm_lock_none_held());
    enum vpmm_status status = operation(order->driver->self, handle);
    vpmm_lock_take(&order->lock);
    context->n_waiting -= waits;
    vpmm_event_unpin(order, event);
    if (!status && vpmm_atomic_load(&track->stream_id) == stream_id)
        vpmm_atomic_store(&track->n_over, n_records);
    return status;
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
    enum vpmm_status status = vpmm_mark_observe(
        order, stream.id, waits ? driver->event_synchronize : driver->event_query);
    vpmm_lock_give(&order->lock);
    driver->capture_restore(driver->self, mode);
    return status == VPMM_NOT_READY ? VPMM_NOT_READY : VPMM_OK;
}
