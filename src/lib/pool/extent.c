/* SPDX-License-Identifier: MIT */
/* Keeps the books of extents: where each is mapped, and which of these places is its home. Must not
 * forget an extent that an old address still shows. */
#include "pool/harvest.h"
#include "pool/pool_internal.h"

#include <assert.h>

struct vpmm_span vpmm_extent_span(const struct vpmm_pool *pool, const struct vpmm_extent *extent)
{
    return (struct vpmm_span){&pool->roots[extent->root], extent->page, extent->pages};
}

static void add_entry(struct vpmm_pool *pool, struct vpmm_root *root, uint64_t page,
                      uint32_t number)
{
    assert(!vpmm_bits_has(&root->extent_starts, page));
    root->extent_at[page] = number;
    vpmm_bits_set(&root->extent_starts, page);
    vpmm_atomic_add(&pool->counters.mappings, 1);
}

static void drop_entry(struct vpmm_pool *pool, struct vpmm_root *root, uint64_t page)
{
    vpmm_bits_clear(&root->extent_starts, page);
    vpmm_atomic_sub(&pool->counters.mappings, 1);
}

void vpmm_extent_create(struct vpmm_pool *pool, uint32_t number, uint64_t handle,
                        const struct vpmm_span *span)
{
    assert(span->pages >> VPMM_EXTENT_PAGES_BITS == 0);
    *vpmm_extent_record(pool, number) = (struct vpmm_extent){
        .handle = handle,
        .pages = VPMM_BITS(span->pages, VPMM_EXTENT_PAGES_BITS),
        .page = VPMM_BITS(span->page, VPMM_PAGE_BITS),
        .root = VPMM_BITS(span->root->number, VPMM_ROOT_BITS),
        .mappings = 1,
    };
    add_entry(pool, span->root, span->page, number);
    pool->slab_pages += span->root->is_of_slabs ? span->pages : 0;
    vpmm_atomic_add(&pool->counters.extents, 1);
    uint64_t held = vpmm_atomic_add(&pool->counters.held_pages, span->pages) + span->pages;
    if (held > vpmm_atomic_load(&pool->counters.held_pages_peak))
        vpmm_atomic_store(&pool->counters.held_pages_peak, held);
}

void vpmm_extent_map(struct vpmm_pool *pool, uint32_t number, struct vpmm_root *root, uint64_t page,
                     bool is_home)
{
    struct vpmm_extent *extent = vpmm_extent_record(pool, number);
    add_entry(pool, root, page, number);
    extent->mappings++;
    if (is_home)
        vpmm_extent_move_home(pool, number, root, page);
}

void vpmm_extent_move_home(struct vpmm_pool *pool, uint32_t number, const struct vpmm_root *root,
                           uint64_t page)
{
    struct vpmm_extent *extent = vpmm_extent_record(pool, number);
    vpmm_harvest_unlist(pool, number);
    pool->slab_pages -= pool->roots[extent->root].is_of_slabs ? extent->pages : 0;
    pool->slab_pages += root->is_of_slabs ? extent->pages : 0;
    extent->page = VPMM_BITS(page, VPMM_PAGE_BITS);
    extent->root = VPMM_BITS(root->number, VPMM_ROOT_BITS);
}

/* Forgets the extent that has its only mapping at `page`, and gives its record back. */
static void destroy(struct vpmm_pool *pool, struct vpmm_root *root, uint64_t page)
{
    uint32_t number = root->extent_at[page];
    uint64_t pages = vpmm_extent_record(pool, number)->pages;
    assert(vpmm_extent_record(pool, number)->mappings == 1);
    vpmm_harvest_unlist(pool, number);
    drop_entry(pool, root, page);
    pool->slab_pages -= root->is_of_slabs ? pages : 0;
    vpmm_table_give(&pool->extents, number);
    vpmm_atomic_sub(&pool->counters.extents, 1);
    vpmm_atomic_sub(&pool->counters.held_pages, pages);
    vpmm_atomic_add(&pool->counters.released_pages, pages);
}

void vpmm_extent_unmap(struct vpmm_pool *pool, const struct vpmm_span *span)
{
    uint64_t page = span->page;
    uint32_t number;
    while ((number = vpmm_extent_next(pool, span, &page)) != 0) {
        VPMM_STEP();
        struct vpmm_extent *extent = vpmm_extent_record(pool, number);
        uint64_t start = page - extent->pages;
        if (extent->page == start && extent->root == span->root->number) {
            destroy(pool, span->root, start);
        } else {
            drop_entry(pool, span->root, start);
            extent->mappings--;
        }
    }
}

uint32_t vpmm_extent_next(const struct vpmm_pool *pool, const struct vpmm_span *span,
                          uint64_t *page)
{
    uint64_t start = vpmm_bits_first_from(&span->root->extent_starts, *page);
    if (start >= span->page + span->pages)
        return 0;
    uint32_t number = span->root->extent_at[start];
    *page = start + vpmm_extent_record(pool, number)->pages;
    return number;
}

uint64_t vpmm_extent_whole_pages(const struct vpmm_pool *pool, const struct vpmm_span *span)
{
    uint64_t end = span->page + span->pages;
    uint64_t first = vpmm_bits_first_from(&span->root->extent_starts, span->page);
    uint64_t last;
    if (first >= end || !vpmm_bits_last_to(&span->root->extent_starts, end - 1, &last))
        return 0;
    uint64_t last_end = last + vpmm_extent_record(pool, span->root->extent_at[last])->pages;
    return (last_end <= end ? last_end : last) - first;
}

bool vpmm_extent_tiles(const struct vpmm_pool *pool, const struct vpmm_span *span)
{
    return vpmm_extent_whole_pages(pool, span) == span->pages;
}

bool vpmm_extent_is_usable(const struct vpmm_pool *pool, const struct vpmm_fence_view *view,
                           const struct vpmm_extent *extent)
{
    const struct vpmm_root *root = &pool->roots[extent->root];
    uint64_t end = extent->page + extent->pages;
    if (extent->is_fixed)
        return false;
    const struct vpmm_region *region =
        vpmm_region_record(pool, vpmm_region_around(root, extent->page));
    for (;;) {
        VPMM_STEP();
        if (!vpmm_region_is_usable(region, view))
            return false;
        uint64_t region_end = region->page + vpmm_region_pages(region);
        if (region_end >= end)
            return true;
        region = vpmm_region_record(pool, vpmm_region_at(root, region_end));
    }
}
