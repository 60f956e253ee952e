/* SPDX-License-Identifier: MIT */
/* What the program does not notice of a write that fails, and what it still notices of its own. */
#define _GNU_SOURCE
#include "base/write.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static volatile sig_atomic_t n_signals;

static void count(int number)
{
    (void)number;
    n_signals++;
}

static int broken_pipe(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    (void)close(ends[0]);
    return ends[1];
}

static int full_pipe(int *reader_out)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    while (write(ends[1], "x", 1) == 1)
        ;
    assert_int_equal(fcntl(ends[1], F_SETFL, 0), 0);
    *reader_out = ends[0];
    return ends[1];
}

static bool is_blocked(int number)
{
    sigset_t set;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &set), 0);
    return sigismember(&set, number) == 1;
}

static bool is_waiting(int number)
{
    sigset_t set;
    assert_int_equal(sigpending(&set), 0);
    return sigismember(&set, number) == 1;
}

static void no_signal_comes_of_a_broken_pipe(void **state)
{
    (void)state;
    int fd = broken_pipe();
    n_signals = 0;
    errno = ERANGE;
    assert_false(vpmm_write(fd, "lost", 4, 0));
    assert_int_equal(errno, ERANGE);
    assert_false(is_blocked(SIGPIPE) || is_waiting(SIGPIPE));
    assert_int_equal(n_signals, 0);
    (void)close(fd);
}

static void nor_of_a_socket_or_a_file_at_its_limit(void **state)
{
    (void)state;
    int ends[2], fd = memfd_create("file", MFD_CLOEXEC);
    struct rlimit before, limit;
    n_signals = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    (void)close(ends[0]);
    assert_false(vpmm_write(ends[1], "lost", 4, 0));
    (void)close(ends[1]);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = (struct rlimit){2, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_false(vpmm_write(fd, "lost", 4, 0));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_false(is_blocked(SIGXFSZ) || is_waiting(SIGXFSZ));
    assert_int_equal(n_signals, 0);
    (void)close(fd);
}

static void a_handler_of_the_program_hears_only_of_its_own(void **state)
{
    (void)state;
    int fd = broken_pipe();
    n_signals = 0;
    assert_false(vpmm_write(fd, "lost", 4, 0));
    assert_int_equal(n_signals, 0);
    assert_int_equal(write(fd, "own", 3), -1);
    assert_int_equal(n_signals, 1);
    (void)close(fd);
}

/* Blocked by the program, its own waits for it still. */
static void what_waited_before_waits_afterwards(void **state)
{
    (void)state;
    int fd = broken_pipe();
    sigset_t pipe_only, before;
    (void)sigemptyset(&pipe_only);
    (void)sigaddset(&pipe_only, SIGPIPE);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &pipe_only, &before), 0);
    assert_int_equal(write(fd, "own", 3), -1);
    assert_false(vpmm_write(fd, "lost", 4, 0));
    assert_true(is_blocked(SIGPIPE) && is_waiting(SIGPIPE));
    n_signals = 0;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    assert_int_equal(n_signals, 1);
    (void)close(fd);
}

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void a_reader_that_does_not_read_is_waited_for_as_long_as_asked(void **state)
{
    (void)state;
    int reader, fd = full_pipe(&reader);
    uint64_t begin = now_ms();
    assert_false(vpmm_write(fd, "lost", 4, 0));
    assert_false(vpmm_write(fd, "lost", 4, 50));
    assert_true(now_ms() - begin >= 50);
    (void)close(reader);
    (void)close(fd);
}

/* A write is where a cancelled thread ends, but not one of ours. */
static void *write_cancelled(void *argument)
{
    (void)pthread_cancel(pthread_self());
    (void)vpmm_write(*(int *)argument, "kept", 4, 0);
    *(int *)argument = -1;
    pthread_testcancel();
    return NULL;
}

static void a_cancelled_thread_ends_afterwards(void **state)
{
    (void)state;
    int ends[2];
    char text[8] = "";
    void *result;
    pthread_t thread;
    assert_int_equal(pipe(ends), 0);
    int fd = ends[1];
    assert_int_equal(pthread_create(&thread, NULL, write_cancelled, &fd), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_int_equal(fd, -1);
    assert_int_equal(read(ends[0], text, sizeof text), 4);
    assert_string_equal(text, "kept");
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void nothing_is_written_to_no_descriptor(void **state)
{
    (void)state;
    assert_false(vpmm_write(-1, "lost", 4, 0));
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_false(vpmm_write(fd, "lost", 4, 0));
    (void)close(fd);
}

static int n_lines_taken(int fd)
{
    static char line[1023];
    int n = 0;
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\n';
    while (n < 10000 && vpmm_write(fd, line, sizeof line, 20))
        n++;
    return n;
}

/* It says that there is room long after it has too little for a whole line. A master cannot be
 * opened again. */
static void a_terminal_that_nobody_reads_is_given_up(void **state)
{
    (void)state;
    for (int is_master = 0; is_master < 2; is_master++) {
        int master = posix_openpt(O_RDWR | O_NOCTTY);
        assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
        int fd = open(ptsname(master), O_RDWR | O_NOCTTY);
        assert_true(fd >= 0);
        assert_in_range(n_lines_taken(is_master ? master : fd), 1, 9999);
        (void)close(fd);
        (void)close(master);
    }
}

/* The bytes arrive through a descriptor that was opened again. */
static void a_terminal_gets_what_is_written(void **state)
{
    (void)state;
    char text[8] = "";
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    int fd = open(ptsname(master), O_WRONLY | O_NOCTTY);
    assert_true(vpmm_write(fd, "told", 4, 1000));
    assert_int_equal(read(master, text, sizeof text), 4);
    assert_string_equal(text, "told");
    (void)close(fd);
    (void)close(master);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_signal_comes_of_a_broken_pipe),
        cmocka_unit_test(nor_of_a_socket_or_a_file_at_its_limit),
        cmocka_unit_test(a_handler_of_the_program_hears_only_of_its_own),
        cmocka_unit_test(what_waited_before_waits_afterwards),
        cmocka_unit_test(a_reader_that_does_not_read_is_waited_for_as_long_as_asked),
        cmocka_unit_test(a_cancelled_thread_ends_afterwards),
        cmocka_unit_test(nothing_is_written_to_no_descriptor),
        cmocka_unit_test(a_terminal_that_nobody_reads_is_given_up),
        cmocka_unit_test(a_terminal_gets_what_is_written),
    };
    /* One that gets through is counted, where it would end a program without a handler. */
    (void)signal(SIGPIPE, count);
    (void)signal(SIGXFSZ, count);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
