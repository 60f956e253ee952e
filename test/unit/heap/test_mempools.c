/* SPDX-License-Identifier: MIT */
/* CUDA's memory pools over one heap: what each has, had and reserves, and what the program chose
 * for it. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Streams with a lane each, more than requests from lanes sum up. */
#define MANY 7

static struct fixture f;
static struct vpmm_mempool standard, one, two;

static int setup(void **state)
{
    (void)state;
    struct fixture_params params;
    fixture_params_cache(&params);
    params.heap.extent_pages_max = 1;
    fixture_setup(&f, &params);
    standard = one = two = (struct vpmm_mempool){0};
    vpmm_mempool_init(&standard, VPMM_MEMPOOL_DEFAULT, 0);
    vpmm_mempool_init(&one, VPMM_MEMPOOL_FIRST, 0);
    vpmm_mempool_init(&two, VPMM_MEMPOOL_FIRST + 1, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fixture_teardown(&f);
    return 0;
}

static uint64_t take(struct vpmm_mempool *mempool, uint64_t pages, CUstream stream)
{
    f.mempool = mempool;
    return fixture_malloc(&f, pages, stream);
}

static struct vpmm_mempool_figures figures_of(struct vpmm_mempool *mempool)
{
    struct vpmm_mempool_figures figures;
    vpmm_heap_mempool_figures(f.heap, mempool, &figures);
    return figures;
}

#define USED(mempool) (figures_of(mempool).used_bytes / f.page_bytes)
#define USED_HIGH(mempool) (figures_of(mempool).used_high_bytes / f.page_bytes)
#define RESERVED(mempool) (figures_of(mempool).reserved_bytes / f.page_bytes)
#define RESERVED_HIGH(mempool) (figures_of(mempool).reserved_high_bytes / f.page_bytes)

static void each_block_counts_to_its_own(void **state)
{
    (void)state;
    CUstream s = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t plain = fixture_malloc(&f, 5, NULL);
    uint64_t p = take(&standard, 4, s);
    uint64_t q = take(&one, 2, s);
    uint64_t r = take(&two, 1, s);
    struct vpmm_region_view view;
    assert_int_equal(vpmm_heap_find(f.heap, q, &view), VPMM_OK);
    assert_int_equal(view.owner.mempool, one.number);
    assert_int_equal(USED(&standard), 4);
    assert_int_equal(USED(&one), 2);
    assert_int_equal(USED(&two), 1);
    fixture_free(&f, plain, s);
    fixture_free(&f, r, s);
    assert_int_equal(USED(&standard), 4);
    assert_int_equal(USED(&two), 0);
    assert_int_equal(USED_HIGH(&two), 1);
    fixture_free(&f, q, NULL);
    assert_int_equal(USED(&one), 0);
    fixture_free(&f, p, s);
    assert_int_equal(USED(&standard), 0);
    assert_int_equal(USED_HIGH(&standard), 4);
}

/* What one freed another has next, from the same lane. */
static void a_lane_serves_all_of_them(void **state)
{
    (void)state;
    CUstream s = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    fixture_free(&f, take(&one, 4, s), s);
    uint64_t hits = fixture_hits(&f);
    uint64_t p = take(&two, 4, s);
    assert_int_equal(fixture_hits(&f), hits + 1);
    assert_int_equal(USED(&one), 0);
    assert_int_equal(USED(&two), 4);
    fixture_free(&f, p, s);
    p = take(&standard, 4, s);
    assert_int_equal(fixture_hits(&f), hits + 2);
    assert_int_equal(USED(&standard), 4);
    assert_int_equal(USED(&two), 0);
    fixture_free(&f, p, s);
}

static void the_highest_is_seen_also_where_lanes_serve(void **state)
{
    (void)state;
    CUstream s[2];
    uint64_t p[2];
    for (int i = 0; i < 2; i++) {
        s[i] = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        p[i] = take(&standard, 4, s[i]);
    }
    for (int i = 0; i < 2; i++)
        fixture_free(&f, p[i], s[i]);
    vpmm_heap_mempool_reset_used(f.heap, &standard);
    assert_int_equal(USED_HIGH(&standard), 0);
    uint64_t hits = fixture_hits(&f);
    for (int i = 0; i < 2; i++)
        p[i] = take(&standard, 4, s[i]);
    for (int i = 0; i < 2; i++)
        fixture_free(&f, p[i], s[i]);
    assert_int_equal(fixture_hits(&f), hits + 2);
    assert_int_equal(USED_HIGH(&standard), 8);
}

/* Also of a block that is smaller than all that was reserved before. */
static void the_highest_begins_anew_where_no_lane_serves(void **state)
{
    (void)state;
    CUstream s = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    fixture_free(&f, take(&standard, 16, s), s);
    vpmm_heap_mempool_reset_used(f.heap, &standard);
    uint64_t hits = fixture_hits(&f);
    fixture_free(&f, take(&standard, 8, s), s);
    assert_int_equal(fixture_hits(&f), hits);
    assert_int_equal(USED_HIGH(&standard), 8);
    assert_int_equal(RESERVED_HIGH(&standard), 16);
}

static void of_many_lanes_what_is_used_is_right(void **state)
{
    (void)state;
    CUstream s[MANY];
    uint64_t p[MANY];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            if (!round)
                s[i] = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
            p[i] = take(i % 2 ? &one : &standard, 4, s[i]);
        }
        assert_int_equal(USED(&standard), 4 * ((MANY + 1) / 2));
        assert_int_equal(USED(&one), 4 * (MANY / 2));
        for (int i = 0; i < MANY; i++)
            fixture_free(&f, p[i], s[i]);
    }
    assert_int_equal(USED_HIGH(&standard), 4 * ((MANY + 1) / 2));
}

