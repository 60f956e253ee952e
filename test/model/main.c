/* SPDX-License-Identifier: MIT */
/* The model test: draws random programs, executes each bare and under the library, and shrinks the
 * first that fails. */
#define _GNU_SOURCE
#include "runner.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DISCARDED_PERCENT_MAX 5
#define IDLE_PROGRAMS_MAX 100

static const char help[] =
    "usage: model --driver PATH --library PATH [--operations N] [--seed S] [--steps N]\n"
    "             [--extent N]\n"
    "       model --driver PATH --library PATH --replay FILE...\n"
    "\n"
    "Draws random correct CUDA programs, executes each on the simulated driver, bare and under "
    "the\n"
    "library, and stops at the first whose bytes, answers or end differ. That one is made as "
    "short\n"
    "as it can be and printed as a file for --replay.\n"
    "\n"
    "  --driver PATH     the simulated libcuda.so.1\n"
    "  --library PATH    libvpmm.so, best one built with -Daudit=true\n"
    "  --operations N    stop after so many steps under the library (default 20000)\n"
    "  --seed S          the number of the first program (default 1); each next one is one more\n"
    "  --steps N         the most steps of one program (default 220)\n"
    "  --extent N        all programs with this VPMM_EXTENT (0: auto; default: each draws its "
    "own)\n"
    "  --replay FILE...  executes programs from files instead\n"
    "  --print           prints program S and executes nothing\n"
    "  --keep-long       does not make a failing program short\n";

struct options {
    const char *driver, *shared_library;
    uint64_t operations, seed, steps;
    int extent;
    bool replays, prints, keeps_long;
};

static bool read_options(int n, char **arguments, struct options *options)
{
    static const struct option names[] = {{"driver", required_argument, NULL, 'd'},
                                          {"library", required_argument, NULL, 'l'},
                                          {"operations", required_argument, NULL, 'o'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"steps", required_argument, NULL, 'n'},
                                          {"extent", required_argument, NULL, 'e'},
                                          {"replay", no_argument, NULL, 'r'},
                                          {"print", no_argument, NULL, 'p'},
                                          {"keep-long", no_argument, NULL, 'k'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int name;
    *options = (struct options){.operations = 20000, .seed = 1, .steps = 220, .extent = -1};
    while ((name = getopt_long(n, arguments, "", names, NULL)) != -1) {
        uint64_t value = optarg ? strtoull(optarg, NULL, 0) : 0;
        switch (name) {
        case 'd':
            options->driver = optarg;
            break;
        case 'l':
            options->shared_library = optarg;
            break;
        case 'o':
            options->operations = value;
            break;
        case 's':
            options->seed = value;
            break;
        case 'n':
            options->steps = value;
            break;
        case 'e':
            options->extent = (int)value;
            break;
        case 'r':
            options->replays = true;
            break;
        case 'p':
            options->prints = true;
            break;
        case 'k':
            options->keeps_long = true;
            break;
        default:
            fputs(help, name == 'h' ? stdout : stderr);
            exit(name == 'h' ? 0 : 2);
        }
    }
    return options->prints || (options->driver && options->shared_library);
}

/* A failing program, short, as a file to replay. */
static void report(struct runner *runner, struct program *program, const struct options *options,
                   const char *origin)
{
    struct verdict verdict;
    if (!options->keeps_long)
        shrink(runner, program);
    (void)runner_try(runner, program, &verdict);
    printf("\nmodel: FAILED%s: %s\n%s\n\n# %s: %s\n", verdict.is_bare ? " already bare" : "",
           origin, verdict.text, origin, verdict.kind);
    program_print(stdout, program);
    printf("\nmodel: save the lines from '#' as FILE, then:\n  model --driver %s --library %s "
           "--replay FILE\n",
           options->driver, options->shared_library);
}

static int replay(struct runner *runner, char **files)
{
    static struct program program;
    int n_failed = 0;
    for (; *files; files++) {
        struct verdict verdict;
        FILE *file = fopen(*files, "r");
        if (!file || !program_read(file, &program)) {
            fprintf(stderr, "model: %s cannot be read\n", *files);
            return 2;
        }
        fclose(file);
        if (!runner_try(runner, &program, &verdict)) {
            printf("model: FAILED: %s: %s\n%s\n", *files, verdict.kind, verdict.text);
            n_failed++;
        }
        if (verdict.is_discarded) {
            printf("model: FAILED: %s: discarded, for it does not end bare: %s\n", *files,
                   verdict.text);
            n_failed++;
        }
        if (verdict.n_invalid) {
            printf("model: FAILED: %s: %zu steps that no correct program may make, the first at "
                   "line %zu\n",
                   *files, verdict.n_invalid, verdict.first_invalid + 2);
            n_failed++;
        }
    }
    return n_failed != 0;
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

static int draw(struct runner *runner, const struct options *options)
{
    static struct program program;
    char origin[64];
    unsigned n_idle = 0;
    for (uint64_t seed = options->seed; runner->sums.operations < options->operations; seed++) {
        struct verdict verdict;
        uint64_t operations = runner->sums.operations;
        program_generate(&program, seed, options->steps, options->extent);
        if (!runner_try(runner, &program, &verdict)) {
            snprintf(origin, sizeof origin, "seed %" PRIu64 ", program %" PRIu64, options->seed,
                     seed);
            report(runner, &program, options, origin);
            return 1;
        }
        n_idle = operations == runner->sums.operations ? n_idle + 1 : 0;
        if (n_idle == IDLE_PROGRAMS_MAX) {
            printf("model: FAILED: %u programs in a row, and no operation\n", n_idle);
            return 1;
        }
    }
    return discards_too_many(runner);
}

int main(int n, char **arguments)
{
    static struct program program;
    struct options options;
    struct runner runner;
    if (!read_options(n, arguments, &options)) {
        fputs(help, stderr);
        return 2;
    }
    if (options.prints) {
        program_generate(&program, options.seed, options.steps, options.extent);
        program_print(stdout, &program);
        return 0;
    }
    if (!runner_start(&runner, options.driver, options.shared_library))
        return 2;
    int status = options.replays ? replay(&runner, arguments + optind) : draw(&runner, &options);
    runner_sum_up(&runner);
    return status;
}
