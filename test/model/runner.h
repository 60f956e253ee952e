/* SPDX-License-Identifier: MIT */
/* Executes programs, each bare and under the library in a process of its own, and judges them. */
#ifndef VPMM_TEST_MODEL_RUNNER_H
#define VPMM_TEST_MODEL_RUNNER_H

#include "execute.h"

#define DIFFERENCES_MAX 16

struct runner {
    struct api bare, preloaded;
    struct outcome *outcomes; /* [0] bare, [1] under the library; shared with the children */
    int errors;               /* the file that a child's stderr goes to */
    struct outcome sums;
    uint64_t n_programs;
    uint64_t n_discarded; /* bare, CUDA's own pool waits for ever for its oldest free */
    uint64_t n_explained[DIFFERENCES_MAX]; /* by the rules of differences.h */
};

struct verdict {
    bool is_bare;                    /* already bare: the model or the simulator is wrong, */
    bool is_discarded;               /* or CUDA's own pool waits for ever: nothing to compare */
    int rule;                        /* that explains the difference; -1: none, or no difference */
    char kind[32];                   /* what went wrong, in one word */
    char text[400];                  /* the first line on stderr */
    size_t n_invalid, first_invalid; /* steps that were not made */
};

bool runner_start(struct runner *runner_out, const char *driver, const char *library);
/* True where the program behaves under the library as bare, or is discarded. */
bool runner_try(struct runner *runner, const struct program *program, struct verdict *verdict_out);
/* Takes out what the last run, which was of this program, did not make: steps that need a block
 * which bare CUDA refused. Without a whole bare run nothing. */
void runner_drop_unmade(const struct runner *runner, const struct verdict *verdict,
                        struct program *program);
/* One line with all figures. */
void runner_sum_up(const struct runner *runner);

/* Takes steps out of a failing program, and makes those left simpler, as long as it fails in the
 * same way. */
void shrink(struct runner *runner, struct program *program);

#endif
