/* SPDX-License-Identifier: MIT */
/* When queued work of a replayed trace is complete: each stream's kernels run one after the other
 * for their recorded time, in the time of the trace. Where the program waits on the host, the time
 * goes on to the end of what it waits for, and all that follows is later by as much. */
#ifndef VPMM_REPLAY_TIMELINE_H
#define VPMM_REPLAY_TIMELINE_H

#include "sim/engine.h"

#include <stddef.h>
#include <stdint.h>

struct vpmm_timeline {
    struct sim *sim;
    uint64_t now_ns;
    uint64_t shift_ns;  /* of the trace's time, to now */
    uint64_t waited_ns; /* on the host, in all */
    struct vpmm_timeline_stream {
        CUstream handle;
        uint64_t end_ns; /* of its last work */
    } * streams;
    uint32_t n_streams;
    struct vpmm_timeline_event {
        CUevent handle;
        uint64_t end_ns; /* of the work before its latest record */
    } * events;
    uint32_t n_events;
};

void vpmm_timeline_go_to(struct vpmm_timeline *timeline, uint64_t trace_ns);
/* Queues work of `duration_ns` on the stream with that number. */
CUresult vpmm_timeline_work(struct vpmm_timeline *timeline, uint32_t stream, uint64_t duration_ns);
/* Records the event with that number on the stream, and lets the stream wait for it. */
CUresult vpmm_timeline_record(struct vpmm_timeline *timeline, uint32_t event, uint32_t stream);
CUresult vpmm_timeline_follow(struct vpmm_timeline *timeline, uint32_t event, uint32_t stream);
/* Waits on the host for `event`, or for all work where it is NULL. */
void vpmm_timeline_wait(struct vpmm_timeline *timeline, CUevent event);
/* Lets all queued work run to its end. */
void vpmm_timeline_drain(struct vpmm_timeline *timeline);

#endif
