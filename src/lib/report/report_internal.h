/* SPDX-License-Identifier: MIT */
/* What the files of src/lib/report share. */
#ifndef VPMM_REPORT_INTERNAL_H
#define VPMM_REPORT_INTERNAL_H

#include "observe/observe_dump.h"
#include "observe/observe_stats.h"
#include "report/report.h"

/* The heaps of one device or of all; returns how many. */
unsigned vpmm_report_heaps(struct vpmm_router *router, int device,
                           struct vpmm_heap *heaps_out[VPMM_DEVICES_MAX]);

/* Those classes of small blocks that have pages, as rows; returns how many. */
unsigned vpmm_report_classes(const struct vpmm_small_class classes[VPMM_SMALL_CLASSES],
                             struct vpmm_class_row rows_out[VPMM_SMALL_CLASSES]);

/* ---- report_weights.c: weights larger than their budget ---- */

#define VPMM_WEIGHT_FIGURES 29
struct vpmm_report_weights {
    struct vpmm_stats_row rows[VPMM_OFFLOADS_MAX][VPMM_WEIGHT_FIGURES];
    struct vpmm_stats_group groups[VPMM_OFFLOADS_MAX];
    unsigned n;
};
void vpmm_report_weights(const struct vpmm_router *router, struct vpmm_report_weights *weights_out);
/* At most `room` of the objects that live on `device`, or anywhere, as a dump shows them; returns
 * how many. A router of NULL has none. */
unsigned vpmm_report_dump_weights(const struct vpmm_router *router, int device,
                                  struct vpmm_dump_weights *weights_out, unsigned room);

/* Where a report goes. */
struct vpmm_sink {
    int fd;         /* -1: nowhere */
    bool is_ours;   /* opened here */
    bool is_file;   /* a regular file, which grows */
    bool is_locked; /* a file that no other process adds to meanwhile */
    uint64_t bytes; /* that it had when it was opened, or locked */
};

/* Opens what `path` names for reports to be added to: standard error where it is empty or
 * /dev/stderr, standard output for /dev/stdout. Nothing of the user's is damaged: never through a
 * link in the last component; a regular file must belong to the user and be empty or begin with one
 * of `beginnings`, which ends with NULL; a pipe must belong to the user and have a reader; of other
 * things only character devices, such as terminals, are written to. Returns why it cannot be, a
 * static text, with `sink_out` standing for standard error; or NULL. Safe in a signal handler. */
const char *vpmm_sink_open(const char *path, const char *const *beginnings,
                           struct vpmm_sink *sink_out);
/* False: what was written is not there. */
bool vpmm_sink_close(const struct vpmm_sink *sink);

/* Reports of several processes in one file stand one behind the other: waits half a second for
 * those that are being written; false: in vain. True also where the file system has no locks. Safe
 * in a signal handler, as is what follows. */
bool vpmm_sink_lock(struct vpmm_sink *sink);
/* Cuts a report that could not be written whole off a locked file. */
void vpmm_sink_take_back(const struct vpmm_sink *sink);

/* The same for a report that takes the place of the one before: what is written goes to a new file
 * beside `path`, and vpmm_sink_replace puts that in the place of the old one in one step, or, where
 * `is_whole` is false, takes it away. Returns why that cannot be, or NULL. A path that names no
 * regular file is written to directly. Not for signal handlers. */
struct vpmm_replacement {
    struct vpmm_sink sink;
    const char *path;
    char name[VPMM_PATH_MAX]; /* of the new file; empty: there is none */
};
const char *vpmm_sink_open_replacement(const char *path, const char *const *beginnings,
                                       struct vpmm_replacement *replacement_out);
const char *vpmm_sink_replace(struct vpmm_replacement *replacement, bool is_whole);

#endif
