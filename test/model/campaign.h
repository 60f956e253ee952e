/* SPDX-License-Identifier: MIT */
/* A campaign: one random program after another, until enough were made or failed. */
#ifndef VPMM_TEST_MODEL_CAMPAIGN_H
#define VPMM_TEST_MODEL_CAMPAIGN_H

#include "runner.h"

struct campaign {
    const char *driver, *shared_library; /* as the command that replays names them */
    const char *folder;                  /* where failing programs are saved, or NULL */
    uint64_t operations;                 /* under the library, then it ends, */
    uint64_t seconds;                    /* or, not 0: after so long */
    uint64_t seed;                       /* of the first program; each next one is one more */
    uint64_t n_failures_max;             /* different ones */
    struct taste taste;
    bool keeps_long; /* failing programs are not made short */
};

/* 0, or 1 where a program failed. Prints each failure. */
int campaign_run(struct runner *runner, const struct campaign *campaign);

#endif
