/* SPDX-License-Identifier: MIT */
/* The order of device work: contexts, streams, events, fences and the capture gate of the whole
 * process. Answers three questions about a fence: is it complete, does this stream already follow
 * it, make it wait. Knows nothing of memory.
 *
 * A fence number is unique for ever; a number that is not in the table (any more) is complete.
 * States: *open* (frees may still join it; or a record is wanted but not allowed yet: parked),
 * *closing* (its record is being made), *recorded*, *complete*. Only a recorded fence has an event
 * that anybody queries, because an event that was never recorded reads as complete.
 *
 * Any thread may call anything here; no caller holds a lock of a rank above VPMM_RANK_ORDER, and
 * calls marked "driver" are made with no lock held. No driver call is made under this folder's own
 * lock. Driver calls that could end a capture are made with the thread's capture mode relaxed. */
#ifndef VPMM_ORDER_ORDER_H
#define VPMM_ORDER_ORDER_H

#include "base/atomic.h"
#include "base/fence.h"
#include "base/memory.h"
#include "base/status.h"
#include "driver/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vpmm_order;

/* A context that had a stream or memory we know; lives until vpmm_order_destroy, also after the
 * context's death (then `gone`, and a new context with the same handle gets a new record with a new
 * id). */
struct vpmm_context;

/* A stream as the calling thread means it now; a value, valid while that thread may use the handle.
 */
struct vpmm_stream {
    struct vpmm_context *context;
    vpmm_stream_handle handle;
    uint64_t
        id; /* unique for ever, over all contexts; 0 while it captures: to ask would end that */
    bool is_legacy;
    bool is_blocking; /* synchronises with the legacy stream, and is not that itself */
    bool is_capturing;
};

/* NO_METADATA. `driver` and `memory` outlive the order. */
VPMM_MUST_CHECK enum vpmm_status vpmm_order_create(const struct vpmm_driver *driver,
                                                   const struct vpmm_memory *memory,
                                                   struct vpmm_order **order_out);
/* Destroys all events (driver) and gives all memory back. For tests: a host program never tears us
 * down. */
void vpmm_order_destroy(struct vpmm_order *order);

/* ---- contexts and streams ---- */

/* The record of the context `handle` (NULL: the calling thread's current one), made on first sight
 * (driver). While a context is leaving, its id tells whether the handle is another's already;
 * before driver 12.0, which has no ids, the end of that is awaited. A current green context means
 * its primary one. NO_CONTEXT, CONTEXT_GONE, NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_order_context(struct vpmm_order *order,
                                                    vpmm_context_handle handle,
                                                    struct vpmm_context **context_out);
uint64_t vpmm_context_id(const struct vpmm_context *context); /* unique for ever, never 0 */
int vpmm_context_device(const struct vpmm_context *context);
bool vpmm_context_is_gone(const struct vpmm_context *context);
vpmm_context_handle vpmm_context_raw(const struct vpmm_context *context); /* the driver's handle */
/* The record with that id, or NULL. */
struct vpmm_context *vpmm_order_context_by_id(struct vpmm_order *order, uint64_t id);

/* What `handle` means to the calling thread (driver). The statuses of the seam's stream_facts, and
 * NO_METADATA. Before driver 12.0 the id is made from the handle and a generation that
 * vpmm_order_stream_gone bumps. */
VPMM_MUST_CHECK enum vpmm_status vpmm_order_stream(struct vpmm_order *order,
                                                   vpmm_stream_handle handle,
                                                   struct vpmm_stream *stream_out);

/* The same from what the calling thread remembers, checked with the fewest driver calls; NULL:
 * vpmm_order_stream has to look. Not while anything captures. Valid until the thread's next call
 * here. */
const struct vpmm_stream *vpmm_order_recall(struct vpmm_order *order, vpmm_stream_handle handle);
/* The same as it was when the calling thread last asked, without any driver call; NULL: not
 * remembered. */
