/* SPDX-License-Identifier: MIT */
#include "pool/internal.h"

#include <assert.h>

void vpmm_pool_add_share(struct vpmm_pool *pool, struct vpmm_pool_share *share)
{
    share->next = atomic_load_explicit(&pool->first_share, memory_order_relaxed);
    atomic_store_explicit(&pool->first_share, share, memory_order_release);
}

static struct vpmm_region *record_of(const struct vpmm_pool *pool, uint32_t number)
{
    return vpmm_table_record(&pool->regions, number);
}

/* Its writers exclude one another, so that this needs no atomic addition. */
static void change(vpmm_atomic64 *sum, uint64_t by)
{
    vpmm_atomic_store(sum, vpmm_atomic_load(sum) + by);
}

static void count_cached(struct vpmm_pool_share *share, uint64_t pages, uint64_t bytes)
{
    change(&share->cached_regions, 1);
    change(&share->cached_pages, pages);
    change(&share->live_bytes, -bytes);
}

static void discount_cached(struct vpmm_pool_share *share, uint64_t pages, uint64_t bytes)
{
    change(&share->cached_regions, (uint64_t)-1);
    change(&share->cached_pages, -pages);
    change(&share->live_bytes, bytes);
}

void vpmm_shares_sum(const struct vpmm_pool *pool, struct vpmm_share_sum *sum_out)
{
    struct vpmm_share_sum sum = {0, 0, 0};
    const struct vpmm_pool_share *share =
        atomic_load_explicit(&pool->first_share, memory_order_acquire);
    for (; share; share = share->next) {
        sum.cached_regions += vpmm_atomic_load(&share->cached_regions);
        sum.cached_pages += vpmm_atomic_load(&share->cached_pages);
        sum.live_bytes += vpmm_atomic_load(&share->live_bytes);
    }
    *sum_out = sum;
}

bool vpmm_pool_look_live(const struct vpmm_pool *pool, uint64_t address, struct vpmm_live *live_out)
{
    const struct vpmm_root *root = vpmm_root_of(pool, address);
    if (!root)
        return false;
    uint32_t number = vpmm_region_at(root, vpmm_root_page(pool, root, address));
    if (!number)
        return false;
    const struct vpmm_region *region = record_of(pool, number);
    *live_out = (struct vpmm_live){
        .word = vpmm_atomic_load(&region->word),
        .pages = vpmm_atomic_load(&region->pages),
        .bytes = vpmm_atomic_load(&region->bytes),
        .context_id = vpmm_atomic_load(&region->context_id),
        .fence = vpmm_atomic_load(&region->fence),
        .number = number,
    };
    live_out->is_async = (live_out->word & VPMM_REGION_IS_ASYNC) != 0;
    return vpmm_region_is_live(live_out->word) && vpmm_atomic_load(&region->address) == address;
}

bool vpmm_pool_cache(struct vpmm_pool *pool, const struct vpmm_live *live, vpmm_fence fence,
                     uint64_t stream_id, struct vpmm_pool_share *share)
{
    struct vpmm_region *region = record_of(pool, live->number);
    if (!vpmm_region_swap_live(region, live->word, VPMM_REGION_CACHED))
        return false;
    vpmm_atomic_store(&region->fence, fence);
    vpmm_atomic_store(&region->stream_id, stream_id);
    count_cached(share, live->pages, live->bytes);
    return true;
}

uint64_t vpmm_pool_uncache(struct vpmm_pool *pool, uint32_t number, const struct vpmm_owner *owner,
                           struct vpmm_pool_share *share)
{
    struct vpmm_region *region = record_of(pool, number);
    assert(vpmm_region_state(region) == VPMM_REGION_CACHED);
    discount_cached(share, vpmm_region_pages(region), owner->bytes);
    vpmm_region_own(region, owner);
    return vpmm_atomic_load(&region->address);
}

void vpmm_pool_free_cached(struct vpmm_pool *pool, uint32_t number, bool is_complete,
                           struct vpmm_pool_share *share)
{
    struct vpmm_region *region = record_of(pool, number);
    struct vpmm_content content = {
        .state = VPMM_REGION_FREE,
        .fence = is_complete ? VPMM_FENCE_NONE : vpmm_region_fence(region),
        .owner = {.stream_id = vpmm_atomic_load(&region->stream_id)},
    };
    assert(vpmm_region_state(region) == VPMM_REGION_CACHED);
    discount_cached(share, vpmm_region_pages(region), vpmm_atomic_load(&region->bytes));
    vpmm_region_turn_merged(pool, number, &content);
}

vpmm_fence vpmm_pool_cached_fence(const struct vpmm_pool *pool, uint32_t number)
{
    return vpmm_region_fence(record_of(pool, number));
}

/* ---- serving from what is cached ---- */

