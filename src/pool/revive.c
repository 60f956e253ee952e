/* SPDX-License-Identifier: MIT */
#include "pool/internal.h"

#include <assert.h>

/* So many zombies of at least the wanted pages are tried, so many smaller ones, and so many free
 * regions of each kind beside which one may lie. */
#define LARGE_MAX 8
#define SMALL_MAX 8
#define FREE_MAX 4

/* A range that the request could have: what is free in it stays where it is, and what its zombies
 * show comes home. */
struct revival {
    struct vpmm_pool *pool;
    const struct vpmm_want *want;
    struct vpmm_span range;
    uint64_t n_extents; /* that come home */
    vpmm_fence left;    /* of the regions that they leave */
};

static bool overlaps(const struct vpmm_span *a, const struct vpmm_span *b)
{
    return a->root == b->root && a->page < b->page + b->pages && b->page < a->page + a->pages;
}

static uint64_t end_of(const struct vpmm_span *span)
{
    return span->page + span->pages;
}

/* Continues a walk over the extents that the range shows and that belong elsewhere. */
static uint32_t next_away(const struct revival *revival, uint64_t *page)
{
    const struct vpmm_span *range = &revival->range;
    uint32_t number;
    while ((number = vpmm_extent_next(revival->pool, range, page)) != 0) {
        VPMM_STEP();
        const struct vpmm_extent *extent = vpmm_extent_record(revival->pool, number);
        if (extent->page != *page - extent->pages || extent->root != range->root->number)
            return number;
    }
    return 0;
}

/* Whether the range is tiled by usable free regions and by zombies whose last users come before the
 * request; a zombie begins in it as a whole, so that no extent is cut at its low end. */
static bool is_tiled(const struct revival *revival)
{
    const struct vpmm_fence_view *view = revival->want->view;
    uint64_t page = revival->range.page;
    while (page < end_of(&revival->range)) {
        VPMM_STEP();
        uint32_t number =
            page < revival->range.root->pages ? vpmm_region_at(revival->range.root, page) : 0;
        const struct vpmm_region *region = vpmm_region_record(revival->pool, number);
        if (!region)
            return false;
        bool waits = vpmm_region_fence(region) != VPMM_FENCE_NONE &&
                     view->ask(view->self, vpmm_region_fence(region)) == VPMM_VERDICT_PENDING;
        bool is_zombie = vpmm_region_state(region) == VPMM_REGION_ZOMBIE;
        if (waits || (!is_zombie && vpmm_region_state(region) != VPMM_REGION_FREE))
            return false;
        page += vpmm_region_pages(region);
    }
    return true;
}

/* Each extent at most once, as a whole, out of regions that the request may have, and not out of
 * the range itself. */
static bool can_come_home(struct revival *revival)
{
    uint64_t page = revival->range.page;
    uint32_t number;
    bool can = true;
    revival->n_extents = 0;
    while (can && (number = next_away(revival, &page)) != 0) {
        struct vpmm_extent *extent = vpmm_extent_record(revival->pool, number);
        struct vpmm_span home = vpmm_extent_span(revival->pool, extent);
        can = page <= end_of(&revival->range) && !extent->is_picked &&
              !overlaps(&home, &revival->range) &&
              vpmm_extent_is_usable(revival->pool, revival->want->view, extent);
        extent->is_picked |= can;
        revival->n_extents += can;
    }
    uint64_t picked = 0;
    for (page = revival->range.page; picked < revival->n_extents; picked++)
        vpmm_extent_record(revival->pool, next_away(revival, &page))->is_picked = 0;
    return can && revival->n_extents > 0;
}

/* Tries the range of the wanted pages that begins with the region `number`. */
static bool try_from(struct revival *revival, uint32_t number)
{
    const struct vpmm_region *region = vpmm_region_record(revival->pool, number);
    if (!region)
        return false;
    revival->range = vpmm_region_span(revival->pool, region);
    revival->range.pages = revival->want->pages;
    return revival->range.pages <= revival->range.root->pages - revival->range.page &&
           is_tiled(revival) && can_come_home(revival);
}