const struct vpmm_stream *vpmm_order_remembered(struct vpmm_order *order,
                                                vpmm_stream_handle handle);
/* To be called before the real cuStreamDestroy of `handle` (driver): its id ends (where ids are
 * ours), its mark goes, and a capture that it began no longer counts. Fences recorded on it stay
 * valid. */
void vpmm_order_stream_gone(struct vpmm_order *order, vpmm_stream_handle handle);

/* A call under way that destroys a context, or may do so. */
struct vpmm_departure {
    struct vpmm_context *context; /* NULL: it is not known */
    bool is_ending;
};

/* Before a call that destroys the context (`is_ending`), or gives up a reference to it that may be
 * the last one. From now on no event of it is touched; while only a reference is given up, calls of
 * the program that use the context themselves still do, and this does not wait for calls that wait
 * for work of the context. `left` must follow. */
struct vpmm_departure vpmm_order_context_leaving(struct vpmm_order *order,
                                                 vpmm_context_handle handle, bool is_ending);
/* The real call returned. Destroyed: every fence of the context is complete and its record is gone.
 * Not destroyed: it goes on as before. */
void vpmm_order_context_left(struct vpmm_order *order, const struct vpmm_departure *departure,
                             bool destroyed);
/* Whether the driver knows the context by its handle, and no other by now (driver). Before driver
 * 12.0, where contexts have no ids, another one counts as the same. */
bool vpmm_order_context_lives(struct vpmm_order *order, const struct vpmm_context *context);
/* The program got this handle of a context that is new, or may have existed before (driver): a
 * record of another context that had it is gone. */
void vpmm_order_context_made(struct vpmm_order *order, vpmm_context_handle handle, bool is_new);
/* The id of a context that is gone, each one once; 0: there is none. No driver. */
uint64_t vpmm_order_next_gone(struct vpmm_order *order);

/* ---- fences ---- */

/* A fence for all work queued on `stream` until now (driver). The calling thread is inside a free
 * on that stream, so the handle is alive. Cannot fail: where no event can be recorded it becomes a
 * context fence, and where that cannot be recorded either, the context's parked fence.
 * VPMM_FENCE_NONE when the context is gone. */
vpmm_fence vpmm_order_fence_stream(struct vpmm_order *order, const struct vpmm_stream *stream);

/* A fence for all work queued in `context` until now (driver). `bare_waits`: bare CUDA would wait
 * for that work now, so it may be waited for later. Cannot fail: parked while
 * a capture is under way in the context. Where the driver cannot record a context, waits for the
 * context as bare CUDA would have and returns VPMM_FENCE_NONE if that succeeded. `status_out`: what
 * the wait answered; of a record only BROKEN and SHUT_DOWN; otherwise OK. */
vpmm_fence vpmm_order_fence_context(struct vpmm_order *order, struct vpmm_context *context,
                                    bool bare_waits, enum vpmm_status *status_out);

/* Whether the calling thread's current context lives and has no record (driver). */
bool vpmm_order_misses_current(struct vpmm_order *order, vpmm_context_handle *handle_out);

/* A fence for all work queued in any context until now, where nobody can tell in which: what is
 * parked in each context that has a record, the current one included where that can be had
 * (driver). Nobody waits for it. VPMM_FENCE_NONE where there is no such context. NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_order_fence_all(struct vpmm_order *order,
                                                      vpmm_fence *fence_out);

/* ---- batches: frees of one stream that share one fence ---- */

/* A fence of `stream` that is open: it stands for the work queued before whatever free joins it,
 * which needs no call here. Later work of the stream comes after it; for everybody else it is
 * pending until it is closed and complete. VPMM_FENCE_NONE without memory, and where the context is
 * gone. No driver. */
vpmm_fence vpmm_order_open(struct vpmm_order *order, const struct vpmm_stream *stream);
/* Closes an open fence that no free joins any more, by a record on `stream`, on which it was opened
 * and the calling thread is inside a free (driver). `is_alone`: that free is the only one that
 * joined. It is closed in any case, see vpmm_order_fence_stream. BROKEN and SHUT_DOWN: the program
 * should hear of it; otherwise OK. */
