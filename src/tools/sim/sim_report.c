/* SPDX-License-Identifier: MIT */
/* Tells of misuse on standard error, and stops the program where it is to. Must not write to
 * standard output. */
#include "sim/sim_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define MISUSE_NAME(name, text) #name,
#define MISUSE_TEXT(name, text) text,
static const char *const names[] = {SIM_MISUSE_LIST(MISUSE_NAME)};
static const char *const texts[] = {SIM_MISUSE_LIST(MISUSE_TEXT)};

const char *sim_misuse_name(enum sim_misuse misuse)
{
    return names[misuse];
}

static void report(struct sim *sim, enum sim_misuse kind, const char *format, va_list arguments)
{
    char detail[400];
    char line[600];
    enum sim_action action = sim->config.actions[kind];
    if (action != SIM_STOP)
        sim->misuses[kind]++;
    if (action == SIM_ANSWER)
        return;
    vsnprintf(detail, sizeof detail, format, arguments);
    snprintf(line, sizeof line, "simulated device: %s (%s): %s", texts[kind], names[kind], detail);
    if (action == SIM_STOP) {
        fprintf(stderr, "%s\n", line);
        abort();
    }
    if (sim->config.on_misuse != NULL)
        sim->config.on_misuse(sim->config.self, kind, line);
}

void misuse(struct sim *sim, enum sim_misuse kind, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(sim, kind, format, arguments);
    va_end(arguments);
}

void sim_misuse_report(struct sim *sim, enum sim_misuse kind, const char *format, ...)
{
    va_list arguments;
    pthread_mutex_lock(&sim->lock);
    va_start(arguments, format);
    report(sim, kind, format, arguments);
    va_end(arguments);
    pthread_mutex_unlock(&sim->lock);
}

void sim_action_set(struct sim *sim, enum sim_misuse kind, enum sim_action action)
{
    pthread_mutex_lock(&sim->lock);
    sim->config.actions[kind] = action;
    pthread_mutex_unlock(&sim->lock);
}

uint64_t sim_misuse_count(struct sim *sim, enum sim_misuse kind)
{
    pthread_mutex_lock(&sim->lock);
    uint64_t count = sim->misuses[kind];
    pthread_mutex_unlock(&sim->lock);
    return count;
}
