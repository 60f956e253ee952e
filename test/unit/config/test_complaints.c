/* SPDX-License-Identifier: MIT */
/* Options with bad values and names: the default is in force, and what is said about it. */
#include "reading.h"

#include <stdio.h>
#include <string.h>

static void a_path_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    static char variable[VPMM_PATH_MAX + 100];
    size_t prefix = strlen("VPMM_DUMP=");
    memset(variable, '/', sizeof variable);
    memcpy(variable, "VPMM_DUMP=", prefix);
    variable[prefix + VPMM_PATH_MAX - 1] = 0;
    read_well(variable);
    assert_int_equal(strlen(config.dump_path), VPMM_PATH_MAX - 1);
    variable[prefix + VPMM_PATH_MAX - 1] = '/';
    variable[prefix + VPMM_PATH_MAX] = 0;
    read_one(variable);
    assert_int_equal(complaints.n, 1);
    assert_string_equal(config.dump_path, "");
}

static void a_bad_value_gets_the_default_and_one_full_sentence(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "VPMM_PAGE_SIZE=0",     "VPMM_PAGE_SIZE=2.5M", "VPMM_PAGE_SIZE=-1",
        "VPMM_PAGE_SIZE=32Q",   "VPMM_MIN_SIZE=big",   "VPMM_MIN_SIZE=0",
        "VPMM_PAGES=many",      "VPMM_PAGES=101%",     "VPMM_PAGES=-5",
        "VPMM_PAGES=%",         "VPMM_PAGES=4G",       "VPMM_PAGES=1.5%",
        "VPMM_PAGES= 4",        "VPMM_PAGES=1000%",    "VPMM_VA_SIZE=0",
        "VPMM_VA_SIZE=all",     "VPMM_EXTENT=0",       "VPMM_EXTENT=2M",
        "VPMM_EXTENT=Auto",     "VPMM_SPARE=18",       "VPMM_SPARE=101%",
        "VPMM_LIMIT=0",         "VPMM_IDLE_MS=0",      "VPMM_IDLE_MS=1s",
        "VPMM_LIMIT=0%",        "VPMM_LIMIT=101%",     "VPMM_LIMIT=all",
        "VPMM_SLACK=lots",      "VPMM_SLACK=101%",     "VPMM_FREE_SYNC=2",
        "VPMM_FREE_SYNC=TRUE!", "VPMM_IPC=2",          "VPMM_DUMP_SIGNAL=HUP",
        "VPMM_DUMP_SIGNAL=10",  "VPMM_DUMP=stdout",    "VPMM_DUMP_FORMAT=xml",
        "VPMM_STATS=josn",      "VPMM_STATS=2",        "VPMM_LOG=verbose",
        "VPMM_DISABLE=please",  "VPMM_DECAY_MS=4s",    "VPMM_DECAY_MS=never",
    };
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct vpmm_option_row row;
        unsigned number = 0;
        size_t name_length = strcspn(bad[i], "=");
        read_one(bad[i]);
        assert_defaults();
        assert_int_equal(complaints.n, 1);
        while (vpmm_config_row(&config, number, &row) &&
               (strlen(row.name) != name_length || strncmp(row.name, bad[i], name_length) != 0))
            number++;
        assert_int_equal(strncmp(complaints.text[0], bad[i], strlen(bad[i])), 0);
        assert_non_null(strstr(complaints.text[0], row.accepted));
        const char *tail = strstr(complaints.text[0], "using the default, ");
        assert_non_null(tail);
        assert_string_equal(tail + strlen("using the default, "), row.default_text);
    }
}

static void a_complaint_is_one_short_line(void **state)
{
    (void)state;
    char variable[600] = "VPMM_PAGES=a\nb\x1b[31m";
    size_t length = strlen(variable);
    memset(variable + length, 'z', sizeof variable - length - 1);
    read_one(variable);
    assert_int_equal(complaints.n, 1);
    assert_non_null(strstr(complaints.text[0], "VPMM_PAGES=a?b?[31mzzz"));
    assert_non_null(strstr(complaints.text[0], "z... is not accepted"));
    assert_non_null(strstr(complaints.text[0], "using the default, 0"));
}

static void unknown_names_are_told_the_nearest(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"VPMM_PAGESIZE=1", "did you mean VPMM_PAGE_SIZE?"},
        {"VPMM_PAGE=1", "did you mean VPMM_PAGES?"},
        {"VPMM_pages=1", "did you mean VPMM_PAGES?"},
        {"VPMM_DISABLED=1", "did you mean VPMM_DISABLE?"},
        {"VPMM_STAT", "did you mean VPMM_STATS?"},
        {"VPMM_FREESYNC=1", "did you mean VPMM_FREE_SYNC?"},
        {"VPMM_DUMP_FROMAT=json", "did you mean VPMM_DUMP_FORMAT?"},
        {"VPMM_COLOUR=0", "'vpmm help options'"},
        {"VPMM_=0", "'vpmm help options'"},
        {"VPMM_SOMETHING_ENTIRELY_DIFFERENT_AND_LONG=0", "'vpmm help options'"},
    };
    for (unsigned i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        read_one(pairs[i][0]);
        assert_defaults();
        assert_int_equal(complaints.n, 1);
        size_t length = strcspn(pairs[i][0], "=");
        assert_int_equal(strncmp(complaints.text[0], pairs[i][0], length), 0);
        if (!strstr(complaints.text[0], pairs[i][1]))
            fail_msg("%s", complaints.text[0]);
    }
}

static void the_simulated_device_s_own_names_are_left_alone(void **state)
{
    (void)state;
    read_well("VPMM_SIM_SEED=1");
    read_one("VPMM_SIMSEED=1");
    assert_int_equal(complaints.n, 1);
}

static void more_complaints_than_are_kept_are_counted(void **state)
{
    (void)state;
    char text[VPMM_COMPLAINTS_MAX + 5][24];
    const char *environment[VPMM_COMPLAINTS_MAX + 6] = {0};
    for (unsigned i = 0; i < VPMM_COMPLAINTS_MAX + 5; i++) {
        (void)snprintf(text[i], sizeof text[i], "VPMM_UNHEARD_OF_%u=1", i);
        environment[i] = text[i];
    }
    read_these(environment);
    assert_int_equal(complaints.n, VPMM_COMPLAINTS_MAX + 5);
    for (unsigned i = 0; i < VPMM_COMPLAINTS_MAX; i++)
        assert_int_equal(strncmp(complaints.text[i], text[i], strcspn(text[i], "=")), 0);
}

static void a_setuid_program_is_not_steered(void **state)
{
    (void)state;
    const char *const environment[] = {"VPMM_STATS=/etc/passwd", "VPMM_UNKNOWN=1", "VPMM_DISABLE=0",
                                       NULL};
    secure = 1;
    read_these(environment);
    secure = 0;
    assert_int_equal(complaints.n, 0);
    assert_true(config.disable);
    config.disable = false;
    assert_defaults();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_path_that_does_not_fit_is_refused),
        cmocka_unit_test(a_bad_value_gets_the_default_and_one_full_sentence),
        cmocka_unit_test(a_complaint_is_one_short_line),
        cmocka_unit_test(unknown_names_are_told_the_nearest),
        cmocka_unit_test(the_simulated_device_s_own_names_are_left_alone),
        cmocka_unit_test(more_complaints_than_are_kept_are_counted),
        cmocka_unit_test(a_setuid_program_is_not_steered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
