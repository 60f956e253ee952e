/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "runner.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRIES_MAX 3000
#define SECONDS_MAX 120 /* programs that are ended by the clock take long */

struct shrinking {
    struct runner *runner;
    struct program *best;
    struct program candidate;
    struct verdict verdict;
    unsigned n_tries;
    time_t until;
};

/* Steps that depend on one that was taken out are no longer valid, and go with it. */
static void drop_invalid(struct program *program)
{
    struct reference *reference = malloc(sizeof *reference);
    size_t n = 0;
    if (!reference)
        abort();
    reference_start(reference, &program->setting);
    for (size_t i = 0; i < program->n; i++)
        if (!reference_make(reference, &program->steps[i]))
            program->steps[n++] = program->steps[i];
    program->n = n;
    free(reference);
}

/* Keeps the candidate if it fails in the same way. */
static bool keep(struct shrinking *shrinking)
{
    struct verdict verdict;
    if (shrinking->n_tries++ > TRIES_MAX || time(NULL) > shrinking->until ||
        runner_try(shrinking->runner, &shrinking->candidate, &verdict) ||
        verdict.is_bare != shrinking->verdict.is_bare ||
        strcmp(verdict.kind, shrinking->verdict.kind) != 0)
        return false;
    runner_drop_unmade(shrinking->runner, &verdict, &shrinking->candidate);
    *shrinking->best = shrinking->candidate;
    return true;
}

static bool take_out(struct shrinking *shrinking, size_t at, size_t n)
{
    struct program *candidate = &shrinking->candidate;
    *candidate = *shrinking->best;
    memmove(candidate->steps + at, candidate->steps + at + n,
            (candidate->n - at - n) * sizeof *candidate->steps);
    candidate->n -= n;
    drop_invalid(candidate);
    return keep(shrinking);
}

static bool take_out_chunks(struct shrinking *shrinking)
{
    bool learnt = false;
    for (size_t n = shrinking->best->n / 2; n > 0; n /= 2)
        for (size_t at = 0; at + n <= shrinking->best->n;)
            if (take_out(shrinking, at, n))
                learnt = true;
            else
                at += n;
    return learnt;
}

/* Whole pages instead of odd sizes, plain spellings, thread 0. */
static bool simplify_step(struct shrinking *shrinking, size_t at)
{
    struct program *candidate = &shrinking->candidate;
    uint64_t page = shrinking->best->setting.page_bytes;
    bool learnt = false;
    for (int way = 0; way < 4; way++) {
        *candidate = *shrinking->best;
        struct step *step = &candidate->steps[at];
        bool is_malloc = step_is_malloc(step->kind) || step->kind == STEP_EXCHANGE;
        struct step old = *step;
        if (way == 0)
            step->spelling = 0;
        else if (way == 1)
            step->thread = 0;
        else if (way == 2 && is_malloc)
            step->n = page;
        else if (way == 3 && is_malloc)
            step->n = (step->n + page - 1) / page * page;
        size_t n = candidate->n;
        if (memcmp(&old, step, sizeof old) == 0)
            continue;
        drop_invalid(candidate);
        learnt = (candidate->n == n && keep(shrinking)) || learnt;
    }
    return learnt;
}

static void simplify_setting(struct shrinking *shrinking)
{
    for (int way = 0; way < 7; way++) {
        shrinking->candidate = *shrinking->best;
        struct setting *setting = &shrinking->candidate.setting;
        if (way == 0)
            setting->eager_pages = 0;
        else if (way == 1)
            setting->extent_pages = 1;
        else if (way == 2)
            setting->slack_bytes = 0;
        else if (way == 3)
            setting->root_bytes = (uint64_t)1 << 30;
        else if (way == 4)
            setting->page_bytes = GRANULE;
        else if (way == 5)
            setting->free_waits = false;
        else
            setting->serves_small = false;
        drop_invalid(&shrinking->candidate);
        (void)keep(shrinking);
    }
}

void shrink(struct runner *runner, struct program *program)
{
    struct shrinking *shrinking = calloc(1, sizeof *shrinking);
    if (!shrinking)
        abort();
    shrinking->runner = runner;
    shrinking->best = program;
    shrinking->until = time(NULL) + SECONDS_MAX;
    struct runner counts = *runner;
    if (!runner_try(runner, program, &shrinking->verdict)) {
        bool learnt = true;
        while (learnt) {
            learnt = take_out_chunks(shrinking);
            for (size_t i = 0; i < program->n; i++)
                learnt = simplify_step(shrinking, i) || learnt;
        }
        simplify_setting(shrinking);
    }
    memcpy(runner->n_explained, counts.n_explained, sizeof counts.n_explained);
    runner->n_discarded = counts.n_discarded;
    runner->n_programs = counts.n_programs;
    runner->sums = counts.sums;
    free(shrinking);
}
