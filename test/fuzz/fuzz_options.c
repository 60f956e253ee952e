/* SPDX-License-Identifier: MIT */
/* Bytes become an environment: strings up to a 0, of which a first byte below ' ' stands for the
 * name of an option. Every result is in the range its help gives, a complaint names its variable,
 * each option reads in company as it reads alone, and a value that is shown reads as itself. */
#include "input.h"

#include "config/config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_MAX 32
#define ENTRIES_MAX 48
#define ROOM 16384

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            give_up(__LINE__, #condition);                                                         \
    } while (0)

static const char *names[OPTIONS_MAX];
static char defaults[OPTIONS_MAX][64];
static unsigned n_options;
static char *entries[ENTRIES_MAX + 1];
static size_t n_entries;

static void give_up(int line, const char *condition)
{
    fprintf(stderr, "fuzz_options.c:%d: %s\n", line, condition);
    for (size_t i = 0; i < n_entries; i++)
        fprintf(stderr, "  %s\n", entries[i]);
    abort();
}

static void read_config(char *const *environment, struct vpmm_config *config,
                        struct vpmm_complaints *complaints)
{
    memset(config, 0x5a, sizeof *config);
    memset(complaints, 0x5a, sizeof *complaints);
    vpmm_config_read(config, complaints, environment);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    char *const nothing[] = {NULL};
    struct vpmm_config config;
    struct vpmm_complaints complaints;
    struct vpmm_option_row row;
    (void)argc;
    (void)argv;
    read_config(nothing, &config, &complaints);
    CHECK(complaints.n == 0);
    for (; vpmm_config_row(&config, n_options, &row); n_options++) {
        CHECK(n_options < OPTIONS_MAX);
        names[n_options] = row.name;
        memcpy(defaults[n_options], row.value, sizeof row.value);
    }
    return 0;
}

/* ---- the environment ---- */

static void make_entries(const uint8_t *data, size_t bytes)
{
    static char text[ROOM];
    size_t used = 0;
    n_entries = 0;
    for (size_t i = 0; i < bytes && n_entries < ENTRIES_MAX && used + 80 < ROOM; i++) {
        entries[n_entries++] = text + used;
        if (data[i] > 0 && data[i] < ' ')
            used += (size_t)sprintf(text + used, "%s=", names[data[i++] % n_options]);
        for (; i < bytes && data[i] && used + 1 < ROOM; i++)
            text[used++] = (char)data[i];
        text[used++] = 0;
    }
    entries[n_entries] = NULL;
}

static int option_of(const char *entry)
{
    size_t length = strcspn(entry, "=");
    for (unsigned i = 0; i < n_options; i++)
        if (strlen(names[i]) == length && strncmp(names[i], entry, length) == 0)
            return (int)i;
    return -1;
}

/* The entry that counts for an option, or NULL: the first one with a value. */
static char *entry_of(unsigned option)
{
    for (size_t i = 0; i < n_entries; i++)
        if (option_of(entries[i]) == (int)option && strchr(entries[i], '='))
            return strchr(entries[i], '=')[1] ? entries[i] : NULL;
    return NULL;
}

/* ---- what must hold ---- */

static void check_ranges(const struct vpmm_config *config)
{
    CHECK(config->va_bytes > 0);
    CHECK(!config->pages.is_percent || config->pages.value <= 100);
    CHECK(!config->slack.is_percent || config->slack.value <= 100);
    CHECK(!config->slack_is_default ||
          (config->slack.value == (uint64_t)256 << 20 && !config->slack.is_percent));
    CHECK(config->dump_signal == 0 || config->dump_signal == SIGUSR1 ||
          config->dump_signal == SIGUSR2);
    CHECK(config->dump_format == VPMM_DUMP_TEXT || config->dump_format == VPMM_DUMP_JSON);
    CHECK(config->log_level <= VPMM_LOG_DEBUG);
    CHECK(memchr(config->dump_path, 0, sizeof config->dump_path));
    CHECK(memchr(config->stats_path, 0, sizeof config->stats_path));
    CHECK(config->stats || !config->stats_path[0]);
    CHECK(!config->dump_path[0] || config->dump_path[0] == '/');
    CHECK(!config->stats_path[0] || config->stats_path[0] == '/');
}

