/* SPDX-License-Identifier: MIT */
/* Claims a live region for one free, then makes it free with its fence. Must not let two frees have
 * the same block. */
#include "pool/pool_internal.h"

#include <assert.h>

enum vpmm_status vpmm_pool_claim(struct vpmm_pool *pool, uint64_t address,
                                 struct vpmm_region_view *view_out)
{
    return vpmm_pool_claim_of(pool, address, 0, view_out);
}

enum vpmm_status vpmm_pool_claim_of(struct vpmm_pool *pool, uint64_t address, uint64_t owner_id,
                                    struct vpmm_region_view *view_out)
{
    const struct vpmm_root *root = vpmm_root_of(pool, address);
    if (!root)
        return VPMM_NOT_FOUND;
    uint64_t page = vpmm_root_page(pool, root, address);
    struct vpmm_region *region = vpmm_region_record(pool, vpmm_region_at(root, page));
    struct vpmm_region_view view;
    uint64_t word;
    if (!region || !vpmm_region_read(region, &view, &word) || view.state != VPMM_REGION_LIVE ||
        view.address != address || (owner_id && view.owner.id != owner_id) ||
        !vpmm_region_claim(pool, region, word, &view))
        return VPMM_NOT_FOUND;
    *view_out = view;
    return VPMM_OK;
}

void vpmm_pool_free(struct vpmm_pool *pool, uint64_t address, vpmm_fence fence, uint64_t stream_id)
{
    const struct vpmm_root *root = vpmm_root_of(pool, address);
    assert(root);
    uint32_t number = vpmm_region_at(root, vpmm_root_page(pool, root, address));
    assert(vpmm_region_state(vpmm_region_record(pool, number)) == VPMM_REGION_BUSY);
    struct vpmm_content content = {
        .state = VPMM_REGION_FREE,
        .fence = fence,
        .owner = {.stream_id = stream_id},
    };
    uint64_t pages = vpmm_region_pages(vpmm_region_record(pool, number));
    vpmm_region_turn_merged(pool, number, &content, NULL);
    vpmm_atomic_sub(&pool->counters.claimed_pages, pages);
}
