/* SPDX-License-Identifier: MIT */
/* The thread that gives idle memory back, over a router that does nothing but say what it was
 * asked. */
#define _POSIX_C_SOURCE 200809L
#include "preload/entry.h"
#include "preload/idle.h"
#include "preload/neighbour.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MS_NS 1000000

static struct {
    atomic_uint n_looks, n_finished, n_entered;
    atomic_uint n_decay_looks, n_slices, n_slices_left;
    atomic_bool blocks;
} fake;
static const struct vpmm_config idle_alone = {.idle_ms = 1};
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

bool vpmm_router_decay(struct vpmm_router *asked, bool is_look)
{
    assert_ptr_equal(asked, router);
    assert_int_equal(atomic_load(&fake.n_entered), 1);
    (void)atomic_fetch_add(is_look ? &fake.n_decay_looks : &fake.n_slices, 1);
    unsigned left = atomic_load(&fake.n_slices_left);
    if (left > 0)
        atomic_store(&fake.n_slices_left, left - 1);
    return left > 1;
}

/* ---- appeals of others: there are none unless a test has one ---- */

static struct {
    atomic_bool is_there, is_wanted;
    atomic_uint n_given, n_answered, n_closed;
} appeals;

bool vpmm_appeals_open(struct vpmm_appeals *opened, uint32_t user_id)
{
    assert_int_equal(user_id, geteuid());
    opened->is_open = atomic_load(&appeals.is_there);
    return opened->is_open;
}

void vpmm_appeals_close(struct vpmm_appeals *opened)
{
    (void)atomic_fetch_add(&appeals.n_closed, opened->is_open);
    opened->is_open = false;
}

bool vpmm_appeals_wait(struct vpmm_appeals *waited, uint64_t timeout_ms,
                       struct vpmm_appeal *appeal_out)
{
    assert_true(waited->is_open);
    bool is_asked = atomic_exchange(&appeals.is_wanted, false);
    appeal_out->number = 17;
    if (!is_asked)
        pause_ms((long)timeout_ms);
    return is_asked;
}

uint64_t vpmm_neighbour_give(struct vpmm_router *asked, const struct vpmm_appeal *appeal)
{
    assert_ptr_equal(asked, router);
    assert_int_equal(atomic_load(&fake.n_entered), 1);
    assert_int_equal(appeal->number, 17);
    (void)atomic_fetch_add(&appeals.n_given, 1);
    return 5;
}

void vpmm_appeals_answer(const struct vpmm_appeals *answered, const struct vpmm_appeal *appeal,
                         uint64_t bytes)
{
    assert_true(answered->is_open);
    assert_int_equal(appeal->number, 17);
    assert_int_equal(bytes, 5);
    (void)atomic_fetch_add(&appeals.n_answered, 1);
}

static _Thread_local bool is_main;
static _Thread_local bool is_ending;
static unsigned n_pauses;

/* A thread's pauses in milliseconds, and what it has done before each. */
#define PAUSES_MAX 64
struct pauses {
    unsigned n, ms[PAUSES_MAX], looks[PAUSES_MAX], decay_looks[PAUSES_MAX], slices[PAUSES_MAX];
    atomic_bool is_full;
};
static _Atomic(struct pauses *) watching; /* NULL: nobody asks */

static void see_pause(struct pauses *seen, const struct timespec *pause)
{
    if (seen->n == PAUSES_MAX) {
        atomic_store(&seen->is_full, true);
        return;
    }
    seen->ms[seen->n] = (unsigned)(pause->tv_sec * 1000 + pause->tv_nsec / MS_NS);
    seen->looks[seen->n] = atomic_load(&fake.n_looks);
    seen->decay_looks[seen->n] = atomic_load(&fake.n_decay_looks);
    seen->slices[seen->n++] = atomic_load(&fake.n_slices);
}

/* In place of the system's. Whoever waits for what is under way lets it go on, and has the patience
 * of minutes for it: the end, which counts its pauses, waits as long as the machine takes. */
int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    struct timespec pause = *wanted;
    struct pauses *seen = is_main ? NULL : atomic_load(&watching);
    if (seen) {
        see_pause(seen, wanted);
        pause = (struct timespec){.tv_nsec = 1000};
    }
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
    atomic_store(&fake.n_decay_looks, 0);
    atomic_store(&fake.n_slices, 0);
    atomic_store(&fake.n_slices_left, 0);
    atomic_store(&fake.blocks, false);
    is_main = true;
    return 0;
}

