/* SPDX-License-Identifier: MIT */
/* The extent policy: how new memory is cut into extents, which whole extents a request takes, and
 * which of two ways to serve it is better. Pure functions of numbers; a better policy replaces this
 * file and nothing else. */
#ifndef VPMM_POOL_POLICY_H
#define VPMM_POOL_POLICY_H

#include "pool/pool.h"

/* Extents are powers of two pages; a class is the exponent. */
#define VPMM_CLASSES 48

/* How many extents of each class. */
struct vpmm_mix {
    uint64_t n[VPMM_CLASSES];
};

/* The class of an extent of `pages`. */
unsigned vpmm_policy_class(uint64_t pages);

/* The last large request that memory was created for, and how many of its size came in a row:
 * smaller ones between them do not count. */
struct vpmm_row {
    uint64_t pages, n;
};
/* Memory was created for a request of `pages`. */
void vpmm_policy_row_note(const struct vpmm_pool_params *params, struct vpmm_row *row,
                          uint64_t pages);
/* Whether a request of `pages` goes on with a row. */
bool vpmm_policy_row_has(const struct vpmm_row *row, uint64_t pages);

/* New memory of `pages` in all is cut into extents of this many pages, and its rest into smaller
 * ones. `held_pages`: before; `is_in_row`: what vpmm_policy_row_has says of the request. */
uint64_t vpmm_policy_unit(const struct vpmm_pool_params *params, uint64_t held_pages,
                          bool is_in_row, uint64_t pages);

/* How often requests have had to move extents lately. */
struct vpmm_toll {
    uint64_t level, number;
};
/* A request had to move extents. It counts as so many moves, and as four at most. */
void vpmm_policy_toll_take(struct vpmm_toll *toll, uint64_t moves);
/* Request `number` has come: all that came since the last call have eased the toll. */
void vpmm_policy_toll_ease(struct vpmm_toll *toll, uint64_t number);
/* How many pages may be held in all for the sake of requests that need not move extents, where so
 * many are needed at most; 0: moves are rare. */
uint64_t vpmm_policy_spare(const struct vpmm_pool_params *params, const struct vpmm_toll *toll,
                           uint64_t need_pages);

/* How many pages should be created along with `missing`, because that makes fewer extents. */
uint64_t vpmm_policy_extra(uint64_t unit, uint64_t live_pages, uint64_t missing);

/* The size of the next extent while `left` pages are still to be created; at most `unit`. */
uint64_t vpmm_policy_cut(uint64_t unit, uint64_t left);

/* How many extents that makes. */
uint64_t vpmm_policy_cuts(uint64_t unit, uint64_t pages);

/* What a request harvests. */
struct vpmm_harvest {
    struct vpmm_mix take;
    uint64_t extents; /* taken in all */
    uint64_t missing; /* pages that no extent is left for */
    uint64_t
        excess; /* pages taken beyond the need: then the last extent in place is of last_class */
    unsigned last_class; /* where excess is not 0 */
};

/* Chooses from `available` for a need of `pages`, leaving nothing missing that an extent could
 * cover: the largest that fit first (exact whenever the sizes allow it, with the fewest extents);
 * and where only larger ones are left, the smallest of these, in place of the small ones that it
 * makes unnecessary. Unless `may_exceed`: then those pages are missing. */
void vpmm_policy_harvest(const struct vpmm_mix *available, uint64_t pages, bool may_exceed,
                         struct vpmm_harvest *harvest_out);

/* What a way to serve a request costs. */
struct vpmm_cost {
    uint64_t created_pages; /* memory held weighs most, */
    uint64_t extents; /* then each extent created or moved: the driver's price is by the handle */
};

bool vpmm_policy_is_better(const struct vpmm_cost *cost, const struct vpmm_cost *than);

#endif
