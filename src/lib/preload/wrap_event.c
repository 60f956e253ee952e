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

CUresult vpmm_wrap_cuEventRecord(CUevent event, CUstream stream)
{
    struct vpmm_event_points points;
    if (!recording(event, vpmm_stream_of(stream, VPMM_STREAM_LEGACY), &points))
        return VPMM_ORIGINAL(cuEventRecord, event, stream);
    return recorded(event, &points, VPMM_ORIGINAL(cuEventRecord, event, stream));
}

CUresult vpmm_wrap_cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    struct vpmm_event_points points;
    if (!recording(event, vpmm_stream_of(stream, VPMM_STREAM_PER_THREAD), &points))
        return VPMM_ORIGINAL(cuEventRecord_ptsz, event, stream);
    return recorded(event, &points, VPMM_ORIGINAL(cuEventRecord_ptsz, event, stream));
}

/* With a flag, a capture gets a node that records the event at each launch. */
CUresult vpmm_wrap_cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    struct vpmm_event_points points;
    if (flags)
        blind();
    if (!recording(event, vpmm_stream_of(stream, VPMM_STREAM_LEGACY), &points))
        return VPMM_ORIGINAL(cuEventRecordWithFlags, event, stream, flags);
    return recorded(event, &points, VPMM_ORIGINAL(cuEventRecordWithFlags, event, stream, flags));
}

CUresult vpmm_wrap_cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned flags)
{
    struct vpmm_event_points points;
    if (flags)
        blind();
    if (!recording(event, vpmm_stream_of(stream, VPMM_STREAM_PER_THREAD), &points))
        return VPMM_ORIGINAL(cuEventRecordWithFlags_ptsz, event, stream, flags);
    return recorded(event, &points,
                    VPMM_ORIGINAL(cuEventRecordWithFlags_ptsz, event, stream, flags));
}

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

CUresult vpmm_wrap_cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    vpmm_stream_handle handle = vpmm_stream_of(stream, VPMM_STREAM_LEGACY);
    struct vpmm_event_points points;
    if (!waiting(event, &points))
        return VPMM_ORIGINAL(cuStreamWaitEvent, stream, event, flags);
    return waited(event, handle, &points, VPMM_ORIGINAL(cuStreamWaitEvent, stream, event, flags));
}

CUresult vpmm_wrap_cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned flags)
{
    vpmm_stream_handle handle = vpmm_stream_of(stream, VPMM_STREAM_PER_THREAD);
    struct vpmm_event_points points;
    if (!waiting(event, &points))
        return VPMM_ORIGINAL(cuStreamWaitEvent_ptsz, stream, event, flags);
    return waited(event, handle, &points,
                  VPMM_ORIGINAL(cuStreamWaitEvent_ptsz, stream, event, flags));
}

/* ---- what ends what is known of an event ---- */

void vpmm_forget_event(CUevent event)
{
    struct vpmm_order *order = vpmm_order_present();
    if (order && vpmm_order_learns(order))
        vpmm_order_event_gone(order, event_of(event));
}

CUresult vpmm_wrap_cuEventDestroy(CUevent event)
{
    vpmm_forget_event(event);
    return VPMM_ORIGINAL(cuEventDestroy, event);
}

CUresult vpmm_wrap_cuEventDestroy_v2(CUevent event)
{
    vpmm_forget_event(event);
    return VPMM_ORIGINAL(cuEventDestroy_v2, event);
}

/* Bare CUDA reuses nothing because of these either (measured: test/programs/reuse.c). */
CUresult vpmm_wrap_cuCtxRecordEvent(CUcontext context, CUevent event)
{
    struct vpmm_event_points points;
    if (!recording(event, NULL, &points))
        return VPMM_ORIGINAL(cuCtxRecordEvent, context, event);
    return recorded(event, &points, VPMM_ORIGINAL(cuCtxRecordEvent, context, event));
}

CUresult vpmm_wrap_cuGreenCtxRecordEvent(void *green, CUevent event)
{
    struct vpmm_event_points points;
    if (!recording(event, NULL, &points))
        return VPMM_ORIGINAL(cuGreenCtxRecordEvent, green, event);
    return recorded(event, &points, VPMM_ORIGINAL(cuGreenCtxRecordEvent, green, event));
}

/* ---- records that nobody sees ---- */

CUresult vpmm_wrap_cuIpcGetEventHandle(void *handle_out, CUevent event)
{
    blind();
    return VPMM_ORIGINAL(cuIpcGetEventHandle, handle_out, event);
}

/* Another process records it. */
CUresult vpmm_wrap_cuIpcOpenEventHandle(CUevent *event_out, CUipcEventHandle handle)
{
    blind();
    return VPMM_ORIGINAL(cuIpcOpenEventHandle, event_out, handle);
}

CUresult vpmm_wrap_cuGraphAddEventRecordNode(CUgraphNode *node_out, CUgraph graph,
                                             const CUgraphNode *nodes, size_t n, CUevent event)
{
    blind();
    return VPMM_ORIGINAL(cuGraphAddEventRecordNode, node_out, graph, nodes, n, event);
}

CUresult vpmm_wrap_cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    blind();
    return VPMM_ORIGINAL(cuGraphEventRecordNodeSetEvent, node, event);
}

CUresult vpmm_wrap_cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node,
                                                      CUevent event)
{
    blind();
    return VPMM_ORIGINAL(cuGraphExecEventRecordNodeSetEvent, exec, node, event);
}

/* A node's parameters begin with its type. */
static void see_node(const void *params)
{
    if (params && *(const int *)params == CU_GRAPH_NODE_TYPE_EVENT_RECORD)
        blind();
}

CUresult vpmm_wrap_cuGraphAddNode(CUgraphNode *node_out, CUgraph graph, const CUgraphNode *nodes,
                                  size_t n, void *params)
{
    see_node(params);
    return VPMM_ORIGINAL(cuGraphAddNode, node_out, graph, nodes, n, params);
}

CUresult vpmm_wrap_cuGraphAddNode_v2(CUgraphNode *node_out, CUgraph graph, const CUgraphNode *nodes,
                                     const void *edges, size_t n, void *params)
{
    see_node(params);
    return VPMM_ORIGINAL(cuGraphAddNode_v2, node_out, graph, nodes, edges, n, params);
}

CUresult vpmm_wrap_cuGraphNodeSetParams(CUgraphNode node, void *params)
{
    see_node(params);
    return VPMM_ORIGINAL(cuGraphNodeSetParams, node, params);
}

CUresult vpmm_wrap_cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, void *params)
{
    see_node(params);
    return VPMM_ORIGINAL(cuGraphExecNodeSetParams, exec, node, params);
}
