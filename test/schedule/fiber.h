/* SPDX-License-Identifier: MIT */
/* The threads of a case: stacks that take turns on one thread of the process. */
#ifndef VPMM_TEST_SCHEDULE_FIBER_H
#define VPMM_TEST_SCHEDULE_FIBER_H

#include "schedule.h"

/* The number of the thread of the process itself. */
#define FIBER_MAIN SCHEDULE_THREADS

/* Makes `number` begin with `body` when it is switched to next, wherever it was before. `body` does
 * not return. */
void fiber_prepare(int number, void (*body)(void));
/* Goes on in `to`; returns when somebody switches back to `from`, the caller. */
void fiber_switch(int from, int to);

#endif
