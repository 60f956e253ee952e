/* SPDX-License-Identifier: MIT */
/* Reads and shows the value of each kind of option. Must not guess: a value that makes no sense is
 * refused. */
#define _GNU_SOURCE
#include "config/values.h"

#include "base/bytes.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_SLACK_BYTES ((uint64_t)256 << 20)

static void *member(const struct option *option, struct vpmm_config *config)
{
    return (char *)config + option->offset;
}

static const void *member_const(const struct option *option, const struct vpmm_config *config)
{
    return (const char *)config + option->offset;
}

static bool is_default(const struct option *option, const char *value)
{
    return strcmp(value, option->default_text) == 0;
}

/* ---- numbers ---- */
static bool ends_in_digit(const char *value)
{
    size_t length = strlen(value);
    return length > 0 && value[length - 1] >= '0' && value[length - 1] <= '9';
}

static bool parse_count(const char *value, uint64_t *count_out)
{
    return ends_in_digit(value) && vpmm_bytes_parse(value, count_out) == VPMM_OK;
}

static bool parse_percent(const char *value, uint64_t *percent_out)
{
    char number[4];
    size_t length = strlen(value);
    uint64_t percent;
    if (length < 2 || length > sizeof number || value[length - 1] != '%')
        return false;
    memcpy(number, value, length - 1);
    number[length - 1] = 0;
    if (!parse_count(number, &percent) || percent > 100)
        return false;
    *percent_out = percent;
    return true;
}

static void show_amount(const struct vpmm_amount *amount, bool is_bytes, struct vpmm_text *text)
{
    if (is_bytes && !amount->is_percent)
        vpmm_text_bytes(text, amount->value);
    else
        vpmm_text_decimal(text, amount->value, 0);
    vpmm_text_string(text, amount->is_percent ? "%" : "");
}

bool read_size(const struct option *option, const char *value, struct vpmm_config *config)
{
    uint64_t bytes;
    if (vpmm_bytes_parse(value, &bytes) != VPMM_OK || bytes == 0)
        return false;
    *(uint64_t *)member(option, config) = bytes;
    return true;
}

void show_size(const struct option *option, const struct vpmm_config *config,
               struct vpmm_text *text)
{
    vpmm_text_bytes(text, *(const uint64_t *)member_const(option, config));
}

/* The word that stands for 0: the default's text, or `other` where the default is a number. */
static const char *word_of_zero(const struct option *option, const char *other)
{
    return ends_in_digit(option->default_text) ? other : option->default_text;
}

bool read_size_or_word(const struct option *option, const char *value, struct vpmm_config *config)
{
    if (strcmp(value, word_of_zero(option, "page")) != 0)
        return read_size(option, value, config);
    *(uint64_t *)member(option, config) = 0;
    return true;
}

void show_size_or_word(const struct option *option, const struct vpmm_config *config,
                       struct vpmm_text *text)
{
    if (*(const uint64_t *)member_const(option, config))
        show_size(option, config, text);
    else
        vpmm_text_string(text, word_of_zero(option, "page"));
}

bool read_count_or_word(const struct option *option, const char *value, struct vpmm_config *config)
{
    uint64_t count = 0;
    bool is_word = strcmp(value, word_of_zero(option, "off")) == 0;
    bool may_be_zero = !is_default(option, word_of_zero(option, "off"));
    if (!is_word && (!parse_count(value, &count) || (count == 0 && !may_be_zero)))
        return false;
    *(uint64_t *)member(option, config) = count;
    return true;
}

void show_count_or_word(const struct option *option, const struct vpmm_config *config,
                        struct vpmm_text *text)
{
    uint64_t count = *(const uint64_t *)member_const(option, config);
    if (count)
        vpmm_text_decimal(text, count, 0);
    else
        vpmm_text_string(text, word_of_zero(option, "off"));
}

bool read_pages(const struct option *option, const char *value, struct vpmm_config *config)
{
    struct vpmm_amount amount = {0, false};
    amount.is_percent = parse_percent(value, &amount.value);
    if (!amount.is_percent && !parse_count(value, &amount.value))
        return false;
    *(struct vpmm_amount *)member(option, config) = amount;
    return true;
}

void show_pages(const struct option *option, const struct vpmm_config *config,
                struct vpmm_text *text)
{
    show_amount(member_const(option, config), false, text);
}

