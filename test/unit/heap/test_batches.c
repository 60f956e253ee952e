/* SPDX-License-Identifier: MIT */
/* The front cache on the simulated device: how many frees share an event, and that what it holds
 * never costs memory. */
#include "fixture.h"

#include "heap/heap_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define PAGE (16 * MIB)

static void many_frees_share_an_event(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    fixture_cycle(&f, 4, a);
    uint64_t before = fixture_records(&f);
    for (int i = 0; i < 1024; i++)
        fixture_cycle(&f, 4, a);
    assert_in_range(fixture_records(&f) - before, 1, 1024 / 32);
    fixture_teardown(&f);
}

/* A stream that frees but a few times leaves events behind: its batches have one free, then two,
 * four and so on. */
static void a_streams_first_batches_are_short(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t before = fixture_records(&f);
    for (uint64_t n_batches = 1; n_batches <= 5; n_batches++) {
        for (int i = 0; i < 1 << (n_batches - 1); i++) {
            assert_int_equal(fixture_records(&f) - before, n_batches - 1);
            fixture_cycle(&f, 4, a);
        }
        assert_int_equal(fixture_records(&f) - before, n_batches);
    }
    fixture_teardown(&f);
}

/* What waits for an event that somebody else has to have recorded is bounded in bytes: at 64 MiB of
 * several blocks. */
static void a_batch_is_closed_at_so_many_bytes(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    uint64_t p[6];
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 128; i++)
        fixture_cycle(&f, 4, a);
    for (int i = 0; i < 6; i++)
        p[i] = fixture_malloc(&f, 2, a);
    uint64_t before = fixture_records(&f);
    for (int i = 0; i < 6; i++)
        fixture_free(&f, p[i], a);
    assert_int_equal(fixture_records(&f) - before, 2);
    fixture_teardown(&f);
}

/* Nobody has asked for what the stream frees in so long that its bytes do not matter any more. */
static void a_long_batch_is_not_closed_for_its_bytes(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 2047; i++)
        fixture_cycle(&f, 4, a);
    uint64_t p = fixture_malloc(&f, 4, a);
    uint64_t before = fixture_records(&f);
    for (int i = 0; i < 100; i++) {
        uint64_t q = fixture_malloc(&f, 3, a);
        fixture_free(&f, p, a);
        fixture_free(&f, q, a);
        p = fixture_malloc(&f, 4, a);
    }
    assert_int_equal(fixture_records(&f), before);
    fixture_free(&f, p, a);
    fixture_teardown(&f);
}

/* Its own misses gather too, but nobody else waits for what it frees. */
static void a_streams_own_misses_do_not_hurry_it(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 128; i++)
        fixture_cycle(&f, 6, a);
    fixture_cycle(&f, 4, a);
    fixture_cycle(&f, 6, a);
    uint64_t before = fixture_records(&f);
    for (int i = 0; i < 32; i++)
        fixture_cycle(&f, 6, a);
    assert_int_equal(fixture_records(&f), before);
    fixture_teardown(&f);
}

/* What others have asked for is told of at once; then in batches that grow again. */
static void batches_grow_again_after_anothers_request(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    fixture_cycle(&f, 4, a);
    uint64_t p = fixture_malloc(&f, 5, b);
    uint64_t q = fixture_malloc(&f, 4, a);
    uint64_t before = fixture_records(&f);
    fixture_free(&f, q, a);
    assert_int_equal(fixture_records(&f) - before, 1);
    for (int i = 0; i < 2 + 4 + 8 + 16; i++)
        fixture_cycle(&f, 4, a);
    assert_int_equal(fixture_records(&f) - before, 5);
    fixture_free(&f, p, b);
    fixture_teardown(&f);
}

static void in_a_tight_pool_each_free_has_an_event(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_cache(&params);
    params.heap.extent_pages_max = 0;
    fixture_setup(&f, &params);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 64 * GIB / PAGE * 4 / 5, NULL);
    uint64_t before = fixture_records(&f);
    for (int i = 0; i < 8; i++)
        fixture_cycle(&f, 4, a);
    assert_int_equal(fixture_records(&f) - before, 8);
    assert_int_equal(fixture_hits(&f), 7);
    fixture_free(&f, p, NULL);
    fixture_teardown(&f);
}

