/* SPDX-License-Identifier: MIT */
/* Figures made up for the tests of this folder. */
#ifndef VPMM_TEST_OBSERVE_SHOW_H
#define VPMM_TEST_OBSERVE_SHOW_H

#include "observe/observe_dump.h"
#include "observe/observe_stats.h"

#include <stddef.h>

#define GIB ((uint64_t)1 << 30)
#define SHOWN_PID 4711
#define FIRST_ROOT ((uint64_t)0x7f0000000000)
#define SECOND_ROOT ((uint64_t)0x700000000000)

struct show_rows {
    const struct vpmm_dump_row *rows;
    uint64_t n;
};

static inline bool show_next(const void *self, uint64_t *cursor, struct vpmm_dump_row *row_out)
{
    const struct show_rows *rows = self;
    if (*cursor == rows->n)
        return false;
    *row_out = rows->rows[(*cursor)++];
    return true;
}

/* Two roots of pages of 1 GiB: every state, and a hole at the end of the first only. */
static const struct vpmm_dump_row show_some[] = {
    {0, "live", FIRST_ROOT, 4, 4 * GIB - 5, 7, 0, "complete"},
    {'-', "free", FIRST_ROOT + 4 * GIB, 6, 0, 9, 12, "stream"},
    {0, "live", FIRST_ROOT + 10 * GIB, 1, GIB, 0, 3, "context"},
    {'*', "hole", FIRST_ROOT + 11 * GIB, 10, 0, 0, 0, "complete"},
    {'z', "zombie", FIRST_ROOT + 21 * GIB, 2, 0, 0, 18446744073709551615u, "joined"},
    {'?', "busy", FIRST_ROOT + 23 * GIB, 3, 0, 0, 0, "complete"},
    {'*', "hole", FIRST_ROOT + 26 * GIB, 8166, 0, 0, 0, "complete"},
    {'!', "quarantined", SECOND_ROOT, 1, 0, 0, 1, "parked"},
};
static const struct show_rows show_all = {show_some, sizeof show_some / sizeof show_some[0]};
static const struct show_rows show_none = {NULL, 0};

static const struct vpmm_class_row show_classes[] = {
    {"fine", 11, 1000000, 512000000, 3145728, {1, 2, 3, 5}},
    {"wide", 7, 3, 14000000, 524288, {0, 0, 0, 7}},
};

static const struct vpmm_dump_device show_devices[] = {
    {0, GIB, 17 * GIB, 8193 * GIB, 5 * GIB, 6 * GIB, 8176 * GIB, 2 * GIB, 3 * GIB, GIB, 20 * GIB,
     15, 17, show_classes, 2, &show_all, show_next},
    {3, 2097152, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, &show_none, show_next},
};

static const struct vpmm_dump_weights show_weights[] = {
    {3, 40 * GIB, 12 * GIB, 11 * GIB, 9 * GIB, 2 * GIB, GIB, 300 * GIB, 70, 30, 5000000, 40000,
     4900000},
};
static const struct vpmm_dump show_dump = {show_devices, 2, show_weights, 1};

static const struct vpmm_stats_row show_device_rows[] = {
    {"live_bytes", "live", 5 * GIB, true, 0},
    {"fits", "fit (served where memory lay free)", 12, false, 17},
};
static const struct vpmm_stats_row show_request_rows[] = {
    {"POOL", "served by the pool", 42, false, 0},
    {"SMALL", "smaller than the threshold", 0, false, 0},
    {"FULL", "out of memory", 18446744073709551615u, false, 0},
};
static const struct vpmm_stats_row show_no_requests[] = {
    {"POOL", "served by the pool", 0, false, 0},
};
static const struct vpmm_stats_group show_stats_devices[] = {
    {NULL, 0, show_device_rows, 2, show_classes, 2},
    {NULL, 1, NULL, 0, NULL, 0},
};
static const struct vpmm_stats_group show_stats_requests[] = {
    {"cudaMalloc", 0, show_request_rows, 3, NULL, 0},
    {"cudaMallocAsync", 0, show_no_requests, 1, NULL, 0},
};
static const struct vpmm_stats_group show_stats_weights[] = {
    {NULL, 1, show_device_rows, 2, NULL, 0},
};
static const struct vpmm_stats show_stats = {SHOWN_PID,
                                             "a \"program\"\n\xff",
                                             show_stats_devices,
                                             show_stats_requests,
                                             2,
                                             2,
                                             show_stats_weights,
                                             1};

#endif
