/* SPDX-License-Identifier: MIT */
/* Marks: what an allocation or a free of ours leaves behind so that the program sees the order
 * which bare CUDA gives there (docs/DESIGN.md, section 3, "Marks"). Must not make a stream wait for
 * anything, and touches no fence. */
#include "order/order_internal.h"

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
    if (vpmm_context_mark_begin(context))
        status =
            driver->event_record(driver->self, vpmm_event_at(order, event)->handle, stream->handle);
    bool is_lost = vpmm_context_is_lost(order, context, status);
    vpmm_context_mark_end(order, context);
    if (is_lost) {
        vpmm_lock_take(&order->lock);
        vpmm_context_bury(order, context);
        vpmm_lock_give(&order->lock);
    }
    return status;
}

/* Gives the track an event that nobody waits for (driver). */
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
    uint32_t last = vpmm_atomic_load(&track->event);
    if (!last || vpmm_atomic_load(&track->is_held)) {
        vpmm_atomic_add(&order->n_marked, !last);
        vpmm_atomic_store(&track->event, event);
        vpmm_atomic_store(&track->is_held, 0);
        event = 0;
        if (last) {
            vpmm_event_at(order, last)->next = vpmm_atomic_load(&track->spent);
            vpmm_atomic_store(&track->spent, last);
        }
    }
    if (event)
        vpmm_event_give(order, event);
    vpmm_lock_give(&order->lock);
    return VPMM_OK;
}

/* An event that the track gave up is another's only when no thread can record it any more: what
 * that would tell of is this stream's work. Who comes later finds the new one. */
static void end_marking(struct vpmm_order *order, struct vpmm_track *track)
{
    if (vpmm_atomic_sub(&track->n_marking, 1) != 1 || !vpmm_atomic_load(&track->spent))
        return;
    vpmm_lock_take(&order->lock);
    bool is_nobodys = vpmm_atomic_add(&track->n_marking, 0) == 0;
    for (uint32_t event; is_nobodys && (event = vpmm_atomic_load(&track->spent)) != 0;) {
        vpmm_atomic_store(&track->spent, vpmm_event_at(order, event)->next);
        vpmm_event_give(order, event);
    }
    vpmm_lock_give(&order->lock);
}

/* What a stream freed and no synchronisation has told of since, CUDA's pool gives it again without
 * queueing anything (measured: test/programs/renewals.c). */
static void add_returned(struct vpmm_order *order, struct vpmm_track *track, uint64_t bytes)
{
    uint64_t now = vpmm_atomic_load(&order->n_collections);
    if (vpmm_atomic_load(&track->n_collections) != now) {
        vpmm_atomic_store(&track->returned_bytes, 0);
        vpmm_atomic_store(&track->n_collections, now);
    }
    vpmm_atomic_add(&track->returned_bytes, bytes);
}

static bool take_returned(struct vpmm_order *order, struct vpmm_track *track, uint64_t bytes)
{
    uint64_t left = vpmm_atomic_load(&track->returned_bytes);
    if (vpmm_atomic_load(&track->n_collections) != vpmm_atomic_load(&order->n_collections))
        return false;
    while (left >= bytes)
        if (vpmm_atomic_swap_if(&track->returned_bytes, &left, left - bytes))
            return true;
    return false;
}

/* `taken_bytes`: of memory that waits for nothing but the stream itself. */
static enum vpmm_status mark_blocking(struct vpmm_order *order, const struct vpmm_stream *stream,
                                      uint64_t taken_bytes, uint64_t freed_bytes)
{
    struct vpmm_track *track = vpmm_track_use(order, stream);
    enum vpmm_status status = track ? VPMM_OK : VPMM_NO_METADATA;
    if (track && taken_bytes && take_returned(order, track, taken_bytes)) {
        vpmm_order_track_end(track);
        return VPMM_OK;
    }
    if (track && freed_bytes)
        add_returned(order, track, freed_bytes);
    if (track)
        vpmm_atomic_add(&track->n_marking, 1);
    if (track && (!vpmm_atomic_load(&track->event) || vpmm_atomic_load(&track->is_held)))
        status = equip(order, stream, track);
    if (!status)
        status = record(order, stream, vpmm_atomic_load(&track->event));
    /* Counted when it is made: whoever saw the event complete before does not take it for over. */
    if (!status)
        vpmm_atomic_add(&track->n_records, 1);
    if (track)
        end_marking(order, track);
    vpmm_order_track_end(track);
    return status;
}

static enum vpmm_status mark_legacy(struct vpmm_order *order, const struct vpmm_stream *stream)
{
    uint32_t event = vpmm_atomic_load(&stream->context->mark);
    return event ? record(order, stream, event) : vpmm_record_mark(order, stream);
}

void vpmm_order_watch_streams(struct vpmm_order *order, const vpmm_atomic32 *has_blocking)
{
    order->has_blocking = has_blocking;
}

bool vpmm_order_marks_free(const struct vpmm_order *order, const struct vpmm_stream *stream)
{
    if (!stream->is_legacy)
        return stream->is_blocking && !stream->is_capturing;
    return !order->has_blocking || vpmm_atomic_load(order->has_blocking);
}

enum vpmm_status vpmm_order_mark_free(struct vpmm_order *order, const struct vpmm_stream *stream,
                                      uint64_t bytes)
{
    if (!vpmm_order_marks_free(order, stream))
        return VPMM_OK;
    return vpmm_record_verdict(stream->is_legacy ? mark_legacy(order, stream)
                                                 : mark_blocking(order, stream, 0, bytes));
}

