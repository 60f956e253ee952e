/* SPDX-License-Identifier: MIT */
/* Captures of streams into graphs, and what they forbid. Must not run what a capturing stream is
 * given: it becomes a node. */
#include "sim/sim_internal.h"

#include <stdlib.h>

/* A broken capture stays until it is ended; its streams refuse everything until then. */
void capture_break(struct sim *sim, struct capture *capture, const char *name)
{
    if (capture->broken)
        return;
    misuse(sim, SIM_CAPTURE_BROKEN, "%s breaks the capture on stream %#llx", name,
           (unsigned long long)capture->origin->handle);
    capture->broken = true;
}

/* What the calling thread may not do: in its own captures unless they are relaxed, and, while its
 * own mode is global, in other threads' global ones. */
static bool concerns(const struct capture *capture, const struct thread *thread)
{
    if (thread->mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->broken)
        return false;
    if (capture->thread == thread)
        return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return thread->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_unsafe(struct sim *sim, const char *name)
{
    CUresult result = CUDA_SUCCESS;
    const struct thread *thread = thread_now(sim);
    for (struct capture *capture = sim->captures; capture != NULL; capture = capture->next)
        if (concerns(capture, thread)) {
            capture_break(sim, capture, name);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return result;
}

static bool blocks_legacy(const struct stream *stream, const struct context *context)
{
    return stream->context == context && stream->capture != NULL && !stream->is_legacy &&
           (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
}

bool capture_any_blocking(struct sim *sim, struct context *context)
{
    for (const struct stream *stream = sim->streams; stream != NULL; stream = stream->next)
        if (blocks_legacy(stream, context))
            return true;
    return false;
}

bool capture_break_context(struct sim *sim, struct context *context, bool blocking_only,
                           const char *name)
{
    bool any = false;
    context = context_root(context);
    for (struct stream *stream = sim->streams; stream != NULL; stream = stream->next) {
        if (stream->context != context || stream->capture == NULL ||
            (blocking_only && !blocks_legacy(stream, context)))
            continue;
        capture_break(sim, stream->capture, name);
        any = true;
    }
    return any;
}

CUresult capture_implicit(struct sim *sim, const struct stream *stream, const char *name)
{
    return stream->is_legacy && capture_break_context(sim, stream->context, true, name)
               ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
               : CUDA_SUCCESS;
}

static void stream_leave(struct stream *stream)
{
    stream->capture = NULL;
    free(stream->nodes);
    stream->nodes = NULL;
    stream->n_nodes = stream->nodes_room = 0;
}

void capture_end(struct sim *sim, struct capture *capture)
{
    for (struct stream *stream = sim->streams; stream != NULL; stream = stream->next)
        if (stream->capture == capture)
            stream_leave(stream);
    for (struct capture **at = &sim->captures; *at != NULL; at = &(*at)->next)
        if (*at == capture) {
            *at = capture->next;
            break;
        }
    graph_drop(sim, capture->graph);
    free(capture);
}

void capture_abandon(struct sim *sim, struct context *context, struct stream *origin)
{
    struct capture *next;
    for (struct capture *capture = sim->captures; capture != NULL; capture = next) {
        next = capture->next;
        if (capture->origin == origin || capture->origin->context == context)
            capture_end(sim, capture);
        else if (origin != NULL && origin->capture == capture) {
            capture->broken = true;
            stream_leave(origin);
        }
    }
}

static void tails_add(struct stream *stream, size_t node)
{
    for (size_t i = 0; i < stream->n_nodes; i++)
        if (stream->nodes[i] == node)
            return;
    stream->nodes =
        grow(stream->nodes, sizeof *stream->nodes, stream->n_nodes, &stream->nodes_room);
    stream->nodes[stream->n_nodes++] = node;
}

CUresult capture_add(struct sim *sim, struct stream *stream, struct work *work)
{
    (void)sim;
    if (stream->capture->broken) {
        work_finish(work);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    struct graph *graph = stream->capture->graph;
    graph->nodes = grow(graph->nodes, sizeof *graph->nodes, graph->n, &graph->room);
    struct node *node = &graph->nodes[graph->n];
    node->work = *work;
    node->n_before = stream->n_nodes;
    node->before = allocate(stream->n_nodes * sizeof *node->before);
    for (size_t i = 0; i < stream->n_nodes; i++)
        node->before[i] = stream->nodes[i];
    stream->n_nodes = 0;
    tails_add(stream, graph->n++);
    return CUDA_SUCCESS;
}

/* The event now stands for a point of the graph. */
CUresult capture_record(struct sim *sim, struct stream *stream, struct event *event)
{
    (void)sim;
    if (stream->capture->broken)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    free(event->nodes);
    event->nodes = allocate(stream->n_nodes * sizeof *event->nodes);
    event->n_nodes = stream->n_nodes;
    for (size_t i = 0; i < stream->n_nodes; i++)
        event->nodes[i] = stream->nodes[i];
    event->capture_id = stream->capture->id;
    event->captured = true;
    op_set(&event->op, NULL);
    return CUDA_SUCCESS;
}

static struct capture *capture_of(struct sim *sim, const struct event *event)
{
    struct capture *capture = sim->captures;
    while (capture != NULL && capture->id != event->capture_id)
        capture = capture->next;
    return capture;
}

/* A wait across the border of a capture: joining is allowed, leaving and mixing are not. */
CUresult capture_wait(struct sim *sim, struct stream *stream, struct event *event)
{
    if (!event->captured) {
        if (stream->capture->broken)
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        capture_break(sim, stream->capture, "cuStreamWaitEvent");
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    struct capture *capture = capture_of(sim, event);
    if (capture == NULL)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (capture->broken || (stream->capture != NULL && stream->capture->broken))
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream->is_legacy) {
        capture_break(sim, capture, "cuStreamWaitEvent");
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    if (stream->capture != NULL && stream->capture != capture) {
        capture_break(sim, capture, "cuStreamWaitEvent");
        capture_break(sim, stream->capture, "cuStreamWaitEvent");
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    stream->capture = capture;
    for (size_t i = 0; i < event->n_nodes; i++)
        tails_add(stream, event->nodes[i]);
    return CUDA_SUCCESS;
}

static CUresult begin(struct sim *sim, CUstream handle, CUstreamCaptureMode mode)
{
    struct stream *stream;
    TRY(stream_of(sim, handle, &stream));
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->is_legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture != NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *capture = allocate(sizeof *capture);
    capture->id = ++sim->next_id;
    capture->mode = mode;
    capture->thread = thread_now(sim);
    capture->origin = stream;
    capture->graph = graph_new(sim);
    capture->next = sim->captures;
    sim->captures = capture;
    stream->capture = capture;
    return CUDA_SUCCESS;
}

CUresult sim_stream_begin_capture(struct sim *sim, CUstream stream, CUstreamCaptureMode mode)
{
    CUresult result = call_enter(sim, "cuStreamBeginCapture");
    if (result == CUDA_SUCCESS)
        result = begin(sim, stream, mode);
    return call_leave(sim, "cuStreamBeginCapture", result);
}

static void reach_back(const struct graph *graph, size_t node, bool *reached)
{
    if (reached[node])
        return;
    reached[node] = true;
    for (size_t i = 0; i < graph->nodes[node].n_before; i++)
        reach_back(graph, graph->nodes[node].before[i], reached);
}

/* Whether every node of a forked stream comes before what the origin ends in. */
static bool is_joined(struct sim *sim, const struct capture *capture)
{
    const struct graph *graph = capture->graph;
    bool *reached = allocate(graph->n * sizeof *reached);
    bool joined = true;
    for (size_t i = 0; i < capture->origin->n_nodes; i++)
        reach_back(graph, capture->origin->nodes[i], reached);
    for (const struct stream *stream = sim->streams; stream != NULL; stream = stream->next)
        for (size_t i = 0; stream->capture == capture && i < stream->n_nodes; i++)
            joined = joined && reached[stream->nodes[i]];
    free(reached);
    return joined;
}

static CUresult end(struct sim *sim, CUstream handle, CUgraph *graph_out)
{
    struct stream *stream;
    TRY(stream_of(sim, handle, &stream));
    struct capture *capture = stream->capture;
    if (capture == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_now(sim))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (capture->origin != stream) {
        capture_break(sim, capture, "cuStreamEndCapture");
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    CUresult result = CUDA_SUCCESS;
    if (capture->broken)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!is_joined(sim, capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    if (result == CUDA_SUCCESS) {
        capture->graph->refs++;
        capture->graph->handle = object_add(sim, OBJECT_GRAPH, capture->graph);
        *graph_out = (CUgraph)(uintptr_t)capture->graph->handle;
    } else {
        *graph_out = NULL;
    }
    capture_end(sim, capture);
    return result;
}

CUresult sim_stream_end_capture(struct sim *sim, CUstream stream, CUgraph *graph_out)
{
    CUresult result = call_enter(sim, "cuStreamEndCapture");
    if (result == CUDA_SUCCESS)
        result = graph_out == NULL ? CUDA_ERROR_INVALID_VALUE : end(sim, stream, graph_out);
    return call_leave(sim, "cuStreamEndCapture", result);
}
