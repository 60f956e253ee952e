/* SPDX-License-Identifier: MIT */
/* Tracks: what is remembered of each stream that frees, waits for an event or has a mark. A track
 * may be dropped at any time that its mark allows: the order it knew is then forgotten, and never
 * invented. Must not call the driver but for the event of a mark. */
#include "order/order_internal.h"

#include <assert.h>

/* So many tracks more than the last time may exist before those that can go are looked for. */
#define TRACKS_KEPT 64u

static vpmm_atomic32 *bucket_of(struct vpmm_order *order, uint64_t stream_id)
{
    uint64_t mixed = stream_id * UINT64_C(0x9e3779b97f4a7c15);
    return &order->track_buckets[mixed >> 32 & (VPMM_ORDER_BUCKETS - 1)];
}

static struct vpmm_track *at(const struct vpmm_order *order, uint32_t number)
{
    return vpmm_table_at(&order->tracks, number);
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

/* One that is in use stays, and so does, unless `also_pending`, one with a mark that nobody has
 * seen complete. */
static bool take_away(struct vpmm_order *order, uint32_t number, bool also_pending)
{
    struct vpmm_track *track = at(order, number);
    uint32_t none = 0;
    if (!vpmm_atomic_swap_if(&track->n_users, &none, VPMM_MARKS_END))
        return false;
    if (!also_pending && vpmm_atomic_load(&track->n_over) != vpmm_atomic_load(&track->n_records)) {
        vpmm_atomic_sub(&track->n_users, VPMM_MARKS_END);
        return false;
    }
    vpmm_atomic32 *link = bucket_of(order, vpmm_atomic_load(&track->stream_id));
    while (vpmm_atomic_load(link) != number)
        link = &at(order, vpmm_atomic_load(link))->next;
    vpmm_atomic_store(link, vpmm_atomic_load(&track->next));
    vpmm_atomic_store(&track->stream_id, 0);
    if (vpmm_atomic_load(&track->event)) {
        vpmm_event_give(order, vpmm_atomic_load(&track->event));
        vpmm_atomic_sub(&order->n_marked, 1);
    }
    if (order->first_turn <= vpmm_atomic_load(&track->turn))
        order->first_turn = vpmm_atomic_load(&track->turn) + 1;
    vpmm_table_give(&order->tracks, number);
    vpmm_atomic_sub(&order->n_tracks, 1);
    return true;
}

void vpmm_track_forget(struct vpmm_order *order, uint64_t stream_id)
{
    uint32_t number = find(order, stream_id);
    if (number)
        (void)take_away(order, number, true);
}

void vpmm_tracks_forget(struct vpmm_order *order, const struct vpmm_context *context)
{
    if (!vpmm_atomic_load(&order->n_tracks))
        return;
    for (uint32_t number = 0; vpmm_track_next(order, context, &number);)
        (void)take_away(order, number, true);
}

static bool is_gone(const struct vpmm_order *order, const struct vpmm_track *track)
{
    return vpmm_atomic_load(&vpmm_context_at(order, track->context)->gone) != 0;
}

/* Streams of threads that have ended leave their tracks behind (driver). */
static void sweep(struct vpmm_order *order)
{
    const struct vpmm_driver *driver = order->driver;
    int mode;
    if (vpmm_atomic_load(&order->n_tracks) < vpmm_atomic_load(&order->n_tracks_swept) ||
        driver->capture_relax(driver->self, &mode))
        return;
    vpmm_lock_take(&order->lock);
    vpmm_atomic_store(&order->n_tracks_swept, UINT32_MAX);
    for (uint32_t number = 1; number < vpmm_table_end(&order->tracks); number++) {
        uint64_t stream_id = vpmm_atomic_load(&at(order, number)->stream_id);
        if (!stream_id)
            continue;
        (void)vpmm_mark_observe(order, stream_id, false);
        struct vpmm_track *track = at(order, number);
        /* One that was in use when its context ended is still here. */
        if (vpmm_atomic_load(&track->stream_id) == stream_id)
            (void)take_away(order, number, is_gone(order, track));
    }
    vpmm_atomic_store(&order->n_tracks_swept, 2 * vpmm_atomic_load(&order->n_tracks) + TRACKS_KEPT);
    vpmm_lock_give(&order->lock);
    driver->capture_restore(driver->self, mode);
}

/* ---- using ---- */

/* With the lock. */
static void add(struct vpmm_order *order, const struct vpmm_stream *stream)
{
    uint32_t number = vpmm_table_take(&order->tracks);
    struct vpmm_track *track = at(order, number);
    if (!track)
        return;
    vpmm_atomic32 *bucket = bucket_of(order, stream->id);
    vpmm_atomic_store(&track->event, 0);
    vpmm_atomic_store(&track->is_held, 0);
    vpmm_atomic_store(&track->n_records, 0);
    vpmm_atomic_store(&track->n_over, 0);
    vpmm_atomic_store(&track->returned_bytes, 0);
    vpmm_atomic_store(&track->turn, order->first_turn);
    vpmm_atomic_store(&track->has_frees, 0);
    vpmm_atomic_store(&track->completed_turn, 0);
    vpmm_atomic_store(&track->next, vpmm_atomic_load(bucket));
    vpmm_atomic_store(&track->first_turn, order->first_turn);
    track->context = stream->context->number;
    vpmm_latch_take(&track->latch, VPMM_RANK_TRACK);
    vpmm_atomic_store(&track->n_points, 0);
    track->next_point = 0;
    vpmm_latch_give(&track->latch, VPMM_RANK_TRACK);
    vpmm_atomic_store(&track->stream_id, stream->id);
    if (vpmm_atomic_load(&track->n_users) >= VPMM_MARKS_END)
        vpmm_atomic_sub(&track->n_users, VPMM_MARKS_END);
    vpmm_atomic_store(bucket, number);
    vpmm_atomic_add(&order->n_tracks, 1);
}

/* Kept until vpmm_order_track_end. */
static struct vpmm_track *keep(struct vpmm_order *order, uint64_t stream_id)
{
    struct vpmm_track *track = at(order, find(order, stream_id));
    if (!track)
        return NULL;
    if (vpmm_atomic_add(&track->n_users, 1) < VPMM_MARKS_END &&
        vpmm_atomic_load(&track->stream_id) == stream_id)
        return track;
    vpmm_order_track_end(track);
    return NULL;
}

struct vpmm_track *vpmm_track_peek(struct vpmm_order *order, uint64_t stream_id)
{
    return at(order, find(order, stream_id));
}

struct vpmm_track *vpmm_track_add(struct vpmm_order *order, const struct vpmm_stream *stream)
{
    sweep(order);
    vpmm_lock_take(&order->lock);
    if (!find(order, stream->id) && !vpmm_atomic_load(&stream->context->gone))
        add(order, stream);
    vpmm_lock_give(&order->lock);
    return vpmm_track_peek(order, stream->id);
}

struct vpmm_track *vpmm_track_use(struct vpmm_order *order, const struct vpmm_stream *stream)
{
    struct vpmm_track *track = keep(order, stream->id);
    return track || !vpmm_track_add(order, stream) ? track : keep(order, stream->id);
}

uint64_t vpmm_track_end_turn(struct vpmm_track *track)
{
    uint64_t turn = vpmm_atomic_load(&track->turn) - 1;
    if (vpmm_atomic_load(&track->has_frees) && vpmm_atomic_exchange(&track->has_frees, 0))
        turn = vpmm_atomic_add(&track->turn, 1);
    return turn;
}

struct vpmm_track *vpmm_track_next(struct vpmm_order *order, const struct vpmm_context *context,
                                   uint32_t *number)
{
    while (++*number < vpmm_table_end(&order->tracks)) {
        struct vpmm_track *track = at(order, *number);
        if (vpmm_atomic_load(&track->stream_id) && track->context == context->number)
            return track;
    }
    return NULL;
}

void vpmm_order_track_end(struct vpmm_track *track)
{
    if (track)
        vpmm_atomic_sub(&track->n_users, 1);
}
