/* SPDX-License-Identifier: MIT */
/* Requests at a place that a front cache holds: it is cut and put together in no index, and what is
 * left of it stays cached. */
#include "world.h"

#include "pool/pool_cache.h"

#define PAGE ((uint64_t)2 << 20)

static struct world w;
static struct vpmm_pool_share share;
static struct vpmm_pool_cached cached;
static struct vpmm_pool_left left;

static int setup(void **state)
{
    (void)state;
    world_init(&w, PAGE, 1, 64);
    share = (struct vpmm_pool_share){0};
    cached.n = 0;
    vpmm_pool_add_share(w.pool, &share);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_check(&w);
    world_finish(&w);
    return 0;
}

/* Into the cache of stream 1, which names it from now on. */
static void cache(uint64_t page, vpmm_fence fence)
{
    struct vpmm_live live;
    assert_true(vpmm_pool_look_live(w.pool, world_address(&w, page), &live));
    assert_true(vpmm_pool_cache(w.pool, &live, fence, 1, &share));
    cached.numbers[cached.n++] = live.number;
}

static enum vpmm_status serve(uint64_t page, uint64_t pages)
{
    struct vpmm_want want = world_want(&w, pages, 1);
    return vpmm_pool_serve_cached(w.pool, &want, world_address(&w, page), &cached, &share, &left);
}

static void expect_left(uint32_t i, uint64_t page, uint64_t pages)
{
    assert_true(i < left.n);
    assert_int_equal(world_page(&w, left.pieces[i].address), page);
    assert_int_equal(left.pieces[i].pages, pages);
}

static vpmm_fence fence_at(uint64_t page)
{
    struct vpmm_region_view view;
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, page), &view), VPMM_OK);
    return view.fence;
}

static void what_is_left_at_either_side_stays_cached(void **state)
{
    (void)state;
    uint64_t page = world_malloc(&w, 8, 1);
    uint64_t other;
    vpmm_fence fence = world_fence(&w, 1);
    cache(page, fence);
    assert_int_equal(serve(page + 2, 3), VPMM_OK);
    assert_int_equal(left.n, 2);
    expect_left(0, page, 2);
    expect_left(1, page + 5, 3);
    assert_string_equal(world_layout(&w), "[-2][3][-3]");
    assert_int_equal(fence_at(page), fence);
    assert_int_equal(fence_at(page + 2), fence);
    assert_int_equal(fence_at(page + 5), fence);
    assert_null(vpmm_pool_audit(w.pool));
    assert_int_equal(world_try(&w, 2, 1, 0, NULL, &other), VPMM_NOT_FOUND);
    for (uint32_t i = 0; i < 2; i++)
        vpmm_pool_hand_back(w.pool, left.pieces[i].number,
                            vpmm_pool_cached_fence(w.pool, left.pieces[i].number), &share, NULL);
    assert_int_equal(world_malloc(&w, 2, 1), page);
}

static void neighbours_are_put_together(void **state)
{
    (void)state;
    uint64_t page = world_malloc(&w, 4, 1);
    uint64_t next = world_malloc(&w, 3, 1);
    vpmm_fence older = world_fence(&w, 1);
    vpmm_fence newer = world_fence(&w, 1);
    cache(page, newer);
    cache(next, older);
    assert_int_equal(serve(page, 6), VPMM_OK);
    assert_int_equal(left.n, 1);
    expect_left(0, page + 6, 1);
    assert_string_equal(world_layout(&w), "[6][-1]");
    assert_int_equal(fence_at(page), newer);
    assert_int_equal(fence_at(page + 6), older);
    assert_null(vpmm_pool_audit(w.pool));
}

static void the_totals_are_right_whatever_is_cut(void **state)
{
    (void)state;
    uint64_t page = world_malloc(&w, 8, 1);
    (void)world_malloc(&w, 2, 1);
    cache(page, world_fence(&w, 1));
    assert_int_equal(serve(page, 3), VPMM_OK);
    struct vpmm_pool_totals totals = world_totals(&w);
    assert_int_equal(totals.live_regions, 2);
    assert_int_equal(totals.live_pages, 5);
    assert_int_equal(totals.live_bytes, 5 * PAGE - 2);
    assert_int_equal(totals.free_regions, 1);
    assert_int_equal(totals.free_pages, 5);
    assert_int_equal(totals.live_pages_peak, 10);
    assert_null(vpmm_pool_audit(w.pool));
}

