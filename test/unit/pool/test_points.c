/* SPDX-License-Identifier: MIT */
/* Readers without the lock, interrupted at each of their atomic accesses by a change, and changes
 * interrupted at each of theirs by readers, as by a signal handler on the same thread. One thread:
 * every meeting is repeatable. */
#include "world.h"

#include "points.h"

#define PAGE ((uint64_t)2 << 20)

static struct world w;
static uint64_t points_left; /* until `visitor` runs; 0: never */
static void (*visitor)(void);

void vpmm_test_point(void)
{
    if (points_left && --points_left == 0)
        visitor();
}

/* Runs `act` once for each of its points, letting `visit` run there; `prepare` before and `check`
 * after each. */
static void meet(void (*prepare)(void), void (*act)(void), void (*visit)(void), void (*check)(void))
{
    bool was_visited = true;
    for (uint64_t n = 1; was_visited; n++) {
        world_init(&w, PAGE, 1, 128);
        prepare();
        visitor = visit;
        points_left = n;
        act();
        was_visited = points_left == 0;
        points_left = 0;
        check();
        world_finish(&w);
        assert_true(n < 100000);
    }
}

/* ---- a reader meets a change ---- */

static uint64_t place;
static uint64_t last_id;
static struct vpmm_region_view seen;
static enum vpmm_status seen_status;

static void allocate(uint64_t pages)
{
    struct vpmm_want want = world_want(&w, pages, 0);
    want.owner.id = ++last_id;
    assert_int_equal(vpmm_pool_fit(w.pool, &want, &place), VPMM_OK);
}

static void prepare_one_live(void)
{
    world_malloc(&w, 2, 0);
    world_grow(&w, 5);
    allocate(5);
}

/* Another thread frees the region, and the same place is live again with another owner. */
static void replace_by_equal(void)
{
    struct vpmm_region_view region;
    if (vpmm_pool_claim(w.pool, place, &region))
        return;
    vpmm_pool_free(w.pool, place, VPMM_FENCE_NONE, 0);
    allocate(5);
}

static void replace_by_smaller(void)
{
    struct vpmm_region_view region;
    assert_int_equal(vpmm_pool_claim(w.pool, place, &region), VPMM_OK);
    vpmm_pool_free(w.pool, place, VPMM_FENCE_NONE, 0);
    allocate(3);
}

static void claim_place(void)
{
    seen_status = vpmm_pool_claim(w.pool, place, &seen);
}

static void find_second_page(void)
{
    seen_status = vpmm_pool_find(w.pool, place + PAGE, &seen);
}

static void check_claimed_what_was_seen(void)
{
    struct vpmm_region_view now;
    world_check(&w);
    assert_int_equal(vpmm_pool_find(w.pool, place, &now), VPMM_OK);
    assert_int_equal(now.state, seen_status ? VPMM_REGION_LIVE : VPMM_REGION_BUSY);
    assert_true(seen_status || seen.owner.id == now.owner.id);
}

static void check_found_one_of_both(void)
{
    assert_int_equal(seen_status, VPMM_OK);
    assert_int_equal(seen.state, VPMM_REGION_LIVE);
    assert_int_equal(seen.address, place);
    assert_int_equal(seen.owner.bytes, seen.pages * PAGE - 1);
    assert_int_equal(seen.pages, seen.owner.id == last_id ? 3 : 5);
}

static void a_claim_takes_the_very_region_it_saw(void **state)
{
    (void)state;
    meet(prepare_one_live, claim_place, replace_by_equal, check_claimed_what_was_seen);
}

static void a_find_shows_no_mixture(void **state)
{
    (void)state;
    last_id = 0;
    for (uint64_t n = 1;; n++) {
        world_init(&w, PAGE, 1, 128);
        prepare_one_live();
        visitor = replace_by_smaller;
        points_left = n;
        find_second_page();
        bool was_visited = points_left == 0;
        points_left = 0;
        if (was_visited)
            check_found_one_of_both();
        world_finish(&w);
        if (!was_visited)
            break;
    }
}

static void prepare_one_free(void)
{
    world_malloc(&w, 2, 0);
    world_grow(&w, 5);
    place = world_address(&w, 2);
}

static void take_low_end(void)
{
    allocate(3);
}

static void check_free_or_taken(void)
{
    assert_int_equal(seen_status, VPMM_OK);
    assert_int_equal(seen.address, place);
    assert_int_equal(seen.pages, seen.state == VPMM_REGION_LIVE ? 3 : 5);
}

static void a_find_shows_a_free_region_before_or_after_its_split(void **state)
{
    (void)state;
    meet(prepare_one_free, find_second_page, take_low_end, check_free_or_taken);
}

