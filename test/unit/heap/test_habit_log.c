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

static uint64_t find(const struct fixture *f, uint64_t key)
{
    uint64_t last = VPMM_HABITS / 2;
    return vpmm_habit_find(f->heap->habits, key, &last);
}

static uint64_t key_of(uint64_t i)
{
    return vpmm_habit_key(i << 20, 1, i);
}

static void keep_from(const struct fixture *f, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++)
        vpmm_habit_keep(f->heap->habits, key_of(i), i * PAGE, true);
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
        vpmm_habit_keep(f.heap->habits, KEY(i), i * PAGE, true);
    for (uint64_t i = 1; i <= VPMM_HABIT_WAYS; i++)
        assert_int_equal(find(&f, KEY(i)), i * PAGE);
    vpmm_habit_keep(f.heap->habits, KEY(2), 99 * PAGE, false);
    for (uint64_t i = 1; i <= VPMM_HABIT_WAYS; i++)
        assert_int_equal(find(&f, KEY(i)), (i == 2 ? 99 : i) * PAGE);
    vpmm_habit_keep(f.heap->habits, KEY(50), 7 * PAGE, true);
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

/* Without the index, a habit is found behind the last one, and a few others away. */
static void the_next_one_lies_behind_the_last(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    keep_from(&f, 1, 100);
    uint64_t last = 0;
    memset(f.heap->habits->index, 0, sizeof f.heap->habits->index);
    for (uint64_t i = 1; i < 100; i += 4)
        assert_int_equal(vpmm_habit_find(f.heap->habits, key_of(i), &last), i * PAGE);
    assert_int_equal(vpmm_habit_find(f.heap->habits, key_of(1), &last), 0);
    assert_int_equal(vpmm_habit_find(f.heap->habits, key_of(99), &last), 99 * PAGE);
    fixture_teardown(&f);
}

static void a_key_finds_no_habit_of_another(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    assert_int_equal(find(&f, 0), 0);
    vpmm_habit_keep(f.heap->habits, KEY(5), 3 * PAGE, false);
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
        cmocka_unit_test(a_key_finds_no_habit_of_another),
    };
    return cmocka_run_group_tests_name("heap/habit_log", tests, NULL, NULL);
}
