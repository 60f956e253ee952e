/* SPDX-License-Identifier: MIT */
/* The log of habits and its index: how many are kept, in which order, and what makes two of them
 * different. */
#include "fixture.h"

#include "heap/heap_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define PAGE (16 * MIB)

/* Keys of one set of the index. */
#define KEY(i) ((uint64_t)(i) << 40)

static struct vpmm_recalled recall(const struct fixture *f, uint64_t key, uint64_t *last)
{
    struct vpmm_recalled recalled = {.key = key, .place = VPMM_HABITS, .is_kept = true};
    vpmm_habit_find(f->heap->habits, &recalled, last);
    return recalled;
}

static uint64_t find(const struct fixture *f, uint64_t key)
{
    uint64_t last = VPMM_HABITS / 2;
    return recall(f, key, &last).address;
}

static void keep(const struct fixture *f, uint64_t key, uint64_t address)
{
    uint64_t last = VPMM_HABITS / 2;
    const struct vpmm_recalled recalled = recall(f, key, &last);
    vpmm_habit_keep(f->heap->habits, &recalled, address);
}

static uint64_t key_of(uint64_t i)
{
    return vpmm_habit_key(i << 20, 1, i);
}

static void keep_from(const struct fixture *f, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++)
        keep(f, key_of(i), i * PAGE);
}

static uint64_t n_found(const struct fixture *f, uint64_t first, uint64_t end)
{
    uint64_t n = 0;
    for (uint64_t i = first; i < end; i++) {
        uint64_t address = find(f, key_of(i));
        assert_true(!address || address == i * PAGE);
        n += address != 0;
    }
    return n;
}

static void a_set_gives_up_its_oldest(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    for (uint64_t i = 1; i <= VPMM_HABIT_WAYS; i++)
        keep(&f, KEY(i), i * PAGE);
    for (uint64_t i = 1; i <= VPMM_HABIT_WAYS; i++)
        assert_int_equal(find(&f, KEY(i)), i * PAGE);
    keep(&f, KEY(2), 99 * PAGE);
    for (uint64_t i = 1; i <= VPMM_HABIT_WAYS; i++)
        assert_int_equal(find(&f, KEY(i)), (i == 2 ? 99 : i) * PAGE);
    keep(&f, KEY(50), 7 * PAGE);
    assert_int_equal(find(&f, KEY(50)), 7 * PAGE);
    for (uint64_t i = 1; i <= VPMM_HABIT_WAYS; i++)
        assert_int_equal(find(&f, KEY(i)), i == 1 ? 0 : (i == 2 ? 99 : i) * PAGE);
    fixture_teardown(&f);
}

/* A round of a program has thousands of habits, and the loss of one costs all that follow. */
static void a_round_of_thousands_loses_none(void **state)
{
    (void)state;
    enum {
        N = 30000
    };
    struct fixture f;
    fixture_setup_eager(&f);
    keep_from(&f, 1, N);
    assert_int_equal(n_found(&f, 1, N), N - 1);
    fixture_teardown(&f);
}

/* However many have been learnt before: what was written over is found no more. Few of the others
 * are lost to a full set. */
static void the_latest_are_kept(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    keep_from(&f, 1, 5 * VPMM_HABITS);
    assert_int_equal(n_found(&f, 1, 4 * VPMM_HABITS), 0);
    assert_in_range(n_found(&f, 4 * VPMM_HABITS, 5 * VPMM_HABITS), VPMM_HABITS / 100 * 99,
                    VPMM_HABITS);
    fixture_teardown(&f);
}

static void forget_the_index(const struct fixture *f)
{
    memset(f->heap->habits->index, 0, sizeof f->heap->habits->index);
}

/* Without the index, a habit is found behind the last one, and a few others away. */
static void the_next_one_lies_behind_the_last(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    keep_from(&f, 1, 100);
    uint64_t last = 0;
    forget_the_index(&f);
    for (uint64_t i = 1; i < 100; i += 4)
        assert_int_equal(recall(&f, key_of(i), &last).address, i * PAGE);
    assert_int_equal(recall(&f, key_of(1), &last).address, 0);
    assert_int_equal(recall(&f, key_of(99), &last).address, 99 * PAGE);
    fixture_teardown(&f);
}

/* The end of the log is followed by its begin. */
static void a_round_goes_on_at_the_begin(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    keep_from(&f, 1, VPMM_HABITS + 3);
    forget_the_index(&f);
    uint64_t last = VPMM_HABITS - 1;
    assert_int_equal(recall(&f, key_of(VPMM_HABITS + 2), &last).address, (VPMM_HABITS + 2) * PAGE);
    assert_int_equal(last, 1);
    fixture_teardown(&f);
}

/* A habit has one place, also where the index has lost it. */
static void a_habit_that_changes_stays_where_it_is(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    keep_from(&f, 1, 9);
    forget_the_index(&f);
    uint64_t last = 0;
    const struct vpmm_recalled recalled = recall(&f, key_of(3), &last);
    vpmm_habit_keep(f.heap->habits, &recalled, 77 * PAGE);
    assert_int_equal(recall(&f, key_of(3), &last).address, 77 * PAGE);
    assert_int_equal(vpmm_atomic_load(&f.heap->habits->n), 8);
    fixture_teardown(&f);
}

/* A request that needs no look-up takes the round on where it is the next one, and only there. */
static void a_round_goes_on_where_nothing_is_looked_up(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    keep_from(&f, 1, 9);
    uint64_t last = 0;
    vpmm_habit_step(f.heap->habits, key_of(2), &last);
    vpmm_habit_step(f.heap->habits, key_of(2), &last);
    assert_int_equal(last, 1);
    vpmm_habit_step(f.heap->habits, key_of(8), &last);
    assert_int_equal(last, 1);
    last = VPMM_HABITS - 1;
    vpmm_habit_step(f.heap->habits, key_of(1), &last);
    assert_int_equal(last, 0);
    fixture_teardown(&f);
}

static void a_key_finds_no_habit_of_another(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    assert_int_equal(find(&f, 0), 0);
    keep(&f, KEY(5), 3 * PAGE);
    assert_int_equal(find(&f, KEY(6)), 0);
    assert_int_equal(find(&f, 0), 0);
    assert_int_equal(find(&f, KEY(5)), 3 * PAGE);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_gives_up_its_oldest),
        cmocka_unit_test(a_round_of_thousands_loses_none),
        cmocka_unit_test(the_latest_are_kept),
        cmocka_unit_test(the_next_one_lies_behind_the_last),
        cmocka_unit_test(a_round_goes_on_at_the_begin),
        cmocka_unit_test(a_habit_that_changes_stays_where_it_is),
        cmocka_unit_test(a_round_goes_on_where_nothing_is_looked_up),
        cmocka_unit_test(a_key_finds_no_habit_of_another),
    };
    return cmocka_run_group_tests_name("heap/habit_log", tests, NULL, NULL);
}
