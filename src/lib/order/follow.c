/* SPDX-License-Identifier: MIT */
/* The order that the program makes with its own events: which stream comes after which frees of
 * which other. All of it may be forgotten at any time; nothing that the program did not order may
 * be learnt. Must not call the driver, but to tell which stream a handle means. */
#include "order/order_internal.h"

/* ---- points ---- */

/* Every free of the stream, whatever its turn. */
#define ALL_TURNS UINT64_MAX

static void add_point(struct vpmm_track *track, struct vpmm_point point)
{
    uint32_t n = vpmm_atomic_load(&track->n_points);
    uint32_t i = 0;
    while (i < n && track->points[i].stream_id != point.stream_id)
        i++;
    if (i < n) {
        if (track->points[i].turn < point.turn)
            track->points[i].turn = point.turn;
        return;
    }
    if (n < VPMM_POINTS_MAX)
        vpmm_atomic_store(&track->n_points, n + 1);
    else
        i = track->next_point++ % VPMM_POINTS_MAX;
    track->points[i] = point;
}

/* The track may be another stream's already: then there is nothing to copy. */
static uint32_t copy_points(struct vpmm_track *track, uint64_t stream_id,
                            struct vpmm_point *points_out)
{
    if (!vpmm_atomic_load(&track->n_points))
        return 0;
    vpmm_latch_take(&track->latch, VPMM_RANK_TRACK);
    uint32_t n =
        vpmm_atomic_load(&track->stream_id) == stream_id ? vpmm_atomic_load(&track->n_points) : 0;
    for (uint32_t i = 0; i < n; i++)
        points_out[i] = track->points[i];
    vpmm_latch_give(&track->latch, VPMM_RANK_TRACK);
    return n;
}

/* ---- events ---- */

/* An event that is recorded in a capture belongs to the graph. */
static bool may_learn(const struct vpmm_order *order)
{
    return !vpmm_atomic_load(&order->is_blind) && !vpmm_atomic_load(&order->n_captures) &&
           !vpmm_atomic_load(&order->n_closing);
}

bool vpmm_order_learns(const struct vpmm_order *order)
{
    return vpmm_atomic_load(&order->snapshots) != NULL || vpmm_order_has_pending(order);
}

bool vpmm_order_has_pending(const struct vpmm_order *order)
{
    return vpmm_atomic_load(&order->n_fences) || vpmm_atomic_load(&order->n_open);
}

void vpmm_order_blind(struct vpmm_order *order)
{
    vpmm_atomic_store(&order->is_blind, 1);
}

/* The turn ends before the driver records the event: a free that another thread makes meanwhile
 * belongs to the next one, and nobody takes it for covered. A track is not kept from going away: to
 * end a turn of another stream does no harm, and what is read then is told from the id. */
static void add_own(struct vpmm_order *order, vpmm_stream_handle handle,
                    struct vpmm_event_points *points)
{
    struct vpmm_stream room;
    const struct vpmm_stream *stream = vpmm_stream_ask(order, handle, &room);
    struct vpmm_track *track =
        stream && !stream->is_capturing ? vpmm_track_peek(order, stream->id) : NULL;
    if (!track)
        return;
    uint64_t turn = vpmm_track_end_turn(track);
    bool has_freed = turn >= vpmm_atomic_load(&track->first_turn);
    if (vpmm_atomic_load(&track->stream_id) != stream->id)
        return;
    if (has_freed)
        points->points[points->n++] = (struct vpmm_point){stream->id, turn};
    points->n += copy_points(track, stream->id, &points->points[points->n]);
}

void vpmm_order_event_recording(struct vpmm_order *order, vpmm_event_handle event,
                                vpmm_stream_handle handle, struct vpmm_event_points *points_out)
{
    vpmm_snapshots_make(order);
    vpmm_snapshot_begin(order, event, points_out);
    if (points_out->version && handle && vpmm_order_has_pending(order) && may_learn(order))
        add_own(order, handle, points_out);
}

void vpmm_order_event_recorded(struct vpmm_order *order, vpmm_event_handle event,
                               struct vpmm_event_points *points, bool is_recorded)
{
    if (!is_recorded || !may_learn(order))
        points->n = 0;
    if (points->version)
        vpmm_snapshot_end(order, event, points);
}

void vpmm_order_event_gone(struct vpmm_order *order, vpmm_event_handle event)
{
    struct vpmm_event_points points;
    vpmm_snapshot_begin(order, event, &points);
    if (points.version)
        vpmm_snapshot_end(order, event, &points);
}

void vpmm_order_event_waiting(struct vpmm_order *order, vpmm_event_handle event,
                              struct vpmm_event_points *points_out)
{
    points_out->n = 0;
    if (vpmm_order_has_pending(order) && may_learn(order))
        vpmm_snapshot_look(order, event, points_out);
}

