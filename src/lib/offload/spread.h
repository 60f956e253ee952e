/* SPDX-License-Identifier: MIT */
/* Which groups are resident and which slots of the ring the others have: arithmetic alone. It must
 * not know the driver, locks or memory: whoever asks brings the arrays.
 *
 * A cyclic order makes any fixed set of residents as good as any other for the bytes that are
 * copied; an LRU would miss every time. For the time it matters that copies and computation are
 * spread evenly over the pass, so residents are spread through it by bytes. */
#ifndef VPMM_OFFLOAD_SPREAD_H
#define VPMM_OFFLOAD_SPREAD_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct vpmm_spread_item {
    uint64_t n_chunks; /* 0: takes no part */
    bool is_kept;      /* always resident */
    bool is_forced;    /* out: the order allows it no slots */
    bool is_resident;  /* out: kept and forced ones, too */
    bool is_scheduled; /* out: some step names it */
    uint64_t position; /* out: of a streamed one, where it begins if the ring never ended */
};

/* A use. `span`: how many later steps begin before it is done. */
struct vpmm_spread_step {
    uint32_t item, span;
};

struct vpmm_spread {
    struct vpmm_spread_item *items;
    uint32_t n_items;
    const struct vpmm_spread_step *steps;
    uint32_t n_steps;
    uint64_t budget_chunks, ring_wish_chunks; /* wish 0: chosen */
    uint64_t slack_chunks;                    /* what the chosen ring has at least beyond a step */
    bool is_wide;                             /* the chosen ring has room for another step */

    uint64_t floor_chunks, smooth_chunks, all_chunks; /* out */
    uint64_t ring_chunks, resident_chunks;            /* out */
};

/* Fills in the needs, and which items are forced. */
void vpmm_spread_need(struct vpmm_spread *spread);
/* The same, and the plan. BELOW_FLOOR: only the needs are filled in. */
VPMM_MUST_CHECK enum vpmm_status vpmm_spread_plan(struct vpmm_spread *spread);

#endif
