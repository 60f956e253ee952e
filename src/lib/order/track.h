/* SPDX-License-Identifier: MIT */
/* Tracks: what is remembered of each stream. Private to this folder. Unless said otherwise no lock
 * is needed, and no driver call is made. */
#ifndef VPMM_ORDER_TRACK_H
#define VPMM_ORDER_TRACK_H

#include "base/atomic.h"
#include "base/lock.h"
#include "order/order_program.h"

/* From so many on no mark begins. */
#define VPMM_MARKS_END (1u << 16)

/* What is remembered of a stream. Its *turn* is a number that grows when an event is recorded on
 * the stream: whoever waits for the event comes after the frees of that turn and of those before
 * it. */
struct vpmm_track {
    vpmm_atomic64 stream_id;
    vpmm_atomic64 turn; /* that a free belongs to now; greater than that of any earlier track */
    vpmm_atomic32 has_frees;      /* in this turn */
    vpmm_atomic64 completed_turn; /* the program has found out that it is complete; 0: none yet */
    vpmm_atomic32 n_users; /* threads that look at it, and VPMM_MARKS_END once it is taken away */
    vpmm_atomic32 next;    /* in its bucket */
    uint32_t context;
    vpmm_atomic64 first_turn;
    /* The mark of a blocking stream: an event that is recorded again for each of its allocations
     * and frees, and complete when the legacy stream's work before the last of them is. */
    vpmm_atomic32 event;     /* 0: it has none yet */
    vpmm_atomic32 n_marking; /* threads that record it, or are about to */
    vpmm_atomic32 spent;     /* events that it gave up, while there were any; with the lock */
    vpmm_atomic32 is_held;   /* somebody waits for the event: the next record takes another */
    vpmm_atomic64 n_records; /* that have returned */
    vpmm_atomic64 n_over;    /* the first ones, which are known complete */
    /* What the blocking stream freed and did not take again, since so many collections. */
    vpmm_atomic64 returned_bytes, n_collections;
    struct vpmm_latch latch; /* of what follows */
    vpmm_atomic32 n_points;
    uint32_t next_point;
    struct vpmm_point points[VPMM_POINTS_MAX]; /* of other streams, that this one comes after */
};

/* The stream's track, in use until vpmm_order_track_end. The first makes one where there is none
 * (driver; called without the lock); NULL: there is none. */
struct vpmm_track *vpmm_track_use(struct vpmm_order *order, const struct vpmm_stream *stream);
/* The same without keeping it: without the lock it may become another stream's, and stays readable.
 */
struct vpmm_track *vpmm_track_peek(struct vpmm_order *order, uint64_t stream_id);
struct vpmm_track *vpmm_track_add(struct vpmm_order *order, const struct vpmm_stream *stream);
/* The turn that ends now, or the last one that did where nothing was freed since. */
uint64_t vpmm_track_end_turn(struct vpmm_track *track);
/* Those of a context, with the lock: the next one after `*number`, which begins as 0, or NULL. */
struct vpmm_track *vpmm_track_next(struct vpmm_order *order, const struct vpmm_context *context,
                                   uint32_t *number);
/* Those of a context that is gone, or of a stream that is ending, are taken away. With the lock. */
void vpmm_tracks_forget(struct vpmm_order *order, const struct vpmm_context *context);
void vpmm_track_forget(struct vpmm_order *order, uint64_t stream_id);

#endif
