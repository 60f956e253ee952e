/* SPDX-License-Identifier: MIT */
/* Memory that takes the place of moves, in extents of one page: six hundred pages live side by
 * side, every other one freed, and then requests for two. */
#include "world.h"

#define MIB ((uint64_t)1 << 20)
#define SINGLES 600
#define SPARE_PERCENT 5

/* With a weight of 128 requests a move, and one request between two, the ninety-seventh is the
 * first to exceed what ninety-six weigh. */
#define MOVES_BEFORE 97

static struct world w;
static uint64_t singles[SINGLES];

static void set_up_with(uint64_t spare_percent)
{
    struct vpmm_pool_params params = {2 * MIB, 1, 1 << 18, spare_percent};
    world_init(&w, 2 * MIB, 1, 0);
    vpmm_pool_destroy(w.pool);
    assert_int_equal(vpmm_pool_create(&params, &w.memory, &w.pool), VPMM_OK);
    world_add_root(&w, 0, 4096);
    for (int i = 0; i < SINGLES; i++)
        singles[i] = world_malloc(&w, 1, 1);
    for (int i = 0; i < SINGLES; i += 2)
        world_free(&w, singles[i], VPMM_FENCE_NONE);
}

static int set_up(void **state)
{
    (void)state;
    set_up_with(SPARE_PERCENT);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    world_finish(&w);
    return 0;
}

/* Asks for two pages, and says whether any had to move. */
static bool moves(void)
{
    uint64_t before = world_totals(&w).moved_pages;
    (void)world_malloc(&w, 2, 1);
    return world_totals(&w).moved_pages != before;
}

static void pay(int n)
{
    for (int i = 0; i < n; i++)
        assert_true(moves());
}

static void who_often_moves_is_given_spare_memory_up_to_a_share(void **state)
{
    (void)state;
    pay(MOVES_BEFORE);
    assert_int_equal(world_totals(&w).held_pages, SINGLES);
    for (int i = 0; i < SINGLES * SPARE_PERCENT / 100; i += 2)
        assert_false(moves());
    assert_int_equal(world_totals(&w).held_pages, SINGLES + SINGLES * SPARE_PERCENT / 100);
    assert_true(moves());
    assert_int_equal(world_totals(&w).held_pages, SINGLES + SINGLES * SPARE_PERCENT / 100);
}

static void what_is_free_at_the_end_is_extended_in_place(void **state)
{
    (void)state;
    pay(MOVES_BEFORE - 1);
    uint64_t last = world_malloc(&w, 2, 1);
    uint64_t moved = world_totals(&w).moved_pages;
    world_free(&w, last, VPMM_FENCE_NONE);
    assert_int_equal(world_malloc(&w, 3, 1), last);
    assert_int_equal(world_totals(&w).moved_pages, moved);
    assert_int_equal(world_totals(&w).held_pages, SINGLES + 1);
}

static void requests_that_fit_ease_the_toll(void **state)
{
    (void)state;
    pay(MOVES_BEFORE);
    w.n_requests += 31;
    assert_false(moves());
    w.n_requests += 1;
    assert_true(moves());
    assert_false(moves());
}

/* Two extents a request: the forty-ninth is the first to exceed what ninety-six weigh. */
static void each_extent_may_be_paid_for(void **state)
{
    (void)state;
    w.pays_by_extent = true;
    pay(49);
    assert_false(moves());
}

static void old_moves_are_forgotten(void **state)
{
    (void)state;
    pay(MOVES_BEFORE);
    w.n_requests += 1 << 20;
    assert_true(moves());
    assert_int_equal(world_totals(&w).held_pages, SINGLES);
}

static void who_may_not_have_spare_memory_moves(void **state)
{
    (void)state;
    pay(MOVES_BEFORE);
    w.never_spares = true;
    assert_true(moves());
    w.never_spares = false;
    assert_false(moves());
}

static void none_is_spared_where_that_is_said(void **state)
{
    (void)state;
    set_up_with(0);
    pay(MOVES_BEFORE + 5);
    assert_int_equal(world_totals(&w).held_pages, SINGLES);
    world_finish(&w);
}

static void a_limit_on_new_pages_is_for_what_is_missing(void **state)
{
    (void)state;
    pay(MOVES_BEFORE);
    uint64_t page;
    assert_int_equal(world_try(&w, 2, 1, 0, NULL, &page), VPMM_OK);
    assert_int_equal(world_totals(&w).held_pages, SINGLES + 2);
}

static void what_is_spared_stays_within_the_limit(void **state)
{
    (void)state;
    assert_true(vpmm_pool_limit(w.pool, SINGLES + 4));
    pay(MOVES_BEFORE);
    for (int i = 0; i < 4; i += 2)
        assert_false(moves());
    assert_true(moves());
    assert_int_equal(world_totals(&w).held_pages, SINGLES + 4);
}

static void a_plan_that_is_abandoned_costs_nothing(void **state)
{
    (void)state;
    static const struct world_trouble trouble = {true, 1, false};
    pay(MOVES_BEFORE - 1);
    uint64_t page;
    for (int i = 0; i < 20; i++)
        (void)world_try(&w, 2, 1, UINT64_MAX, &trouble, &page);
    w.n_requests += 100;
    assert_true(moves());
    assert_int_equal(world_totals(&w).held_pages, SINGLES);
}

static void plans_under_way_count_as_held(void **state)
{
    (void)state;
    struct vpmm_plan *plans[20];
    uint64_t created = 0;
    pay(MOVES_BEFORE);
    for (int i = 0; i < 20; i++) {
        struct vpmm_want want = world_want(&w, 2, 1);
        assert_int_equal(vpmm_pool_plan(w.pool, &want, &plans[i]), VPMM_OK);
        created += plans[i]->created_pages;
    }
    assert_int_equal(created, SINGLES * SPARE_PERCENT / 100);
    for (int i = 0; i < 20; i++)
        vpmm_pool_abandon(w.pool, plans[i], 0);
    for (int i = 0; i < 10; i++)
        assert_false(moves());
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(who_often_moves_is_given_spare_memory_up_to_a_share),
        TEST(what_is_free_at_the_end_is_extended_in_place),
        TEST(requests_that_fit_ease_the_toll),
        TEST(each_extent_may_be_paid_for),
        TEST(old_moves_are_forgotten),
        TEST(who_may_not_have_spare_memory_moves),
        cmocka_unit_test(none_is_spared_where_that_is_said),
        TEST(a_limit_on_new_pages_is_for_what_is_missing),
        TEST(what_is_spared_stays_within_the_limit),
        TEST(a_plan_that_is_abandoned_costs_nothing),
        TEST(plans_under_way_count_as_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
