/* SPDX-License-Identifier: MIT */
/* Our messages: one line each on standard error, "vpmm[pid] level: text", never on standard output,
 * without malloc. Not for signal handlers. The number of warnings is capped, and the cap is said.
 */
#ifndef VPMM_OBSERVE_LOG_H
#define VPMM_OBSERVE_LOG_H

enum vpmm_log_kind {
    VPMM_LOG_IS_ERROR = 1,
    VPMM_LOG_IS_WARNING,
    VPMM_LOG_IS_INFO,
    VPMM_LOG_IS_DEBUG
};

/* Nothing below `level` (as enum vpmm_log_kind; 0 silences all) is written from now on. Before the
 * first call nothing is. */
void vpmm_log_set_level(int level);
void vpmm_log(enum vpmm_log_kind kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
