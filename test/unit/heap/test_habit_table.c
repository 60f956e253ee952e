/* SPDX-License-Identifier: MIT */
/* The table of habits: how many it keeps, and what makes two of them different. */
#include "fixture.h"

#include "heap/heap_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define PAGE (16 * MIB)

/* Keys of the same sets. */
#define KEY(i) ((uint64_t)(i) << 40)

static void a_set_keeps_as_many_as_it_has_ways(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    for (uint64_t i = 1; i <= VPMM_HABIT_WAYS; i++)
        vpmm_habit_keep(f.heap->habits, KEY(i), i * PAGE);
    for (uint64_t i = 1; i <= VPMM_HABIT_WAYS; i++)
        assert_int_equal(vpmm_habit_find(f.heap->habits, KEY(i)), i * PAGE);
    vpmm_habit_keep(f.heap->habits, KEY(2), 9 * PAGE);
    for (uint64_t i = 1; i <= VPMM_HABIT_WAYS; i++)
        assert_int_equal(vpmm_habit_find(f.heap->habits, KEY(i)), (i == 2 ? 9 : i) * PAGE);
    vpmm_habit_keep(f.heap->habits, 0, 7 * PAGE);
    assert_int_equal(vpmm_habit_find(f.heap->habits, 0), 7 * PAGE);
    unsigned n_left = 0;
    for (uint64_t i = 1; i <= VPMM_HABIT_WAYS; i++)
        n_left += vpmm_habit_find(f.heap->habits, KEY(i)) != 0;
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
        vpmm_habit_keep(f.heap->habits, vpmm_habit_key(i << 20, 1, i), i * PAGE);
    for (uint64_t i = 1; i <= N; i++)
        assert_int_equal(vpmm_habit_find(f.heap->habits, vpmm_habit_key(i << 20, 1, i)), i * PAGE);
    fixture_teardown(&f);
}

/* Any address that the driver gives comes back as it is, and no other is kept. */
static void an_address_comes_back_whole(void **state)
{
    (void)state;
    static const uint64_t kept[] = {UINT64_C(0x10000), UINT64_C(0x302000000),
                                    UINT64_C(0x7fffffff0000), UINT64_C(0xffffffffff0000)};
    static const uint64_t lost[] = {UINT64_C(0x8000), UINT64_C(0x302001000),
                                    UINT64_C(0x100000000000000)};
    struct fixture f;
    fixture_setup_eager(&f);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        vpmm_habit_keep(f.heap->habits, KEY(i + 1), kept[i]);
        assert_int_equal(vpmm_habit_find(f.heap->habits, KEY(i + 1)), kept[i]);
    }
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        vpmm_habit_keep(f.heap->habits, KEY(9), lost[i]);
        assert_int_equal(vpmm_habit_find(f.heap->habits, KEY(9)), 0);
    }
    fixture_teardown(&f);
}

static void a_key_finds_no_habit_of_another(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    assert_int_equal(vpmm_habit_find(f.heap->habits, 0), 0);
    vpmm_habit_keep(f.heap->habits, KEY(5), 3 * PAGE);
    assert_int_equal(vpmm_habit_find(f.heap->habits, KEY(6)), 0);
    assert_int_equal(vpmm_habit_find(f.heap->habits, 0), 0);
    assert_int_equal(vpmm_habit_find(f.heap->habits, KEY(5)), 3 * PAGE);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_keeps_as_many_as_it_has_ways),
        cmocka_unit_test(a_round_of_thousands_loses_none),
        cmocka_unit_test(an_address_comes_back_whole),
        cmocka_unit_test(a_key_finds_no_habit_of_another),
    };
    return cmocka_run_group_tests_name("heap/habit_table", tests, NULL, NULL);
}
