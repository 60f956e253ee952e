/* SPDX-License-Identifier: MIT */
/* Reads the options from the environment, as no other file may. Must not write messages: complaints
 * are returned, and the caller logs them. */
#define _GNU_SOURCE
#include "config/config.h"

#include "base/text.h"
#include "config/values.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define PREFIX "VPMM_"
/* Variables of the simulated device, which reads them itself. */
#define SIM_PREFIX "VPMM_SIM_"
#define NAME_MAX_LENGTH 32u
/* Where the command finds the library. */
#define LIBRARY_NAME "VPMM_LIBRARY"
/* Of a value that a complaint shows. */
#define SHOWN_MAX_LENGTH 64

#define OPTION(name, kind, field, ...)                                                             \
    {PREFIX #name, read_##kind, show_##kind, offsetof(struct vpmm_config, field), __VA_ARGS__},
static const struct option options[] = {
#include "config/options.def"
};
#undef OPTION
#define N_OPTIONS (sizeof options / sizeof options[0])

/* ---- complaints ---- */

/* The next complaint to write, or false when no more are kept; it is counted in any case. */
static bool complain(struct vpmm_complaints *complaints, struct vpmm_text *text)
{
    unsigned number = complaints->n++;
    if (number >= VPMM_COMPLAINTS_MAX)
        return false;
    vpmm_text_init(text, complaints->text[number], sizeof complaints->text[number], -1);
    return true;
}

/* A value as it may stand in a message of one line. */
static void show_shortened(struct vpmm_text *text, const char *value, size_t length)
{
    for (size_t i = 0; i < length && i < SHOWN_MAX_LENGTH; i++)
        vpmm_text_char(text, value[i] < ' ' || value[i] == 0x7f ? '?' : value[i]);
    vpmm_text_string(text, length > SHOWN_MAX_LENGTH ? "..." : "");
}

static void complain_of_value(struct vpmm_complaints *complaints, const struct option *option,
                              const char *value)
{
    struct vpmm_text text;
    if (!complain(complaints, &text))
        return;
    vpmm_text_string(&text, option->name);
    vpmm_text_string(&text, "=");
    show_shortened(&text, value, strlen(value));
    vpmm_text_string(&text, " is not accepted: it takes ");
    vpmm_text_string(&text, option->accepted);
    vpmm_text_string(&text, "; using the default, ");
    vpmm_text_string(&text, option->default_text);
}

/* How many letters to change, add or drop to make `name` of `length` characters an option's,
 * whatever the case. */
static unsigned distance(const char *name, size_t length, const char *option)
{
    unsigned row[NAME_MAX_LENGTH + 1];
    for (unsigned i = 0; i <= length; i++)
        row[i] = i;
    for (unsigned j = 0; option[j]; j++) {
        unsigned diagonal = row[0];
        row[0] = j + 1;
        for (unsigned i = 0; i < length; i++) {
            char upper = name[i] >= 'a' && name[i] <= 'z' ? (char)(name[i] - 32) : name[i];
            unsigned change = diagonal + (upper != option[j]);
            diagonal = row[i + 1];
            unsigned add_or_drop = (row[i] < diagonal ? row[i] : diagonal) + 1;
            row[i + 1] = change < add_or_drop ? change : add_or_drop;
        }
    }
    return row[length];
}

/* The option that `name` may have been meant for, or NULL when none is near. */
static const char *nearest(const char *name, size_t length)
{
    size_t prefix = strlen(PREFIX);
    const char *best = NULL;
    if (length > NAME_MAX_LENGTH)
        return NULL;
    unsigned best_distance = (unsigned)(length - prefix) / 2 + 1;
    for (size_t i = 0; i < N_OPTIONS; i++) {
        unsigned d = distance(name + prefix, length - prefix, options[i].name + prefix);
        if (d < best_distance) {
            best_distance = d;
            best = options[i].name;
        }
    }
    return best;
}

static void complain_of_name(struct vpmm_complaints *complaints, const char *name, size_t length)
{
    struct vpmm_text text;
    if (!complain(complaints, &text))
        return;
    show_shortened(&text, name, length);
    vpmm_text_string(&text, " is not an option and is ignored");
    const char *meant = nearest(name, length);
    if (meant) {
        vpmm_text_string(&text, "; did you mean ");
        vpmm_text_string(&text, meant);
        vpmm_text_char(&text, '?');
    } else {
        vpmm_text_string(&text, "; 'vpmm help options' lists them all");
    }
}

/* ---- reading ---- */

static bool begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* The value of `name` in `environment`: the first one, as getenv has it. NULL when there is none or
 * it is empty. */
static const char *value_of(char *const *environment, const char *name)
{
    size_t length = strlen(name);
    for (; environment && *environment; environment++)
        if (begins_with(*environment, name) && (*environment)[length] == '=')
            return (*environment)[length + 1] ? *environment + length + 1 : NULL;
    return NULL;
}

static bool is_known(const char *name, size_t length)
{
    static const char *const others[] = {LIBRARY_NAME, VPMM_STATS_OF};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (length == strlen(others[i]) && memcmp(name, others[i], length) == 0)
            return true;
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (strlen(options[i].name) == length && memcmp(options[i].name, name, length) == 0)
            return true;
    return false;
}

static void read_options(struct vpmm_config *config, struct vpmm_complaints *complaints,
                         char *const *environment)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const struct option *option = &options[i];
        const char *value = value_of(environment, option->name);
        (void)option->read(option, option->default_text, config);
        if (value && !option->read(option, value, config))
            complain_of_value(complaints, option, value);
    }
    for (; environment && *environment; environment++) {
        const char *name = *environment;
        size_t length = strcspn(name, "=");
        if (begins_with(name, PREFIX) && !begins_with(name, SIM_PREFIX) && !is_known(name, length))
            complain_of_name(complaints, name, length);
    }
}

void vpmm_config_read(struct vpmm_config *config_out, struct vpmm_complaints *complaints_out,
                      char *const *environment)
{
    char *const nothing[] = {NULL};
    /* Whoever starts a setuid program must not steer it. */
    bool is_secure = getauxval(AT_SECURE) != 0;
    memset(config_out, 0, sizeof *config_out);
    complaints_out->n = 0;
    if (!environment)
        environment = environ;
    if (is_secure)
        environment = nothing;
    read_options(config_out, complaints_out, environment);
    const char *process = value_of(environment, VPMM_STATS_OF);
    config_out->promises_stats = process && strtol(process, NULL, 10) == (long)getpid();
    config_out->disable |= is_secure;
}

bool vpmm_config_row(const struct vpmm_config *config, unsigned number,
                     struct vpmm_option_row *row_out)
{
    if (number >= N_OPTIONS)
        return false;
    const struct option *option = &options[number];
    struct vpmm_text text;
    *row_out = (struct vpmm_option_row){
        option->name, option->accepted, option->default_text, option->help, {0}};
    vpmm_text_init(&text, row_out->value, sizeof row_out->value, -1);
    option->show(option, config, &text);
    return true;
}
