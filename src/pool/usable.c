/* SPDX-License-Identifier: MIT */
#include "pool/internal.h"

void vpmm_usable_snapshot(struct vpmm_pool *pool, const struct vpmm_fence_view *view)
{
    vpmm_fence asked = VPMM_FENCE_NONE;
    enum vpmm_verdict verdict = VPMM_VERDICT_COMPLETE;
    pool->usable.top = 0;
    for (uint32_t number = pool->pending_by_age.oldest; number;) {
        struct vpmm_region *region = vpmm_region_record(pool, number);
        vpmm_fence fence = vpmm_region_fence(region);
        if (fence != asked)
            verdict = view->ask(view->self, fence);
        asked = fence;
        region->verdict = verdict;
        if (verdict != VPMM_VERDICT_PENDING)
            vpmm_tree_insert(&pool->usable, number);
        number = region->newer;
    }
}

bool vpmm_region_is_usable(const struct vpmm_region *region)
{
    return vpmm_region_state(region) == VPMM_REGION_FREE &&
           (vpmm_region_fence(region) == VPMM_FENCE_NONE ||
            region->verdict != VPMM_VERDICT_PENDING);
}

uint32_t vpmm_usable_first(const struct vpmm_pool *pool)
{
    uint32_t number = vpmm_index_first(&pool->complete);
    return number ? number : vpmm_index_first(&pool->usable);
}

uint32_t vpmm_usable_next(const struct vpmm_pool *pool, uint32_t number)
{
    if (vpmm_region_fence(vpmm_region_record(pool, number)) != VPMM_FENCE_NONE)
        return vpmm_index_next(&pool->usable, number);
    uint32_t next = vpmm_index_next(&pool->complete, number);
    return next ? next : vpmm_index_first(&pool->usable);
}

static bool passes(const struct vpmm_pool *pool, uint32_t number, vpmm_region_test *test)
{
    return number && test(vpmm_region_record(pool, number));
}

struct vpmm_span vpmm_run_around(const struct vpmm_pool *pool, uint32_t number,
                                 vpmm_region_test *test)
{
    struct vpmm_span run = vpmm_region_span(pool, vpmm_region_record(pool, number));
    for (uint32_t at = vpmm_region_left(pool, number); passes(pool, at, test);
         at = vpmm_region_left(pool, at)) {
        uint64_t pages = vpmm_region_pages(vpmm_region_record(pool, at));
        run.page -= pages;
        run.pages += pages;
    }
    for (uint32_t at = vpmm_region_right(pool, number); passes(pool, at, test);
         at = vpmm_region_right(pool, at))
        run.pages += vpmm_region_pages(vpmm_region_record(pool, at));
    return run;
}

/* Two complete neighbours are one region, so the next but one to the left decides at the latest. */
bool vpmm_run_is_led_by(const struct vpmm_pool *pool, uint32_t number, vpmm_region_test *test)
{
    uint32_t left = vpmm_region_left(pool, number);
    if (!passes(pool, left, test))
        return true;
    if (vpmm_region_fence(vpmm_region_record(pool, left)) != VPMM_FENCE_NONE)
        return false;
    return !passes(pool, vpmm_region_left(pool, left), test);
}

static vpmm_fence unless_complete(const struct vpmm_fence_view *view, vpmm_fence fence)
{
    return view->ask(view->self, fence) == VPMM_VERDICT_COMPLETE ? VPMM_FENCE_NONE : fence;
}

enum vpmm_status vpmm_fence_add(const struct vpmm_fence_view *view, vpmm_fence fence,
                                vpmm_fence *sum)
{
    if (fence == VPMM_FENCE_NONE || fence == *sum)
        return VPMM_OK;
    vpmm_fence joined = *sum == VPMM_FENCE_NONE ? fence : view->join(view->self, *sum, fence);
    if (joined == VPMM_FENCE_NONE) {
        vpmm_fence a = unless_complete(view, *sum);
        vpmm_fence b = unless_complete(view, fence);
        if (a != VPMM_FENCE_NONE && b != VPMM_FENCE_NONE)
            return VPMM_NO_METADATA;
        joined = a != VPMM_FENCE_NONE ? a : b;
    }
    *sum = joined;
    return VPMM_OK;
}

enum vpmm_status vpmm_fence_add_span(const struct vpmm_pool *pool,
                                     const struct vpmm_fence_view *view,
                                     const struct vpmm_span *span, vpmm_fence *sum)
{
    uint32_t number = vpmm_region_around(span->root, span->page);
    for (uint64_t end = 0; end < span->page + span->pages;) {
        const struct vpmm_region *region = vpmm_region_record(pool, number);
        vpmm_fence fence = vpmm_region_fence(region);
        if (fence != VPMM_FENCE_NONE && region->verdict != VPMM_VERDICT_COMPLETE) {
            enum vpmm_status status = vpmm_fence_add(view, fence, sum);
            if (status)
                return status;
        }
        end = region->page + vpmm_region_pages(region);
        number = vpmm_region_right(pool, number);
    }
    return VPMM_OK;
}
