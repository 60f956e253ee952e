/* SPDX-License-Identifier: MIT */
/* What habits must not cost: memory, events, the front caches of other streams. */
#include "fixture.h"

#include "heap/heap_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define PAGE (16 * MIB)

/* One more lane than those with habits. */
#define STREAMS (VPMM_HABIT_LANES + 1)

static uint64_t events_of(struct fixture *f)
{
    struct vpmm_order_totals totals;
    vpmm_order_totals(f->order, &totals);
    return totals.events;
}

/* Blocks that no lane holds each have an event of their own; what is complete is used again. */
static void a_habit_uses_events_again(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 200; i++)
        fixture_cycle(&f, 100, a);
    assert_in_range(events_of(&f), 1, 64);
    fixture_teardown(&f);
}

/* What cudaFree left is complete by now: to know that, no lane has to be emptied. */
static void a_habit_of_cudamalloc_leaves_other_lanes_alone(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, a);
    fixture_cycle(&f, 100, NULL);
    fixture_free(&f, p, a);
    fixture_cycle(&f, 4, a);
    uint64_t hits = fixture_hits(&f);
    for (int i = 0; i < 10; i++) {
        fixture_cycle(&f, 100, NULL);
        fixture_cycle(&f, 4, a);
    }
    assert_int_equal(fixture_hits(&f), hits + 10);
    fixture_teardown(&f);
}

/* What was scattered because another stream had the rest is not scattered again without need. */
#define SCATTERED 64
static void habits_do_not_hold_memory(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    uint64_t large[SCATTERED];
    uint64_t small[SCATTERED];
    fixture_params_cache(&params);
    params.sim.eager = true;
    params.heap.page_bytes = 2 * MIB;
    params.heap.extent_pages_max = 0;
    fixture_setup(&f, &params);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    fixture_cycle(&f, SCATTERED * 64, b);
    for (int i = 0; i < SCATTERED; i++) {
        large[i] = fixture_malloc(&f, 63, b);
        small[i] = fixture_malloc(&f, 1, b);
    }
    for (int i = 0; i < SCATTERED; i++)
        fixture_free(&f, small[i], b);
    for (int i = 0; i < SCATTERED; i++)
        small[i] = fixture_malloc(&f, 1, a);
    for (int i = 0; i < SCATTERED; i++) {
        fixture_free(&f, small[i], a);
        fixture_free(&f, large[i], b);
    }
    vpmm_heap_reap(f.heap);
    for (int i = 0; i < SCATTERED; i++)
        (void)fixture_malloc(&f, 1, a);
    (void)fixture_malloc(&f, SCATTERED * 63, b);
    struct vpmm_pool_totals totals = fixture_totals(&f);
    assert_int_equal(totals.live_pages, totals.live_pages_peak);
    assert_in_range(totals.held_pages, totals.live_pages, totals.live_pages + 128);
    fixture_teardown(&f);
}

/* Where many streams have lanes, each lane serves its youngest: none looks at all the others. */
static void many_streams_have_no_habits_in_their_lanes(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    CUstream streams[STREAMS];
    for (unsigned i = 0; i < STREAMS; i++) {
        streams[i] = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        fixture_cycle(&f, 2, streams[i]);
    }
    CUstream a = streams[0];
    uint64_t p = fixture_malloc(&f, 4, a);
    uint64_t q = fixture_malloc(&f, 4, a);
    for (int i = 0; i < 3; i++) {
        uint64_t hits = fixture_hits(&f);
        fixture_free(&f, p, a);
        fixture_free(&f, q, a);
        assert_int_equal(fixture_malloc(&f, 4, a), q);
        assert_int_equal(fixture_malloc(&f, 4, a), p);
        assert_int_equal(fixture_hits(&f), hits + 2);
        fixture_free(&f, q, a);
        fixture_free(&f, p, a);
        assert_int_equal(fixture_malloc(&f, 4, a), p);
        assert_int_equal(fixture_malloc(&f, 4, a), q);
    }
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_habit_uses_events_again),
        cmocka_unit_test(a_habit_of_cudamalloc_leaves_other_lanes_alone),
        cmocka_unit_test(habits_do_not_hold_memory),
        cmocka_unit_test(many_streams_have_no_habits_in_their_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
