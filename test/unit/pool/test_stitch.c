/* SPDX-License-Identifier: MIT */
/* Requests that are stitched together from what is free and what is new, in extents of one page. */
#include "scene.h"

static void growing_steps_lose_no_address_space(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 20; n++) {
        uint64_t page = world_malloc(&w, n, 1);
        assert_int_equal(page, 0);
        world_free(&w, page, VPMM_FENCE_NONE);
        assert_int_equal(world_totals(&w).held_pages, n);
        assert_int_equal(world_totals(&w).hole_pages, 256 - n);
    }
    assert_int_equal(world_totals(&w).moved_pages, 0);
    assert_int_equal(world_totals(&w).zombie_pages, 0);
}

static void new_pages_extend_what_is_free_in_place(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 2, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    assert_int_equal(world_malloc(&w, 4, 1), a);
    assert_string_equal(world_layout(&w), "[4]");
    assert_int_equal(world_totals(&w).held_pages, 4);
    world_malloc(&w, 2, 1);
    assert_int_equal(world_totals(&w).held_pages, 6);
}

static void the_tail_of_a_harvest_stays_usable(void **state)
{
    (void)state;
    uint64_t p[6];
    for (int i = 0; i < 6; i++)
        p[i] = world_malloc(&w, i % 2 ? 1 : 2, 1);
    for (int i = 0; i < 6; i += 2)
        world_free(&w, p[i], VPMM_FENCE_NONE);
    world_malloc(&w, 5, 1);
    struct vpmm_pool_totals totals = world_totals(&w);
    assert_int_equal(totals.moved_pages, 5);
    assert_int_equal(totals.held_pages, 9);
    assert_int_equal(totals.free_pages, 1);
    world_malloc(&w, 1, 1);
    assert_int_equal(world_totals(&w).held_pages, 9);
    world_malloc(&w, 1, 1);
    assert_int_equal(world_totals(&w).held_pages, 10);
}

static void unmapped_neighbours_become_one_hole(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 3, 1);
    uint64_t b = world_malloc(&w, 3, 1);
    world_malloc(&w, 1, 1);
    vpmm_fence fence_a = world_fence(&w, 1);
    vpmm_fence fence_b = world_fence(&w, 1);
    world_free(&w, a, fence_a);
    world_free(&w, b, fence_b);
    world_malloc(&w, 7, 1);
    assert_string_equal(world_layout(&w), "[z3][z3][1][7]");
    assert_int_equal(world_reap(&w, true), 0);
    world_complete(&w, fence_b);
    assert_int_equal(world_reap(&w, true), 1);
    assert_string_equal(world_layout(&w), "[z3][*3][1][7]");
    world_complete(&w, fence_a);
    assert_int_equal(world_reap(&w, true), 1);
    assert_string_equal(world_layout(&w), "[*6][1][7]");
    assert_int_equal(world_totals(&w).mappings, 8);
    assert_int_equal(world_malloc(&w, 6, 1), 0);
}

static void a_zombie_that_cannot_be_unmapped_is_never_reused(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 3, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    uint64_t b = world_malloc(&w, 5, 1);
    assert_int_equal(world_reap(&w, false), 1);
    assert_string_equal(world_layout(&w), "[!3][1][5]");
    assert_int_equal(world_totals(&w).quarantined_pages, 3);
    assert_int_equal(world_malloc(&w, 3, 1), 9);
    world_free(&w, b, VPMM_FENCE_NONE);
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 2);
    assert_int_equal(world_trim(&w, 100, true), 2);
    world_retry(&w);
    assert_int_equal(world_totals(&w).quarantined_pages, 0);
    assert_int_equal(world_trim(&w, 100, true), 3);
}

static void exact_sums_need_no_growth_and_others_only_the_shortfall(void **state)
{
    (void)state;
    uint64_t p[8];
    for (int i = 0; i < 8; i++)
        p[i] = world_malloc(&w, i % 2 ? 1 : 3, 1);
    for (int i = 0; i < 8; i += 2)
        world_free(&w, p[i], VPMM_FENCE_NONE);
    assert_int_equal(world_totals(&w).held_pages, 16);
    uint64_t all = world_malloc(&w, 12, 1);
    assert_int_equal(world_totals(&w).held_pages, 16);
    world_free(&w, all, VPMM_FENCE_NONE);
    uint64_t page;
    assert_int_equal(world_try(&w, 15, 1, 2, NULL, &page), VPMM_NOT_FOUND);
    assert_int_equal(world_try(&w, 15, 1, 3, NULL, &page), VPMM_OK);
    assert_int_equal(world_totals(&w).held_pages, 19);
    assert_int_equal(world_totals(&w).created_pages, 19);
}

