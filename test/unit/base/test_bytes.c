/* SPDX-License-Identifier: MIT */
/* Checked arithmetic, and byte counts as people write and read them. */
#include "base/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void add_and_multiply_refuse_what_does_not_fit(void **state)
{
    (void)state;
    uint64_t out = 7;
    assert_true(vpmm_bytes_add(UINT64_MAX - 1, 1, &out));
    assert_int_equal(out, UINT64_MAX);
    assert_false(vpmm_bytes_add(UINT64_MAX, 1, &out));
    assert_int_equal(out, UINT64_MAX);
    assert_true(vpmm_bytes_multiply((uint64_t)1 << 32, ((uint64_t)1 << 32) - 1, &out));
    assert_int_equal(out, UINT64_MAX - UINT32_MAX);
    assert_false(vpmm_bytes_multiply((uint64_t)1 << 32, (uint64_t)1 << 32, &out));
    assert_int_equal(out, UINT64_MAX - UINT32_MAX);
}

static void round_up_is_the_least_multiple(void **state)
{
    (void)state;
    for (uint64_t unit = 1; unit < 20; unit++)
        for (uint64_t bytes = 0; bytes < 100; bytes++) {
            uint64_t rounded;
            assert_true(vpmm_bytes_round_up(bytes, unit, &rounded));
            assert_int_equal(rounded % unit, 0);
            assert_true(rounded >= bytes && rounded - bytes < unit);
        }
    uint64_t out = 7;
    assert_false(vpmm_bytes_round_up(UINT64_MAX - 1, (uint64_t)1 << 20, &out));
    assert_int_equal(out, 7);
    assert_true(vpmm_bytes_round_up(UINT64_MAX, 5, &out));
    assert_int_equal(out, UINT64_MAX);
}

static void parse_reads_every_form(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"00012", 12},
        {"513b", 513},
        {"513B", 513},
        {"2097152", 2097152},
        {"1k", 1024},
        {"2M", 2097152},
        {"2mb", 2097152},
        {"2MiB", 2097152},
        {"2mIb", 2097152},
        {"1G", (uint64_t)1 << 30},
        {"8T", (uint64_t)8 << 40},
        {"1P", (uint64_t)1 << 50},
        {"16383P", (uint64_t)16383 << 50},
        {"18446744073709551615", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t bytes = 1;
        assert_int_equal(vpmm_bytes_parse(good[i].text, &bytes), VPMM_OK);
        assert_int_equal(bytes, good[i].bytes);
    }
}

static void parse_refuses_everything_else(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        " 1",
        "1 ",
        "1 M",
        "-1",
        "+1",
        "1.5G",
        "G",
        "0x10",
        "1e6",
        "1Q",
        "1iB",
        "1Mi",
        "1MM",
        "1MBB",
        "1KiBx",
        "12Z",
        "1,5",
        "16384P",
        "18446744073709551616",
        "99999999999999999999999",
        "M1",
        "%",
        "10%",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes = 42;
        assert_int_equal(vpmm_bytes_parse(bad[i], &bytes), VPMM_INVALID);
        assert_int_equal(bytes, 42);
    }
}

static void print_takes_the_largest_unit(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } good[] = {
        {0, "0 B"},
        {513, "513 B"},
        {1023, "1023 B"},
        {1024, "1 KiB"},
        {1025, "1.00 KiB"},
        {2097152, "2 MiB"},
        {(uint64_t)3 << 29, "1.50 GiB"},
        {((uint64_t)1 << 30) + ((uint64_t)1 << 30) / 20, "1.05 GiB"},
        {((uint64_t)1 << 30) - 1, "1.00 GiB"},
        {((uint64_t)2 << 30) - ((uint64_t)1 << 23), "1.99 GiB"},
        {((uint64_t)2 << 30) - ((uint64_t)1 << 22), "2.00 GiB"},
        {((uint64_t)1 << 20) - 5 * 1024, "1019 KiB"},
        {((uint64_t)1 << 20) - 5, "1.00 MiB"},
        {((uint64_t)1 << 20) - 6, "1023.99 KiB"},
        {(uint64_t)8 << 40, "8 TiB"},
        {UINT64_MAX, "16384.00 PiB"},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char text[24];
        memset(text, 'x', sizeof text);
        assert_int_equal(vpmm_bytes_print(good[i].bytes, text, sizeof text), strlen(good[i].text));
        assert_string_equal(text, good[i].text);
    }
}

static void print_stays_within_its_room(void **state)
{
    (void)state;
    for (size_t room = 1; room < 14; room++) {
        char text[16];
        memset(text, 'x', sizeof text);
        assert_int_equal(vpmm_bytes_print(UINT64_MAX, text, room), room - 1 < 12 ? room - 1 : 12);
        assert_int_equal(memcmp(text, "16384.00 PiB", strlen(text)), 0);
        assert_int_equal(text[room], 'x');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_and_multiply_refuse_what_does_not_fit),
        cmocka_unit_test(round_up_is_the_least_multiple),
        cmocka_unit_test(parse_reads_every_form),
        cmocka_unit_test(parse_refuses_everything_else),
        cmocka_unit_test(print_takes_the_largest_unit),
        cmocka_unit_test(print_stays_within_its_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
