/* SPDX-License-Identifier: MIT */
/* User namespaces: one in which the user has no number sees everybody under the same number. */
#define _GNU_SOURCE
#include "scene.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SKIPPED 77

static bool write_map(unsigned user_id)
{
    char map[32];
    int n = snprintf(map, sizeof map, "%u %u 1\n", user_id, user_id);
    int file = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
    bool is_written = file >= 0 && write(file, map, (size_t)n) == n;
    if (file >= 0)
        (void)close(file);
    return is_written;
}

struct answers {
    enum vpmm_status exported, opened;
};

/* What a process of this user gets in a user namespace of its own. */
static struct answers ask_inside(bool is_mapped)
{
    struct answers answers = {VPMM_STATUS_COUNT, VPMM_STATUS_COUNT};
    int pipes[2];
    int status;
    assert_int_equal(pipe(pipes), 0);
    unsigned user_id = geteuid();
    pid_t child = fork();
    if (child == 0) {
        struct vpmm_ipc *inside = NULL;
        unsigned char other[VPMM_IPC_HANDLE_BYTES];
        uint64_t address;
        if (unshare(CLONE_NEWUSER) != 0 || (is_mapped && !write_map(user_id)) ||
            vpmm_ipc_create(&driver, &vpmm_memory_system, &lender, geteuid, &inside))
            _exit(SKIPPED);
        answers.exported = vpmm_ipc_export(inside, &block, other);
        answers.opened = vpmm_ipc_open(inside, handle, &opener, &address);
        _exit(write(pipes[1], &answers, sizeof answers) == sizeof answers ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read(pipes[0], &answers, sizeof answers), sizeof answers);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
    return answers;
}

static void who_has_no_number_shares_nothing(void **state)
{
    (void)state;
    struct answers answers = ask_inside(false);
    assert_int_equal(answers.exported, VPMM_NOT_SUPPORTED);
    assert_int_equal(answers.opened, VPMM_NOT_FOUND);
    assert_int_equal(vpmm_atomic_load(&lent.n_leases_ever), 0);
}

static void who_has_a_number_shares(void **state)
{
    (void)state;
    struct answers answers = ask_inside(true);
    assert_int_equal(answers.exported, VPMM_OK);
    assert_int_equal(answers.opened, VPMM_OK);
    assert_int_equal(vpmm_atomic_load(&lent.n_leases_ever), 1);
    end_when(&lent.n_leases, 0);
}

/* The number of everybody else names nobody; others name one user each. */
static void the_overflow_number_is_told_from_others(void **state)
{
    (void)state;
    assert_true(vpmm_ipc_user_is_one(1000));
    assert_true(vpmm_ipc_user_is_one(0));
}

static bool can_unshare(void)
{
    int status;
    unsigned user_id = geteuid();
    pid_t child = fork();
    if (child == 0)
        _exit(unshare(CLONE_NEWUSER) == 0 && write_map(user_id) ? 0 : 1);
    return waitpid(child, &status, 0) == child && status == 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_overflow_number_is_told_from_others),
        TEST(who_has_no_number_shares_nothing),
        TEST(who_has_a_number_shares),
    };
    if (!can_unshare())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
