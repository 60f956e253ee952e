/* SPDX-License-Identifier: MIT */
#include "explore.h"

#include "arena.h"
#include "fiber.h"
#include "race.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One moment of the present run: what could be done, what is to be tried, and what was. The sets
 * have one bit for each thread. */
struct moment {
    int choice;
    unsigned enabled;
    unsigned wanted; /* to be tried here at some time */
    unsigned asleep; /* not to be tried: what follows has been seen */
};

static struct {
    const struct schedule_case *test;
    bool reduces;
    int n_threads;
    bool is_running;
    int current;
    const struct step *pending[SCHEDULE_THREADS]; /* NULL: the thread has ended */
    unsigned ranks[SCHEDULE_THREADS + 1], latches[SCHEDULE_THREADS + 1][VPMM_RANK_COUNT];
    struct moment moments[SCHEDULE_STEPS + 1];
    int n;       /* steps of this run so far */
    int n_given; /* steps whose choice is given */
    bool is_cut;
} run = {.current = FIBER_MAIN};

int schedule_thread(void)
{
    return run.current;
}

unsigned *schedule_ranks(void)
{
    return &run.ranks[run.current];
}

unsigned *schedule_latches(void)
{
    return run.latches[run.current];
}

/* ---- what is to be tried ---- */

/* What races with the step that `thread` is about to do has to come after it in some run. */
static void want_races_reversed(int thread, const struct step *step)
{
    struct races races;
    race_find(thread, step, &races);
    for (unsigned i = 0; i < races.n; i++) {
        struct moment *moment = &run.moments[races.at[i]];
        unsigned leads = race_leads(races.at[i], thread, step) & moment->enabled;
        if (!leads)
            moment->wanted |= moment->enabled;
        else if (!(leads & moment->wanted))
            moment->wanted |= (leads & -leads);
    }
}

/* Threads whose next step commutes with the one just done stay asleep. */
static unsigned still_asleep(const struct moment *before, const struct step *step)
{
    unsigned asleep = before->asleep;
    for (int i = 0; i < run.n_threads; i++)
        if (asleep >> i & 1 && race_depends(run.pending[i], step))
            asleep &= ~(1u << i);
    return (asleep & ~(1u << before->choice));
}

/* ---- one run ---- */

static unsigned enabled_now(void)
{
    unsigned enabled = 0;
    for (int i = 0; i < run.n_threads; i++) {
        const struct step *step = run.pending[i];
        if (step && (!step->may || step->may(step->argument)))
            enabled |= 1u << i;
    }
    return enabled;
}

static void fail_stuck(void)
{
    char text[512] = "";
    size_t length = 0;
    for (int i = 0; i < run.n_threads; i++)
        if (run.pending[i])
            length += (size_t)snprintf(text + length, sizeof text - length, "; thread %d: %s", i,
                                       run.pending[i]->what);
    schedule_fail("nobody can go on%s", text);
}

/* The thread to go on, or FIBER_MAIN when the run is over. */
static int choose(void)
{
    struct moment *moment = &run.moments[run.n];
    unsigned enabled = enabled_now();
    bool has_ended = true;
    for (int i = 0; i < run.n_threads; i++)
        has_ended = has_ended && !run.pending[i];
    if (has_ended)
        return FIBER_MAIN;
    if (!enabled)
        fail_stuck();
    if (run.n == SCHEDULE_STEPS)
        schedule_fail("more than %d steps", SCHEDULE_STEPS);
    if (run.n < run.n_given) {
        if (!(enabled >> moment->choice & 1) || (moment->enabled && moment->enabled != enabled))
            schedule_fail("the case does not do the same in the same order");
        moment->enabled = enabled;
        return moment->choice;
    }
    moment->enabled = enabled;
    unsigned awake = enabled & ~moment->asleep;
    run.is_cut = !awake;
    if (!awake)
        return FIBER_MAIN;
    bool goes_on = run.current != FIBER_MAIN && awake >> run.current & 1;
    int choice = goes_on ? run.current : __builtin_ctz(awake);
    moment->choice = choice;
    moment->wanted = run.reduces ? 1u << choice : enabled;
    return choice;
}

