/* SPDX-License-Identifier: MIT */
/* Executes a batch of programs of the model test on the driver that this process finds, bare or
 * preloaded, and writes down what each program saw. */
#define _GNU_SOURCE
#include "../model/differences.h"
#include "crash.h"
#include "plain.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 30
#define WATCH_US 100000
#define DEVICE_GRANULES 1024
/* A process that makes its contexts beside others on a GPU may take so long more. */
#define START_S 60
/* What contexts and the driver itself take: whoever is refused has taken more than the programs'
 * device. */
#define MARGIN_BYTES ((uint64_t)1 << 30)

static const char help[] =
    "usage: search-batch --out FILE --seed S --programs N [OPTION...]\n"
    "       search-batch --out FILE [OPTION...] --replay FILE...\n"
    "       search-batch --print --seed S [OPTION...]\n"
    "\n"
    "Executes programs on libcuda.so.1, all in one process, and writes a line for each: its "
    "number,\n"
    "how many steps it had, then the answer of each step, -1: not made, and what else it saw.\n"
    "It ends with 3 when a program saw wrong bytes or a wrong answer, with 4 when one hangs or\n"
    "crashes; the last line is then that program's, with the step. It is killed when who started "
    "it\n"
    "ends.\n"
    "\n"
    "  --scale N         bytes of the device for one of the program (default 32)\n"
    "  --settle-ms N     after so long nothing goes on but by a later step (default 20)\n"
    "  --limit N         seconds that one program may take (default 20), the first one 60 more\n"
    "  --seconds N       begins no program after so long\n"
    "  --steps N         the most steps of one program (default 150)\n"
    "  --extent-pages N  VPMM_EXTENT of this process, 0: auto\n"
    "  --slack-bytes N   VPMM_SLACK of this process\n"
    "  --free-waits      VPMM_FREE_SYNC of this process\n"
    "  --small           half of the requests are smaller than a page\n"
    "  --full            programs may use all of the device and be refused; --bare FILE then names "
    "what\n"
    "                    a bare run of the same programs wrote, which this one keeps step with\n"
    "  --captures        programs may capture their streams\n"
    "  --ballast         holds all of the device but 3 GiB, which is what programs are made for\n";

struct options {
    const char *out;
    uint64_t seed, n_programs, scale, settle_ms, limit_s, steps, extent_pages, slack_bytes;
    const char *bare;
    double seconds;
    bool free_waits, prints, replays, is_full, has_ballast, captures, is_small;
};

static FILE *out;
static struct outcome outcome;
static uint64_t number;
static struct timespec start;
static _Atomic(time_t) deadline; /* of the program under way, or of the start; 0: none */
/* What the program did bare, where that is known. */
static struct outcome bare_outcome;
static const struct outcome *bare;
static const struct program *current;

static void set_flag(struct options *options, int name)
{
    options->free_waits = options->free_waits || name == 'f';
    options->replays = options->replays || name == 'r';
    options->prints = options->prints || name == 'i';
    options->is_full = options->is_full || name == 'u';
    options->has_ballast = options->has_ballast || name == 'x';
    options->captures = options->captures || name == 'a';
    options->is_small = options->is_small || name == 'z';
}

