/* SPDX-License-Identifier: MIT */
/* Contexts, and each thread's stack of them. Must not close a context before its queued work is
 * over. */
#include "sim/sim_internal.h"

#include <stdlib.h>

struct context *context_root(struct context *context)
{
    return context->parent != NULL ? context->parent : context;
}

CUresult context_now(struct sim *sim, struct context **context_out)
{
    const struct thread *thread = thread_now(sim);
    struct context *context = thread->n_stack == 0 ? NULL : thread->stack[thread->n_stack - 1];
    if (thread_os(sim)->in_host_function)
        return CUDA_ERROR_NOT_PERMITTED;
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    TRY(context->error);
    *context_out = context;
    return CUDA_SUCCESS;
}

static CUresult context_look(struct sim *sim, CUcontext handle, struct context **context_out)
{
    struct context *context;
    if (object_find(sim, OBJECT_CONTEXT, (uintptr_t)handle, &context) == OBJECT_UNKNOWN)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!context->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *context_out = context;
    return CUDA_SUCCESS;
}

CUresult context_of(struct sim *sim, CUcontext handle, struct context **context_out)
{
    CUresult result = context_look(sim, handle, context_out);
    if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        misuse(sim, SIM_DEAD_CONTEXT, "use of the destroyed context %p", (void *)handle);
    return result;
}

struct context *context_new(struct sim *sim, CUdevice device)
{
    struct context *context = allocate(sizeof *context);
    context->device = device;
    context->handle = object_add(sim, OBJECT_CONTEXT, context);
    context->next = sim->contexts;
    sim->contexts = context;
    return context;
}

void context_start(struct sim *sim, struct context *context)
{
    context->alive = true;
    context->generation++;
    context->id = ++sim->next_id;
    context->error = CUDA_SUCCESS;
    context->peers = 0;
    context->legacy = stream_new(sim, context, CU_STREAM_DEFAULT);
    context->legacy->is_legacy = true;
}

static void context_close(struct sim *sim, struct context *context)
{
    context->alive = false;
    for (struct stream *stream = sim->streams; stream != NULL; stream = stream->next)
        if ((stream->green != NULL ? stream->green : stream->context) == context)
            stream_end(sim, stream);
    plain_end_of_context(sim, context);
    op_set(&context->gate, NULL);
    if (!context->is_primary)
        object_retire(sim, context->handle);
}

struct end {
    struct sim *sim;
    struct context *context;
};

/* Of a thread that is cancelled while it waits. */
static void give_up(void *self)
{
    struct end *end = self;
    pthread_mutex_lock(&end->sim->lock);
    end->context->ending = false;
    pthread_cond_broadcast(&end->sim->moved);
    pthread_mutex_unlock(&end->sim->lock);
}

CUresult context_end(struct sim *sim, struct context *context)
{
    struct end end = {sim, context};
    CUresult result;
    capture_abandon(sim, context, NULL);
    context->ending = true;
    pthread_cleanup_push(give_up, &end);
    result = op_wait_context(sim, context);
    pthread_cleanup_pop(0);
    context->ending = false;
    pthread_cond_broadcast(&sim->moved);
    if (!context->alive)
        return result; /* another thread ended it meanwhile */
    for (struct context *green = sim->contexts; green != NULL; green = green->next)
        if (green->parent == context && green->alive) {
            object_retire(sim, green->green);
            context_close(sim, green);
            context->retained -= context->retained > 0;
        }
    context_close(sim, context);
    return context->error != CUDA_SUCCESS ? CUDA_SUCCESS : result;
}

static CUresult push(struct sim *sim, struct context *context)
{
    struct thread *thread = thread_now(sim);
    if (thread->n_stack == STACK_MAX)
        return CUDA_ERROR_INVALID_CONTEXT;
    thread->stack[thread->n_stack++] = context;
    return CUDA_SUCCESS;
}

CUresult sim_ctx_create(struct sim *sim, unsigned flags, CUdevice device, CUcontext *context_out)
{
    CUresult result = call_enter(sim, "cuCtxCreate");
    if (result == CUDA_SUCCESS && (device < 0 || device >= sim->config.n_devices))
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS) {
        struct context *context = context_new(sim, device);
        context->flags = flags;
        context->attached = 1;
        context_start(sim, context);
        result = push(sim, context);
        *context_out = (CUcontext)(uintptr_t)context->handle;
    }
    return call_leave(sim, "cuCtxCreate", result);
}

