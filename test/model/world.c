/* SPDX-License-Identifier: MIT */
/* Births and deaths of streams, events, contexts and threads; waits of the host; queries. */
#include "reference.h"

static unsigned own_stream(unsigned thread, unsigned context)
{
    return STREAM_OWN + thread * CONTEXTS_MAX + context;
}

static void own_stream_start(struct reference *reference, unsigned thread, unsigned context)
{
    reference->streams[own_stream(thread, context)] = (struct stream){.is_alive = true,
                                                                      .is_blocking = true,
                                                                      .context = context,
                                                                      .thread = thread,
                                                                      .capture = NOBODY};
}

static void context_start(struct reference *reference, unsigned number, unsigned device)
{
    struct context *context = &reference->contexts[number];
    context->is_alive = context->was_alive = true;
    context->is_peer = false;
    context->device = device;
    reference->streams[number] = (struct stream){.is_alive = true,
                                                 .is_legacy = true,
                                                 .context = number,
                                                 .thread = NOBODY,
                                                 .capture = NOBODY};
    for (unsigned i = 0; i < THREADS_MAX; i++)
        if (reference->threads[i].is_alive)
            own_stream_start(reference, i, number);
}

static const char *context_end(struct reference *reference, unsigned number)
{
    struct set of = order_of_context(reference, number);
    struct set over = reference->done;
    set_add(&over, &of);
    for (unsigned i = 0; i < THREADS_MAX; i++)
        if (reference->threads[i].is_alive && reference->threads[i].context == number)
            return "the context is some thread's";
    if (capture_is_in(reference, number, false) || !order_is_clear(reference, &of))
        return "a stream captures, or it would wait for ever";
    for (unsigned i = 0; i < BLOCKS_MAX; i++) {
        const struct block *block = &reference->blocks[i];
        if ((block->state == BLOCK_LIVE || block->state == BLOCK_FREED) && !block->is_async &&
            block->context == number && !set_has_all(&over, &block->uses))
            return "another context uses a block";
    }
    reference->done = over;
    reference->contexts[number].is_alive = false;
    for (unsigned i = 0; i < STREAMS_MAX; i++)
        if (reference->streams[i].context == number)
            reference->streams[i].is_alive = false;
    for (unsigned i = 0; i < EVENTS_MAX; i++)
        if (reference->events[i].context == number)
            reference->events[i].is_alive = false;
    for (unsigned i = 0; i < BLOCKS_MAX; i++) {
        struct block *block = &reference->blocks[i];
        if (block->state == BLOCK_LIVE && !block->is_async && block->context == number)
            block->state = BLOCK_FREED;
    }
    return NULL;
}

/* The thread's current context ends by its own last reference. */
static const char *context_detach(struct reference *reference, const struct step *step)
{
    struct thread *thread = &reference->threads[step->thread];
    if (step->a < DEVICES || thread->context != step->a)
        return "not the current context, or a primary one";
    thread->context = CONTEXTS_MAX;
    const char *why = context_end(reference, step->a);
    if (why)
        thread->context = step->a;
    return why;
}

static const char *context_make(struct reference *reference, const struct step *step)
{
    struct thread *thread = &reference->threads[step->thread];
    if (step->kind == STEP_CONTEXT_SET && step->a == CONTEXTS_MAX) {
        thread->context = CONTEXTS_MAX;
        return NULL;
    }
    if (step->a >= CONTEXTS_MAX)
        return "no such context";
    struct context *context = &reference->contexts[step->a];
    bool is_primary = step->a < DEVICES;
    switch (step->kind) {
    case STEP_CONTEXT_CREATE:
        if (is_primary || context->was_alive || step->b >= DEVICES)
            return "the context has been";
        context_start(reference, step->a, step->b);
        return NULL;
    case STEP_CONTEXT_SET:
        if (!context->is_alive)
            return "no such context";
        thread->context = step->a;
        return NULL;
    case STEP_CONTEXT_DESTROY:
        return is_primary || !context->is_alive ? "no such context"
                                                : context_end(reference, step->a);
    case STEP_CONTEXT_DETACH:
        return context_detach(reference, step);
    default:
        if (!context->is_alive || thread->context == CONTEXTS_MAX ||
            reference->contexts[thread->context].device == context->device ||
            reference->contexts[thread->context].is_peer)
            return "no such peer";
        reference->contexts[thread->context].is_peer = true;
        return NULL;
    }
}

static const char *primary_make(struct reference *reference, const struct step *step)
{
    if (step->a >= DEVICES)
        return "no such device";
    struct context *context = &reference->contexts[step->a];
    const char *why = NULL;
    if (step->kind == STEP_PRIMARY_RETAIN) {
        if (!context->is_alive)
            context_start(reference, step->a, step->a);
        context->retained++;
        return NULL;
    }
    if (!context->is_alive)
        return "no such context";
    if (step->kind == STEP_PRIMARY_RESET || context->retained == 1)
        why = context_end(reference, step->a);
    if (!why && step->kind == STEP_PRIMARY_RELEASE)
        context->retained--;
    return why;
}