/* The default one has what is free, but nothing where it was never asked. */
static void what_is_reserved(void **state)
{
    (void)state;
    CUstream s = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t plain = fixture_malloc(&f, 8, NULL);
    fixture_free(&f, fixture_malloc(&f, 8, NULL), NULL);
    assert_true(fixture_totals(&f).held_pages > 8);
    assert_int_equal(RESERVED(&standard), 0);
    uint64_t p = take(&standard, 4, s);
    assert_int_equal(RESERVED(&standard), fixture_totals(&f).held_pages - 8);
    assert_int_equal(RESERVED_HIGH(&standard), fixture_totals(&f).held_pages - 8);
    uint64_t q = take(&one, 2, s);
    assert_int_equal(RESERVED(&one), 2);
    assert_int_equal(RESERVED(&standard), fixture_totals(&f).held_pages - 10);
    fixture_free(&f, q, s);
    assert_int_equal(RESERVED(&one), 2);
    fixture_free(&f, p, s);
    fixture_free(&f, plain, NULL);
}

/* As where the device had no room for what CUDA's own functions were asked for. */
static void a_pool_has_not_what_the_device_has_had_back(void **state)
{
    (void)state;
    CUstream s = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    fixture_free(&f, take(&one, 16, s), s);
    fixture_finish(&f);
    assert_int_equal(RESERVED(&one), 16);
    assert_int_equal(vpmm_heap_trim(f.heap, UINT64_MAX), 16 * f.page_bytes);
    assert_int_equal(RESERVED(&one), 0);
    assert_int_equal(RESERVED_HIGH(&one), 16);
    uint64_t p = take(&one, 4, s);
    uint64_t q = take(&two, 8, s);
    assert_int_equal(RESERVED(&one), fixture_totals(&f).held_pages - 8);
    assert_true(RESERVED(&one) < 16);
    fixture_free(&f, p, s);
    fixture_free(&f, q, s);
    fixture_finish(&f);
    assert_int_equal(RESERVED(&one), fixture_totals(&f).held_pages);
}

