/* SPDX-License-Identifier: MIT */
/* Which steps of a run come before which whatever the schedule, and which race: could have been
 * done the other way round. A step is known by its number in the run. */
#ifndef VPMM_TEST_SCHEDULE_RACE_H
#define VPMM_TEST_SCHEDULE_RACE_H

#include "schedule.h"

/* Whether additions to the word commute: see schedule_counters. */
bool race_is_counter(const volatile void *object);
void race_forget_counters(void);

/* A new run begins. */
void race_reset(void);
/* The thread does the step, which is number `at` of the run. */
void race_step(int thread, int at, const struct step *step);
struct races {
    unsigned n;
    int at[STEP_TOUCHES * (2 * SCHEDULE_THREADS + 1)];
};
/* The steps that race with the one that the thread is about to do. */
void race_find(int thread, const struct step *step, struct races *races_out);
/* The threads, one bit each, that may begin at `at` in order to do the step of `thread`, which
 * races with it, and all that does not come after it, before it. */
unsigned race_leads(int at, int thread, const struct step *step);
/* Whether two steps of two threads do not commute, one enabling the other included. */
bool race_depends(const struct step *a, const struct step *b);

#endif
