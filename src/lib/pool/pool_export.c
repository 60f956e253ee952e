/* SPDX-License-Identifier: MIT */
/* Marks a live region as exported, and tells which extents show a block. Must not change a region's
 * word but by compare-and-swap, so that a free at the same time notices. */
#include "pool/pool_internal.h"

/* The mark is a change of the word, so that a free that read the word before it fails and looks
 * again. */
bool vpmm_pool_export(struct vpmm_pool *pool, uint64_t address, uint64_t owner_id)
{
    const struct vpmm_root *root = vpmm_root_of(pool, address);
    struct vpmm_region *region =
        root ? vpmm_region_record(pool, vpmm_region_at(root, vpmm_root_page(pool, root, address)))
             : NULL;
    struct vpmm_region_view view;
    uint64_t word;
    while (region && vpmm_region_read(region, &view, &word) && view.state == VPMM_REGION_LIVE &&
           view.address == address && view.owner.id == owner_id) {
        VPMM_STEP();
        uint64_t marked = (word | VPMM_REGION_IS_EXPORTED) + VPMM_REGION_GENERATION;
        if (view.is_exported || vpmm_atomic_swap_if(&region->word, &word, marked))
            return true;
    }
    return false;
}

uint64_t vpmm_pool_shared_pages(const struct vpmm_pool *pool, uint64_t address)
{
    struct vpmm_region_view view;
    struct vpmm_shown_extent first, last;
    if (vpmm_pool_find(pool, address, &view))
        return 0;
    uint64_t last_page = address + (view.pages - 1) * pool->params.page_bytes;
    if (!vpmm_pool_shown_extents(pool, address, address, &first, 1) ||
        !vpmm_pool_shown_extents(pool, address, last_page, &last, 1))
        return 0;
    return (last.address - first.address) / pool->params.page_bytes + last.pages - view.pages;
}

size_t vpmm_pool_shown_extents(const struct vpmm_pool *pool, uint64_t address, uint64_t from,
                               struct vpmm_shown_extent *extents_out, size_t room)
{
    const struct vpmm_root *root = vpmm_root_of(pool, address);
    struct vpmm_region_view view;
    uint64_t page;
    size_t n = 0;
    if (!root || vpmm_pool_find(pool, address, &view) || view.address != address ||
        from - address >= view.pages * pool->params.page_bytes ||
        !vpmm_bits_last_to(&root->extent_starts, vpmm_root_page(pool, root, from), &page))
        return 0;
    uint64_t end = vpmm_root_page(pool, root, address) + view.pages;
    for (; n < room && page < end; n++) {
        VPMM_STEP();
        const struct vpmm_extent *extent = vpmm_extent_record(pool, root->extent_at[page]);
        extents_out[n] = (struct vpmm_shown_extent){
            extent->handle, vpmm_root_address(pool, root, page), extent->pages};
        page += extent->pages;
    }
    return n;
}
