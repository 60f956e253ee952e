/* SPDX-License-Identifier: MIT */
/* The thread that gives idle memory back, over a router that does nothing but say what it was
 * asked. */
#define _POSIX_C_SOURCE 200809L
#include "preload/entry.h"
#include "preload/idle.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#define MS_NS 1000000

static struct {
    atomic_uint n_looks, n_finished, n_entered;
    atomic_bool blocks;
} fake;
static struct vpmm_router *const router = (struct vpmm_router *)&fake;

struct vpmm_router *vpmm_enter(void)
{
    (void)atomic_fetch_add(&fake.n_entered, 1);
    return router;
}

void vpmm_leave(void)
{
    (void)atomic_fetch_sub(&fake.n_entered, 1);
}

static void pause_ms(long ms)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = ms * MS_NS}, NULL);
}

void vpmm_router_give_back(struct vpmm_router *asked, struct vpmm_quiet *quiet)
{
    assert_ptr_equal(asked, router);
    assert_int_equal(atomic_load(&fake.n_entered), 1);
    assert_true(quiet->looks_min > 0);
    (void)atomic_fetch_add(&fake.n_looks, 1);
    while (atomic_load(&fake.blocks))
        pause_ms(1);
    (void)atomic_fetch_add(&fake.n_finished, 1);
}

static _Thread_local bool is_ending;
static unsigned n_pauses;

/* In place of the system's. Whoever waits for what is under way lets it go on, and has the patience
 * of minutes for it: the end, which counts its pauses, waits as long as the machine takes. */
int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    struct timespec pause = *wanted;
    if (is_ending) {
        n_pauses++;
        atomic_store(&fake.blocks, false);
        pause.tv_nsec *= 200;
    }
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, left);
    return errno ? -1 : 0;
}

static void end_patiently(struct vpmm_idler *idler)
{
    is_ending = true;
    vpmm_idler_end(idler);
    is_ending = false;
}

static void wait_for_looks(unsigned n)
{
    while (atomic_load(&fake.n_looks) < n)
        pause_ms(1);
}

static int set_up(void **state)
{
    (void)state;
    atomic_store(&fake.n_looks, 0);
    atomic_store(&fake.n_finished, 0);
    atomic_store(&fake.blocks, false);
    return 0;
}

static void it_looks_until_it_is_ended(void **state)
{
    static struct vpmm_idler idler;
    (void)state;
    assert_true(vpmm_idler_start(&idler, router, 1));
    wait_for_looks(3);
    end_patiently(&idler);
    unsigned n = atomic_load(&fake.n_looks);
    assert_int_equal(atomic_load(&fake.n_finished), n);
    pause_ms(20);
    assert_int_equal(atomic_load(&fake.n_looks), n);
    vpmm_idler_end(&idler);
}

static void the_end_comes_after_what_is_under_way(void **state)
{
    static struct vpmm_idler idler;
    (void)state;
    atomic_store(&fake.blocks, true);
    assert_true(vpmm_idler_start(&idler, router, 1));
    wait_for_looks(1);
    n_pauses = 0;
    end_patiently(&idler);
    assert_true(n_pauses > 0);
    unsigned n = atomic_load(&fake.n_looks);
    assert_int_equal(atomic_load(&fake.n_finished), n);
    pause_ms(20);
    assert_int_equal(atomic_load(&fake.n_looks), n);
}

static void the_end_does_not_wait_for_ever(void **state)
{
    static struct vpmm_idler idler;
    (void)state;
    atomic_store(&fake.blocks, true);
    assert_true(vpmm_idler_start(&idler, router, 1));
    wait_for_looks(1);
    vpmm_idler_end(&idler);
    assert_int_equal(atomic_load(&fake.n_finished), 0);
    vpmm_idler_forget(&idler);
    vpmm_idler_end(&idler);
    atomic_store(&fake.blocks, false);
    while (!atomic_load(&fake.n_finished))
        pause_ms(1);
    pause_ms(20);
    assert_int_equal(atomic_load(&fake.n_looks), 1);
}

static void without_a_thread_there_is_nothing_to_end(void **state)
{
    static struct vpmm_idler idler;
    (void)state;
    vpmm_idler_end(&idler);
    vpmm_idler_forget(&idler);
    vpmm_idler_end(&idler);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_looks_until_it_is_ended),
        TEST(the_end_comes_after_what_is_under_way),
        TEST(the_end_does_not_wait_for_ever),
        TEST(without_a_thread_there_is_nothing_to_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
