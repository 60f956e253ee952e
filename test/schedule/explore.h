/* SPDX-License-Identifier: MIT */
/* The explorer: depth-first over all schedules of a case, with dynamic partial-order reduction by
 * source sets (Abdulla, Aronis, Jonsson and Sagonas, 2014) and sleep sets. */
#ifndef VPMM_TEST_SCHEDULE_EXPLORE_H
#define VPMM_TEST_SCHEDULE_EXPLORE_H

#include "schedule.h"

struct explore_result {
    uint64_t interleavings; /* that were run to their end */
    uint64_t cut;           /* runs left early, because all that could follow had been seen */
    uint64_t steps;
};

/* Runs the case in every order; with `reduces` false literally every one. Ends the program at the
 * first that fails. */
struct explore_result explore_all(const struct schedule_case *test, bool reduces);
/* Runs it once, in the order given: thread numbers, then -1. */
void explore_one(const struct schedule_case *test, const int *order);

#endif
