/* SPDX-License-Identifier: MIT */
/* The dump and the statistics as people read them. The JSON forms are read by test_json.py. */
#define _GNU_SOURCE
#include "capture.h"
#include "show.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char expected_dump[] =
    "vpmm device 0: [4][-6][1][*10][z2][?3][...] [!1]\n"
    "vpmm device 3: \n"
    "weights of device 3\n"
    "  weights             42949672960  40 GiB\n"
    "  budget              12884901888  12 GiB\n"
    "  held                11811160064  11 GiB\n"
    "  resident             9663676416  9 GiB\n"
    "  ring                 2147483648  2 GiB\n"
    "  direct               1073741824  1 GiB\n"
    "  copied             322122547200  300 GiB\n"
    "  hits                         70\n"
    "  misses                       30\n"
    "  timed, ns               5000000\n"
    "  stalled, ns               40000\n"
    "  bound, ns               4900000\n"
    "device 0\n"
    "  page size            1073741824  1 GiB\n"
    "  held                18253611008  17 GiB\n"
    "  reserved          8797166764032  8.00 TiB\n"
    "  live                 5368709120  5 GiB\n"
    "  reusable             6442450944  6 GiB\n"
    "  holes             8778913153024  7.98 TiB\n"
    "  zombies              2147483648  2 GiB\n"
    "  busy                 3221225472  3 GiB\n"
    "  quarantined          1073741824  1 GiB\n"
    "  limit               21474836480  20 GiB\n"
    "  extents                      15\n"
    "  mappings                     17\n"
    "  small blocks       pages      blocks   requested bytes        free bytes  full: to 1/4"
    "    to 1/2    to 3/4      more\n"
    "  fine                  11     1000000         512000000           3145728             1"
    "         2         3         5\n"
    "  wide                   7           3          14000000            524288             0"
    "         0         0         7\n"
    "  address             state           pages   requested bytes      stream  fence\n"
    "  0x00007f0000000000  live                4        4294967291           7  complete\n"
    "  0x00007f0100000000  free                6                 0           9  stream 12\n"
    "  0x00007f0280000000  live                1        1073741824           0  context 3\n"
    "  0x00007f02c0000000  hole               10                 0           0  complete\n"
    "  0x00007f0540000000  zombie              2                 0           0  joined "
    "18446744073709551615\n"
    "  0x00007f05c0000000  busy                3                 0           0  complete\n"
    "  0x00007f0680000000  hole             8166                 0           0  complete\n"
    "  0x0000700000000000  quarantined         1                 0           0  parked 1\n"
    "device 3\n"
    "  page size               2097152  2 MiB\n"
    "  held                          0  0 B\n"
    "  reserved                      0  0 B\n"
    "  live                          0  0 B\n"
    "  reusable                      0  0 B\n"
    "  holes                         0  0 B\n"
    "  zombies                       0  0 B\n"
    "  busy                          0  0 B\n"
    "  quarantined                   0  0 B\n"
    "  limit                         0  0 B\n"
    "  extents                       0\n"
    "  mappings                      0\n"
    "  address             state           pages   requested bytes      stream  fence\n";

static void text_shows_notation_metrics_and_every_region(void **state)
{
    (void)state;
    int fd = capture_open();
    vpmm_dump_text(fd, &show_dump);
    assert_string_equal(capture_text(fd), expected_dump);
    (void)close(fd);
}

static void text_without_devices_says_so(void **state)
{
    (void)state;
    int fd = capture_open();
    vpmm_dump_text(fd, &(struct vpmm_dump){0});
    assert_string_equal(capture_text(fd), "vpmm: no device has a pool yet\n");
    (void)close(fd);
}

/* The notation line of regions that are given one letter each: their mark, '+' for live, and '|'
 * for a hole that begins a root. */