static bool read_options(int n, char **arguments, struct options *options)
{
    static const char names[] = "ospcmlnekfriubxtaz"; /* one letter an option */
    static const struct option list[] = {{"out", required_argument, NULL, 'o'},
                                         {"seed", required_argument, NULL, 's'},
                                         {"programs", required_argument, NULL, 'p'},
                                         {"scale", required_argument, NULL, 'c'},
                                         {"settle-ms", required_argument, NULL, 'm'},
                                         {"limit", required_argument, NULL, 'l'},
                                         {"steps", required_argument, NULL, 'n'},
                                         {"extent-pages", required_argument, NULL, 'e'},
                                         {"slack-bytes", required_argument, NULL, 'k'},
                                         {"free-waits", no_argument, NULL, 'f'},
                                         {"small", no_argument, NULL, 'z'},
                                         {"full", no_argument, NULL, 'u'},
                                         {"bare", required_argument, NULL, 'b'},
                                         {"ballast", no_argument, NULL, 'x'},
                                         {"replay", no_argument, NULL, 'r'},
                                         {"print", no_argument, NULL, 'i'},
                                         {"seconds", required_argument, NULL, 't'},
                                         {"captures", no_argument, NULL, 'a'},
                                         {NULL, 0, NULL, 0}};
    *options = (struct options){.n_programs = 1,
                                .scale = 32,
                                .settle_ms = 20,
                                .limit_s = 20,
                                .steps = 150,
                                .extent_pages = 1,
                                .seconds = INFINITY};
    uint64_t *values[sizeof names] = {NULL,
                                      &options->seed,
                                      &options->n_programs,
                                      &options->scale,
                                      &options->settle_ms,
                                      &options->limit_s,
                                      &options->steps,
                                      &options->extent_pages,
                                      &options->slack_bytes};
    int name;
    while ((name = getopt_long(n, arguments, "", list, NULL)) != -1) {
        const char *at = strchr(names, name);
        if (!at)
            return false;
        if (name == 'o')
            options->out = optarg;
        else if (name == 'b')
            options->bare = optarg;
        else if (name == 't')
            options->seconds = strtod(optarg, NULL);
        else if (values[at - names])
            *values[at - names] = strtoull(optarg, NULL, 0);
        set_flag(options, name);
    }
    return options->out || options->prints;
}

/* `how`: nothing, or why the process ends. */
static void write_down(const char *how)
{
    fprintf(out, "%" PRIu64 " %zu%s", number, outcome.n, how);
    for (size_t i = 0; i <= outcome.n && i < ANSWERS_MAX; i++) {
        if (i == outcome.n && !*how)
            break;
        fprintf(out, " %d", outcome.answers[i] == NOT_MADE ? -1 : outcome.answers[i]);
        if (outcome.seen[i])
            fprintf(out, "/%" PRIx64, outcome.seen[i]);
    }
    fputc('\n', out);
    fflush(out);
}

static const char *name_of_step(size_t step)
{
    return current && step < current->n ? step_name(current->steps[step].kind) : "the end";
}

/* Ends the process where a program takes too long: the thread that hangs is inside a driver call.
 */
static void *watch(void *argument)
{
    (void)argument;
    for (;;) {
        usleep(WATCH_US);
        time_t until = atomic_load(&deadline);
        if (!until || time(NULL) < until)
            continue;
        fprintf(stderr, "search: program %" PRIu64 ", step %zu (HANG): %s does not end\n", number,
                outcome.n + 1, name_of_step(outcome.n));
        write_down(" HANG");
        _exit(4);
    }
    return NULL;
}

/* The rule of the table of differences that explains the failure, or its kind. */
static const char *explained_as(const char *what)
{
    struct verdict verdict = {0};
    snprintf(verdict.kind, sizeof verdict.kind, "%s", what);
    int rule = bare && current ? difference_find(current, bare, &outcome, &verdict) : -1;
    return rule < 0 ? what : difference_name(rule);
}

/* Reads the line that a bare run wrote about the program. */
static bool read_bare(FILE *file)
{
    char *line = NULL, *rest = NULL;
    size_t room = 0, n = 0;
    bool is_whole =
        getline(&line, &room, file) > 0 && strtok_r(line, " ", &rest) && strtok_r(NULL, " ", &rest);
    memset(&bare_outcome, 0, sizeof bare_outcome);
    for (char *word = NULL; is_whole && (word = strtok_r(NULL, " \n", &rest)); n++) {
        char *end;
        bare_outcome.answers[n < ANSWERS_MAX ? n : 0] = (uint16_t)strtol(word, &end, 10);
        is_whole = end != word && n < ANSWERS_MAX;
        if (is_whole && *end == '/')
            bare_outcome.seen[n] = strtoull(end + 1, NULL, 16);
    }
    bare_outcome.n = n;
    free(line);
    return is_whole;
}

