/* SPDX-License-Identifier: MIT */
/* Whether the program may have a blocking stream beside its contexts' legacy ones. While it has
 * none, nobody can notice what a free on the legacy stream orders (docs/DESIGN.md, section 3,
 * "Marks"). What is seen is seen before the driver is called. */
#ifndef VPMM_PRELOAD_WORK_H
#define VPMM_PRELOAD_WORK_H

#include "base/atomic.h"
#include "driver/driver.h"

#include <cuda.h>

struct vpmm_order;

/* 0 or 1; never 0 again. */
extern vpmm_atomic32 vpmm_has_blocking_stream;

static inline void vpmm_see_blocking_stream(void)
{
    if (!vpmm_atomic_load(&vpmm_has_blocking_stream))
        vpmm_atomic_store(&vpmm_has_blocking_stream, 1);
}

/* A stream that the program names, whatever the spelling of the call. */
static inline void vpmm_see_stream(uintptr_t stream)
{
    if (stream == (uintptr_t)VPMM_STREAM_PER_THREAD)
        vpmm_see_blocking_stream();
}

/* A stream that the program asks for, with the flags of cuStreamCreate. */
static inline void vpmm_see_creation(unsigned flags)
{
    if (!(flags & CU_STREAM_NON_BLOCKING))
        vpmm_see_blocking_stream();
}

/* Nothing is known of the event from now on: a call records it where nobody can tell what comes
 * before, or destroys it. */
void vpmm_forget_event(CUevent event);

/* Tells the order of a new router, unless the program's names for the calls that queue work lead
 * elsewhere: then nothing is known of its streams. Takes no lock of ours and calls no driver. */
void vpmm_watch_streams(struct vpmm_order *order);

#endif
