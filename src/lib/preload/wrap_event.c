/* SPDX-License-Identifier: MIT */
/* The wrappers around events: the originals do the work, src/lib/order learns from it which stream
 * comes after which frees. The program's answer must not change. The thread must not count as
 * inside us during the original call, but only while we tell src/lib/order. */
#include "order/order_program.h"
#include "preload/entry.h"
#include "preload/original.h"
#include "preload/wrap_stream.h"

static vpmm_event_handle event_of(CUevent event)
{
    return (vpmm_event_handle)(void *)event;
}

/* ---- records ---- */

/* False: nobody needs to know, and `recorded` need not follow. */
static VPMM_INLINE bool recording(CUevent event, vpmm_stream_handle stream,
                                  struct vpmm_event_points *points_out)
{
    const struct vpmm_order *order = vpmm_order_present();
    struct vpmm_router *router = order && vpmm_order_learns(order) ? vpmm_enter() : NULL;
    if (!router)
        return false;
    vpmm_order_event_recording(vpmm_router_order(router), event_of(event), stream, points_out);
    vpmm_leave();
    return true;
}

static VPMM_INLINE CUresult recorded(CUevent event, struct vpmm_event_points *points,
                                     CUresult result)
{
    struct vpmm_order *order = vpmm_order_present();
    if (order)
        vpmm_order_event_recorded(order, event_of(event), points, result == CUDA_SUCCESS);
    return result;
}

/* An event may be recorded from now on where nobody sees it: no order is learnt from events any
 * more. */
static void blind(void)
{
    struct vpmm_router *router = vpmm_enter();
    if (!router)
        return;
    vpmm_order_blind(vpmm_router_order(router));
    vpmm_leave();
}

/* The wrapper `name`, which records `event` on `stream`; NULL: on a context. */
#define RECORDS(name, parameters, stream, ...)                                                     \
    CUresult vpmm_wrap_##name parameters                                                           \
    {                                                                                              \
        struct vpmm_event_points points;                                                           \
        if (!recording(event, stream, &points))                                                    \
            return VPMM_ORIGINAL_AT(VPMM_API_##name, name##_fn, __VA_ARGS__);                      \
        return recorded(event, &points,                                                            \
                        VPMM_ORIGINAL_AT(VPMM_API_##name, name##_fn, __VA_ARGS__));                \
    }

RECORDS(cuEventRecord, (CUevent event, CUstream stream), vpmm_stream_of(stream, VPMM_STREAM_LEGACY),
        event, stream)
RECORDS(cuEventRecord_ptsz, (CUevent event, CUstream stream),
        vpmm_stream_of(stream, VPMM_STREAM_PER_THREAD), event, stream)

/* With a flag, a capture gets a node that records the event at each launch. */
static VPMM_INLINE vpmm_stream_handle flagged(unsigned flags, CUstream stream,
                                              vpmm_stream_handle null_stream)
{
    if (flags)
        blind();
    return vpmm_stream_of(stream, null_stream);
}

RECORDS(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags),
        flagged(flags, stream, VPMM_STREAM_LEGACY), event, stream, flags)
RECORDS(cuEventRecordWithFlags_ptsz, (CUevent event, CUstream stream, unsigned flags),
        flagged(flags, stream, VPMM_STREAM_PER_THREAD), event, stream, flags)

/* Bare CUDA reuses nothing because of these either (measured: test/programs/reuse.c). */
RECORDS(cuCtxRecordEvent, (CUcontext context, CUevent event), NULL, context, event)
RECORDS(cuGreenCtxRecordEvent, (void *green, CUevent event), NULL, green, event)

/* ---- waits ---- */

/* False: there is nothing to learn. */
static VPMM_INLINE bool waiting(CUevent event, struct vpmm_event_points *points_out)
{
    struct vpmm_order *order = vpmm_order_present();
    if (!order || !vpmm_order_has_pending(order))
        return false;
    vpmm_order_event_waiting(order, event_of(event), points_out);
    return points_out->n != 0;
}

static VPMM_INLINE CUresult waited(CUevent event, vpmm_stream_handle stream,
                                   const struct vpmm_event_points *points, CUresult result)
{
    struct vpmm_router *router = result == CUDA_SUCCESS ? vpmm_enter() : NULL;
    if (!router)
        return result;
    vpmm_order_event_waited(vpmm_router_order(router), event_of(event), stream, points);
    vpmm_leave();
    return result;
}

#define WAITS(name, null_stream)                                                                   \
    CUresult vpmm_wrap_##name(CUstream stream, CUevent event, unsigned flags)                      \
    {                                                                                              \
        vpmm_stream_handle handle = vpmm_stream_of(stream, null_stream);                           \
        struct vpmm_event_points points;                                                           \
        if (!waiting(event, &points))                                                              \
            return VPMM_ORIGINAL_AT(VPMM_API_##name, name##_fn, stream, event, flags);             \
        return waited(event, handle, &points,                                                      \
                      VPMM_ORIGINAL_AT(VPMM_API_##name, name##_fn, stream, event, flags));         \
    }

WAITS(cuStreamWaitEvent, VPMM_STREAM_LEGACY)
WAITS(cuStreamWaitEvent_ptsz, VPMM_STREAM_PER_THREAD)

/* ---- what ends what is known of an event ---- */

void vpmm_forget_event(CUevent event)
{
    struct vpmm_order *order = vpmm_order_present();
    if (order && vpmm_order_learns(order))
        vpmm_order_event_gone(order, event_of(event));
}

VPMM_FIRST(vpmm_forget_event(event), cuEventDestroy, (CUevent event), event)
VPMM_FIRST(vpmm_forget_event(event), cuEventDestroy_v2, (CUevent event), event)

/* ---- records that nobody sees ---- */

VPMM_FIRST(blind(), cuIpcGetEventHandle, (VPMM_WORDS_2), VPMM_ARGUMENTS_2)
/* Another process records it. */
VPMM_FIRST(blind(), cuIpcOpenEventHandle, (CUevent * event_out, CUipcEventHandle handle), event_out,
           handle)
VPMM_FIRST(blind(), cuGraphAddEventRecordNode, (VPMM_WORDS_5), VPMM_ARGUMENTS_5)
VPMM_FIRST(blind(), cuGraphEventRecordNodeSetEvent, (VPMM_WORDS_2), VPMM_ARGUMENTS_2)
VPMM_FIRST(blind(), cuGraphExecEventRecordNodeSetEvent, (VPMM_WORDS_3), VPMM_ARGUMENTS_3)

/* A node's parameters begin with its type. */
static void see_node(const void *params)
{
    if (params && *(const int *)params == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
        blind();
}

VPMM_FIRST(see_node(params), cuGraphAddNode, (VPMM_WORDS_4, void *params), VPMM_ARGUMENTS_4, params)
VPMM_FIRST(see_node(params), cuGraphAddNode_v2, (VPMM_WORDS_5, void *params), VPMM_ARGUMENTS_5,
           params)
VPMM_FIRST(see_node(params), cuGraphNodeSetParams, (VPMM_WORDS_1, void *params), VPMM_ARGUMENTS_1,
           params)
VPMM_FIRST(see_node(params), cuGraphExecNodeSetParams, (VPMM_WORDS_2, void *params),
           VPMM_ARGUMENTS_2, params)
