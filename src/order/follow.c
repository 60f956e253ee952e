/* SPDX-License-Identifier: MIT */
/* The order that the program makes with its own events: which stream comes after which frees of
 * which other. All of it may be forgotten at any time; nothing that the program did not order may
 * be learnt. Must not call the driver, but to tell which stream a handle means. */
#include "order/internal.h"

#define SNAPSHOTS_BYTES (sizeof(struct vpmm_snapshot_set) * VPMM_SNAPSHOT_SETS)

/* ---- snapshots ---- */

static struct vpmm_snapshot_set *set_of(const struct vpmm_order *order, vpmm_event_handle event)
{
    struct vpmm_snapshot_set *sets = vpmm_atomic_load(&order->snapshots);
    uint64_t mixed = (uint64_t)(uintptr_t)event * UINT64_C(0x9e3779b97f4a7c15);
    return sets ? &sets[mixed >> 32 & (VPMM_SNAPSHOT_SETS - 1)] : NULL;
}

static struct vpmm_snapshot *look_up(struct vpmm_snapshot_set *set, vpmm_event_handle event)
{
    for (unsigned i = 0; i < VPMM_SNAPSHOT_WAYS; i++)
        if (set->ways[i].event == event)
            return &set->ways[i];
    return NULL;
}

/* False without memory. */
static bool make_sets(struct vpmm_order *order)
{
    const struct vpmm_memory *memory = order->memory;
    if (vpmm_atomic_load(&order->snapshots))
        return true;
    struct vpmm_snapshot_set *sets = memory->map(memory->self, SNAPSHOTS_BYTES), *none = NULL;
    if (!sets)
        return false;
    if (!vpmm_atomic_swap_if(&order->snapshots, &none, sets))
        memory->unmap(memory->self, sets, SNAPSHOTS_BYTES);
    return true;
}

void vpmm_snapshots_finish(struct vpmm_order *order)
{
    struct vpmm_snapshot_set *sets = vpmm_atomic_load(&order->snapshots);
    if (sets)
        order->memory->unmap(order->memory->self, sets, SNAPSHOTS_BYTES);
}

static void publish(struct vpmm_order *order, vpmm_event_handle event,
                    const struct vpmm_event_points *points)
{
    if (!make_sets(order))
        return;
    struct vpmm_snapshot_set *set = set_of(order, event);
    vpmm_latch_take(&set->latch, VPMM_RANK_TRACK);
    struct vpmm_snapshot *snapshot = look_up(set, event);
    if (!snapshot)
        snapshot = look_up(set, NULL);
    if (!snapshot)
        snapshot = &set->ways[set->next_way++ % VPMM_SNAPSHOT_WAYS];
    snapshot->event = event;
    snapshot->version = ++set->version;
    snapshot->n_points = points->n;
    for (uint32_t i = 0; i < points->n; i++)
        snapshot->points[i] = points->points[i];
    vpmm_latch_give(&set->latch, VPMM_RANK_TRACK);
}

void vpmm_order_event_gone(struct vpmm_order *order, vpmm_event_handle event)
{
    struct vpmm_snapshot_set *set = set_of(order, event);
    if (!set)
        return;
    vpmm_latch_take(&set->latch, VPMM_RANK_TRACK);
    struct vpmm_snapshot *snapshot = look_up(set, event);
    if (snapshot)
        snapshot->event = NULL;
    vpmm_latch_give(&set->latch, VPMM_RANK_TRACK);
}

/* ---- points ---- */

/* Every free of the stream, whatever its turn. */
#define ALL_TURNS UINT64_MAX

static void add_point(struct vpmm_track *track, struct vpmm_point point)
{
    uint32_t i = 0;
    while (i < track->n_points && track->points[i].stream_id != point.stream_id)
        i++;
    if (i < track->n_points) {
        if (track->points[i].turn < point.turn)
            track->points[i].turn = point.turn;
        return;
    }
    if (track->n_points < VPMM_POINTS_MAX)
        track->n_points++;
    else
        i = track->next_point++ % VPMM_POINTS_MAX;
    track->points[i] = point;
}

static uint32_t copy_points(struct vpmm_track *track, struct vpmm_point *points_out)
{
    vpmm_latch_take(&track->latch, VPMM_RANK_TRACK);
    uint32_t n = track->n_points;
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
    return vpmm_atomic_load(&order->n_tracks) || vpmm_atomic_load(&order->snapshots);
}

