/* SPDX-License-Identifier: MIT */
/* What threads may ask without the lock: find, claim, next, totals. */
#define _GNU_SOURCE

#include "world.h"

#include "base/atomic.h"

#include <pthread.h>

#define PAGE ((uint64_t)2 << 20)

static void an_interior_address_finds_its_region(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, PAGE, 1, 1 << 16);
    for (uint64_t n = 1; n < 200; n++)
        world_malloc(&w, n, 1);
    struct vpmm_region_view region;
    uint64_t page = 0;
    for (uint64_t n = 1; n < 200; page += n, n++) {
        const uint64_t places[] = {0, 1, PAGE - 1, n * PAGE / 2, n * PAGE - 1};
        for (int i = 0; i < 5; i++) {
            uint64_t address = world_address(&w, page) + places[i];
            assert_int_equal(vpmm_pool_find(w.pool, address, &region), VPMM_OK);
            assert_int_equal(region.address, world_address(&w, page));
            assert_int_equal(region.pages, n);
            assert_int_equal(region.owner.bytes, n * PAGE - 1);
            assert_int_equal(vpmm_pool_live_bytes(w.pool, address),
                             places[i] == 0 ? n * PAGE - 1 : 0);
            assert_true(region.owner.is_async);
        }
    }
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, page), &region), VPMM_OK);
    assert_int_equal(region.state, VPMM_REGION_HOLE);
    assert_int_equal(vpmm_pool_live_bytes(w.pool, world_address(&w, page)), 0);
    assert_int_equal(vpmm_pool_find(w.pool, WORLD_BASE - 1, &region), VPMM_NOT_FOUND);
    assert_int_equal(vpmm_pool_live_bytes(w.pool, WORLD_BASE - 1), 0);
    assert_int_equal(vpmm_pool_find(w.pool, WORLD_BASE + (PAGE << 16), &region), VPMM_NOT_FOUND);
    world_finish(&w);
}

static void only_the_start_of_a_live_region_can_be_claimed(void **state)
{
    (void)state;
    struct world w;
    struct vpmm_region_view region;
    world_init(&w, PAGE, 1, 64);
    uint64_t page = world_malloc(&w, 4, 1);
    uint64_t address = world_address(&w, page);
    assert_int_equal(vpmm_pool_claim(w.pool, address + 1, &region), VPMM_NOT_FOUND);
    assert_int_equal(vpmm_pool_claim(w.pool, address + PAGE, &region), VPMM_NOT_FOUND);
    assert_int_equal(vpmm_pool_claim(w.pool, address + 3 * PAGE, &region), VPMM_NOT_FOUND);
    assert_int_equal(vpmm_pool_claim(w.pool, address + 4 * PAGE, &region), VPMM_NOT_FOUND);
    assert_int_equal(vpmm_pool_claim(w.pool, 0, &region), VPMM_NOT_FOUND);
    assert_int_equal(vpmm_pool_claim(w.pool, address, &region), VPMM_OK);
    assert_int_equal(region.state, VPMM_REGION_LIVE);
    assert_int_equal(region.pages, 4);
    assert_int_equal(vpmm_pool_claim(w.pool, address, &region), VPMM_NOT_FOUND);
    assert_int_equal(world_totals(&w).live_bytes, 0);
    vpmm_pool_free(w.pool, address, VPMM_FENCE_NONE, 1);
    assert_int_equal(vpmm_pool_claim(w.pool, address, &region), VPMM_NOT_FOUND);
    world_check(&w);
    world_finish(&w);
}

static void a_walk_shows_the_roots_in_order_of_address(void **state)
{
    (void)state;
    struct world w;
    struct vpmm_region_view region;
    world_init(&w, PAGE, 1, 0);
    world_add_root(&w, 1000, 10);
    world_add_root(&w, 0, 10);
    world_add_root(&w, 10, 10);
    for (int i = 0; i < 3; i++)
        world_malloc(&w, 6, 1);
    const uint64_t starts[] = {0, 6, 10, 16, 1000, 1006};
    uint64_t cursor = 0;
    uint64_t address;
    uint64_t pages;
    assert_int_equal(world_totals(&w).live_pages, 18);
    for (int i = 0; i < 6; i++) {
        assert_true(vpmm_pool_next(w.pool, &cursor, &region));
        assert_int_equal(world_page(&w, region.address), starts[i]);
        assert_int_equal(region.begins_root, i % 2 == 0);
    }
    assert_false(vpmm_pool_next(w.pool, &cursor, &region));
    assert_false(vpmm_pool_next(w.pool, &cursor, &region));
    assert_true(vpmm_pool_root(w.pool, 1, &address, &pages));
    assert_int_equal(address, WORLD_BASE);
    assert_int_equal(pages, 10);
    assert_false(vpmm_pool_root(w.pool, 3, &address, &pages));
    world_finish(&w);
}

