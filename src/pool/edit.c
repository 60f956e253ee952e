/* SPDX-License-Identifier: MIT */
#include "pool/internal.h"

#include <assert.h>

/* A region boundary at `page`, at the price of one record where there is none yet. */
static void split(struct vpmm_pool *pool, struct vpmm_root *root, uint64_t page)
{
    if (page == root->pages || vpmm_bits_has(&root->region_starts, page))
        return;
    uint32_t high = vpmm_region_around(root, page);
    uint32_t low = vpmm_table_take(&pool->regions);
    assert(low);
    struct vpmm_region *region = vpmm_region_record(pool, high);
    struct vpmm_content content = vpmm_region_content(region);
    struct vpmm_span span = vpmm_region_span(pool, region);
    uint64_t low_pages = page - span.page;
    vpmm_region_remove(pool, high);
    vpmm_region_put(pool, low, &(struct vpmm_span){root, span.page, low_pages}, &content);
    vpmm_region_put(pool, high, &(struct vpmm_span){root, page, span.pages - low_pages}, &content);
}

void vpmm_region_isolate(struct vpmm_pool *pool, const struct vpmm_span *span)
{
    split(pool, span->root, span->page);
    split(pool, span->root, span->page + span->pages);
}

uint32_t vpmm_region_fuse(struct vpmm_pool *pool, const struct vpmm_span *span,
                          const struct vpmm_content *content)
{
    uint64_t end = span->page + span->pages;
    uint32_t first = vpmm_region_at(span->root, span->page);
    for (uint64_t page = span->page; page < end;) {
        VPMM_STEP();
        uint32_t number = vpmm_region_at(span->root, page);
        page += vpmm_region_pages(vpmm_region_record(pool, number));
        vpmm_region_remove(pool, number);
        if (number != first)
            vpmm_table_give(&pool->regions, number);
    }
    vpmm_region_put(pool, first, span, content);
    return first;
}

bool vpmm_region_can_merge(const struct vpmm_region *left, const struct vpmm_region *right)
{
    enum vpmm_region_state state = vpmm_region_state(left);
    if (state != vpmm_region_state(right))
        return false;
    if (state == VPMM_REGION_HOLE)
        return true;
    bool is_alike = vpmm_region_fence(left) == vpmm_region_fence(right);
    if (state == VPMM_REGION_ZOMBIE)
        return is_alike && vpmm_region_content(left).age == vpmm_region_content(right).age;
    return state == VPMM_REGION_FREE && is_alike;
}

/* Two neighbours become one, freed by nobody in particular where they differ. */
static uint32_t merge_pair(struct vpmm_pool *pool, uint32_t left_number, uint32_t right_number)
{
    const struct vpmm_region *left = vpmm_region_record(pool, left_number);
    const struct vpmm_region *right = vpmm_region_record(pool, right_number);
    if (!vpmm_region_can_merge(left, right))
        return 0;
    struct vpmm_span span = vpmm_region_span(pool, left);
    struct vpmm_content content = vpmm_region_content(left);
    struct vpmm_content other = vpmm_region_content(right);
    span.pages += vpmm_region_pages(right);
    if (other.owner.stream_id != content.owner.stream_id)
        content.owner.stream_id = 0;
    return vpmm_region_fuse(pool, &span, &content);
}

uint32_t vpmm_region_merge(struct vpmm_pool *pool, uint32_t number)
{
    uint32_t left = vpmm_region_left(pool, number);
    uint32_t merged = left ? merge_pair(pool, left, number) : 0;
    number = merged ? merged : number;
    uint32_t right = vpmm_region_right(pool, number);
    merged = right ? merge_pair(pool, number, right) : 0;
    return merged ? merged : number;
}

void vpmm_region_restore(struct vpmm_pool *pool, const struct vpmm_span *span,
                         enum vpmm_region_state state)
{
    uint64_t end = span->page + span->pages;
    for (uint64_t page = span->page; page < end;) {
        VPMM_STEP();
        uint32_t number = vpmm_region_at(span->root, page);
        page += vpmm_region_pages(vpmm_region_record(pool, number));
        vpmm_region_turn_state(pool, number, state);
        (void)vpmm_region_merge(pool, number);
    }
}

void vpmm_region_make_busy(struct vpmm_pool *pool, const struct vpmm_span *span)
{
    uint64_t end = span->page + span->pages;
    for (uint64_t page = span->page; page < end;) {
        VPMM_STEP();
        uint32_t number = vpmm_region_at(span->root, page);
        const struct vpmm_region *region = vpmm_table_record(&pool->regions, number);
        page += vpmm_region_pages(region);
        vpmm_region_turn_state(pool, number, VPMM_REGION_BUSY);
    }
}