static void no_region_spans_two_roots(void **state)
{
    (void)state;
    world_add_root(&w, 256, 64);
    uint64_t a = world_malloc(&w, 256, 1);
    uint64_t b = world_malloc(&w, 64, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    world_free(&w, b, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[-256][-64]");
    assert_int_equal(world_malloc(&w, 256, 1), a);
    assert_int_equal(world_malloc(&w, 64, 1), b);
    world_free(&w, b, VPMM_FENCE_NONE);
    world_free(&w, a, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[-256][-64]");
    uint64_t page;
    assert_int_equal(world_try(&w, 300, 1, UINT64_MAX, NULL, &page), VPMM_NO_SPACE);
    world_add_root(&w, 320, 300);
    assert_int_equal(world_malloc(&w, 300, 1), 320);
    assert_int_equal(world_totals(&w).roots, 3);
    assert_int_equal(world_totals(&w).held_pages, 320);
}

static void no_run_spans_two_roots(void **state)
{
    (void)state;
    world_add_root(&w, 256, 64);
    uint64_t a = world_malloc(&w, 256, 1);
    uint64_t b = world_malloc(&w, 64, 1);
    world_free(&w, a, world_fence(&w, 1));
    world_free(&w, b, world_fence(&w, 1));
    uint64_t page;
    assert_int_equal(world_try(&w, 300, 1, UINT64_MAX, NULL, &page), VPMM_NO_SPACE);
    assert_string_equal(world_layout(&w), "[-256][-64]");
}

/* What is given back at an address is what the device shows there. */
static void the_books_know_which_extent_lies_where(void **state)
{
    (void)state;
    uint64_t p[6];
    for (int i = 0; i < 6; i++)
        p[i] = world_malloc(&w, 1, 1);
    for (int i = 0; i < 6; i += 2)
        world_free(&w, p[i], VPMM_FENCE_NONE);
    uint64_t all = world_malloc(&w, 3, 1);
    assert_string_equal(world_layout(&w), "[z1][1][z1][1][z1][1][3]");
    assert_int_equal(world_reap(&w, true), 3);
    world_free(&w, all, VPMM_FENCE_NONE);
    assert_int_equal(world_trim(&w, 3, true), 3);
}

static void the_cap_on_mappings_is_kept(void **state)
{
    (void)state;
    struct vpmm_pool_params params = {2 * MIB, 1, 10, 0};
    vpmm_pool_destroy(w.pool);
    assert_int_equal(vpmm_pool_create(&params, &w.memory, &w.pool), VPMM_OK);
    world_add_root(&w, 0, 64);
    uint64_t a = world_malloc(&w, 4, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    world_malloc(&w, 5, 1);
    assert_string_equal(world_layout(&w), "[z4][1][5]");
    uint64_t page;
    assert_int_equal(world_try(&w, 1, 1, UINT64_MAX, NULL, &page), VPMM_NOT_SUPPORTED);
    assert_int_equal(world_reap(&w, true), 1);
    assert_int_equal(world_try(&w, 4, 1, UINT64_MAX, NULL, &page), VPMM_OK);
    assert_int_equal(world_totals(&w).mappings, 10);
}

static void plans_under_way_count_for_the_cap_on_mappings(void **state)
{
    (void)state;
    struct vpmm_pool_params params = {2 * MIB, 1, 10, 0};
    vpmm_pool_destroy(w.pool);
    assert_int_equal(vpmm_pool_create(&params, &w.memory, &w.pool), VPMM_OK);
    world_add_root(&w, 0, 64);
    struct vpmm_want six = world_want(&w, 6, 1);
    struct vpmm_want five = world_want(&w, 5, 1);
    struct vpmm_want four = world_want(&w, 4, 1);
    struct vpmm_plan *first, *second;
    assert_int_equal(vpmm_pool_plan(w.pool, &six, &first), VPMM_OK);
    assert_int_equal(vpmm_pool_plan(w.pool, &five, &second), VPMM_NOT_SUPPORTED);
    assert_int_equal(vpmm_pool_plan(w.pool, &four, &second), VPMM_OK);
    vpmm_pool_abandon(w.pool, first, 0);
    assert_int_equal(vpmm_pool_plan(w.pool, &six, &first), VPMM_OK);
    vpmm_pool_abandon(w.pool, first, 0);
    vpmm_pool_abandon(w.pool, second, 0);
    assert_string_equal(world_layout(&w), "");
}

static void a_plan_may_turn_out_to_need_no_step(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 4, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    struct vpmm_want want = world_want(&w, 3, 1);
    struct vpmm_plan *plan;
    uint64_t address;
    assert_int_equal(vpmm_pool_plan(w.pool, &want, &plan), VPMM_OK);
    assert_int_equal(plan->n_steps, 0);
    assert_int_equal(plan->pages, 0);
    assert_string_equal(world_layout(&w), "[?3][-1]");
    vpmm_pool_abandon(w.pool, plan, 0);
    assert_string_equal(world_layout(&w), "[-4]");
    assert_int_equal(vpmm_pool_plan(w.pool, &want, &plan), VPMM_OK);
    vpmm_pool_commit(w.pool, plan, &address);
    world_check(&w);
    assert_int_equal(address, world_address(&w, a));
    assert_string_equal(world_layout(&w), "[3][-1]");
}

/* A fit knows no fence that is complete and not settled; a plan does, and may meet so long a run.
 */
static void a_plan_takes_a_run_that_has_become_long_enough(void **state)
{
    (void)state;
    uint64_t a = world_malloc(&w, 3, 1);
    uint64_t b = world_malloc(&w, 4, 1);
    vpmm_fence fence = world_fence(&w, 0);
    world_free(&w, a, fence);
    world_free(&w, b, VPMM_FENCE_NONE);
    assert_string_equal(world_layout(&w), "[-3][-4]");
    world_complete(&w, fence);
    struct vpmm_want want = world_want(&w, 6, 1);
    struct vpmm_plan *plan;
    uint64_t address;
    assert_int_equal(vpmm_pool_fit(w.pool, &want, &address), VPMM_NOT_FOUND);
    assert_int_equal(vpmm_pool_plan(w.pool, &want, &plan), VPMM_OK);
    assert_int_equal(plan->n_steps, 0);
    vpmm_pool_commit(w.pool, plan, &address);
    world_check(&w);
    assert_int_equal(address, world_address(&w, a));
    assert_string_equal(world_layout(&w), "[6][-1]");
}

/* What answers as the world does so often, and then that all is pending. */
struct fickle {
    const struct vpmm_fence_view *sound;
    int n_left;
};

static enum vpmm_verdict ask_fickle(void *self, vpmm_fence fence)
{
    struct fickle *fickle = self;
    if (fickle->n_left == 0)
        return VPMM_VERDICT_PENDING;
    fickle->n_left--;
    return fickle->sound->ask(fickle->sound->self, fence);
}

static vpmm_fence join_soundly(void *self, vpmm_fence a, vpmm_fence b)
{
    const struct fickle *fickle = self;
    return fickle->sound->join(fickle->sound->self, a, b);
}

/* Another free may join a batch at any moment. */
static void a_plan_outlives_a_verdict_that_changes(void **state)
{
    (void)state;
    uint64_t p[4];
    for (int i = 0; i < 4; i++)
        p[i] = world_malloc(&w, 1, 7);
    vpmm_fence fence = world_fence(&w, 7);
    world_free(&w, p[0], fence);
    world_free(&w, p[2], fence);
    bool was_refused = false;
    w.stream = 7;
    for (int n = 0; n < 20; n++) {
        struct fickle fickle = {&w.view, n};
        const struct vpmm_fence_view view = {&fickle, ask_fickle, join_soundly};
        struct vpmm_want want = {.pages = 2,
                                 .view = &view,
                                 .owner = {.bytes = 1, .stream_id = 7, .id = 99, .is_async = true}};
        struct vpmm_plan *plan;
        enum vpmm_status status = vpmm_pool_plan(w.pool, &want, &plan);
        was_refused |= status != VPMM_OK;
        if (!status)
            vpmm_pool_abandon(w.pool, plan, 0);
        world_check(&w);
    }
    assert_true(was_refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(growing_steps_lose_no_address_space),
        TEST(new_pages_extend_what_is_free_in_place),
        TEST(the_tail_of_a_harvest_stays_usable),
        TEST(unmapped_neighbours_become_one_hole),
        TEST(a_zombie_that_cannot_be_unmapped_is_never_reused),
        TEST(exact_sums_need_no_growth_and_others_only_the_shortfall),
        TEST(no_region_spans_two_roots),
        TEST(no_run_spans_two_roots),
        TEST(the_books_know_which_extent_lies_where),
        TEST(the_cap_on_mappings_is_kept),
        TEST(plans_under_way_count_for_the_cap_on_mappings),
        TEST(a_plan_may_turn_out_to_need_no_step),
        TEST(a_plan_takes_a_run_that_has_become_long_enough),
        TEST(a_plan_outlives_a_verdict_that_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
