/* SPDX-License-Identifier: MIT */
/* What processes of one user do for each other on a full device: whoever runs out asks the others
 * (ipc/appeal.h), and each of them gives back what is free. The thread vpmm-idle answers. */
#ifndef VPMM_PRELOAD_NEIGHBOUR_H
#define VPMM_PRELOAD_NEIGHBOUR_H

#include "ipc/appeal.h"
#include "route/route.h"

/* A process begins to ask at most so often, and waits at most so long. */
#define VPMM_ASK_PAUSE_MS 1000
#define VPMM_ASK_LIMIT_MS 300

struct vpmm_asker {
    vpmm_atomic64 next_ms; /* nobody is asked before */
};

/* What a heap calls when it has run out; `self` is a struct vpmm_asker, zero at first. Between
 * vpmm_enter and vpmm_leave. */
bool vpmm_neighbours_ask(void *self, int device, uint64_t bytes);

/* Gives back to the device that the appeal names what is free and complete of its pool, as much as
 * it asks for, whatever a threshold keeps. Waits for no work. How many bytes went back. */
uint64_t vpmm_neighbour_give(struct vpmm_router *router, const struct vpmm_appeal *appeal);

#endif
