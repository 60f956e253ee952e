/* SPDX-License-Identifier: MIT */
/* Work on streams: kernels, copies, events, flags, waits. */
#include "reference.h"

const char *stream_is_known(const struct reference *reference, const struct step *step)
{
    unsigned current = reference->threads[step->thread].context;
    if (step->b >= STREAMS_MAX || !reference->streams[step->b].is_alive)
        return "no such stream";
    if (current == CONTEXTS_MAX)
        return "the thread has no context";
    const struct stream *stream = &reference->streams[step->b];
    if (step->b < STREAM_MADE && stream->context != current)
        return "a default stream of another context";
    if (stream->thread != NOBODY && stream->thread != step->thread)
        return "another thread's own stream";
    return NULL;
}

const char *stream_is_usable(const struct reference *reference, const struct step *step)
{
    const char *why = stream_is_known(reference, step);
    if (why)
        return why;
    const struct stream *stream = &reference->streams[step->b];
    if (stream->capture != NOBODY)
        return "the stream captures";
    if (stream->is_legacy && capture_is_in(reference, stream->context, true))
        return "a blocking stream captures";
    return order_has_room(reference) ? NULL : "too many operations";
}

bool use_is_ordered(const struct block *block, const struct set *before, bool writes)
{
    return set_has_all(before, &block->born) && set_has_all(before, &block->last_write) &&
           (!writes || set_has_all(before, &block->reads));
}

void use_add(struct block *block, const struct set *operation, bool writes)
{
    set_add(&block->uses, operation);
    if (writes) {
        block->last_write = *operation;
        block->reads = (struct set){{0}};
    } else {
        set_add(&block->reads, operation);
    }
}

bool use_reaches(const struct reference *reference, unsigned context, const struct block *block)
{
    const struct context *of = &reference->contexts[context];
    return of->device == block->device || (block->is_async ? !block->is_pooled : of->is_peer);
}

uint64_t block_tail(uint64_t bytes)
{
    return bytes / 8 * 8 - 8;
}

void block_stamp(struct reference *reference, unsigned number)
{
    struct block *block = &reference->blocks[number];
    block->version++;
    block->content = (struct content){.kind = CONTENT_PATTERN,
                                      .stamp = (uint64_t)(number + 1) << 32 | block->version,
                                      .valid_bytes = block->bytes,
                                      .tail = block_tail(block->bytes)};
}

bool block_holds_own_pattern(const struct reference *reference, unsigned number)
{
    const struct block *block = &reference->blocks[number];
    return block->content.kind == CONTENT_PATTERN &&
           block->content.stamp == ((uint64_t)(number + 1) << 32 | block->version) &&
           block->content.valid_bytes == block->bytes;
}

static const char *block_is_usable(const struct reference *reference, const struct step *step,
                                   unsigned number, const struct set *before, bool writes,
                                   bool is_copy)
{
    if (number >= BLOCKS_MAX || reference->blocks[number].state != BLOCK_LIVE)
        return "no such block";
    const struct block *block = &reference->blocks[number];
    if (!is_copy && !use_reaches(reference, reference->streams[step->b].context, block))
        return "out of reach";
    return use_is_ordered(block, before, writes) ? NULL : "the use is not ordered";
}

static const char *write_or_check(struct reference *reference, const struct step *step)
{
    bool writes = step->kind != STEP_CHECK && step->kind != STEP_TO_HOST;
    bool is_copy = step->kind == STEP_TO_HOST || step->kind == STEP_FROM_HOST;
    struct set before = order_before(reference, step->b);
    const char *why = block_is_usable(reference, step, step->a, &before, writes, is_copy);
    if (why)
        return why;
    struct block *block = &reference->blocks[step->a];
    if (is_copy && block->bytes > HOST_BLOCK_BYTES)
        return "too large for the host";
    if (step->kind == STEP_TO_HOST && reference->n_landings == LANDINGS_MAX)
        return "the host has no room";
    if (is_copy && capture_forbids(reference, step->thread))
        return "a capture forbids it";
    struct operation *operation = order_queue(reference, step->b, NULL);
    use_add(block, &operation->before, writes);
    reference->n_landings += step->kind == STEP_TO_HOST;
    if (step->kind == STEP_WRITE || step->kind == STEP_FROM_HOST)
        block_stamp(reference, step->a);
    else if (step->kind == STEP_FILL)
        block->content = (struct content){
            .kind = CONTENT_BYTE, .stamp = step->n & 0xff, .valid_bytes = block->bytes};
    return NULL;
}