/* So many that they are searched, each adopted below all others. */
static void a_walk_over_many_roots_goes_up(void **state)
{
    (void)state;
    enum {
        ROOTS = 12
    };
    struct world w;
    struct vpmm_region_view region;
    uint64_t cursor = 0;
    world_init(&w, PAGE, 1, 0);
    for (int i = ROOTS; i-- > 0;)
        world_add_root(&w, 20 * (uint64_t)i, 10);
    for (uint64_t i = 0; i < ROOTS; i++) {
        assert_true(vpmm_pool_next(w.pool, &cursor, &region));
        assert_int_equal(world_page(&w, region.address), 20 * i);
        assert_int_equal(region.pages, 10);
    }
    assert_false(vpmm_pool_next(w.pool, &cursor, &region));
    assert_int_equal(vpmm_pool_find(w.pool, WORLD_BASE + 15 * PAGE, &region), VPMM_NOT_FOUND);
    world_finish(&w);
}

static void thousands_of_roots_are_told_apart(void **state)
{
    (void)state;
    struct world w;
    struct vpmm_region_view region;
    world_init(&w, PAGE, 1, 0);
    for (uint64_t i = 0; i < 4096; i++)
        assert_int_equal(
            vpmm_pool_add_root(w.pool, world_address(&w, i * 1031 % 4096 * 8), 4, false), VPMM_OK);
    world_check(&w);
    for (uint64_t i = 0; i < 4096; i++) {
        uint64_t address = world_address(&w, i * 8);
        assert_int_equal(vpmm_pool_find(w.pool, address + 4 * PAGE - 1, &region), VPMM_OK);
        assert_int_equal(region.address, address);
        assert_int_equal(vpmm_pool_find(w.pool, address + 4 * PAGE, &region), VPMM_NOT_FOUND);
        assert_int_equal(vpmm_pool_find(w.pool, address - 1, &region), VPMM_NOT_FOUND);
    }
    world_finish(&w);
}

/* ---- threads ---- */

struct race {
    struct vpmm_pool *pool;
    pthread_barrier_t *start;
    uint64_t address;
    uint32_t rounds, wins;
};

static void *claim_all(void *argument)
{
    struct race *race = argument;
    struct vpmm_region_view region;
    (void)pthread_barrier_wait(race->start);
    for (uint32_t i = 0; i < race->rounds; i++)
        race->wins += vpmm_pool_claim(race->pool, race->address + i * PAGE, &region) == VPMM_OK;
    return NULL;
}

