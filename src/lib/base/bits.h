/* SPDX-License-Identifier: MIT */
/* A large set of small numbers: one bit each, and above every 64 bits one that tells whether any of
 * them is set, level by level, so that the nearest member on either side is found in a few steps.
 * One thread at a time changes it; any thread may search it meanwhile, also in a signal handler:
 * members that stay are found, members that come or go may be. */
#ifndef VPMM_BASE_BITS_H
#define VPMM_BASE_BITS_H

#include "base/atomic.h"
#include "base/memory.h"
#include "base/status.h"

#define VPMM_BITS_LEVELS 11 /* 64 to this power covers every 64-bit number */

struct vpmm_bits {
    const struct vpmm_memory *memory;
    size_t bytes; /* of the one mapping that holds all levels */
    uint64_t n;
    unsigned n_levels;
    vpmm_atomic64 *levels[VPMM_BITS_LEVELS]; /* the members first */
};

/* An empty set of numbers below `n` (not 0). NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_bits_init(struct vpmm_bits *bits, uint64_t n,
                                                const struct vpmm_memory *memory);
/* Gives the memory back. A zeroed set is accepted. */
void vpmm_bits_finish(struct vpmm_bits *bits);

void vpmm_bits_set(struct vpmm_bits *bits, uint64_t number);
void vpmm_bits_clear(struct vpmm_bits *bits, uint64_t number);
/* The same for the `n` numbers (not 0) from `first` on; a step for each 64 of them. */
void vpmm_bits_set_span(struct vpmm_bits *bits, uint64_t first, uint64_t n);
void vpmm_bits_clear_span(struct vpmm_bits *bits, uint64_t first, uint64_t n);

/* Any thread. Whether `number` is a member; false from n on. */
bool vpmm_bits_has(const struct vpmm_bits *bits, uint64_t number);

/* Any thread. The smallest member that is not below `number`, or n when there is none. */
uint64_t vpmm_bits_first_from(const struct vpmm_bits *bits, uint64_t number);

/* Any thread. The greatest member that is not above `number` (below n); false when there is none.
 */
bool vpmm_bits_last_to(const struct vpmm_bits *bits, uint64_t number, uint64_t *member_out);

#endif
