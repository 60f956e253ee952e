/* SPDX-License-Identifier: MIT */
/* Private to order/: the records behind contexts, fences and events, and what the files of this
 * folder do for each other. Unless said otherwise the caller holds the order's lock, and no
 * function called with it makes a driver call. A fence number is a slot of the table of fences and
 * above that a count of all fences ever, so that a later one is larger; when it completes, the
 * slot's number changes, so that a reader without the lock needs nothing else to see it. */
#ifndef VPMM_ORDER_INTERNAL_H
#define VPMM_ORDER_INTERNAL_H

#include "base/atomic.h"
#include "base/lock.h"
#include "base/table.h"
#include "order/order_program.h"
#include "order/track.h"

#include <sys/types.h>

#define VPMM_ORDER_BUCKETS 1024u

/* One fence. Readers without the lock look at the atomic members only. */
struct vpmm_slot {
    vpmm_atomic64 number;    /* the fence that lives here; 0: none */
    vpmm_atomic64 stream_id; /* of the stream whose work is all that it stands for; 0: of several */
    vpmm_atomic64
        begin; /* when its call began: it stands for work queued before (parked: the last call) */
    /* Of a joined fence: a fence that is not joined, or was open, and any other. */
    vpmm_atomic64 part, rest;
    /* enum vpmm_fence_kind. In place IS_PARKED becomes IS_CONTEXT, and IS_OPEN becomes IS_STREAM,
     * IS_CONTEXT or IS_JOINED: what the new kind needs is written before it, and read after it. */
    vpmm_atomic32 kind;
    vpmm_atomic32 wait;   /* enum vpmm_wait */
    vpmm_atomic64 thread; /* whose free it was, where that is recorded in the free itself */
    vpmm_atomic64 turn;   /* of the stream, that the last of its frees belongs to; 0: not known */
    vpmm_atomic32 context;
    uint32_t event, queue;
    uint32_t next; /* in its queue, or in the list of joined or of open fences */
};

/* A consistent copy of a slot. */
struct vpmm_slot_view {
    uint64_t stream_id, begin, thread, turn;
    vpmm_fence part, rest;
    vpmm_fence event_fence; /* of vpmm_part_next: the fence that has the part's event */
    enum vpmm_fence_kind kind;
    enum vpmm_wait wait;
    uint32_t context;
};

/* An event, in a fence or idle in its context's list. One that is pinned is neither recorded again
 * nor destroyed. */
struct vpmm_event {
    vpmm_event_handle handle; /* NULL: the record is not in use */
    uint32_t context;
    uint32_t next;
    uint32_t n_pins;
    bool is_owned; /* by a fence or by a record that is being made */
};

/* The recorded fences of one stream, or (stream_id 0) of one context as a whole, in the order of
 * their begin: when one is complete, so are all before it. Exists while it holds a fence. */
struct vpmm_queue {
    uint64_t stream_id;
    uint32_t context;
    uint32_t first, last;   /* slots */
    uint32_t next;          /* in its bucket */
    uint32_t n_passes;      /* how many glances passed over it the last time */
    uint32_t n_passes_left; /* how many are still to pass over it */
};

/* A stream of a driver without stream ids. */
struct vpmm_name {
    vpmm_stream_handle handle;
    uint64_t thread; /* of the per-thread stream */
    uint64_t id;
    uint32_t context;
    uint32_t next; /* in its bucket */
    pid_t system_thread;
};

/* A stream that began a capture, as the beginning thread meant it. */
struct vpmm_capture {
    vpmm_stream_handle handle;
    uint64_t thread; /* of the per-thread stream */
    uint32_t context;
    uint32_t next;
};

/* What a recorded event tells those who wait for it. */
struct vpmm_snapshot {
    _Atomic(vpmm_event_handle) event; /* NULL: none */
    uint32_t n_points;
    struct vpmm_point points[VPMM_POINTS_MAX + 1];
};

#define VPMM_SNAPSHOT_SETS 1024u
#define VPMM_SNAPSHOT_WAYS 4u
struct vpmm_snapshot_set {
    /* Records of its events, that have begun and that have returned: as long as these differ, what
     * is known of its events may be that of an earlier record. */
    vpmm_atomic64 n_begun, n_done;
    struct vpmm_latch latch; /* of what follows */
    uint32_t next_way;
    struct vpmm_snapshot ways[VPMM_SNAPSHOT_WAYS];
};

