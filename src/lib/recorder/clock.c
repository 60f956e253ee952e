/* SPDX-License-Identifier: MIT */
/* The time of a trace, read from the processor's counter where that is good enough. Must not use
 * the counter before its rate is known. */
#define _POSIX_C_SOURCE 200809L
#include "recorder/clock.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The rate is taken from so much time, and from two looks at both clocks none of which took more
 * than a share of it. */
#define BASE_NS 20000000u
#define GAP_SHARE 100000u
#define LOOKS 8

enum state {
    UNTUNED,
    TUNING,
    TUNED,
};

#if defined(__x86_64__)
static uint64_t ticks_now(void)
{
    return __builtin_ia32_rdtsc();
}

/* Whether the counter runs evenly and alike on all processors, the system knows. */
static bool has_ticks(void)
{
    char name[4] = "";
    int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                  O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, name, sizeof name) : 0;
    if (fd >= 0)
        (void)close(fd);
    return n == sizeof name && memcmp(name, "tsc\n", sizeof name) == 0;
}
#elif defined(__aarch64__)
static uint64_t ticks_now(void)
{
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
}

static bool has_ticks(void)
{
    return true;
}
#else
static uint64_t ticks_now(void)
{
    return 0;
}

static bool has_ticks(void)
{
    return false;
}
#endif

static uint64_t system_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Both clocks at about the same moment, the counter first: so the time that is made of it is never
 * behind. */
static struct vpmm_trace_moment look(void)
{
    struct vpmm_trace_moment best = {.gap_ticks = UINT64_MAX};
    for (int i = 0; i < LOOKS; i++) {
        uint64_t ticks = ticks_now();
        uint64_t ns = system_ns();
        uint64_t gap_ticks = ticks_now() - ticks;
        if (gap_ticks < best.gap_ticks)
            best = (struct vpmm_trace_moment){ticks, ns, gap_ticks};
    }
    return best;
}

void vpmm_trace_clock_init(struct vpmm_trace_clock *clock)
{
    *clock = (struct vpmm_trace_clock){.has_ticks = has_ticks(), .first = look()};
}

/* Another processor may look at its counter a little before the moment from which it counts. */
uint64_t vpmm_trace_clock_now_ns(const struct vpmm_trace_clock *clock)
{
    __extension__ typedef __int128 wide;
    if (vpmm_atomic_load(&clock->state) != TUNED)
        return system_ns() - clock->first.ns;
    int64_t ticks = (int64_t)(ticks_now() - clock->base.ticks);
    return clock->base.ns - clock->first.ns +
           (uint64_t)(int64_t)((wide)ticks * (int64_t)clock->rate / ((int64_t)1 << 32));
}

void vpmm_trace_clock_tune(struct vpmm_trace_clock *clock)
{
    uint32_t state = UNTUNED;
    const struct vpmm_trace_moment *first = &clock->first;
    if (!clock->has_ticks || vpmm_atomic_load(&clock->state) != UNTUNED ||
        system_ns() - first->ns < BASE_NS || !vpmm_atomic_swap_if(&clock->state, &state, TUNING))
        return;
    struct vpmm_trace_moment base = look();
    uint64_t ticks = base.ticks - first->ticks;
    uint64_t gap_max = ticks / GAP_SHARE;
    bool is_good = first->gap_ticks <= gap_max && base.gap_ticks <= gap_max;
    if (is_good) {
        clock->base = base;
        clock->rate = (uint64_t)((double)(base.ns - first->ns) * 4294967296.0 / (double)ticks);
    }
    vpmm_atomic_store(&clock->state, is_good ? TUNED : UNTUNED);
}
