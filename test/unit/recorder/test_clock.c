/* SPDX-License-Identifier: MIT */
/* Time by a counter of the processor is the system's time. */
#define _GNU_SOURCE
#include "recorder/clock.h"

#include "trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* What the rate may be wrong by in the time that a test takes, and more. */
#define TOLERANCE_NS 100000u
#define TUNED 2u

static uint64_t system_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Asks for the time until so much of the system's has passed, and tunes; how often the counter
 * served. */
static uint64_t follow(struct vpmm_trace_clock *clock, uint64_t until_ns)
{
    uint64_t last = 0, n_tuned = 0;
    for (;;) {
        uint64_t before = system_ns() - clock->first.ns;
        uint64_t told = vpmm_trace_clock_now_ns(clock);
        uint64_t after = system_ns() - clock->first.ns;
        assert_true(told >= last);
        assert_true(told + TOLERANCE_NS >= before);
        assert_true(told <= after + TOLERANCE_NS);
        n_tuned += vpmm_atomic_load(&clock->state) == TUNED;
        last = told;
        if (before >= until_ns)
            return n_tuned;
        vpmm_trace_clock_tune(clock);
    }
}

void time_is_the_systems(void **state)
{
    (void)state;
    struct vpmm_trace_clock clock;
    vpmm_trace_clock_init(&clock);
    uint64_t n_tuned = follow(&clock, 100000000);
    assert_true(clock.has_ticks || n_tuned == 0);
}

void time_is_the_systems_without_a_counter(void **state)
{
    (void)state;
    struct vpmm_trace_clock clock;
    vpmm_trace_clock_init(&clock);
    clock.has_ticks = false;
    assert_int_equal(follow(&clock, 50000000), 0);
}

/* The thread was stopped between its looks at the two clocks: the rate would be anything. */
void a_slow_look_is_not_used(void **state)
{
    (void)state;
    struct vpmm_trace_clock clock;
    vpmm_trace_clock_init(&clock);
    clock.first.gap_ticks = UINT64_MAX / 2;
    assert_int_equal(follow(&clock, 50000000), 0);
}
