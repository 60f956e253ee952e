/* SPDX-License-Identifier: MIT */
/* Included before every file of the library in front of test-stress-yielding: now and then a thread
 * gives way between two atomic accesses, so that what needs a rare moment happens often. It
 * includes no header, because a file first says which features it wants of them. */
#ifndef VPMM_TEST_STRESS_YIELD_H
#define VPMM_TEST_STRESS_YIELD_H

extern int sched_yield(void);

__attribute__((unused)) static void give_way_at_times(void)
{
    static _Thread_local unsigned dice __attribute__((tls_model("initial-exec")));
    dice = dice * 1664525u + 1013904223u;
    if (dice >> 24 == 0)
        (void)sched_yield();
}

#define VPMM_ATOMIC_POINT(object, access) give_way_at_times()

#endif
