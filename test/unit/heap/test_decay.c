/* SPDX-License-Identifier: MIT */
/* Decay: what was not needed for a window goes back in slices. Looks are the clock. Pages of 16
 * MiB, each an extent unless a test says otherwise, and a slack of 16 pages or 2 percent. */
#include "fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define SLACK 16
#define SLICE 32 /* extents */
#define MANY 2048

static struct fixture f;
static CUstream stream;

static void set_up_with(const struct fixture_params *params)
{
    fixture_setup(&f, params);
    stream = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
}

static void params_eager(struct fixture_params *params)
{
    fixture_params_cache(params);
    params->sim.eager = true;
}

static int set_up(void **state)
{
    (void)state;
    struct fixture_params params;
    params_eager(&params);
    set_up_with(&params);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_teardown(&f);
    return 0;
}

static uint64_t held(void)
{
    return fixture_totals(&f).held_pages;
}

/* One interval of the clock, with all slices that it has. Returns how many gave something back. */
static unsigned pass_slot_keeping(uint64_t keep_bytes)
{
    unsigned n = 0;
    vpmm_heap_decay_look(f.heap, true);
    for (bool has_more = true; has_more; n++) {
        uint64_t before = held();
        has_more = vpmm_heap_decay_slice(f.heap, keep_bytes);
        fixture_audit(&f);
        assert_true(before - held() <= SLICE);
    }
    return n - 1;
}

static unsigned pass_slot(void)
{
    return pass_slot_keeping(0);
}

static void pass_window(void)
{
    for (int i = 0; i <= VPMM_DECAY_SLOTS; i++)
        (void)pass_slot();
}

/* A peak that is over, and was before the window began. */
static void have_had(uint64_t pages)
{
    fixture_cycle(&f, pages, stream);
    assert_int_equal(held(), pages);
}

static uint64_t memory_calls(void)
{
    return sim_calls(f.sim, "cuMemCreate") + sim_calls(f.sim, "cuMemMap") +
           sim_calls(f.sim, "cuMemUnmap") + sim_calls(f.sim, "cuMemRelease");
}

static uint64_t event_calls(void)
{
    return sim_calls(f.sim, "cuEventRecord") + sim_calls(f.sim, "cuCtxRecordEvent");
}

static void what_a_window_did_not_need_goes_back_in_slices(void **state)
{
    (void)state;
    struct vpmm_heap_counts counts;
    have_had(MANY);
    for (int i = 0; i < VPMM_DECAY_SLOTS; i++) {
        fixture_cycle(&f, 64, stream);
        assert_int_equal(pass_slot(), 0);
    }
    assert_int_equal(held(), MANY);
    fixture_cycle(&f, 64, stream);
    unsigned slices = pass_slot();
    assert_int_equal(held(), 64 + SLACK);
    assert_int_equal(slices, (MANY - 64 - SLACK + SLICE - 1) / SLICE);
    vpmm_heap_counts(f.heap, &counts);
    assert_int_equal(counts.decayed_bytes, (MANY - 64 - SLACK) * f.page_bytes);
    assert_int_equal(counts.trimmed_bytes, 0);
}

/* Peaks that come and go between two looks count, too, and so does what lies in no front cache. */
static void a_need_that_comes_back_in_time_costs_nothing(void **state)
{
    (void)state;
    have_had(MANY);
    pass_window();
    fixture_cycle(&f, 1000, stream);
    uint64_t needed = held();
    uint64_t before = memory_calls();
    for (int i = 0; i < 10 * VPMM_DECAY_SLOTS; i++) {
        if (i % VPMM_DECAY_SLOTS == 0)
            fixture_cycle(&f, 1000, stream);
        fixture_cycle(&f, 10, NULL);
        (void)pass_slot();
    }
    assert_int_equal(held(), needed);
    assert_true(before > 0);
    assert_int_equal(memory_calls(), before);
}

/* What is live is needed even if nobody asks for anything. */
static void what_is_live_stays(void **state)
{
    (void)state;
    uint64_t p = fixture_malloc(&f, 500, stream);
    fixture_cycle(&f, 100, NULL);
    pass_window();
    assert_int_equal(held(), 500 + SLACK);
    fixture_free(&f, p, stream);
    pass_window();
    assert_int_equal(held(), SLACK);
}

