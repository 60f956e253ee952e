/* SPDX-License-Identifier: MIT */
/* Streams, and what their work comes after. Must not put work of a non-blocking stream in order
 * with the legacy stream. */
#include "sim/sim_internal.h"

#include <stdlib.h>

struct stream *stream_new(struct sim *sim, struct context *context, unsigned flags)
{
    struct stream *stream = allocate(sizeof *stream);
    stream->context = context_root(context);
    stream->green = context->parent == NULL ? NULL : context;
    stream->flags = flags;
    stream->alive = true;
    stream->id = ++sim->next_id;
    stream->next = sim->streams;
    sim->streams = stream;
    return stream;
}

/* The calling thread's own stream of a context, made on first use. */
static struct stream *stream_per_thread(struct sim *sim, struct context *context)
{
    struct thread *thread = thread_now(sim);
    for (struct stream *stream = sim->streams; stream != NULL; stream = stream->next)
        if (stream->thread == thread && stream->context == context && stream->alive)
            return stream;
    struct stream *stream = stream_new(sim, context, CU_STREAM_DEFAULT);
    stream->thread = thread;
    return stream;
}

CUresult stream_of(struct sim *sim, CUstream handle, struct stream **stream_out)
{
    struct stream *stream;
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        struct context *context;
        TRY(context_now(sim, &context));
        context = context_root(context);
        *stream_out =
            handle == CU_STREAM_PER_THREAD ? stream_per_thread(sim, context) : context->legacy;
        return CUDA_SUCCESS;
    }
    enum object_life life = object_find(sim, OBJECT_STREAM, (uintptr_t)handle, &stream);
    if (life == OBJECT_LIVE) {
        *stream_out = stream;
        return CUDA_SUCCESS;
    }
    if (life == OBJECT_UNKNOWN)
        return CUDA_ERROR_INVALID_HANDLE;
    bool gone = !stream->context->alive;
    misuse(sim, gone ? SIM_DEAD_CONTEXT : SIM_DEAD_STREAM, "use of the destroyed stream %p",
           (void *)handle);
    return gone ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
}

CUresult stream_serving(struct sim *sim, CUstream handle, struct stream **stream_out)
{
    if (thread_os(sim)->in_host_function)
        return CUDA_ERROR_NOT_PERMITTED;
    TRY(stream_of(sim, handle, stream_out));
    return (*stream_out)->context->error;
}

