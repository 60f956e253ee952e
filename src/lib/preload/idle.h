/* SPDX-License-Identifier: MIT */
/* The thread that gives memory back while the program does other things: what was not needed for a
 * while (VPMM_DECAY_MS), what another process asks for that has run out, and all that is free where
 * nobody asked for anything in a while (VPMM_IDLE_MS). It has all signals blocked but SIGBUS, makes
 * driver calls only between two sleeps, never holds the process up, and does not exist in a forked
 * child.
 */
#ifndef VPMM_PRELOAD_IDLE_H
#define VPMM_PRELOAD_IDLE_H

#include "config/config.h"
#include "ipc/appeal.h"
#include "route/route.h"

#include <stdatomic.h>

struct vpmm_idler {
    struct vpmm_router *router;
    struct vpmm_appeals appeals; /* the thread's, once there is one: open where memory may decay */
    uint64_t idle_ms, decay_ms;  /* 0: never */
    atomic_uint state;           /* all zero: there is no thread */
};

/* Starts the thread, unless there is one; `idler` stays where it is, and was zero before the first
 * start. The options name one of the two times at least. False: there can be none. */
bool vpmm_idler_start(struct vpmm_idler *idler, struct vpmm_router *router,
                      const struct vpmm_config *config);

/* From its return on the thread makes no driver call any more, and none is started. Waits for a
 * call that is under way, for a bounded time. To be called when the process ends, before the driver
 * does.
 */
void vpmm_idler_end(struct vpmm_idler *idler);

/* In a forked child, where the thread is not. */
void vpmm_idler_forget(struct vpmm_idler *idler);

#endif
