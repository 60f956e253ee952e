/* SPDX-License-Identifier: MIT */
/* Captures and graphs. */
#include "reference.h"

#define RELAXED 2u
#define GLOBAL 0u

static bool concerns(const struct reference *reference, const struct capture *capture,
                     unsigned thread)
{
    uint64_t mode = reference->threads[thread].mode;
    if (!capture->is_open || mode == RELAXED)
        return false;
    if (capture->thread == thread)
        return capture->mode != RELAXED;
    return mode == GLOBAL && capture->mode == GLOBAL;
}

bool capture_forbids(const struct reference *reference, unsigned thread)
{
    for (unsigned i = 0; i < GRAPHS_MAX; i++)
        if (concerns(reference, &reference->captures[i], thread))
            return true;
    return false;
}

bool capture_is_open(const struct reference *reference)
{
    for (unsigned i = 0; i < GRAPHS_MAX; i++)
        if (reference->captures[i].is_open)
            return true;
    return false;
}

bool capture_is_in(const struct reference *reference, unsigned context, bool blocking_only)
{
    for (unsigned i = 0; i < STREAMS_MAX; i++) {
        const struct stream *stream = &reference->streams[i];
        if (stream->context == context && stream->capture != NOBODY &&
            (stream->is_blocking || !blocking_only))
            return true;
    }
    return false;
}

static const char *begin(struct reference *reference, const struct step *step)
{
    struct stream *stream = &reference->streams[step->b];
    unsigned number = 0;
    if (reference->setting.captures_nothing)
        return "captures are left out";
    for (unsigned i = 0; i < THREADS_MAX; i++)
        if (reference->threads[i].then.n)
            return "an allocation under way would break the capture";
    while (number < GRAPHS_MAX && reference->captures[number].origin != NOBODY)
        number++;
    if (number == GRAPHS_MAX || stream->is_legacy || stream->capture != NOBODY || step->n > RELAXED)
        return "the stream cannot begin a capture";
    if (!capture_is_open(reference))
        reference_settle(reference);
    struct capture *capture = &reference->captures[number];
    capture->is_open = true;
    capture->origin = step->b;
    capture->thread = step->thread;
    capture->mode = step->n;
    stream->capture = number;
    stream->nodes = 0;
    return NULL;
}

/* Work that was left unjoined is a refusal and no graph; the capture is over in any case. */
static const char *end(struct reference *reference, const struct step *step)
{
    unsigned number = reference->streams[step->b].capture;
    if (number == NOBODY || reference->captures[number].origin != step->b)
        return "no capture to end";
    struct capture *capture = &reference->captures[number];
    if (capture->mode != RELAXED && capture->thread != step->thread)
        return "another thread's capture";
    if (step->a >= GRAPHS_MAX || reference->graphs[step->a].is_alive)
        return "the graph is there";
    bool is_joined = true;
    uint64_t nodes = reference->streams[step->b].nodes;
    for (unsigned i = 0; i < STREAMS_MAX; i++)
        if (reference->streams[i].capture == number) {
            is_joined = is_joined && !(reference->streams[i].nodes & ~nodes);
            reference->streams[i].capture = NOBODY;
        }
    capture->is_open = false;
    if (is_joined) {
        reference->graphs[step->a] = capture->graph;
        reference->graphs[step->a].is_alive = true;
    }
    return NULL;
}

static const char *node_add(struct reference *reference, const struct step *step)
{
    struct stream *stream = &reference->streams[step->b];
    struct graph *graph = &reference->captures[stream->capture].graph;
    struct node node = {.is_scratch = step->kind == STEP_SCRATCH,
                        .writes = step->kind == STEP_WRITE,
                        .block = step->a};
    if (graph->n == NODES_MAX)
        return "the graph is full";
    if (node.is_scratch && (step->n < 8 || step->n > 4 * GRANULE))
        return "too much scratch";
    if (!node.is_scratch &&
        (step->a >= BLOCKS_MAX || reference->blocks[step->a].state != BLOCK_LIVE ||
         !use_reaches(reference, stream->context, &reference->blocks[step->a])))
        return "no such block, or out of reach";
    for (unsigned i = 0; i < graph->n && !node.is_scratch; i++)
        if (!graph->nodes[i].is_scratch && graph->nodes[i].block == node.block &&
            (graph->nodes[i].writes || node.writes) && !(stream->nodes >> i & 1))
            return "the use is not ordered";
    node.stamp = (uint64_t)(step->a + 1) << 32 | 0x80000000u | ++reference->n_nodes;
    stream->nodes |= (uint64_t)1 << graph->n;
    node.before = stream->nodes;
    graph->nodes[graph->n++] = node;
    return NULL;
}

