/* SPDX-License-Identifier: MIT */
/* Completion that the program itself finds out: what its synchronisations and queries prove
 * complete needs no query of ours. Must not call the driver, but to tell which stream or context is
 * meant. */
#include "order/order_internal.h"

/* All but the points, which are many. */
static void clear(struct vpmm_proof *proof)
{
    proof->moment = proof->stream_id = proof->version = 0;
    proof->context = proof->n = 0;
    proof->event = NULL;
}

/* Ends the track's turn, so that what is freed from now on is not proven. */
static void add_turn(struct vpmm_proof *proof, struct vpmm_track *track, uint64_t stream_id)
{
    uint64_t turn = vpmm_track_end_turn(track);
    bool has_freed = turn >= vpmm_atomic_load(&track->first_turn);
    if (has_freed && vpmm_atomic_load(&track->stream_id) == stream_id && proof->n < VPMM_PROVEN_MAX)
        proof->points[proof->n++] = (struct vpmm_point){stream_id, turn};
}

/* A stream that synchronises with the legacy one may be idle before an event on it is complete
 * (measured: test/programs/queues.c), and that is what a fence of the stream stands for. */
void vpmm_order_prove_stream(struct vpmm_order *order, vpmm_stream_handle handle,
                             struct vpmm_proof *proof_out)
{
    struct vpmm_stream stream;
    clear(proof_out);
    if (!vpmm_order_has_pending(order) || handle == VPMM_STREAM_LEGACY ||
        vpmm_order_captures(order) || vpmm_order_stream(order, handle, &stream) ||
        stream.is_capturing || stream.is_blocking || stream.is_legacy)
        return;
    proof_out->stream_id = stream.id;
    proof_out->context = stream.context->number;
    proof_out->moment = vpmm_atomic_load(&order->sequence);
    struct vpmm_track *track = vpmm_track_peek(order, stream.id);
    if (track)
        add_turn(proof_out, track, stream.id);
}

/* A green context has no record of its own, and its end says nothing about its primary one. */
void vpmm_order_prove_context(struct vpmm_order *order, vpmm_context_handle handle,
                              struct vpmm_proof *proof_out)
{
    const struct vpmm_driver *driver = order->driver;
    clear(proof_out);
    if (!vpmm_order_has_pending(order) ||
        (!handle && driver->context_current(driver->self, &handle)))
        return;
    vpmm_lock_take(&order->lock);
    const struct vpmm_context *context = vpmm_context_find(order, handle);
    if (context) {
        proof_out->context = context->number;
        proof_out->moment = vpmm_atomic_load(&order->sequence);
        struct vpmm_track *track;
        for (uint32_t number = 0; (track = vpmm_track_next(order, context, &number)) != NULL;)
            add_turn(proof_out, track, vpmm_atomic_load(&track->stream_id));
    }
    vpmm_lock_give(&order->lock);
}

void vpmm_order_prove_event(struct vpmm_order *order, vpmm_event_handle event,
                            struct vpmm_proof *proof_out)
{
    struct vpmm_event_points points;
    clear(proof_out);
    if (!vpmm_order_has_pending(order))
        return;
    vpmm_order_event_waiting(order, event, &points);
    proof_out->event = event;
    proof_out->version = points.version;
    proof_out->n = points.n;
    for (uint32_t i = 0; i < points.n; i++)
        proof_out->points[i] = points.points[i];
}

/* The first fences of the stream whose frees all lie before the point; the order of turns is that
 * of fences. */
static void complete_to(struct vpmm_order *order, const struct vpmm_point *point)
{
    struct vpmm_track *track = vpmm_track_peek(order, point->stream_id);
    uint64_t begin = 0;
    if (!track)
        return;
    if (vpmm_atomic_load(&track->completed_turn) < point->turn)
        vpmm_atomic_store(&track->completed_turn, point->turn);
    uint32_t queue = vpmm_queue_find(order, track->context, point->stream_id);
    for (uint32_t number = queue ? vpmm_queue_at(order, queue)->first : 0; number;) {
        const struct vpmm_slot *slot = vpmm_slot_at(order, number);
        uint64_t turn = vpmm_atomic_load(&slot->turn);
        if (!turn || turn > point->turn)
            break;
        begin = vpmm_atomic_load(&slot->begin);
        number = slot->next;
    }
    if (begin)
        vpmm_queue_complete(order, queue, begin);
}

/* A fence that began no later than the moment stands for work that was queued before it. */
static void complete_before(struct vpmm_order *order, const struct vpmm_proof *proof)
{
    if (!proof->stream_id) {
        vpmm_context_completed(order, vpmm_context_at(order, proof->context), proof->moment);
        return;
    }
    uint32_t queue = vpmm_queue_find(order, proof->context, proof->stream_id);
    if (queue)
        vpmm_queue_complete(order, queue, proof->moment);
}

void vpmm_order_proven(struct vpmm_order *order, const struct vpmm_proof *proof)
{
    if ((!proof->moment && !proof->n) ||
        (proof->event && !vpmm_snapshot_is(order, proof->event, proof->version)))
        return;
    vpmm_lock_take(&order->lock);
    for (uint32_t i = 0; i < proof->n; i++)
        complete_to(order, &proof->points[i]);
    if (proof->moment)
        complete_before(order, proof);
    vpmm_joined_sweep(order);
    vpmm_lock_give(&order->lock);
}

bool vpmm_order_turn_over(const struct vpmm_track *track, uint64_t turn)
{
    return track && turn && turn <= vpmm_atomic_load(&track->completed_turn);
}

bool vpmm_order_over(struct vpmm_order *order, vpmm_fence fence, const struct vpmm_track *track)
{
    if (!track || !vpmm_atomic_load(&track->completed_turn))
        return false;
    vpmm_lock_take(&order->lock);
    struct vpmm_slot *slot = vpmm_slot_of(order, fence);
    bool is_over = slot && vpmm_atomic_load(&slot->kind) == VPMM_FENCE_IS_OPEN &&
                   vpmm_order_turn_over(track, vpmm_atomic_load(&slot->turn));
    if (is_over) {
        uint32_t number = vpmm_slot_number(fence);
        vpmm_open_drop(order, number);
        vpmm_atomic_add(&order->n_fences, 1);
        vpmm_slot_complete(order, number);
        vpmm_joined_sweep(order);
    }
    vpmm_lock_give(&order->lock);
    return is_over;
}
