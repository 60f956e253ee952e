/* SPDX-License-Identifier: MIT */
/* The memory of a case: one mapping, whose pages are copied when they are first written after the
 * snapshot, and put back before each run. */
#ifndef VPMM_TEST_SCHEDULE_ARENA_H
#define VPMM_TEST_SCHEDULE_ARENA_H

#include <stdbool.h>

/* An empty arena; what was there is gone. */
void arena_reset(void);
/* From now on arena_restore brings this moment back. */
void arena_snapshot(void);
void arena_restore(void);
/* For the handler of SIGSEGV: true when `address` is a page of the arena that was written for the
 * first time, which may go on now. */
bool arena_fault(const void *address);

#endif