struct vpmm_context {
    vpmm_context_handle handle;
    uint64_t driver_id; /* tells whose the handle is; 0: the driver does not know */
    uint32_t number;    /* its id: records are never reused */
    int device;
    vpmm_atomic32 gone;
    bool is_told;       /* its end, by vpmm_order_next_gone */
    uint32_t n_users;   /* driver calls under way on its events or on itself, recorders included */
    uint32_t n_waiting; /* of them those that wait for its work */
    vpmm_atomic32 n_leaving; /* calls under way that may destroy it */
    vpmm_atomic32 n_ending;  /* of them those that do */
    vpmm_atomic32 mark;      /* the event of all marks on the legacy stream; 0: none yet */
    vpmm_atomic64 legacy_id; /* of its legacy stream, once that freed; 0 before */
    vpmm_atomic32 n_marking; /* such marks under way, and VPMM_MARKS_END for each of n_ending */
    uint32_t idle_events;
    uint32_t parked; /* slot of the fence that takes what cannot be recorded: always there while the
                        context lives */
    bool parked_used;
};

struct vpmm_order {
    const struct vpmm_driver *driver;
    const struct vpmm_memory *memory;
    const vpmm_atomic32 *has_blocking; /* vpmm_order_watch_streams; NULL: unknown */
    struct vpmm_lock lock;
    struct vpmm_condition calmed; /* users or recorders fell to 0, or a destruction ended */
    struct vpmm_table slots, events, queues, names, captures, contexts, tracks;
    uint64_t number;          /* no other order of the process has it */
    vpmm_atomic64 sequence;   /* grows with the lock: what began, in order */
    uint64_t last_generation; /* of fences */
    uint32_t n_parked;        /* contexts whose parked fence stands for something */
    uint64_t next_name;
    uint32_t n_names_swept;    /* with so many, those that can go are looked for */
    vpmm_atomic64 n_completed; /* fences, ever */
    /* Changes whenever what a thread remembers of streams may be wrong: when a capture begins,
     * and when a stream or a context is leaving. No two orders of a process begin with the same. */
    vpmm_atomic64 epoch;
    uint32_t queues_end; /* above the highest queue number ever used */
    uint32_t glanced;    /* the queue that the last glance stopped at */
    uint32_t credit;     /* busy queues that glances could have asked about and did not meet */
    uint32_t first_joined, last_joined;
    uint32_t first_open; /* those that are not in n_fences */
    vpmm_atomic32 n_open;
    uint32_t first_capture;
    uint32_t queue_buckets[VPMM_ORDER_BUCKETS], name_buckets[VPMM_ORDER_BUCKETS];
    vpmm_atomic32 track_buckets[VPMM_ORDER_BUCKETS];
    vpmm_atomic32 n_tracks;
    vpmm_atomic32 n_marked;       /* of them, those with the event of a mark */
    vpmm_atomic32 n_tracks_swept; /* with so many, those that can go are looked for */
    uint64_t first_turn;          /* of the next track */
    _Atomic(struct vpmm_snapshot_set *) snapshots; /* VPMM_SNAPSHOT_SETS; NULL: none yet */
    vpmm_atomic32 is_blind; /* events may be recorded unseen: their order is not learnt any more */
    vpmm_atomic32 n_contexts;
    vpmm_atomic32 n_untold; /* contexts that are gone, and nobody was told */
    /* The gate is one for all contexts: a capture may draw in streams of any of them by an event.
     */
    vpmm_atomic32 n_captures;         /* that count now */
    uint32_t n_begins;                /* captures ever begun */
    vpmm_atomic32 n_closing;          /* beginnings of captures under way */
    uint32_t n_recorders;             /* records under way that a capture excludes */
    struct vpmm_far_memos *far_memos; /* see memo.c */
    vpmm_atomic64 n_threads, n_events, n_fences, n_collections;
    vpmm_atomic64 n_fences_tidied; /* from so many on it is time to poll */
};

static inline struct vpmm_slot *vpmm_slot_at(const struct vpmm_order *order, uint32_t number)
{
    return vpmm_table_at(&order->slots, number);
}

static inline struct vpmm_event *vpmm_event_at(const struct vpmm_order *order, uint32_t number)
{
    return vpmm_table_at(&order->events, number);
}

static inline struct vpmm_queue *vpmm_queue_at(const struct vpmm_order *order, uint32_t number)
{
    return vpmm_table_at(&order->queues, number);
}

static inline struct vpmm_context *vpmm_context_at(const struct vpmm_order *order, uint32_t number)
{
    return vpmm_table_at(&order->contexts, number);
}

/* ---- slots (fence.c) ---- */

/* A slot with a new number that nobody knows yet, and which n_fences does not count yet; 0 without
 * memory. */
uint32_t vpmm_slot_take(struct vpmm_order *order, enum vpmm_fence_kind kind, enum vpmm_wait wait,
                        uint32_t context);
