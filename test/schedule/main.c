/* SPDX-License-Identifier: MIT */
/* test_schedule GROUP                       explores every case of the group: frees, index, ...
 * test_schedule GROUP/CASE                  explores one
 * test_schedule GROUP/CASE --replay ORDER   runs it once, in the order that a failure printed */
#define _POSIX_C_SOURCE 200809L
#include "arena.h"
#include "cases.h"
#include "explore.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct schedule_case *const groups[] = {
    cases_frees, cases_index, cases_fences, cases_open,     cases_gate,  cases_death,
    cases_heap,  cases_cache, cases_route,  cases_snapshot, cases_small, NULL};

static void on_signal(int number, siginfo_t *facts, void *context)
{
    (void)context;
    if (number == SIGSEGV && arena_fault(facts->si_addr))
        return;
    schedule_fail("stopped by signal %d", number);
}

static void catch_signals(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_NODEFER};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        (void)sigaction(numbers[i], &action, NULL);
}

/* "0*12,1,0*3" as numbers of threads, then -1. NULL where it is something else. */
static const int *parse_order(const char *text)
{
    static int order[SCHEDULE_STEPS + 1];
    int n = 0;
    for (char *at = (char *)(uintptr_t)text; *at; at += *at == ',') {
        long thread = strtol(at, &at, 10);
        long times = *at == '*' ? strtol(at + 1, &at, 10) : 1;
        if (thread < 0 || thread >= SCHEDULE_THREADS || times < 1 || times > SCHEDULE_STEPS - n ||
            (*at && *at != ','))
            return NULL;
        while (times-- > 0)
            order[n++] = (int)thread;
    }
    order[n] = -1;
    return order;
}

static bool is_named(const struct schedule_case *test, const char *name)
{
    size_t length = strlen(name);
    return !strncmp(test->name, name, length) &&
           (test->name[length] == '/' || test->name[length] == 0);
}

static void run(const struct schedule_case *test, const int *order)
{
    if (order) {
        explore_one(test, order);
        printf("schedule: %s: nothing wrong in this order\n", test->name);
        return;
    }
    struct explore_result result = explore_all(test, true);
    printf("schedule: %s: %llu interleavings, all of them (%llu left early, %llu steps)\n",
           test->name, (unsigned long long)result.interleavings, (unsigned long long)result.cut,
           (unsigned long long)result.steps);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const int *order = NULL;
    unsigned n = 0;
    catch_signals();
    if (argc == 4 && !strcmp(argv[2], "--replay"))
        order = parse_order(argv[3]);
    if (argc < 2 || argc == 3 || (argc == 4 && !order)) {
        fprintf(stderr, "use: %s GROUP[/CASE [--replay ORDER]]\n", argv[0]);
        return 2;
    }
    if (!strcmp(argv[1], "itself")) {
        explore_itself();
        return 0;
    }
    for (const struct schedule_case *const *group = groups; *group; group++)
        for (const struct schedule_case *test = *group; test->name; test++)
            if (is_named(test, argv[1])) {
                run(test, order);
                n++;
            }
    if (!n)
        fprintf(stderr, "%s: no case is named %s\n", argv[0], argv[1]);
    return n ? 0 : 2;
}
