/* SPDX-License-Identifier: MIT */
/* What `vpmm top` wants to know of a process, found in one look. */
#ifndef VPMM_CLI_GLANCE_H
#define VPMM_CLI_GLANCE_H

#include "cli/cli_look.h"

struct vpmm_glance_device {
    struct vpmm_report_device figures;
    char bar[VPMM_REPORT_CELLS_MAX];
};

struct vpmm_glance {
    uint64_t started_ns; /* when its pool's process began, since 1970 */
    char program[64];
    struct vpmm_report_requests requests;
    unsigned n_weights;
    struct vpmm_report_offload weights[VPMM_OFFLOADS_MAX];
    unsigned n_cells; /* of each bar */
    unsigned n_devices;
    struct vpmm_glance_device devices[VPMM_DEVICES_MAX];
};

/* Looks at process `pid`; its bars have `n_cells`. An exit status: unless `is_quiet`, after a
 * message. */
int vpmm_glance(uint64_t pid, unsigned n_cells, bool is_quiet, struct vpmm_glance *glance_out);

/* The same in a command that was run again for it; the glance goes to standard output. */
int vpmm_glance_again(uint64_t pid, unsigned n_cells, unsigned n_tries);
#define VPMM_GLANCE_OPTION "glance"
#define VPMM_GLANCE_CELLS_OPTION "cells"

/* The processes of this user that show something, in ascending order, at most `room`; returns how
 * many. */
size_t vpmm_glance_find(uint64_t *pids_out, size_t room);

#endif