static void check_complaint(const char *text, size_t room)
{
    CHECK(memchr(text, 0, room));
    CHECK(strncmp(text, "VPMM_", 5) == 0);
    for (; *text; text++)
        CHECK((unsigned char)*text >= ' ' && *text != 0x7f);
}

/* The entry as the whole environment; whether it was accepted. */
static bool read_alone(char *entry, unsigned option, struct vpmm_option_row *row)
{
    char *const environment[] = {entry, NULL};
    struct vpmm_config config;
    struct vpmm_complaints complaints;
    read_config(environment, &config, &complaints);
    check_ranges(&config);
    for (unsigned i = 0; vpmm_config_row(&config, i, row); i++)
        CHECK(i == option || strcmp(row->value, defaults[i]) == 0);
    CHECK(vpmm_config_row(&config, option, row));
    CHECK(memchr(row->value, 0, sizeof row->value));
    CHECK(complaints.n <= 1);
    if (complaints.n) {
        size_t length = strlen(row->name);
        check_complaint(complaints.text[0], sizeof complaints.text[0]);
        CHECK(strncmp(complaints.text[0], row->name, length) == 0);
        CHECK(complaints.text[0][length] == '=');
        CHECK(strstr(complaints.text[0], row->accepted));
        CHECK(strstr(complaints.text[0], row->default_text));
        CHECK(strcmp(row->value, defaults[option]) == 0);
    }
    return complaints.n == 0;
}

/* Whether what is shown is all that was read, in words that an option takes: sizes are rounded to
 * hundredths, paths cut off and their % signs replaced, and VPMM_ONLY shows its effect. */
static bool is_shown_in_full(const struct vpmm_option_row *row)
{
    const char *value = row->value;
    bool is_size = strlen(value) > 2 && strcmp(value + strlen(value) - 1, "B") == 0;
    return strcmp(row->name, "VPMM_ONLY") != 0 && strlen(value) + 1 < sizeof row->value &&
           !(is_size && strchr(value, '.')) && !(value[0] == '/' && strchr(value, '%'));
}

static void check_shown(unsigned option, const struct vpmm_option_row *row)
{
    char again[128];
    struct vpmm_option_row second;
    if (!is_shown_in_full(row))
        return;
    size_t length = (size_t)snprintf(again, sizeof again, "%s=%s", row->name, row->value);
    char *space = strrchr(again, ' ');
    if (again[length - 1] == 'B' && space && row->value[0] != '/')
        memmove(space, space + 1, strlen(space));
    CHECK(read_alone(again, option, &second));
    CHECK(strcmp(second.value, row->value) == 0);
}

static void check_all(void)
{
    struct vpmm_config config;
    struct vpmm_complaints complaints;
    struct vpmm_option_row row, alone;
    unsigned n_complaints = 0;
    read_config(entries, &config, &complaints);
    check_ranges(&config);
    for (unsigned i = 0; vpmm_config_row(&config, i, &row); i++) {
        char *entry = entry_of(i);
        if (!entry) {
            CHECK(strcmp(row.value, defaults[i]) == 0);
            continue;
        }
        n_complaints += !read_alone(entry, i, &alone);
        CHECK(strcmp(row.value, alone.value) == 0);
        check_shown(i, &alone);
    }
    for (size_t i = 0; i < n_entries; i++)
        n_complaints += strncmp(entries[i], "VPMM_", 5) == 0 &&
                        strncmp(entries[i], "VPMM_SIM_", 9) != 0 && option_of(entries[i]) < 0;
    CHECK(complaints.n == n_complaints);
    for (unsigned i = 0; i < complaints.n && i < VPMM_COMPLAINTS_MAX; i++)
        check_complaint(complaints.text[i], sizeof complaints.text[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    make_entries(data, bytes);
    check_all();
    return 0;
}
