/* SPDX-License-Identifier: MIT */
/* Our messages: one line each on standard error, "vpmm[pid] level: text", never on standard output,
 * without malloc. Whatever becomes of standard error, the program hears nothing of it. The number
 * of warnings is capped, and the cap is said. */
#ifndef VPMM_OBSERVE_LOG_H
#define VPMM_OBSERVE_LOG_H

#include <stdbool.h>

enum vpmm_log_kind {
    VPMM_LOG_IS_ERROR = 1,
    VPMM_LOG_IS_WARNING,
    VPMM_LOG_IS_INFO,
    VPMM_LOG_IS_DEBUG
};

/* Standard error; -1: there was none when the library was loaded, and the number may mean a file of
 * the program by now, so nothing is ever written to it. */
int vpmm_log_descriptor(void);

/* Nothing below `level` (as enum vpmm_log_kind; 0 silences all) is written from now on. Before the
 * first call nothing is. */
void vpmm_log_set_level(int level);
/* Whether a message of that kind would be written now: for who has to gather what it says. */
bool vpmm_log_says(enum vpmm_log_kind kind);
void vpmm_log(enum vpmm_log_kind kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same for a text that is ready, in a signal handler too. Does not count as a warning. */
void vpmm_log_plain(enum vpmm_log_kind kind, const char *message);

#endif
