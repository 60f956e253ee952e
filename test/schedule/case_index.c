/* SPDX-License-Identifier: MIT */
/* From address to region without a lock, while regions are split and merged and roots are adopted.
 */
#include "cases.h"

#include "stage.h"

#define GROUP "index"

#define PAGES 6
#define ROOT_PAGES 2
#define APART ((uint64_t)1 << 30) /* addresses from one root to the next */

static struct world {
    struct stage_pool *stage;
    uint64_t steady, other; /* pages of live regions: one that stays, one that does not */
    bool other_was_freed;
} * world;

static void prepare_one_root(void)
{
    world = schedule_room(sizeof *world);
    world->stage = stage_pool(PAGES, PAGES);
    world->steady = stage_take(world->stage, 1, NULL);
}

/* The live region lies between the one that is freed and the free rest. */
static void prepare_neighbours(void)
{
    world = schedule_room(sizeof *world);
    world->stage = stage_pool(PAGES, PAGES);
    world->other = stage_take(world->stage, 2, NULL);
    world->steady = stage_take(world->stage, 1, NULL);
}

/* More roots than are looked through one by one. */
static void prepare_roots(void)
{
    prepare_neighbours();
    for (uint64_t i = 1; i < FEW_ROOTS + 1; i++)
        expect(!vpmm_pool_add_root(world->stage->pool, DEVICE_BASE + i * APART, ROOT_PAGES, false));
}

static void adopt(uint64_t address)
{
    vpmm_lock_take(&world->stage->lock);
    expect(!vpmm_pool_add_root(world->stage->pool, address, ROOT_PAGES, false));
    vpmm_lock_give(&world->stage->lock);
}

/* Below all others, so that every one of them moves up. */
static void adopt_below(void)
{
    adopt(DEVICE_BASE - APART);
}

static void adopt_two(void)
{
    adopt(DEVICE_BASE - APART);
    adopt(DEVICE_BASE - 2 * APART);
}

static void split(void)
{
    (void)stage_take(world->stage, 2, NULL);
}

static void split_and_merge(void)
{
    struct vpmm_region_view view;
    uint64_t page = stage_take(world->stage, 2, NULL);
    expect(stage_free(world->stage, page, &view));
}

static void free_other(void)
{
    struct vpmm_region_view view;
    world->other_was_freed = stage_free(world->stage, world->other, &view);
    expect(world->other_was_freed);
}

static void find_steady(void)
{
    struct vpmm_region_view view;
    expect(!vpmm_pool_find(world->stage->pool, stage_address(world->steady), &view));
    expect(view.state == VPMM_REGION_LIVE && view.pages == 1);
    expect(view.address == stage_address(world->steady));
}

/* What holds the page is one of the shapes that come and go there, or just changes. */
static void find_page(uint64_t page)
{
    struct vpmm_region_view view;
    expect(!vpmm_pool_find(world->stage->pool, stage_address(page), &view));
    expect(view.state == VPMM_REGION_FREE || view.state == VPMM_REGION_LIVE ||
           view.state == VPMM_REGION_BUSY);
    expect(view.address <= stage_address(page));
    expect(view.address + view.pages * DEVICE_PAGE_BYTES > stage_address(page));
    expect(view.address + view.pages * DEVICE_PAGE_BYTES <= stage_address(PAGES));
    if (view.state == VPMM_REGION_LIVE)
        expect(view.owner.bytes == view.pages * DEVICE_PAGE_BYTES - 1);
}

static void find_split_page(void)
{
    find_page(2);
}

static void find_last_page(void)
{
    find_page(PAGES - 1);
}

static void find_in_new_root(void)
{
    struct vpmm_region_view view;
    if (!vpmm_pool_find(world->stage->pool, DEVICE_BASE - APART, &view))
        expect(view.state == VPMM_REGION_HOLE && view.pages == ROOT_PAGES);
    expect(vpmm_pool_find(world->stage->pool, DEVICE_BASE + APART / 2, &view) == VPMM_NOT_FOUND);
}

static void find_above_all(void)
{
    struct vpmm_region_view view;
    expect(!vpmm_pool_find(world->stage->pool, DEVICE_BASE + FEW_ROOTS * APART, &view));
    expect(view.state == VPMM_REGION_HOLE && view.pages == ROOT_PAGES);
}

static void check(void)
{
    stage_pool_check(world->stage);
}

const struct schedule_case cases_index[] = {
    SCHEDULE_TEST(steady_beside_a_split, prepare_one_root, {split, find_steady}, check),
    SCHEDULE_TEST(page_of_a_split, prepare_one_root, {split, find_split_page}, check),
    SCHEDULE_TEST(last_page_of_a_split, prepare_one_root, {split_and_merge, find_last_page}, check),
    SCHEDULE_TEST(steady_beside_a_free, prepare_neighbours, {free_other, find_steady, split},
                  check),
    SCHEDULE_TEST(steady_while_a_root_is_adopted, prepare_roots, {adopt_below, find_steady}, check),
    SCHEDULE_TEST(steady_while_two_are_adopted, prepare_roots, {adopt_two, find_steady}, check),
    SCHEDULE_TEST(moved_root, prepare_roots, {adopt_two, find_above_all}, check),
    SCHEDULE_TEST(new_root, prepare_roots, {adopt_below, find_in_new_root}, check),
    SCHEDULE_TEST(free_while_a_root_is_adopted, prepare_roots, {adopt_below, free_other}, check),
    {0},
};
