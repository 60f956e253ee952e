/* SPDX-License-Identifier: MIT */
/* Metadata memory and the table of records made of it, also while memory fails. */
#include "base/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

/* Counts what is mapped, and fails every map from the `good`th on. */
struct scarce {
    unsigned good;
    unsigned maps;
    size_t bytes;
};

static void *scarce_map(void *self, size_t bytes)
{
    struct scarce *scarce = self;
    if (scarce->maps >= scarce->good)
        return NULL;
    scarce->maps++;
    scarce->bytes += bytes;
    return vpmm_memory_system.map(vpmm_memory_system.self, bytes);
}

static void scarce_unmap(void *self, void *address, size_t bytes)
{
    struct scarce *scarce = self;
    scarce->bytes -= bytes;
    vpmm_memory_system.unmap(vpmm_memory_system.self, address, bytes);
}

static struct vpmm_memory memory_of(struct scarce *scarce)
{
    return (struct vpmm_memory){scarce, scarce_map, scarce_unmap};
}

static void system_memory_is_zeroed_and_huge_requests_fail(void **state)
{
    (void)state;
    const struct vpmm_memory *memory = &vpmm_memory_system;
    unsigned char *bytes = memory->map(memory->self, 10000);
    assert_non_null(bytes);
    assert_int_equal((uintptr_t)bytes % 4096, 0);
    for (unsigned i = 0; i < 10000; i++)
        assert_int_equal(bytes[i], 0);
    memset(bytes, 1, 10000);
    memory->unmap(memory->self, bytes, 10000);
    assert_null(memory->map(memory->self, SIZE_MAX / 2));
}

static void records_are_zeroed_distinct_and_stay_in_place(void **state)
{
    (void)state;
    enum {
        N = 3 * VPMM_TABLE_CHUNK_RECORDS
    };
    struct vpmm_table table;
    static uint64_t *seen[N + 1];
    assert_int_equal(vpmm_table_init(&table, sizeof(uint64_t), &vpmm_memory_system), VPMM_OK);
    for (uint32_t i = 1; i <= N; i++) {
        uint32_t number = vpmm_table_take(&table);
        assert_int_not_equal(number, 0);
        assert_true(number <= N + 1);
        seen[i] = vpmm_table_at(&table, number);
        assert_int_equal(*seen[i], 0);
        *seen[i] = number;
    }
    assert_int_equal(table.n_used, N);
    for (uint32_t i = 1; i <= N; i++)
        assert_ptr_equal(vpmm_table_at(&table, (uint32_t)*seen[i]), seen[i]);
    vpmm_table_finish(&table);
}

static void numbers_that_are_none_have_no_record(void **state)
{
    (void)state;
    struct vpmm_table table;
    assert_int_equal(vpmm_table_init(&table, 24, &vpmm_memory_system), VPMM_OK);
    assert_null(vpmm_table_at(&table, 0));
    assert_null(vpmm_table_at(&table, 1));
    assert_int_equal(vpmm_table_take(&table), 1);
    assert_non_null(vpmm_table_at(&table, 1));
    assert_null(vpmm_table_at(&table, VPMM_TABLE_CHUNK_RECORDS));
    assert_null(vpmm_table_at(&table, VPMM_TABLE_CHUNK_RECORDS * VPMM_TABLE_CHUNKS));
    assert_null(vpmm_table_at(&table, UINT32_MAX));
    vpmm_table_finish(&table);
}

static void a_given_number_comes_back_with_its_bytes(void **state)
{
    (void)state;
    struct vpmm_table table;
    assert_int_equal(vpmm_table_init(&table, 8, &vpmm_memory_system), VPMM_OK);
    uint32_t first = vpmm_table_take(&table), second = vpmm_table_take(&table);
    assert_int_not_equal(first, second);
    *(uint64_t *)vpmm_table_at(&table, first) = 99;
    vpmm_table_give(&table, first);
    assert_int_equal(table.n_used, 1);
    assert_int_equal(vpmm_table_take(&table), first);
    assert_int_equal(*(uint64_t *)vpmm_table_at(&table, first), 99);
    vpmm_table_finish(&table);
}

static void the_end_lies_just_above_what_was_taken(void **state)
{
    (void)state;
    struct vpmm_table table;
    uint32_t last = 0;
    assert_int_equal(vpmm_table_init(&table, 8, &vpmm_memory_system), VPMM_OK);
    assert_int_equal(vpmm_table_reserve(&table, 100), VPMM_OK);
    assert_int_equal(vpmm_table_end(&table), 0);
    for (uint32_t i = 0; i < 10; i++) {
        last = vpmm_table_take(&table);
        assert_int_equal(vpmm_table_end(&table), last + 1);
    }
    vpmm_table_give(&table, 1);
    assert_int_equal(vpmm_table_take(&table), 1);
    assert_int_equal(vpmm_table_end(&table), last + 1);
    vpmm_table_finish(&table);
}

static void a_reserve_makes_later_takes_safe(void **state)
{
    (void)state;
    struct scarce scarce = {.good = 4};
    const struct vpmm_memory memory = memory_of(&scarce);
    struct vpmm_table table;
    assert_int_equal(vpmm_table_init(&table, 8, &memory), VPMM_OK);
    assert_int_equal(vpmm_table_reserve(&table, VPMM_TABLE_CHUNK_RECORDS + 1), VPMM_OK);
    scarce.good = 0;
    for (uint32_t i = 0; i < VPMM_TABLE_CHUNK_RECORDS + 1; i++)
        assert_int_not_equal(vpmm_table_take(&table), 0);
    assert_int_equal(vpmm_table_reserve(&table, 2 * VPMM_TABLE_CHUNK_RECORDS), VPMM_NO_METADATA);
    while (table.n_free)
        assert_int_not_equal(vpmm_table_take(&table), 0);
    assert_int_equal(vpmm_table_take(&table), 0);
    vpmm_table_finish(&table);
    assert_int_equal(scarce.bytes, 0);
}

static void failed_inits_leave_nothing(void **state)
{
    (void)state;
    for (unsigned good = 0; good < 2; good++) {
        struct scarce scarce = {.good = good};
        const struct vpmm_memory memory = memory_of(&scarce);
        struct vpmm_table table;
        assert_int_equal(vpmm_table_init(&table, 8, &memory), VPMM_NO_METADATA);
        assert_int_equal(scarce.bytes, 0);
        vpmm_table_finish(&table);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(system_memory_is_zeroed_and_huge_requests_fail),
        cmocka_unit_test(records_are_zeroed_distinct_and_stay_in_place),
        cmocka_unit_test(numbers_that_are_none_have_no_record),
        cmocka_unit_test(a_given_number_comes_back_with_its_bytes),
        cmocka_unit_test(the_end_lies_just_above_what_was_taken),
        cmocka_unit_test(a_reserve_makes_later_takes_safe),
        cmocka_unit_test(failed_inits_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
