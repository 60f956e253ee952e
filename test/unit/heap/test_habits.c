/* SPDX-License-Identifier: MIT */
/* Habits: a program that repeats itself meets the same places, and calls no driver for them. */
#include "fixture.h"

#include "heap/heap_internal.h"
#include "pool/pool_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define PAGE (16 * MIB)

static struct vpmm_heap_counts counts_of(struct fixture *f)
{
    struct vpmm_heap_counts counts;
    vpmm_heap_counts(f->heap, &counts);
    return counts;
}

/* One round: what lies between two small blocks is put together from what was freed before. */
#define ROUND 6
static void play(struct fixture *f, CUstream stream, CUstream freeing,
                 uint64_t addresses_out[ROUND])
{
    static const uint64_t pages[ROUND] = {8, 2, 12, 2, 16, 20};
    for (int i = 0; i < 5; i++)
        addresses_out[i] = fixture_malloc(f, pages[i], stream);
    fixture_free(f, addresses_out[0], freeing);
    fixture_free(f, addresses_out[2], freeing);
    addresses_out[5] = fixture_malloc(f, pages[5], stream);
    fixture_free(f, addresses_out[1], freeing);
    fixture_free(f, addresses_out[5], freeing);
    fixture_free(f, addresses_out[4], freeing);
    fixture_free(f, addresses_out[3], freeing);
}

/* The first round makes what the second finds; `has_moves`: it did so by moving pages. */
static void expect_the_same_again(struct fixture *f, CUstream stream, CUstream freeing,
                                  bool has_moves)
{
    uint64_t first[ROUND];
    uint64_t again[ROUND];
    play(f, stream, freeing, first);
    assert_int_equal(fixture_totals(f).moved_pages > 0, has_moves);
    uint64_t creates = sim_calls(f->sim, "cuMemCreate");
    uint64_t maps = sim_calls(f->sim, "cuMemMap");
    struct vpmm_heap_counts before = counts_of(f);
    for (int round = 0; round < 3; round++) {
        play(f, stream, freeing, again);
        assert_memory_equal(again, first, sizeof first);
    }
    assert_int_equal(sim_calls(f->sim, "cuMemCreate"), creates);
    assert_int_equal(sim_calls(f->sim, "cuMemMap"), maps);
    struct vpmm_heap_counts after = counts_of(f);
    assert_int_equal(after.habit_hits + after.cache_hits,
                     before.habit_hits + before.cache_hits + 3 * (uint64_t)ROUND);
}

static void a_round_that_recurs_is_served_where_it_was(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    expect_the_same_again(&f, a, a, true);
    fixture_teardown(&f);
}

static void so_is_one_of_cudamalloc(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    expect_the_same_again(&f, NULL, NULL, true);
    fixture_teardown(&f);
}

static void so_is_one_whose_blocks_another_stream_frees(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    expect_the_same_again(&f, a, b, true);
    expect_the_same_again(&f, a, NULL, true);
    fixture_teardown(&f);
}

static void the_lane_gives_what_the_habit_says(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, a);
    uint64_t q = fixture_malloc(&f, 4, a);
    for (int i = 0; i < 3; i++) {
        fixture_free(&f, p, a);
        fixture_free(&f, q, a);
        uint64_t hits = fixture_hits(&f);
        assert_int_equal(fixture_malloc(&f, 4, a), p);
        assert_int_equal(fixture_malloc(&f, 4, a), q);
        assert_int_equal(fixture_hits(&f), hits + 2);
    }
    fixture_teardown(&f);
}

/* Another stream freed what the habit names: the lane's other block of that size is not given. */
static void the_lane_gives_nothing_else(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, a);
    uint64_t q = fixture_malloc(&f, 4, a);
    fixture_free(&f, p, b);
    fixture_free(&f, q, a);
    uint64_t hits = fixture_hits(&f);
    assert_int_equal(fixture_malloc(&f, 4, a), p);
    assert_int_equal(fixture_hits(&f), hits);
    fixture_free(&f, p, a);
    fixture_teardown(&f);
}

