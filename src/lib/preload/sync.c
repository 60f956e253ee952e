/* SPDX-License-Identifier: MIT */
/* The wrappers of calls with which a program waits for work or asks about it. What they prove
 * complete needs no query of ours. At a wait CUDA's memory pools give back what they hold beyond a
 * threshold that the program set. A blocking stream is idle only when the mark of its last
 * allocation or free is complete, too. Must not make the program wait for more than that. */
#include "order/order_program.h"
#include "preload/entry.h"
#include "preload/original.h"
#include "preload/wrap_stream.h"

static void clear(struct vpmm_proof *proof)
{
    proof->n = 0;
    proof->moment = 0;
}

/* No free is pending and no stream has a mark: there is nothing to learn or to wait for. */
static VPMM_INLINE bool is_quiet(void)
{
    const struct vpmm_order *order = vpmm_order_present();
    return !order || (!vpmm_order_has_pending(order) && !vpmm_order_has_marks(order));
}

/* NULL: there is nothing to learn. Until vpmm_leave. */
static struct vpmm_order *enter(struct vpmm_proof *proof_out)
{
    struct vpmm_router *router = vpmm_enter();
    clear(proof_out);
    return router ? vpmm_router_order(router) : NULL;
}

static CUresult over(const struct vpmm_proof *proof, bool has_waited, CUresult result)
{
    bool is_proven = proof->n || proof->moment;
    struct vpmm_router *router =
        result == CUDA_SUCCESS && (has_waited || is_proven) ? vpmm_enter() : NULL;
    if (!router)
        return result;
    if (is_proven)
        vpmm_order_proven(vpmm_router_order(router), proof);
    if (has_waited)
        vpmm_router_synchronised(router);
    vpmm_leave();
    return result;
}

/* ---- contexts ---- */

static void prove_context(CUcontext context, struct vpmm_proof *proof_out)
{
    struct vpmm_order *order = enter(proof_out);
    if (!order)
        return;
    vpmm_order_collect(order);
    vpmm_order_prove_context(order, vpmm_context_of(context), proof_out);
    vpmm_leave();
}

