/* SPDX-License-Identifier: MIT */
/* Plans under way: what place.c chooses, plan.c prepares, and commit.c ends. */
#ifndef VPMM_POOL_PLAN_H
#define VPMM_POOL_PLAN_H

#include "pool/harvest.h"
#include "pool/pool_internal.h"

/* A way to serve a request. The result begins with `base` and goes on into `target`, which ends in
 * what is not needed: an excess, or extra pages. */
struct vpmm_place {
    struct vpmm_span
        base; /* usable free regions that stay where they are; no pages: there are none */
    struct vpmm_span target; /* the part of a hole to be filled; no pages: nothing to do */
    struct vpmm_harvest harvest;
    uint64_t unit;  /* new memory is cut into this many pages at most */
    uint64_t extra; /* pages created beyond the need, at the end of target */
    struct vpmm_cost cost;
};

/* The best way to serve `want`. As vpmm_pool_plan. */
VPMM_MUST_CHECK enum vpmm_status vpmm_place_choose(struct vpmm_pool *pool,
                                                   const struct vpmm_want *want,
                                                   struct vpmm_place *place_out);

/* The way to fill `pages` of the best hole with new memory alone. NO_SPACE. */
VPMM_MUST_CHECK enum vpmm_status vpmm_place_growth(const struct vpmm_pool *pool, uint64_t pages,
                                                   struct vpmm_place *place_out);

/* A walk over what the request may harvest outside `base`. */
struct vpmm_harvest_walk vpmm_place_walk(struct vpmm_pool *pool, const struct vpmm_want *want,
                                         const struct vpmm_span *base);

/* Neighbouring extents that leave the same regions, and so become one zombie. */
struct vpmm_group {
    struct vpmm_span span;
    vpmm_fence fence;
};

/* What the caller sees, and behind it what it does not. One mapping holds it with its three arrays.
 */
struct vpmm_draft {
    struct vpmm_plan plan;
    size_t bytes;
    struct vpmm_span base, target;
    uint64_t excess;                  /* pages at the end of target */
    struct vpmm_content result, rest; /* what base and target become, and the excess */
    struct vpmm_group *groups;
    uint32_t *
        extents; /* by step: the record of what is moved, or the one reserved for what is created */
    uint32_t n_groups;
    uint64_t tolled_moves;
    uint32_t spare; /* a region record, for an abandon that must split */
};

#endif