/* Nobody else could record for it later. */
static void without_records_of_a_context_each_free_has_an_event(void **state)
{
    (void)state;
    static const int versions[] = {12040, 11080};
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        struct fixture f;
        struct fixture_params params;
        fixture_params_cache(&params);
        params.sim.driver_version = versions[i];
        fixture_setup(&f, &params);
        CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        uint64_t p = fixture_malloc(&f, 4, a);
        fixture_work(&f, a, p, 4, true, NULL);
        fixture_free(&f, p, a);
        assert_int_equal(fixture_records(&f), 1);
        assert_int_equal(fixture_malloc(&f, 4, a), p);
        assert_int_equal(fixture_hits(&f), 1);
        fixture_free(&f, p, a);
        assert_int_equal(fixture_records(&f), 2);
        assert_int_equal(sim_stream_synchronize(f.sim, a), CUDA_SUCCESS);
        assert_int_equal(fixture_malloc(&f, 4, b), p);
        fixture_free(&f, p, b);
        fixture_teardown(&f);
    }
}

/* Bare CUDA orders blocking streams by it. */
static void a_free_on_the_legacy_stream_leaves_its_mark(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    fixture_cycle(&f, 4, CU_STREAM_LEGACY);
    uint64_t p = fixture_malloc(&f, 4, CU_STREAM_LEGACY);
    uint64_t before = sim_calls(f.sim, "cuEventRecord");
    fixture_free(&f, p, CU_STREAM_LEGACY);
    assert_int_equal(sim_calls(f.sim, "cuEventRecord"), before + 1);
    p = fixture_malloc(&f, 4, CU_STREAM_LEGACY);
    sim_fault_set(f.sim, "cuEventRecord", 1, CUDA_ERROR_ILLEGAL_ADDRESS, false);
    assert_int_equal(fixture_try_free(&f, p, CU_STREAM_LEGACY), VPMM_BROKEN);
    assert_int_equal(fixture_totals(&f).live_pages, 0);
    assert_int_equal(fixture_hits(&f), 2);
    fixture_teardown(&f);
}

static void what_the_record_of_a_batch_met_is_told(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    fixture_cycle(&f, 4, a);
    uint64_t q = fixture_malloc(&f, 5, b);
    uint64_t p = fixture_malloc(&f, 4, a);
    sim_fault_set(f.sim, "cuEventRecord", 1, CUDA_ERROR_ILLEGAL_ADDRESS, false);
    assert_int_equal(fixture_try_free(&f, p, a), VPMM_BROKEN);
    assert_int_equal(fixture_totals(&f).live_pages, 5);
    fixture_free(&f, q, b);
    fixture_teardown(&f);
}

/* ---- memory ---- */

static void lanes_are_gathered_before_the_pool_grows(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream c = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, a);
    uint64_t q = fixture_malloc(&f, 4, b);
    fixture_free(&f, p, a);
    fixture_free(&f, q, b);
    uint64_t r = fixture_malloc(&f, 8, c);
    assert_int_equal(fixture_totals(&f).held_pages, 8);
    fixture_free(&f, r, c);
    p = fixture_malloc(&f, 8, NULL);
    assert_int_equal(fixture_totals(&f).held_pages, 8);
    assert_int_equal(fixture_hits(&f), 0);
    fixture_free(&f, p, NULL);
    fixture_teardown(&f);
}

/* More streams than lanes: some lose theirs to others. */
static void a_lane_that_changes_hands_gives_its_pages_back(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    static uint64_t blocks[VPMM_LANES + 1];
    CUstream streams[VPMM_LANES + 1];
    for (unsigned i = 0; i <= VPMM_LANES; i++) {
        streams[i] = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        blocks[i] = fixture_malloc(&f, 1, streams[i]);
    }
    for (unsigned i = 0; i <= VPMM_LANES; i++)
        fixture_free(&f, blocks[i], streams[i]);
    assert_true(f.heap->n_evictions > 0);
    assert_int_equal(fixture_totals(&f).free_pages, VPMM_LANES + 1);
    uint64_t n_hits = 0;
    for (unsigned i = 0; i <= VPMM_LANES; i++) {
        struct vpmm_stream known;
        struct vpmm_request request = {.bytes = PAGE, .context = f.context, .stream = &known};
        uint64_t p;
        bool has_habit;
        assert_int_equal(vpmm_order_stream(f.order, (vpmm_stream_handle)streams[i], &known),
                         VPMM_OK);
        if (!vpmm_heap_malloc_cached(f.heap, &request, &p, &has_habit))
            continue;
        assert_int_equal(p, blocks[i]);
        fixture_free(&f, p, NULL);
        n_hits++;
    }
    assert_in_range(n_hits, 1, VPMM_LANES);
    uint64_t all = fixture_malloc(&f, VPMM_LANES + 1, NULL);
    assert_int_equal(fixture_totals(&f).held_pages, VPMM_LANES + 1);
    fixture_free(&f, all, NULL);
    fixture_teardown(&f);
}