/* Sixty blocks lie in the stream's front cache, which serves one of them again and again. */
static void what_a_front_cache_hoards_goes_back(void **state)
{
    (void)state;
    uint64_t p[60];
    for (int i = 0; i < 60; i++)
        p[i] = fixture_malloc(&f, 8, stream);
    for (int i = 0; i < 60; i++)
        fixture_free(&f, p[i], stream);
    for (int i = 0; i < 2 * VPMM_DECAY_SLOTS; i++) {
        for (int n = 0; n < 5; n++)
            fixture_cycle(&f, 8, stream);
        (void)pass_slot();
    }
    assert_int_equal(held(), 8 + SLACK);
    assert_true(fixture_hits(&f) > (uint64_t)3 * VPMM_DECAY_SLOTS);
}

static void a_loop_in_a_front_cache_costs_nothing(void **state)
{
    (void)state;
    uint64_t p[60];
    uint64_t before = 0;
    for (int round = 0; round < 4 * VPMM_DECAY_SLOTS; round++) {
        for (int i = 0; i < 60; i++)
            p[i] = fixture_malloc(&f, 8, stream);
        for (int i = 0; i < 60; i++)
            fixture_free(&f, p[i], stream);
        before = round == 0 ? memory_calls() : before;
        (void)pass_slot();
    }
    assert_int_equal(memory_calls(), before);
    assert_int_equal(held(), 480);
}

/* Nothing is done before the work on it is. */
static void what_is_pending_is_needed(void **state)
{
    (void)state;
    volatile bool gate = false;
    uint64_t p = fixture_malloc(&f, 512, stream);
    fixture_work(&f, stream, p, 512, true, &gate);
    fixture_free(&f, p, stream);
    fixture_cycle(&f, 256, fixture_stream(&f, CU_STREAM_NON_BLOCKING));
    pass_window();
    assert_int_equal(held(), 512 + SLACK);
    gate = true;
    (void)sim_drain(f.sim);
    pass_window();
    assert_int_equal(held(), SLACK);
}

static void slack_spare_and_eager_pages_stay(void **state)
{
    (void)state;
    struct fixture_params params;
    fixture_teardown(&f);
    params_eager(&params);
    params.heap.spare_percent = 20;
    params.heap.eager_pages = 64;
    set_up_with(&params);
    pass_window();
    assert_int_equal(held(), 64);
    have_had(MANY);
    uint64_t p = fixture_malloc(&f, 1000, stream);
    pass_window();
    assert_int_equal(held(), 1200);
    fixture_free(&f, p, stream);
    pass_window();
    assert_int_equal(held(), 64);
}

static void what_is_to_be_kept_stays(void **state)
{
    (void)state;
    have_had(MANY);
    for (int i = 0; i <= VPMM_DECAY_SLOTS; i++)
        (void)pass_slot_keeping(500 * f.page_bytes);
    assert_int_equal(held(), 500);
    (void)pass_slot_keeping(497 * f.page_bytes);
    assert_int_equal(held(), 500);
    (void)pass_slot_keeping(496 * f.page_bytes);
    assert_int_equal(held(), 496);
    (void)pass_slot_keeping(UINT64_MAX);
    assert_int_equal(held(), 496);
}

/* An extent goes as a whole or stays: never what the window needed with it. */
static void large_extents_take_nothing_needed_along(void **state)
{
    (void)state;
    struct fixture_params params;
    fixture_teardown(&f);
    params_eager(&params);
    params.heap.extent_pages_max = 512;
    set_up_with(&params);
    have_had(MANY);
    fixture_cycle(&f, 300, stream);
    for (int i = 0; i < 2 * VPMM_DECAY_SLOTS; i++) {
        fixture_cycle(&f, 300, stream);
        vpmm_heap_decay_look(f.heap, true);
        while (vpmm_heap_decay_slice(f.heap, 0))
            fixture_audit(&f);
        assert_true(held() >= 300 + SLACK);
    }
    assert_int_equal(held(), 512);
    uint64_t before = memory_calls();
    fixture_cycle(&f, 300, stream);
    assert_int_equal(memory_calls(), before);
}

/* Requests take the lower end of what is free, so the upper end goes. */
static void the_places_that_requests_take_stay(void **state)
{
    (void)state;
    have_had(MANY);
    uint64_t low = fixture_malloc(&f, 64, stream);
    fixture_free(&f, low, stream);
    pass_window();
    assert_int_equal(held(), SLACK);
    assert_int_equal(fixture_malloc(&f, SLACK, NULL), low);
    fixture_free(&f, low, NULL);
}

