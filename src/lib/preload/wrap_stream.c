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

VPMM_FIRST(stream_leaves(stream), cuStreamDestroy, (CUstream stream), stream)
VPMM_FIRST(stream_leaves(stream), cuStreamDestroy_v2, (CUstream stream), stream)

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

#define BEGINS(name, null_stream, parameters, ...)                                                 \
    CUresult vpmm_wrap_##name parameters                                                           \
    {                                                                                              \
        struct begin begin = capture_begins(stream, null_stream);                                  \
        return capture_began(&begin, VPMM_ORIGINAL_AT(VPMM_API_##name, name##_fn, __VA_ARGS__));   \
    }

BEGINS(cuStreamBeginCapture, VPMM_STREAM_LEGACY, (CUstream stream), stream)
BEGINS(cuStreamBeginCapture_ptsz, VPMM_STREAM_PER_THREAD, (CUstream stream), stream)
BEGINS(cuStreamBeginCapture_v2, VPMM_STREAM_LEGACY, (CUstream stream, VPMM_WORDS_1), stream,
       VPMM_ARGUMENTS_1)
BEGINS(cuStreamBeginCapture_v2_ptsz, VPMM_STREAM_PER_THREAD, (CUstream stream, VPMM_WORDS_1),
       stream, VPMM_ARGUMENTS_1)
BEGINS(cuStreamBeginCaptureToGraph, VPMM_STREAM_LEGACY, (CUstream stream, VPMM_WORDS_5), stream,
       VPMM_ARGUMENTS_5)
BEGINS(cuStreamBeginCaptureToGraph_ptsz, VPMM_STREAM_PER_THREAD, (CUstream stream, VPMM_WORDS_5),
       stream, VPMM_ARGUMENTS_5)

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