VPMM_MUST_CHECK enum vpmm_status vpmm_order_close(struct vpmm_order *order, vpmm_fence fence,
                                                  const struct vpmm_stream *stream, bool is_alone);
/* The same for whoever is inside no such free: by one record of each context, as far as there is
 * one that can be recorded, for all `n` fences (driver). Those closed already are left alone. */
void vpmm_order_close_all(struct vpmm_order *order, const vpmm_fence *fences, size_t n);

/* ---- marks: the order that an allocation or a free leaves in bare CUDA ---- */

/* While `*has_blocking` is false, which must not become false again, the program has no blocking
 * stream beside legacy ones: nobody can notice what a free on the legacy stream orders, and it
 * leaves no mark. Without this call there may always be one. Before any other thread calls. */
void vpmm_order_watch_streams(struct vpmm_order *order, const vpmm_atomic32 *has_blocking);

/* Whether a free on that stream leaves a mark now. Any thread; no driver. */
bool vpmm_order_marks_free(const struct vpmm_order *order, const struct vpmm_stream *stream);

/* On the legacy stream a free makes later work on blocking streams of the context come after what
 * they were given before; an allocation leaves nothing, and has no mark. On a blocking stream
 * either comes after the legacy stream's pending work: a query or a synchronisation of the stream,
 * which vpmm_order_mark_query completes, sees that. Other streams need no mark, and get none
 * (driver). BROKEN and SHUT_DOWN: the program should hear of it; otherwise OK. `bytes`: what the
 * stream may take again without a mark; 0 where the block is none of CUDA's pool. */
VPMM_MUST_CHECK enum vpmm_status
vpmm_order_mark_free(struct vpmm_order *order, const struct vpmm_stream *stream, uint64_t bytes);
/* No mark where the stream takes so much of what it freed itself, and since then neither the
 * program waited for the stream nor vpmm_order_collect was called (source:
 * test/programs/renewals.c). `is_own`: the memory waits for nothing but the stream itself. */
void vpmm_order_mark_malloc(struct vpmm_order *order, const struct vpmm_stream *stream,
                            uint64_t bytes, bool is_own);
/* From now on no stream takes what it freed before: a synchronisation of a context or an event has
 * told of the frees, or the pool has grown. Any thread; no driver, no lock. */
void vpmm_order_collect(struct vpmm_order *order);
/* NOT_READY while what the stream's last mark comes after is pending, otherwise OK (driver). The
 * capture rules of event_query are kept. */
VPMM_MUST_CHECK enum vpmm_status vpmm_order_mark_query(struct vpmm_order *order,
                                                       vpmm_stream_handle handle);
/* The stream's last mark as it is now, kept until `await` (driver, to tell the stream). False: it
 * has none that is pending. */
struct vpmm_mark_hold {
    uint64_t stream_id, n_records;
    vpmm_event_handle handle;
    uint32_t event;
};
bool vpmm_order_mark_hold(struct vpmm_order *order, vpmm_stream_handle handle,
                          struct vpmm_mark_hold *hold_out);
/* Waits on the host for what the mark comes after, if `waits`, and ends the hold (driver). */
void vpmm_order_mark_await(struct vpmm_order *order, const struct vpmm_mark_hold *hold, bool waits);
/* Whether any stream may have a mark. No driver, no lock. */
bool vpmm_order_has_marks(const struct vpmm_order *order);

/* ---- fences, recorded or not ---- */

/* A fence that is complete when both are; possibly one of them; VPMM_FENCE_NONE when both are known
 * complete, or when memory for a new one cannot be had (the caller tells by asking: see struct
 * vpmm_fence_view). No driver. */
vpmm_fence vpmm_order_join(struct vpmm_order *order, vpmm_fence a, vpmm_fence b);

