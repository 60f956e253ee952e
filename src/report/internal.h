/* SPDX-License-Identifier: MIT */
/* What the files of src/report share. */
#ifndef VPMM_REPORT_INTERNAL_H
#define VPMM_REPORT_INTERNAL_H

#include "report/report.h"

/* The heaps of one device or of all; returns how many. */
unsigned vpmm_report_heaps(struct vpmm_router *router, int device,
                           struct vpmm_heap *heaps_out[VPMM_DEVICES_MAX]);

/* Where reports for `path` go: standard error for an empty one, also when the file cannot be
 * opened: then `*error_out` is the errno, otherwise 0. */
int vpmm_report_open(const char *path, int *error_out);
void vpmm_report_close(int fd);

#endif