CUresult sim_ctx_destroy(struct sim *sim, CUcontext handle)
{
    struct context *context = NULL;
    CUresult result = call_enter_query(sim, "cuCtxDestroy");
    if (result == CUDA_SUCCESS)
        result = context_of(sim, handle, &context);
    if (result == CUDA_SUCCESS && (context->is_primary || context->parent != NULL))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) {
        result = context_end(sim, context);
        struct thread *thread = thread_now(sim);
        if (thread->n_stack > 0 && thread->stack[thread->n_stack - 1] == context)
            thread->n_stack--;
    }
    return call_leave(sim, "cuCtxDestroy", result);
}

/* cuCtxAttach and cuCtxDetach are for the current context; a green one has no such count, and that
 * of a primary one ends nothing. */
static CUresult counted(struct sim *sim, struct context **context_out)
{
    TRY(context_now(sim, context_out));
    return (*context_out)->parent == NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult sim_ctx_attach(struct sim *sim, unsigned flags, CUcontext *context_out)
{
    struct context *context = NULL;
    CUresult result = call_enter(sim, "cuCtxAttach");
    if (result == CUDA_SUCCESS && (flags != 0 || context_out == NULL))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = counted(sim, &context);
    if (result == CUDA_SUCCESS) {
        context->attached++;
        *context_out = (CUcontext)(uintptr_t)context->handle;
    }
    return call_leave(sim, "cuCtxAttach", result);
}

CUresult sim_ctx_detach(struct sim *sim, CUcontext handle)
{
    struct context *context = NULL;
    CUresult result = call_enter_query(sim, "cuCtxDetach");
    if (result == CUDA_SUCCESS)
        result = counted(sim, &context);
    if (result == CUDA_SUCCESS &&
        ((CUcontext)(uintptr_t)context->handle != handle || context->attached == 0))
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS && --context->attached == 0 && !context->is_primary) {
        result = context_end(sim, context);
        thread_now(sim)->n_stack--;
    }
    return call_leave(sim, "cuCtxDetach", result);
}

CUresult sim_ctx_push_current(struct sim *sim, CUcontext handle)
{
    struct context *context = NULL;
    CUresult result = call_enter_query(sim, "cuCtxPushCurrent");
    if (result == CUDA_SUCCESS)
        result = context_of(sim, handle, &context);
    if (result == CUDA_SUCCESS)
        result = push(sim, context);
    return call_leave(sim, "cuCtxPushCurrent", result);
}

CUresult sim_ctx_pop_current(struct sim *sim, CUcontext *context_out)
{
    CUresult result = call_enter_query(sim, "cuCtxPopCurrent");
    struct thread *thread = thread_now(sim);
    if (result == CUDA_SUCCESS && thread->n_stack == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS) {
        const struct context *context = thread->stack[--thread->n_stack];
        if (context_out != NULL)
            *context_out = context == NULL ? NULL : (CUcontext)(uintptr_t)context->handle;
    }
    return call_leave(sim, "cuCtxPopCurrent", result);
}

CUresult sim_ctx_set_current(struct sim *sim, CUcontext handle)
{
    struct context *context = NULL;
    CUresult result = call_enter_query(sim, "cuCtxSetCurrent");
    if (result == CUDA_SUCCESS && handle != NULL)
        result = context_of(sim, handle, &context);
    if (result == CUDA_SUCCESS) {
        struct thread *thread = thread_now(sim);
        if (thread->n_stack > 0)
            thread->n_stack--;
        if (context != NULL)
            result = push(sim, context);
    }
    return call_leave(sim, "cuCtxSetCurrent", result);
}

CUresult sim_ctx_get_current(struct sim *sim, CUcontext *context_out)
{
    CUresult result = call_enter_query(sim, "cuCtxGetCurrent");
    if (result == CUDA_SUCCESS) {
        const struct thread *thread = thread_now(sim);
        const struct context *context =
            thread->n_stack == 0 ? NULL : thread->stack[thread->n_stack - 1];
        *context_out = context == NULL ? NULL : (CUcontext)(uintptr_t)context->handle;
    }
    return call_leave(sim, "cuCtxGetCurrent", result);
}

CUresult sim_ctx_get_device(struct sim *sim, CUdevice *device_out)
{
    struct context *context = NULL;
    CUresult result = call_enter(sim, "cuCtxGetDevice");
    if (result == CUDA_SUCCESS)
        result = context_now(sim, &context);
    if (result == CUDA_SUCCESS)
        *device_out = context->device;
    return call_leave(sim, "cuCtxGetDevice", result);
}

