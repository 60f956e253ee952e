/* SPDX-License-Identifier: MIT */
/* Text put together in a buffer, cut off or written out; a signal and a slow pipe must not lose a
 * byte of it. */
#define _GNU_SOURCE
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <cmocka.h>

static void pieces_are_put_side_by_side(void **state)
{
    (void)state;
    char buffer[200];
    struct vpmm_text text;
    vpmm_text_init(&text, buffer, sizeof buffer, -1);
    assert_string_equal(buffer, "");
    vpmm_text_string(&text, "a");
    vpmm_text_decimal(&text, 0, 3);
    vpmm_text_decimal(&text, 12345, 3);
    vpmm_text_decimal(&text, UINT64_MAX, 0);
    vpmm_text_char(&text, '|');
    vpmm_text_padded(&text, "bc", 4);
    vpmm_text_padded(&text, "defgh", 4);
    vpmm_text_char(&text, '|');
    vpmm_text_hex(&text, 0x7f00abc0, 12);
    vpmm_text_hex(&text, 0, 1);
    vpmm_text_hex(&text, UINT64_MAX, 1);
    vpmm_text_bytes(&text, 1536);
    assert_string_equal(buffer, "a  01234518446744073709551615|bc  defgh|0x00007f00abc00x0"
                                "0xffffffffffffffff1.50 KiB");
    assert_int_equal(text.length, strlen(buffer));
}

static void quoted_text_is_ascii_json(void **state)
{
    (void)state;
    char buffer[64];
    struct vpmm_text text;
    vpmm_text_init(&text, buffer, sizeof buffer, -1);
    vpmm_text_quoted(&text, "a\"b\\c\n\x01/\xe9\x7f");
    assert_string_equal(buffer, "\"a\\\"b\\\\c\\u000a\\u0001/\\u00e9\\u007f\"");
}

/* Whole characters, and bytes of what is none: too long a form, half of a pair, beyond the last
 * one, cut off. */