void vpmm_order_mark_malloc(struct vpmm_order *order, const struct vpmm_stream *stream,
                            uint64_t bytes, bool is_own)
{
    if (stream->is_blocking && !stream->is_capturing)
        (void)mark_blocking(order, stream, is_own ? bytes : 0, 0);
}

void vpmm_order_collect(struct vpmm_order *order)
{
    vpmm_atomic_add(&order->n_collections, 1);
}

/* ---- asking ---- */

bool vpmm_order_has_marks(const struct vpmm_order *order)
{
    return vpmm_atomic_load(&order->n_marked) != 0;
}

/* The track with a mark that nobody has seen complete, or NULL. `is_used`: the program itself is in
 * a call on the stream, so a reference to its context that another thread gives up is not the last
 * one. */
static struct vpmm_track *pending_track(struct vpmm_order *order, uint64_t stream_id, bool is_used)
{
    struct vpmm_track *track = vpmm_track_peek(order, stream_id);
    if (!track || !vpmm_atomic_load(&track->event) ||
        vpmm_atomic_load(&track->n_over) == vpmm_atomic_load(&track->n_records))
        return NULL;
    const struct vpmm_context *context = vpmm_context_at(order, track->context);
    if (vpmm_atomic_load(&context->gone) ||
        vpmm_atomic_load(is_used ? &context->n_ending : &context->n_leaving))
        return NULL;
    return track;
}

static void note_over(struct vpmm_order *order, uint64_t stream_id, uint64_t n_records)
{
    struct vpmm_track *track = vpmm_track_peek(order, stream_id);
    if (track && vpmm_atomic_load(&track->n_over) < n_records)
        vpmm_atomic_store(&track->n_over, n_records);
}

enum vpmm_status vpmm_mark_observe(struct vpmm_order *order, uint64_t stream_id, bool is_used)
{
    const struct vpmm_driver *driver = order->driver;
    const struct vpmm_track *track = pending_track(order, stream_id, is_used);
    if (!track)
        return VPMM_OK;
    uint64_t n_records = vpmm_atomic_load(&track->n_records);
    uint32_t event = vpmm_atomic_load(&track->event);
    vpmm_event_handle handle = vpmm_event_pin(order, event);
    vpmm_lock_give(&order->lock);
    assert(vpmm_lock_none_held());
    enum vpmm_status status = driver->event_query(driver->self, handle);
    vpmm_lock_take(&order->lock);
    vpmm_event_unpin(order, event);
    if (!status)
        note_over(order, stream_id, n_records);
    return status;
}

/* False: no stream that may have a mark. */
static bool find_stream(struct vpmm_order *order, vpmm_stream_handle handle,
                        struct vpmm_stream *stream_out)
{
    return vpmm_order_has_marks(order) && handle != VPMM_STREAM_LEGACY &&
           !vpmm_order_stream(order, handle, stream_out) && stream_out->is_blocking;
}

enum vpmm_status vpmm_order_mark_query(struct vpmm_order *order, vpmm_stream_handle handle)
{
    const struct vpmm_driver *driver = order->driver;
    struct vpmm_stream stream;
    int mode;
    if (!find_stream(order, handle, &stream) || driver->capture_relax(driver->self, &mode))
        return VPMM_OK;
    vpmm_lock_take(&order->lock);
    enum vpmm_status status = vpmm_mark_observe(order, stream.id, true);
    vpmm_lock_give(&order->lock);
    driver->capture_restore(driver->self, mode);
    return status == VPMM_NOT_READY ? VPMM_NOT_READY : VPMM_OK;
}

bool vpmm_order_mark_hold(struct vpmm_order *order, vpmm_stream_handle handle,
                          struct vpmm_mark_hold *hold_out)
{
    struct vpmm_stream stream;
    if (!find_stream(order, handle, &stream))
        return false;
    vpmm_lock_take(&order->lock);
    struct vpmm_track *track = vpmm_track_peek(order, stream.id);
    if (track)
        vpmm_atomic_store(&track->returned_bytes, 0);
    track = pending_track(order, stream.id, true);
    if (track) {
        uint32_t event = vpmm_atomic_load(&track->event);
        *hold_out = (struct vpmm_mark_hold){.stream_id = stream.id,
                                            .n_records = vpmm_atomic_load(&track->n_records),
                                            .handle = vpmm_event_pin(order, event),
                                            .event = event};
        vpmm_atomic_store(&track->is_held, 1);
        vpmm_context_at(order, track->context)->n_waiting++;
    }
    vpmm_lock_give(&order->lock);
    return track != NULL;
}

void vpmm_order_mark_await(struct vpmm_order *order, const struct vpmm_mark_hold *hold, bool waits)
{
    const struct vpmm_driver *driver = order->driver;
    enum vpmm_status status = VPMM_NOT_READY;
    int mode;
    if (waits && !driver->capture_relax(driver->self, &mode)) {
        status = driver->event_synchronize(driver->self, hold->handle);
        driver->capture_restore(driver->self, mode);
    }
    vpmm_lock_take(&order->lock);
    vpmm_context_at(order, vpmm_event_at(order, hold->event)->context)->n_waiting--;
    vpmm_event_unpin(order, hold->event);
    if (!status)
        note_over(order, hold->stream_id, hold->n_records);
    vpmm_lock_give(&order->lock);
}
