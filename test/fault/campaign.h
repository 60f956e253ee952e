/* SPDX-License-Identifier: MIT */
/* Repeats a scenario with the first, second, third, ... call of each kind failing, with each code
 * of codes.def, once and for good, until a run sees no failure; with everything failing from one
 * call on; with metadata failing; and with a second fault soon after the first. What a run is, and
 * when it has failed, the suite says. A run that fails ends the process; on standard error then
 * stands the command that repeats it. One thread. */
#ifndef VPMM_TEST_FAULT_CAMPAIGN_H
#define VPMM_TEST_FAULT_CAMPAIGN_H

#include <cuda.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ANY_CALL "any"           /* whichever driver call of the library comes */
#define METADATA "metadata"      /* no driver call: the library's own memory */
#define LIKELY_CODE CUDA_SUCCESS /* the first code of whichever call is hit */

/* The `nth` use of `call` answers `code`; with `forever` all later ones, too. */
struct aim {
    const char *call; /* NULL: nothing */
    uint64_t nth;
    CUresult code;
    bool forever;
};

/* `then` counts from the use after the first strike of `first`. */
struct faults {
    struct aim first, then;
};

struct verdict {
    bool struck, then_struck;
};

struct suite {
    const char *program;
    const char *const *scenarios; /* by number; NULL ends them */
    /* Runs one scenario under `faults`. Does not return from a run that fails. */
    struct verdict (*run)(size_t scenario, const struct faults *faults);
    bool has_pairs; /* a second fault can be had */
    bool is_whole;  /* a code that lasts comes from every call from then on, or from none */
};

/* What the command line asks for: one run, all runs of one scenario, of every Nth, or of all. */
struct wish {
    const char *scenario;
    size_t part, n_parts; /* n_parts 0: all */
    struct faults faults;
};

struct campaign {
    const struct suite *suite;
    struct wish wish;
    size_t scenario, n_scenarios;
    uint64_t runs, injected;
};

/* False, and the usage on standard error, where the arguments make no sense. */
bool campaign_read(struct campaign *campaign, const struct suite *suite, int n, char **arguments);
void campaign_run(struct campaign *campaign);
/* One line of figures. */
void campaign_report(const struct campaign *campaign);

#endif
