/* SPDX-License-Identifier: MIT */
/* The region map as text or JSON, written with write(2) from a stack buffer: safe in a signal
 * handler, no lock, no allocation, no driver. It knows rows, not pools: whoever calls it supplies
 * them. */
#ifndef VPMM_OBSERVE_DUMP_H
#define VPMM_OBSERVE_DUMP_H

#include "observe/observe_classes.h"

#include <stdbool.h>
#include <stdint.h>

/* One region. The specification's notation: live [X], free [-X], hole [*X], zombie [zX]; and ours:
 * busy [?X], quarantined [!X]. */
struct vpmm_dump_row {
    char mark; /* 0 for live, '-', '*', 'z', '?', '!' */
    const char *state;
    uint64_t address, pages;
    uint64_t requested_bytes; /* live regions only, else 0 */
    uint64_t stream_id;       /* 0: none */
    uint64_t fence;           /* 0: complete */
    const char *fence_kind;   /* static text: "complete", "stream", "context", "parked", "joined" */
};

/* One device's figures, by the names that the statistics have for them, and a walk over its regions
 * in ascending address order. */
struct vpmm_dump_device {
    int device;
    uint64_t page_bytes;
    uint64_t held_bytes, reserved_bytes, live_bytes, reusable_bytes, hole_bytes, zombie_bytes,
        busy_bytes, quarantined_bytes;
    uint64_t limit_bytes; /* of what is held; 0: none */
    uint64_t extents, mappings;
    const struct vpmm_class_row *classes;
    unsigned n_classes; /* 0: nothing is told of them */
    const void *self;
    bool (*next)(const void *self, uint64_t *cursor, struct vpmm_dump_row *row_out);
};

/* The weights larger than their budget of one object, by the names that the statistics have. */
struct vpmm_dump_weights {
    int device;
    uint64_t weight_bytes, budget_bytes, held_bytes, resident_bytes, ring_bytes, direct_bytes,
        copied_bytes;
    uint64_t hits, misses, pass_ns, stall_ns, bound_ns;
};

/* What a dump is of. */
struct vpmm_dump {
    const struct vpmm_dump_device *devices;
    unsigned n_devices;
    const struct vpmm_dump_weights *weights;
    unsigned n_weights;
};

/* Writes everything of `dump` to `fd`, which may be one of base/text.h's. `notation` lines
 * first, for people; then metrics and every region. Returns how many bytes that is; 0: not all of
 * them could be written. */
uint64_t vpmm_dump_text(int fd, const struct vpmm_dump *dump);
uint64_t vpmm_dump_json(int fd, uint64_t pid, const struct vpmm_dump *dump);

#endif