static CUresult named_or_current(struct sim *sim, CUcontext handle, struct context **context_out)
{
    return handle == NULL ? context_now(sim, context_out) : context_of(sim, handle, context_out);
}

CUresult sim_ctx_device_of(struct sim *sim, CUcontext handle, CUdevice *device_out)
{
    struct context *context = NULL;
    CUresult result = call_enter(sim, "cuCtxGetDevice");
    if (result == CUDA_SUCCESS)
        result = named_or_current(sim, handle, &context);
    if (result == CUDA_SUCCESS)
        *device_out = context->device;
    return call_leave(sim, "cuCtxGetDevice", result);
}

/* To ask of a context whether it still is the same one is no misuse of it. */
CUresult sim_ctx_get_id(struct sim *sim, CUcontext handle, unsigned long long *id_out)
{
    struct context *context = NULL;
    CUresult result = call_enter_query(sim, "cuCtxGetId");
    if (result == CUDA_SUCCESS && handle == NULL)
        result = context_now(sim, &context);
    else if (result == CUDA_SUCCESS)
        result = context_look(sim, handle, &context);
    if (result == CUDA_SUCCESS)
        *id_out = context->id;
    return call_leave(sim, "cuCtxGetId", result);
}

CUresult sim_ctx_get_flags(struct sim *sim, unsigned *flags_out)
{
    struct context *context = NULL;
    CUresult result = call_enter(sim, "cuCtxGetFlags");
    if (result == CUDA_SUCCESS)
        result = context_now(sim, &context);
    if (result == CUDA_SUCCESS)
        *flags_out = context->flags;
    return call_leave(sim, "cuCtxGetFlags", result);
}

CUresult sim_ctx_set_flags(struct sim *sim, unsigned flags)
{
    struct context *context = NULL;
    CUresult result = call_enter(sim, "cuCtxSetFlags");
    if (result == CUDA_SUCCESS)
        result = context_now(sim, &context);
    if (result == CUDA_SUCCESS && (flags & ~(unsigned)SIM_CTX_FLAGS_MASK))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        context->flags = flags;
    return call_leave(sim, "cuCtxSetFlags", result);
}

/* The whole context includes streams that capture: refused then, whatever the mode. */
CUresult sim_ctx_synchronize_of(struct sim *sim, CUcontext handle)
{
    struct context *context = NULL;
    CUresult result = call_enter(sim, "cuCtxSynchronize");
    if (result == CUDA_SUCCESS)
        result = named_or_current(sim, handle, &context);
    if (result == CUDA_SUCCESS && capture_break_context(sim, context, false, "cuCtxSynchronize"))
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (result == CUDA_SUCCESS)
        result = capture_unsafe(sim, "cuCtxSynchronize");
    if (result == CUDA_SUCCESS)
        result = op_wait_context(sim, context);
    if (result == CUDA_SUCCESS)
        returned_forget(sim, context_root(context), NULL);
    return call_leave(sim, "cuCtxSynchronize", result);
}

CUresult sim_ctx_synchronize(struct sim *sim)
{
    return sim_ctx_synchronize_of(sim, NULL);
}

static CUresult peer_change(struct sim *sim, const char *name, CUcontext handle, bool enable)
{
    struct context *context;
    struct context *peer;
    CUresult result = call_enter(sim, name);
    if (result == CUDA_SUCCESS)
        result = context_now(sim, &context);
    if (result == CUDA_SUCCESS)
        result = context_of(sim, handle, &peer);
    if (result != CUDA_SUCCESS)
        return call_leave(sim, name, result);
    unsigned mask = 1u << peer->device;
    if (peer->device == context->device || !sim->config.has_peers)
        result = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    else if (enable && (context->peers & mask) != 0)
        result = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    else if (!enable && (context->peers & mask) == 0)
        result = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    else
        context->peers ^= mask;
    return call_leave(sim, name, result);
}

CUresult sim_ctx_enable_peer_access(struct sim *sim, CUcontext peer, unsigned flags)
{
    (void)flags;
    return peer_change(sim, "cuCtxEnablePeerAccess", peer, true);
}

CUresult sim_ctx_disable_peer_access(struct sim *sim, CUcontext peer)
{
    return peer_change(sim, "cuCtxDisablePeerAccess", peer, false);
}