static void assert_notation(const char *marks, bool roots_touch, const char *expected)
{
    struct vpmm_dump_row rows[16];
    uint64_t address = FIRST_ROOT, n = strlen(marks);
    for (uint64_t i = 0; i < n; i++) {
        bool is_first = marks[i] == '|';
        if (is_first && !roots_touch)
            address += GIB;
        rows[i] = (struct vpmm_dump_row){
            .mark = marks[i], .state = "", .address = address, .pages = i + 1, .fence_kind = ""};
        rows[i].mark = marks[i] == '+' ? 0 : is_first ? '*' : marks[i];
        address += (i + 1) * GIB;
    }
    const struct show_rows walk = {rows, n};
    const struct vpmm_dump_device device = {
        .device = 1, .page_bytes = GIB, .self = &walk, .next = show_next};
    int fd = capture_open();
    vpmm_dump_text(fd, &(struct vpmm_dump){&device, 1, NULL, 0});
    const char *text = capture_text(fd);
    assert_int_equal(strncmp(text, "vpmm device 1: ", 15), 0);
    assert_int_equal(strcspn(text + 15, "\n"), strlen(expected));
    assert_int_equal(strncmp(text + 15, expected, strlen(expected)), 0);
    (void)close(fd);
}

static void the_last_hole_of_each_root_has_no_number(void **state)
{
    (void)state;
    assert_notation("+*", false, "[1][...]");
    assert_notation("*+*", false, "[*1][2][...]");
    assert_notation("*+", false, "[*1][2]");
    assert_notation("+-|", false, "[1][-2] [...]");
    assert_notation("+*|", false, "[1][...] [...]");
    assert_notation("+*|", true, "[1][...] [...]");
    assert_notation("|+", false, "[*1][2]");
}

static void statistics_leave_out_what_never_happened(void **state)
{
    (void)state;
    int fd = capture_open();
    struct vpmm_stats stats = show_stats;
    stats.program = "program";
    vpmm_stats_table(fd, &stats);
    assert_string_equal(
        capture_text(fd),
        "vpmm[4711] statistics of program\n"
        "device 0\n"
        "  live                                                        5368709120  5 GiB\n"
        "  fit (served where memory lay free)                                  12  70.6%\n"
        "  small blocks       pages      blocks   requested bytes        free bytes  full: to 1/4"
        "    to 1/2    to 3/4      more\n"
        "  fine                  11     1000000         512000000           3145728             1"
        "         2         3         5\n"
        "  wide                   7           3          14000000            524288             0"
        "         0         0         7\n"
        "device 1\n"
        "weights of device 1\n"
        "  live                                                        5368709120  5 GiB\n"
        "  fit (served where memory lay free)                                  12  70.6%\n"
        "cudaMalloc\n"
        "  served by the pool                                                  42\n"
        "  out of memory                                       18446744073709551615\n"
        "cudaMallocAsync\n"
        "  no requests\n");
    (void)close(fd);
}

static int handler_fd;

static void on_signal(int number)
{
    (void)number;
    vpmm_dump_text(handler_fd, &show_dump);
}

/* A handler on the smallest stack that a program may give its signals. */
static void a_small_signal_stack_is_enough(void **state)
{
    (void)state;
    static char memory[8192];
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory}, before;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK}, action_before;
    handler_fd = capture_open();
    assert_int_equal(sigaltstack(&stack, &before), 0);
    assert_int_equal(sigaction(SIGUSR1, &action, &action_before), 0);
    assert_int_equal(raise(SIGUSR1), 0);
    (void)sigaction(SIGUSR1, &action_before, NULL);
    (void)sigaltstack(&before, NULL);
    assert_string_equal(capture_text(handler_fd), expected_dump);
    (void)close(handler_fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_shows_notation_metrics_and_every_region),
        cmocka_unit_test(text_without_devices_says_so),
        cmocka_unit_test(the_last_hole_of_each_root_has_no_number),
        cmocka_unit_test(statistics_leave_out_what_never_happened),
        cmocka_unit_test(a_small_signal_stack_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
