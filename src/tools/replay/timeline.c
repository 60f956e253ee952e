/* SPDX-License-Identifier: MIT */
/* Tells when queued work of a replay is complete, in the time of the trace. Must not look at a real
 * clock. */
#include "replay/timeline.h"

/* No work ends later: durations of a trace may add up to anything. */
#define NS_MOST (UINT64_MAX / 2)

struct work {
    const uint64_t *now_ns;
    uint64_t end_ns;
};

static bool is_over(struct sim_view *view, void *argument)
{
    const struct work *work = argument;
    (void)view;
    return *work->now_ns >= work->end_ns;
}

void vpmm_timeline_go_to(struct vpmm_timeline *timeline, uint64_t trace_ns)
{
    if (trace_ns + timeline->shift_ns > timeline->now_ns)
        timeline->now_ns = trace_ns + timeline->shift_ns;
}

CUresult vpmm_timeline_work(struct vpmm_timeline *timeline, uint32_t stream, uint64_t duration_ns)
{
    struct vpmm_timeline_stream *queue = &timeline->streams[stream];
    uint64_t start_ns = queue->end_ns > timeline->now_ns ? queue->end_ns : timeline->now_ns;
    uint64_t most_ns = start_ns < NS_MOST ? NS_MOST - start_ns : 0;
    struct work work = {&timeline->now_ns,
                        start_ns + (duration_ns < most_ns ? duration_ns : most_ns)};
    struct sim_kernel kernel = {
        .name = "work", .ready = is_over, .argument = &work, .argument_bytes = sizeof work};
    queue->end_ns = work.end_ns;
    return sim_launch(timeline->sim, queue->handle, &kernel);
}

CUresult vpmm_timeline_record(struct vpmm_timeline *timeline, uint32_t event, uint32_t stream)
{
    struct vpmm_timeline_event *recorded = &timeline->events[event];
    struct vpmm_timeline_stream *queue = &timeline->streams[stream];
    recorded->end_ns = queue->end_ns;
    return sim_event_record(timeline->sim, recorded->handle, queue->handle);
}

CUresult vpmm_timeline_follow(struct vpmm_timeline *timeline, uint32_t event, uint32_t stream)
{
    const struct vpmm_timeline_event *recorded = &timeline->events[event];
    struct vpmm_timeline_stream *queue = &timeline->streams[stream];
    if (recorded->end_ns > queue->end_ns)
        queue->end_ns = recorded->end_ns;
    return sim_stream_wait_event(timeline->sim, queue->handle, recorded->handle, 0);
}

/* The next moment at which any work ends; `now_ns` when none is under way. */
static uint64_t next_end_ns(const struct vpmm_timeline *timeline)
{
    uint64_t next_ns = UINT64_MAX;
    for (uint32_t i = 0; i < timeline->n_streams; i++)
        if (timeline->streams[i].end_ns > timeline->now_ns && timeline->streams[i].end_ns < next_ns)
            next_ns = timeline->streams[i].end_ns;
    return next_ns == UINT64_MAX ? timeline->now_ns : next_ns;
}

static bool is_complete(struct vpmm_timeline *timeline, CUevent event)
{
    (void)sim_drain(timeline->sim);
    return event && sim_event_query(timeline->sim, event) != CUDA_ERROR_NOT_READY;
}

void vpmm_timeline_wait(struct vpmm_timeline *timeline, CUevent event)
{
    uint64_t start_ns = timeline->now_ns;
    while (!is_complete(timeline, event)) {
        uint64_t next_ns = next_end_ns(timeline);
        if (next_ns == timeline->now_ns)
            break;
        timeline->now_ns = next_ns;
    }
    timeline->waited_ns += timeline->now_ns - start_ns;
    timeline->shift_ns += timeline->now_ns - start_ns;
}

void vpmm_timeline_drain(struct vpmm_timeline *timeline)
{
    for (uint32_t i = 0; i < timeline->n_streams; i++)
        if (timeline->streams[i].end_ns > timeline->now_ns)
            timeline->now_ns = timeline->streams[i].end_ns;
    (void)sim_drain(timeline->sim);
}
