/* SPDX-License-Identifier: MIT */
/* All cases: one file each, which lists what it explores and ends with a case without a name. */
#ifndef VPMM_TEST_SCHEDULE_CASES_H
#define VPMM_TEST_SCHEDULE_CASES_H

#include "schedule.h"

extern const struct schedule_case cases_frees[], cases_index[], cases_fences[], cases_open[],
    cases_gate[], cases_death[], cases_heap[], cases_cache[], cases_route[], cases_snapshot[],
    cases_small[];

/* The explorer itself; ends the program at a failure. */
void explore_itself(void);

#endif