/* Whether all work that `fence` stands for comes before later work of the stream with `stream_id`,
 * or is known complete. stream_id 0: only completion counts. A parked fence is pending for
 * everybody. No driver, no lock. */
enum vpmm_verdict vpmm_order_ask(const struct vpmm_order *order, vpmm_fence fence,
                                 uint64_t stream_id);

/* Whether a fence recorded on `stream_id` in `context_id` now would also cover `fence`. No driver.
 */
bool vpmm_order_covers(const struct vpmm_order *order, vpmm_fence fence, uint64_t context_id,
                       uint64_t stream_id);

/* Of two fences that stand for work of one stream the one that is complete only when both are;
 * VPMM_FENCE_NONE where that is not known of either. No driver, no lock. */
vpmm_fence vpmm_order_later(const struct vpmm_order *order, vpmm_fence a, vpmm_fence b);

/* Records parked fences whose context now allows it, and learns which recorded fences have
 * completed: per stream, the oldest first (without it no other has), then the newest (it vouches
 * for all older ones), then the others until one is not complete (driver). True if any fence became
 * complete. */
bool vpmm_order_poll(struct vpmm_order *order);
/* The same for who asks again soon: streams that were found busy are passed over once, twice, four
 * times..., VPMM_PASSES_MAX times at most, before they are asked again. A bounded number of streams
 * is asked, the next ones by the next glance. `has_passed_out`: there are others. */
#define VPMM_PASSES_MAX 8u
bool vpmm_order_glance(struct vpmm_order *order, bool *has_passed_out);
/* The same for a request that found nothing after its glance. Streams that glances pass over are
 * asked, too. How many depends on how many earlier glances did not need to ask. */
bool vpmm_order_poll_more(struct vpmm_order *order, bool *has_passed_out);
/* Polls where twice as many fences, or more, are not known complete as the last time: for who
 * records and never polls, so that events are used again. */
void vpmm_order_tidy(struct vpmm_order *order);

/* Fences are numbered in the order in which they are made: those that exist are below the answer,
 * and later ones above it. */
vpmm_fence vpmm_order_newest(struct vpmm_order *order);

/* How many fences have completed, ever: while it stays the same, no answer of vpmm_order_ask turns
 * COMPLETE. No driver, no lock. */
uint64_t vpmm_order_completions(const struct vpmm_order *order);

/* What may be waited for, by whom (docs/DESIGN.md, "Waiting"). */
enum vpmm_wait {
    VPMM_WAIT_OWN_CALL, /* its event was recorded in the free itself, on the whole context: bare
                           cudaFree waited there */
    VPMM_WAIT_STREAM,   /* its event was recorded in the free itself, on one stream */
    VPMM_WAIT_NEVER,    /* its event covers work queued after the free, or has not been recorded */
};
/* The weakest of all parts of `fence`. A complete fence is OWN_CALL. No driver. */
enum vpmm_wait vpmm_order_wait_kind(const struct vpmm_order *order, vpmm_fence fence);
/* Nobody may wait for `fence`, which the calling thread has just got and told nobody of. No driver.
 */
void vpmm_order_forbid_wait(struct vpmm_order *order, vpmm_fence fence);
/* Whether bare CUDA made the calling thread wait on the host for all that `fence` stands for: in a
 * cudaFree of its own, or, where it is in a cudaMalloc of `context` (NULL: it is not), in any
 * thread's cudaFree of that context's memory. No driver. */
bool vpmm_order_may_wait_host(struct vpmm_order *order, vpmm_fence fence,
                              const struct vpmm_context *context);
/* Whether `stream` may wait for it on the device: only for frees on streams of its own context.
 * What a cudaFree waits for may need that very stream. No driver. */
bool vpmm_order_may_wait_stream(const struct vpmm_order *order, vpmm_fence fence,
                                const struct vpmm_stream *stream);

