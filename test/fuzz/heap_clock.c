/* SPDX-License-Identifier: MIT */
/* A pause of the heap takes no time here, but its clock goes on. */
#define _POSIX_C_SOURCE 200809L
#include <time.h>

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *rest);
static long paused_ms;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = __real_clock_gettime(clock, now);
    now->tv_sec += paused_ms / 1000;
    now->tv_nsec += paused_ms % 1000 * 1000000;
    now->tv_sec += now->tv_nsec / 1000000000;
    now->tv_nsec %= 1000000000;
    return result;
}

int __wrap_nanosleep(const struct timespec *pause, struct timespec *rest)
{
    (void)pause;
    (void)rest;
    paused_ms += 20;
    return 0;
}
