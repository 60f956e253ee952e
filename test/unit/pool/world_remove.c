/* SPDX-License-Identifier: MIT */
#include "world.h"

size_t world_reap(struct world *world, bool unmaps)
{
    struct vpmm_removal removals[16];
    size_t sum = 0;
    size_t n;
    world->stream = 0;
    while ((n = vpmm_pool_take_zombies(world->pool, &world->view, removals, 16)) > 0) {
        world_check(world);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(removals[i].extent, 0);
            if (unmaps)
                world_unmap(world, removals[i].address, removals[i].pages);
            vpmm_pool_removal_done(world->pool, &removals[i], unmaps ? VPMM_REMOVED : VPMM_STUCK);
            world_check(world);
        }
        sum += n;
    }
    return sum;
}

void world_retry(struct world *world)
{
    struct vpmm_removal removals[16];
    size_t n = vpmm_pool_take_quarantined(world->pool, removals, 16);
    world_check(world);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(removals[i].extent, 0);
        vpmm_pool_removal_done(world->pool, &removals[i], VPMM_STUCK);
        world_check(world);
    }
    assert_int_equal(vpmm_pool_take_quarantined(world->pool, removals, 16), n);
    for (size_t i = 0; i < n; i++) {
        world_unmap(world, removals[i].address, removals[i].pages);
        vpmm_pool_removal_done(world->pool, &removals[i], VPMM_REMOVED);
        world_check(world);
    }
    assert_int_equal(vpmm_pool_take_quarantined(world->pool, removals, 16), 0);
}

uint64_t world_trim(struct world *world, uint64_t pages, bool unmaps)
{
    struct vpmm_removal removals[16];
    uint64_t sum = 0;
    size_t n;
    do {
        n = vpmm_pool_take_extents(world->pool, pages - sum, UINT64_MAX, removals, 16);
        world_check(world);
        for (size_t i = 0; i < n; i++) {
            uint64_t page = world_page(world, removals[i].address);
            assert_int_equal(removals[i].extent, world->pages[page].extent);
            assert_int_equal(world->pages[page].offset, 0);
            assert_int_equal(world->extents[removals[i].extent].mappings, 1);
            assert_int_equal(world->extents[removals[i].extent].pages, removals[i].pages);
            if (unmaps)
                world_unmap(world, removals[i].address, removals[i].pages);
            vpmm_pool_removal_done(world->pool, &removals[i], unmaps ? VPMM_REMOVED : VPMM_KEPT);
            world_check(world);
            sum += removals[i].pages;
        }
    } while (unmaps && n > 0 && sum < pages);
    return sum;
}
