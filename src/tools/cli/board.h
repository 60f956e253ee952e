/* SPDX-License-Identifier: MIT */
/* What `vpmm top` shows: one look at each process becomes lines of a sheet. */
#ifndef VPMM_CLI_BOARD_H
#define VPMM_CLI_BOARD_H

#include "cli/glance.h"
#include "cli/sheet.h"

/* A process that is watched. */
struct vpmm_watched {
    uint64_t pid;
    bool is_shown;   /* `now` is of the last look; otherwise it is gone */
    bool has_before; /* `before` is of the look before that one */
    double seconds;  /* between the two, or since its process began */
    struct vpmm_glance now, before;
};

struct vpmm_board {
    struct vpmm_watched **watched; /* in the order in which they are shown */
    size_t n;
    double interval_s;
    const char *hint; /* at the end of the first line */
};

/* The lines above all processes: the first few of the sheet. */
#define VPMM_BOARD_HEADINGS 4u
void vpmm_board_write(const struct vpmm_board *board, struct vpmm_sheet *sheet);

/* How many cells a bar has on a sheet of so many columns. */
unsigned vpmm_board_cells(unsigned width);

#endif