void vpmm_order_blind(struct vpmm_order *order)
{
    vpmm_atomic_store(&order->is_blind, 1);
}

/* The turn ends before the driver records the event: a free that another thread makes meanwhile
 * belongs to the next one, and nobody takes it for covered. */
void vpmm_order_event_recording(struct vpmm_order *order, vpmm_event_handle event,
                                vpmm_stream_handle handle, struct vpmm_event_points *points_out)
{
    struct vpmm_stream stream;
    points_out->n = 0;
    vpmm_order_event_gone(order, event);
    if (!may_learn(order) || !vpmm_atomic_load(&order->n_tracks) ||
        vpmm_order_stream(order, handle, &stream) || stream.is_capturing)
        return;
    struct vpmm_track *track = vpmm_track_known(order, stream.id);
    if (!track)
        return;
    uint64_t turn = vpmm_track_end_turn(track);
    if (turn >= track->first_turn)
        points_out->points[points_out->n++] = (struct vpmm_point){stream.id, turn};
    points_out->n += copy_points(track, &points_out->points[points_out->n]);
    vpmm_track_leave(track);
}

void vpmm_order_event_recorded(struct vpmm_order *order, vpmm_event_handle event,
                               const struct vpmm_event_points *points)
{
    if (points->n && may_learn(order))
        publish(order, event, points);
}

void vpmm_order_event_waiting(struct vpmm_order *order, vpmm_event_handle event,
                              struct vpmm_event_points *points_out)
{
    struct vpmm_snapshot_set *set = set_of(order, event);
    points_out->n = 0;
    if (!set || !may_learn(order))
        return;
    vpmm_latch_take(&set->latch, VPMM_RANK_TRACK);
    const struct vpmm_snapshot *snapshot = look_up(set, event);
    if (snapshot) {
        points_out->version = snapshot->version;
        points_out->n = snapshot->n_points;
        for (uint32_t i = 0; i < snapshot->n_points; i++)
            points_out->points[i] = snapshot->points[i];
    }
    vpmm_latch_give(&set->latch, VPMM_RANK_TRACK);
}

/* If so, what the driver was asked in between was about that very record. */
bool vpmm_snapshot_is(struct vpmm_order *order, vpmm_event_handle event, uint64_t version)
{
    struct vpmm_snapshot_set *set = set_of(order, event);
    vpmm_latch_take(&set->latch, VPMM_RANK_TRACK);
    const struct vpmm_snapshot *snapshot = look_up(set, event);
    bool is_same = snapshot && snapshot->version == version;
    vpmm_latch_give(&set->latch, VPMM_RANK_TRACK);
    return is_same;
}

void vpmm_order_event_waited(struct vpmm_order *order, vpmm_event_handle event,
                             vpmm_stream_handle handle, const struct vpmm_event_points *points)
{
    struct vpmm_stream stream;
    if (!points->n || !may_learn(order) || !vpmm_snapshot_is(order, event, points->version) ||
        vpmm_order_stream(order, handle, &stream) || stream.is_capturing)
        return;
    struct vpmm_track *track = vpmm_track_use(order, &stream);
    if (!track)
        return;
    vpmm_latch_take(&track->latch, VPMM_RANK_TRACK);
    for (uint32_t i = 0; i < points->n; i++)
        if (points->points[i].stream_id != stream.id)
            add_point(track, points->points[i]);
    vpmm_latch_give(&track->latch, VPMM_RANK_TRACK);
    vpmm_track_leave(track);
}

/* ---- frees ---- */

struct vpmm_track *vpmm_order_track(struct vpmm_order *order, const struct vpmm_stream *stream)
{
    if (stream->is_legacy)
        vpmm_atomic_store(&stream->context->legacy_id, stream->id);
    return vpmm_track_use(order, stream);
}

void vpmm_order_track_end(struct vpmm_track *track)
{
    vpmm_track_leave(track);
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
        vpmm_atomic_load(&order->n_tracks) ? vpmm_track_known(order, stream->id) : NULL;
    if (track)
        follower_out->n_points = copy_points(track, follower_out->points);
    vpmm_track_leave(track);
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
