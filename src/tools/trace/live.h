/* SPDX-License-Identifier: MIT */
/* The blocks that are live at one moment of a trace, by address. Its memory is malloc's and grows
 * with the most that were live at one time. One thread at a time. */
#ifndef VPMM_TRACE_LIVE_H
#define VPMM_TRACE_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vpmm_live_block {
    uint64_t address; /* 0: no block is here */
    uint64_t bytes, stream, thread;
    uint64_t moment_ns; /* since when it is live */
    uint64_t number;    /* for whoever keeps the table */
    uint8_t device, path, flags;
};

/* Zeroed it is empty. */
struct vpmm_live {
    struct vpmm_live_block *blocks; /* `room` places; those in use are anywhere among them */
    size_t room, n;
};

void vpmm_live_finish(struct vpmm_live *live);
/* Forgets all blocks. */
void vpmm_live_clear(struct vpmm_live *live);

/* Adds a block whose address is not 0 and not in the table. False where there is no memory. */
bool vpmm_live_put(struct vpmm_live *live, const struct vpmm_live_block *block);
/* Removes the block at exactly `address`; false where there is none. */
bool vpmm_live_take(struct vpmm_live *live, uint64_t address, struct vpmm_live_block *block_out);

#endif
