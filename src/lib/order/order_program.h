/* SPDX-License-Identifier: MIT */
/* The order that the program makes with its own events, and the completion that its own calls find
 * out. Order may be forgotten at any time, and is never invented. The rules of order.h hold. */
#ifndef VPMM_ORDER_PROGRAM_H
#define VPMM_ORDER_PROGRAM_H

#include "order/order.h"

struct vpmm_track;

/* A point in the work of a stream: its frees of that turn, and of all before, lie before it. */
struct vpmm_point {
    uint64_t stream_id;
    uint64_t turn;
};
/* So many other streams are remembered that one comes after; older ones are forgotten. */
#define VPMM_POINTS_MAX 8u
#define VPMM_FOLLOWED_MAX (VPMM_POINTS_MAX + 1)

/* ---- events ---- */

/* The program may order one stream's requests after another stream's frees by its own events. What
 * is learnt of that is bounded: what exceeds it is forgotten. Nothing is learnt beside a capture.
 */

/* Where an event leads: see vpmm_order_event_recording. */
struct vpmm_event_points {
    uint64_t version; /* 0: without memory */
    bool is_alone;    /* no other record was under way when this one began */
    uint32_t n;
    struct vpmm_point points[VPMM_FOLLOWED_MAX];
};
/* Whether there is anything to forget: where not, the two calls about records need not be made. No
 * driver, no lock. */
bool vpmm_order_learns(const struct vpmm_order *order);
/* Whether a free may not be complete: where all are, waits and queries need no call here. No
 * driver, no lock. */
bool vpmm_order_has_pending(const struct vpmm_order *order);
/* Before and after the driver records the program's event on the stream (driver, to tell the
 * stream), or (NULL) elsewhere, from where nothing is learnt. `recorded` follows `recording` in any
 * case; `is_recorded`: the driver did it. */
void vpmm_order_event_recording(struct vpmm_order *order, vpmm_event_handle event,
                                vpmm_stream_handle handle, struct vpmm_event_points *points_out);
void vpmm_order_event_recorded(struct vpmm_order *order, vpmm_event_handle event,
                               struct vpmm_event_points *points, bool is_recorded);
/* Before and after the driver makes the stream wait for the event; the same. */
void vpmm_order_event_waiting(struct vpmm_order *order, vpmm_event_handle event,
                              struct vpmm_event_points *points_out);
void vpmm_order_event_waited(struct vpmm_order *order, vpmm_event_handle event,
                             vpmm_stream_handle handle, const struct vpmm_event_points *points);
/* The event is about to be destroyed, or recorded otherwise: nothing is known of it from now on. No
 * driver. */
void vpmm_order_event_gone(struct vpmm_order *order, vpmm_event_handle event);
/* Events may be recorded from now on without anybody being told, by a graph or by another process:
 * nothing more is learnt. No driver. */
void vpmm_order_blind(struct vpmm_order *order);

/* ---- completion that the program itself finds out ---- */

/* So many streams of a context are proven complete by one wait; the others are asked about as
 * usual. */
#define VPMM_PROVEN_MAX 64u

/* What a call of the program proves complete if it succeeds. The call waits for work or asks about
 * it; the proof is made before it. */
struct vpmm_proof {
    uint64_t moment; /* what the stream, or (0) the context, was given before it; 0: nothing */
    uint64_t stream_id;
    uint32_t context;
    vpmm_event_handle event; /* NULL: it is about no event; else it was recorded with `version` */
    uint64_t version;
    uint32_t n; /* 0, and no moment: nothing is proven */
    struct vpmm_point points[VPMM_PROVEN_MAX];
};
/* Driver, to tell the stream, and the current context where `handle` is NULL. */
void vpmm_order_prove_stream(struct vpmm_order *order, vpmm_stream_handle handle,
                             struct vpmm_proof *proof_out);
void vpmm_order_prove_context(struct vpmm_order *order, vpmm_context_handle handle,
                              struct vpmm_proof *proof_out);
/* No driver. */
void vpmm_order_prove_event(struct vpmm_order *order, vpmm_event_handle event,
                            struct vpmm_proof *proof_out);
/* The call succeeded. No driver. */
void vpmm_order_proven(struct vpmm_order *order, const struct vpmm_proof *proof);

/* Whether the stream's frees of that turn are proven complete. No driver, no lock. */
bool vpmm_order_turn_over(const struct vpmm_track *track, uint64_t turn);
/* Completes an open fence of the stream that no free joins any more, where all that joined it are
 * proven complete. No driver. */
bool vpmm_order_over(struct vpmm_order *order, vpmm_fence fence, const struct vpmm_track *track);

/* ---- what requests come after ---- */

/* What is remembered of a stream, kept until vpmm_order_track_end (driver, for events of streams
 * that are gone). NULL without memory, which is a valid argument of both others. */
struct vpmm_track *vpmm_order_track(struct vpmm_order *order, const struct vpmm_stream *stream);
void vpmm_order_track_end(struct vpmm_track *track);
/* The turn that a free on the stream belongs to which the calling thread is just making; 0 without
 * a track. No driver, no lock. */
uint64_t vpmm_order_turn(struct vpmm_track *track);
/* A free of that turn has joined the open fence; frees of the same stream come one after another.
 * No driver, no lock. */
void vpmm_order_joined(struct vpmm_order *order, vpmm_fence fence, uint64_t turn);
/* A fence like `fence`, which frees of later turns have joined too, but of this turn; or `fence`.
 * No driver. */
vpmm_fence vpmm_order_of_turn(struct vpmm_order *order, vpmm_fence fence, uint64_t turn);

/* What a request's stream comes after. */
struct vpmm_follower {
    uint64_t stream_id; /* 0: cudaMalloc, which comes after nothing */
    uint32_t n_points;
    struct vpmm_point points[VPMM_FOLLOWED_MAX];
};
/* No driver. */
void vpmm_order_follower(struct vpmm_order *order, const struct vpmm_stream *stream,
                         struct vpmm_follower *follower_out);
/* As vpmm_order_ask. No driver, no lock. */
enum vpmm_verdict vpmm_order_ask_for(const struct vpmm_order *order, vpmm_fence fence,
                                     const struct vpmm_follower *follower);
/* Whether all work that `fence` stands for comes before later work of `stream`, or is complete:
 * then a fence that is recorded on the stream now covers it. No driver. */
bool vpmm_order_follows(struct vpmm_order *order, vpmm_fence fence,
                        const struct vpmm_stream *stream);

#endif