/* Notes the step that `thread` now does, and what races with it. */
static void note(int thread)
{
    const struct step *step = run.pending[thread];
    int at = run.n++;
    if (run.reduces)
        want_races_reversed(thread, step);
    race_step(thread, at, step);
    if (at + 1 >= run.n_given)
        run.moments[at + 1].asleep = run.reduces ? still_asleep(&run.moments[at], step) : 0;
}

static void go_on(void)
{
    int from = run.current;
    int to = choose();
    if (to != FIBER_MAIN)
        note(to);
    run.current = to;
    if (to != from)
        fiber_switch(from, to);
    run.current = from;
}

void schedule_step(const struct step *step)
{
    if (!run.is_running) {
        expect(!step->may || step->may(step->argument));
        return;
    }
    run.pending[run.current] = step;
    go_on();
}

void schedule_access(const volatile void *object, enum touch_kind kind)
{
    static const char *const names[] = {"read a word", "add to a word", "write a word"};
    if (!run.is_running)
        return;
    struct step step = {.what = names[kind], .n_touches = 1};
    if (kind == TOUCH_ADDS && !race_is_counter(object))
        kind = TOUCH_WRITES;
    step.touches[0] = (struct touch){object, kind};
    schedule_step(&step);
}

static void live(void)
{
    run.test->threads[run.current]();
    expect(run.ranks[run.current] == 0);
    run.pending[run.current] = NULL;
    go_on();
}

static void run_once(void)
{
    arena_restore();
    race_reset();
    memset(run.pending, 0, sizeof run.pending);
    memset(run.ranks, 0, sizeof run.ranks);
    memset(run.latches, 0, sizeof run.latches);
    run.n = 0;
    run.is_cut = false;
    static const struct step begin = {.what = "begin"};
    for (int i = 0; i < run.n_threads; i++) {
        fiber_prepare(i, live);
        run.pending[i] = &begin;
    }
    run.is_running = true;
    go_on();
    run.is_running = false;
    if (!run.is_cut && run.test->check)
        run.test->check();
}

/* ---- all runs ---- */

static void begin(const struct schedule_case *test)
{
    run.test = test;
    run.n_threads = 0;
    while (run.n_threads < SCHEDULE_THREADS && test->threads[run.n_threads])
        run.n_threads++;
    memset(run.moments, 0, sizeof run.moments);
    memset(run.ranks, 0, sizeof run.ranks);
    memset(run.latches, 0, sizeof run.latches);
    run.n = run.n_given = 0;
    race_forget_counters();
    arena_reset();
    test->prepare();
    arena_snapshot();
}

/* Gives the next run its choices up to the last moment where something is left to be tried. */
static bool turn_back(void)
{
    for (int at = run.n; at-- > 0;) {
        struct moment *moment = &run.moments[at];
        moment->asleep |= 1u << moment->choice;
        unsigned left = moment->wanted & moment->enabled & ~(unsigned)moment->asleep;
        if (left) {
            moment->choice = __builtin_ctz(left);
            run.n_given = at + 1;
            return true;
        }
    }
    return false;
}

struct explore_result explore_all(const struct schedule_case *test, bool reduces)
{
    struct explore_result result = {0};
    begin(test);
    run.reduces = reduces;
    do {
        run_once();
        result.interleavings += !run.is_cut;
        result.cut += run.is_cut;
        result.steps += (uint64_t)run.n;
    } while (turn_back());
    return result;
}

void explore_one(const struct schedule_case *test, const int *order)
{
    begin(test);
    run.reduces = false;
    for (; order[run.n_given] >= 0 && run.n_given < SCHEDULE_STEPS; run.n_given++)
        run.moments[run.n_given].choice = order[run.n_given];
    run_once();
}

/* Numbers of threads, each with how many steps it does in a row. */
static void print_schedule(void)
{
    for (int i = 0; i < run.n;) {
        int choice = run.moments[i].choice;
        int first = i;
        while (i < run.n && run.moments[i].choice == choice)
            i++;
        fprintf(stderr, "%s%d*%d", first ? "," : "", choice, i - first);
    }
}

void schedule_fail(const char *format, ...)
{
    va_list arguments;
    run.is_running = false;
    fflush(stdout);
    fprintf(stderr, "schedule: %s: thread %d after %d steps: ", run.test ? run.test->name : "",
            run.current, run.n);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nreplay: %s --replay ", run.test ? run.test->name : "");
    print_schedule();
    fprintf(stderr, "\n");
    _exit(1);
}