bool read_limit(const struct option *option, const char *value, struct vpmm_config *config)
{
    struct vpmm_amount limit = {0, false};
    if (!is_default(option, value)) {
        limit.is_percent = parse_percent(value, &limit.value);
        if (!limit.is_percent && vpmm_bytes_parse(value, &limit.value) != VPMM_OK)
            return false;
        if (limit.value == 0)
            return false;
    }
    config->limit = limit;
    return true;
}

void show_limit(const struct option *option, const struct vpmm_config *config,
                struct vpmm_text *text)
{
    if (config->limit.value)
        show_amount(&config->limit, true, text);
    else
        vpmm_text_string(text, option->default_text);
}

bool read_slack(const struct option *option, const char *value, struct vpmm_config *config)
{
    struct vpmm_amount amount = {DEFAULT_SLACK_BYTES, false};
    bool is_the_default = is_default(option, value);
    if (!is_the_default) {
        amount.is_percent = parse_percent(value, &amount.value);
        if (!amount.is_percent && vpmm_bytes_parse(value, &amount.value) != VPMM_OK)
            return false;
    }
    config->slack = amount;
    config->slack_is_default = is_the_default;
    return true;
}

void show_slack(const struct option *option, const struct vpmm_config *config,
                struct vpmm_text *text)
{
    if (config->slack_is_default)
        vpmm_text_string(text, option->default_text);
    else
        show_amount(&config->slack, true, text);
}

bool read_percent(const struct option *option, const char *value, struct vpmm_config *config)
{
    uint64_t percent;
    if (!parse_percent(value, &percent))
        return false;
    *(uint64_t *)member(option, config) = percent;
    return true;
}

void show_percent(const struct option *option, const struct vpmm_config *config,
                  struct vpmm_text *text)
{
    struct vpmm_amount amount = {*(const uint64_t *)member_const(option, config), true};
    show_amount(&amount, false, text);
}

/* ---- words ---- */

struct word {
    const char *text;
    int value;
};

/* The first text of a value is the one that is shown. */
static const struct word flags[] = {{"0", 0},  {"1", 1},     {"no", 0},   {"yes", 1}, {"off", 0},
                                    {"on", 1}, {"false", 0}, {"true", 1}, {NULL, 0}};
static const struct word signals[] = {{"USR1", SIGUSR1},    {"USR2", SIGUSR2},    {"none", 0},
                                      {"SIGUSR1", SIGUSR1}, {"SIGUSR2", SIGUSR2}, {NULL, 0}};
static const struct word waits[] = {{"0", 0},  {"1", 1},     {"small", VPMM_FREE_SYNC_SMALL},
                                    {"no", 0}, {"yes", 1},   {"off", 0},
                                    {"on", 1}, {"false", 0}, {"true", 1},
                                    {NULL, 0}};
static const struct word formats[] = {
    {"text", VPMM_DUMP_TEXT}, {"json", VPMM_DUMP_JSON}, {NULL, 0}};
static const struct word levels[] = {{"none", VPMM_LOG_NONE},   {"error", VPMM_LOG_ERROR},
                                     {"warn", VPMM_LOG_WARN},   {"info", VPMM_LOG_INFO},
                                     {"debug", VPMM_LOG_DEBUG}, {NULL, 0}};
static const struct word shares[] = {{"warn", false}, {"refuse", true}, {NULL, 0}};

static const struct word *word_of_text(const struct word *words, const char *text)
{
    while (words->text && strcmp(words->text, text) != 0)
        words++;
    return words->text ? words : NULL;
}

static const char *text_of_value(const struct word *words, int value)
{
    while (words->text && words->value != value)
        words++;
    return words->text;
}

bool read_flag(const struct option *option, const char *value, struct vpmm_config *config)
{
    const struct word *word = word_of_text(flags, value);
    if (word)
        *(bool *)member(option, config) = word->value != 0;
    return word != NULL;
}

void show_flag(const struct option *option, const struct vpmm_config *config,
               struct vpmm_text *text)
{
    vpmm_text_string(text, *(const bool *)member_const(option, config) ? "1" : "0");
}

#define DEFINE_WORD_KIND(kind, words, field, type)                                                 \
    bool read_##kind(const struct option *option, const char *value, struct vpmm_config *config)   \
    {                                                                                              \
        (void)option;                                                                              \
        const struct word *word = word_of_text(words, value);                                      \
        if (word)                                                                                  \
            config->field = (type)word->value;                                                     \
        return word != NULL;                                                                       \
    }                                                                                              \
    void show_##kind(const struct option *option, const struct vpmm_config *config,                \
                     struct vpmm_text *text)                                                       \
    {                                                                                              \
        (void)option;                                                                              \
        vpmm_text_string(text, text_of_value(words, (int)config->field));                          \
    }

