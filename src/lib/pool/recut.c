/* SPDX-License-Identifier: MIT */
/* Serves a request from what a lane holds and what is free beside it, cut and put together. Must
 * not put what stays cached into an index. */
#include "pool/pool_internal.h"

#include <assert.h>

/* No index knows of what a front cache holds, so that a part of it is cut off, or some of it put
 * together, without a way through any; and as it counts as live in the running totals, they hardly
 * change. */

struct sum {
    uint64_t regions, pages, bytes;
};

/* A range of pages, and the regions that it lies in. */
struct taking {
    struct vpmm_pool *pool;
    const struct vpmm_want *want;
    const struct vpmm_pool_cached *cached;
    struct vpmm_pool_share *share;
    struct vpmm_span range;
    uint32_t first;
    uint64_t start, end;
    vpmm_fence fence;       /* of all of them */
    struct sum taken, left; /* of those that are cached */
};

static struct vpmm_region *record_of(const struct vpmm_pool *pool, uint32_t number)
{
    return vpmm_table_record(&pool->regions, number);
}

static bool is_named(const struct vpmm_pool_cached *cached, uint32_t number)
{
    for (uint32_t i = 0; i < cached->n; i++)
        if (cached->numbers[i] == number)
            return true;
    return false;
}

/* Whether the request may have the region; its fence then adds to the others'. */
static enum vpmm_status look_at(struct taking *taking, uint32_t number, vpmm_fence *newest)
{
    const struct vpmm_region *region = record_of(taking->pool, number);
    const struct vpmm_fence_view *view = taking->want->view;
    vpmm_fence fence = vpmm_region_fence(region);
    if (vpmm_region_state(region) == VPMM_REGION_CACHED && is_named(taking->cached, number)) {
        *newest = fence > *newest ? fence : *newest;
        return VPMM_OK;
    }
    if (vpmm_region_state(region) != VPMM_REGION_FREE)
        return VPMM_NOT_FOUND;
    if (fence == VPMM_FENCE_NONE)
        return VPMM_OK;
    enum vpmm_verdict verdict = view->ask(view->self, fence);
    if (verdict == VPMM_VERDICT_PENDING)
        return VPMM_NOT_FOUND;
    return verdict == VPMM_VERDICT_COMPLETE ? VPMM_OK : vpmm_fence_add(view, fence, &taking->fence);
}

/* Finds the regions, all of which the request may have. */
static enum vpmm_status look(struct taking *taking)
{
    const struct vpmm_root *root = taking->range.root;
    uint64_t end = taking->range.page + taking->range.pages;
    uint32_t number = taking->first = vpmm_region_around(root, taking->range.page);
    vpmm_fence newest = VPMM_FENCE_NONE;
    taking->start = taking->end = record_of(taking->pool, number)->page;
    for (;;) {
        VPMM_STEP();
        enum vpmm_status status = look_at(taking, number, &newest);
        if (status)
            return status;
        taking->end += vpmm_region_pages(record_of(taking->pool, number));
        if (taking->end >= end)
            return vpmm_fence_add(taking->want->view, newest, &taking->fence);
        if (taking->end == root->pages)
            return VPMM_NOT_FOUND;
        number = vpmm_region_at(root, taking->end);
    }
}

static void add(struct sum *sum, uint64_t pages, uint64_t bytes)
{
    sum->regions++;
    sum->pages += pages;
    sum->bytes += bytes;
}

/* What is left of a region that was `content`. */
static void leave(struct taking *taking, uint64_t page, uint64_t end, struct vpmm_content *content,
                  struct vpmm_pool_left *left)
{
    struct vpmm_pool *pool = taking->pool;
    struct vpmm_span span = {taking->range.root, page, end - page};
    if (!span.pages)
        return;
    uint32_t number = vpmm_table_take(&pool->regions);
    if (content->state == VPMM_REGION_FREE) {
        vpmm_region_put(pool, number, &span, content);
        return;
    }
    add(&taking->left, span.pages, 0);
    left->pieces[left->n++] =
        (struct vpmm_pool_piece){vpmm_root_address(pool, span.root, page), span.pages, number};
    vpmm_region_lay(pool, number, &span, content);
}

static void content_of(const struct vpmm_region *region, struct vpmm_content *content)
{
    content->state = vpmm_region_state(region);
    content->fence = vpmm_region_fence(region);
    content->owner.stream_id = vpmm_atomic_load(&region->stream_id);
}

/* The regions are no more, but for the first one's record. */
static void lift(struct taking *taking, struct vpmm_content *head, struct vpmm_content *tail)
{
    struct vpmm_pool *pool = taking->pool;
    content_of(record_of(pool, taking->first), head);
    for (uint64_t page = taking->start; page < taking->end;) {
        VPMM_STEP();
        uint32_t number = vpmm_region_at(taking->range.root, page);
        const struct vpmm_region *region = record_of(pool, number);
        uint64_t pages = vpmm_region_pages(region);
        page += pages;
        if (page == taking->end)
            content_of(region, tail);
        if (vpmm_region_state(region) == VPMM_REGION_FREE) {
            vpmm_region_remove(pool, number);
        } else {
            const struct vpmm_tallied block = vpmm_region_tallied(region);
            add(&taking->taken, pages, block.bytes);
            vpmm_tally_change(&taking->share->tally, &block, true);
            vpmm_pool_tally(pool, &block, false);
            vpmm_region_lift(pool, number);
        }
        if (number != taking->first)
            vpmm_table_give(&pool->regions, number);
    }
}

enum vpmm_status vpmm_pool_serve_cached(struct vpmm_pool *pool, const struct vpmm_want *want,
                                        uint64_t address, const struct vpmm_pool_cached *cached,
                                        struct vpmm_pool_share *share,
                                        struct vpmm_pool_left *left_out)
{
    struct vpmm_root *root = vpmm_root_of(pool, address);
    left_out->n = 0;
    assert(want->pages > 0);
    if (!root)
        return VPMM_NOT_FOUND;
    struct taking taking = {.pool = pool, .want = want, .cached = cached, .share = share};
    taking.range = (struct vpmm_span){root, vpmm_root_page(pool, root, address), want->pages};
    enum vpmm_status status = look(&taking);
    if (!status)
        status = vpmm_table_reserve(&pool->regions, 2);
    if (status)
        return status;
    struct vpmm_content head = {0};
    struct vpmm_content tail = {0};
    struct vpmm_content live = {
        .state = VPMM_REGION_LIVE, .fence = taking.fence, .owner = want->owner};
    lift(&taking, &head, &tail);
    leave(&taking, taking.start, taking.range.page, &head, left_out);
    leave(&taking, taking.range.page + want->pages, taking.end, &tail, left_out);
    vpmm_region_lay(pool, taking.first, &taking.range, &live);
    struct sum *taken = &taking.taken;
    vpmm_share_change(share, taking.left.regions - taken->regions, taking.left.pages - taken->pages,
                      taken->bytes);
    vpmm_live_change(pool, taking.left.regions + 1 - taken->regions,
                     taking.left.pages + want->pages - taken->pages,
                     want->owner.bytes - taken->bytes);
    const struct vpmm_tallied block = {want->pages, want->owner.bytes,
                                       vpmm_owner_tallied(&want->owner)};
    vpmm_pool_tally(pool, &block, true);
    return VPMM_OK;
}