/* Where nobody's work is under way, freed memory is all there for a trim. */
/* Frees block by block of one stream, whose work goes on, and then a small request. The other
 * stream asks before that, or does not. The queries of events. */
static uint64_t free_in_a_row(struct fixture *f, CUstream other, const char *layout)
{
    volatile bool gate = false;
    uint64_t p[7];
    CUstream a = fixture_stream(f, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 7; i++)
        p[i] = fixture_malloc(f, 4, a);
    if (other)
        fixture_cycle(f, 1, other);
    fixture_work(f, a, p[0], 4, true, &gate);
    /* The first batches are of one free, of two, and of four. */
    for (int i = 0; i < 7; i++)
        fixture_free(f, p[(3 * i) % 7], a);
    uint64_t n_before = sim_calls(f->sim, "cuEventQuery");
    uint64_t small = fixture_malloc(f, 1, a);
    uint64_t n_queries = sim_calls(f->sim, "cuEventQuery") - n_before;
    assert_string_equal(fixture_layout(f), layout);
    gate = true;
    (void)sim_drain(f->sim);
    fixture_free(f, small, a);
    return n_queries;
}

static void the_only_stream_gets_what_it_freed_as_one_and_asks_no_event(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    assert_int_equal(free_in_a_row(&f, NULL, "[1][-27]"), 0);
    fixture_teardown(&f);
}

static void where_there_is_another_stream_events_are_asked(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_cache(&f);
    CUstream other = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    assert_int_not_equal(free_in_a_row(&f, other, "[-4][-4][-4][-4][-4][-4][-4][1]"), 0);
    fixture_teardown(&f);
}

/* What it freed first is complete, and another stream need not wait for what it freed next to that.
 */
static void what_two_streams_may_want_keeps_its_own_fence(void **state)
{
    (void)state;
    struct fixture f;
    volatile bool gate = false;
    uint64_t other;
    fixture_setup_eager(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t used = fixture_malloc(&f, 1, b);
    uint64_t p = fixture_malloc(&f, 4, a), q = fixture_malloc(&f, 4, a);
    fixture_free(&f, p, a);
    fixture_work(&f, a, q, 4, true, &gate);
    fixture_free(&f, q, a);
    /* Both go to the pool. */
    uint64_t more = fixture_malloc(&f, 1, a);
    enum vpmm_status status = fixture_try_malloc(&f, 4, b, &other);
    uint64_t held = fixture_totals(&f).held_pages;
    gate = true;
    assert_int_equal(status, VPMM_OK);
    assert_int_equal(other, p);
    assert_in_range(held, 9, 10);
    fixture_free(&f, other, b);
    fixture_free(&f, more, a);
    fixture_free(&f, used, b);
    fixture_teardown(&f);
}

static void what_lanes_hold_can_be_given_back(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    fixture_cycle(&f, 4, a);
    vpmm_heap_reap(f.heap);
    assert_int_equal(vpmm_heap_releasable_bytes(f.heap), 4 * PAGE);
    fixture_cycle(&f, 4, a);
    assert_int_equal(vpmm_heap_trim(f.heap, UINT64_MAX), 4 * PAGE);
    assert_int_equal(fixture_totals(&f).held_pages, 0);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_frees_share_an_event),
        cmocka_unit_test(a_streams_first_batches_are_short),
        cmocka_unit_test(a_batch_is_closed_at_so_many_bytes),
        cmocka_unit_test(a_long_batch_is_not_closed_for_its_bytes),
        cmocka_unit_test(a_streams_own_misses_do_not_hurry_it),
        cmocka_unit_test(batches_grow_again_after_anothers_request),
        cmocka_unit_test(in_a_tight_pool_each_free_has_an_event),
        cmocka_unit_test(without_records_of_a_context_each_free_has_an_event),
        cmocka_unit_test(a_free_on_the_legacy_stream_leaves_its_mark),
        cmocka_unit_test(what_the_record_of_a_batch_met_is_told),
        cmocka_unit_test(lanes_are_gathered_before_the_pool_grows),
        cmocka_unit_test(a_lane_that_changes_hands_gives_its_pages_back),
        cmocka_unit_test(the_only_stream_gets_what_it_freed_as_one_and_asks_no_event),
        cmocka_unit_test(where_there_is_another_stream_events_are_asked),
        cmocka_unit_test(what_two_streams_may_want_keeps_its_own_fence),
        cmocka_unit_test(what_lanes_hold_can_be_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
