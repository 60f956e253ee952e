/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "campaign.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DISCARDED_PERCENT_MAX 10
#define IDLE_PROGRAMS_MAX 100
#define FAILURES_MAX 64

/* Failures that end in the same way, at the same kind of step, after the same ones of the steps
 * that make a difference count as one. */
struct signature {
    char kind[32];
    uint64_t steps;
    enum step_kind last;
    bool is_full;
    unsigned n;
};

struct findings {
    struct signature signatures[FAILURES_MAX];
    unsigned n;
};

static struct signature signature_of(const struct program *program, const struct verdict *verdict)
{
    static const enum step_kind telling[] = {STEP_CAPTURE_BEGIN, STEP_CONTEXT_CREATE,
                                             STEP_MALLOC_POOL,   STEP_EXCHANGE,
                                             STEP_WAIT_FLAG,     STEP_STREAM_DESTROY};
    struct signature signature = {.n = 1, .is_full = program->setting.is_full};
    memcpy(signature.kind, verdict->kind, sizeof signature.kind);
    for (size_t i = 0; i < program->n; i++)
        for (unsigned j = 0; j < sizeof telling / sizeof *telling; j++)
            if (program->steps[i].kind == telling[j])
                signature.steps |= (uint64_t)1 << j;
    if (program->n)
        signature.last = program->steps[program->n - 1].kind;
    return signature;
}

/* Whether it is the first of its kind. */
static bool note(struct findings *findings, const struct signature *signature)
{
    for (unsigned i = 0; i < findings->n; i++) {
        struct signature *known = &findings->signatures[i];
        if (strcmp(known->kind, signature->kind) == 0 && known->steps == signature->steps &&
            known->last == signature->last && known->is_full == signature->is_full) {
            known->n++;
            return false;
        }
    }
    findings->signatures[findings->n++] = *signature;
    return true;
}

static void save(const struct campaign *campaign, const struct program *program,
                 const struct verdict *verdict, const char *origin, uint64_t seed)
{
    char path[512] = "FILE";
    FILE *file = NULL;
    if (campaign->folder) {
        snprintf(path, sizeof path, "%s/%s-%" PRIu64, campaign->folder, verdict->kind, seed);
        file = fopen(path, "w");
    }
    if (file) {
        fprintf(file, "# %s: %s\n# %s\n", origin, verdict->kind, verdict->text);
        program_print(file, program);
        fclose(file);
    }
    printf("\nmodel: %s, then:\n  model --driver %s --library %s --replay %s\n",
           file ? "saved" : "save the lines from '#' as FILE", campaign->driver,
           campaign->shared_library, path);
}

/* A program that has just failed, short, as a file to replay. */
static void report(struct runner *runner, const struct campaign *campaign,
                   struct findings *findings, struct program *program, uint64_t seed,
                   const struct verdict *first)
{
    struct verdict verdict;
    char origin[64];
    runner_drop_unmade(runner, first, program);
    if (!campaign->keeps_long)
        shrink(runner, program);
    struct runner counts = *runner;
    bool is_once = runner_try(runner, program, &verdict);
    *runner = counts;
    if (is_once)
        verdict = *first;
    struct signature signature = signature_of(program, &verdict);
    if (!note(findings, &signature))
        return;
    snprintf(origin, sizeof origin, "seed %" PRIu64 ", program %" PRIu64, campaign->seed, seed);
    printf("\nmodel: FAILED%s%s: %s\n%s\n\n# %s: %s\n", verdict.is_bare ? " already bare" : "",
           is_once ? " once, and not again" : "", origin, verdict.text, origin, verdict.kind);
    program_print(stdout, program);
    save(campaign, program, &verdict, origin, seed);
    fflush(stdout);
}

/* Whether so many were discarded that the rest proves little. */
static bool discards_too_many(const struct runner *runner)
{
    uint64_t n_drawn = runner->n_programs + runner->n_discarded;
    if (runner->n_discarded * 100 <= n_drawn * DISCARDED_PERCENT_MAX)
        return false;
    printf("model: FAILED: %" PRIu64 " of %" PRIu64 " programs discarded, more than %d%%\n",
           runner->n_discarded, n_drawn, DISCARDED_PERCENT_MAX);
    return true;
}

static bool is_over(const struct runner *runner, const struct campaign *campaign, time_t start)
{
    return campaign->seconds ? time(NULL) - start >= (time_t)campaign->seconds
                             : runner->sums.operations >= campaign->operations;
}

int campaign_run(struct runner *runner, const struct campaign *campaign)
{
    static struct program program;
    static struct findings findings;
    unsigned n_idle = 0;
    uint64_t n_max =
        campaign->n_failures_max < FAILURES_MAX ? campaign->n_failures_max : FAILURES_MAX;
    time_t start = time(NULL);
    for (uint64_t seed = campaign->seed; findings.n < n_max; seed++) {
        struct verdict verdict;
        uint64_t operations = runner->sums.operations;
        if (is_over(runner, campaign, start))
            break;
        program_generate(&program, seed, &campaign->taste);
        if (!runner_try(runner, &program, &verdict))
            report(runner, campaign, &findings, &program, seed, &verdict);
        n_idle = operations == runner->sums.operations ? n_idle + 1 : 0;
        if (n_idle == IDLE_PROGRAMS_MAX) {
            printf("model: FAILED: %u programs in a row, and no operation\n", n_idle);
            return 1;
        }
    }
    for (unsigned i = 0; i < findings.n; i++)
        printf("model: failure %u (%s) was met %u times\n", i + 1, findings.signatures[i].kind,
               findings.signatures[i].n);
    return findings.n || discards_too_many(runner);
}
