/* SPDX-License-Identifier: MIT */
#include "replay/numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>

#define KEYS (1u << 19)

/* With so many, a search through all of them for each takes longer than any test may. */
static void check_multiples(uint64_t step)
{
    struct vpmm_numbers numbers = {0};
    for (uint32_t i = 0; i < KEYS; i++) {
        uint32_t *number = vpmm_numbers_at(&numbers, i * step);
        assert_non_null(number);
        assert_int_equal(*number, VPMM_NUMBER_NONE);
        *number = i;
    }
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(*vpmm_numbers_at(&numbers, i * step), i);
    assert_int_equal(numbers.n, KEYS);
    vpmm_numbers_finish(&numbers);
}

static void test_keys_are_found_whatever_bits_they_differ_in(void **state)
{
    (void)state;
    check_multiples(1);
    check_multiples((uint64_t)1 << 21);
    check_multiples((uint64_t)1 << 30);
    check_multiples((uint64_t)1 << 44);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_are_found_whatever_bits_they_differ_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
