/* SPDX-License-Identifier: MIT */
/* The time since a trace began: the system's monotonic clock, or, where that is made of a counter
 * of the processor anyway, this counter itself once its rate is known, which takes half the time.
 * Any thread. Private to this folder. */
#ifndef VPMM_TRACE_CLOCK_H
#define VPMM_TRACE_CLOCK_H

#include "recorder/recorder.h"

/* Time is 0 now. */
void vpmm_trace_clock_init(struct vpmm_trace_clock *clock);

uint64_t vpmm_trace_clock_now_ns(const struct vpmm_trace_clock *clock);

/* To be called now and then: finds the counter's rate once enough time has passed for it. The time
 * never goes back for that. */
void vpmm_trace_clock_tune(struct vpmm_trace_clock *clock);

#endif