/* Takes back a slot that was never counted. */
void vpmm_slot_give(struct vpmm_order *order, uint32_t number);
/* Any thread, no lock. False when the fence is complete. */
bool vpmm_slot_look(const struct vpmm_order *order, vpmm_fence fence,
                    struct vpmm_slot_view *view_out);
uint32_t vpmm_slot_number(vpmm_fence fence);
/* The slot where `fence` lives, or NULL when it is complete. */
struct vpmm_slot *vpmm_slot_of(const struct vpmm_order *order, vpmm_fence fence);
/* The fence is complete: its event goes back, its slot is free. It is in no queue any more. */
void vpmm_slot_complete(struct vpmm_order *order, uint32_t number);
/* Any thread, no lock. Takes the next fence that is not complete out of `*rest`, one that is not
 * joined, or that was open and refers to such a one; false at the end. */
bool vpmm_part_next(const struct vpmm_order *order, vpmm_fence *rest, vpmm_fence *part_out,
                    struct vpmm_slot_view *view_out);

/* ---- joined fences (join.c) ---- */

/* Lets go of those whose parts are all complete. */
void vpmm_joined_sweep(struct vpmm_order *order);
/* The slot joins the list that is swept; its parts must be older than it, or not joined. */
void vpmm_joined_add(struct vpmm_order *order, uint32_t number);

/* ---- open fences (batch.c) ---- */

/* Into and out of the list of open slots, which n_fences does not count. */
void vpmm_open_add(struct vpmm_order *order, uint32_t number);
void vpmm_open_drop(struct vpmm_order *order, uint32_t number);
/* Those of a context are complete. */
void vpmm_open_complete(struct vpmm_order *order, uint32_t context);

/* ---- queues (queue.c) ---- */

/* Appends the slot to the queue of the stream on which it is recorded, or (0) of its context.
 * NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_queue_put(struct vpmm_order *order, uint32_t slot,
                                                uint64_t stream_id);
/* The queue of the stream, or (0) of its context; 0: there is none. */
uint32_t vpmm_queue_find(struct vpmm_order *order, uint32_t context, uint64_t stream_id);
/* Everything in the queue that began no later than `begin` is complete. */
void vpmm_queue_complete(struct vpmm_order *order, uint32_t number, uint64_t begin);
/* The same for all queues of a context. */
void vpmm_queues_complete(struct vpmm_order *order, uint32_t context, uint64_t begin);

/* ---- events (order_event.c) ---- */

/* An idle event of the context, now owned; 0: there is none. */
uint32_t vpmm_event_take(struct vpmm_order *order, struct vpmm_context *context);
/* Makes a new one (driver; called without the lock). */
VPMM_MUST_CHECK enum vpmm_status
vpmm_event_make(struct vpmm_order *order, struct vpmm_context *context, uint32_t *number_out);
/* Its owner is done with it. */
void vpmm_event_give(struct vpmm_order *order, uint32_t number);
/* Ends an owned event that may belong to a graph now (driver; called without the lock). */
void vpmm_event_discard(struct vpmm_order *order, uint32_t number);
/* Between these its handle may be used without the lock; its context counts one user more. */
vpmm_event_handle vpmm_event_pin(struct vpmm_order *order, uint32_t number);
void vpmm_event_unpin(struct vpmm_order *order, uint32_t number);
/* The context is gone: its idle events are forgotten. */
void vpmm_events_forget(struct vpmm_order *order, struct vpmm_context *context);

/* ---- contexts (order_context.c) ---- */

/* The living context of the handle, or NULL. With the lock, for as long as that is held. */
struct vpmm_context *vpmm_context_find(const struct vpmm_order *order, vpmm_context_handle handle);
/* Counts one user less, and tells who waits for that. */
void vpmm_context_calm(struct vpmm_order *order, struct vpmm_context *context);
/* A mark without the lock: the context does not end before it does. False: the context is ending,
 * or gone, and there is nothing to record; `end` follows all the same. */
bool vpmm_context_mark_begin(struct vpmm_context *context);
void vpmm_context_mark_end(struct vpmm_order *order, struct vpmm_context *context);
/* Everything in the context is complete for ever. */
void vpmm_context_bury(struct vpmm_order *order, struct vpmm_context *context);
/* Whether the context is gone, although nobody announced it, when an event of it answered
 * CONTEXT_GONE. The thread's own current context may be the one that is gone, so the context is
 * asked itself (driver; called without the lock). */
bool vpmm_context_is_lost(struct vpmm_order *order, const struct vpmm_context *context,
                          enum vpmm_status answer);

/* ---- records (record.c) ---- */

