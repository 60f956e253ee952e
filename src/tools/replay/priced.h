/* SPDX-License-Identifier: MIT */
/* The seam with a price: a driver in front of another one that counts each call, adds up what it
 * would have cost on a GPU, or what it did cost on one, and measures how long the inner call really
 * took, so that a caller's own time can be told apart. One thread; owns its books, not the inner
 * driver. */
#ifndef VPMM_REPLAY_PRICED_H
#define VPMM_REPLAY_PRICED_H

#include "driver/driver.h"
#include "replay/numbers.h"
#include "replay/prices.h"

#include <stdbool.h>
#include <stdint.h>

#define VPMM_PRICED_ROOTS_MAX 64

struct vpmm_priced_tally {
    uint64_t calls[VPMM_PRICE_KINDS];
    uint64_t handles[VPMM_PRICE_KINDS]; /* that the calls dealt with */
    uint64_t ns[VPMM_PRICE_KINDS];      /* by the price list, or measured */
    uint64_t total_ns;                  /* of all kinds */
    uint64_t n_calls;                   /* of all kinds */
    uint64_t inner_ns;                  /* real, to be taken off the caller's time */
};

struct vpmm_priced {
    const struct vpmm_driver *inner;
    struct vpmm_priced_tally tally; /* since it was made */
    uint64_t granularity_bytes;
    bool is_measured;     /* the inner driver is a real one: its time counts, not the price list */
    uint64_t overhead_ps; /* of this decorator itself: picoseconds a call outside inner_ns */
    uint64_t n_mappings;
    struct vpmm_priced_root {
        uint64_t address, bytes;
        uint32_t *granules; /* of the mapping that begins at this granule; 0: none */
    } roots[VPMM_PRICED_ROOTS_MAX];
    uint32_t n_roots;
    struct vpmm_numbers extents; /* granules of each handle */
    /* Called before a wait on the host, where it is not NULL: lets modelled time go by until
     * `event`, or all work where that is NULL, is complete. */
    void (*wait)(void *self, vpmm_event_handle event);
    void *wait_self;
};

uint64_t vpmm_priced_clock_ns(void);

/* Fills `driver_out`, whose self is `priced`; both outlive their use. A context must be current.
 * `granularity_bytes` 0: the inner driver is a real one, and its time is measured. */
void vpmm_priced_fill(struct vpmm_priced *priced, const struct vpmm_driver *inner,
                      uint64_t granularity_bytes, struct vpmm_driver *driver_out);
void vpmm_priced_finish(struct vpmm_priced *priced);

/* A call of the kind was made beside the seam, begun at `start_ns` and just ended. */
void vpmm_priced_note(struct vpmm_priced *priced, enum vpmm_price_kind kind, uint64_t start_ns);

/* What an unmap of the range would cost now, by the price list. */
uint64_t vpmm_priced_unmap_ns(struct vpmm_priced *priced, uint64_t address, uint64_t bytes);

#endif
