/* SPDX-License-Identifier: MIT */
/* Metadata that others may look at: forked children, and everything that may be refused. */
#define _GNU_SOURCE
#include "base/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define BYTES (64 * MIB)

static unsigned count_descriptors(void)
{
    unsigned n = 0;
    for (int fd = 0; fd < 2048; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* ---- children ---- */

static int in_child(bool (*body)(void *self), void *self)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(body(self) ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

struct scene {
    struct vpmm_arena arena;
    unsigned char *piece;
    bool has_lost_descriptor;
};

static bool abandon(void *self)
{
    struct scene *scene = self;
    int fd = scene->arena.fd;
    if (scene->has_lost_descriptor)
        (void)close(fd);
    vpmm_arena_abandon(&scene->arena);
    if (scene->has_lost_descriptor)
        return msync(scene->arena.header, 1, MS_ASYNC) == -1;
    bool was_there = scene->piece[0] == 7;
    scene->piece[0] = 8;
    return was_there && fcntl(fd, F_GETFD) < 0;
}

static void a_child_changes_nothing(void **state)
{
    (void)state;
    struct scene scene = {.has_lost_descriptor = false};
    assert_true(vpmm_arena_create(&scene.arena, BYTES, "1.2.3", 4711));
    scene.piece = scene.arena.memory.map(scene.arena.memory.self, 100);
    scene.piece[0] = 7;
    assert_int_equal(in_child(abandon, &scene), 0);
    assert_int_equal(scene.piece[0], 7);
    scene.has_lost_descriptor = true;
    assert_int_equal(in_child(abandon, &scene), 0);
    assert_int_equal(scene.piece[0], 7);
    vpmm_arena_destroy(&scene.arena);
}

/* ---- where it cannot be had ---- */

struct refusal {
    unsigned resource;
    rlim_t most; /* 0: memfd_create is refused */
};

static bool refuse_calls(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static bool is_refused(void *self)
{
    const struct refusal *refusal = self;
    const struct rlimit limit = {refusal->most, refusal->most};
    struct vpmm_arena arena;
    unsigned before = count_descriptors();
    if (refusal->most == 0 ? !refuse_calls() : setrlimit(refusal->resource, &limit) != 0)
        return false;
    return !vpmm_arena_create(&arena, BYTES, "1.2.3", 4711) && count_descriptors() == before;
}

static void limits_and_refusals_leave_nothing(void **state)
{
    (void)state;
    static const struct refusal refusals[] = {
        {0, 0},
        {RLIMIT_FSIZE, BYTES - 1},
        {RLIMIT_AS, (rlim_t)1 << 50},
        {RLIMIT_NOFILE, 3},
    };
    for (unsigned i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct refusal refusal = refusals[i];
        assert_int_equal(in_child(is_refused, &refusal), 0);
    }
    struct vpmm_arena arena;
    assert_false(vpmm_arena_create(&arena, (uint64_t)1 << 62, "1.2.3", 4711));
}

static bool is_made(void *self)
{
    const struct refusal *refusal = self;
    const struct rlimit limit = {refusal->most, refusal->most};
    struct vpmm_arena arena;
    if (setrlimit(refusal->resource, &limit) != 0 ||
        !vpmm_arena_create(&arena, BYTES, "1.2.3", 4711))
        return false;
    vpmm_arena_destroy(&arena);
    return true;
}

static void limits_that_are_wide_enough_do_not_matter(void **state)
{
    (void)state;
    struct refusal size = {RLIMIT_FSIZE, BYTES}, descriptors = {RLIMIT_NOFILE, 64};
    assert_int_equal(in_child(is_made, &size), 0);
    assert_int_equal(in_child(is_made, &descriptors), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_changes_nothing),
        cmocka_unit_test(limits_and_refusals_leave_nothing),
        cmocka_unit_test(limits_that_are_wide_enough_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
