/* SPDX-License-Identifier: MIT */
#include "serve_scene.h"

vpmm_fence old, young;

void use_extents_of(uint64_t extent_pages, uint64_t root_pages)
{
    world_finish(&w);
    world_init(&w, 2 * MIB, extent_pages, root_pages);
}

struct vpmm_region_view at(uint64_t page)
{
    struct vpmm_region_view region;
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, page), &region), VPMM_OK);
    return region;
}

void serve(uint64_t page, uint64_t pages, const char *layout)
{
    assert_int_equal(world_serve_at(&w, page, pages, 1), VPMM_OK);
    assert_string_equal(world_layout(&w), layout);
}

void refuse(uint64_t page, uint64_t pages, uint64_t stream)
{
    assert_int_equal(world_serve_at(&w, page, pages, stream), VPMM_NOT_FOUND);
}

void move_four_extents(uint64_t old_stream, uint64_t young_stream)
{
    use_extents_of(4, 256);
    old = old_stream ? world_fence(&w, old_stream) : VPMM_FENCE_NONE;
    young = young_stream ? world_fence(&w, young_stream) : VPMM_FENCE_NONE;
    world_malloc(&w, 16, 1);
    world_malloc(&w, 1, 1);
    world_free(&w, 0, old);
    assert_int_equal(world_malloc(&w, 20, 1), 17);
    for (uint64_t i = 0; i < 16; i++)
        assert_int_equal(w.pages[17 + i].extent, w.pages[i].extent);
    struct vpmm_region_view region;
    assert_int_equal(vpmm_pool_claim(w.pool, world_address(&w, 17), &region), VPMM_OK);
    vpmm_pool_free(w.pool, region.address, young, young_stream);
    world_check(&w);
    assert_string_equal(world_layout(&w), "[z16][1][-20]");
}
