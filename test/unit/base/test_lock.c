/* SPDX-License-Identifier: MIT */
/* Locks, latches and their ranks, where assertions are compiled in, and the texts of statuses. */
#define _GNU_SOURCE
#include "base/lock.h"
#include "base/status.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
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

/* ---- latches ---- */

static void a_latch_keeps_others_out(void **state)
{
    (void)state;
    struct vpmm_latch latch = {0};
    vpmm_latch_take(&latch, VPMM_RANK_LANE);
    assert_false(vpmm_latch_try(&latch, VPMM_RANK_LANE));
    vpmm_latch_give(&latch, VPMM_RANK_LANE);
    assert_true(vpmm_latch_try(&latch, VPMM_RANK_LANE));
    assert_false(vpmm_latch_try(&latch, VPMM_RANK_LANE));
    vpmm_latch_give(&latch, VPMM_RANK_LANE);
}

/* Of one rank, in any order of giving. */
static void several_held_latches_are_known(void **state)
{
    (void)state;
#ifdef NDEBUG
    skip();
#endif
    struct vpmm_latch a = {0};
    struct vpmm_latch b = {0};
    vpmm_latch_take(&a, VPMM_RANK_LANE);
    vpmm_latch_take(&b, VPMM_RANK_LANE);
    vpmm_latch_give(&a, VPMM_RANK_LANE);
    assert_false(vpmm_lock_none_held());
    vpmm_latch_give(&b, VPMM_RANK_LANE);
    assert_true(vpmm_lock_none_held());
    vpmm_lock_take(&heap);
    assert_true(vpmm_latch_try(&a, VPMM_RANK_LANE));
    vpmm_latch_give(&a, VPMM_RANK_LANE);
    assert_false(vpmm_lock_none_held());
    vpmm_lock_give(&heap);
    assert_true(vpmm_lock_none_held());
}

/* How a child ends that holds a latch or a lock when it takes the other. */
static int signal_beside_a_latch(bool is_latch_first)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct vpmm_latch latch = {0};
        (void)signal(SIGABRT, SIG_DFL);
        (void)close(STDERR_FILENO);
        if (!is_latch_first)
            vpmm_lock_take(&heap);
        vpmm_latch_take(&latch, VPMM_RANK_LANE);
        if (is_latch_first)
            vpmm_lock_take(&heap);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void a_latch_is_taken_after_the_lock_of_its_heap(void **state)
{
    (void)state;
#ifdef NDEBUG
    skip();
#endif
    assert_int_equal(signal_beside_a_latch(false), 0);
    assert_int_equal(signal_beside_a_latch(true), SIGABRT);
}

#define ROUNDS 20000

static struct vpmm_latch shared_latch;
static uint64_t guarded;

static void *count_up(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        vpmm_latch_take(&shared_latch, VPMM_RANK_LANE);
        guarded++;
        if (i % 1000 == 0)
            (void)sched_yield();
        vpmm_latch_give(&shared_latch, VPMM_RANK_LANE);
    }
    return NULL;
}

static void threads_wait_for_a_latch(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(guarded, 4 * ROUNDS);
}

/* ---- threads that are cancelled ---- */

static struct vpmm_condition changed;
static struct vpmm_latch latch_held;
static vpmm_atomic32 is_waiting, may_go, n_naps;

/* Only this program's library naps. As the real one, it is where a cancelled thread ends. */
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)time;
    (void)left;
    vpmm_atomic_add(&n_naps, 1);
    pthread_testcancel();
    (void)sched_yield();
    return 0;
}

static void *wait_for_change(void *type)
{
    int before;
    (void)pthread_setcanceltype(*(const int *)type, &before);
    vpmm_lock_take(&heap);
    vpmm_atomic_store(&is_waiting, 1);
    while (!vpmm_atomic_load(&may_go))
        vpmm_condition_wait(&changed, &heap);
    vpmm_lock_give(&heap);
    pthread_testcancel();
    return NULL;
}

static void await(vpmm_atomic32 *flag)
{
    while (!vpmm_atomic_load(flag))
        (void)sched_yield();
}

static void expect_free(struct vpmm_lock *lock)
{
    assert_true(vpmm_lock_try(lock));
    vpmm_lock_give(lock);
}

static void a_thread_that_is_cancelled_in_a_wait_gives_the_lock_first(void **state)
{
    (void)state;
    static int types[] = {PTHREAD_CANCEL_DEFERRED, PTHREAD_CANCEL_ASYNCHRONOUS};
    vpmm_condition_init(&changed);
    for (size_t i = 0; i < 2; i++) {
        pthread_t thread;
        void *result;
        vpmm_atomic_store(&is_waiting, 0);
        vpmm_atomic_store(&may_go, 0);
        assert_int_equal(pthread_create(&thread, NULL, wait_for_change, &types[i]), 0);
        await(&is_waiting);
        /* It waits, or the lock could not be had. */
        vpmm_lock_take(&heap);
        assert_int_equal(pthread_cancel(thread), 0);
        vpmm_condition_broadcast(&changed);
        vpmm_lock_give(&heap);
        bool has_ended = false;
        while (!vpmm_lock_try(&heap)) {
            assert_false(has_ended);
            has_ended = pthread_tryjoin_np(thread, &result) == 0;
        }
        assert_false(has_ended);
        vpmm_atomic_store(&may_go, 1);
        vpmm_condition_broadcast(&changed);
        vpmm_lock_give(&heap);
        assert_int_equal(pthread_join(thread, &result), 0);
        assert_ptr_equal(result, PTHREAD_CANCELED);
        expect_free(&heap);
    }
    vpmm_condition_finish(&changed);
}

static void *wait_for_latch_in_lock(void *none)
{
    vpmm_lock_take(&heap);
    vpmm_atomic_store(&is_waiting, 1);
    vpmm_latch_take(&latch_held, VPMM_RANK_LANE);
    vpmm_latch_give(&latch_held, VPMM_RANK_LANE);
    vpmm_lock_give(&heap);
    pthread_testcancel();
    return none;
}

static void a_thread_that_is_cancelled_at_a_latch_gives_its_locks_first(void **state)
{
    (void)state;
    pthread_t thread;
    void *result;
    vpmm_atomic_store(&is_waiting, 0);
    vpmm_latch_take(&latch_held, VPMM_RANK_LANE);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_latch_in_lock, NULL), 0);
    await(&is_waiting);
    assert_int_equal(pthread_cancel(thread), 0);
    unsigned naps = vpmm_atomic_load(&n_naps);
    bool has_ended = false;
    while (vpmm_atomic_load(&n_naps) == naps && !has_ended)
        has_ended = pthread_tryjoin_np(thread, &result) == 0;
    assert_false(has_ended);
    vpmm_latch_give(&latch_held, VPMM_RANK_LANE);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    expect_free(&heap);
    assert_true(vpmm_latch_try(&latch_held, VPMM_RANK_LANE));
    vpmm_latch_give(&latch_held, VPMM_RANK_LANE);
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
        cmocka_unit_test(a_latch_keeps_others_out),
        cmocka_unit_test(several_held_latches_are_known),
        cmocka_unit_test(a_latch_is_taken_after_the_lock_of_its_heap),
        cmocka_unit_test(threads_wait_for_a_latch),
        cmocka_unit_test(a_thread_that_is_cancelled_in_a_wait_gives_the_lock_first),
        cmocka_unit_test(a_thread_that_is_cancelled_at_a_latch_gives_its_locks_first),
        cmocka_unit_test(every_status_has_a_text_of_its_own),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