/* Waits on the host until `fence` is complete (driver; no lock held meanwhile). INVALID for a fence
 * that may never be waited for; BROKEN and SHUT_DOWN: the device will tell everybody. A context
 * destroyed meanwhile completes it. */
VPMM_MUST_CHECK enum vpmm_status vpmm_order_wait_host(struct vpmm_order *order, vpmm_fence fence);

/* Waits on the host for all work of `context`, as bare cudaFree does (driver, in relaxed capture
 * mode). The driver's answer, so that a sticky error is seen; OK at once for a context that is
 * gone. */
VPMM_MUST_CHECK enum vpmm_status vpmm_order_wait_context(struct vpmm_order *order,
                                                         struct vpmm_context *context);
/* The same for who has to know: CAPTURED or NOT_READY where a capture is in the way, and nothing
 * was waited for. */
VPMM_MUST_CHECK enum vpmm_status vpmm_order_drain_context(struct vpmm_order *order,
                                                          struct vpmm_context *context);

/* The same for whoever asks for that very wait, whatever the fence covers. A part whose record a
 * capture keeps from being made is not waited for (CAPTURED), nor one of a batch that is open
 * (NOT_READY, unless something else fails); and one that cannot be does not keep the others from
 * being waited for: the first failure is told, and what failed stays as it was. */
VPMM_MUST_CHECK enum vpmm_status vpmm_order_synchronize(struct vpmm_order *order, vpmm_fence fence);

/* Makes later work of `stream` wait for `fence` on the device (driver). All or nothing is not
 * promised: after a failure some parts may be waited for, which is harmless. INVALID as above. */
VPMM_MUST_CHECK enum vpmm_status vpmm_order_wait_stream(struct vpmm_order *order, vpmm_fence fence,
                                                        const struct vpmm_stream *stream);

/* A copy of what is known of a fence, for dumps: no driver, no lock, also in a signal handler. */
struct vpmm_fence_facts {
    enum vpmm_fence_kind {
        VPMM_FENCE_IS_COMPLETE,
        VPMM_FENCE_IS_STREAM,
        VPMM_FENCE_IS_CONTEXT,
        VPMM_FENCE_IS_PARKED,
        VPMM_FENCE_IS_OPEN,
        VPMM_FENCE_IS_JOINED
    } kind;
    uint64_t stream_id, context_id;
};
void vpmm_order_facts(const struct vpmm_order *order, vpmm_fence fence,
                      struct vpmm_fence_facts *facts_out);

/* How many events exist, fences are in the table and contexts were met: for tests. */
struct vpmm_order_totals {
    uint64_t events, fences, contexts;
};
void vpmm_order_totals(const struct vpmm_order *order, struct vpmm_order_totals *totals_out);

/* How an order lies in memory: see base/layout.h. */
uint64_t vpmm_order_layout(void);

/* ---- the capture gate ---- */

/* Around the real cuStreamBeginCapture: waits for records under way in any context (they are short
 * and never wait for the device), then keeps new ones out. One gate for all contexts, because a
 * capture may draw in streams of any of them. Returns a ticket for the matching `began`: a capture
 * of a stream that cannot be told counts, too. Driver. */
struct vpmm_context *vpmm_order_capture_begin(struct vpmm_order *order, vpmm_stream_handle handle);
/* The real call returned. Begun: the capture counts until its end. */
void vpmm_order_capture_began(struct vpmm_order *order, struct vpmm_context *ticket,
                              vpmm_stream_handle handle, bool begun);
/* After the real cuStreamEndCapture of `handle`: the capture no longer counts where that succeeded,
 * unless the stream captures again (`ended`), or else if it is known to capture no longer
 * (`recheck`). A stream that never began one is ignored. Driver. */
void vpmm_order_capture_ended(struct vpmm_order *order, vpmm_stream_handle handle);
void vpmm_order_capture_recheck(struct vpmm_order *order, vpmm_stream_handle handle);
/* How many captures count now, in all contexts. */
uint32_t vpmm_order_captures(const struct vpmm_order *order);

#endif
