/* SPDX-License-Identifier: MIT */
/* Counts the requests of a process that has no router, so that its statistics can say what became
 * of them: CUDA served every one. It must not make anything: such a process is left alone. */
#ifndef VPMM_PRELOAD_PASSING_H
#define VPMM_PRELOAD_PASSING_H

#include "route/route.h"

#include <stdatomic.h>

/* Any thread may count; all zero at first. */
struct vpmm_passed {
    atomic_ullong n[2];              /* requests, by is_async */
    _Atomic(enum vpmm_route) reason; /* why there is no router */
};

/* Whether the options alone decide that there will be no router. Any stack size. */
bool vpmm_passed_by_options(void);

/* Remembers why there is no router; returns false, as whoever fails to make one does. */
bool vpmm_passed_because(struct vpmm_passed *passed, enum vpmm_route reason);
/* In a forked child, which has not asked for anything yet. */
void vpmm_passed_forget(struct vpmm_passed *passed);

/* Writes the statistics to where the environment says, if it asks for them and there was a request
 * or `vpmm run --stats` started this very process. A program that VPMM_ONLY leaves out says
 * nothing. At exit; any stack size; no driver call. */
void vpmm_passed_report(const struct vpmm_passed *passed);

#endif
