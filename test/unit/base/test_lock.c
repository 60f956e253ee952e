/* SPDX-License-Identifier: MIT */
/* Ranks of locks, where assertions are compiled in, and the texts of statuses. */
#include "base/lock.h"
#include "base/status.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static struct vpmm_lock route, heap, other_heap;

static int set_up(void **state)
{
    (void)state;
    vpmm_lock_init(&route, VPMM_RANK_ROUTE);
    vpmm_lock_init(&heap, VPMM_RANK_HEAP);
    vpmm_lock_init(&other_heap, VPMM_RANK_HEAP);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    vpmm_lock_finish(&other_heap);
    vpmm_lock_finish(&heap);
    vpmm_lock_finish(&route);
    return 0;
}

/* How a child that takes the two locks in this order ends: 0, or the signal that ends it. */
static int signal_after_taking(struct vpmm_lock *first, struct vpmm_lock *second)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)close(STDERR_FILENO);
        vpmm_lock_take(first);
        vpmm_lock_take(second);
        vpmm_lock_give(second);
        vpmm_lock_give(first);
        _exit(vpmm_lock_none_held() ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void ascending_ranks_are_fine(void **state)
{
    (void)state;
    assert_int_equal(signal_after_taking(&route, &heap), 0);
}

static void descending_and_equal_ranks_stop_a_debug_build(void **state)
{
    (void)state;
#ifdef NDEBUG
    skip();
#endif
    assert_int_equal(signal_after_taking(&heap, &route), SIGABRT);
    assert_int_equal(signal_after_taking(&heap, &other_heap), SIGABRT);
}

static void held_locks_are_known(void **state)
{
    (void)state;
#ifdef NDEBUG
    skip();
#endif
    assert_true(vpmm_lock_none_held());
    vpmm_lock_take(&route);
    assert_false(vpmm_lock_none_held());
    vpmm_lock_take(&heap);
    vpmm_lock_give(&route);
    assert_false(vpmm_lock_none_held());
    vpmm_lock_give(&heap);
    assert_true(vpmm_lock_none_held());
}

static void a_lock_keeps_others_out(void **state)
{
    (void)state;
    vpmm_lock_take(&route);
    assert_int_not_equal(pthread_mutex_trylock(&route.mutex), 0);
    vpmm_lock_give(&route);
    assert_int_equal(pthread_mutex_trylock(&route.mutex), 0);
    assert_int_equal(pthread_mutex_unlock(&route.mutex), 0);
}

static void every_status_has_a_text_of_its_own(void **state)
{
    (void)state;
    for (int i = 0; i < VPMM_STATUS_COUNT; i++) {
        const char *text = vpmm_status_text((enum vpmm_status)i);
        assert_true(strlen(text) > 0);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(text, vpmm_status_text((enum vpmm_status)j));
    }
    assert_string_equal(vpmm_status_text(VPMM_OK), "success");
    assert_string_equal(vpmm_status_text((enum vpmm_status)1000), "unknown status");
    assert_string_equal(vpmm_status_text((enum vpmm_status) - 1), "unknown status");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ascending_ranks_are_fine),
        cmocka_unit_test(descending_and_equal_ranks_stop_a_debug_build),
        cmocka_unit_test(held_locks_are_known),
        cmocka_unit_test(a_lock_keeps_others_out),
        cmocka_unit_test(every_status_has_a_text_of_its_own),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
