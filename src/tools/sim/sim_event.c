/* SPDX-License-Identifier: MIT */
/* Events of streams and of contexts. Must not hold up whoever waits for an event that was never
 * recorded: CUDA calls it complete. */
#include "sim/sim_internal.h"

#include <stdlib.h>

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

/* No device stands still for as long as this many refusals in a row. */
#define REFUSALS_MAX 10000

CUresult query_refused(struct sim *sim)
{
    unsigned every = sim->config.query_progress;
    if (sim->refused_at != sim->progress) {
        sim->refused_at = sim->progress;
        sim->n_in_vain = 0;
    }
    if (++sim->n_in_vain % REFUSALS_MAX == 0)
        (void)op_step(sim, 0);
    if (every != 0 && ++sim->n_refusals % every == 0)
        (void)op_step(sim, 0);
    return CUDA_ERROR_NOT_READY;
}

static bool outlived(const struct event *event)
{
    return !event->context->alive || event->generation != event->context->generation;
}

CUresult event_of(struct sim *sim, CUevent handle, struct event **event_out)
{
    struct event *event;
    enum object_life life = object_find(sim, OBJECT_EVENT, (uintptr_t)handle, &event);
    if (life == OBJECT_UNKNOWN)
        return CUDA_ERROR_INVALID_HANDLE;
    if (life == OBJECT_DEAD) {
        misuse(sim, SIM_DEAD_EVENT, "use of the destroyed event %p", (void *)handle);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (outlived(event)) {
        misuse(sim, SIM_DEAD_CONTEXT, "use of the event %p after its context's end",
               (void *)handle);
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    TRY(event->context->error);
    *event_out = event;
    return CUDA_SUCCESS;
}

CUresult sim_event_create(struct sim *sim, unsigned flags, CUevent *event_out)
{
    struct context *context;
    CUresult result = call_enter(sim, "cuEventCreate");
    if (result == CUDA_SUCCESS)
        result = context_now(sim, &context);
    if (result == CUDA_SUCCESS && ((flags & ~(unsigned)EVENT_FLAGS) != 0 || event_out == NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        struct event *event = allocate(sizeof *event);
        event->context = context_root(context);
        event->generation = event->context->generation;
        event->flags = flags;
        event->handle = object_add(sim, OBJECT_EVENT, event);
        event->next = sim->events;
        if (event->next != NULL)
            event->next->previous = event;
        sim->events = event;
        *event_out = (CUevent)(uintptr_t)event->handle;
    }
    return call_leave_priced(sim, "cuEventCreate", result, 0, 0);
}

void event_end(struct sim *sim, struct event *event)
{
    if (event->previous != NULL)
        event->previous->next = event->next;
    else
        sim->events = event->next;
    if (event->next != NULL)
        event->next->previous = event->previous;
    object_retire(sim, event->handle);
    op_set(&event->op, NULL);
    free(event->nodes);
    free(event);
}

CUresult sim_event_destroy(struct sim *sim, CUevent handle)
{
    struct event *event = NULL;
    CUresult result = call_enter(sim, "cuEventDestroy");
    if (result == CUDA_SUCCESS)
        result = event_of(sim, handle, &event);
    if (result == CUDA_SUCCESS)
        event_end(sim, event);
    return call_leave(sim, "cuEventDestroy", result);
}

static void event_set(struct event *event, struct op *op)
{
    op_set(&event->op, op);
    event->captured = false;
}

static CUresult record(struct sim *sim, CUevent event_handle, CUstream stream_handle)
{
    struct event *event;
    struct stream *stream;
    struct op *op;
    TRY(stream_of(sim, stream_handle, &stream));
    TRY(event_of(sim, event_handle, &event));
    TRY(stream->context->error);
    if (event->context != stream->context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture != NULL)
        return capture_record(sim, stream, event);
    TRY(capture_implicit(sim, stream, "cuEventRecord"));
    struct work work = {.kind = WORK_MARK, .name = "cuEventRecord"};
    op = op_new(stream->context, stream, &work);
    stream_order(sim, stream, op);
    op_follow(op, stream->records);
    op_submit(sim, op);
    /* A lone record orders other streams on the legacy stream alone, and no other stream is busy
     * because of it (measured). */
    op_set(stream->is_legacy ? &stream->tail : &stream->records, op);
    event_set(event, op);
    op_drop(op);
    return CUDA_SUCCESS;
}

CUresult sim_event_record(struct sim *sim, CUevent event, CUstream stream)
{
    CUresult result = call_enter(sim, "cuEventRecord");
    if (result == CUDA_SUCCESS)
        result = record(sim, event, stream);
    return call_leave(sim, "cuEventRecord", result);
}

/* Nothing else of its context comes after it: who comes after all such ops comes after every op. */
static bool is_last(const struct op *op)
{
    for (size_t i = 0; i < op->n_after; i++)
        if (op->after[i]->context == op->context)
            return false;
    return true;
}

/* Comes after all that is queued in the context, whatever its stream, and holds up nothing. */
static CUresult record_context(struct sim *sim, CUcontext context_handle, CUevent event_handle)
{
    struct context *context;
    struct event *event;
    TRY(context_of(sim, context_handle, &context));
    TRY(event_of(sim, event_handle, &event));
    context = context_root(context);
    TRY(context->error);
    if (sim->config.driver_version < 12050)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (event->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    if (capture_break_context(sim, context, false, "cuCtxRecordEvent"))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct work work = {.kind = WORK_MARK, .name = "cuCtxRecordEvent"};
    struct op *op = op_new(context, NULL, &work);
    for (struct op *before = sim->pending; before != NULL; before = before->next)
        if (before->context == context && is_last(before))
            op_follow(op, before);
    op_submit(sim, op);
    event_set(event, op);
    op_drop(op);
    return CUDA_SUCCESS;
}

CUresult sim_ctx_record_event(struct sim *sim, CUcontext context, CUevent event)
{
    CUresult result = call_enter(sim, "cuCtxRecordEvent");
    if (result == CUDA_SUCCESS)
        result = record_context(sim, context, event);
    return call_leave(sim, "cuCtxRecordEvent", result);
}

static CUresult wait_context(struct sim *sim, CUcontext context_handle, CUevent event_handle)
{
    struct context *context;
    struct event *event;
    TRY(context_of(sim, context_handle, &context));
    TRY(event_of(sim, event_handle, &event));
    context = context_root(context);
    if (sim->config.driver_version < 12050)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (event->captured)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (capture_break_context(sim, context, false, "cuCtxWaitEvent"))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct work work = {.kind = WORK_MARK, .name = "cuCtxWaitEvent"};
    struct op *op = op_new(context, NULL, &work);
    op_follow(op, context->gate);
    op_follow(op, event->op);
    op_submit(sim, op);
    op_set(&context->gate, op);
    op_drop(op);
    return CUDA_SUCCESS;
}

CUresult sim_ctx_wait_event(struct sim *sim, CUcontext context, CUevent event)
{
    CUresult result = call_enter(sim, "cuCtxWaitEvent");
    if (result == CUDA_SUCCESS)
        result = wait_context(sim, context, event);
    return call_leave(sim, "cuCtxWaitEvent", result);
}

/* An event of a graph cannot be asked; one never recorded is complete. */
static CUresult ask(struct sim *sim, CUevent handle, const char *name, struct event **event_out)
{
    TRY(event_of(sim, handle, event_out));
    if ((*event_out)->captured)
        return CUDA_ERROR_CAPTURED_EVENT;
    return capture_unsafe(sim, name);
}

CUresult sim_event_query(struct sim *sim, CUevent handle)
{
    struct event *event = NULL;
    CUresult result = call_enter(sim, "cuEventQuery");
    if (result == CUDA_SUCCESS)
        result = ask(sim, handle, "cuEventQuery", &event);
    /* A record behind which nothing is left takes no time (measured). */
    if (result == CUDA_SUCCESS)
        op_run_markers(sim, event->op);
    if (result == CUDA_SUCCESS && event->op != NULL && !event->op->done)
        result = query_refused(sim);
    return call_leave(sim, "cuEventQuery", result);
}

CUresult sim_event_synchronize(struct sim *sim, CUevent handle)
{
    struct event *event = NULL;
    CUresult result = call_enter(sim, "cuEventSynchronize");
    if (result == CUDA_SUCCESS)
        result = ask(sim, handle, "cuEventSynchronize", &event);
    if (result == CUDA_SUCCESS && event->op != NULL) {
        struct op *op = op_hold(event->op);
        result = op_wait_one(sim, op);
        if (result == CUDA_SUCCESS)
            returned_forget(sim, NULL, op->stream);
        op_drop(op);
    }
    return call_leave(sim, "cuEventSynchronize", result);
}

static CUresult elapsed(struct sim *sim, CUevent start_handle, CUevent end_handle, float *ms_out)
{
    struct event *start;
    struct event *end;
    TRY(event_of(sim, start_handle, &start));
    TRY(event_of(sim, end_handle, &end));
    if (start->op == NULL || end->op == NULL || start->captured || end->captured ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!start->op->done || !end->op->done)
        return CUDA_ERROR_NOT_READY;
    *ms_out = (float)(end->op->done_ms - start->op->done_ms);
    return CUDA_SUCCESS;
}

CUresult sim_event_elapsed_time(struct sim *sim, CUevent start, CUevent end, float *ms_out)
{
    CUresult result = call_enter(sim, "cuEventElapsedTime");
    if (result == CUDA_SUCCESS)
        result = elapsed(sim, start, end, ms_out);
    return call_leave(sim, "cuEventElapsedTime", result);
}
