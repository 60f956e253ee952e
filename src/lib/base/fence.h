/* SPDX-License-Identifier: MIT */
/* A fence names the work that must be complete before pages may reach a new owner. To the pool it
 * is a number; src/lib/order knows what stands behind it. Numbers are never reused, a later fence
 * has a larger one, and a number that order does not know (any more) is complete. */
#ifndef VPMM_BASE_FENCE_H
#define VPMM_BASE_FENCE_H

#include <stdint.h>

typedef uint64_t vpmm_fence;

/* No work at all: always complete. */
#define VPMM_FENCE_NONE ((vpmm_fence)0)

/* What a fence means to one request. */
enum vpmm_verdict {
    VPMM_VERDICT_PENDING,  /* not known complete: the pages must not be given to this request */
    VPMM_VERDICT_ORDERED,  /* pending, but all work of the requesting stream comes after it */
    VPMM_VERDICT_COMPLETE, /* known complete: anybody may have the pages */
};

/* How the pool asks about fences while it holds no opinion of its own. `ask` reads what is already
 * known and calls no driver. `join` returns a fence that is complete when both are (possibly one of
 * the two), or VPMM_FENCE_NONE when memory for it cannot be had although neither is complete. */
struct vpmm_fence_view {
    void *self;
    enum vpmm_verdict (*ask)(void *self, vpmm_fence fence);
    vpmm_fence (*join)(void *self, vpmm_fence a, vpmm_fence b);
};

/* How the pool puts together what one stream left behind: of two fences of a stream, `later` tells
 * the one that stands for both; VPMM_FENCE_NONE where none is known to. It calls no driver and
 * takes no lock. */
struct vpmm_fence_line {
    void *self;
    vpmm_fence (*later)(void *self, vpmm_fence a, vpmm_fence b);
};

#endif
