/* SPDX-License-Identifier: MIT */
/* The audit names every kind of damage: each case breaks one thing in a sound pool and expects the
 * sentence that tells of it. */
#include "world.h"

#include "pool/harvest.h"
#include "pool/pool_internal.h"

#include <string.h>

#define PAGE ((uint64_t)2 << 20)
#define UNIT 32 /* pages: requests of so many are cut into extents of EXTENT pages */
#define EXTENT 4

/* Two zombies of extents that are live as MOVED, two pending free regions of different age, a
 * complete one, live ones, and the hole behind them. */
enum place {
    ZOMBIE = 0,
    PENDING = UNIT,
    SECOND_ZOMBIE = 2 * UNIT,
    MOVED = 4 * UNIT,
    LIVE = 6 * UNIT,
    COMPLETE = 7 * UNIT,
    SECOND_PENDING = 9 * UNIT,
    HOLE = 11 * UNIT,
    PAGES = 16 * UNIT
};

static void scene(struct world *w)
{
    world_init(w, PAGE, EXTENT, PAGES);
    for (uint64_t page = 0; page < MOVED; page += UNIT)
        assert_int_equal(world_malloc(w, UNIT, 1), page);
    world_free(w, ZOMBIE, VPMM_FENCE_NONE);
    world_free(w, SECOND_ZOMBIE, VPMM_FENCE_NONE);
    assert_int_equal(world_malloc(w, LIVE - MOVED, 1), MOVED);
    for (uint64_t page = LIVE; page < HOLE; page += UNIT)
        assert_int_equal(world_malloc(w, UNIT, 1), page);
    world_free(w, PENDING, world_fence(w, 1));
    world_free(w, SECOND_PENDING, world_fence(w, 1));
    world_free(w, COMPLETE, VPMM_FENCE_NONE);
    vpmm_index_admit(w->pool);
    assert_string_equal(world_layout(w), "[z32][-32][z32][32][64][32][-32][32][-32][32]");
    assert_int_equal(world_totals(w).extents, HOLE / EXTENT - 2 * UNIT / EXTENT);
}

static uint32_t number_at(struct vpmm_pool *pool, enum place place)
{
    return vpmm_region_at(&pool->roots[0], (uint64_t)place);
}

static struct vpmm_region *region_at(struct vpmm_pool *pool, enum place place)
{
    return vpmm_region_record(pool, number_at(pool, place));
}

static struct vpmm_extent *extent_at(struct vpmm_pool *pool, enum place place)
{
    return vpmm_extent_record(pool, pool->roots[0].extent_at[place]);
}

static struct vpmm_extent *last_extent_at(struct vpmm_pool *pool, enum place place)
{
    return vpmm_extent_record(pool, pool->roots[0].extent_at[place + UNIT - EXTENT]);
}

static void map_again(struct vpmm_pool *pool, uint64_t page)
{
    vpmm_bits_set(&pool->roots[0].extent_starts, page);
    pool->roots[0].extent_at[page] = pool->roots[0].extent_at[LIVE];
}

/* ---- regions ---- */

static void a_page_of_nobody(struct vpmm_pool *pool)
{
    vpmm_atomic_store(&pool->roots[0].region_at[LIVE], 0);
}

static void a_page_of_an_unused_record(struct vpmm_pool *pool)
{
    assert_int_equal(vpmm_table_reserve(&pool->regions, 1), VPMM_OK);
    vpmm_atomic_store(&pool->roots[0].region_at[LIVE], vpmm_table_take(&pool->regions));
}

static void a_record_of_another_page(struct vpmm_pool *pool)
{
    region_at(pool, LIVE)->page++;
}

static void a_record_of_another_root(struct vpmm_pool *pool)
{
    region_at(pool, LIVE)->root++;
}

static void a_record_of_another_address(struct vpmm_pool *pool)
{
    vpmm_atomic_add(&region_at(pool, LIVE)->address, PAGE);
}

static void a_region_without_pages(struct vpmm_pool *pool)
{
    vpmm_atomic_store(&region_at(pool, LIVE)->pages, 0);
}

static void a_region_beyond_its_root(struct vpmm_pool *pool)
{
    vpmm_atomic_add(&region_at(pool, HOLE)->pages, 1);
}

static void a_last_page_of_another(struct vpmm_pool *pool)
{
    vpmm_atomic_store(&pool->roots[0].region_at[LIVE + UNIT - 1], number_at(pool, HOLE));
}

static void a_region_without_a_start(struct vpmm_pool *pool)
{
    vpmm_bits_clear(&pool->roots[0].region_starts, LIVE);
}

static void a_start_inside_a_region(struct vpmm_pool *pool)
{
    vpmm_bits_set(&pool->roots[0].region_starts, LIVE + 1);
}

static void complete_neighbours(struct vpmm_pool *pool)
{
    vpmm_region_turn_state(pool, number_at(pool, LIVE), VPMM_REGION_FREE);
}

/* ---- extents ---- */

