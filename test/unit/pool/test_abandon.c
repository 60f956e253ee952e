/* SPDX-License-Identifier: MIT */
/* Plans that fail: everything is as before. And plans under way, while others use the pool. */
#include "world.h"

#include "base/table.h"

#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define REGIONS 64

/* All that anybody can see of a pool. */
struct picture {
    size_t n;
    struct vpmm_region_view regions[REGIONS];
    struct vpmm_pool_totals totals;
    size_t n_pending;
    vpmm_fence pending[REGIONS];
    uint64_t releasable, largest;
};

static struct world w;

static void take_picture(struct picture *picture)
{
    uint64_t cursor = 0;
    memset(picture, 0, sizeof *picture);
    while (picture->n < REGIONS && vpmm_pool_next(w.pool, &cursor, &picture->regions[picture->n]))
        picture->n++;
    assert_true(picture->n < REGIONS);
    picture->regions[picture->n] = (struct vpmm_region_view){0};
    vpmm_pool_totals(w.pool, &picture->totals);
    picture->n_pending = vpmm_pool_pending(w.pool, NULL, NULL, picture->pending, REGIONS);
    picture->releasable = vpmm_pool_releasable_pages(w.pool);
    picture->largest = world_largest_run(&w);
}

static void compare_regions(const struct vpmm_region_view *a, const struct vpmm_region_view *b)
{
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->address, b->address);
    assert_int_equal(a->pages, b->pages);
    assert_int_equal(a->fence, b->fence);
    assert_int_equal(a->owner.stream_id, b->owner.stream_id);
    assert_int_equal(a->owner.bytes, b->owner.bytes);
}

static void compare(const struct picture *a, const struct picture *b)
{
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++)
        compare_regions(&a->regions[i], &b->regions[i]);
    assert_memory_equal(&a->totals, &b->totals, sizeof a->totals);
    assert_int_equal(a->n_pending, b->n_pending);
    assert_memory_equal(a->pending, b->pending, sizeof a->pending);
    assert_int_equal(a->releasable, b->releasable);
    assert_int_equal(a->largest, b->largest);
}

/* Free regions of three ages and two kinds around live ones; a base at the end; extents of up to 4
 * pages, some of which lie in two regions. A request of 40 extends the base, harvests from all, and
 * creates. */
static void build(uint64_t extent_pages_max)
{
    world_init(&w, 2 * MIB, extent_pages_max, 512);
    uint64_t a = world_malloc(&w, 16, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, a, VPMM_FENCE_NONE);
    uint64_t b = world_malloc(&w, 6, 1);
    uint64_t c = world_malloc(&w, 10, 1);
    uint64_t d = world_malloc(&w, 5, 2);
    uint64_t e = world_malloc(&w, 1, 1);
    uint64_t f = world_malloc(&w, 3, 1);
    world_malloc(&w, 1, 3);
    uint64_t g = world_malloc(&w, 4, 1);
    uint64_t h = world_malloc(&w, 2, 1);
    world_free(&w, h, world_fence(&w, 1));
    world_free(&w, c, world_fence(&w, 1));
    world_free(&w, d, VPMM_FENCE_NONE);
    world_free(&w, f, world_fence(&w, 2));
    world_free(&w, b, world_fence(&w, 1));
    world_free(&w, g, VPMM_FENCE_NONE);
    (void)e;
}

static void abandon_at_every_step(uint64_t extent_pages_max)
{
    build(extent_pages_max);
    struct picture before;
    struct picture after;
    uint64_t page;
    struct vpmm_want want = world_want(&w, 40, 1);
    struct vpmm_plan *plan;
    take_picture(&before);
    assert_int_equal(vpmm_pool_plan(w.pool, &want, &plan), VPMM_OK);
    uint32_t n_steps = plan->n_steps;
    assert_true(plan->moved_pages > 0 && plan->created_pages > 0 && plan->pages < 40);
    vpmm_pool_abandon(w.pool, plan, 0);
    for (uint32_t i = 0; i <= n_steps; i++) {
        struct world_trouble trouble = {true, i, false};
        assert_int_equal(world_try(&w, 40, 1, UINT64_MAX, &trouble, &page), VPMM_FAILED);
        take_picture(&after);
        compare(&before, &after);
    }
    assert_int_equal(world_try(&w, 40, 1, UINT64_MAX, NULL, &page), VPMM_OK);
    world_finish(&w);
}