/* What is to be put together is had at once, and is told as what the ladder serves. */
static void a_habit_is_served_before_the_ladder(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct vpmm_stream known;
    struct vpmm_served served = {VPMM_WAY_CACHE, VPMM_RUNG_NONE};
    struct vpmm_request request = {
        .bytes = 8 * PAGE, .context = f.context, .stream = &known, .served_out = &served};
    assert_int_equal(vpmm_order_stream(f.order, (vpmm_stream_handle)a, &known), VPMM_OK);
    uint64_t p = fixture_malloc(&f, 8, a), q = 0;
    fixture_free(&f, p, a);
    uint64_t low = fixture_malloc(&f, 4, a), high = fixture_malloc(&f, 4, a);
    assert_false(vpmm_heap_malloc_by_habit(f.heap, &request, &q));
    fixture_free(&f, low, a);
    fixture_free(&f, high, a);
    struct vpmm_heap_counts before = counts_of(&f);
    uint64_t calls = sim_calls(f.sim, NULL);
    assert_true(vpmm_heap_malloc_by_habit(f.heap, &request, &q));
    assert_int_equal(sim_calls(f.sim, NULL), calls);
    struct vpmm_heap_counts after = counts_of(&f);
    assert_int_equal(q, p);
    assert_int_equal(served.rung, VPMM_RUNG_HABIT);
    assert_int_equal(served.way, VPMM_WAY_HABIT);
    assert_int_equal(after.habit_hits, before.habit_hits + 1);
    assert_int_equal(after.rungs[VPMM_RUNG_HABIT], before.rungs[VPMM_RUNG_HABIT] + 1);
    assert_int_equal(after.mallocs, before.mallocs + 1);
    fixture_free(&f, q, a);
    /* Who has been asked for the habit in vain does not try it again. */
    request.was_asked = true;
    assert_int_equal(vpmm_heap_malloc(f.heap, &request, &q), VPMM_OK);
    assert_int_equal(q, p);
    assert_int_equal(served.rung, VPMM_RUNG_FOLLOW);
    fixture_free(&f, p, a);
    fixture_teardown(&f);
}

/* The pool puts together what a habit is about; the lane keeps all else. */
static void a_lane_gives_up_no_more_than_a_habit_is_about(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 8, a);
    fixture_free(&f, p, a);
    uint64_t q = fixture_malloc(&f, 6, a);
    assert_int_equal(q, p);
    uint64_t rest = fixture_malloc(&f, 2, a);
    uint64_t r = fixture_malloc(&f, 3, a);
    fixture_free(&f, q, a);
    fixture_free(&f, rest, a);
    fixture_free(&f, r, a);
    uint64_t hits = fixture_hits(&f);
    assert_int_equal(fixture_malloc(&f, 8, a), p);
    assert_int_equal(fixture_hits(&f), hits);
    assert_int_equal(counts_of(&f).habit_hits, 1);
    assert_int_equal(fixture_malloc(&f, 3, a), r);
    assert_int_equal(fixture_hits(&f), hits + 1);
    fixture_free(&f, p, a);
    fixture_free(&f, r, a);
    fixture_teardown(&f);
}

/* Others choose among all that is free by then, not among what habits have left over. */
/* What the habit takes and what it leaves never enters a tree, and no call of the driver is made.
 */
static void a_habit_in_the_lane_searches_nothing(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 8, a);
    fixture_free(&f, p, a);
    assert_int_equal(fixture_malloc(&f, 6, a), p);
    fixture_free(&f, p, a);
    assert_int_equal(fixture_malloc(&f, 8, a), p);
    fixture_free(&f, p, a);
    vpmm_index_admit(f.heap->pool);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fixture_malloc(&f, 6, a), p);
        assert_int_equal(f.heap->pool->pending.top | f.heap->pool->complete.top, 0);
        fixture_free(&f, p, a);
        assert_int_equal(fixture_malloc(&f, 8, a), p);
        assert_int_equal(f.heap->pool->pending.top | f.heap->pool->complete.top, 0);
        fixture_free(&f, p, a);
    }
    fixture_teardown(&f);
}

/* Even where the pool has something else. */
static void a_habit_of_cudamalloc_is_looked_for_in_all_lanes(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 4, NULL);
    uint64_t q = fixture_malloc(&f, 100, NULL);
    fixture_free(&f, p, a);
    fixture_free(&f, q, NULL);
    assert_int_equal(fixture_malloc(&f, 4, NULL), p);
    fixture_free(&f, p, NULL);
    fixture_teardown(&f);
}

static void a_habit_waits_for_the_work_of_others(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_cache(&params);
    fixture_setup(&f, &params);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t p = fixture_malloc(&f, 4, a);
    fixture_free(&f, p, a);
    assert_int_equal(sim_stream_synchronize(f.sim, a), CUDA_SUCCESS);
    assert_int_equal(fixture_malloc(&f, 4, b), p);
    fixture_work(&f, b, p, 4, true, &gate);
    fixture_free(&f, p, b);
    assert_int_not_equal(fixture_malloc(&f, 4, a), p);
    gate = true;
    fixture_teardown(&f);
}