static const char *copy(struct reference *reference, const struct step *step)
{
    struct set before = order_before(reference, step->b);
    const char *why = block_is_usable(reference, step, step->a, &before, true, true);
    if (!why)
        why = block_is_usable(reference, step, step->c, &before, false, true);
    if (why || step->a == step->c)
        return why ? why : "a copy onto itself";
    if (step->kind == STEP_COPY_NOW) {
        if (capture_forbids(reference, step->thread))
            return "a capture forbids it";
        if (step->b >= STREAM_MADE)
            return "such a copy names no stream";
    }
    struct block *to = &reference->blocks[step->a];
    struct block *from = &reference->blocks[step->c];
    struct operation *operation = order_queue(reference, step->b, NULL);
    use_add(to, &operation->before, true);
    use_add(from, &operation->before, false);
    to->content = from->content;
    if (to->content.valid_bytes > to->bytes)
        to->content.valid_bytes = to->bytes;
    return NULL;
}

static bool has_waiters(const struct reference *reference, unsigned flag)
{
    for (unsigned i = 0; i < reference->n_operations; i++)
        if (reference->operations[i].waits_for == flag)
            return true;
    return false;
}

static const char *flag(struct reference *reference, const struct step *step)
{
    if (step->a >= FLAGS_MAX)
        return "no such flag";
    struct set before = order_before(reference, step->b);
    if (step->kind != STEP_WAIT_FLAG && reference->flag_is_taken[step->a])
        return "a flag is set once";
    if (step->kind != STEP_WAIT_FLAG && has_waiters(reference, step->a) &&
        !order_is_clear(reference, &before))
        return "two streams would wait for each other";
    struct operation *operation = order_queue(reference, step->b, NULL);
    if (step->kind == STEP_WAIT_FLAG) {
        operation->waits_for = step->a;
        operation->is_clear = operation->is_clear && reference->flag_is_set[step->a];
    } else {
        operation->sets = step->a;
        reference->flag_is_taken[step->a] = true;
        order_settle(reference);
    }
    return NULL;
}

static const char *event(struct reference *reference, const struct step *step)
{
    if (step->a >= EVENTS_MAX || !reference->events[step->a].is_alive)
        return "no such event";
    struct event *event = &reference->events[step->a];
    if (step->kind == STEP_WAIT) {
        if (event->capture != NOBODY)
            return "the event is of a capture";
        if (order_is_unsure(reference, &event->set))
            return "nobody knows what it waits for";
        /* A wait for what is complete queues nothing. Whether it is, nobody knows before it is
         * waited for, unless a flag keeps it from being. */
        if (set_has_all(&reference->done, &event->set))
            return NULL;
        bool is_held = order_is_held(reference, &event->set);
        struct set before =
            is_held ? order_before(reference, step->b) : order_own(reference, step->b);
        set_add(&before, &event->set);
        order_queue(reference, step->b, &before)->is_moot = !is_held;
        return NULL;
    }
    if (event->context != reference->streams[step->b].context)
        return "an event of another context";
    /* A lone record makes no stream busy but the legacy one. */
    event->set = reference->streams[step->b].is_legacy
                     ? order_queue(reference, step->b, NULL)->before
                     : order_before(reference, step->b);
    event->capture = NOBODY;
    return NULL;
}

static const char *wait_or_query(struct reference *reference, const struct step *step)
{
    const struct stream *stream = &reference->streams[step->b];
    struct set set = stream->is_legacy ? order_before(reference, step->b) : stream->tail;
    if (capture_forbids(reference, step->thread))
        return "a capture forbids it";
    if (step->kind == STEP_SYNC_STREAM) {
        if (!host_may_wait(reference, step->thread, &set))
            return "it would wait for ever";
        host_wait(reference, step->thread, &set);
    } else if (order_is_moot(reference, &set) || order_is_unsure(reference, &set)) {
        return "nobody knows the answer";
    }
    return NULL;
}

const char *use_make(struct reference *reference, const struct step *step)
{
    const char *why = stream_is_usable(reference, step);
    if (why)
        return why;
    switch (step->kind) {
    case STEP_COPY:
    case STEP_COPY_NOW:
        return copy(reference, step);
    case STEP_RECORD:
    case STEP_WAIT:
        return event(reference, step);
    case STEP_WAIT_FLAG:
    case STEP_WRITE_FLAG:
    case STEP_CALL_FLAG:
        return flag(reference, step);
    case STEP_SYNC_STREAM:
    case STEP_QUERY_STREAM:
        return wait_or_query(reference, step);
    default:
        return write_or_check(reference, step);
    }
}
