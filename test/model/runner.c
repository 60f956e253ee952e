/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "differences.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_SECONDS 60

bool runner_start(struct runner *runner, const char *driver, const char *library)
{
    memset(runner, 0, sizeof *runner);
    runner->outcomes = mmap(NULL, 2 * sizeof *runner->outcomes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    runner->errors = memfd_create("errors", MFD_CLOEXEC);
    if (runner->outcomes == MAP_FAILED || runner->errors < 0) {
        perror("model");
        return false;
    }
    return api_open(&runner->bare, driver, NULL, true) &&
           api_open(&runner->preloaded, driver, library, true);
}

static void set(const char *name, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    setenv(name, text, 1);
}

/* What whoever started the test chose for other programs. */
static void forget_options(void)
{
    for (char **entry = environ; *entry;) {
        char *name = strndup(*entry, strcspn(*entry, "="));
        bool is_gone = name && strncmp(name, "VPMM_", 5) == 0 && unsetenv(name) == 0;
        entry = is_gone ? environ : entry + 1;
        free(name);
    }
}

/* The machine and the library read these at their first call, which is the child's. */
static void set_environment(const struct setting *setting)
{
    forget_options();
    set("VPMM_SIM_DEVICES", DEVICES);
    set("VPMM_SIM_BYTES", setting->device_pages * GRANULE);
    set("VPMM_SIM_GRANULARITY", GRANULE);
    set("VPMM_SIM_SEED", setting->seed);
    set("VPMM_SIM_EAGER", 0);
    set("VPMM_SIM_HOST_THREAD", 0);
    set("VPMM_SIM_REUSE_HANDLES", 1);
    set("VPMM_SIM_RACES", 1);
    set("VPMM_SIM_HANG_MS", 20);
    set("VPMM_SIM_STRICT", 2);
    set("VPMM_PAGE_SIZE", setting->page_bytes);
    if (setting->extent_pages)
        set("VPMM_EXTENT", setting->extent_pages);
    else
        setenv("VPMM_EXTENT", "auto", 1);
    set("VPMM_SLACK", setting->slack_bytes);
    set("VPMM_PAGES", setting->eager_pages);
    set("VPMM_FREE_SYNC", setting->free_waits);
    if (setting->serves_small) {
        if (setting->seed % 2 == 0 && !setting->free_waits)
            setenv("VPMM_FREE_SYNC", "small", 1);
    } else {
        setenv("VPMM_MIN_SIZE", "page", 1);
    }
    set("VPMM_VA_SIZE", setting->root_bytes);
    /* Other processes on this machine are not asked for memory: their answers take real time. */
    set("VPMM_DECAY_MS", 0);
    setenv("VPMM_LOG", "none", 1);
    setenv("VPMM_DUMP_SIGNAL", "none", 1);
}

static int run_child(struct runner *runner, const struct program *program, bool preloaded)
{
    int status;
    if (ftruncate(runner->errors, 0) || lseek(runner->errors, 0, SEEK_SET))
        abort();
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        perror("model: fork");
        exit(2);
    }
    if (child == 0) {
        dup2(runner->errors, STDERR_FILENO);
        set_environment(&program->setting);
        alarm(LIMIT_SECONDS);
        execute(preloaded ? &runner->preloaded : &runner->bare, program,
                preloaded ? &runner->outcomes[0] : NULL, &runner->outcomes[preloaded], 1);
        exit(0);
    }
    while (waitpid(child, &status, 0) != child)
        continue;
    return status;
}