static void after_every_step_an_abandoned_plan_leaves_no_trace(void **state)
{
    (void)state;
    abandon_at_every_step(1);
    abandon_at_every_step(4);
}

static void metadata_that_fails_leaves_no_trace(void **state)
{
    (void)state;
    struct picture before;
    struct picture after;
    uint64_t page;
    enum vpmm_status status = VPMM_NO_METADATA;
    build(4);
    take_picture(&before);
    long n = 0;
    for (; status == VPMM_NO_METADATA; n++) {
        w.maps_left = n;
        status = world_try(&w, 40, 1, UINT64_MAX, NULL, &page);
        w.maps_left = -1;
        if (status == VPMM_NO_METADATA) {
            take_picture(&after);
            compare(&before, &after);
        }
    }
    assert_int_equal(status, VPMM_OK);
    assert_true(n > 1);
    world_finish(&w);
}

/* The base of a plan is there, and its new extents have no room for their records. */
static void records_that_cannot_be_had_leave_no_trace(void **state)
{
    (void)state;
    struct picture before, after;
    enum vpmm_status status = VPMM_NO_METADATA;
    uint64_t page;
    world_init(&w, 2 * MIB, 1, WORLD_PAGES);
    world_malloc(&w, VPMM_TABLE_CHUNK_RECORDS - 4, 1);
    world_free(&w, world_malloc(&w, 2, 1), VPMM_FENCE_NONE);
    take_picture(&before);
    long n = 0;
    for (; status; n++) {
        w.maps_left = n;
        status = world_try(&w, 10, 1, UINT64_MAX, NULL, &page);
        w.maps_left = -1;
        take_picture(&after);
        if (status)
            compare(&before, &after);
    }
    assert_true(n >= 3);
    world_finish(&w);
}

static void a_join_that_fails_leaves_no_trace(void **state)
{
    (void)state;
    struct picture before;
    struct picture after;
    uint64_t page;
    build(4);
    take_picture(&before);
    w.joins_fail = true;
    assert_int_equal(world_try(&w, 40, 1, UINT64_MAX, NULL, &page), VPMM_NO_METADATA);
    take_picture(&after);
    compare(&before, &after);
    world_finish(&w);
}

static void a_pool_or_root_without_memory_leaves_nothing_behind(void **state)
{
    (void)state;
    world_init(&w, 2 * MIB, 1, 0);
    struct vpmm_pool_params params = {2 * MIB, 1, 1000, 0};
    struct vpmm_pool *pool;
    long existing = w.maps;
    enum vpmm_status status = VPMM_NO_METADATA;
    for (long n = 0; status; n++) {
        w.maps_left = n;
        status = vpmm_pool_create(&params, &w.memory, &pool);
        assert_true(!status || w.maps == existing);
    }
    vpmm_pool_destroy(pool);
    assert_int_equal(w.maps, existing);
    status = VPMM_NO_METADATA;
    for (long n = 0; status; n++) {
        w.maps_left = n;
        status = vpmm_pool_add_root(w.pool, WORLD_BASE, 100, false);
        world_check(&w);
        assert_int_equal(world_totals(&w).roots, status ? 0 : 1);
    }
    w.maps_left = -1;
    world_finish(&w);
}

