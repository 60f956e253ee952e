/* SPDX-License-Identifier: MIT */
/* Options with good values: what is in force afterwards. */
#define _GNU_SOURCE
#include "reading.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void nothing_set_is_the_defaults(void **state)
{
    (void)state;
    const char *const environment[] = {"PATH=/bin", "XVPMM_PAGES=1", "VPM=1", "VPMM=1", NULL};
    read_these(environment);
    assert_defaults();
    assert_int_equal(complaints.n, 0);
}

static void an_empty_value_is_no_value(void **state)
{
    (void)state;
    const char *const environment[] = {
        "VPMM_PAGES=", "VPMM_ONLY=", "VPMM_LOG=", "VPMM_SLACK=", "VPMM_DISABLE=", NULL};
    read_these(environment);
    assert_defaults();
    assert_int_equal(complaints.n, 0);
}

static void sizes_and_counts(void **state)
{
    (void)state;
    read_well("VPMM_PAGE_SIZE=1G");
    assert_int_equal(config.page_bytes, 1 << 30);
    read_well("VPMM_PAGE_SIZE=2097152");
    assert_int_equal(config.page_bytes, 2097152);
    read_well("VPMM_PAGE_SIZE=18446744073709551615");
    assert_int_equal(config.page_bytes, UINT64_MAX);
    read_well("VPMM_PAGE_SIZE=granularity");
    assert_int_equal(config.page_bytes, 0);
    read_well("VPMM_MIN_SIZE=64KiB");
    assert_int_equal(config.min_bytes, 65536);
    read_well("VPMM_MIN_SIZE=page");
    assert_int_equal(config.min_bytes, 0);
    read_well("VPMM_VA_SIZE=512g");
    assert_int_equal(config.va_bytes, (uint64_t)512 << 30);
    read_well("VPMM_EXTENT=1");
    assert_int_equal(config.extent_pages_max, 1);
    read_well("VPMM_EXTENT=auto");
    assert_int_equal(config.extent_pages_max, 0);
}

static void amounts(void **state)
{
    (void)state;
    read_well("VPMM_PAGES=16384");
    assert_int_equal(config.pages.value, 16384);
    assert_false(config.pages.is_percent);
    read_well("VPMM_PAGES=80%");
    assert_int_equal(config.pages.value, 80);
    assert_true(config.pages.is_percent);
    read_well("VPMM_PAGES=100%");
    assert_int_equal(config.pages.value, 100);
    read_well("VPMM_SLACK=1G");
    assert_int_equal(config.slack.value, 1 << 30);
    assert_false(config.slack.is_percent);
    assert_false(config.slack_is_default);
    read_well("VPMM_SLACK=0");
    assert_int_equal(config.slack.value, 0);
    assert_false(config.slack_is_default);
    read_well("VPMM_SLACK=5%");
    assert_int_equal(config.slack.value, 5);
    assert_true(config.slack.is_percent);
    assert_false(config.slack_is_default);
    read_well("VPMM_SLACK=max(256M,2%)");
    assert_defaults();
    read_well("VPMM_SPARE=0%");
    assert_int_equal(config.spare_percent, 0);
    read_well("VPMM_SPARE=100%");
    assert_int_equal(config.spare_percent, 100);
    read_well("VPMM_LIMIT=3G");
    assert_int_equal(config.limit.value, (uint64_t)3 << 30);
    assert_false(config.limit.is_percent);
    read_well("VPMM_LIMIT=1%");
    assert_int_equal(config.limit.value, 1);
    assert_true(config.limit.is_percent);
    read_well("VPMM_IDLE_MS=1500");
    assert_int_equal(config.idle_ms, 1500);
    read_well("VPMM_DECAY_MS=700");
    assert_int_equal(config.decay_ms, 700);
    read_well("VPMM_DECAY_MS=0");
    assert_int_equal(config.decay_ms, 0);
    read_well("VPMM_DECAY_MS=off");
    assert_int_equal(config.decay_ms, 0);
    read_well("VPMM_IDLE_MS=off");
    assert_defaults();
    read_well("VPMM_LIMIT=none");
    assert_defaults();
}

