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

/* The answer about a stream that the driver calls idle. */
static CUresult mark_asked(vpmm_stream_handle stream, bool waits, CUresult result)
{
    struct vpmm_router *router = result == CUDA_SUCCESS ? vpmm_enter() : NULL;
    if (!router)
        return result;
    struct vpmm_order *order = vpmm_router_order(router);
    if (vpmm_order_has_marks(order) &&
        vpmm_order_mark_state(order, stream, waits) == VPMM_NOT_READY)
        result = CUDA_ERROR_NOT_READY;
    vpmm_leave();
    return result;
}

CUresult vpmm_wrap_cuStreamQuery(CUstream stream)
{
    return mark_asked(vpmm_stream_of(stream, VPMM_STREAM_LEGACY), false,
                      VPMM_ORIGINAL(cuStreamQuery, stream));
}

CUresult vpmm_wrap_cuStreamQuery_ptsz(CUstream stream)
{
    return mark_asked(vpmm_stream_of(stream, VPMM_STREAM_PER_THREAD), false,
                      VPMM_ORIGINAL(cuStreamQuery_ptsz, stream));
}

CUresult vpmm_wrap_cuStreamSynchronize(CUstream stream)
{
    return synchronised(mark_asked(vpmm_stream_of(stream, VPMM_STREAM_LEGACY), true,
                                   VPMM_ORIGINAL(cuStreamSynchronize, stream)));
}

CUresult vpmm_wrap_cuStreamSynchronize_ptsz(CUstream stream)
{
    return synchronised(mark_asked(vpmm_stream_of(stream, VPMM_STREAM_PER_THREAD), true,
                                   VPMM_ORIGINAL(cuStreamSynchronize_ptsz, stream)));
}

CUresult vpmm_wrap_cuEventSynchronize(CUevent event)
{
    return synchronised(VPMM_ORIGINAL(cuEventSynchronize, event));
}
