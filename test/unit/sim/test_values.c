/* SPDX-License-Identifier: MIT */
/* Waits for a value: each kind of comparison, in both widths. */
#include "fixture.h"

struct wait {
    unsigned flags;
    unsigned width;
    uint64_t before, value, after; /* the wait goes on at `before` and ends at `after` */
};

static const struct wait waits[] = {
    {CU_STREAM_WAIT_VALUE_EQ, 4, 1, 2, 2},
    {CU_STREAM_WAIT_VALUE_EQ, 8, 2, 2 + (UINT64_C(1) << 32), 2 + (UINT64_C(1) << 32)},
    {CU_STREAM_WAIT_VALUE_GEQ, 4, UINT32_MAX, 0, 1},
    {CU_STREAM_WAIT_VALUE_GEQ, 8, UINT64_MAX, 0, 1},
    {CU_STREAM_WAIT_VALUE_AND, 4, 0x5, 0xa, 0x8},
    {CU_STREAM_WAIT_VALUE_AND, 8, UINT32_MAX, UINT64_C(1) << 32, UINT64_C(3) << 32},
    {CU_STREAM_WAIT_VALUE_NOR, 4, 0xffff0000, 0x0000ffff, 0xfffe0000},
    {CU_STREAM_WAIT_VALUE_NOR, 8, UINT64_MAX << 32, UINT32_MAX, UINT64_MAX << 33},
};

static void a_wait_ends_when_its_condition_holds(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        const struct wait *wait = &waits[i];
        struct fixture *f = fixture_new(eager);
        struct trail trail = {0};
        CUstream stream = stream_make(f, CU_STREAM_NON_BLOCKING);
        CUstream other = stream_make(f, CU_STREAM_NON_BLOCKING);
        CUdeviceptr word;
        OK(sim_mem_alloc(f->sim, 8, &word));
        OK(sim_stream_write_value(f->sim, stream, word, wait->before, wait->width, 0));
        OK(sim_stream_wait_value(f->sim, stream, word, wait->value, wait->width, wait->flags));
        OK(step_queue(f, stream, &trail, 1));
        sim_drain(f->sim);
        if (trail.n != 0)
            fail_msg("wait %zu ended before its condition held", i);
        OK(sim_stream_write_value(f->sim, other, word, wait->after, wait->width, 0));
        sim_drain(f->sim);
        if (trail.n != 1)
            fail_msg("wait %zu goes on although its condition holds", i);
        fixture_end(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_ends_when_its_condition_holds),
    };
    return cmocka_run_group_tests_name("sim/values", tests, NULL, NULL);
}