static bool is_blocking(const struct stream *stream)
{
    return !stream->is_legacy && (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
}

void stream_order(struct sim *sim, struct stream *stream, struct op *op)
{
    struct context *context = stream->context;
    op_follow(op, stream->tail);
    op_follow(op, context->gate);
    if (is_blocking(stream))
        op_follow(op, context->legacy->tail);
    if (!stream->is_legacy)
        return;
    for (struct stream *other = sim->streams; other != NULL; other = other->next)
        if (other->context == context && is_blocking(other))
            op_follow(op, other->tail);
}

/* An allocation or a free on a blocking stream comes after the legacy stream's pending work, and so
 * the stream is not idle before that is over. On other streams it orders nothing (measured). */
CUresult stream_touch(struct sim *sim, struct stream *stream, const char *name)
{
    struct work work = {.kind = WORK_MARK, .name = name};
    return is_blocking(stream) ? stream_queue(sim, stream, &work, NULL) : CUDA_SUCCESS;
}

bool stream_follows(struct sim *sim, const struct stream *stream, const struct op *op)
{
    uint64_t mark = ++sim->mark;
    const struct context *context = stream->context;
    if (stream->tail != NULL)
        op_mark_learnt(stream->tail, mark);
    if (is_blocking(stream) && context->legacy->tail != NULL)
        op_mark_learnt(context->legacy->tail, mark);
    for (struct stream *other = sim->streams; stream->is_legacy && other != NULL;
         other = other->next)
        if (other->context == context && is_blocking(other) && other->tail != NULL)
            op_mark_learnt(other->tail, mark);
    return op->mark == mark;
}

CUresult stream_queue(struct sim *sim, struct stream *stream, struct work *work, struct op **op_out)
{
    if (op_out != NULL)
        *op_out = NULL;
    if (stream->capture != NULL)
        return capture_add(sim, stream, work);
    CUresult implicit = capture_implicit(sim, stream, work->name);
    if (implicit != CUDA_SUCCESS) {
        work_finish(work);
        return implicit;
    }
    struct op *op = op_new(stream->context, stream, work);
    stream_order(sim, stream, op);
    op_submit(sim, op);
    op_set(&stream->tail, op);
    if (op_out != NULL)
        *op_out = op;
    else
        op_drop(op);
    return CUDA_SUCCESS;
}

/* The legacy stream's work and what it would wait for; the wait itself orders nothing that comes
 * later. */
static CUresult stream_wait_tail(struct sim *sim, struct stream *stream)
{
    struct op *marker = NULL;
    if (!stream->is_legacy) {
        if (stream->tail == NULL)
            return stream->context->error;
        marker = op_hold(stream->tail);
    } else {
        struct work work = {.kind = WORK_MARK, .name = "cuStreamSynchronize"};
        marker = op_new(stream->context, NULL, &work);
        stream_order(sim, stream, marker);
        op_submit(sim, marker);
    }
    CUresult result = op_wait_one(sim, marker);
    op_drop(marker);
    return result;
}

static CUresult create(struct sim *sim, struct context *context, unsigned flags, int priority,
                       CUstream *stream_out)
{
    if (flags > CU_STREAM_NON_BLOCKING || stream_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct stream *stream = stream_new(sim, context, flags);
    stream->priority = priority;
    stream->handle = object_add(sim, OBJECT_STREAM, stream);
    *stream_out = (CUstream)(uintptr_t)stream->handle;
    return CUDA_SUCCESS;
}

CUresult sim_stream_create(struct sim *sim, unsigned flags, int priority, CUstream *stream_out)
{
    struct context *context;
    CUresult result = call_enter(sim, "cuStreamCreate");
    if (result == CUDA_SUCCESS)
        result = context_now(sim, &context);
    if (result == CUDA_SUCCESS)
        result = create(sim, context, flags, priority, stream_out);
    return call_leave(sim, "cuStreamCreate", result);
}

CUresult sim_green_ctx_stream_create(struct sim *sim, CUgreenCtx green, unsigned flags,
                                     int priority, CUstream *stream_out)
{
    struct context *context = NULL;
    CUresult result = call_enter(sim, "cuGreenCtxStreamCreate");
    if (result == CUDA_SUCCESS &&
        object_find(sim, OBJECT_GREEN, (uintptr_t)green, &context) != OBJECT_LIVE)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = create(sim, context, flags, priority, stream_out);
    return call_leave(sim, "cuGreenCtxStreamCreate", result);
}

/* Work that is queued goes on: the record stays, only the handle ends. */
void stream_end(struct sim *sim, struct stream *stream)
{
    if (!stream->alive)
        return;
    stream->alive = false;
    stream->thread = NULL;
    if (stream->handle != 0)
        object_retire(sim, stream->handle);
}

CUresult sim_stream_destroy(struct sim *sim, CUstream handle)
{
    struct stream *stream = NULL;
    CUresult result = call_enter(sim, "cuStreamDestroy");
    if (result == CUDA_SUCCESS)
        result = stream_of(sim, handle, &stream);
    if (result == CUDA_SUCCESS && stream->handle == 0)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS) {
        capture_abandon(sim, NULL, stream);
        stream_end(sim, stream);
    }
    return call_leave(sim, "cuStreamDestroy", result);
}

/* Asking or waiting for a capturing stream is refused whatever the mode, and ends the capture. */
static CUresult ask(struct sim *sim, struct stream *stream, const char *name)
{
    TRY(stream->context->error);
    if (stream->capture != NULL) {
        capture_break(sim, stream->capture, name);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    TRY(capture_implicit(sim, stream, name));
    return capture_unsafe(sim, name);
}

static bool stream_is_idle(struct sim *sim, const struct stream *stream)
{
    if (stream->tail != NULL && !stream->tail->done)
        return false;
    if (!stream->is_legacy)
        return true;
    for (const struct stream *other = sim->streams; other != NULL; other = other->next)
        if (other->context == stream->context && is_blocking(other) && other->tail != NULL &&
            !other->tail->done)
            return false;
    return true;
}

CUresult sim_stream_query(struct sim *sim, CUstream handle)
{
    struct stream *stream = NULL;
    CUresult result = call_enter(sim, "cuStreamQuery");
    if (result == CUDA_SUCCESS)
        result = stream_of(sim, handle, &stream);
    if (result == CUDA_SUCCESS)
        result = ask(sim, stream, "cuStreamQuery");
    if (result == CUDA_SUCCESS && !stream_is_idle(sim, stream))
        result = query_refused(sim);
    else if (result == CUDA_SUCCESS)
        op_run_markers(sim, stream->records);
    return call_leave(sim, "cuStreamQuery", result);
}

CUresult sim_stream_synchronize(struct sim *sim, CUstream handle)
{
    struct stream *stream;
    CUresult result = call_enter(sim, "cuStreamSynchronize");
    if (result == CUDA_SUCCESS)
        result = stream_of(sim, handle, &stream);
    if (result == CUDA_SUCCESS)
        result = ask(sim, stream, "cuStreamSynchronize");
    if (result == CUDA_SUCCESS)
        result = stream_wait_tail(sim, stream);
    if (result == CUDA_SUCCESS) {
        returned_forget(sim, NULL, stream);
        op_run_markers(sim, stream->records);
    }
    return call_leave(sim, "cuStreamSynchronize", result);
}

static CUresult wait_event(struct sim *sim, CUstream stream_handle, CUevent event_handle,
                           unsigned flags)
{
    struct stream *stream;
    struct event *event;
    TRY(stream_of(sim, stream_handle, &stream));
    TRY(event_of(sim, event_handle, &event));
    if (flags > CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (event->captured || stream->capture != NULL)
        return capture_wait(sim, stream, event);
    TRY(capture_implicit(sim, stream, "cuStreamWaitEvent"));
    /* A wait for what is complete queues nothing (measured). */
    op_run_markers(sim, event->op);
    if (event->op == NULL || event->op->done)
        return CUDA_SUCCESS;
    struct work work = {.kind = WORK_MARK, .name = "cuStreamWaitEvent"};
    struct op *op = op_new(stream->context, stream, &work);
    stream_order(sim, stream, op);
    op_follow(op, event->op);
    op_submit(sim, op);
    op_set(&stream->tail, op);
    op_drop(op);
    return CUDA_SUCCESS;
}

CUresult sim_stream_wait_event(struct sim *sim, CUstream stream, CUevent event, unsigned flags)
{
    CUresult result = call_enter(sim, "cuStreamWaitEvent");
    if (result == CUDA_SUCCESS)
        result = wait_event(sim, stream, event, flags);
    return call_leave(sim, "cuStreamWaitEvent", result);
}
