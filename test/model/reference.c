/* SPDX-License-Identifier: MIT */
#include "reference.h"

#include <string.h>

void reference_start(struct reference *reference, const struct setting *setting)
{
    memset(reference, 0, sizeof *reference);
    reference->setting = *setting;
    reference->threads[0] =
        (struct thread){.is_alive = true, .was_alive = true, .context = CONTEXTS_MAX};
    for (unsigned i = 0; i < STREAMS_MAX; i++)
        reference->streams[i].context = reference->streams[i].thread =
            reference->streams[i].capture = NOBODY;
    for (unsigned i = 0; i < EVENTS_MAX; i++)
        reference->events[i].capture = reference->events[i].context = NOBODY;
    for (unsigned i = 0; i < GRAPHS_MAX; i++)
        reference->captures[i].origin = NOBODY;
    for (unsigned i = 0; i < DEVICES; i++)
        reference->current_pools[i] = POOLS_MAX;
    struct step retain = {.kind = STEP_PRIMARY_RETAIN};
    struct step set = {.kind = STEP_CONTEXT_SET};
    (void)world_make(reference, &retain);
    (void)world_make(reference, &set);
}

static bool is_captured(const struct reference *reference, const struct step *step)
{
    bool is_joining = step->kind == STEP_WAIT && step->a < EVENTS_MAX &&
                      reference->events[step->a].capture != NOBODY;
    return is_joining || (step->b < STREAMS_MAX && reference->streams[step->b].capture != NOBODY);
}

static const char *make(struct reference *reference, const struct step *step)
{
    switch (step->kind) {
    case STEP_MALLOC:
    case STEP_MALLOC_ASYNC:
    case STEP_MALLOC_POOL:
    case STEP_MALLOC_PITCH:
    case STEP_EXCHANGE:
    case STEP_FREE:
    case STEP_FREE_ASYNC:
    case STEP_FREE_WRONG:
        return memory_make(reference, step);
    case STEP_CAPTURE_BEGIN:
    case STEP_CAPTURE_END:
    case STEP_SCRATCH:
    case STEP_LAUNCH:
    case STEP_GRAPH_DESTROY:
        return capture_make(reference, step);
    case STEP_WRITE:
    case STEP_CHECK:
    case STEP_RECORD:
    case STEP_WAIT:
        return is_captured(reference, step) ? capture_make(reference, step)
                                            : use_make(reference, step);
    case STEP_COPY:
    case STEP_COPY_NOW:
    case STEP_FILL:
    case STEP_TO_HOST:
    case STEP_FROM_HOST:
    case STEP_WAIT_FLAG:
    case STEP_WRITE_FLAG:
    case STEP_CALL_FLAG:
    case STEP_SYNC_STREAM:
    case STEP_QUERY_STREAM:
        return use_make(reference, step);
    case STEP_POOL_CREATE:
    case STEP_POOL_DESTROY:
    case STEP_POOL_TRIM:
    case STEP_POOL_USE:
    case STEP_POOL_USED:
        return pool_make(reference, step);
    default:
        return world_make(reference, step);
    }
}

const char *reference_make(struct reference *reference, const struct step *step)
{
    if (step->thread >= THREADS_MAX || !reference->threads[step->thread].is_alive ||
        reference->threads[step->thread].is_away)
        return "no such thread, or it waits";
    const char *why = make(reference, step);
    if (!why)
        host_return(reference);
    return why;
}

/* Ends a capture, as the thread that began it. */
static bool end_capture(const struct reference *reference, struct step *step)
{
    for (unsigned i = 0; i < GRAPHS_MAX; i++) {
        const struct capture *capture = &reference->captures[i];
        if (!capture->is_open)
            continue;
        unsigned context = reference->streams[capture->origin].context;
        bool is_known = reference->threads[capture->thread].context == context;
        *step = is_known ? (struct step){.kind = STEP_CAPTURE_END, .b = capture->origin}
                         : (struct step){.kind = STEP_CONTEXT_SET, .a = context};
        while (is_known && step->a < GRAPHS_MAX && reference->graphs[step->a].is_alive)
            step->a++;
        step->thread = capture->thread;
        return true;
    }
    return false;
}

static bool end_waiting(const struct reference *reference, struct step *step)
{
    for (unsigned i = 0; i < reference->n_operations; i++) {
        unsigned flag = reference->operations[i].waits_for;
        if (flag == NOBODY || reference->flag_is_taken[flag])
            continue;
        *step = (struct step){.kind = STEP_HOST_FLAG, .a = flag};
        return true;
    }
    return false;
}

/* Thread 0 in a context of the device, and what it does there. */
static void act_in(const struct reference *reference, unsigned device, struct step act,
                   struct step *step)
{
    unsigned current = reference->threads[0].context;
    if (current != CONTEXTS_MAX && reference->contexts[current].device == device) {
        *step = act;
        return;
    }
    unsigned context = 0;
    while (context < CONTEXTS_MAX && (!reference->contexts[context].is_alive ||
                                      reference->contexts[context].device != device))
        context++;
    *step = context < CONTEXTS_MAX ? (struct step){.kind = STEP_CONTEXT_SET, .a = context}
                                   : (struct step){.kind = STEP_PRIMARY_RETAIN, .a = device};
}

static bool end_work(const struct reference *reference, struct step *step)
{
    for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
        struct set of = order_of_context(reference, i);
        if (!reference->contexts[i].is_alive || set_has_all(&reference->done, &of))
            continue;
        *step = reference->threads[0].context == i
                    ? (struct step){.kind = STEP_SYNC_CONTEXT}
                    : (struct step){.kind = STEP_CONTEXT_SET, .a = i};
        return true;
    }
    return false;
}

bool reference_end(const struct reference *reference, struct step *step)
{
    if (end_waiting(reference, step) || end_capture(reference, step) || end_work(reference, step))
        return true;
    for (unsigned i = 0; i < BLOCKS_MAX; i++)
        if (reference->blocks[i].state == BLOCK_LIVE) {
            act_in(reference, reference->blocks[i].device, (struct step){.kind = STEP_FREE, .a = i},
                   step);
            return true;
        }
    for (unsigned i = 0; i < GRAPHS_MAX; i++)
        if (reference->graphs[i].is_alive) {
            *step = (struct step){.kind = STEP_GRAPH_DESTROY, .a = i};
            return true;
        }
    for (unsigned i = 0; i < POOLS_MAX; i++)
        if (reference->pools[i].is_alive) {
            act_in(reference, reference->pools[i].device,
                   (struct step){.kind = STEP_POOL_DESTROY, .a = i}, step);
            return true;
        }
    return false;
}