static void a_limit_counts_live_blocks(void **state)
{
    (void)state;
    CUstream s = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    vpmm_mempool_init(&one, VPMM_MEMPOOL_FIRST, 4 * f.page_bytes - 1);
    assert_true(vpmm_heap_mempool_has_room(f.heap, &standard, UINT64_MAX));
    assert_true(vpmm_heap_mempool_has_room(f.heap, &one, 4 * f.page_bytes));
    assert_false(vpmm_heap_mempool_has_room(f.heap, &one, 4 * f.page_bytes + 1));
    uint64_t p = take(&one, 2, s);
    uint64_t q = take(&two, 8, s);
    assert_true(vpmm_heap_mempool_has_room(f.heap, &one, 2 * f.page_bytes));
    assert_false(vpmm_heap_mempool_has_room(f.heap, &one, 2 * f.page_bytes + 1));
    fixture_free(&f, p, s);
    assert_true(vpmm_heap_mempool_has_room(f.heap, &one, 4 * f.page_bytes));
    fixture_free(&f, q, s);
}

/* Blocks of `mempool` that `s` freed, all of whose work is complete: whether `t` gets those pages.
 */
static bool gets_what_is_complete(struct vpmm_mempool *mempool, CUstream s, CUstream t,
                                  bool is_synchronised)
{
    fixture_free(&f, take(mempool, 4, s), s);
    fixture_finish(&f);
    if (is_synchronised)
        vpmm_heap_reap(f.heap);
    uint64_t before = fixture_totals(&f).held_pages;
    fixture_free(&f, take(mempool, 4, t), t);
    bool gets = fixture_totals(&f).held_pages == before;
    fixture_finish(&f);
    (void)vpmm_heap_trim(f.heap, UINT64_MAX);
    return gets;
}

static void a_cautious_one_reuses_what_a_synchronisation_has_shown(void **state)
{
    (void)state;
    CUstream s = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream t = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    assert_true(gets_what_is_complete(&one, s, t, false));
    vpmm_atomic_store(&one.is_cautious, 1);
    assert_true(gets_what_is_complete(&one, s, s, false));
    assert_false(gets_what_is_complete(&one, s, t, false));
    assert_true(gets_what_is_complete(&one, s, t, true));
    assert_true(gets_what_is_complete(&two, s, t, false));
}

static void a_stream_waits_for_another_only_where_it_may(void **state)
{
    (void)state;
    CUstream s = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream t = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    struct vpmm_heap_counts counts;
    uint64_t address;
    uint64_t most = fixture_device_free_bytes(&f) / f.page_bytes;
    uint64_t p = take(&one, most, s);
    fixture_work(&f, s, p, most, true, &gate);
    fixture_free(&f, p, s);
    vpmm_atomic_store(&one.waits_never, 1);
    f.mempool = &one;
    assert_int_equal(fixture_try_malloc(&f, 4, t, &address), VPMM_NO_MEMORY);
    vpmm_heap_counts(f.heap, &counts);
    assert_int_equal(counts.stream_waits, 0);
    uint64_t q = take(&two, 4, t);
    vpmm_heap_counts(f.heap, &counts);
    assert_int_equal(counts.stream_waits, 1);
    gate = true;
    assert_int_equal(sim_stream_synchronize(f.sim, t), CUDA_SUCCESS);
    fixture_free(&f, q, t);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_block_counts_to_its_own),
        TEST(a_lane_serves_all_of_them),
        TEST(the_highest_is_seen_also_where_lanes_serve),
        TEST(the_highest_begins_anew_where_no_lane_serves),
        TEST(of_many_lanes_what_is_used_is_right),
        TEST(what_is_reserved),
        TEST(a_pool_has_not_what_the_device_has_had_back),
        TEST(a_limit_counts_live_blocks),
        TEST(a_cautious_one_reuses_what_a_synchronisation_has_shown),
        TEST(a_stream_waits_for_another_only_where_it_may),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
