/* SPDX-License-Identifier: MIT */
/* What a trim of one of CUDA's memory pools gives back, and what it leaves reserved. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct fixture f;
static struct vpmm_mempool standard, one;

static int setup_extents(uint64_t extent_pages_max)
{
    struct fixture_params params;
    fixture_params_cache(&params);
    params.heap.extent_pages_max = extent_pages_max;
    fixture_setup(&f, &params);
    vpmm_mempool_init(&standard, VPMM_MEMPOOL_DEFAULT, 0);
    vpmm_mempool_init(&one, VPMM_MEMPOOL_FIRST, 0);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return setup_extents(1);
}

static int setup_large_extents(void **state)
{
    (void)state;
    return setup_extents(64);
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

static uint64_t reserved(struct vpmm_mempool *mempool)
{
    struct vpmm_mempool_figures figures;
    vpmm_heap_mempool_figures(f.heap, mempool, &figures);
    return figures.reserved_bytes / f.page_bytes;
}

static uint64_t reserved_high(struct vpmm_mempool *mempool)
{
    struct vpmm_mempool_figures figures;
    vpmm_heap_mempool_figures(f.heap, mempool, &figures);
    return figures.reserved_high_bytes / f.page_bytes;
}

static void trimming_gives_back_to_the_device(void **state)
{
    (void)state;
    CUstream s = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t before = fixture_device_free_bytes(&f);
    uint64_t p = take(&one, 8, s);
    uint64_t q = take(&one, 16, s);
    fixture_free(&f, q, s);
    fixture_finish(&f);
    vpmm_heap_mempool_trim(f.heap, &one, UINT64_MAX, true);
    assert_int_equal(reserved(&one), 24);
    vpmm_heap_mempool_trim(f.heap, &one, 20 * f.page_bytes, true);
    assert_int_equal(reserved(&one), 20);
    assert_int_equal(fixture_totals(&f).held_pages, 20);
    vpmm_heap_mempool_trim(f.heap, &one, 0, true);
    assert_int_equal(reserved(&one), 8);
    assert_int_equal(reserved_high(&one), 24);
    assert_int_equal(before - fixture_device_free_bytes(&f), 8 * f.page_bytes);
    vpmm_heap_mempool_reset_reserved(f.heap, &one);
    assert_int_equal(reserved_high(&one), 8);
    fixture_free(&f, p, s);
    p = take(&standard, 8, s);
    fixture_free(&f, p, s);
    fixture_finish(&f);
    vpmm_heap_mempool_trim(f.heap, &standard, 0, true);
    assert_int_equal(reserved(&standard), 0);
    assert_int_equal(fixture_totals(&f).held_pages, 0);
    assert_int_equal(before, fixture_device_free_bytes(&f));
}

/* Work that is not complete keeps its pages, and a later trim gives them back. */
static void trim_with_work_under_way(struct vpmm_mempool *mempool)
{
    CUstream s = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t p = take(mempool, 8, s);
    fixture_work(&f, s, p, 8, true, &gate);
    fixture_free(&f, p, s);
    vpmm_heap_mempool_trim(f.heap, mempool, 0, true);
    assert_int_equal(fixture_totals(&f).held_pages, 8);
    assert_int_equal(reserved(mempool), 8);
    gate = true;
    fixture_finish(&f);
    vpmm_heap_mempool_trim(f.heap, mempool, 0, true);
    assert_int_equal(fixture_totals(&f).held_pages, 0);
}

static void trimming_takes_nothing_from_work_under_way(void **state)
{
    (void)state;
    trim_with_work_under_way(&standard);
    trim_with_work_under_way(&one);
}

/* Also where a trim gives back what others freed. */
static void what_is_pending_stays_reserved(void **state)
{
    (void)state;
    CUstream s = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    uint64_t p = take(&one, 8, s);
    uint64_t live = take(&one, 2, s);
    fixture_free(&f, take(&standard, 16, s), s);
    fixture_finish(&f);
    fixture_work(&f, s, p, 8, true, &gate);
    fixture_free(&f, p, s);
    uint64_t before = fixture_totals(&f).held_pages;
    vpmm_heap_mempool_trim(f.heap, &one, 0, true);
    assert_true(fixture_totals(&f).held_pages < before);
    assert_int_equal(reserved(&one), 10);
    gate = true;
    fixture_finish(&f);
    assert_int_equal(reserved(&one), 10);
    vpmm_heap_mempool_trim(f.heap, &one, 0, true);
    assert_int_equal(reserved(&one), 2);
    fixture_free(&f, live, s);
}

/* An extent that holds more than may go stays, unless more may go. */
static void what_a_trim_is_to_keep_stays(void **state)
{
    (void)state;
    CUstream s = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    for (int keeps_all = 1; keeps_all >= 0; keeps_all--) {
        fixture_free(&f, take(&standard, 64, s), s);
        fixture_finish(&f);
        uint64_t keep = fixture_totals(&f).held_pages - 1;
        vpmm_heap_mempool_trim(f.heap, &standard, keep * f.page_bytes, keeps_all);
        assert_true(keeps_all ? reserved(&standard) >= keep : reserved(&standard) < keep);
        vpmm_heap_mempool_trim(f.heap, &standard, 0, true);
        assert_int_equal(fixture_totals(&f).held_pages, 0);
    }
}

/* It has 40 pages of two extents of 32, and the second one goes as well. */
static void what_keeps_nothing_leaves_no_rest(void **state)
{
    (void)state;
    CUstream s = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    fixture_free(&f, take(&standard, 64, s), s);
    fixture_free(&f, take(&one, 40, s), s);
    fixture_finish(&f);
    assert_int_equal(reserved(&one), 40);
    vpmm_heap_mempool_trim(f.heap, &one, 0, true);
    assert_int_equal(fixture_totals(&f).held_pages, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(trimming_gives_back_to_the_device),
        TEST(trimming_takes_nothing_from_work_under_way),
        TEST(what_is_pending_stays_reserved),
        cmocka_unit_test_setup_teardown(what_a_trim_is_to_keep_stays, setup_large_extents,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_keeps_nothing_leaves_no_rest, setup_large_extents,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
