/* SPDX-License-Identifier: MIT */
/* A bar on standard error for work that takes longer than a moment; nothing where that is no
 * terminal. One at a time. */
#ifndef VPMM_CLI_PROGRESS_H
#define VPMM_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct vpmm_progress {
    const char *what; /* a word or two: "reading" */
    uint64_t next_ms; /* when to draw again */
    uint32_t n_steps;
    bool is_wanted, is_drawn;
};

/* `what` outlives it. */
void vpmm_progress_begin(struct vpmm_progress *progress, const char *what);
/* Whether it is time to tell how far the work is; cheap, to be asked at every step. */
bool vpmm_progress_is_due(struct vpmm_progress *progress);
/* The same for whoever is told by a clock: to be asked now and then. */
bool vpmm_progress_is_due_now(const struct vpmm_progress *progress);
/* `done` of `all`; 0 of 0 where that is not known. */
void vpmm_progress_draw(struct vpmm_progress *progress, uint64_t done, uint64_t all);
/* Takes the bar away. */
void vpmm_progress_end(struct vpmm_progress *progress);

#endif
