/* SPDX-License-Identifier: MIT */
/* A limit on what the pool may hold, in extents of one page. */
#include "world.h"

#include "pool/pool_internal.h"

#define MIB ((uint64_t)1 << 20)
#define LIMIT_PAGES 6u

static struct world w;

static int set_up(void **state)
{
    (void)state;
    world_init(&w, 2 * MIB, 1, 256);
    assert_true(vpmm_pool_limit(w.pool, LIMIT_PAGES));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_finish(&w);
    return 0;
}

static void more_than_that_is_not_created(void **state)
{
    (void)state;
    uint64_t page;
    (void)world_malloc(&w, 4, 1);
    assert_int_equal(world_try(&w, 3, 1, UINT64_MAX, NULL, &page), VPMM_LIMITED);
    assert_int_equal(world_try(&w, 3, 1, 3, NULL, &page), VPMM_LIMITED);
    assert_int_equal(world_try(&w, 2, 1, UINT64_MAX, NULL, &page), VPMM_OK);
    assert_int_equal(world_try(&w, 1, 1, UINT64_MAX, NULL, &page), VPMM_LIMITED);
    assert_int_equal(world_totals(&w).held_pages, LIMIT_PAGES);
}

/* Who is not allowed as much as it needs is not refused for the limit: it may wait and ask again.
 */
static void who_may_not_create_so_much_anyway_finds_nothing(void **state)
{
    (void)state;
    uint64_t page;
    (void)world_malloc(&w, 4, 1);
    assert_int_equal(world_try(&w, 3, 1, 2, NULL, &page), VPMM_NOT_FOUND);
    assert_int_equal(world_try(&w, 3, 1, 0, NULL, &page), VPMM_NOT_FOUND);
}

static void what_is_free_is_moved_at_it(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 2, 1);
    (void)world_malloc(&w, 1, 1);
    uint64_t b = world_malloc(&w, 2, 1);
    (void)world_malloc(&w, 1, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    world_free(&w, b, VPMM_FENCE_NONE);
    (void)world_malloc(&w, 4, 1);
    assert_int_equal(world_totals(&w).held_pages, LIMIT_PAGES);
}

static void what_is_given_back_makes_room(void **state)
{
    (void)state;
    uint64_t page;
    world_free(&w, world_malloc(&w, 6, 1), VPMM_FENCE_NONE);
    assert_int_equal(vpmm_pool_plan_growth(w.pool, 1, &(struct vpmm_plan *){NULL}), VPMM_LIMITED);
    assert_int_equal(world_trim(&w, 6, true), 6);
    assert_int_equal(world_try(&w, 7, 1, UINT64_MAX, NULL, &page), VPMM_LIMITED);
    world_grow(&w, 6);
}

static void plans_under_way_count(void **state)
{
    (void)state;
    struct vpmm_plan *first, *second;
    struct vpmm_want four = world_want(&w, 4, 1), three = world_want(&w, 3, 1);
    assert_int_equal(vpmm_pool_plan(w.pool, &four, &first), VPMM_OK);
    assert_int_equal(vpmm_pool_plan(w.pool, &three, &second), VPMM_LIMITED);
    vpmm_pool_abandon(w.pool, first, 0);
    assert_int_equal(vpmm_pool_plan(w.pool, &three, &second), VPMM_OK);
    vpmm_pool_abandon(w.pool, second, 0);
}

static void the_audit_notices(void **state)
{
    (void)state;
    (void)world_malloc(&w, 4, 1);
    assert_false(vpmm_pool_limit(w.pool, 3));
    assert_null(vpmm_pool_audit(w.pool));
    w.pool->held_pages_max = 3;
    assert_string_equal(vpmm_pool_audit(w.pool), "more is held than may be");
    assert_true(vpmm_pool_limit(w.pool, 4));
    assert_null(vpmm_pool_audit(w.pool));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(more_than_that_is_not_created), TEST(who_may_not_create_so_much_anyway_finds_nothing),
        TEST(what_is_free_is_moved_at_it),   TEST(what_is_given_back_makes_room),
        TEST(plans_under_way_count),         TEST(the_audit_notices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
