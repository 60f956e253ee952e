/* SPDX-License-Identifier: MIT */
/* Tells which free regions a request may have, and joins the fences that it comes after. Must not
 * leave out a fence that is not known complete. */
#include "pool/pool_internal.h"

bool vpmm_region_is_usable(const struct vpmm_region *region, const struct vpmm_fence_view *view)
{
    if (vpmm_region_state(region) != VPMM_REGION_FREE)
        return false;
    vpmm_fence fence = vpmm_region_fence(region);
    return fence == VPMM_FENCE_NONE || view->ask(view->self, fence) != VPMM_VERDICT_PENDING;
}

static bool is_usable(const struct vpmm_pool *pool, uint32_t number,
                      const struct vpmm_fence_view *view)
{
    return number && vpmm_region_is_usable(vpmm_region_record(pool, number), view);
}

struct vpmm_span vpmm_run_around(const struct vpmm_pool *pool, uint32_t number,
                                 const struct vpmm_fence_view *view, unsigned reach)
{
    struct vpmm_span run = vpmm_region_span(pool, vpmm_region_record(pool, number));
    uint32_t at = vpmm_region_left(pool, number);
    for (unsigned i = 0; i < reach && is_usable(pool, at, view); i++) {
        VPMM_STEP();
        uint64_t pages = vpmm_region_pages(vpmm_region_record(pool, at));
        run.page -= pages;
        run.pages += pages;
        at = vpmm_region_left(pool, at);
    }
    at = vpmm_region_right(pool, number);
    for (unsigned i = 0; i < reach && is_usable(pool, at, view); i++) {
        VPMM_STEP();
        run.pages += vpmm_region_pages(vpmm_region_record(pool, at));
        at = vpmm_region_right(pool, at);
    }
    return run;
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
        VPMM_STEP();
        const struct vpmm_region *region = vpmm_region_record(pool, number);
        vpmm_fence fence = vpmm_region_fence(region);
        if (fence != VPMM_FENCE_NONE && unless_complete(view, fence) != VPMM_FENCE_NONE) {
            enum vpmm_status status = vpmm_fence_add(view, fence, sum);
            if (status)
                return status;
        }
        end = region->page + vpmm_region_pages(region);
        number = vpmm_region_right(pool, number);
    }
    return VPMM_OK;
}
