/* SPDX-License-Identifier: MIT */
/* Asks the system for the time. Must not fail: its clock is always there. */
#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"

#include <time.h>

uint64_t vpmm_now_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}