void vpmm_order_event_waited(struct vpmm_order *order, vpmm_event_handle event,
                             vpmm_stream_handle handle, const struct vpmm_event_points *points)
{
    struct vpmm_stream room;
    if (!points->n || !may_learn(order) || !vpmm_snapshot_is(order, event, points->version))
        return;
    const struct vpmm_stream *stream = vpmm_stream_ask(order, handle, &room);
    if (!stream || stream->is_capturing)
        return;
    struct vpmm_track *track = vpmm_track_peek(order, stream->id);
    if (!track)
        track = vpmm_track_add(order, stream);
    if (!track)
        return;
    vpmm_latch_take(&track->latch, VPMM_RANK_TRACK);
    bool is_own = vpmm_atomic_load(&track->stream_id) == stream->id;
    for (uint32_t i = 0; is_own && i < points->n; i++)
        if (points->points[i].stream_id != stream->id)
            add_point(track, points->points[i]);
    vpmm_latch_give(&track->latch, VPMM_RANK_TRACK);
}

/* ---- frees ---- */

struct vpmm_track *vpmm_order_track(struct vpmm_order *order, const struct vpmm_stream *stream)
{
    if (stream->is_legacy)
        vpmm_atomic_store(&stream->context->legacy_id, stream->id);
    return vpmm_track_use(order, stream);
}

/* Before the free is told to anybody: who records an event from now on ends this turn or a later
 * one. */
uint64_t vpmm_order_turn(struct vpmm_track *track)
{
    if (!track)
        return 0;
    uint64_t turn = vpmm_atomic_load(&track->turn);
    if (!vpmm_atomic_load(&track->has_frees))
        vpmm_atomic_store(&track->has_frees, 1);
    return turn;
}

void vpmm_order_joined(struct vpmm_order *order, vpmm_fence fence, uint64_t turn)
{
    struct vpmm_slot *slot = vpmm_slot_of(order, fence);
    if (slot && vpmm_atomic_load(&slot->turn) != turn)
        vpmm_atomic_store(&slot->turn, turn);
}

vpmm_fence vpmm_order_of_turn(struct vpmm_order *order, vpmm_fence fence, uint64_t turn)
{
    struct vpmm_slot_view view;
    if (!turn || !vpmm_slot_look(order, fence, &view) || view.turn == turn || !view.stream_id)
        return fence;
    vpmm_lock_take(&order->lock);
    uint32_t number = vpmm_slot_of(order, fence) ? vpmm_slot_take(order, VPMM_FENCE_IS_JOINED,
                                                                  VPMM_WAIT_NEVER, view.context)
                                                 : 0;
    struct vpmm_slot *slot = vpmm_slot_at(order, number);
    if (slot) {
        vpmm_atomic_store(&slot->stream_id, view.stream_id);
        vpmm_atomic_store(&slot->turn, turn);
        vpmm_atomic_store(&slot->part, fence);
        vpmm_atomic_add(&order->n_fences, 1);
        vpmm_joined_add(order, number);
        fence = vpmm_atomic_load(&slot->number);
    }
    vpmm_lock_give(&order->lock);
    return fence;
}

/* ---- requests ---- */

void vpmm_order_follower(struct vpmm_order *order, const struct vpmm_stream *stream,
                         struct vpmm_follower *follower_out)
{
    follower_out->stream_id = stream->id;
    follower_out->n_points = 0;
    struct vpmm_track *track =
        vpmm_atomic_load(&order->n_tracks) ? vpmm_track_peek(order, stream->id) : NULL;
    if (track)
        follower_out->n_points = copy_points(track, stream->id, follower_out->points);
    /* The reverse does not hold: what is allocated on the legacy stream may be used on a blocking
     * one without any work between them that would come after the frees of a third. */
    uint64_t legacy_id = stream->is_blocking ? vpmm_atomic_load(&stream->context->legacy_id) : 0;
    if (legacy_id && follower_out->n_points < VPMM_FOLLOWED_MAX)
        follower_out->points[follower_out->n_points++] = (struct vpmm_point){legacy_id, ALL_TURNS};
}

static bool comes_after(const struct vpmm_follower *follower, const struct vpmm_slot_view *part)
{
    if (!part->stream_id)
        return false;
    if (part->stream_id == follower->stream_id)
        return true;
    for (uint32_t i = 0; i < follower->n_points; i++) {
        const struct vpmm_point *point = &follower->points[i];
        if (point->stream_id == part->stream_id &&
            (point->turn == ALL_TURNS || (part->turn && part->turn <= point->turn)))
            return true;
    }
    return false;
}

enum vpmm_verdict vpmm_order_ask_for(const struct vpmm_order *order, vpmm_fence fence,
                                     const struct vpmm_follower *follower)
{
    enum vpmm_verdict verdict = VPMM_VERDICT_COMPLETE;
    struct vpmm_slot_view view;
    vpmm_fence part;
    while (vpmm_part_next(order, &fence, &part, &view)) {
        if (!follower->stream_id || !comes_after(follower, &view))
            return VPMM_VERDICT_PENDING;
        verdict = VPMM_VERDICT_ORDERED;
    }
    return verdict;
}

bool vpmm_order_follows(struct vpmm_order *order, vpmm_fence fence,
                        const struct vpmm_stream *stream)
{
    struct vpmm_follower follower;
    if (vpmm_order_ask(order, fence, stream->id) != VPMM_VERDICT_PENDING)
        return true;
    vpmm_order_follower(order, stream, &follower);
    return vpmm_order_ask_for(order, fence, &follower) != VPMM_VERDICT_PENDING;
}