void fail(size_t step, const char *what, const char *format, ...)
{
    char how[200], text[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    outcome.n = step;
    snprintf(how, sizeof how, " %s", explained_as(what));
    fprintf(stderr, "search: program %" PRIu64 ", step %zu (%s): %s\n", number, step + 1, what,
            text);
    write_down(how);
    _exit(3);
}

static void tell_crash(bool in_driver, const char *frames)
{
    const char *how = in_driver ? "DRIVER-CRASH" : "CRASH";
    char word[20];
    snprintf(word, sizeof word, " %s", how);
    fprintf(stderr, "search: program %" PRIu64 ", step %zu (%s): %s, at%s\n", number, outcome.n + 1,
            how, name_of_step(outcome.n), frames);
    write_down(word);
    _exit(4);
}

static struct setting setting_of(const struct options *options)
{
    return (struct setting){.device_pages = DEVICE_GRANULES,
                            .page_bytes = GRANULE,
                            .extent_pages = options->extent_pages,
                            .slack_bytes = options->slack_bytes,
                            .root_bytes = (uint64_t)1 << 30,
                            .free_waits = options->free_waits,
                            .is_full = options->is_full,
                            .serves_small = options->is_small,
                            .captures_nothing = !options->captures,
                            .is_plain = true};
}

static bool has_time(const struct options *options)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = (double)(now.tv_sec - start.tv_sec);
    return seconds + (double)(now.tv_nsec - start.tv_nsec) / 1e9 < options->seconds;
}

static void set_deadline(const struct options *options, bool is_first)
{
    time_t limit_s = (time_t)options->limit_s + (is_first ? START_S : 0);
    atomic_store(&deadline, time(NULL) + limit_s + 1);
}

static void run_one(const struct api *api, const struct options *options,
                    const struct program *program)
{
    static bool is_first = true;
    memset(&outcome, 0, sizeof outcome);
    set_deadline(options, is_first);
    is_first = false;
    current = program;
    execute(api, program, bare, &outcome, options->scale);
    atomic_store(&deadline, 0);
    write_down("");
}

static void draw(const struct options *options, uint64_t seed, struct program *program)
{
    struct setting setting = setting_of(options);
    struct taste taste = {.steps_max = options->steps, .setting = &setting};
    setting.seed = seed;
    program_generate(program, seed, &taste);
}

/* A program whose bare run did not end is left out, and keeps its place in the file. */
static void run_next(const struct api *api, const struct options *options, FILE *known,
                     const struct program *program)
{
    if (known)
        bare = &bare_outcome;
    if (!known || read_bare(known)) {
        run_one(api, options, program);
        return;
    }
    memset(&outcome, 0, sizeof outcome);
    write_down(" SKIPPED");
}

static bool replay(const struct api *api, const struct options *options, FILE *known, char **files)
{
    static struct program program;
    for (; *files && has_time(options); files++, number++) {
        FILE *file = fopen(*files, "r");
        if (!file || !program_read(file, &program)) {
            fprintf(stderr, "search: %s cannot be read\n", *files);
            return false;
        }
        fclose(file);
        program.setting.is_plain = true;
        run_next(api, options, known, &program);
    }
    return true;
}

int main(int n, char **arguments)
{
    static struct program program;
    struct options options;
    struct api api;
    pthread_t watchdog;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (!read_options(n, arguments, &options)) {
        fputs(help, stderr);
        return 2;
    }
    if (options.prints) {
        draw(&options, options.seed, &program);
        program_print(stdout, &program);
        return 0;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    out = fopen(options.out, "w");
    if (!out || !api_open(&api, "libcuda.so.1", NULL, false))
        return 2;
    turns_be_real(PATIENCE_MS);
    plain_be_patient((unsigned)options.settle_ms);
    number = options.seed;
    crash_tell_to(tell_crash);
    set_deadline(&options, true);
    if (pthread_create(&watchdog, NULL, watch, NULL))
        return 2;
    if (options.has_ballast)
        plain_leave_free(&api, DEVICE_GRANULES * GRANULE * options.scale + MARGIN_BYTES);
    FILE *known = options.bare ? fopen(options.bare, "r") : NULL;
    if (options.bare && !known)
        return 2;
    if (options.replays)
        return replay(&api, &options, known, arguments + optind) ? 0 : 2;
    for (; number < options.seed + options.n_programs && has_time(&options); number++) {
        draw(&options, number, &program);
        run_next(&api, &options, known, &program);
    }
    return 0;
}
