/* SPDX-License-Identifier: MIT */
/* Appeals between real processes: children listen and answer as they are told. What other processes
 * of this machine say is kept apart by a network of the test's own, where that may be had, and by
 * users that do not exist. */
#define _GNU_SOURCE
#include "ipc/appeal.h"
#include "ipc/socket.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define LONG_MS 60000
#define SHORT_MS 50

static const unsigned char uuid[VPMM_UUID_BYTES] = "one device only";

struct listener {
    pid_t process;
    int ready;
};

/* A child that answers one appeal with so many bytes; 0: it hears it, and says nothing. */
static struct listener listen_and_answer(uint64_t bytes)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct listener listener = {.process = fork()};
    if (listener.process == 0) {
        struct vpmm_appeals appeals;
        struct vpmm_appeal appeal;
        bool is_good = vpmm_appeals_open(&appeals, geteuid()) && write(ends[1], "r", 1) == 1 &&
                       vpmm_appeals_wait(&appeals, LONG_MS, &appeal) && appeal.bytes == 1000 &&
                       memcmp(appeal.uuid, uuid, sizeof uuid) == 0;
        if (is_good && bytes)
            vpmm_appeals_answer(&appeals, &appeal, bytes);
        _exit(is_good ? 0 : 1);
    }
    char word;
    assert_int_equal(read(ends[0], &word, 1), 1);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return listener;
}

static void expect_end(const struct listener *listener)
{
    int status = -1;
    assert_int_equal(waitpid(listener->process, &status, 0), listener->process);
    assert_int_equal(status, 0);
}

static void answers_are_added(void **state)
{
    (void)state;
    struct listener first = listen_and_answer(300), second = listen_and_answer(40);
    uint64_t begin_ms = vpmm_now_ms();
    assert_int_equal(vpmm_appeals_ask(geteuid(), uuid, 1000, LONG_MS), 340);
    assert_true(vpmm_now_ms() - begin_ms < LONG_MS);
    expect_end(&first);
    expect_end(&second);
}

static void nobody_is_waited_for_where_nobody_listens(void **state)
{
    (void)state;
    uint64_t begin_ms = vpmm_now_ms();
    assert_int_equal(vpmm_appeals_ask(4000000001u, uuid, 1000, LONG_MS), 0);
    assert_true(vpmm_now_ms() - begin_ms < LONG_MS);
}

static void who_does_not_answer_is_not_waited_for_long(void **state)
{
    (void)state;
    struct listener silent = listen_and_answer(0);
    assert_int_equal(vpmm_appeals_ask(geteuid(), uuid, 1000, SHORT_MS), 0);
    expect_end(&silent);
}

/* What a child does, which is another process. */
static void let_child(void (*act)(void *argument), void *argument)
{
    struct listener child = {.process = fork()};
    if (child.process == 0) {
        act(argument);
        _exit(0);
    }
    expect_end(&child);
}

static void ask_as_stranger(void *nothing)
{
    (void)nothing;
    if (vpmm_appeals_ask(4000000002u, uuid, 1000, SHORT_MS) != 0)
        _exit(1);
}

/* Who is of another user than the name says is not heard. */
static void strangers_are_not_heard(void **state)
{
    (void)state;
    struct vpmm_appeals appeals;
    struct vpmm_appeal appeal;
    assert_true(vpmm_appeals_open(&appeals, 4000000002u));
    let_child(ask_as_stranger, NULL);
    uint64_t begin_ms = vpmm_now_ms();
    assert_false(vpmm_appeals_wait(&appeals, SHORT_MS, &appeal));
    assert_true(vpmm_now_ms() - begin_ms >= SHORT_MS);
    vpmm_appeals_close(&appeals);
}

static void the_user_that_stands_for_unknown_ones_is_no_user(void **state)
{
    (void)state;
    struct vpmm_appeals appeals;
    assert_false(vpmm_appeals_open(&appeals, 65534));
    assert_int_equal(vpmm_appeals_ask(65534, uuid, 1000, LONG_MS), 0);
}

