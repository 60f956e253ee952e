/* SPDX-License-Identifier: MIT */
#include "pool/internal.h"

#include <assert.h>

enum vpmm_status vpmm_pool_claim(struct vpmm_pool *pool, uint64_t address,
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
        view.address != address || !vpmm_region_claim(pool, region, word, &view))
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
        .age = ++pool->last_age,
        .owner = {.stream_id = stream_id},
    };
    vpmm_region_turn(pool, number, &content);
    (void)vpmm_region_merge(pool, number);
}

void vpmm_pool_settle(struct vpmm_pool *pool, const struct vpmm_fence_view *view)
{
    vpmm_usable_snapshot(pool, view);
    for (uint32_t number = pool->pending_by_age.oldest; number;) {
        const struct vpmm_region *region = vpmm_region_record(pool, number);
        uint32_t newer = region->newer;
        if (region->verdict == VPMM_VERDICT_COMPLETE) {
            struct vpmm_content content = vpmm_region_content(region);
            content.fence = VPMM_FENCE_NONE;
            vpmm_region_turn(pool, number, &content);
            (void)vpmm_region_merge(pool, number);
        }
        number = newer;
    }
}

static bool has(const vpmm_fence *fences, size_t n, vpmm_fence fence)
{
    for (size_t i = n; i-- > 0;)
        if (fences[i] == fence)
            return true;
    return false;
}

size_t vpmm_pool_pending(const struct vpmm_pool *pool,
                         bool (*is_wanted)(void *self, vpmm_fence fence), void *self,
                         vpmm_fence *fences_out, size_t room)
{
    size_t n = 0;
    for (uint32_t number = pool->pending_by_age.oldest; number && n < room;) {
        const struct vpmm_region *region = vpmm_region_record(pool, number);
        vpmm_fence fence = vpmm_region_fence(region);
        if ((!is_wanted || is_wanted(self, fence)) && !has(fences_out, n, fence))
            fences_out[n++] = fence;
        number = region->newer;
    }
    return n;
}
