/* SPDX-License-Identifier: MIT */
/* The requests of a trace in an array, with every look-up done, so that they can be replayed again
 * and again. 32 bytes an operation. A tape owns its memory; one thread at a time. */
#ifndef VPMM_REPLAY_TAPE_H
#define VPMM_REPLAY_TAPE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vpmm_tape_kind {
    VPMM_TAPE_MALLOC,
    VPMM_TAPE_FREE,
    VPMM_TAPE_WORK,   /* runs on the stream */
    VPMM_TAPE_RECORD, /* an event on a stream */
    VPMM_TAPE_FOLLOW, /* a stream waits for an event */
};

struct vpmm_tape_op {
    uint64_t ns;     /* since the recorded program began; never less than the one before */
    uint64_t amount; /* of a malloc: bytes; of work: nanoseconds */
    uint32_t stream; /* its number, from 0 in the order of appearance */
    uint32_t object; /* number of the allocation, or of the event */
    uint8_t kind;
    bool is_sync; /* cudaMalloc or cudaFree; else their stream-ordered forms */
};

struct vpmm_tape {
    struct vpmm_tape_op *ops;
    size_t n_ops;
    uint64_t *streams; /* what the trace calls each stream; 0: the default one */
    uint32_t n_streams, n_allocations, n_events; /* allocations: mallocs */
    int device;                                  /* of the trace, whose requests these are */
    uint64_t n_frees, n_works;
    uint64_t live_peak_bytes;
    /* Mallocs that were left out: below the least size, refused to the traced program, and of other
     * devices. */
    uint64_t n_small, n_refused, n_elsewhere;
    uint64_t n_unmatched; /* frees of nothing that was live, and frees that the trace lacks */
};

struct vpmm_tape_choice {
    uint64_t least_bytes; /* smaller requests are left out together with their frees */
    int device;           /* of the trace; -1: that of its first request */
};

/* Where the items of a trace come from, in the order of time: false at the end. */
struct vpmm_trace_item;
struct vpmm_tape_source {
    bool (*next)(void *self, struct vpmm_trace_item *item_out);
    void *self;
};

/* Reads `source` to its end, which may be damage that only its maker knows of. NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_tape_read(const struct vpmm_tape_source *source,
                                                const struct vpmm_tape_choice *choice,
                                                struct vpmm_tape *tape_out);
void vpmm_tape_finish(struct vpmm_tape *tape);

#endif
