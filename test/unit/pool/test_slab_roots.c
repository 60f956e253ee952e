/* SPDX-License-Identifier: MIT */
/* Slab roots: slabs and everything else lie apart, until one of them keeps too much from the other.
 */
#include "world.h"

#include "pool/pool_internal.h"

#define PAGE ((uint64_t)2 << 20)
#define SLABS 4096 /* where the slab root begins */
#define STREAM 7

static struct world w;

static int set_up(void **state)
{
    (void)state;
    world_init(&w, PAGE, 0, 1024);
    world_add_slab_root(&w, SLABS, 1024);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_check(&w);
    world_finish(&w);
    return 0;
}

static uint64_t malloc_slab(uint64_t pages)
{
    w.is_slab = true;
    uint64_t page = world_malloc(&w, pages, STREAM);
    w.is_slab = false;
    return page;
}

static uint64_t held(void)
{
    return world_totals(&w).held_pages;
}

static void each_has_its_own(void **state)
{
    (void)state;
    world_free(&w, world_malloc(&w, 4, STREAM), VPMM_FENCE_NONE);
    uint64_t slab = malloc_slab(1);
    assert_int_equal(slab, SLABS);
    assert_int_equal(held(), 5);
    world_free(&w, slab, world_fence(&w, STREAM));
    assert_int_equal(world_malloc(&w, 1, STREAM), 0);
    assert_int_equal(malloc_slab(1), SLABS);
    assert_int_equal(held(), 5);
    world_free(&w, SLABS, VPMM_FENCE_NONE);
    assert_int_equal(world_malloc(&w, 4, STREAM), 1);
    assert_int_equal(held(), 5 + 1);
    assert_int_equal(malloc_slab(1), SLABS);
}

/* Nothing is moved for a slab. */
static void a_slab_is_new_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        (void)world_malloc(&w, 1, STREAM);
    for (uint64_t i = 0; i < 8; i += 2)
        world_free(&w, i, VPMM_FENCE_NONE);
    assert_int_equal(malloc_slab(3), SLABS);
    assert_int_equal(held(), 11);
    assert_int_equal(world_totals(&w).moved_pages, 0);
}

static void where_memory_is_short_they_share(void **state)
{
    (void)state;
    world_free(&w, malloc_slab(4), VPMM_FENCE_NONE);
    (void)world_malloc(&w, 1, STREAM);
    world_free(&w, world_malloc(&w, 2, STREAM), VPMM_FENCE_NONE);
    uint64_t before = held();
    w.may_mix = true;
    assert_int_equal(world_malloc(&w, 4, STREAM), SLABS);
    assert_int_equal(malloc_slab(1), 1);
    assert_int_equal(held(), before);
}

static void a_full_root_is_enough_reason(void **state)
{
    (void)state;
    (void)malloc_slab(1024);
    w.may_mix = true;
    assert_int_equal(malloc_slab(3), 0);
}

/* Also what has to be put together. */
static void extents_of_slabs_move_where_memory_is_short(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        (void)malloc_slab(1);
    world_free(&w, SLABS, VPMM_FENCE_NONE);
    world_free(&w, SLABS + 2, VPMM_FENCE_NONE);
    (void)world_malloc(&w, 2, STREAM);
    assert_int_equal(world_totals(&w).moved_pages, 0);
    uint64_t before = held();
    w.may_mix = true;
    (void)world_malloc(&w, 2, STREAM);
    assert_int_equal(world_totals(&w).moved_pages, 2);
    assert_int_equal(held(), before);
}

/* 32 MiB, where that is more than a 16th. */
static void no_more_than_a_share_lies_idle_for_slabs(void **state)
{
    (void)state;
    uint64_t slab = malloc_slab(17);
    world_free(&w, slab, VPMM_FENCE_NONE);
    assert_int_equal(world_largest_run(&w), 17);
    assert_int_equal(world_malloc(&w, 1, STREAM), SLABS);
    assert_int_equal(world_malloc(&w, 1, STREAM), 0);
    assert_int_equal(held(), 18);
}

static void slabs_beyond_a_share_lie_anywhere(void **state)
{
    (void)state;
    world_free(&w, world_malloc(&w, 32, STREAM), VPMM_FENCE_NONE);
    for (uint64_t i = 0; i < 17; i++)
        assert_int_equal(malloc_slab(1), SLABS + i);
    assert_int_equal(malloc_slab(1), 0);
    assert_int_equal(held(), 32 + 17);
}

static void both_are_given_back(void **state)
{
    (void)state;
    world_free(&w, malloc_slab(2), VPMM_FENCE_NONE);
    world_free(&w, world_malloc(&w, 4, STREAM), VPMM_FENCE_NONE);
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 6);
    assert_int_equal(world_largest_run(&w), 4);
    assert_int_equal(world_trim(&w, 6, true), 6);
    assert_int_equal(held(), 0);
    assert_int_equal(malloc_slab(1), SLABS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_has_its_own),
        TEST(a_slab_is_new_memory),
        TEST(where_memory_is_short_they_share),
        TEST(a_full_root_is_enough_reason),
        TEST(extents_of_slabs_move_where_memory_is_short),
        TEST(no_more_than_a_share_lies_idle_for_slabs),
        TEST(slabs_beyond_a_share_lie_anywhere),
        TEST(both_are_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
