/* SPDX-License-Identifier: MIT */
/* When queued work of a replayed trace is complete: each stream's kernels run one after the other
 * for their recorded time, in the time of the trace. Where the program waits on the host, the time
 * goes on to the end of what it waits for, and all that follows is later by as much. */
#ifndef VPMM_TEST_BENCH_TIMELINE_H
#define VPMM_TEST_BENCH_TIMELINE_H

#include "sim/engine.h"

#include <stddef.h>
#include <stdint.h>

struct timeline {
    struct sim *sim;
    uint64_t now_us;
    uint64_t shift_us;  /* of the trace's time, to now */
    uint64_t waited_us; /* on the host, in all */
    struct timeline_stream {
        CUstream handle;
        uint64_t end_us; /* of its last work */
    } * streams;
    uint32_t n_streams;
    struct timeline_event {
        CUevent handle;
        uint64_t end_us; /* of the work before its latest record */
    } * events;
    uint32_t n_events;
};

void timeline_go_to(struct timeline *timeline, uint64_t trace_us);
/* Queues work of `duration_us` on the stream with that number. */
void timeline_work(struct timeline *timeline, uint32_t stream, uint64_t duration_us);
/* Records the event with that number on the stream, and lets the stream wait for it. */
void timeline_record(struct timeline *timeline, uint32_t event, uint32_t stream);
void timeline_follow(struct timeline *timeline, uint32_t event, uint32_t stream);
/* Waits on the host for `event`, or for all work where it is NULL. */
void timeline_wait(struct timeline *timeline, CUevent event);
/* Lets all queued work run to its end. */
void timeline_drain(struct timeline *timeline);

#endif
