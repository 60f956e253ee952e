/* SPDX-License-Identifier: MIT */
#include "campaign.h"

#include "codes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A run takes milliseconds; a busy machine may keep it waiting. */
#define RUN_LIMIT_S 240
/* The second fault strikes at most so many calls after the first. */
#define DISTANCE_MAX 4

/* What to print should this run not end well; empty between runs. */
static char replay[512];

static void print_replay(void)
{
    if (write(STDERR_FILENO, replay, strlen(replay)) < 0)
        _exit(125);
    replay[0] = 0;
}

static void on_signal(int number)
{
    print_replay();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* Of the sanitizers' runtime, where there is one: their reports end the process past atexit. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void watch(void)
{
    static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGALRM};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        (void)signal(signals[i], on_signal);
    (void)atexit(print_replay);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(print_replay);
}

static int print_aim(char *text, size_t room, const char *prefix, const struct aim *aim)
{
    if (!aim->call)
        return 0;
    return snprintf(text, room, " --%scall %s --%snth %llu --%scode %d%s%s%s", prefix, aim->call,
                    prefix, (unsigned long long)aim->nth, prefix, (int)aim->code,
                    aim->forever ? " --" : "", aim->forever ? prefix : "",
                    aim->forever ? "forever" : "");
}

static struct verdict run(struct campaign *campaign, const struct faults *faults)
{
    const struct suite *suite = campaign->suite;
    size_t room = sizeof replay;
    int length = snprintf(replay, room, "to repeat: %s --scenario %s", suite->program,
                          suite->scenarios[campaign->scenario]);
    length += print_aim(replay + length, room - (size_t)length, "", &faults->first);
    length += print_aim(replay + length, room - (size_t)length, "then-", &faults->then);
    (void)snprintf(replay + length, room - (size_t)length, "\n");
    (void)alarm(RUN_LIMIT_S);
    struct verdict verdict = suite->run(campaign->scenario, faults);
    (void)alarm(0);
    replay[0] = 0;
    campaign->runs++;
    campaign->injected += verdict.struck + (uint64_t)verdict.then_struck;
    return verdict;
}

/* The first, second, ... use, until a run sees none fail. */
static void repeat(struct campaign *campaign, struct aim aim)
{
    struct faults faults = {.first = aim};
    do
        faults.first.nth++;
    while (run(campaign, &faults).struck);
}

static void repeat_both(struct campaign *campaign, const char *call, CUresult code)
{
    repeat(campaign, (struct aim){call, 0, code, false});
    repeat(campaign, (struct aim){call, 0, code, true});
}

static void each_call_with_each_code(struct campaign *campaign)
{
    for (const struct fault_code *row = fault_codes; row->call; row++) {
        repeat_both(campaign, row->call, row->code);
        if (campaign->suite->is_whole || (row[1].call && strcmp(row[1].call, row->call) == 0))
            continue;
        for (const CUresult *code = lasting_codes; *code; code++)
            repeat(campaign, (struct aim){row->call, 0, *code, false});
    }
}

static void everything_from_one_call_on(struct campaign *campaign)
{
    repeat(campaign, (struct aim){ANY_CALL, 0, LIKELY_CODE, true});
    for (const CUresult *code = lasting_codes; *code; code++)
        repeat(campaign, (struct aim){ANY_CALL, 0, *code, true});
}

/* The same where a run is dear: each call gets one of the codes. */
static void everything_from_one_call_on_in_turn(struct campaign *campaign)
{
    struct faults faults = {.first = {ANY_CALL, 0, CUDA_SUCCESS, true}};
    const CUresult *code = lasting_codes;
    do {
        faults.first.nth++;
        faults.first.code = *code;
        code = code[1] ? code + 1 : lasting_codes;
    } while (run(campaign, &faults).struck);
}

/* A second fault strikes what the library does about the first. */
static void pairs(struct campaign *campaign, const char *first, const char *then, bool forever)
{
    for (uint64_t distance = 1; distance <= DISTANCE_MAX; distance++) {
        struct faults faults = {{first, 0, LIKELY_CODE, false},
                                {then, distance, LIKELY_CODE, forever}};
        do
            faults.first.nth++;
        while (run(campaign, &faults).struck);
    }
}