static void a_heap_that_holds_little_never_decays(void **state)
{
    (void)state;
    assert_false(vpmm_heap_may_decay(f.heap));
    uint64_t p = fixture_malloc(&f, SLACK + 3, NULL);
    assert_false(vpmm_heap_may_decay(f.heap));
    uint64_t q = fixture_malloc(&f, 1, NULL);
    assert_true(vpmm_heap_may_decay(f.heap));
    fixture_free(&f, p, NULL);
    fixture_free(&f, q, NULL);
}

/* While anything captures no event is recorded; what needs none goes on. The second free leaves a
 * batch open. */
static void nothing_is_recorded_where_it_must_not_be(void **state)
{
    (void)state;
    have_had(MANY);
    fixture_cycle(&f, 8, stream);
    fixture_cycle(&f, 8, stream);
    uint64_t before = event_calls();
    for (int i = 0; i < 2 * VPMM_DECAY_SLOTS; i++) {
        vpmm_heap_decay_look(f.heap, false);
        while (vpmm_heap_decay_slice(f.heap, 0))
            continue;
    }
    assert_int_equal(event_calls(), before);
    assert_true(held() < MANY);
    (void)pass_slot();
    assert_true(event_calls() > before);
}

/* What was pending while something else was live is a need of both, also between two looks. */
static void what_was_pending_counts_to_the_highest_need(void **state)
{
    (void)state;
    volatile bool gate = false;
    (void)pass_slot();
    uint64_t p = fixture_malloc(&f, 512, stream);
    fixture_work(&f, stream, p, 512, true, &gate);
    fixture_free(&f, p, stream);
    fixture_cycle(&f, 256, fixture_stream(&f, CU_STREAM_NON_BLOCKING));
    gate = true;
    (void)sim_drain(f.sim);
    for (int i = 0; i < VPMM_DECAY_SLOTS; i++)
        (void)pass_slot();
    assert_int_equal(held(), 768);
    (void)pass_slot();
    assert_int_equal(held(), SLACK);
}

static void a_driver_that_refuses_loses_nothing(void **state)
{
    (void)state;
    struct vpmm_heap_counts counts;
    have_had(MANY);
    sim_fault_set(f.sim, "cuMemRelease", 1, CUDA_ERROR_UNKNOWN, true);
    pass_window();
    assert_int_equal(held(), MANY);
    vpmm_heap_counts(f.heap, &counts);
    assert_int_equal(counts.decayed_bytes, 0);
    sim_fault_clear(f.sim, NULL);
    (void)pass_slot();
    assert_int_equal(held(), SLACK);
}

/* Old addresses that show what could go are unmapped, and only for that; it may take two looks. */
static void old_addresses_give_way(void **state)
{
    (void)state;
    uint64_t p[200];
    for (int i = 0; i < 200; i++)
        p[i] = fixture_malloc(&f, 2, stream);
    for (int i = 0; i < 200; i += 2)
        fixture_free(&f, p[i], stream);
    uint64_t q = fixture_malloc(&f, 200, stream);
    uint64_t zombies = fixture_totals(&f).zombie_pages;
    assert_int_equal(zombies, 200);
    pass_window();
    assert_int_equal(fixture_totals(&f).zombie_pages, zombies);
    fixture_free(&f, q, stream);
    for (int i = 1; i < 200; i += 2)
        fixture_free(&f, p[i], stream);
    pass_window();
    (void)pass_slot();
    assert_int_equal(held(), SLACK);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_a_window_did_not_need_goes_back_in_slices),
        TEST(a_need_that_comes_back_in_time_costs_nothing),
        TEST(what_is_live_stays),
        TEST(what_a_front_cache_hoards_goes_back),
        TEST(a_loop_in_a_front_cache_costs_nothing),
        TEST(what_is_pending_is_needed),
        TEST(slack_spare_and_eager_pages_stay),
        TEST(what_is_to_be_kept_stays),
        TEST(large_extents_take_nothing_needed_along),
        TEST(the_places_that_requests_take_stay),
        TEST(a_heap_that_holds_little_never_decays),
        TEST(nothing_is_recorded_where_it_must_not_be),
        TEST(what_was_pending_counts_to_the_highest_need),
        TEST(a_driver_that_refuses_loses_nothing),
        TEST(old_addresses_give_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