CUresult vpmm_wrap_cuCtxSynchronize(void)
{
    vpmm_code *original = vpmm_original_at(VPMM_API_cuCtxSynchronize);
    struct vpmm_proof proof;
    prove_context(NULL, &proof);
    return original ? over(&proof, true, ((cuCtxSynchronize_fn *)original)())
                    : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult vpmm_wrap_cuCtxSynchronize_v2(CUcontext context)
{
    struct vpmm_proof proof;
    prove_context(context, &proof);
    return over(&proof, true, VPMM_ORIGINAL(cuCtxSynchronize_v2, context));
}

/* ---- streams ---- */

/* What is remembered of a stream over the original call. The mark is held before the driver waits:
 * what other threads do to the stream meanwhile does not count. */
struct wait {
    struct vpmm_proof proof;
    bool is_held;
    struct vpmm_mark_hold mark;
};

static void begin_wait(vpmm_stream_handle stream, struct wait *wait_out)
{
    struct vpmm_order *order = enter(&wait_out->proof);
    wait_out->is_held = false;
    if (!order)
        return;
    vpmm_order_prove_stream(order, stream, &wait_out->proof);
    wait_out->is_held = vpmm_order_mark_hold(order, stream, &wait_out->mark);
    vpmm_leave();
}

/* Waits for the mark too, where the original's answer is that the stream is idle. */
static void end_wait(const struct wait *wait, CUresult result)
{
    struct vpmm_router *router = vpmm_enter();
    if (!router)
        return;
    vpmm_order_mark_await(vpmm_router_order(router), &wait->mark, result == CUDA_SUCCESS);
    vpmm_leave();
}

/* Of a thread that ends in one of the two waits, maybe inside us: its context could not be
 * destroyed before the mark is given back. */
static void abandon_wait(void *self)
{
    const struct wait *wait = self;
    struct vpmm_order *order = vpmm_order_present();
    vpmm_leave();
    if (order)
        vpmm_order_mark_await(order, &wait->mark, false);
}

static CUresult wait_marked(cuStreamSynchronize_fn *original, CUstream stream, struct wait *wait)
{
    CUresult result;
    VPMM_UNDO_IF_CANCELLED(abandon_wait, wait, {
        result = original(stream);
        end_wait(wait, result);
    });
    return result;
}

/* After a wait that proves nothing. */
static CUresult waited(CUresult result)
{
    struct vpmm_router *router = result == CUDA_SUCCESS ? vpmm_enter() : NULL;
    if (router) {
        vpmm_router_synchronised(router);
        vpmm_leave();
    }
    return result;
}

static VPMM_INLINE CUresult wait_for_stream(enum vpmm_api api, CUstream stream,
                                            vpmm_stream_handle null_stream)
{
    struct wait wait;
    cuStreamSynchronize_fn *original = (cuStreamSynchronize_fn *)vpmm_original_at(api);
    if (!original)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (is_quiet())
        return waited(original(stream));
    begin_wait(vpmm_stream_of(stream, null_stream), &wait);
    CUresult result = wait.is_held ? wait_marked(original, stream, &wait) : original(stream);
    return over(&wait.proof, true, result);
}

CUresult vpmm_wrap_cuStreamSynchronize(CUstream stream)
{
    return wait_for_stream(VPMM_API_cuStreamSynchronize, stream, VPMM_STREAM_LEGACY);
}

CUresult vpmm_wrap_cuStreamSynchronize_ptsz(CUstream stream)
{
    return wait_for_stream(VPMM_API_cuStreamSynchronize_ptsz, stream, VPMM_STREAM_PER_THREAD);
}

/* False: a mark is not complete. */
static bool begin_query(vpmm_stream_handle stream, struct vpmm_proof *proof_out)
{
    struct vpmm_order *order = enter(proof_out);
    if (!order)
        return true;
    vpmm_order_prove_stream(order, stream, proof_out);
    bool is_idle =
        !vpmm_order_has_marks(order) || vpmm_order_mark_query(order, stream) != VPMM_NOT_READY;
    vpmm_leave();
    return is_idle;
}

#define QUERIES(name, null_stream)                                                                 \
    CUresult vpmm_wrap_##name(CUstream stream)                                                     \
    {                                                                                              \
        struct vpmm_proof proof;                                                                   \
        if (is_quiet())                                                                            \
            return VPMM_ORIGINAL_AT(VPMM_API_##name, name##_fn, stream);                           \
        bool is_idle = begin_query(vpmm_stream_of(stream, null_stream), &proof);                   \
        CUresult result = VPMM_ORIGINAL_AT(VPMM_API_##name, name##_fn, stream);                    \
        return !is_idle && result == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY                           \
                                                  : over(&proof, false, result);                   \
    }

QUERIES(cuStreamQuery, VPMM_STREAM_LEGACY)
QUERIES(cuStreamQuery_ptsz, VPMM_STREAM_PER_THREAD)

/* ---- events ---- */

static void prove_event(CUevent event, struct vpmm_proof *proof_out)
{
    struct vpmm_order *order = vpmm_order_present();
    clear(proof_out);
    if (order && vpmm_order_has_pending(order))
        vpmm_order_prove_event(order, (vpmm_event_handle)(void *)event, proof_out);
}

CUresult vpmm_wrap_cuEventSynchronize(CUevent event)
{
    struct vpmm_proof proof;
    if (is_quiet())
        return waited(VPMM_ORIGINAL(cuEventSynchronize, event));
    vpmm_order_collect(vpmm_order_present());
    prove_event(event, &proof);
    return over(&proof, true, VPMM_ORIGINAL(cuEventSynchronize, event));
}

CUresult vpmm_wrap_cuEventQuery(CUevent event)
{
    struct vpmm_proof proof;
    if (is_quiet())
        return VPMM_ORIGINAL(cuEventQuery, event);
    prove_event(event, &proof);
    return over(&proof, false, VPMM_ORIGINAL(cuEventQuery, event));
}
