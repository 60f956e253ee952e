/* SPDX-License-Identifier: MIT */
/* The price list: what was measured is met exactly, what lies between is on the line. */
#include "replay/prices.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define FEW 1

static void test_measured_sizes(void **state)
{
    (void)state;
    assert_int_equal(vpmm_price_ns(VPMM_PRICE_CREATE, 2 * MIB, FEW), 7000);
    assert_int_equal(vpmm_price_ns(VPMM_PRICE_MAP, 64 * MIB, FEW), 500);
    assert_int_equal(vpmm_price_ns(VPMM_PRICE_ACCESS, 256 * MIB, FEW), 36000);
    assert_int_equal(vpmm_price_ns(VPMM_PRICE_UNMAP, 1024 * MIB, FEW), 24000);
    assert_int_equal(vpmm_price_ns(VPMM_PRICE_RELEASE, 8192 * MIB, FEW), 2600000);
}

static void test_between_and_beyond(void **state)
{
    (void)state;
    assert_int_equal(vpmm_price_ns(VPMM_PRICE_ACCESS, 160 * MIB, FEW), 28500);
    assert_int_equal(vpmm_price_ns(VPMM_PRICE_RELEASE, 640 * MIB, FEW), 172500);
    assert_int_equal(vpmm_price_ns(VPMM_PRICE_UNMAP, 40 * MIB, FEW), 13500);
    assert_int_equal(vpmm_price_ns(VPMM_PRICE_ACCESS, MIB / 4, FEW), 20000);
    assert_int_equal(vpmm_price_ns(VPMM_PRICE_ACCESS, (8192 + 7168) * MIB, FEW), 226000 + 175000);
}

static void test_growth(void **state)
{
    (void)state;
    assert_int_equal(vpmm_price_ns(VPMM_PRICE_ACCESS, 2 * MIB, 64), 20000);
    assert_int_equal(vpmm_price_ns(VPMM_PRICE_ACCESS, 2 * MIB, 768), 23000);
    assert_int_equal(vpmm_price_ns(VPMM_PRICE_ACCESS, 2 * MIB, 24576), 28000);
    assert_int_equal(vpmm_price_ns(VPMM_PRICE_ACCESS, 2 * MIB, 1000000), 28000);
    assert_int_equal(vpmm_price_ns(VPMM_PRICE_QUERY, 0, 1000000), 160);
    uint64_t last_ns = 0;
    for (uint64_t n = 0; n < 30000; n += 7) {
        uint64_t ns = vpmm_price_ns(VPMM_PRICE_UNMAP, 2 * MIB, n);
        assert_true(ns >= last_ns);
        last_ns = ns;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measured_sizes),
        cmocka_unit_test(test_between_and_beyond),
        cmocka_unit_test(test_growth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
