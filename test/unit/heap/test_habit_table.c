/* SPDX-License-Identifier: MIT */
/* The table of habits: how many it keeps, and what makes two of them different. */
#include "fixture.h"

#include "heap/heap_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define PAGE (16 * MIB)

static void a_set_keeps_as_many_as_it_has_ways(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    for (uint64_t i = 1; i <= VPMM_HABIT_WAYS; i++)
        vpmm_habit_keep(f.heap->habits, i * VPMM_HABIT_SETS, i * PAGE);
    for (uint64_t i = 1; i <= VPMM_HABIT_WAYS; i++)
        assert_int_equal(vpmm_habit_find(f.heap->habits, i * VPMM_HABIT_SETS), i * PAGE);
    vpmm_habit_keep(f.heap->habits, 2 * VPMM_HABIT_SETS, 9 * PAGE);
    for (uint64_t i = 1; i <= VPMM_HABIT_WAYS; i++)
        assert_int_equal(vpmm_habit_find(f.heap->habits, i * VPMM_HABIT_SETS),
                         (i == 2 ? 9 : i) * PAGE);
    vpmm_habit_keep(f.heap->habits, 0, 7 * PAGE);
    assert_int_equal(vpmm_habit_find(f.heap->habits, 0), 7 * PAGE);
    unsigned n_left = 0;
    for (uint64_t i = 1; i <= VPMM_HABIT_WAYS; i++)
        n_left += vpmm_habit_find(f.heap->habits, i * VPMM_HABIT_SETS) != 0;
    assert_int_equal(n_left, VPMM_HABIT_WAYS - 1);
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
    for (uint64_t i = 1; i <= N; i++)
        vpmm_habit_keep(f.heap->habits, vpmm_habit_key(i << 20, 1, i, false), i * PAGE);
    for (uint64_t i = 1; i <= N; i++)
        assert_int_equal(vpmm_habit_find(f.heap->habits, vpmm_habit_key(i << 20, 1, i, false)),
                         i * PAGE);
    fixture_teardown(&f);
}

static void halves_of_two_habits_are_none(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    assert_int_equal(vpmm_habit_find(f.heap->habits, 0), 0);
    vpmm_habit_keep(f.heap->habits, 5, 3 * PAGE);
    vpmm_habit_keep(f.heap->habits, 5 + VPMM_HABIT_SETS, 4 * PAGE);
    struct vpmm_habit *set = &f.heap->habits[5 * VPMM_HABIT_WAYS];
    for (unsigned i = 0; i < VPMM_HABIT_WAYS; i++)
        if (vpmm_atomic_load(&set[i].address) == 3 * PAGE)
            vpmm_atomic_store(&set[i].address, 4 * PAGE);
    assert_int_equal(vpmm_habit_find(f.heap->habits, 5), 0);
    assert_int_equal(vpmm_habit_find(f.heap->habits, 5 + VPMM_HABIT_SETS), 4 * PAGE);
    fixture_teardown(&f);
}

/* A page that is cut into small blocks may be there or not: the program's own blocks are known all
 * the same, and such pages by both. */
static void slabs_change_no_habit_of_the_program(void **state)
{
    (void)state;
    uint64_t large = vpmm_habit_mark(vpmm_habit_key(0, 1, 4, false), false);
    uint64_t slab = vpmm_habit_mark(vpmm_habit_key(large, 1, 1, true), true);
    assert_int_not_equal(slab, 0);
    assert_int_equal(vpmm_habit_key(large ^ slab, 1, 4, false), vpmm_habit_key(large, 1, 4, false));
    assert_int_not_equal(vpmm_habit_key(large ^ slab, 1, 1, true),
                         vpmm_habit_key(large, 1, 1, true));
    assert_int_not_equal(vpmm_habit_key(slab, 1, 1, true),
                         vpmm_habit_key(large ^ slab, 1, 1, true));
    assert_int_not_equal(vpmm_habit_key(0, 1, 1, true), vpmm_habit_key(0, 1, 1, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_keeps_as_many_as_it_has_ways),
        cmocka_unit_test(a_round_of_thousands_loses_none),
        cmocka_unit_test(halves_of_two_habits_are_none),
        cmocka_unit_test(slabs_change_no_habit_of_the_program),
    };
    return cmocka_run_group_tests_name("heap/habit_table", tests, NULL, NULL);
}
