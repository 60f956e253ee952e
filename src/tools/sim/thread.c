/* SPDX-License-Identifier: MIT */
/* The machine's record of each thread. Must not forget a thread that has ended, because its own
 * streams may have work queued. */
#include "sim/sim_internal.h"

#include <stdlib.h>

struct os_thread *thread_os(struct sim *sim)
{
    struct os_thread *thread = pthread_getspecific(sim->key);
    if (thread != NULL)
        return thread;
    thread = allocate(sizeof *thread);
    thread->sim = sim;
    pthread_setspecific(sim->key, thread);
    return thread;
}

static struct thread *thread_add(struct sim *sim, unsigned number)
{
    struct thread *thread = allocate(sizeof *thread);
    thread->number = number;
    thread->mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    thread->next = sim->threads;
    sim->threads = thread;
    return thread;
}

/* Records are listed under the lock, on first use. */
struct thread *thread_now(struct sim *sim)
{
    struct os_thread *thread = thread_os(sim);
    if (thread->self == NULL) {
        thread->self = thread_add(sim, 0);
        thread->next = sim->os_threads;
        sim->os_threads = thread;
    }
    return thread->acting != NULL ? thread->acting : thread->self;
}

void sim_thread_act_as(struct sim *sim, unsigned number)
{
    pthread_mutex_lock(&sim->lock);
    (void)thread_now(sim);
    struct thread *thread = NULL;
    if (number != 0)
        for (thread = sim->threads; thread != NULL && thread->number != number;)
            thread = thread->next;
    if (number != 0 && thread == NULL)
        thread = thread_add(sim, number);
    thread_os(sim)->acting = thread;
    pthread_mutex_unlock(&sim->lock);
}

CUresult sim_thread_exchange_stream_capture_mode(struct sim *sim, CUstreamCaptureMode *mode_in_out)
{
    CUresult result = call_enter_query(sim, "cuThreadExchangeStreamCaptureMode");
    if (result == CUDA_SUCCESS && (mode_in_out == NULL || (unsigned)*mode_in_out > 2))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        struct thread *thread = thread_now(sim);
        CUstreamCaptureMode old = thread->mode;
        thread->mode = *mode_in_out;
        *mode_in_out = old;
    }
    return call_leave(sim, "cuThreadExchangeStreamCaptureMode", result);
}