void capture_lose_node(struct reference *reference, unsigned number)
{
    struct stream *stream = &reference->streams[number];
    struct graph *graph = &reference->captures[stream->capture].graph;
    stream->nodes &= ~((uint64_t)1 << --graph->n);
}

static const char *event(struct reference *reference, const struct step *step)
{
    struct stream *stream = &reference->streams[step->b];
    if (step->a >= EVENTS_MAX || !reference->events[step->a].is_alive)
        return "no such event";
    struct event *event = &reference->events[step->a];
    if (step->kind == STEP_RECORD) {
        if (event->context != stream->context)
            return "an event of another context";
        event->capture = stream->capture;
        event->nodes = stream->nodes;
        return NULL;
    }
    if (event->capture == NOBODY || !reference->captures[event->capture].is_open)
        return "the event is of no capture";
    if (stream->is_legacy || (stream->capture != NOBODY && stream->capture != event->capture))
        return "the stream cannot join";
    if (stream->capture == NOBODY)
        stream->nodes = 0;
    stream->capture = event->capture;
    stream->nodes |= event->nodes;
    return NULL;
}

static bool node_is_ready(const struct reference *reference, const struct node *node,
                          unsigned context, const struct set *before)
{
    const struct block *block = &reference->blocks[node->block];
    return node->is_scratch ||
           (block->state == BLOCK_LIVE && use_reaches(reference, context, block) &&
            use_is_ordered(block, before, node->writes) &&
            (reference->setting.is_plain || block_holds_own_pattern(reference, node->block)));
}

static const char *launch(struct reference *reference, const struct step *step)
{
    const char *why = stream_is_usable(reference, step);
    if (why)
        return why;
    if (step->a >= GRAPHS_MAX || !reference->graphs[step->a].is_alive)
        return "no such graph";
    struct graph *graph = &reference->graphs[step->a];
    struct set before = order_before(reference, step->b);
    if (!set_has_all(&before, &graph->last_launch))
        return "the graph may still run";
    for (unsigned i = 0; i < graph->n; i++)
        if (!node_is_ready(reference, &graph->nodes[i], reference->streams[step->b].context,
                           &before))
            return "a block of the graph is not ready";
    graph->last_launch = order_queue(reference, step->b, NULL)->before;
    for (unsigned i = 0; i < graph->n; i++) {
        const struct node *node = &graph->nodes[i];
        if (node->is_scratch)
            continue;
        use_add(&reference->blocks[node->block], &graph->last_launch, node->writes);
        if (node->writes)
            block_stamp(reference, node->block);
        if (node->writes && reference->setting.is_plain)
            reference->blocks[node->block].content.stamp = node->stamp;
    }
    return NULL;
}

const char *capture_make(struct reference *reference, const struct step *step)
{
    if (step->kind == STEP_LAUNCH)
        return launch(reference, step);
    if (step->kind == STEP_GRAPH_DESTROY) {
        if (step->a >= GRAPHS_MAX || !reference->graphs[step->a].is_alive ||
            !set_has_all(&reference->done, &reference->graphs[step->a].last_launch))
            return "no such graph, or it may still run";
        reference->graphs[step->a] = (struct graph){0};
        return NULL;
    }
    const char *why = stream_is_known(reference, step);
    if (why)
        return why;
    switch (step->kind) {
    case STEP_CAPTURE_BEGIN:
        return begin(reference, step);
    case STEP_CAPTURE_END:
        return end(reference, step);
    case STEP_RECORD:
    case STEP_WAIT:
        return event(reference, step);
    default:
        return reference->streams[step->b].capture == NOBODY ? "the stream does not capture"
                                                             : node_add(reference, step);
    }
}