/* Whether the context's parked fence stands for something. With the lock. */
static inline void vpmm_parked_set(struct vpmm_order *order, struct vpmm_context *context,
                                   bool is_used)
{
    order->n_parked = order->n_parked - context->parked_used + is_used;
    context->parked_used = is_used;
}
/* The fence that is parked in the living context, which from now on stands for a call more. */
vpmm_fence vpmm_park(struct vpmm_order *order, struct vpmm_context *context);
/* The same without the lock. VPMM_FENCE_NONE where the context is gone. */
vpmm_fence vpmm_park_living(struct vpmm_order *order, struct vpmm_context *context);
/* Records the open fence on `stream`, or (NULL) on the whole context (driver; called without the
 * lock). It stays open where that fails. */
VPMM_MUST_CHECK enum vpmm_status vpmm_record_open(struct vpmm_order *order,
                                                  struct vpmm_context *context,
                                                  const struct vpmm_stream *stream,
                                                  enum vpmm_wait wait, vpmm_fence fence);
/* The first mark on the context's legacy stream: its event becomes the context's (driver; called
 * without the lock). */
VPMM_MUST_CHECK enum vpmm_status vpmm_record_mark(struct vpmm_order *order,
                                                  const struct vpmm_stream *stream);
/* What of a record's answer the program should hear. */
enum vpmm_status vpmm_record_verdict(enum vpmm_status status);
/* All work of the context that was queued before the moment is complete. With the lock. */
void vpmm_context_completed(struct vpmm_order *order, struct vpmm_context *context,
                            uint64_t moment);
/* Records what is parked in the context if that is allowed now (driver; called without the lock).
 */
void vpmm_record_parked(struct vpmm_order *order, struct vpmm_context *context);

/* ---- snapshots (snapshot.c) ---- */

/* From now on they are kept, if there is memory for them. */
void vpmm_snapshots_make(struct vpmm_order *order);
void vpmm_snapshots_finish(struct vpmm_order *order);
/* A record of the event begins, or its end: until `end` nobody learns from it. No version: none are
 * kept, and `end` must not follow. */
void vpmm_snapshot_begin(struct vpmm_order *order, vpmm_event_handle event,
                         struct vpmm_event_points *points_out);
/* The record has returned. With points, they are kept if no other record was under way. */
void vpmm_snapshot_end(struct vpmm_order *order, vpmm_event_handle event,
                       const struct vpmm_event_points *points);
void vpmm_snapshot_look(struct vpmm_order *order, vpmm_event_handle event,
                        struct vpmm_event_points *points_out);
/* Whether no record of the event has begun since a look that had that version. */
bool vpmm_snapshot_is(struct vpmm_order *order, vpmm_event_handle event, uint64_t version);

/* ---- marks (mark.c) ---- */

/* Asks about the mark of a stream. OK too where there is none, or its context may be ending;
 * `is_used`: the program is in a call on it, which rules out all but the announced end. Called with
 * the lock, which it gives up meanwhile; the thread's capture mode is relaxed. */
enum vpmm_status vpmm_mark_observe(struct vpmm_order *order, uint64_t stream_id, bool is_used);

/* ---- observing (order_wait.c) ---- */

/* Asks the driver about the event of a recorded fence, through event_query or event_synchronize,
 * and completes what an OK vouches for. OK too when it was complete already; NOT_READY when its
 * context is leaving, or, for who waits and so uses the context, is being destroyed. Called with
 * the lock, which it gives up meanwhile; the thread's capture mode is relaxed. */
enum vpmm_status vpmm_fence_observe(struct vpmm_order *order, vpmm_fence fence,
                                    enum vpmm_status (*operation)(void *, vpmm_event_handle));

/* ---- captures (order_capture.c) ---- */

/* Whether work that a capture excludes may be done. */
bool vpmm_gate_is_open(const struct vpmm_order *order);
void vpmm_captures_forget(struct vpmm_order *order, struct vpmm_context *context);

/* Ends the capture that the stream began, whether it still captures or not. */
void vpmm_capture_forget(struct vpmm_order *order, vpmm_stream_handle handle);

/* ---- streams (order_stream.c) ---- */

/* As vpmm_order_stream, in what the thread remembers or in `room`; NULL: it cannot be told. */
const struct vpmm_stream *vpmm_stream_ask(struct vpmm_order *order, vpmm_stream_handle handle,
                                          struct vpmm_stream *room);

/* The calling thread's; no other thread ever has it. */
uint64_t vpmm_thread_number(struct vpmm_order *order);

/* What tells apart the streams that one handle means in several threads: 0 for all but the
 * per-thread stream. */
uint64_t vpmm_stream_thread(struct vpmm_order *order, vpmm_stream_handle handle);

#endif
