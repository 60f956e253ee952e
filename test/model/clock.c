/* SPDX-License-Identifier: MIT */
/* Time as the library and the simulated device of this process see it: it moves when somebody looks
 * at it or sleeps, so that a wait that never ends is known at once, and a run of one program is
 * always the same. */
#define _GNU_SOURCE
#include "execute.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 20000
#define SLEEP_NS 20000000
#define SLEEPS_OF_A_DRAIN 8

static const struct api *device; /* NULL: real time */
static uint64_t now_ns;
static unsigned n_sleeps;
static struct chance chance;

void clock_be_virtual(const struct api *api, uint64_t seed)
{
    chance_start(&chance, seed);
    now_ns = 1000000000;
    device = api;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (!device)
        return (int)syscall(SYS_clock_gettime, clock, time);
    now_ns += LOOK_NS;
    *time = (struct timespec){.tv_sec = (time_t)(now_ns / 1000000000),
                              .tv_nsec = (long)(now_ns % 1000000000)};
    return 0;
}

__attribute__((visibility("default"))) int nanosleep(const struct timespec *wanted,
                                                     struct timespec *left)
{
    if (!device)
        return (int)syscall(SYS_nanosleep, wanted, left);
    now_ns += SLEEP_NS;
    if (++n_sleeps % SLEEPS_OF_A_DRAIN == 0)
        (void)device->vpmm_sim_drain();
    for (uint64_t i = chance_below(&chance, 4); i > 0; i--)
        (void)device->vpmm_sim_step();
    return 0;
}