/* The word in the first brackets of the message names the kind of failure. */
static void read_verdict(struct runner *runner, int status, struct verdict *verdict)
{
    char text[sizeof verdict->text];
    ssize_t n = pread(runner->errors, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    size_t start = strspn(text, "=\n"); /* as sanitizers begin */
    snprintf(verdict->text, sizeof verdict->text, "%.*s", (int)strcspn(text + start, "\n"),
             text + start);
    const char *open = strchr(verdict->text, '(');
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(verdict->kind, sizeof verdict->kind, "LIMIT");
    else if (!open || sscanf(open, "(%31[A-Z_])", verdict->kind) != 1)
        snprintf(verdict->kind, sizeof verdict->kind, "STATUS %d", status);
}

static void note_invalid(const struct runner *runner, const struct program *program,
                         struct verdict *verdict)
{
    for (size_t i = program->n; i-- > 0;)
        if (runner->outcomes[0].answers[i] == NOT_MADE) {
            verdict->n_invalid++;
            verdict->first_invalid = i;
        }
}

void runner_drop_unmade(const struct runner *runner, const struct verdict *verdict,
                        struct program *program)
{
    size_t n = 0;
    for (size_t i = 0; i < program->n; i++)
        if (verdict->is_bare || runner->outcomes[0].answers[i] != NOT_MADE)
            program->steps[n++] = program->steps[i];
    program->n = n;
}

static void add_figures(struct runner *runner)
{
    const struct outcome *outcome = &runner->outcomes[1];
    struct outcome *sums = &runner->sums;
    sums->operations += outcome->operations;
    sums->mallocs += outcome->mallocs;
    sums->served += outcome->served;
    sums->served_while_stuck += outcome->served_while_stuck;
    sums->refused += outcome->refused;
    sums->moved += outcome->moved;
    sums->created += outcome->created;
    sums->unmapped += outcome->unmapped;
    sums->host_waits += outcome->host_waits;
    sums->stream_waits += outcome->stream_waits;
    sums->captures += outcome->captures;
    sums->launches += outcome->launches;
    runner->n_programs++;
}

/* Short of memory, CUDA's own pool waits for its oldest free, though a later one would do; behind
 * work that only a later step lets go on, that never ends. The reference does not know whether the
 * pool is short. */
static bool pool_waits_for_ever(const struct runner *runner, const struct program *program,
                                const struct verdict *verdict)
{
    size_t number = runner->outcomes[0].n;
    if (strcmp(verdict->kind, "SHORT") == 0)
        return true;
    if (number >= program->n || !strstr(verdict->text, "(HANG): waiting for cuMemFreeAsync"))
        return false;
    enum step_kind kind = program->steps[number].kind;
    return step_is_malloc_async(kind) || kind == STEP_SCRATCH || kind == STEP_LAUNCH;
}

bool runner_try(struct runner *runner, const struct program *program, struct verdict *verdict)
{
    memset(verdict, 0, sizeof *verdict);
    verdict->rule = -1;
    memset(runner->outcomes, 0, 2 * sizeof *runner->outcomes);
    int status = run_child(runner, program, false);
    if (status) {
        read_verdict(runner, status, verdict);
        verdict->is_bare = true;
        verdict->is_discarded = pool_waits_for_ever(runner, program, verdict);
        runner->n_discarded += verdict->is_discarded;
        return verdict->is_discarded;
    }
    note_invalid(runner, program, verdict);
    status = run_child(runner, program, true);
    add_figures(runner);
    if (status == 0)
        return true;
    read_verdict(runner, status, verdict);
    verdict->rule = difference_find(program, &runner->outcomes[0], &runner->outcomes[1], verdict);
    if (verdict->rule >= 0)
        runner->n_explained[verdict->rule]++;
    return verdict->rule >= 0;
}

void runner_sum_up(const struct runner *runner)
{
    const struct outcome *sums = &runner->sums;
    const struct {
        const char *format;
        uint64_t value;
    } figures[] = {
        {"model: %" PRIu64 " operations", sums->operations},
        {", %" PRIu64 " programs", runner->n_programs},
        {" (and %" PRIu64 " discarded: bare, CUDA's pool waits for ever)", runner->n_discarded},
        {", %" PRIu64 " mallocs", sums->mallocs},
        {" (%" PRIu64 " served by the pool", sums->served},
        {", %" PRIu64 " while a stream was stuck", sums->served_while_stuck},
        {", %" PRIu64 " refused)", sums->refused},
        {", %" PRIu64 " extents created", sums->created},
        {", %" PRIu64 " moved", sums->moved},
        {", %" PRIu64 " unmaps", sums->unmapped},
        {", %" PRIu64 " waits of streams", sums->stream_waits},
        {", %" PRIu64 " of the host", sums->host_waits},
        {", %" PRIu64 " captures", sums->captures},
        {", %" PRIu64 " graph launches\n", sums->launches},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        printf(figures[i].format, figures[i].value);
    for (int i = 0; difference_name(i); i++)
        if (runner->n_explained[i])
            printf("model: %" PRIu64 " programs part by the rule %s: %s\n", runner->n_explained[i],
                   difference_name(i), difference_sentence(i));
}
