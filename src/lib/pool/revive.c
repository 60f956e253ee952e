/* SPDX-License-Identifier: MIT */
/* Serves a request at an old address that still shows what it needs. Must not need a driver call,
 * and must not change a region before nothing can fail any more. */
#include "pool/pool_internal.h"

#include <assert.h>

/* So many zombies of at least the wanted pages are tried, so many smaller ones, and so many free
 * regions of each kind beside which one may lie. */
#define LARGE_MAX 8
#define SMALL_MAX 8
#define FREE_MAX 4

/* A range that the request could have: what is free in it stays where it is, and what its zombies
 * show comes home, as a whole: `all` is the range and what such extents show beside it. */
struct revival {
    struct vpmm_pool *pool;
    const struct vpmm_want *want;
    struct vpmm_span range, all;
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

static bool is_away(const struct vpmm_extent *extent, const struct vpmm_root *root, uint64_t page)
{
    return extent->page != page || extent->root != root->number;
}

/* Continues a walk over the extents that `all` shows and that belong elsewhere. */
static uint32_t next_away(const struct revival *revival, uint64_t *page)
{
    const struct vpmm_span *all = &revival->all;
    uint32_t number;
    while ((number = vpmm_extent_next(revival->pool, all, page)) != 0) {
        VPMM_STEP();
        const struct vpmm_extent *extent = vpmm_extent_record(revival->pool, number);
        if (is_away(extent, all->root, *page - extent->pages))
            return number;
    }
    return 0;
}

/* Makes `all` hold the whole of the extent that belongs elsewhere and is shown at `page`. */
static void reach_over(struct revival *revival, uint64_t page)
{
    struct vpmm_span *all = &revival->all;
    uint64_t start;
    if (!vpmm_bits_last_to(&all->root->extent_starts, page, &start))
        return;
    const struct vpmm_extent *extent =
        vpmm_extent_record(revival->pool, all->root->extent_at[start]);
    uint64_t end = start + extent->pages;
    if (end <= page || !is_away(extent, all->root, start))
        return;
    if (end > end_of(all))
        all->pages = end - all->page;
    if (start < all->page) {
        all->pages += all->page - start;
        all->page = start;
    }
}

/* Whether all of it is tiled by usable free regions and by zombies whose last users come before the
 * request. */
static bool is_tiled(const struct revival *revival)
{
    const struct vpmm_fence_view *view = revival->want->view;
    const struct vpmm_root *root = revival->all.root;
    for (uint64_t page = revival->all.page; page < end_of(&revival->all);) {
        VPMM_STEP();
        const struct vpmm_region *region =
            vpmm_region_record(revival->pool, vpmm_region_around(root, page));
        bool waits = vpmm_region_fence(region) != VPMM_FENCE_NONE &&
                     view->ask(view->self, vpmm_region_fence(region)) == VPMM_VERDICT_PENDING;
        bool is_zombie = vpmm_region_state(region) == VPMM_REGION_ZOMBIE;
        if (waits || (!is_zombie && vpmm_region_state(region) != VPMM_REGION_FREE))
            return false;
        page = region->page + vpmm_region_pages(region);
    }
    return true;
}

/* Each extent at most once, as a whole, out of regions that the request may have, and not out of
 * the range itself. */
static bool can_come_home(struct revival *revival)
{
    uint64_t page = revival->all.page;
    uint32_t number;
    bool can = true;
    revival->n_extents = 0;
    while (can && (number = next_away(revival, &page)) != 0) {
        struct vpmm_extent *extent = vpmm_extent_record(revival->pool, number);
        struct vpmm_span home = vpmm_extent_span(revival->pool, extent);
        can = !extent->is_picked && !overlaps(&home, &revival->all) &&
              vpmm_extent_is_usable(revival->pool, revival->want->view, extent);
        extent->is_picked |= can;
        revival->n_extents += can;
    }
    uint64_t picked = 0;
    for (page = revival->all.page; picked < revival->n_extents; picked++)
        vpmm_extent_record(revival->pool, next_away(revival, &page))->is_picked = 0;
    return can;
}

static bool try_range(struct revival *revival)
{
    const struct vpmm_span *range = &revival->range;
    if (range->page >= range->root->pages || range->pages > range->root->pages - range->page)
        return false;
    revival->all = *range;
    reach_over(revival, range->page);
    reach_over(revival, end_of(range) - 1);
    if (revival->want->owner.is_whole && !vpmm_extent_tiles(revival->pool, range))
        return false;
    return is_tiled(revival) && can_come_home(revival);
}

/* Tries the range of the wanted pages that begins with the region `number`. */
static bool try_from(struct revival *revival, uint32_t number)
{
    const struct vpmm_region *region = vpmm_region_record(revival->pool, number);
    if (!region)
        return false;
    revival->range = vpmm_region_span(revival->pool, region);
    revival->range.pages = revival->want->pages;
    return try_range(revival) && revival->n_extents > 0;
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
    if (revival->want->is_slab)
        return false;
    vpmm_index_admit(pool);
    if (find_large(revival))
        return true;
    if (find_beside(revival, &pool->zombies, (struct vpmm_tree_key){pages, 0, 0}, SMALL_MAX))
        return true;
    if (find_beside(revival, &pool->complete, (struct vpmm_tree_key){0, pages, 0}, FREE_MAX))
        return true;
    return stream &&
           find_beside(revival, &pool->pending, (struct vpmm_tree_key){stream, pages, 0}, FREE_MAX);
}

/* Where the next extents that come home lie now: the first one from `*page` on, and those after it
 * as long as they lie side by side. `*page` moves past them. 0 pages: none is left. */
static struct vpmm_span next_run(const struct revival *revival, uint64_t *page)
{
    const struct vpmm_pool *pool = revival->pool;
    uint32_t number = next_away(revival, page);
    if (!number)
        return (struct vpmm_span){.pages = 0};
    struct vpmm_span run = vpmm_extent_span(pool, vpmm_extent_record(pool, number));
    uint64_t next = *page;
    while ((number = next_away(revival, &next)) != 0) {
        struct vpmm_span home = vpmm_extent_span(pool, vpmm_extent_record(pool, number));
        if (home.root != run.root || home.page != end_of(&run))
            break;
        run.pages += home.pages;
        *page = next;
    }
    return run;
}

/* What the new owner comes after: all that use what it gets, where that was and where it will be.
 */
static enum vpmm_status join_fences(struct revival *revival, vpmm_fence *fence)
{
    const struct vpmm_fence_view *view = revival->want->view;
    enum vpmm_status status = VPMM_OK;
    uint64_t page = revival->all.page;
    struct vpmm_span run;
    while (!status && (run = next_run(revival, &page)).pages != 0)
        status = vpmm_fence_add_span(revival->pool, view, &run, &revival->left);
    *fence = revival->left;
    return status ? status : vpmm_fence_add_span(revival->pool, view, &revival->all, fence);
}

/* All records are reserved. */
static void come_home(struct revival *revival)
{
    struct vpmm_pool *pool = revival->pool;
    uint64_t page = revival->all.page, end = page;
    struct vpmm_span run;
    pool->last_age++;
    while ((run = next_run(revival, &end)).pages != 0) {
        vpmm_region_isolate(pool, &run);
        vpmm_zombie_make(pool, &run, revival->left);
        while (page < end) {
            uint32_t number = next_away(revival, &page);
            uint64_t pages = vpmm_extent_record(pool, number)->pages;
            vpmm_extent_move_home(pool, number, revival->all.root, page - pages);
        }
    }
}

/* What lies in `all` from `page` to `end` beside the range. */
static void leave_free(struct revival *revival, uint64_t page, uint64_t end, vpmm_fence fence)
{
    struct vpmm_pool *pool = revival->pool;
    struct vpmm_span rest = {revival->all.root, page, end - page};
    struct vpmm_content free = {.state = VPMM_REGION_FREE, .fence = fence};
    if (page == end)
        return;
    uint32_t number = vpmm_region_fuse(pool, &rest, &free);
    (void)vpmm_region_merge(pool, number);
}

static enum vpmm_status take_range(struct revival *revival, uint64_t *address_out)
{
    struct vpmm_pool *pool = revival->pool;
    const struct vpmm_span *range = &revival->range;
    struct vpmm_content live = {.state = VPMM_REGION_LIVE, .owner = revival->want->owner};
    if (revival->n_extents > UINT32_MAX / 2 - 4)
        return VPMM_NO_METADATA;
    enum vpmm_status status = join_fences(revival, &live.fence);
    if (!status)
        status = vpmm_table_reserve(&pool->regions, 2 * (uint32_t)revival->n_extents + 4);
    if (status)
        return status;
    vpmm_region_isolate(pool, &revival->all);
    come_home(revival);
    vpmm_region_isolate(pool, range);
    (void)vpmm_region_fuse(pool, range, &live);
    leave_free(revival, revival->all.page, range->page, live.fence);
    leave_free(revival, end_of(range), end_of(&revival->all), live.fence);
    *address_out = vpmm_root_address(pool, range->root, range->page);
    return VPMM_OK;
}

enum vpmm_status vpmm_pool_revive(struct vpmm_pool *pool, const struct vpmm_want *want,
                                  uint64_t *address_out)
{
    struct revival revival = {.pool = pool, .want = want};
    assert(want->pages > 0);
    if (!pool->zombies.top || !find(&revival))
        return VPMM_NOT_FOUND;
    return take_range(&revival, address_out);
}

/* Whether the range lies in one free region that the request may have, as most do. */
static bool lies_free(const struct revival *revival)
{
    const struct vpmm_span *range = &revival->range;
    uint32_t number = vpmm_region_whole(revival->pool, range);
    if (!number ||
        !vpmm_region_is_usable(vpmm_region_record(revival->pool, number), revival->want->view))
        return false;
    return !revival->want->owner.is_whole || vpmm_extent_tiles(revival->pool, range);
}

static enum vpmm_status take_free(const struct revival *revival)
{
    struct vpmm_pool *pool = revival->pool;
    struct vpmm_content live = {.state = VPMM_REGION_LIVE, .owner = revival->want->owner};
    enum vpmm_status status =
        vpmm_fence_add_span(pool, revival->want->view, &revival->range, &live.fence);
    if (!status)
        status = vpmm_table_reserve(&pool->regions, 2);
    if (!status)
        vpmm_region_become(pool, &revival->range, &live);
    return status;
}

enum vpmm_status vpmm_pool_serve_at(struct vpmm_pool *pool, const struct vpmm_want *want,
                                    uint64_t address)
{
    struct revival revival = {.pool = pool, .want = want};
    assert(want->pages > 0);
    revival.range.root = vpmm_root_of(pool, address);
    if (!revival.range.root)
        return VPMM_NOT_FOUND;
    revival.range.page = vpmm_root_page(pool, revival.range.root, address);
    revival.range.pages = want->pages;
    if (lies_free(&revival))
        return take_free(&revival);
    return try_range(&revival) ? take_range(&revival, &address) : VPMM_NOT_FOUND;
}