static void words(void **state)
{
    (void)state;
    static const char *const on[] = {"1", "on", "yes", "true"};
    static const char *const off[] = {"0", "off", "no", "false"};
    char variable[64];
    for (unsigned i = 0; i < 4; i++) {
        (void)snprintf(variable, sizeof variable, "VPMM_FREE_SYNC=%s", on[i]);
        read_well(variable);
        assert_int_equal(config.free_sync, VPMM_FREE_SYNC_ALWAYS);
        assert_false(config.disable);
        (void)snprintf(variable, sizeof variable, "VPMM_DISABLE=%s", on[i]);
        read_well(variable);
        assert_true(config.disable);
        (void)snprintf(variable, sizeof variable, "VPMM_IPC=%s", off[i]);
        read_well(variable);
        assert_false(config.ipc);
        (void)snprintf(variable, sizeof variable, "VPMM_DISABLE=%s", off[i]);
        read_well(variable);
        assert_defaults();
        (void)snprintf(variable, sizeof variable, "VPMM_FREE_SYNC=%s", off[i]);
        read_well(variable);
        assert_int_equal(config.free_sync, VPMM_FREE_SYNC_NEVER);
    }
    read_well("VPMM_FREE_SYNC=small");
    assert_int_equal(config.free_sync, VPMM_FREE_SYNC_SMALL);
    read_well("VPMM_DUMP_SIGNAL=USR2");
    assert_int_equal(config.dump_signal, SIGUSR2);
    read_well("VPMM_DUMP_SIGNAL=none");
    assert_int_equal(config.dump_signal, 0);
    read_well("VPMM_IPC_SHARED=refuse");
    assert_true(config.ipc_refuses_shared);
    read_well("VPMM_IPC_SHARED=warn");
    assert_defaults();
    read_well("VPMM_DUMP_FORMAT=json");
    assert_int_equal(config.dump_format, VPMM_DUMP_JSON);
    static const char *const levels[] = {"none", "error", "warn", "info", "debug"};
    for (unsigned i = 0; i < 5; i++) {
        (void)snprintf(variable, sizeof variable, "VPMM_LOG=%s", levels[i]);
        read_well(variable);
        assert_int_equal(config.log_level, i);
    }
}

static void paths(void **state)
{
    (void)state;
    char expected[8192], folder[VPMM_PATH_MAX];
    assert_non_null(getcwd(folder, sizeof folder));
    read_well("VPMM_DUMP=/tmp/a%p-%%p%x%");
    (void)snprintf(expected, sizeof expected, "/tmp/a%d-%%p%%x%%", (int)getpid());
    assert_string_equal(config.dump_path, expected);
    read_well("VPMM_DUMP=dump.txt");
    (void)snprintf(expected, sizeof expected, "%s/dump.txt", folder);
    assert_string_equal(config.dump_path, expected);
    read_well("VPMM_DUMP=stderr");
    assert_string_equal(config.dump_path, "");
}

static void statistics(void **state)
{
    (void)state;
    read_well("VPMM_STATS=1");
    assert_true(config.stats);
    assert_false(config.stats_json);
    assert_string_equal(config.stats_path, "");
    read_well("VPMM_STATS=json");
    assert_true(config.stats && config.stats_json);
    assert_string_equal(config.stats_path, "");
    read_well("VPMM_STATS=/tmp/s.json");
    assert_true(config.stats && config.stats_json);
    assert_string_equal(config.stats_path, "/tmp/s.json");
    read_well("VPMM_STATS=/tmp/s.txt");
    assert_true(config.stats);
    assert_false(config.stats_json);
    assert_string_equal(config.stats_path, "/tmp/s.txt");
    read_well("VPMM_STATS=0");
    assert_defaults();
}

static void only_names_programs(void **state)
{
    (void)state;
    char variable[512];
    const char *own = program_invocation_short_name;
    static const char *const named[] = {"%s", "a,%s", "%s,b", "a, %s ,b", ",%s"};
    static const char *const not_named[] = {"a", "a,b", "x%s", "%sx", "a,%s.b", ",", "/bin/%s"};
    for (unsigned i = 0; i < sizeof named / sizeof named[0]; i++) {
        int n = snprintf(variable, sizeof variable, "VPMM_ONLY=");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        (void)snprintf(variable + n, sizeof variable - (size_t)n, named[i], own);
        read_well(variable);
        assert_true(config.active);
    }
    for (unsigned i = 0; i < sizeof not_named / sizeof not_named[0]; i++) {
        int n = snprintf(variable, sizeof variable, "VPMM_ONLY=");
        (void)snprintf(variable + n, sizeof variable - (size_t)n, not_named[i], own);
#pragma GCC diagnostic pop
        read_well(variable);
        assert_false(config.active);
    }
    read_well("VPMM_ONLY=all");
    assert_true(config.active);
}

