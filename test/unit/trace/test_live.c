/* SPDX-License-Identifier: MIT */
#include "trace/live.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define ADDRESSES 600u

static uint32_t random_number(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* Beside an array with a place for each address. */
static void test_it_holds_what_was_put_and_not_taken(void **state)
{
    struct vpmm_live live = {0};
    uint64_t bytes[ADDRESSES] = {0}, seed = 1;
    size_t n = 0;
    (void)state;
    for (unsigned step = 1; step < 200000; step++) {
        uint32_t number = random_number(&seed) % ADDRESSES;
        struct vpmm_live_block block = {.address = (number + 1) * (uint64_t)0x200000,
                                        .bytes = step};
        bool is_there = vpmm_live_take(&live, block.address, &block);
        assert_int_equal(is_there, bytes[number] != 0);
        if (is_there) {
            assert_true(block.bytes == bytes[number]);
            bytes[number] = 0;
            n--;
        }
        if (!is_there || step % 3 == 0) {
            block.bytes = bytes[number] = step;
            assert_true(vpmm_live_put(&live, &block));
            n++;
        }
        assert_int_equal(live.n, n);
    }
    vpmm_live_finish(&live);
}

static void test_it_is_walked_by_its_places(void **state)
{
    struct vpmm_live live = {0};
    struct vpmm_live_block block;
    uint64_t sum = 0;
    (void)state;
    for (uint64_t i = 1; i <= 1000; i++) {
        block = (struct vpmm_live_block){.address = i << 12, .bytes = i};
        assert_true(vpmm_live_put(&live, &block));
    }
    for (size_t i = 0; i < live.room; i++)
        sum += live.blocks[i].address ? live.blocks[i].bytes : 0;
    assert_int_equal(sum, 500500);
    vpmm_live_clear(&live);
    assert_int_equal(live.n, 0);
    assert_false(vpmm_live_take(&live, 1 << 12, &block));
    vpmm_live_finish(&live);
}

static void test_no_block_is_at_zero(void **state)
{
    struct vpmm_live live = {0};
    struct vpmm_live_block block = {.address = 4096};
    (void)state;
    assert_false(vpmm_live_take(&live, 0, &block));
    assert_true(vpmm_live_put(&live, &block));
    assert_false(vpmm_live_take(&live, 0, &block));
    vpmm_live_finish(&live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_holds_what_was_put_and_not_taken),
        cmocka_unit_test(test_it_is_walked_by_its_places),
        cmocka_unit_test(test_no_block_is_at_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
