/* SPDX-License-Identifier: MIT */
/* Messages: one line each, on standard error only, by level, and not without end. */
#define _GNU_SOURCE
#include "observe/log.h"

#include "capture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int error_file, output_file, error_before, output_before;

static int set_up(void **state)
{
    (void)state;
    error_file = capture_open();
    output_file = capture_open();
    error_before = dup(STDERR_FILENO);
    output_before = dup(STDOUT_FILENO);
    (void)fflush(stdout);
    return dup2(error_file, STDERR_FILENO) < 0 || dup2(output_file, STDOUT_FILENO) < 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)dup2(error_before, STDERR_FILENO);
    (void)dup2(output_before, STDOUT_FILENO);
    (void)close(error_file);
    (void)close(output_file);
    return 0;
}

/* What one message of each kind writes, less its "vpmm[pid] ". */
static void assert_said(const char *expected)
{
    char all[200] = "", line[200];
    static const char *const names[] = {"error", "warning", "info", "debug"};
    for (int kind = VPMM_LOG_IS_ERROR; kind <= VPMM_LOG_IS_DEBUG; kind++) {
        vpmm_log((enum vpmm_log_kind)kind, "%s %d", "x", kind);
        (void)snprintf(line, sizeof line, "vpmm[%d] %s: x %d\n", (int)getpid(), names[kind - 1],
                       kind);
        if (strchr(expected, '0' + kind))
            strcat(all, line);
    }
    assert_string_equal(capture_text(error_file), all);
    assert_string_equal(capture_text(output_file), "");
}

static void the_level_decides(void **state)
{
    (void)state;
    assert_said("");
    for (int level = -1; level <= 5; level++) {
        static const char *const said[] = {"", "", "1", "12", "123", "1234", "1234"};
        vpmm_log_set_level(level);
        assert_said(said[level + 1]);
    }
    vpmm_log_set_level(4);
}

static void errno_is_kept(void **state)
{
    (void)state;
    errno = EXDEV;
    vpmm_log(VPMM_LOG_IS_INFO, "x");
    assert_int_equal(errno, EXDEV);
    (void)capture_text(error_file);
    /* No character of this locale: the formatting itself fails. */
    vpmm_log(VPMM_LOG_IS_INFO, "%ls", L"\x7fffffff");
    assert_int_equal(errno, EXDEV);
    assert_string_equal(capture_text(error_file), "");
}

/* A pipe of packets shows each write by itself. */
static void a_long_message_is_cut_and_still_one_line_in_one_write(void **state)
{
    (void)state;
    int ends[2];
    char message[5000], text[2000];
    memset(message, 'm', sizeof message - 1);
    message[sizeof message - 1] = 0;
    assert_int_equal(pipe2(ends, O_DIRECT), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    vpmm_log(VPMM_LOG_IS_INFO, "%s", message);
    ssize_t n = read(ends[0], text, sizeof text);
    assert_in_range(n, 900, 1024);
    assert_ptr_equal(memchr(text, '\n', (size_t)n), text + n - 1);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

enum {
    THREADS = 4,
    LINES = 500
};

static void *speak(void *argument)
{
    for (int i = 0; i < LINES; i++)
        vpmm_log(VPMM_LOG_IS_INFO, "%s", (const char *)argument);
    return NULL;
}

static void lines_of_threads_do_not_mix(void **state)
{
    (void)state;
    static const char *const words[THREADS] = {"aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbb",
                                               "cccccccc", "dddddddddddddddddddddddddddd"};
    pthread_t threads[THREADS];
    int seen[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, speak, (void *)(uintptr_t)words[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    char *text = strdup(capture_text(error_file)), *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        int i = 0;
        const char *word = strstr(line, "info: ");
        assert_non_null(word);
        while (i < THREADS && strcmp(word + 6, words[i]) != 0)
            i++;
        assert_true(i < THREADS);
        seen[i]++;
    }
    free(text);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(seen[i], LINES);
}

static unsigned count(const char *text, const char *part)
{
    unsigned n = 0;
    for (; (text = strstr(text, part)); text++)
        n++;
    return n;
}

/* The last test: afterwards this process warns no more. */
static void warnings_end_with_a_word_about_it(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++)
        vpmm_log(VPMM_LOG_IS_WARNING, "careful");
    const char *text = capture_text(error_file);
    assert_in_range(count(text, "careful"), 50, 100);
    assert_int_equal(count(text, "no more will be shown\n"), 1);
    assert_string_equal(text + strlen(text) - strlen("no more will be shown\n"),
                        "no more will be shown\n");
    vpmm_log(VPMM_LOG_IS_ERROR, "still said");
    assert_int_equal(count(capture_text(error_file), "still said"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_level_decides, set_up, tear_down),
        cmocka_unit_test_setup_teardown(errno_is_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_long_message_is_cut_and_still_one_line_in_one_write,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(lines_of_threads_do_not_mix, set_up, tear_down),
        cmocka_unit_test_setup_teardown(warnings_end_with_a_word_about_it, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