static void it_looks_until_it_is_ended(void **state)
{
    static struct vpmm_idler idler;
    (void)state;
    assert_true(vpmm_idler_start(&idler, router, &idle_alone));
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
    assert_true(vpmm_idler_start(&idler, router, &idle_alone));
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
    assert_true(vpmm_idler_start(&idler, router, &idle_alone));
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

/* The pauses of a new thread from its start, once there are enough of them. */
static void watch_pauses(struct vpmm_idler *idler, const struct vpmm_config *config,
                         struct pauses *seen)
{
    atomic_store(&watching, seen);
    assert_true(vpmm_idler_start(idler, router, config));
    while (!atomic_load(&seen->is_full))
        pause_ms(1);
    end_patiently(idler);
    atomic_store(&watching, NULL);
}

static void a_window_has_eight_slots_and_slices_follow_at_once(void **state)
{
    static struct vpmm_idler idler;
    static struct pauses seen;
    static const struct vpmm_config decay_alone = {.decay_ms = 800};
    (void)state;
    atomic_store(&fake.n_slices_left, 4);
    watch_pauses(&idler, &decay_alone, &seen);
    static const unsigned ms[] = {100, 1, 1, 1, 97, 100, 100};
    static const unsigned looks[] = {0, 1, 1, 1, 1, 2, 3}, slices[] = {0, 0, 1, 2, 3, 3, 3};
    for (unsigned i = 0; i < 7; i++) {
        assert_int_equal(seen.ms[i], ms[i]);
        assert_int_equal(seen.decay_looks[i], looks[i]);
        assert_int_equal(seen.slices[i], slices[i]);
    }
    assert_int_equal(seen.looks[PAUSES_MAX - 1], 0);
}

static void both_have_their_own_pace(void **state)
{
    static struct vpmm_idler idler;
    static struct pauses seen;
    static const struct vpmm_config both = {.decay_ms = 800, .idle_ms = 600};
    (void)state;
    watch_pauses(&idler, &both, &seen);
    static const unsigned ms[] = {100, 50, 50, 100, 100, 50};
    static const unsigned looks[] = {0, 0, 1, 1, 2, 2}, decay_looks[] = {0, 1, 1, 2, 3, 4};
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(seen.ms[i], ms[i]);
        assert_int_equal(seen.looks[i], looks[i]);
        assert_int_equal(seen.decay_looks[i], decay_looks[i]);
    }
}

/* An appeal is answered at once and between two looks, which it neither hastens nor puts off. */
static void others_are_answered(void **state)
{
    static struct vpmm_idler idler;
    static const struct vpmm_config decay_alone = {.decay_ms = 80};
    (void)state;
    atomic_store(&appeals.is_there, true);
    atomic_store(&appeals.is_wanted, true);
    assert_true(vpmm_idler_start(&idler, router, &decay_alone));
    while (atomic_load(&appeals.n_answered) < 1)
        pause_ms(1);
    while (atomic_load(&fake.n_decay_looks) < 2)
        pause_ms(1);
    assert_int_equal(atomic_load(&appeals.n_given), 1);
    end_patiently(&idler);
    atomic_store(&appeals.is_there, false);
    struct vpmm_idler of_child = {.appeals = {.is_open = true}};
    assert_int_equal(atomic_load(&appeals.n_closed), 0);
    vpmm_idler_forget(&of_child);
    assert_int_equal(atomic_load(&appeals.n_closed), 1);
}

static void it_is_started_once_and_not_after_the_end(void **state)
{
    static struct vpmm_idler idler, late;
    (void)state;
    assert_true(vpmm_idler_start(&idler, router, &idle_alone));
    assert_true(vpmm_idler_start(&idler, router, &idle_alone));
    wait_for_looks(1);
    end_patiently(&idler);
    vpmm_idler_end(&late);
    assert_false(vpmm_idler_start(&late, router, &idle_alone));
    unsigned n = atomic_load(&fake.n_looks);
    pause_ms(20);
    assert_int_equal(atomic_load(&fake.n_looks), n);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_looks_until_it_is_ended),
        TEST(the_end_comes_after_what_is_under_way),
        TEST(the_end_does_not_wait_for_ever),
        TEST(a_window_has_eight_slots_and_slices_follow_at_once),
        TEST(both_have_their_own_pace),
        TEST(others_are_answered),
        TEST(it_is_started_once_and_not_after_the_end),
        TEST(without_a_thread_there_is_nothing_to_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