/* Two neighbours that wait for different work of stream 1. */
static void prepare_two_pending(void)
{
    uint64_t low = world_malloc(&w, 4, 1);
    uint64_t high = world_malloc(&w, 5, 1);
    world_free(&w, low, world_fence(&w, 1));
    world_free(&w, high, world_fence(&w, 1));
    place = world_address(&w, high);
}

static void find_third_page(void)
{
    seen_status = vpmm_pool_find(w.pool, place + 2 * PAGE, &seen);
}

/* A request reaches over from the region before, and the record stands for the rest. */
static void take_first_two_pages(void)
{
    uint64_t address;
    struct vpmm_want want = world_want(&w, 6, 1);
    assert_int_equal(vpmm_pool_fit(w.pool, &want, &address), VPMM_OK);
    assert_int_equal(address, WORLD_BASE);
}

static void check_whole_or_rest(void)
{
    assert_int_equal(seen_status, VPMM_OK);
    assert_int_equal(seen.state, VPMM_REGION_FREE);
    assert_int_equal(seen.address, seen.pages == 3 ? place + 2 * PAGE : place);
    assert_true(seen.pages == 3 || seen.pages == 5);
}

static void a_find_shows_a_free_region_before_or_after_it_is_cut(void **state)
{
    (void)state;
    meet(prepare_two_pending, find_third_page, take_first_two_pages, check_whole_or_rest);
}

/* ---- a change meets a reader ---- */

static uint64_t steady;

static void prepare_many(void)
{
    uint64_t p[6];
    for (int i = 0; i < 6; i++)
        p[i] = world_malloc(&w, 4, 1);
    steady = world_malloc(&w, 5, 1);
    for (int i = 0; i < 6; i += 2)
        world_free(&w, p[i], world_fence(&w, 1));
}

static void walk(void)
{
    struct vpmm_region_view region;
    uint64_t cursor = 0;
    uint64_t end = WORLD_BASE;
    bool steady_seen = false;
    while (vpmm_pool_next(w.pool, &cursor, &region)) {
        assert_true(region.pages > 0 && region.address >= end);
        end = region.address + region.pages * PAGE;
        assert_true(end <= WORLD_BASE + 128 * PAGE);
        assert_int_not_equal(region.state, VPMM_REGION_UNUSED);
        if (region.state == VPMM_REGION_LIVE)
            assert_int_equal(region.owner.bytes, region.pages * PAGE - 1);
        steady_seen = steady_seen || (region.state == VPMM_REGION_LIVE && region.pages == 5 &&
                                      region.address == world_address(&w, steady));
    }
    assert_true(steady_seen);
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, steady) + 3 * PAGE, &region),
                     VPMM_OK);
    assert_int_equal(region.state, VPMM_REGION_LIVE);
    assert_int_equal(region.pages, 5);
    for (uint64_t page = 0; page < 128; page++)
        assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, page), &region), VPMM_OK);
}

/* A fit, a stitch that ends each way, a free, a settle and a reap. */
static void change_everything(void)
{
    uint64_t address;
    struct vpmm_want want = world_want(&w, 3, 1);
    struct vpmm_plan *plan;
    struct vpmm_region_view region;
    struct vpmm_removal removal;
    assert_int_equal(vpmm_pool_fit(w.pool, &want, &address), VPMM_OK);
    want = world_want(&w, 10, 1);
    assert_int_equal(vpmm_pool_plan(w.pool, &want, &plan), VPMM_OK);
    vpmm_pool_abandon(w.pool, plan, 0);
    assert_int_equal(vpmm_pool_plan(w.pool, &want, &plan), VPMM_OK);
    for (uint32_t i = 0; i < plan->n_steps; i++)
        world_step(&w, &plan->steps[i]);
    vpmm_pool_commit(w.pool, plan, &address);
    assert_int_equal(vpmm_pool_claim(w.pool, address, &region), VPMM_OK);
    vpmm_pool_free(w.pool, address, VPMM_FENCE_NONE, 1);
    for (vpmm_fence fence = 1; fence <= w.n_fences; fence++)
        world_complete(&w, fence);
    vpmm_pool_settle(w.pool, &w.view);
    assert_int_equal(vpmm_pool_take_zombies(w.pool, &w.view, &removal, 1), 1);
    world_unmap(&w, removal.address, removal.pages);
    vpmm_pool_removal_done(w.pool, &removal, VPMM_REMOVED);
}

static void check_world(void)
{
    world_check(&w);
}

static void a_walk_in_the_middle_of_a_change_ends_and_makes_sense(void **state)
{
    (void)state;
    meet(prepare_many, change_everything, walk, check_world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_claim_takes_the_very_region_it_saw),
        cmocka_unit_test(a_find_shows_no_mixture),
        cmocka_unit_test(a_find_shows_a_free_region_before_or_after_its_split),
        cmocka_unit_test(a_find_shows_a_free_region_before_or_after_it_is_cut),
        cmocka_unit_test(a_walk_in_the_middle_of_a_change_ends_and_makes_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