/* A range of pages, and the regions that it lies in. */
struct taking {
    struct vpmm_pool *pool;
    const struct vpmm_want *want;
    const struct vpmm_pool_cached *cached;
    struct vpmm_pool_share *share;
    struct vpmm_pool_left *left;
    struct vpmm_span range;
};

static bool is_named(const struct vpmm_pool_cached *cached, uint32_t number)
{
    for (uint32_t i = 0; i < cached->n; i++)
        if (cached->numbers[i] == number)
            return true;
    return false;
}

/* The region that lies at `page` of the range, if the request may have it, or NULL. */
static const struct vpmm_region *look_at(const struct taking *taking, uint32_t number)
{
    const struct vpmm_region *region = record_of(taking->pool, number);
    bool may_have = vpmm_region_state(region) == VPMM_REGION_CACHED
                        ? is_named(taking->cached, number)
                        : vpmm_region_is_usable(region, taking->want->view);
    return may_have ? region : NULL;
}

/* The first region of the range; 0 where the request may not have all of them. `*end_out`: the page
 * behind the last. */
static uint32_t find_first(const struct taking *taking, uint64_t *end_out)
{
    const struct vpmm_root *root = taking->range.root;
    uint64_t end = taking->range.page + taking->range.pages;
    uint32_t first = vpmm_region_around(root, taking->range.page);
    for (uint32_t number = first; number; number = vpmm_region_at(root, *end_out)) {
        VPMM_STEP();
        const struct vpmm_region *region = look_at(taking, number);
        if (!region)
            return 0;
        *end_out = region->page + vpmm_region_pages(region);
        if (*end_out >= end)
            return first;
        if (*end_out == root->pages)
            return 0;
    }
    return 0;
}

/* What is left of the region that `content` tells of. */
static void put_left(struct taking *taking, uint64_t page, uint64_t end,
                     struct vpmm_content *content)
{
    struct vpmm_pool *pool = taking->pool;
    struct vpmm_span span = {taking->range.root, page, end - page};
    if (!span.pages)
        return;
    uint32_t number = vpmm_table_take(&pool->regions);
    content->owner.bytes = 0;
    if (content->state == VPMM_REGION_CACHED) {
        count_cached(taking->share, span.pages, 0);
        taking->left->pieces[taking->left->n++] =
            (struct vpmm_pool_piece){vpmm_root_address(pool, span.root, page), span.pages, number};
    }
    vpmm_region_put(pool, number, &span, content);
}

static struct vpmm_content content_of(const struct vpmm_region *region)
{
    struct vpmm_content content = {.state = vpmm_region_state(region),
                                   .fence = vpmm_region_fence(region)};
    content.owner.stream_id = vpmm_atomic_load(&region->stream_id);
    return content;
}

/* All records are reserved. */
static void take(struct taking *taking, uint32_t first, const struct vpmm_content *live)
{
    struct vpmm_pool *pool = taking->pool;
    const struct vpmm_span *range = &taking->range;
    uint64_t end = range->page + range->pages;
    uint64_t start = record_of(pool, first)->page;
    struct vpmm_content head = content_of(record_of(pool, first));
    struct vpmm_content tail = head;
    uint64_t page = start;
    while (page < end) {
        VPMM_STEP();
        uint32_t number = vpmm_region_at(range->root, page);
        const struct vpmm_region *region = record_of(pool, number);
        uint64_t pages = vpmm_region_pages(region);
        page += pages;
        tail = content_of(region);
        vpmm_region_remove(pool, number);
        if (tail.state == VPMM_REGION_CACHED)
            discount_cached(taking->share, pages, vpmm_atomic_load(&region->bytes));
        if (number != first)
            vpmm_table_give(&pool->regions, number);
    }
    put_left(taking, start, range->page, &head);
    put_left(taking, end, page, &tail);
    vpmm_region_put(pool, first, range, live);
}

enum vpmm_status vpmm_pool_serve_cached(struct vpmm_pool *pool, const struct vpmm_want *want,
                                        uint64_t address, const struct vpmm_pool_cached *cached,
                                        struct vpmm_pool_share *share,
                                        struct vpmm_pool_left *left_out)
{
    struct taking taking = {pool,  want,     cached,
                            share, left_out, {vpmm_root_of(pool, address), 0, 0}};
    struct vpmm_content live = {.state = VPMM_REGION_LIVE, .owner = want->owner};
    struct vpmm_root *root = taking.range.root;
    uint64_t end;
    left_out->n = 0;
    if (!root)
        return VPMM_NOT_FOUND;
    taking.range.page = vpmm_root_page(pool, root, address);
    taking.range.pages = want->pages;
    uint32_t first = find_first(&taking, &end);
    if (!first)
        return VPMM_NOT_FOUND;
    enum vpmm_status status = vpmm_fence_add_span(pool, want->view, &taking.range, &live.fence);
    if (!status)
        status = vpmm_table_reserve(&pool->regions, 2);
    if (!status)
        take(&taking, first, &live);
    return status;
}