static void the_first_of_two_counts(void **state)
{
    (void)state;
    const char *const environment[] = {"VPMM_PAGES=1", "VPMM_PAGES=2", NULL};
    read_these(environment);
    assert_int_equal(config.pages.value, 1);
}

static void its_own_environment_is_the_default(void **state)
{
    (void)state;
    assert_int_equal(setenv("VPMM_PAGES", "77", 1), 0);
    read_these(NULL);
    assert_int_equal(config.pages.value, 77);
    assert_int_equal(unsetenv("VPMM_PAGES"), 0);
}

/* Every value that is shown for a default is the default's own text, or the same number. */
static void rows_show_what_is_in_force(void **state)
{
    (void)state;
    struct vpmm_option_row row;
    unsigned n = 0;
    const char *const environment[] = {"VPMM_PAGES=80%",    "VPMM_SLACK=1536M",  "VPMM_EXTENT=4",
                                       "VPMM_PAGE_SIZE=2M", "VPMM_LOG=none",     "VPMM_DUMP=/tmp/x",
                                       "VPMM_STATS=json",   "VPMM_DISABLE=1",    "VPMM_ONLY=nobody",
                                       "VPMM_LIMIT=50%",    "VPMM_TRACE_MAX=1G", NULL};
    static const char *const shown[][2] = {
        {"VPMM_PAGES", "80%"},        {"VPMM_SLACK", "1.50 GiB"},  {"VPMM_EXTENT", "4"},
        {"VPMM_PAGE_SIZE", "2 MiB"},  {"VPMM_LOG", "none"},        {"VPMM_DUMP", "/tmp/x"},
        {"VPMM_STATS", "json"},       {"VPMM_DISABLE", "1"},       {"VPMM_ONLY", "not active"},
        {"VPMM_VA_SIZE", "8 TiB"},    {"VPMM_MIN_SIZE", "1 B"},    {"VPMM_DUMP_SIGNAL", "USR1"},
        {"VPMM_DUMP_FORMAT", "text"}, {"VPMM_FREE_SYNC", "small"}, {"VPMM_SPARE", "18%"},
        {"VPMM_LIMIT", "50%"},        {"VPMM_IDLE_MS", "off"},     {"VPMM_IPC", "1"},
        {"VPMM_TRACE", "none"},       {"VPMM_TRACE_MAX", "1 GiB"}, {"VPMM_IPC_SHARED", "warn"},
        {"VPMM_DECAY_MS", "2500"},    {"VPMM_DUMP_MAX", "64 MiB"}, {"VPMM_STREAM_WAITS", "0"},
    };
    read_these(environment);
    assert_int_equal(complaints.n, 0);
    for (; vpmm_config_row(&config, n, &row); n++) {
        unsigned i = 0;
        while (i < sizeof shown / sizeof shown[0] && strcmp(shown[i][0], row.name) != 0)
            i++;
        assert_true(i < sizeof shown / sizeof shown[0]);
        assert_string_equal(row.value, shown[i][1]);
        assert_true(strlen(row.help) > 10);
    }
    assert_int_equal(n, sizeof shown / sizeof shown[0]);
}

static void every_default_is_accepted_as_a_value(void **state)
{
    (void)state;
    struct vpmm_option_row row;
    for (unsigned n = 0; vpmm_config_row(&config, n, &row); n++) {
        char variable[128];
        (void)snprintf(variable, sizeof variable, "%s=%s", row.name, row.default_text);
        read_well(variable);
        assert_defaults();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_set_is_the_defaults),
        cmocka_unit_test(an_empty_value_is_no_value),
        cmocka_unit_test(sizes_and_counts),
        cmocka_unit_test(amounts),
        cmocka_unit_test(words),
        cmocka_unit_test(paths),
        cmocka_unit_test(statistics),
        cmocka_unit_test(only_names_programs),
        cmocka_unit_test(the_first_of_two_counts),
        cmocka_unit_test(its_own_environment_is_the_default),
        cmocka_unit_test(rows_show_what_is_in_force),
        cmocka_unit_test(every_default_is_accepted_as_a_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