/* Of two streams that ask for the same where the same is live, each is served where it was. */
static void each_stream_has_its_own(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t p = fixture_malloc(&f, 4, a);
    fixture_work(&f, a, p, 4, true, &gate);
    fixture_free(&f, p, NULL);
    uint64_t q = fixture_malloc(&f, 4, b);
    assert_int_not_equal(q, p);
    fixture_free(&f, q, NULL);
    gate = true;
    assert_int_equal(sim_ctx_synchronize(f.sim), CUDA_SUCCESS);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fixture_malloc(&f, 4, b), q);
        fixture_free(&f, q, b);
        assert_int_equal(fixture_malloc(&f, 4, a), p);
        fixture_free(&f, p, a);
    }
    fixture_teardown(&f);
}

/* What a block adds to the layout that it was asked for in. */
static uint64_t mark_in(struct fixture *f, uint64_t layout, CUstream stream, uint64_t pages)
{
    struct vpmm_stream known = {.id = 0};
    if (stream)
        assert_int_equal(vpmm_order_stream(f->order, (vpmm_stream_handle)(void *)stream, &known),
                         VPMM_OK);
    return vpmm_habit_stamp(vpmm_habit_key(layout, known.id, pages));
}

/* Every block that is live, and no other, is part of the layout, whichever way it came and went. */
static void the_layout_is_what_is_live(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    assert_int_equal(vpmm_habit_layout(f.heap), 0);
    uint64_t p = fixture_malloc(&f, 4, NULL);
    uint64_t layout = vpmm_habit_layout(f.heap);
    assert_int_equal(layout, mark_in(&f, 0, NULL, 4));
    vpmm_heap_context_gone(f.heap, vpmm_context_id(f.context));
    assert_int_equal(vpmm_habit_layout(f.heap), 0);
    assert_int_equal(fixture_malloc(&f, 4, NULL), p);
    assert_int_equal(vpmm_habit_layout(f.heap), layout);
    assert_true(vpmm_heap_give_up(f.heap, p));
    assert_int_equal(vpmm_habit_layout(f.heap), 0);
    vpmm_pool_free(f.heap->pool, p, VPMM_FENCE_NONE, 0);
    for (int i = 0; i < 3; i++) {
        uint64_t q = fixture_malloc(&f, 3, a);
        uint64_t r = fixture_malloc(&f, 100, b);
        uint64_t first = mark_in(&f, 0, a, 3), second = mark_in(&f, first, b, 100);
        assert_int_equal(vpmm_habit_layout(f.heap), first ^ second);
        fixture_free(&f, q, i ? a : b);
        assert_int_equal(vpmm_habit_layout(f.heap), second);
        fixture_free(&f, r, i ? b : NULL);
        assert_int_equal(vpmm_habit_layout(f.heap), 0);
    }
    fixture_teardown(&f);
}

/* A block that cannot be had where it was in the round before lies elsewhere, and what follows it
 * is known all the same. */
static void a_block_that_lies_elsewhere_adds_what_it_added_before(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_eager(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t first = fixture_malloc(&f, 3, a), layout = vpmm_habit_layout(f.heap);
    fixture_free(&f, first, a);
    assert_int_equal(sim_stream_synchronize(f.sim, a), CUDA_SUCCESS);
    vpmm_heap_reap(f.heap);
    assert_int_equal(fixture_malloc(&f, 3, b), first);
    fixture_work(&f, b, first, 3, true, &gate);
    fixture_free(&f, first, b);
    assert_int_not_equal(fixture_malloc(&f, 3, a), first);
    assert_int_equal(vpmm_habit_layout(f.heap), layout);
    gate = true;
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_that_recurs_is_served_where_it_was),
        cmocka_unit_test(so_is_one_of_cudamalloc),
        cmocka_unit_test(so_is_one_whose_blocks_another_stream_frees),
        cmocka_unit_test(the_lane_gives_what_the_habit_says),
        cmocka_unit_test(the_lane_gives_nothing_else),
        cmocka_unit_test(a_habit_is_served_before_the_ladder),
        cmocka_unit_test(a_lane_gives_up_no_more_than_a_habit_is_about),
        cmocka_unit_test(a_habit_in_the_lane_searches_nothing),
        cmocka_unit_test(a_habit_of_cudamalloc_is_looked_for_in_all_lanes),
        cmocka_unit_test(a_habit_waits_for_the_work_of_others),
        cmocka_unit_test(each_stream_has_its_own),
        cmocka_unit_test(the_layout_is_what_is_live),
        cmocka_unit_test(a_block_that_lies_elsewhere_adds_what_it_added_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
