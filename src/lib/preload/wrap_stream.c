/* SPDX-License-Identifier: MIT */
/* The wrappers around the death of streams and around captures: the originals do the work,
 * src/lib/order hears of it. The thread must not count as inside us during the original call, but
 * only while we ask. */
#include "preload/wrap_stream.h"

#include "driver/cuda.h"
#include "preload/original.h"

#define IS_SPECIAL(stream)                                                                         \
    ((stream) == NULL || (stream) == CU_STREAM_LEGACY || (stream) == CU_STREAM_PER_THREAD)

/* Inside a host function the driver refuses, and the stream and its capture go on. */
static void stream_leaves(CUstream stream)
{
    struct vpmm_router *router = IS_SPECIAL(stream) ? NULL : vpmm_enter_served();
    if (!router)
        return;
    vpmm_router_stream_gone(router, vpmm_stream_of(stream, NULL));
    vpmm_leave();
}

CUresult vpmm_wrap_cuStreamDestroy(CUstream stream)
{
    stream_leaves(stream);
    return VPMM_ORIGINAL(cuStreamDestroy, stream);
}

CUresult vpmm_wrap_cuStreamDestroy_v2(CUstream stream)
{
    stream_leaves(stream);
    return VPMM_ORIGINAL(cuStreamDestroy_v2, stream);
}

/* Measured on driver 580: a free of an unknown address is refused with exactly the captures and
 * thread modes with which any allocation or free is, and otherwise is INVALID_VALUE and harmless.
 */
CUresult vpmm_capture_refusal(struct vpmm_router *router, vpmm_stream_handle stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!vpmm_order_captures(vpmm_router_order(router)))
        return CUDA_SUCCESS;
    if (stream &&
        (VPMM_ORIGINAL(cuStreamIsCapturing, (CUstream)(void *)stream, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE))
        return CUDA_SUCCESS;
    CUresult result = VPMM_ORIGINAL(cuMemFree_v2, VPMM_NO_ALLOCATION);
    return result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ? result : CUDA_SUCCESS;
}

CUresult vpmm_context_answer(void)
{
    int least, greatest;
    return VPMM_ORIGINAL(cuCtxGetStreamPriorityRange, &least, &greatest);
}

bool vpmm_context_is_broken(void)
{
    enum vpmm_status status = vpmm_cuda_status(vpmm_context_answer());
    return status == VPMM_BROKEN || status == VPMM_SHUT_DOWN;
}

/* A begin of capture that is under way. */
struct begin {
    struct vpmm_router *router; /* NULL: nobody to tell */
    struct vpmm_context *ticket;
    vpmm_stream_handle handle;
};

static struct begin capture_begins(CUstream stream, vpmm_stream_handle null_stream)
{
    struct begin begin = {.router = vpmm_enter(), .handle = vpmm_stream_of(stream, null_stream)};
    if (!begin.router)
        return begin;
    begin.ticket = vpmm_router_capture_begin(begin.router, begin.handle);
    vpmm_leave();
    return begin;
}

static CUresult capture_began(const struct begin *begin, CUresult result)
{
    if (begin->router)
        vpmm_order_capture_began(vpmm_router_order(begin->router), begin->ticket, begin->handle,
                                 result == CUDA_SUCCESS);
    return result;
}

CUresult vpmm_wrap_cuStreamBeginCapture(CUstream stream)
{
    struct begin begin = capture_begins(stream, VPMM_STREAM_LEGACY);
    return capture_began(&begin, VPMM_ORIGINAL(cuStreamBeginCapture, stream));
}

CUresult vpmm_wrap_cuStreamBeginCapture_ptsz(CUstream stream)
{
    struct begin begin = capture_begins(stream, VPMM_STREAM_PER_THREAD);
    return capture_began(&begin, VPMM_ORIGINAL(cuStreamBeginCapture_ptsz, stream));
}

CUresult vpmm_wrap_cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    struct begin begin = capture_begins(stream, VPMM_STREAM_LEGACY);
    return capture_began(&begin, VPMM_ORIGINAL(cuStreamBeginCapture_v2, stream, mode));
}

CUresult vpmm_wrap_cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    struct begin begin = capture_begins(stream, VPMM_STREAM_PER_THREAD);
    return capture_began(&begin, VPMM_ORIGINAL(cuStreamBeginCapture_v2_ptsz, stream, mode));
}

CUresult vpmm_wrap_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                               const CUgraphNode *nodes, const void *edges,
                                               size_t n, CUstreamCaptureMode mode)
{
    struct begin begin = capture_begins(stream, VPMM_STREAM_LEGACY);
    return capture_began(
        &begin, VPMM_ORIGINAL(cuStreamBeginCaptureToGraph, stream, graph, nodes, edges, n, mode));
}

CUresult vpmm_wrap_cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                                    const CUgraphNode *nodes, const void *edges,
                                                    size_t n, CUstreamCaptureMode mode)
{
    struct begin begin = capture_begins(stream, VPMM_STREAM_PER_THREAD);
    return capture_began(&begin, VPMM_ORIGINAL(cuStreamBeginCaptureToGraph_ptsz, stream, graph,
                                               nodes, edges, n, mode));
}

/* A refused end may leave the capture alive (the wrong thread asked) or not (work was left
 * unjoined): src/lib/order looks. */
static CUresult capture_ended(vpmm_stream_handle handle, CUresult result)
{
    struct vpmm_router *router = vpmm_enter();
    if (!router)
        return result;
    if (result == CUDA_SUCCESS)
        vpmm_order_capture_ended(vpmm_router_order(router), handle);
    else
        vpmm_order_capture_recheck(vpmm_router_order(router), handle);
    vpmm_leave();
    return result;
}

CUresult vpmm_wrap_cuStreamEndCapture(CUstream stream, CUgraph *graph_out)
{
    CUresult result = VPMM_ORIGINAL(cuStreamEndCapture, stream, graph_out);
    return capture_ended(vpmm_stream_of(stream, VPMM_STREAM_LEGACY), result);
}

CUresult vpmm_wrap_cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph_out)
{
    CUresult result = VPMM_ORIGINAL(cuStreamEndCapture_ptsz, stream, graph_out);
    return capture_ended(vpmm_stream_of(stream, VPMM_STREAM_PER_THREAD), result);
}
