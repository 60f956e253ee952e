/* SPDX-License-Identifier: MIT */
/* Tells where a process crashed. It must not end a process that goes on. */
#ifndef VPMM_TEST_SEARCH_CRASH_H
#define VPMM_TEST_SEARCH_CRASH_H

#include <stdbool.h>

/* Calls `crashed` once where SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT arrives, in the thread of
 * it. `frames`: the callers, the innermost first, as objects' names and offsets. `in_driver`: the
 * innermost one outside the C library is the driver's. `crashed` must end the process. */
void crash_tell_to(void (*crashed)(bool in_driver, const char *frames));

#endif
