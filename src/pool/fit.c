/* SPDX-License-Identifier: MIT */
#include "pool/internal.h"

#include <assert.h>

/* So many pending regions are asked about before a complete one, or a walk over all, has to do. */
#define ASKED_MAX 256

/* The smallest single region, at the lowest address; of one size the stream's own before complete
 * ones, which serve anybody; 0 when there is none. */
static uint32_t find_region(struct vpmm_pool *pool, const struct vpmm_want *want)
{
    uint32_t complete = vpmm_index_fit(&pool->complete, want->pages);
    uint64_t limit = complete ? vpmm_region_pages(vpmm_region_record(pool, complete)) : UINT64_MAX;
    uint32_t number = vpmm_index_fit(&pool->pending, want->pages);
    for (int asked = 0; number && asked < ASKED_MAX;
         asked++, number = vpmm_index_next(&pool->pending, number)) {
        struct vpmm_region *region = vpmm_region_record(pool, number);
        if (vpmm_region_pages(region) > limit)
            break;
        region->verdict = want->view->ask(want->view->self, vpmm_region_fence(region));
        if (vpmm_region_is_usable(region))
            return number;
    }
    return complete;
}

/* The shortest run of usable neighbours, which holds at least one that is pending: complete ones
 * would be one region. */
static bool find_run(struct vpmm_pool *pool, const struct vpmm_want *want,
                     struct vpmm_span *run_out)
{
    bool found = false;
    vpmm_usable_snapshot(pool, want->view);
    uint32_t number = vpmm_index_first(&pool->usable);
    for (; number; number = vpmm_index_next(&pool->usable, number)) {
        if (!vpmm_run_is_led_by(pool, number, vpmm_region_is_usable))
            continue;
        struct vpmm_span run = vpmm_run_around(pool, number, vpmm_region_is_usable);
        if (run.pages >= want->pages && (!found || run.pages < run_out->pages)) {
            *run_out = run;
            found = true;
        }
    }
    return found;
}

bool vpmm_fit_find(struct vpmm_pool *pool, const struct vpmm_want *want, struct vpmm_span *span_out)
{
    uint32_t number = find_region(pool, want);
    struct vpmm_span span;
    if (number)
        span = vpmm_region_span(pool, vpmm_region_record(pool, number));
    else if (!find_run(pool, want, &span))
        return false;
    span.pages = want->pages;
    *span_out = span;
    return true;
}

enum vpmm_status vpmm_pool_fit(struct vpmm_pool *pool, const struct vpmm_want *want,
                               uint64_t *address_out)
{
    struct vpmm_span span;
    struct vpmm_content live = {.state = VPMM_REGION_LIVE, .owner = want->owner};
    assert(want->pages > 0);
    if (vpmm_atomic_load(&pool->counters.pages[VPMM_REGION_FREE]) < want->pages ||
        !vpmm_fit_find(pool, want, &span))
        return VPMM_NOT_FOUND;
    enum vpmm_status status = vpmm_fence_add_span(pool, want->view, &span, &live.fence);
    if (!status)
        status = vpmm_table_reserve(&pool->regions, 2);
    if (status)
        return status;
    vpmm_region_isolate(pool, &span);
    (void)vpmm_region_fuse(pool, &span, &live);
    *address_out = vpmm_root_address(pool, span.root, span.page);
    return VPMM_OK;
}
