/* SPDX-License-Identifier: MIT */
/* The statistics that a process leaves behind: figures by device and requests by answer, as one
 * table for people or one JSON object for programs. It knows figures, not heaps: whoever calls it
 * supplies them. No lock, no allocation, no driver. */
#ifndef VPMM_OBSERVE_STATS_H
#define VPMM_OBSERVE_STATS_H

#include "observe/observe_classes.h"

#include <stdbool.h>
#include <stdint.h>

/* One figure. Static texts. */
struct vpmm_stats_row {
    const char *key;  /* in JSON; unique in its group and never renamed */
    const char *text; /* for people */
    uint64_t value;
    bool is_bytes;  /* people also get it in a unit */
    uint64_t whole; /* people also get how much it is of that; 0: nothing */
};

/* The figures of one device, or of one kind of request ("cudaMalloc", "cudaMallocAsync"). */
struct vpmm_stats_group {
    const char *name; /* of a kind of request; not used for devices */
    int device;       /* not used for requests */
    const struct vpmm_stats_row *rows;
    unsigned n_rows;
    const struct vpmm_class_row *classes; /* of a device whose pages are shared */
    unsigned n_classes;
};

struct vpmm_stats {
    uint64_t pid;
    const char *program;
    const struct vpmm_stats_group *devices, *requests;
    unsigned n_devices, n_requests;
    const struct vpmm_stats_group *weights; /* an object each, by device; often there are none */
    unsigned n_weights;
};

/* Writes `stats` to `fd`. The table leaves out requests that never happened, and is one line where
 * there is nothing else; the JSON object has every figure:
 * {"vpmm_stats": 1, "pid": 1, "program": "", "devices": [{"device": 0, KEY: n, ...}],
 *  "requests": {NAME: {KEY: n, ...}}}
 * A device whose pages are shared has the list "small" of dumps as well,
 * and where there are weights larger than their budget, "weights": [{"device": 0, KEY: n, ...}].
 * False: not all of it could be written. */
bool vpmm_stats_table(int fd, const struct vpmm_stats *stats);
bool vpmm_stats_json(int fd, const struct vpmm_stats *stats);

#endif
