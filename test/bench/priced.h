/* SPDX-License-Identifier: MIT */
/* The seam with a price: a driver in front of another one that counts each call, adds what it would
 * have cost on a GPU to a modelled clock, and measures how long the inner call really took, so that
 * a caller's own time can be told apart. One thread; owns its books, not the inner driver. */
#ifndef VPMM_TEST_BENCH_PRICED_H
#define VPMM_TEST_BENCH_PRICED_H

#include "driver/driver.h"
#include "numbers.h"
#include "prices.h"

#include <stdint.h>

#define PRICED_ROOTS_MAX 64

struct priced_tally {
    uint64_t calls[PRICE_KINDS];
    uint64_t handles[PRICE_KINDS]; /* that the calls dealt with */
    uint64_t ns[PRICE_KINDS];      /* modelled */
    uint64_t total_ns;             /* of all kinds, modelled */
    uint64_t n_calls;              /* of all kinds */
    uint64_t inner_ns;             /* real, to be taken off the caller's time */
};

struct priced {
    const struct vpmm_driver *inner;
    struct priced_tally tally; /* since it was made */
    uint64_t granularity_bytes;
    uint64_t overhead_ps; /* of this decorator itself: picoseconds a call outside inner_ns */
    uint64_t n_mappings;
    struct priced_root {
        uint64_t address, bytes;
        uint32_t *granules; /* of the mapping that begins at this granule; 0: none */
    } roots[PRICED_ROOTS_MAX];
    uint32_t n_roots;
    struct numbers extents; /* granules of each handle */
    /* Called in place of a wait on the host: lets modelled time go by until `event`, or all work
     * where it is NULL, is complete. */
    void (*wait)(void *self, vpmm_event_handle event);
    void *wait_self;
};

uint64_t priced_clock_ns(void);

/* Fills `driver_out`, whose self is `priced`; both outlive their use. A context must be current. */
void priced_fill(struct priced *priced, const struct vpmm_driver *inner, uint64_t granularity_bytes,
                 struct vpmm_driver *driver_out);
void priced_finish(struct priced *priced);

/* What an unmap of the range would cost now. */
uint64_t priced_unmap_ns(struct priced *priced, uint64_t address, uint64_t bytes);

#endif
