/* SPDX-License-Identifier: MIT */
#include "timeline.h"

#include <stdio.h>
#include <stdlib.h>

struct work {
    const uint64_t *now_us;
    uint64_t end_us;
};

static void require(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "replay: %s\n", what);
    abort();
}

static bool is_over(struct sim_view *view, void *argument)
{
    const struct work *work = argument;
    (void)view;
    return *work->now_us >= work->end_us;
}

void timeline_go_to(struct timeline *timeline, uint64_t trace_us)
{
    if (trace_us + timeline->shift_us > timeline->now_us)
        timeline->now_us = trace_us + timeline->shift_us;
}

void timeline_work(struct timeline *timeline, uint32_t stream, uint64_t duration_us)
{
    struct timeline_stream *queue = &timeline->streams[stream];
    uint64_t start_us = queue->end_us > timeline->now_us ? queue->end_us : timeline->now_us;
    struct work work = {&timeline->now_us, start_us + duration_us};
    struct sim_kernel kernel = {
        .name = "work", .ready = is_over, .argument = &work, .argument_bytes = sizeof work};
    queue->end_us = work.end_us;
    require(sim_launch(timeline->sim, queue->handle, &kernel), "a kernel cannot be launched");
}

void timeline_record(struct timeline *timeline, uint32_t event, uint32_t stream)
{
    struct timeline_event *recorded = &timeline->events[event];
    struct timeline_stream *queue = &timeline->streams[stream];
    require(sim_event_record(timeline->sim, recorded->handle, queue->handle),
            "an event cannot be recorded");
    recorded->end_us = queue->end_us;
}

void timeline_follow(struct timeline *timeline, uint32_t event, uint32_t stream)
{
    const struct timeline_event *recorded = &timeline->events[event];
    struct timeline_stream *queue = &timeline->streams[stream];
    require(sim_stream_wait_event(timeline->sim, queue->handle, recorded->handle, 0),
            "a stream cannot wait");
    if (recorded->end_us > queue->end_us)
        queue->end_us = recorded->end_us;
}

/* The next moment at which any work ends; `now_us` when none is under way. */
static uint64_t next_end_us(const struct timeline *timeline)
{
    uint64_t next_us = UINT64_MAX;
    for (uint32_t i = 0; i < timeline->n_streams; i++)
        if (timeline->streams[i].end_us > timeline->now_us && timeline->streams[i].end_us < next_us)
            next_us = timeline->streams[i].end_us;
    return next_us == UINT64_MAX ? timeline->now_us : next_us;
}

static bool is_complete(struct timeline *timeline, CUevent event)
{
    (void)sim_drain(timeline->sim);
    return event && sim_event_query(timeline->sim, event) != CUDA_ERROR_NOT_READY;
}

void timeline_wait(struct timeline *timeline, CUevent event)
{
    uint64_t start_us = timeline->now_us;
    while (!is_complete(timeline, event)) {
        uint64_t next_us = next_end_us(timeline);
        if (next_us == timeline->now_us)
            break;
        timeline->now_us = next_us;
    }
    timeline->waited_us += timeline->now_us - start_us;
    timeline->shift_us += timeline->now_us - start_us;
}

void timeline_drain(struct timeline *timeline)
{
    for (uint32_t i = 0; i < timeline->n_streams; i++)
        if (timeline->streams[i].end_us > timeline->now_us)
            timeline->now_us = timeline->streams[i].end_us;
    (void)sim_drain(timeline->sim);
}