static void what_is_stuck_is_quarantined_and_stays_held(void **state)
{
    (void)state;
    for (uint32_t n = 1;; n++) {
        build(4);
        struct vpmm_pool_totals before = world_totals(&w);
        struct vpmm_want want = world_want(&w, 40, 1);
        struct vpmm_plan *plan;
        assert_int_equal(vpmm_pool_plan(w.pool, &want, &plan), VPMM_OK);
        uint32_t n_steps = plan->n_steps;
        uint64_t stuck_pages = 0;
        uint64_t created_pages = 0;
        for (uint32_t i = 0; i < n && i < n_steps; i++) {
            stuck_pages += plan->steps[i].pages;
            created_pages += plan->steps[i].kind == VPMM_STEP_CREATE ? plan->steps[i].pages : 0;
        }
        vpmm_pool_abandon(w.pool, plan, 0);
        uint64_t page;
        struct world_trouble trouble = {true, n, true};
        assert_int_equal(world_try(&w, 40, 1, UINT64_MAX, &trouble, &page), VPMM_FAILED);
        struct vpmm_pool_totals after = world_totals(&w);
        assert_int_equal(after.quarantined_pages, stuck_pages);
        assert_int_equal(after.held_pages, before.held_pages + created_pages);
        assert_int_equal(after.mappings, before.mappings + (n < n_steps ? n : n_steps));
        assert_int_equal(after.free_pages, before.free_pages);
        assert_int_equal(after.live_pages, before.live_pages);
        assert_int_equal(after.busy_pages, 0);
        if (n % 2) {
            world_retry(&w);
            after = world_totals(&w);
            assert_int_equal(after.quarantined_pages, 0);
            assert_int_equal(after.held_pages, before.held_pages);
            assert_int_equal(after.mappings, before.mappings);
        }
        assert_int_equal(world_try(&w, 40, 1, UINT64_MAX, NULL, &page), VPMM_OK);
        world_finish(&w);
        if (n >= n_steps)
            break;
    }
}

/* Others free, settle, fit and plan while a plan is under way; then it ends either way. */
static void with_others_meanwhile(bool commits)
{
    build(4);
    struct vpmm_want want = world_want(&w, 40, 1);
    struct vpmm_plan *plan;
    struct vpmm_plan *second;
    uint64_t address;
    uint64_t page;
    assert_int_equal(vpmm_pool_plan(w.pool, &want, &plan), VPMM_OK);
    uint64_t busy = world_totals(&w).busy_pages;
    for (uint32_t i = 0; i < plan->n_steps; i++)
        world_step(&w, &plan->steps[i]);

    struct vpmm_region_view live;
    assert_int_equal(vpmm_pool_claim(w.pool, world_address(&w, 16), &live), VPMM_OK);
    vpmm_pool_free(w.pool, live.address, VPMM_FENCE_NONE, 1);
    assert_null(vpmm_pool_audit(w.pool));
    for (vpmm_fence i = 1; i <= w.n_fences; i++)
        world_complete(&w, i);
    w.stream = 0;
    vpmm_pool_settle(w.pool, &w.view);
    assert_null(vpmm_pool_audit(w.pool));
    assert_int_equal(world_totals(&w).busy_pages, busy);

    struct vpmm_want other = world_want(&w, 50, 2);
    assert_int_equal(vpmm_pool_plan(w.pool, &other, &second), VPMM_OK);
    assert_null(vpmm_pool_audit(w.pool));
    for (uint32_t i = 0; i < second->n_steps; i++)
        world_step(&w, &second->steps[i]);
    if (commits) {
        vpmm_pool_commit(w.pool, plan, &address);
    } else {
        world_unmap(&w, plan->address, plan->pages);
        vpmm_pool_abandon(w.pool, plan, 0);
    }
    assert_null(vpmm_pool_audit(w.pool));
    vpmm_pool_commit(w.pool, second, &address);
    world_check(&w);
    world_settle(&w);
    world_reap(&w, true);
    assert_int_equal(world_totals(&w).zombie_pages, 0);
    assert_int_equal(world_totals(&w).busy_pages, 0);
    assert_int_equal(world_try(&w, 4, 0, UINT64_MAX, NULL, &page), VPMM_OK);
    world_finish(&w);
}

static void others_use_the_pool_while_a_plan_is_under_way(void **state)
{
    (void)state;
    with_others_meanwhile(true);
    with_others_meanwhile(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_every_step_an_abandoned_plan_leaves_no_trace),
        cmocka_unit_test(metadata_that_fails_leaves_no_trace),
        cmocka_unit_test(records_that_cannot_be_had_leave_no_trace),
        cmocka_unit_test(a_join_that_fails_leaves_no_trace),
        cmocka_unit_test(a_pool_or_root_without_memory_leaves_nothing_behind),
        cmocka_unit_test(what_is_stuck_is_quarantined_and_stays_held),
        cmocka_unit_test(others_use_the_pool_while_a_plan_is_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