static void quoted_text_is_utf_8_where_it_can_be(void **state)
{
    (void)state;
    static const struct {
        const char *text, *quoted;
    } cases[] = {
        {"\xc3\xa9", "\"\\u00e9\""},
        {"a\xe7\x9b\xae\xe5\xbd\x95", "\"a\\u76ee\\u5f55\""},
        {"\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf", "\"\\ud83d\\ude00\\udbff\\udfff\""},
        {"\xc2\x80\xdf\xbf", "\"\\u0080\\u07ff\""},
        {"\xc1\xbf", "\"\\u00c1\\u00bf\""},
        {"\xe0\x9f\xbf", "\"\\u00e0\\u009f\\u00bf\""},
        {"\xed\xa0\x80", "\"\\u00ed\\u00a0\\u0080\""},
        {"\xf0\x8f\xbf\xbf", "\"\\u00f0\\u008f\\u00bf\\u00bf\""},
        {"\xf4\x90\x80\x80", "\"\\u00f4\\u0090\\u0080\\u0080\""},
        {"\xf8\x80\x80\x80", "\"\\u00f8\\u0080\\u0080\\u0080\""},
        {"\x80"
         "a\xe7\x9b",
         "\"\\u0080a\\u00e7\\u009b\""},
        {"", "\"\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char buffer[64];
        struct vpmm_text text;
        vpmm_text_init(&text, buffer, sizeof buffer, -1);
        vpmm_text_quoted(&text, cases[i].text);
        assert_string_equal(buffer, cases[i].quoted);
    }
}

static void without_a_file_the_rest_is_cut_off(void **state)
{
    (void)state;
    char buffer[8];
    struct vpmm_text text;
    memset(buffer, 'x', sizeof buffer);
    vpmm_text_init(&text, buffer, 5, -1);
    vpmm_text_string(&text, "abcdefgh");
    assert_string_equal(buffer, "abcd");
    assert_int_equal(text.length, 4);
    assert_int_equal(buffer[5], 'x');
    vpmm_text_init(&text, buffer, 1, -1);
    vpmm_text_char(&text, 'a');
    assert_string_equal(buffer, "");
}

#define LETTERS 300000
#define PIPE_BYTES 4096

struct reader {
    int fd;
    size_t n;
    bool is_right;
};

static atomic_uint n_signals;

/* Comes late: the writer fills the pipe, and is interrupted before it can write another byte. */
static void *read_all(void *argument)
{
    struct reader *reader = argument;
    int n_waiting = 0;
    while (ioctl(reader->fd, FIONREAD, &n_waiting) == 0 && n_waiting < PIPE_BYTES)
        (void)sched_yield();
    for (unsigned before = atomic_load(&n_signals); atomic_load(&n_signals) < before + 10;)
        (void)sched_yield();
    char got[777];
    reader->is_right = true;
    for (ssize_t n; (n = read(reader->fd, got, sizeof got)) != 0;)
        for (ssize_t i = 0; i < n; i++)
            reader->is_right &= got[i] == 'a' + (char)(reader->n++ % 26);
    return NULL;
}

static void on_signal(int number)
{
    (void)number;
    atomic_fetch_add(&n_signals, 1);
}

/* Signals a thread until told to stop. */
struct pest {
    pthread_t victim;
    atomic_bool is_over;
};

static void *pester(void *argument)
{
    struct pest *pest = argument;
    while (!atomic_load(&pest->is_over))
        (void)pthread_kill(pest->victim, SIGUSR1);
    return NULL;
}

static void a_slow_pipe_and_signals_lose_nothing(void **state)
{
    (void)state;
    int ends[2];
    char buffer[50000];
    struct vpmm_text text;
    struct reader reader = {.n = 0};
    struct pest pest = {.victim = pthread_self()};
    pthread_t reading, pestering;
    struct sigaction action = {.sa_handler = on_signal}, before;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES), PIPE_BYTES);
    reader.fd = ends[0];
    assert_int_equal(pthread_create(&reading, NULL, read_all, &reader), 0);
    assert_int_equal(pthread_create(&pestering, NULL, pester, &pest), 0);
    vpmm_text_init(&text, buffer, sizeof buffer, ends[1]);
    for (unsigned i = 0; i < LETTERS; i++)
        vpmm_text_char(&text, (char)('a' + i % 26));
    vpmm_text_flush(&text);
    assert_int_equal(text.length, 0);
    atomic_store(&pest.is_over, true);
    assert_int_equal(pthread_join(pestering, NULL), 0);
    (void)close(ends[1]);
    assert_int_equal(pthread_join(reading, NULL), 0);
    (void)close(ends[0]);
    assert_int_equal(reader.n, LETTERS);
    assert_true(reader.is_right);
    (void)sigaction(SIGUSR1, &before, NULL);
}

static void a_file_that_takes_nothing_is_no_trouble(void **state)
{
    (void)state;
    char buffer[16];
    struct vpmm_text text;
    int fd = open("/dev/full", O_WRONLY);
    assert_true(fd >= 0);
    errno = ERANGE;
    vpmm_text_init(&text, buffer, sizeof buffer, fd);
    for (int i = 0; i < 100; i++)
        vpmm_text_string(&text, "lost");
    vpmm_text_flush(&text);
    assert_int_equal(errno, ERANGE);
    assert_int_equal(text.length, 0);
    assert_string_equal(buffer, "");
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_put_side_by_side),
        cmocka_unit_test(quoted_text_is_ascii_json),
        cmocka_unit_test(quoted_text_is_utf_8_where_it_can_be),
        cmocka_unit_test(without_a_file_the_rest_is_cut_off),
        cmocka_unit_test(a_slow_pipe_and_signals_lose_nothing),
        cmocka_unit_test(a_file_that_takes_nothing_is_no_trouble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
