/* SPDX-License-Identifier: MIT */
/* What each call of the machine begins and ends with: the lock, counters, faults and refusals. A
 * call that a fault strikes must not change anything. */
#include "sim/sim_internal.h"

#include <string.h>

static struct call_count *count_of(struct sim *sim, const char *name)
{
    if (name == NULL)
        return &sim->any;
    for (size_t i = 0; i < sim->n_counts; i++)
        if (strcmp(sim->counts[i].name, name) == 0)
            return &sim->counts[i];
    char *own = allocate(strlen(name) + 1);
    memcpy(own, name, strlen(name) + 1);
    sim->counts = grow(sim->counts, sizeof *sim->counts, sim->n_counts, &sim->counts_room);
    sim->counts[sim->n_counts] = (struct call_count){.name = own};
    return &sim->counts[sim->n_counts++];
}

static CUresult count_one(struct call_count *count)
{
    count->calls++;
    if (count->fault_in == 0)
        return CUDA_SUCCESS;
    if (count->fault_in > 1) {
        count->fault_in--;
        return CUDA_SUCCESS;
    }
    count->struck = true;
    if (!count->forever)
        count->fault_in = 0;
    return count->code;
}

static void hook_call(struct sim *sim, const char *name)
{
    if (sim->config.before_call == NULL)
        return;
    struct os_thread *thread = thread_os(sim);
    if (thread->in_hook)
        return;
    thread->in_hook = true;
    sim->config.before_call(sim->config.self, name);
    thread->in_hook = false;
}

#if defined(__SANITIZE_THREAD__)
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);

void call_hide(void)
{
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
}

void call_show(void)
{
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
void call_hide(void)
{
}

void call_show(void)
{
}
#endif

/* Inside a host function the driver refuses what it does through the thread's context, and all that
 * allocates or frees. What names a stream or an event goes on (measured:
 * test/programs/callbacks.c). */
static bool is_permitted(const char *name)
{
    static const char *const permitted[] = {
        "cuStreamIsCapturing", "cuStreamGetId", "cuStreamGetFlags",
        "cuStreamGetCtx",      "cuStreamQuery", "cuStreamWaitEvent",
        "cuEventQuery",        "cuEventRecord", "cuThreadExchangeStreamCaptureMode",
    };
    for (size_t i = 0; i < sizeof permitted / sizeof permitted[0]; i++)
        if (strcmp(name, permitted[i]) == 0)
            return true;
    return false;
}

static CUresult enter(struct sim *sim, const char *name, bool can_fail)
{
    hook_call(sim, name);
    call_hide();
    pthread_mutex_lock(&sim->lock);
    if (sim->config.eager)
        op_settle(sim);
    CUresult own = count_one(count_of(sim, name));
    CUresult any = can_fail ? count_one(&sim->any) : CUDA_SUCCESS;
    if (sim->is_down)
        return CUDA_ERROR_DEINITIALIZED;
    if (own != CUDA_SUCCESS || any != CUDA_SUCCESS)
        return own != CUDA_SUCCESS ? own : any;
    if (thread_os(sim)->in_host_function && !is_permitted(name))
        return CUDA_ERROR_NOT_PERMITTED;
    const struct thread *thread = thread_now(sim);
    if (can_fail && thread->n_stack > 0 && thread->stack[thread->n_stack - 1] != NULL)
        return thread->stack[thread->n_stack - 1]->error;
    return CUDA_SUCCESS;
}

CUresult call_enter(struct sim *sim, const char *name)
{
    return enter(sim, name, true);
}

CUresult call_enter_query(struct sim *sim, const char *name)
{
    return enter(sim, name, false);
}

CUresult call_leave_priced(struct sim *sim, const char *name, CUresult result, uint64_t n_handles,
                           uint64_t bytes)
{
    if (sim->config.eager)
        op_settle(sim);
    if (result == CUDA_SUCCESS && sim->config.on_call != NULL)
        sim->config.on_call(sim->config.self, name, n_handles, bytes);
    pthread_mutex_unlock(&sim->lock);
    call_show();
    return result;
}

CUresult call_leave(struct sim *sim, const char *name, CUresult result)
{
    return call_leave_priced(sim, name, result, 0, 0);
}

void sim_fault_set(struct sim *sim, const char *name, uint64_t nth, CUresult code, bool forever)
{
    pthread_mutex_lock(&sim->lock);
    struct call_count *count = count_of(sim, name);
    count->fault_in = nth;
    count->code = code;
    count->forever = forever;
    count->struck = false;
    pthread_mutex_unlock(&sim->lock);
}

void sim_fault_clear(struct sim *sim, const char *name)
{
    pthread_mutex_lock(&sim->lock);
    if (name != NULL)
        count_of(sim, name)->fault_in = 0;
    else {
        sim->any.fault_in = 0;
        for (size_t i = 0; i < sim->n_counts; i++)
            sim->counts[i].fault_in = 0;
    }
    pthread_mutex_unlock(&sim->lock);
}

bool sim_fault_struck(struct sim *sim, const char *name)
{
    pthread_mutex_lock(&sim->lock);
    bool struck = count_of(sim, name)->struck;
    pthread_mutex_unlock(&sim->lock);
    return struck;
}

uint64_t sim_calls(struct sim *sim, const char *name)
{
    pthread_mutex_lock(&sim->lock);
    uint64_t calls = count_of(sim, name)->calls;
    pthread_mutex_unlock(&sim->lock);
    return calls;
}

void sim_calls_reset(struct sim *sim)
{
    pthread_mutex_lock(&sim->lock);
    sim->any.calls = 0;
    for (size_t i = 0; i < sim->n_counts; i++)
        sim->counts[i].calls = 0;
    pthread_mutex_unlock(&sim->lock);
}

void sim_device_break(struct sim *sim, CUdevice device, CUresult code)
{
    pthread_mutex_lock(&sim->lock);
    for (struct context *context = sim->contexts; context != NULL; context = context->next)
        if (context->device == device)
            context->error = code;
    pthread_mutex_unlock(&sim->lock);
}

void sim_shut_down(struct sim *sim)
{
    pthread_mutex_lock(&sim->lock);
    sim->is_down = true;
    pthread_mutex_unlock(&sim->lock);
}