static void an_extent_beyond_its_root(struct vpmm_pool *pool)
{
    extent_at(pool, LIVE)->pages = PAGES;
}

static void an_extent_without_pages(struct vpmm_pool *pool)
{
    extent_at(pool, LIVE)->pages = 0;
}

static void a_zombie_that_is_home(struct vpmm_pool *pool)
{
    extent_at(pool, ZOMBIE)->page = ZOMBIE;
}

static void a_live_alias(struct vpmm_pool *pool)
{
    extent_at(pool, LIVE)->page = HOLE;
}

static void an_extent_that_reaches_into_a_zombie(struct vpmm_pool *pool)
{
    last_extent_at(pool, PENDING)->pages++;
}

static void a_live_region_without_extents(struct vpmm_pool *pool)
{
    vpmm_bits_clear(&pool->roots[0].extent_starts, LIVE);
}

static void a_hole_with_an_extent(struct vpmm_pool *pool)
{
    map_again(pool, HOLE);
}

static void a_gap_after_an_extent(struct vpmm_pool *pool)
{
    last_extent_at(pool, LIVE)->pages--;
}

static void a_zombie_that_ends_inside_an_extent(struct vpmm_pool *pool)
{
    last_extent_at(pool, ZOMBIE)->pages++;
}

static void an_extent_inside_a_hole(struct vpmm_pool *pool)
{
    map_again(pool, HOLE + 1);
}

static void overlapping_extents(struct vpmm_pool *pool)
{
    map_again(pool, LIVE + 1);
}

static void a_mapping_too_many(struct vpmm_pool *pool)
{
    extent_at(pool, LIVE)->mappings++;
}

/* ---- totals ---- */

static void a_live_page_too_many(struct vpmm_pool *pool)
{
    vpmm_atomic_add(&pool->counters.pages[VPMM_REGION_LIVE], 1);
}

static void a_quarantined_page_too_many(struct vpmm_pool *pool)
{
    vpmm_atomic_add(&pool->counters.pages[VPMM_REGION_QUARANTINED], 1);
}

static void a_live_byte_too_few(struct vpmm_pool *pool)
{
    vpmm_atomic_sub(&pool->counters.live_bytes, 1);
}

static void an_extent_too_many(struct vpmm_pool *pool)
{
    vpmm_atomic_add(&pool->counters.extents, 1);
}

static void a_held_page_too_many(struct vpmm_pool *pool)
{
    vpmm_atomic_add(&pool->counters.held_pages, 1);
}

static void a_counted_mapping_too_few(struct vpmm_pool *pool)
{
    vpmm_atomic_sub(&pool->counters.mappings, 1);
}

static void a_lost_region_record(struct vpmm_pool *pool)
{
    pool->spare_regions++;
}

static void a_lost_extent_record(struct vpmm_pool *pool)
{
    pool->spare_extents++;
}

static void free_trees_exchanged(struct vpmm_pool *pool)
{
    struct vpmm_tree complete = pool->complete;
    pool->complete = pool->pending;
    pool->pending = complete;
}

static void a_live_region_among_the_holes(struct vpmm_pool *pool)
{
    vpmm_tree_remove(&pool->holes, number_at(pool, HOLE));
    vpmm_tree_insert(&pool->holes, number_at(pool, LIVE));
}

static void a_hole_in_no_tree(struct vpmm_pool *pool)
{
    vpmm_tree_remove(&pool->holes, number_at(pool, HOLE));
}

static void a_tree_with_its_branches_exchanged(struct vpmm_pool *pool)
{
    struct vpmm_tree_node *top = &vpmm_region_record(pool, pool->pending.top)->size_node;
    *top = (struct vpmm_tree_node){top->right, top->left};
}

static void a_zombie_in_no_tree(struct vpmm_pool *pool)
{
    vpmm_tree_remove(&pool->zombies, number_at(pool, ZOMBIE));
}

static void a_live_region_among_the_zombies(struct vpmm_pool *pool)
{
    vpmm_tree_remove(&pool->zombies, number_at(pool, ZOMBIE));
    vpmm_tree_insert(&pool->zombies, number_at(pool, LIVE));
}

static void a_hole_nobody_grows_into(struct vpmm_pool *pool)
{
    struct vpmm_span span = {&pool->roots[0], HOLE - UNIT, UNIT};
    vpmm_region_turn_state(pool, vpmm_region_at(span.root, span.page), VPMM_REGION_FREE);
    vpmm_index_admit(pool);
    vpmm_tree_remove(&pool->growable, vpmm_region_at(span.root, span.page));
}

static void a_slab_page_too_many(struct vpmm_pool *pool)
{
    pool->slab_pages++;
}

static void a_whole_page_too_many(struct vpmm_pool *pool)
{
    pool->whole_pages++;
}

static void a_free_extent_that_is_not_listed(struct vpmm_pool *pool)
{
    vpmm_harvest_refresh(pool);
    vpmm_harvest_unlist(pool, pool->roots[0].extent_at[COMPLETE]);
}

