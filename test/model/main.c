/* SPDX-License-Identifier: MIT */
/* The model test: draws random programs, executes each bare and under the library, and shrinks the
 * first that fails. */
#define _GNU_SOURCE
#include "campaign.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: model --driver PATH --library PATH [--operations N] [--seed S] [--steps N]\n"
    "             [--extent N]\n"
    "       model --driver PATH --library PATH --replay FILE...\n"
    "\n"
    "Draws random correct CUDA programs and executes each on the simulated driver, bare and under "
    "the\n"
    "library. One whose bytes, answers, order or end differ is made as short as it can be and\n"
    "printed as a file for --replay. What differs by a rule of the table of differences is "
    "counted.\n"
    "\n"
    "  --driver PATH     the simulated libcuda.so.1\n"
    "  --library PATH    libvpmm.so, best one built with -Daudit=true\n"
    "  --operations N    stop after so many steps under the library (default 20000)\n"
    "  --seed S          the number of the first program (default 1); each next one is one more\n"
    "  --seconds N       go on for so long instead\n"
    "  --failures N      stop after so many different failures (default 1)\n"
    "  --folder DIR      save each failing program there\n"
    "  --steps N         the most steps of one program (default 220)\n"
    "  --extent N        all programs with this VPMM_EXTENT (0: auto; default: each draws its "
    "own)\n"
    "  --small           all programs with small requests served\n"
    "  --replay FILE...  executes programs from files instead\n"
    "  --print           prints program S and executes nothing\n"
    "  --keep-long       does not make a failing program short\n";

struct options {
    struct campaign campaign;
    bool replays, prints;
};

/* The long option's letter says what it sets: upper case sets a path, lower case a number. */
static void set_option(struct options *options, int name, const char *text)
{
    struct campaign *campaign = &options->campaign;
    struct {
        char letter;
        const char **path;
    } paths[] = {
        {'D', &campaign->driver}, {'L', &campaign->shared_library}, {'F', &campaign->folder}};
    struct {
        char letter;
        uint64_t *value;
    } values[] = {{'o', &campaign->operations},
                  {'s', &campaign->seed},
                  {'n', &campaign->taste.steps_max},
                  {'t', &campaign->seconds},
                  {'f', &campaign->n_failures_max}};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (paths[i].letter == name)
            *paths[i].path = text;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i].letter == name)
            *values[i].value = strtoull(text, NULL, 0);
    if (name == 'e')
        campaign->taste.extents = atoi(text);
    options->replays = options->replays || name == 'r';
    options->prints = options->prints || name == 'p';
    campaign->taste.is_small = campaign->taste.is_small || name == 'm';
    campaign->keeps_long = campaign->keeps_long || name == 'k';
}

static bool read_options(int n, char **arguments, struct options *options)
{
    static const struct option names[] = {{"driver", required_argument, NULL, 'D'},
                                          {"library", required_argument, NULL, 'L'},
                                          {"folder", required_argument, NULL, 'F'},
                                          {"operations", required_argument, NULL, 'o'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"steps", required_argument, NULL, 'n'},
                                          {"seconds", required_argument, NULL, 't'},
                                          {"failures", required_argument, NULL, 'f'},
                                          {"extent", required_argument, NULL, 'e'},
                                          {"replay", no_argument, NULL, 'r'},
                                          {"print", no_argument, NULL, 'p'},
                                          {"keep-long", no_argument, NULL, 'k'},
                                          {"small", no_argument, NULL, 'm'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int name;
    *options = (struct options){.campaign = {.operations = 20000,
                                             .seed = 1,
                                             .n_failures_max = 1,
                                             .taste = {.steps_max = 220, .extents = -1}}};
    while ((name = getopt_long(n, arguments, "", names, NULL)) != -1) {
        if (name == 'h' || name == '?') {
            fputs(help, name == 'h' ? stdout : stderr);
            exit(name == 'h' ? 0 : 2);
        }
        set_option(options, name, optarg);
    }
    return options->prints || (options->campaign.driver && options->campaign.shared_library);
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
        program.setting.is_old = runner->bare.is_old;
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
        program_generate(&program, options.campaign.seed, &options.campaign.taste);
        program_print(stdout, &program);
        return 0;
    }
    if (!runner_start(&runner, options.campaign.driver, options.campaign.shared_library))
        return 2;
    options.campaign.taste.detaches = runner.bare.cuCtxDetach != NULL;
    options.campaign.taste.is_old = runner.bare.is_old;
    int status = options.replays ? replay(&runner, arguments + optind)
                                 : campaign_run(&runner, &options.campaign);
    runner_sum_up(&runner);
    return status;
}