static const char *thread_make(struct reference *reference, const struct step *step)
{
    if (step->thread != 0 || step->a == 0 || step->a >= THREADS_MAX)
        return "not for that thread";
    struct thread *thread = &reference->threads[step->a];
    if (step->kind == STEP_THREAD_START) {
        if (thread->was_alive)
            return "the thread has been";
        *thread = (struct thread){.is_alive = true, .was_alive = true, .context = CONTEXTS_MAX};
        for (unsigned i = 0; i < CONTEXTS_MAX; i++)
            if (reference->contexts[i].is_alive)
                own_stream_start(reference, step->a, i);
        return NULL;
    }
    if (!thread->is_alive || thread->is_away)
        return "no such thread, or it waits";
    for (unsigned i = 0; i < GRAPHS_MAX; i++)
        if (reference->captures[i].is_open && reference->captures[i].thread == step->a)
            return "the thread captures";
    for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
        const struct stream *own = &reference->streams[own_stream(step->a, i)];
        if (own->capture != NOBODY)
            return "the thread's own stream captures";
        if (own->is_alive && !order_is_clear(reference, &own->tail))
            return "legacy work might wait for it for ever";
    }
    thread->is_alive = false;
    for (unsigned i = 0; i < CONTEXTS_MAX; i++)
        reference->streams[own_stream(step->a, i)].is_alive = false;
    return NULL;
}

static const char *stream_make(struct reference *reference, const struct step *step)
{
    unsigned current = reference->threads[step->thread].context;
    if (step->b < STREAM_MADE || step->b >= STREAMS_MAX || current == CONTEXTS_MAX)
        return "no such stream, or no context";
    struct stream *stream = &reference->streams[step->b];
    if (step->kind == STEP_STREAM_CREATE) {
        if (stream->is_alive || stream->context != NOBODY || step->n > 1)
            return "the stream has been";
        *stream = (struct stream){.is_alive = true,
                                  .is_blocking = step->n == 0,
                                  .context = current,
                                  .thread = NOBODY,
                                  .capture = NOBODY};
        return NULL;
    }
    if (!stream->is_alive || stream->capture != NOBODY)
        return "no such stream, or it captures";
    /* Whether legacy work still comes after it, no program should rely on. */
    if (stream->is_blocking && !order_is_clear(reference, &stream->tail))
        return "legacy work might wait for it for ever";
    stream->is_alive = false;
    return NULL;
}

static const char *event_make(struct reference *reference, const struct step *step)
{
    unsigned current = reference->threads[step->thread].context;
    if (step->a >= EVENTS_MAX || current == CONTEXTS_MAX)
        return "no such event, or no context";
    struct event *event = &reference->events[step->a];
    if (step->kind == STEP_EVENT_CREATE) {
        if (event->is_alive)
            return "the event is there";
        *event = (struct event){.is_alive = true, .context = current, .capture = NOBODY};
        return NULL;
    }
    if (!event->is_alive)
        return "no such event";
    if (step->kind == STEP_EVENT_DESTROY) {
        event->is_alive = false;
        return NULL;
    }
    if (event->capture != NOBODY || capture_forbids(reference, step->thread))
        return "a capture forbids it";
    if (step->kind == STEP_SYNC_EVENT) {
        if (!host_may_wait(reference, step->thread, &event->set))
            return "it would wait for ever";
        host_wait(reference, step->thread, &event->set);
    } else if (order_is_moot(reference, &event->set) || order_is_unsure(reference, &event->set)) {
        return "nobody knows the answer";
    }
    return NULL;
}

/* What a look at all copies to the host sees. */
static const char *look(const struct reference *reference)
{
    for (unsigned i = 0; i < CONTEXTS_MAX; i++) {
        struct set of = order_of_context(reference, i);
        if (order_is_moot(reference, &of))
            return "nobody knows what is there";
    }
    return NULL;
}

static const char *host_make(struct reference *reference, const struct step *step)
{
    unsigned current = reference->threads[step->thread].context;
    bool is_forbidden = capture_forbids(reference, step->thread);
    if (step->kind == STEP_HOST_FLAG) {
        if (step->a >= FLAGS_MAX || reference->flag_is_taken[step->a])
            return "a flag is set once";
        reference->flag_is_taken[step->a] = reference->flag_is_set[step->a] = true;
        order_settle(reference);
        return NULL;
    }
    if (step->kind == STEP_LOOK)
        return look(reference);
    if (step->kind == STEP_PROGRESS)
        return NULL;
    if (step->kind == STEP_CAPTURE_MODE) {
        reference->threads[step->thread].mode = step->n % 3;
        return step->n > 2 ? "no such mode" : NULL;
    }
    if (current == CONTEXTS_MAX)
        return "the thread has no context";
    if (step->kind == STEP_TRIM)
        return is_forbidden ? "a capture forbids it" : NULL;
    if (step->kind == STEP_QUERY_BLOCK)
        return step->a >= BLOCKS_MAX || reference->blocks[step->a].state != BLOCK_LIVE
                   ? "no such block"
                   : NULL;
    if (step->kind == STEP_SYNC_CONTEXT) {
        struct set of = order_of_context(reference, current);
        if (is_forbidden || capture_is_in(reference, current, false))
            return "a capture forbids it";
        if (!host_may_wait(reference, step->thread, &of))
            return "it would wait for ever";
        host_wait(reference, step->thread, &of);
    }
    return NULL;
}

const char *world_make(struct reference *reference, const struct step *step)
{
    switch (step->kind) {
    case STEP_CONTEXT_CREATE:
    case STEP_CONTEXT_DESTROY:
    case STEP_CONTEXT_DETACH:
    case STEP_CONTEXT_SET:
    case STEP_PEER:
        return context_make(reference, step);
    case STEP_PRIMARY_RETAIN:
    case STEP_PRIMARY_RELEASE:
    case STEP_PRIMARY_RESET:
        return primary_make(reference, step);
    case STEP_THREAD_START:
    case STEP_THREAD_END:
        return thread_make(reference, step);
    case STEP_STREAM_CREATE:
    case STEP_STREAM_DESTROY:
        return stream_make(reference, step);
    case STEP_EVENT_CREATE:
    case STEP_EVENT_DESTROY:
    case STEP_SYNC_EVENT:
    case STEP_QUERY_EVENT:
        return event_make(reference, step);
    default:
        return host_make(reference, step);
    }
}