/* Zombies of the wanted pages, the youngest first, then the next larger ones. */
static bool find_large(struct revival *revival)
{
    const struct vpmm_tree *zombies = &revival->pool->zombies;
    uint32_t number =
        vpmm_tree_first_from(zombies, (struct vpmm_tree_key){revival->want->pages, 0, 0});
    for (unsigned i = 0; number && i < LARGE_MAX; i++) {
        VPMM_STEP();
        if (try_from(revival, number))
            return true;
        number = vpmm_index_next(zombies, number);
    }
    return false;
}

/* Regions of `tree` below `key`, each with its neighbours. */
static bool find_beside(struct revival *revival, const struct vpmm_tree *tree,
                        struct vpmm_tree_key key, unsigned n)
{
    uint64_t stream = key.major;
    bool is_by_stream = tree == &revival->pool->pending;
    for (; n > 0; n--) {
        VPMM_STEP();
        uint32_t number = vpmm_tree_last_before(tree, key);
        if (!number)
            return false;
        key = tree->key(vpmm_region_record(revival->pool, number));
        if (is_by_stream && key.major != stream)
            return false;
        if (try_from(revival, number) || try_from(revival, vpmm_region_left(revival->pool, number)))
            return true;
    }
    return false;
}

static bool find(struct revival *revival)
{
    struct vpmm_pool *pool = revival->pool;
    uint64_t pages = revival->want->pages;
    uint64_t stream = revival->want->owner.stream_id;
    if (find_large(revival))
        return true;
    if (find_beside(revival, &pool->zombies, (struct vpmm_tree_key){pages, 0, 0}, SMALL_MAX))
        return true;
    if (find_beside(revival, &pool->complete, (struct vpmm_tree_key){0, pages, 0}, FREE_MAX))
        return true;
    return stream &&
           find_beside(revival, &pool->pending, (struct vpmm_tree_key){stream, pages, 0}, FREE_MAX);
}

/* What the new owner comes after: all that use what it gets, where that was and where it will be.
 */
static enum vpmm_status join_fences(struct revival *revival, vpmm_fence *fence)
{
    const struct vpmm_fence_view *view = revival->want->view;
    enum vpmm_status status = VPMM_OK;
    uint64_t page = revival->range.page;
    uint32_t number;
    while (!status && (number = next_away(revival, &page)) != 0) {
        const struct vpmm_extent *extent = vpmm_extent_record(revival->pool, number);
        struct vpmm_span home = vpmm_extent_span(revival->pool, extent);
        status = vpmm_fence_add_span(revival->pool, view, &home, &revival->left);
    }
    *fence = revival->left;
    return status ? status : vpmm_fence_add_span(revival->pool, view, &revival->range, fence);
}

/* All records are reserved. */
static void come_home(struct revival *revival)
{
    struct vpmm_pool *pool = revival->pool;
    uint64_t page = revival->range.page;
    uint32_t number;
    pool->last_age++;
    while ((number = next_away(revival, &page)) != 0) {
        const struct vpmm_extent *extent = vpmm_extent_record(pool, number);
        struct vpmm_span home = vpmm_extent_span(pool, extent);
        vpmm_region_isolate(pool, &home);
        vpmm_zombie_make(pool, &home, revival->left);
        vpmm_extent_move_home(pool, number, revival->range.root, page - extent->pages);
    }
}

enum vpmm_status vpmm_pool_revive(struct vpmm_pool *pool, const struct vpmm_want *want,
                                  uint64_t *address_out)
{
    struct revival revival = {.pool = pool, .want = want};
    struct vpmm_content live = {.state = VPMM_REGION_LIVE, .owner = want->owner};
    assert(want->pages > 0);
    if (!pool->zombies.top || !find(&revival))
        return VPMM_NOT_FOUND;
    if (revival.n_extents > UINT32_MAX / 2 - 2)
        return VPMM_NO_METADATA;
    enum vpmm_status status = join_fences(&revival, &live.fence);
    if (!status)
        status = vpmm_table_reserve(&pool->regions, 2 * (uint32_t)revival.n_extents + 2);
    if (status)
        return status;
    vpmm_region_isolate(pool, &revival.range);
    come_home(&revival);
    (void)vpmm_region_fuse(pool, &revival.range, &live);
    *address_out = vpmm_root_address(pool, revival.range.root, revival.range.page);
    return VPMM_OK;
}