static void of_two_claims_one_wins(void **state)
{
    (void)state;
    struct world w;
    pthread_barrier_t start;
    pthread_t threads[2];
    world_init(&w, PAGE, 1, 4096);
    uint64_t address = 0;
    struct vpmm_want want = world_want(&w, 1, 1);
    world_grow(&w, 2000);
    for (int i = 0; i < 2000; i++)
        assert_int_equal(vpmm_pool_fit(w.pool, &want, &address), VPMM_OK);
    assert_int_equal(pthread_barrier_init(&start, NULL, 2), 0);
    struct race races[2];
    for (int i = 0; i < 2; i++) {
        races[i] = (struct race){w.pool, &start, WORLD_BASE, 2000, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, claim_all, &races[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(races[0].wins + races[1].wins, 2000);
    (void)pthread_barrier_destroy(&start);
    world_check(&w);
    assert_int_equal(world_totals(&w).live_pages, 0);
    assert_int_equal(world_totals(&w).busy_pages, 2000);
    world_finish(&w);
}

struct reader {
    struct vpmm_pool *pool;
    uint64_t steady; /* a live region of 5 pages that stays */
    _Atomic bool *stop;
    uint64_t faults;
};

/* Regions come and go around it, but what is shown is always one region of a sane shape, in order.
 */
static void *read_on(void *argument)
{
    struct reader *reader = argument;
    while (!atomic_load(reader->stop)) {
        struct vpmm_region_view region;
        struct vpmm_pool_totals totals;
        uint64_t cursor = 0;
        uint64_t last_end = 0;
        reader->faults += vpmm_pool_find(reader->pool, reader->steady + 3 * PAGE, &region) ||
                          region.state != VPMM_REGION_LIVE || region.address != reader->steady ||
                          region.pages != 5 || region.owner.bytes != 5 * PAGE - 1;
        while (vpmm_pool_next(reader->pool, &cursor, &region)) {
            reader->faults += region.pages == 0 || region.address < last_end ||
                              region.state == VPMM_REGION_UNUSED;
            if (region.state == VPMM_REGION_LIVE)
                reader->faults += region.owner.bytes != region.pages * PAGE - 1;
            last_end = region.address + region.pages * PAGE;
        }
        vpmm_pool_totals(reader->pool, &totals);
        reader->faults += totals.root_pages != 512;
    }
    return NULL;
}

static void readers_see_whole_regions_while_everything_changes(void **state)
{
    (void)state;
    struct world w;
    pthread_t thread;
    _Atomic bool stop = false;
    world_init(&w, PAGE, 1, 512);
    world_malloc(&w, 7, 1);
    struct reader reader = {w.pool, world_address(&w, world_malloc(&w, 5, 1)), &stop, 0};
    assert_int_equal(pthread_create(&thread, NULL, read_on, &reader), 0);
    for (uint64_t round = 0; round < 100; round++) {
        uint64_t pages[4];
        for (uint64_t i = 0; i < 4; i++)
            pages[i] = world_malloc(&w, 1 + (round * 7 + i * 5) % 13, 1 + i);
        for (uint64_t i = 0; i < 4; i++)
            world_free(&w, pages[(i + round) % 4], i == 3 ? world_fence(&w, 1) : VPMM_FENCE_NONE);
        world_complete(&w, w.n_fences);
        world_settle(&w);
        world_reap(&w, true);
    }
    /* Now as fast as it goes, at one place and another: records change hands and sizes all the
     * time. */
    struct vpmm_region_view region;
    for (uint64_t round = 0; round < 200000; round++) {
        struct vpmm_want want = world_want(&w, 1 + round % 5, 0);
        uint64_t address;
        assert_int_equal(vpmm_pool_fit(w.pool, &want, &address), VPMM_OK);
        assert_int_equal(vpmm_pool_claim(w.pool, address, &region), VPMM_OK);
        vpmm_pool_free(w.pool, address, VPMM_FENCE_NONE, round);
    }
    world_check(&w);
    atomic_store(&stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(reader.faults, 0);
    world_finish(&w);
}

/* ---- size ---- */

static void a_hundred_thousand_regions_can_be_audited(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, PAGE, 0, 1 << 17);
    world_grow(&w, 120000);
    struct vpmm_want want = world_want(&w, 1, 0);
    uint64_t address;
    for (int i = 0; i < 110000; i++)
        assert_int_equal(vpmm_pool_fit(w.pool, &want, &address), VPMM_OK);
    struct vpmm_region_view region;
    uint64_t cursor = 0, n_free = 0;
    for (uint64_t i = 0; i < 110000; i += 2) {
        assert_int_equal(vpmm_pool_claim(w.pool, world_address(&w, i), &region), VPMM_OK);
        vpmm_pool_free(w.pool, world_address(&w, i), i % 4 ? world_fence(&w, 1) : VPMM_FENCE_NONE,
                       1);
    }
    assert_null(vpmm_pool_audit(w.pool));
    while (vpmm_pool_next(w.pool, &cursor, &region))
        n_free += region.state == VPMM_REGION_FREE;
    assert_int_equal(n_free, 55001);
    assert_int_equal(world_largest_run(&w), 10000);
    world_finish(&w);
}

static void a_root_of_8_tib_costs_what_is_used(void **state)
{
    (void)state;
    struct vpmm_pool_params params = {PAGE, 0, 1000, 0};
    struct vpmm_pool *pool;
    struct vpmm_plan *plan;
    uint64_t address;
    assert_int_equal(vpmm_pool_create(&params, &vpmm_memory_system, &pool), VPMM_OK);
    assert_int_equal(vpmm_pool_add_root(pool, WORLD_BASE, ((uint64_t)8 << 40) / PAGE, false),
                     VPMM_OK);
    assert_int_equal(vpmm_pool_add_root(pool, WORLD_BASE + 1, 0, false), VPMM_INVALID);
    assert_int_equal(vpmm_pool_add_root(pool, UINT64_MAX - PAGE, 2, false), VPMM_INVALID);
    assert_int_equal(vpmm_pool_plan_growth(pool, 4096, &plan), VPMM_OK);
    for (uint32_t i = 0; i < plan->n_steps; i++)
        plan->steps[i].extent = i + 1;
    vpmm_pool_commit(pool, plan, &address);
    assert_int_equal(address, WORLD_BASE);
    assert_null(vpmm_pool_audit(pool));
    vpmm_pool_destroy(pool);
    vpmm_pool_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interior_address_finds_its_region),
        cmocka_unit_test(only_the_start_of_a_live_region_can_be_claimed),
        cmocka_unit_test(a_walk_shows_the_roots_in_order_of_address),
        cmocka_unit_test(a_walk_over_many_roots_goes_up),
        cmocka_unit_test(thousands_of_roots_are_told_apart),
        cmocka_unit_test(of_two_claims_one_wins),
        cmocka_unit_test(readers_see_whole_regions_while_everything_changes),
        cmocka_unit_test(a_hundred_thousand_regions_can_be_audited),
        cmocka_unit_test(a_root_of_8_tib_costs_what_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