static void sweep(struct campaign *campaign)
{
    const struct suite *suite = campaign->suite;
    static const struct faults none;
    (void)run(campaign, &none);
    each_call_with_each_code(campaign);
    if (suite->is_whole)
        everything_from_one_call_on_in_turn(campaign);
    else
        everything_from_one_call_on(campaign);
    repeat_both(campaign, METADATA, LIKELY_CODE);
    if (!suite->has_pairs)
        return;
    pairs(campaign, ANY_CALL, ANY_CALL, false);
    pairs(campaign, ANY_CALL, METADATA, false);
    pairs(campaign, METADATA, ANY_CALL, false);
    pairs(campaign, METADATA, ANY_CALL, true);
}

/* ---- the command line ---- */

static bool read_aim(struct aim *aim, const char *name, const char *value, int *used)
{
    *used = 2;
    if (strcmp(name, "call") == 0 && value)
        aim->call = value;
    else if (strcmp(name, "nth") == 0 && value)
        aim->nth = strtoull(value, NULL, 10);
    else if (strcmp(name, "code") == 0 && value)
        aim->code = (CUresult)atoi(value);
    else if (strcmp(name, "forever") == 0) {
        aim->forever = true;
        *used = 1;
    } else
        return false;
    return true;
}

/* "1/3": the first third. */
static void read_part(const char *text, struct wish *wish)
{
    char *end;
    wish->part = strtoul(text, &end, 10);
    wish->n_parts = *end == '/' ? strtoul(end + 1, NULL, 10) : 0;
}

static bool read_wish(int n, char **arguments, struct wish *wish)
{
    for (int i = 1, used = 2; i < n; i += used) {
        const char *name = arguments[i];
        const char *value = i + 1 < n ? arguments[i + 1] : NULL;
        used = 2;
        if (strncmp(name, "--", 2) != 0)
            return false;
        name += 2;
        if (strcmp(name, "scenario") == 0 && value)
            wish->scenario = value;
        else if (strcmp(name, "part") == 0 && value)
            read_part(value, wish);
        else if (strncmp(name, "then-", 5) == 0
                     ? !read_aim(&wish->faults.then, name + 5, value, &used)
                     : !read_aim(&wish->faults.first, name, value, &used))
            return false;
    }
    return true;
}

static void usage(const struct suite *suite)
{
    (void)fprintf(stderr,
                  "%s [--part I/N | --scenario NAME [--call CALL --nth N --code CODE [--forever] "
                  "[--then-call CALL --then-nth N --then-code CODE [--then-forever]]]]\n"
                  "CALL: a driver call, %s or %s; CODE 0: what the call is likely to fail with\n"
                  "scenarios:",
                  suite->program, ANY_CALL, METADATA);
    for (size_t i = 0; suite->scenarios[i]; i++)
        (void)fprintf(stderr, " %s", suite->scenarios[i]);
    (void)fputc('\n', stderr);
}

static bool is_wished(const struct campaign *campaign, size_t scenario)
{
    const struct wish *wish = &campaign->wish;
    const char *name = wish->scenario;
    return (!name || strcmp(name, campaign->suite->scenarios[scenario]) == 0) &&
           (!wish->n_parts || scenario % wish->n_parts == wish->part % wish->n_parts);
}

bool campaign_read(struct campaign *campaign, const struct suite *suite, int n, char **arguments)
{
    *campaign = (struct campaign){.suite = suite};
    bool is_good = read_wish(n, arguments, &campaign->wish);
    for (size_t i = 0; suite->scenarios[i]; i++)
        campaign->n_scenarios += is_wished(campaign, i);
    is_good = is_good && campaign->n_scenarios;
    if (!is_good)
        usage(suite);
    return is_good;
}

void campaign_run(struct campaign *campaign)
{
    watch();
    for (; campaign->suite->scenarios[campaign->scenario]; campaign->scenario++) {
        if (!is_wished(campaign, campaign->scenario))
            continue;
        if (campaign->wish.faults.first.call)
            (void)run(campaign, &campaign->wish.faults);
        else
            sweep(campaign);
    }
}

void campaign_report(const struct campaign *campaign)
{
    (void)printf("fault: %zu scenarios, %llu faults injected, %llu runs\n", campaign->n_scenarios,
                 (unsigned long long)campaign->injected, (unsigned long long)campaign->runs);
}
