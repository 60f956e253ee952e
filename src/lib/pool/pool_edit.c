/* SPDX-License-Identifier: MIT */
/* Splits, joins and merges regions. Must not fail: callers reserve the records that it takes. */
#include "pool/harvest.h"
#include "pool/pool_internal.h"

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

/* In one go where the span lies in one region: that leaves and enters the indexes once. */
static void carve(struct vpmm_pool *pool, uint32_t number, const struct vpmm_span *span,
                  const struct vpmm_content *content)
{
    const struct vpmm_region *region = vpmm_region_record(pool, number);
    struct vpmm_content rest = vpmm_region_content(region);
    struct vpmm_span whole = vpmm_region_span(pool, region);
    struct vpmm_span left = {span->root, whole.page, span->page - whole.page};
    struct vpmm_span right = {span->root, span->page + span->pages,
                              whole.pages - left.pages - span->pages};
    vpmm_region_remove(pool, number);
    if (left.pages)
        vpmm_region_put(pool, vpmm_table_take(&pool->regions), &left, &rest);
    if (right.pages)
        vpmm_region_put(pool, vpmm_table_take(&pool->regions), &right, &rest);
    vpmm_region_put(pool, number, span, content);
}

void vpmm_region_become(struct vpmm_pool *pool, const struct vpmm_span *span,
                        const struct vpmm_content *content)
{
    uint32_t number = vpmm_region_whole(pool, span);
    if (number) {
        carve(pool, number, span, content);
    } else {
        vpmm_region_isolate(pool, span);
        (void)vpmm_region_fuse(pool, span, content);
    }
}

/* Whether the region must be one with a neighbour of that content. */
static bool is_alike(const struct vpmm_region *region, const struct vpmm_content *content)
{
    if (vpmm_region_state(region) != content->state)
        return false;
    if (content->state == VPMM_REGION_HOLE)
        return true;
    bool has_fence = vpmm_region_fence(region) == content->fence;
    if (content->state == VPMM_REGION_ZOMBIE)
        return has_fence && vpmm_region_content(region).age == content->age;
    return content->state == VPMM_REGION_FREE && has_fence;
}

bool vpmm_region_can_merge(const struct vpmm_region *left, const struct vpmm_region *right)
{
    if (vpmm_region_state(left) != vpmm_region_state(right))
        return false;
    struct vpmm_content content = vpmm_region_content(right);
    return is_alike(left, &content);
}

/* What two neighbours become, freed by nobody in particular where they differ. */
static void add_neighbour(struct vpmm_content *left, const struct vpmm_content *right)
{
    if (right->owner.stream_id != left->owner.stream_id)
        left->owner.stream_id = 0;
}

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
    add_neighbour(&content, &other);
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

/* Whether the stream that left `sum` left the region, too, and one fence stands for both; then it
 * is the fence of `sum`. */
static bool catches_up(const struct vpmm_region *region, struct vpmm_content *sum,
                       const struct vpmm_fence_line *line)
{
    if (sum->state != VPMM_REGION_FREE || !sum->owner.stream_id ||
        vpmm_region_state(region) != VPMM_REGION_FREE ||
        vpmm_region_stream(region) != sum->owner.stream_id)
        return false;
    vpmm_fence later = line->later(line->self, vpmm_region_fence(region), sum->fence);
    if (later != VPMM_FENCE_NONE)
        sum->fence = later;
    return later != VPMM_FENCE_NONE;
}

/* Pages of a neighbour, added to `sum` and `span`; 0: it stays apart. */
static uint64_t absorb(const struct vpmm_pool *pool, uint32_t neighbour, struct vpmm_content *sum,
                       struct vpmm_span *span, const struct vpmm_fence_line *line)
{
    const struct vpmm_region *region = vpmm_region_record(pool, neighbour);
    if (!region || (!is_alike(region, sum) && (!line || !catches_up(region, sum, line))))
        return 0;
    struct vpmm_content content = vpmm_region_content(region);
    add_neighbour(sum, &content);
    span->pages += vpmm_region_pages(region);
    return vpmm_region_pages(region);
}

void vpmm_region_turn_merged(struct vpmm_pool *pool, uint32_t number,
                             const struct vpmm_content *content, const struct vpmm_fence_line *line)
{
    struct vpmm_content sum = *content;
    struct vpmm_span span = vpmm_region_span(pool, vpmm_region_record(pool, number));
    uint64_t own_pages = span.pages, before = 0;
    uint32_t left = vpmm_region_left(pool, number), right = vpmm_region_right(pool, number);
    if (content->state == VPMM_REGION_FREE)
        vpmm_harvest_note(pool, &span);
    /* Another fence may be that of the neighbours after these. */
    while (span.pages != before) {
        before = span.pages;
        uint64_t pages = absorb(pool, left, &sum, &span, line);
        span.page -= pages;
        if (pages)
            left = line ? vpmm_region_left(pool, left) : 0;
        if (absorb(pool, right, &sum, &span, line))
            right = line ? vpmm_region_right(pool, right) : 0;
    }
    if (span.pages == own_pages)
        vpmm_region_change(pool, number, &sum);
    else
        (void)vpmm_region_fuse(pool, &span, &sum);
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
