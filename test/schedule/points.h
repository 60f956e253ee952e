/* SPDX-License-Identifier: MIT */
/* Included before every file of the library that the explorer runs: its atomic accesses become
 * steps of a schedule. */
#ifndef VPMM_TEST_SCHEDULE_POINTS_H
#define VPMM_TEST_SCHEDULE_POINTS_H

enum touch_kind {
    TOUCH_READS,
    TOUCH_ADDS,
    TOUCH_WRITES,
    TOUCH_TAKES, /* a lock */
    TOUCH_GIVES
};

void schedule_access(const volatile void *object, enum touch_kind kind);

#define VPMM_ATOMIC_POINT(object, access) schedule_access((object), TOUCH_##access)

/* Loops that only repeat are shortened: each round adds interleavings and no new pair of accesses.
 */
#define LOOKS 1
#define SEARCHES 2
#define FEW_ROOTS 2

#endif
