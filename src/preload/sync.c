/* SPDX-License-Identifier: MIT */
/* The wrappers of calls with which a program waits for work or asks about it. At a wait CUDA's
 * memory pools give back what they hold beyond a threshold that the program set. A blocking stream
 * is idle only when the mark of its last allocation or free is complete, too. */
#include "preload/entry.h"
#include "preload/original.h"
#include "preload/stream.h"

static CUresult synchronised(CUresult result)
{
    struct vpmm_router *router = result == CUDA_SUCCESS ? vpmm_enter() : NULL;
    if (!router)
        return result;
    vpmm_router_synchronised(router);
    vpmm_leave();
    return result;
}

CUresult vpmm_wrap_cuCtxSynchronize(void)
{
    vpmm_code *original = vpmm_original_at(VPMM_API_cuCtxSynchronize);
    return original ? synchronised(((cuCtxSynchronize_fn *)original)())
                    : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult vpmm_wrap_cuCtxSynchronize_v2(CUcontext context)
{
    return synchronised(VPMM_ORIGINAL(cuCtxSynchronize_v2, context));
}

/* ---- queries ---- */

static bool is_marked(vpmm_stream_handle stream)
{
    struct vpmm_router *router = vpmm_enter();
    if (!router)
        return false;
    struct vpmm_order *order = vpmm_router_order(router);
    bool is_pending =
        vpmm_order_has_marks(order) && vpmm_order_mark_query(order, stream) == VPMM_NOT_READY;
    vpmm_leave();
    return is_pending;
}

static CUresult answer(bool is_marked, CUresult result)
{
    return is_marked && result == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : result;
}

CUresult vpmm_wrap_cuStreamQuery(CUstream stream)
{
    bool has_mark = is_marked(vpmm_stream_of(stream, VPMM_STREAM_LEGACY));
    return answer(has_mark, VPMM_ORIGINAL(cuStreamQuery, stream));
}

CUresult vpmm_wrap_cuStreamQuery_ptsz(CUstream stream)
{
    bool has_mark = is_marked(vpmm_stream_of(stream, VPMM_STREAM_PER_THREAD));
    return answer(has_mark, VPMM_ORIGINAL(cuStreamQuery_ptsz, stream));
}

/* ---- waits ---- */

/* The mark is held before the driver waits: what other threads do to the stream meanwhile does not
 * count. */
static bool hold(vpmm_stream_handle stream, struct vpmm_mark_hold *hold_out)
{
    struct vpmm_router *router = vpmm_enter();
    if (!router)
        return false;
    bool is_held = vpmm_order_mark_hold(vpmm_router_order(router), stream, hold_out);
    vpmm_leave();
    return is_held;
}

static CUresult waited(bool is_held, const struct vpmm_mark_hold *hold, CUresult result)
{
    struct vpmm_router *router = is_held ? vpmm_enter() : NULL;
    if (router) {
        vpmm_order_mark_await(vpmm_router_order(router), hold, result == CUDA_SUCCESS);
        vpmm_leave();
    }
    return synchronised(result);
}

CUresult vpmm_wrap_cuStreamSynchronize(CUstream stream)
{
    struct vpmm_mark_hold mark;
    bool is_held = hold(vpmm_stream_of(stream, VPMM_STREAM_LEGACY), &mark);
    return waited(is_held, &mark, VPMM_ORIGINAL(cuStreamSynchronize, stream));
}

CUresult vpmm_wrap_cuStreamSynchronize_ptsz(CUstream stream)
{
    struct vpmm_mark_hold mark;
    bool is_held = hold(vpmm_stream_of(stream, VPMM_STREAM_PER_THREAD), &mark);
    return waited(is_held, &mark, VPMM_ORIGINAL(cuStreamSynchronize_ptsz, stream));
}

CUresult vpmm_wrap_cuEventSynchronize(CUevent event)
{
    return synchronised(VPMM_ORIGINAL(cuEventSynchronize, event));
}
