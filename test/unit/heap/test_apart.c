/* SPDX-License-Identifier: MIT */
/* Blocks of cudaMalloc that may be exported are kept apart from others: what an importer gets holds
 * nothing else. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define WHOLE 8u /* pages: two extents */
#define PART 3u

static struct fixture f;

static void set_up(bool exports_whole, uint64_t limit_pages)
{
    struct fixture_params params;
    fixture_params_cache(&params);
    params.sim.eager = true;
    params.heap.extent_pages_max = 0;
    params.heap.exports_whole = exports_whole;
    params.heap.limit_bytes = limit_pages * params.heap.page_bytes;
    fixture_setup(&f, &params);
}

static enum vpmm_status export(uint64_t address, uint64_t *shared_bytes_out) {
    struct vpmm_region_view view; assert_int_equal(vpmm_heap_find(f.heap, address, &view), VPMM_OK);
        return vpmm_heap_export(f.heap, address, view.owner.id, shared_bytes_out);
}

/* Free memory in extents larger than a part, out of every front cache. */
static void leave_free(void)
{
    fixture_free(&f, fixture_malloc(&f, WHOLE, NULL), NULL);
    (void)vpmm_heap_trim(f.heap, 0);
}

static void blocks_are_apart_from_the_first_export_on(void **state)
{
    (void)state;
    uint64_t shared;
    set_up(false, 0);
    leave_free();
    uint64_t early = fixture_malloc(&f, PART, NULL);
    assert_int_equal(fixture_totals(&f).held_pages, WHOLE);
    assert_int_equal(export(early, &shared), VPMM_OK);
    assert_int_equal(shared, f.page_bytes);
    uint64_t late = fixture_malloc(&f, PART, NULL);
    assert_int_equal(export(late, &shared), VPMM_OK);
    assert_int_equal(shared, 0);
    assert_int_equal(fixture_totals(&f).held_pages, WHOLE + PART);
    fixture_free(&f, early, NULL);
    fixture_free(&f, late, NULL);
    fixture_teardown(&f);
}

/* It was served before the first export, and freed after it. */
static void a_front_cache_gives_no_block_that_shares(void **state)
{
    (void)state;
    uint64_t shared;
    set_up(false, 0);
    leave_free();
    uint64_t one = fixture_malloc(&f, PART, NULL), other = fixture_malloc(&f, PART, NULL);
    assert_int_equal(export(one, &shared), VPMM_OK);
    fixture_free(&f, other, NULL);
    uint64_t next = fixture_malloc(&f, PART, NULL);
    assert_int_not_equal(next, other);
    assert_int_equal(export(next, &shared), VPMM_OK);
    assert_int_equal(shared, 0);
    fixture_free(&f, next, NULL);
    fixture_free(&f, one, NULL);
    fixture_teardown(&f);
}

static void a_front_cache_gives_blocks_that_are_apart(void **state)
{
    (void)state;
    set_up(true, 0);
    leave_free();
    uint64_t p = fixture_malloc(&f, PART, NULL);
    fixture_free(&f, p, NULL);
    uint64_t hits = fixture_hits(&f);
    assert_int_equal(fixture_malloc(&f, PART, NULL), p);
    assert_int_equal(fixture_hits(&f), hits + 1);
    fixture_free(&f, p, NULL);
    fixture_teardown(&f);
}

static void blocks_can_be_apart_from_the_start(void **state)
{
    (void)state;
    uint64_t shared;
    set_up(true, 0);
    leave_free();
    uint64_t first = fixture_malloc(&f, PART, NULL);
    assert_int_equal(export(first, &shared), VPMM_OK);
    assert_int_equal(shared, 0);
    CUstream stream = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t held = fixture_totals(&f).held_pages;
    uint64_t async = fixture_malloc(&f, PART, stream);
    assert_int_equal(fixture_totals(&f).held_pages, held);
    fixture_free(&f, async, stream);
    fixture_free(&f, first, NULL);
    fixture_teardown(&f);
}

/* Better a block that cannot be exported than none. */
static void where_memory_runs_out_a_block_shares(void **state)
{
    (void)state;
    uint64_t shared;
    struct vpmm_region_view view;
    set_up(true, WHOLE);
    leave_free();
    uint64_t p = fixture_malloc(&f, PART, NULL);
    assert_int_equal(fixture_totals(&f).held_pages, WHOLE);
    assert_int_equal(export(p, &shared), VPMM_NOT_SUPPORTED);
    assert_int_equal(shared, f.page_bytes);
    assert_int_equal(vpmm_heap_find(f.heap, p, &view), VPMM_OK);
    assert_false(view.is_exported);
    fixture_free(&f, p, NULL);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_apart_from_the_first_export_on),
        cmocka_unit_test(a_front_cache_gives_no_block_that_shares),
        cmocka_unit_test(a_front_cache_gives_blocks_that_are_apart),
        cmocka_unit_test(blocks_can_be_apart_from_the_start),
        cmocka_unit_test(where_memory_runs_out_a_block_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