/* The most ever live counts what a request took from the pool's own. */
static void the_most_ever_live_counts_what_was_free(void **state)
{
    (void)state;
    uint64_t page = world_malloc(&w, 3, 1);
    world_grow(&w, 4);
    cache(page, VPMM_FENCE_NONE);
    assert_int_equal(world_totals(&w).live_pages_peak, 3);
    assert_int_equal(serve(page, 5), VPMM_OK);
    assert_int_equal(left.n, 0);
    assert_int_equal(world_totals(&w).live_pages_peak, 5);
    assert_string_equal(world_layout(&w), "[5][-2]");
    assert_null(vpmm_pool_audit(w.pool));
    assert_int_equal(world_malloc(&w, 2, 2), page + 5);
}

static void what_another_cache_holds_is_refused(void **state)
{
    (void)state;
    uint64_t page = world_malloc(&w, 4, 1);
    uint64_t next = world_malloc(&w, 3, 1);
    cache(page, VPMM_FENCE_NONE);
    cache(next, VPMM_FENCE_NONE);
    cached.n = 1;
    assert_int_equal(serve(page, 5), VPMM_NOT_FOUND);
    assert_string_equal(world_layout(&w), "[-4][-3]");
    assert_null(vpmm_pool_audit(w.pool));
    assert_int_equal(serve(page, 4), VPMM_OK);
}

static void what_others_left_pending_is_refused_until_it_is_complete(void **state)
{
    (void)state;
    uint64_t page = world_malloc(&w, 4, 1);
    uint64_t next = world_malloc(&w, 3, 2);
    vpmm_fence fence = world_fence(&w, 2);
    cache(page, VPMM_FENCE_NONE);
    world_free(&w, next, fence);
    assert_int_equal(serve(page, 5), VPMM_NOT_FOUND);
    assert_string_equal(world_layout(&w), "[-4][-3]");
    world_complete(&w, fence);
    assert_int_equal(serve(page, 5), VPMM_OK);
    assert_int_equal(left.n, 0);
    assert_int_equal(fence_at(page), VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[5][-2]");
}

static void what_the_stream_left_pending_adds_its_fence(void **state)
{
    (void)state;
    uint64_t page = world_malloc(&w, 4, 1);
    uint64_t next = world_malloc(&w, 3, 1);
    vpmm_fence fence = world_fence(&w, 1);
    cache(page, VPMM_FENCE_NONE);
    world_free(&w, next, fence);
    assert_int_equal(serve(page, 7), VPMM_OK);
    assert_int_equal(fence_at(page), fence);
}

static void what_is_live_or_not_there_is_refused(void **state)
{
    (void)state;
    uint64_t page = world_malloc(&w, 4, 1);
    uint64_t next = world_malloc(&w, 3, 1);
    cache(page, VPMM_FENCE_NONE);
    assert_int_equal(serve(page, 5), VPMM_NOT_FOUND);
    assert_int_equal(serve(next, 3), VPMM_NOT_FOUND);
    assert_int_equal(serve(next + 3, 1), VPMM_NOT_FOUND);
    assert_int_equal(serve(page, 65), VPMM_NOT_FOUND);
    struct vpmm_want want = world_want(&w, 1, 1);
    assert_int_equal(
        vpmm_pool_serve_cached(w.pool, &want, WORLD_BASE - PAGE, &cached, &share, &left),
        VPMM_NOT_FOUND);
    assert_string_equal(world_layout(&w), "[-4][3]");
    assert_null(vpmm_pool_audit(w.pool));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_left_at_either_side_stays_cached),
        TEST(neighbours_are_put_together),
        TEST(the_totals_are_right_whatever_is_cut),
        TEST(the_most_ever_live_counts_what_was_free),
        TEST(what_another_cache_holds_is_refused),
        TEST(what_others_left_pending_is_refused_until_it_is_complete),
        TEST(what_the_stream_left_pending_adds_its_fence),
        TEST(what_is_live_or_not_there_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