static void a_listed_extent_out_of_the_list(struct vpmm_pool *pool)
{
    vpmm_harvest_refresh(pool);
    vpmm_tree_remove(&pool->harvest, pool->roots[0].extent_at[COMPLETE]);
}

static void an_extent_that_does_not_know_it_is_listed(struct vpmm_pool *pool)
{
    extent_at(pool, LIVE)->is_listed = 0;
    vpmm_tree_insert(&pool->harvest, pool->roots[0].extent_at[LIVE]);
}

static void an_extent_still_picked(struct vpmm_pool *pool)
{
    extent_at(pool, LIVE)->is_picked = 1;
}

struct damage {
    void (*done)(struct vpmm_pool *pool);
    const char *finding;
};

static const struct damage damages[] = {
    {a_page_of_nobody, "a page of a root belongs to no region"},
    {a_page_of_an_unused_record, "a page of a root belongs to no region"},
    {a_record_of_another_page, "a region record is not where the page index says"},
    {a_record_of_another_root, "a region record is not where the page index says"},
    {a_record_of_another_address, "a region record is not where the page index says"},
    {a_region_without_pages, "a region does not end inside its root"},
    {a_region_beyond_its_root, "a region does not end inside its root"},
    {a_last_page_of_another, "the last page of a region does not name it"},
    {a_region_without_a_start, "the region starts do not tile a root"},
    {a_start_inside_a_region, "the region starts do not tile a root"},
    {complete_neighbours, "two neighbours should be one region"},
    {an_extent_beyond_its_root, "an extent does not end inside its root"},
    {an_extent_without_pages, "an extent does not end inside its root"},
    {a_zombie_that_is_home, "a zombie is the only mapping of an extent"},
    {a_live_alias, "an extent is mapped twice outside zombies"},
    {an_extent_that_reaches_into_a_zombie,
     "an extent reaches into a region that is mapped as a whole or not at all"},
    {a_live_region_without_extents, "a mapped region has no extents, or a hole has some"},
    {a_hole_with_an_extent, "a mapped region has no extents, or a hole has some"},
    {a_gap_after_an_extent, "the extents of a region do not fill it"},
    {a_zombie_that_ends_inside_an_extent, "the extents of a region do not fill it"},
    {an_extent_inside_a_hole, "a region that is not mapped has extents"},
    {overlapping_extents, "two extents overlap"},
    {a_mapping_too_many, "an extent is not mapped as often as its record says"},
    {a_live_page_too_many, "the running totals of a state are not the sums over its regions"},
    {a_quarantined_page_too_many,
     "the running totals of a state are not the sums over its regions"},
    {a_live_byte_too_few, "the running total of live bytes is not their sum"},
    {an_extent_too_many, "the running totals of extents are not the sums over them"},
    {a_held_page_too_many, "the running totals of extents are not the sums over them"},
    {a_counted_mapping_too_few, "the running totals of extents are not the sums over them"},
    {a_lost_region_record, "a region record is lost"},
    {a_lost_extent_record, "an extent record is lost"},
    {free_trees_exchanged, "a region is in the wrong tree"},
    {a_live_region_among_the_holes, "a region is in the wrong tree"},
    {a_hole_in_no_tree, "a region is missing in its tree"},
    {a_tree_with_its_branches_exchanged, "a region is missing in its tree"},
    {a_zombie_in_no_tree, "a region is missing in its tree"},
    {a_live_region_among_the_zombies, "a region is in the wrong tree"},
    {a_hole_nobody_grows_into, "a region is missing in its tree"},
    {a_slab_page_too_many, "what lies in slab roots is not the sum over it"},
    {a_whole_page_too_many, "the running totals of extents are not the sums over them"},
    {a_free_extent_that_is_not_listed, "an extent that could be harvested is not listed"},
    {a_listed_extent_out_of_the_list, "a listed extent is missing in the list"},
    {an_extent_that_does_not_know_it_is_listed, "an extent is listed and does not know it"},
    {an_extent_still_picked, "an extent is still marked by a request that has ended"},
};

static void every_damage_is_found_and_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        struct world w;
        scene(&w);
        damages[i].done(w.pool);
        const char *finding = vpmm_pool_audit(w.pool);
        if (!finding || strcmp(finding, damages[i].finding) != 0)
            fail_msg("damage %zu: \"%s\" instead of \"%s\"", i, finding ? finding : "",
                     damages[i].finding);
        world_finish(&w);
    }
}

static void damage_of_any_root_is_found(void **state)
{
    (void)state;
    struct world w;
    scene(&w);
    world_add_root(&w, 1000, PAGES);
    assert_null(vpmm_pool_audit(w.pool));
    vpmm_bits_set(&w.pool->roots[1].region_starts, 1);
    assert_string_equal(vpmm_pool_audit(w.pool), "the region starts do not tile a root");
    world_finish(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_damage_is_found_and_named),
        cmocka_unit_test(damage_of_any_root_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
