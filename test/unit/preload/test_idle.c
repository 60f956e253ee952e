/* SPDX-License-Identifier: MIT */
/* The thread that gives idle memory back, over a router that does nothing but say what it was
 * asked. */
#define _POSIX_C_SOURCE 200809L
#include "preload/entry.h"
#include "preload/idle.h"

#include <pthread.h>
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
    vpmm_idler_end(&idler);
    unsigned n = atomic_load(&fake.n_looks);
    assert_int_equal(atomic_load(&fake.n_finished), n);
    pause_ms(20);
    assert_int_equal(atomic_load(&fake.n_looks), n);
    vpmm_idler_end(&idler);
}

static void *unblock_later(void *unused)
{
    (void)unused;
    pause_ms(20);
    atomic_store(&fake.blocks, false);
    return NULL;
}

static void the_end_comes_after_what_is_under_way(void **state)
{
    static struct vpmm_idler idler;
    pthread_t thread;
    (void)state;
    atomic_store(&fake.blocks, true);
    assert_true(vpmm_idler_start(&idler, router, 1));
    wait_for_looks(1);
    assert_int_equal(pthread_create(&thread, NULL, unblock_later, NULL), 0);
    vpmm_idler_end(&idler);
    unsigned n = atomic_load(&fake.n_looks);
    assert_int_equal(atomic_load(&fake.n_finished), n);
    (void)pthread_join(thread, NULL);
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