/* A process that asks hears of its own appeal, and tells itself that there is nothing. */
static void ones_own_appeal_is_answered_with_nothing(void **state)
{
    (void)state;
    struct vpmm_appeals appeals;
    struct vpmm_appeal appeal;
    assert_true(vpmm_appeals_open(&appeals, geteuid()));
    assert_int_equal(vpmm_appeals_ask(geteuid(), uuid, 1000, SHORT_MS), 0);
    assert_false(vpmm_appeals_wait(&appeals, SHORT_MS, &appeal));
    vpmm_appeals_close(&appeals);
    assert_false(appeals.is_open);
}

/* Messages of every size, of which one has the right one, and one with a descriptor. */
static void talk_nonsense(void *appeals)
{
    static const size_t sizes[] = {0, 1, 40, 41, 4000};
    static const char zeros[4000];
    struct sockaddr_un address;
    socklen_t n = sizeof address;
    int first = STDOUT_FILENO;
    int sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const struct vpmm_appeals *to = appeals;
    if (getsockname(to->socket, (struct sockaddr *)&address, &n) != 0 ||
        connect(sender, (struct sockaddr *)&address, n) != 0)
        _exit(1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (send(sender, zeros, sizes[i], 0) != (ssize_t)sizes[i])
            _exit(1);
    if (!vpmm_ipc_send(sender, zeros, 40, &first, 1))
        _exit(1);
}

static void nonsense_is_thrown_away(void **state)
{
    (void)state;
    struct vpmm_appeals appeals;
    struct vpmm_appeal appeal;
    assert_true(vpmm_appeals_open(&appeals, geteuid()));
    int lowest = dup(STDOUT_FILENO);
    let_child(talk_nonsense, &appeals);
    assert_false(vpmm_appeals_wait(&appeals, SHORT_MS, &appeal));
    assert_int_equal(close(lowest), 0);
    assert_int_equal(dup(STDOUT_FILENO), lowest);
    (void)close(lowest);
    vpmm_appeals_close(&appeals);
}

/* A program may close what it did not open, and then have the number for something else. */
static void a_descriptor_that_is_somebody_elses_is_left_alone(void **state)
{
    (void)state;
    struct vpmm_appeals appeals;
    struct vpmm_appeal appeal;
    int ends[2];
    char word = 0;
    assert_true(vpmm_appeals_open(&appeals, geteuid()));
    assert_true(appeals.socket >= 512);
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends), 0);
    assert_int_equal(dup2(ends[0], appeals.socket), appeals.socket);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_false(vpmm_appeals_wait(&appeals, SHORT_MS, &appeal));
    assert_false(appeals.is_open);
    vpmm_appeals_close(&appeals);
    assert_int_equal(recv(appeals.socket, &word, 1, MSG_DONTWAIT), 1);
    assert_int_equal(word, 'x');
    (void)close(appeals.socket);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* Names of sockets are known inside one network alone. */
static void leave_network(void)
{
    char map[32];
    unsigned user_id = geteuid();
    if (unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
        return;
    int file = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
    int n = snprintf(map, sizeof map, "%u %u 1", user_id, user_id);
    bool is_mapped = file >= 0 && write(file, map, (size_t)n) == n;
    if (file >= 0)
        (void)close(file);
    if (!is_mapped)
        exit(1);
}

int main(void)
{
    leave_network();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_added),
        cmocka_unit_test(nobody_is_waited_for_where_nobody_listens),
        cmocka_unit_test(who_does_not_answer_is_not_waited_for_long),
        cmocka_unit_test(strangers_are_not_heard),
        cmocka_unit_test(the_user_that_stands_for_unknown_ones_is_no_user),
        cmocka_unit_test(ones_own_appeal_is_answered_with_nothing),
        cmocka_unit_test(nonsense_is_thrown_away),
        cmocka_unit_test(a_descriptor_that_is_somebody_elses_is_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
