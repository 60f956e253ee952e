/* SPDX-License-Identifier: MIT */
/* Extents that lie wholly in free regions, as a stitch looks for them. Private to this folder. With
 * the lock. */
#ifndef VPMM_POOL_HARVEST_H
#define VPMM_POOL_HARVEST_H

#include "pool/pool_internal.h"

void vpmm_harvest_init(struct vpmm_pool *pool);

/* `span` has become free, or complete: its extents are looked at before the next harvest. */
void vpmm_harvest_note(struct vpmm_pool *pool, const struct vpmm_span *span);
/* Lists all extents that were noted and are free, once. */
void vpmm_harvest_refresh(struct vpmm_pool *pool);
/* The extent changes its place or its nature. */
void vpmm_harvest_unlist(struct vpmm_pool *pool, uint32_t number);
/* Whether the extent lies wholly in free regions, and the group it belongs to then. */
bool vpmm_harvest_group(const struct vpmm_pool *pool, const struct vpmm_extent *extent,
                        unsigned *group_out, unsigned *room_out);

/* A walk over the listed extents of one class that a request may have, outside `base`. */
struct vpmm_harvest_walk {
    struct vpmm_pool *pool;
    const struct vpmm_want *want;
    const struct vpmm_span *base;
    unsigned class, group;
    struct vpmm_tree_key next;
};
void vpmm_harvest_begin(struct vpmm_harvest_walk *walk, unsigned class);
/* The next one; 0 at the end. Entries that are out of date are put right on the way. */
uint32_t vpmm_harvest_next(struct vpmm_harvest_walk *walk);
/* The largest class below `class` that has entries for this request; false when there is none. */
bool vpmm_harvest_class_below(const struct vpmm_harvest_walk *walk, unsigned class,
                              unsigned *class_out);

#endif