DEFINE_WORD_KIND(waits, waits, free_sync, enum vpmm_free_sync)
DEFINE_WORD_KIND(signal, signals, dump_signal, int)
DEFINE_WORD_KIND(format, formats, dump_format, enum vpmm_dump_format)
DEFINE_WORD_KIND(level, levels, log_level, enum vpmm_log_level)
DEFINE_WORD_KIND(shared, shares, ipc_refuses_shared, bool)

/* ---- programs ---- */

/* Whether the item of `length` characters, less spaces around it, is `name`. */
static bool is_item(const char *item, size_t length, const char *name)
{
    while (length > 0 && *item == ' ') {
        item++;
        length--;
    }
    while (length > 0 && item[length - 1] == ' ')
        length--;
    return length == strlen(name) && memcmp(item, name, length) == 0;
}

bool read_only(const struct option *option, const char *value, struct vpmm_config *config)
{
    bool is_named = is_default(option, value);
    for (const char *item = value; item && !is_named;) {
        const char *comma = strchr(item, ',');
        size_t length = comma ? (size_t)(comma - item) : strlen(item);
        is_named = is_item(item, length, program_invocation_short_name);
        item = comma ? comma + 1 : NULL;
    }
    config->active = is_named;
    return true;
}

void show_only(const struct option *option, const struct vpmm_config *config,
               struct vpmm_text *text)
{
    (void)option;
    vpmm_text_string(text, config->active ? "active" : "not active");
}

/* ---- paths ---- */

/* A bare word is more likely a slip than the name of a file. */
static bool looks_like_path(const char *value)
{
    return strpbrk(value, "/.") != NULL;
}

/* A relative path is meant from where the program was started, whatever it makes its working folder
 * later. */
static void write_folder(struct vpmm_text *text, const char *value, char folder[VPMM_PATH_MAX])
{
    if (value[0] != '/' && getcwd(folder, VPMM_PATH_MAX)) {
        vpmm_text_string(text, folder);
        vpmm_text_char(text, '/');
    }
}

/* False when the whole path does not fit. */
static bool read_path_to(const char *value, char path_out[VPMM_PATH_MAX])
{
    char path[VPMM_PATH_MAX + 1], folder[VPMM_PATH_MAX];
    struct vpmm_text text;
    vpmm_text_init(&text, path, sizeof path, -1);
    write_folder(&text, value, folder);
    for (const char *at = value; *at; at++) {
        if (at[0] == '%' && at[1] == 'p')
            vpmm_text_decimal(&text, (uint64_t)getpid(), 0);
        else
            vpmm_text_char(&text, *at);
        at += at[0] == '%' && (at[1] == 'p' || at[1] == '%');
    }
    if (text.length >= VPMM_PATH_MAX)
        return false;
    memcpy(path_out, path, text.length + 1);
    return true;
}

bool read_path(const struct option *option, const char *value, struct vpmm_config *config)
{
    char *path = member(option, config);
    if (is_default(option, value)) {
        path[0] = 0;
        return true;
    }
    return looks_like_path(value) && read_path_to(value, path);
}

void show_path(const struct option *option, const struct vpmm_config *config,
               struct vpmm_text *text)
{
    const char *path = member_const(option, config);
    vpmm_text_string(text, path[0] ? path : option->default_text);
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

bool read_stats(const struct option *option, const char *value, struct vpmm_config *config)
{
    (void)option;
    const struct word *word = word_of_text(flags, value);
    bool is_json = strcmp(value, "json") == 0;
    if (!word && !is_json) {
        if (!looks_like_path(value) || !read_path_to(value, config->stats_path))
            return false;
        is_json = ends_with(value, ".json");
    } else {
        config->stats_path[0] = 0;
    }
    config->stats = !word || word->value;
    config->stats_json = is_json;
    return true;
}

void show_stats(const struct option *option, const struct vpmm_config *config,
                struct vpmm_text *text)
{
    (void)option;
    if (!config->stats)
        vpmm_text_string(text, "0");
    else if (config->stats_path[0])
        vpmm_text_string(text, config->stats_path);
    else
        vpmm_text_string(text, config->stats_json ? "json" : "1");
}
