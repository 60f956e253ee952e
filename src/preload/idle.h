/* SPDX-License-Identifier: MIT */
/* Gives memory back that nobody has asked for in a while: VPMM_IDLE_MS. That takes a thread, made
 * with the first pool and only where the option is set. It has all signals blocked, makes driver
 * calls only between two sleeps, never holds the process up, and does not exist in a forked child.
 */
#ifndef VPMM_PRELOAD_IDLE_H
#define VPMM_PRELOAD_IDLE_H

#include "route/route.h"

#include <stdatomic.h>

struct vpmm_idler {
    struct vpmm_router *router;
    uint64_t idle_ms;
    atomic_uint state; /* all zero: there is no thread */
};

/* Starts the thread; `idler` is zero and stays where it is. False: there can be none. */
bool vpmm_idler_start(struct vpmm_idler *idler, struct vpmm_router *router, uint64_t idle_ms);

/* From its return on the thread makes no driver call any more. Waits for one that is under way, for
 * a bounded time. To be called when the process ends, before the driver does. */
void vpmm_idler_end(struct vpmm_idler *idler);

/* In a forked child, where the thread is not. */
void vpmm_idler_forget(struct vpmm_idler *idler);

#endif
