/* SPDX-License-Identifier: MIT */
/* Picks what goes back to the device: zombies to unmap, and extents to release. Must not release an
 * extent that is mapped at another address as well. */
#include "pool/pool_internal.h"

#include <assert.h>

size_t vpmm_pool_take_zombies(struct vpmm_pool *pool, const struct vpmm_fence_view *view,
                              struct vpmm_removal *removals_out, size_t room)
{
    size_t n = 0;
    uint32_t number;
    vpmm_zombies_settle(pool, view);
    while (n < room && (number = vpmm_index_first(&pool->waiting_zombies.tree)) != 0) {
        VPMM_STEP();
        const struct vpmm_region *region = vpmm_region_record(pool, number);
        if (vpmm_region_fence(region) != VPMM_FENCE_NONE)
            break;
        removals_out[n++] =
            (struct vpmm_removal){vpmm_atomic_load(&region->address), vpmm_region_pages(region), 0};
        vpmm_region_turn_state(pool, number, VPMM_REGION_BUSY);
    }
    return n;
}

size_t vpmm_pool_take_quarantined(struct vpmm_pool *pool, struct vpmm_removal *removals_out,
                                  size_t room)
{
    size_t n = 0;
    uint64_t cursor = 0;
    struct vpmm_region_view view;
    if (!vpmm_atomic_load(&pool->counters.pages[VPMM_REGION_QUARANTINED]))
        return 0;
    while (n < room && vpmm_pool_next(pool, &cursor, &view)) {
        if (view.state != VPMM_REGION_QUARANTINED)
            continue;
        struct vpmm_root *root = vpmm_root_of(pool, view.address);
        uint32_t number = vpmm_region_at(root, vpmm_root_page(pool, root, view.address));
        vpmm_region_turn_state(pool, number, VPMM_REGION_BUSY);
        removals_out[n++] = (struct vpmm_removal){view.address, view.pages, 0};
    }
    return n;
}

/* Continues a walk over the extents that lie wholly in `span`, a complete free region, and are
 * mapped nowhere else. */
static const struct vpmm_extent *next_releasable(const struct vpmm_pool *pool,
                                                 const struct vpmm_span *span, uint64_t *page)
{
    uint32_t number;
    while ((number = vpmm_extent_next(pool, span, page)) != 0) {
        VPMM_STEP();
        const struct vpmm_extent *extent = vpmm_extent_record(pool, number);
        if (*page <= span->page + span->pages && extent->mappings == 1)
            return extent;
    }
    return NULL;
}

/* Extents are taken until they amount to `enough` pages; never to more than `most`. */
struct quota {
    uint64_t enough, most;
};

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Where `most` is less than the region has, its upper end goes, because requests take the lower
 * one: all extents that begin there amount to no more. */
static size_t take_from(struct vpmm_pool *pool, const struct vpmm_span *span, struct quota *quota,
                        struct vpmm_removal *removals_out, size_t room)
{
    size_t n = 0;
    uint64_t page = span->page + less(span->pages, quota->most);
    while (quota->enough > 0 && n < room) {
        const struct vpmm_extent *extent = next_releasable(pool, span, &page);
        if (!extent || vpmm_table_reserve(&pool->regions, 2))
            break;
        struct vpmm_span whole = {span->root, extent->page, extent->pages};
        vpmm_region_isolate(pool, &whole);
        vpmm_region_make_busy(pool, &whole);
        removals_out[n++] = (struct vpmm_removal){vpmm_root_address(pool, whole.root, whole.page),
                                                  whole.pages, extent->handle};
        quota->enough = less(quota->enough, whole.pages);
        quota->most -= whole.pages;
    }
    return n;
}

static struct vpmm_span claimed_span(const struct vpmm_pool *pool, uint64_t address)
{
    const struct vpmm_root *root = vpmm_root_of(pool, address);
    assert(root);
    uint32_t number = vpmm_region_at(root, vpmm_root_page(pool, root, address));
    return vpmm_region_span(pool, vpmm_region_record(pool, number));
}

bool vpmm_pool_is_alone(const struct vpmm_pool *pool, uint64_t address)
{
    struct vpmm_span span = claimed_span(pool, address);
    uint64_t page = span.page;
    uint32_t number;
    while ((number = vpmm_extent_next(pool, &span, &page)) != 0) {
        VPMM_STEP();
        if (page <= span.page + span.pages && vpmm_extent_record(pool, number)->mappings > 1)
            return false;
    }
    return true;
}

size_t vpmm_pool_free_and_take(struct vpmm_pool *pool, uint64_t address,
                               struct vpmm_removal *removals_out, size_t room)
{
    struct vpmm_span span = claimed_span(pool, address);
    vpmm_pool_free(pool, address, VPMM_FENCE_NONE, 0);
    struct quota all = {UINT64_MAX, UINT64_MAX};
    return take_from(pool, &span, &all, removals_out, room);
}

/* Down the tree by size: what is left of a region is met again further down, and has nothing more
 * to give. */
static size_t take_of_kind(struct vpmm_pool *pool, uint64_t kind, struct quota *quota,
                           struct vpmm_removal *removals_out, size_t room)
{
    size_t n = 0;
    uint32_t number = vpmm_index_below(&pool->complete, kind, UINT64_MAX, UINT64_MAX);
    while (number && n < room && quota->enough > 0) {
        VPMM_STEP();
        struct vpmm_span span = vpmm_region_span(pool, vpmm_region_record(pool, number));
        n += take_from(pool, &span, quota, removals_out + n, room - n);
        number = vpmm_index_below(&pool->complete, kind, span.pages,
                                  vpmm_root_address(pool, span.root, span.page));
    }
    return n;
}

size_t vpmm_pool_take_extents(struct vpmm_pool *pool, uint64_t pages, uint64_t most_pages,
                              struct vpmm_removal *removals_out, size_t room)
{
    struct quota quota = {pages, most_pages};
    vpmm_index_admit(pool);
    size_t n = take_of_kind(pool, 0, &quota, removals_out, room);
    return n + take_of_kind(pool, VPMM_OF_SLABS, &quota, removals_out + n, room - n);
}

uint64_t vpmm_pool_need_pages(const struct vpmm_pool *pool)
{
    const struct vpmm_counters *counters = &pool->counters;
    return vpmm_atomic_load(&counters->pages[VPMM_REGION_LIVE]) +
           vpmm_atomic_load(&counters->waiting_pages);
}

uint64_t vpmm_pool_need_pages_high(const struct vpmm_pool *pool)
{
    uint64_t high = vpmm_atomic_load(&pool->counters.need_pages_high);
    uint64_t now = vpmm_pool_need_pages(pool);
    return high > now ? high : now;
}

void vpmm_pool_need_restart(struct vpmm_pool *pool)
{
    vpmm_atomic_store(&pool->counters.need_pages_high, vpmm_pool_need_pages(pool));
}

/* What a quarantined range shows cannot be given back; which extents these are, only a walk tells.
 */
uint64_t vpmm_pool_releasable_pages(struct vpmm_pool *pool)
{
    vpmm_index_admit(pool);
    if (!vpmm_atomic_load(&pool->counters.pages[VPMM_REGION_QUARANTINED]))
        return pool->whole_pages;
    uint64_t sum = 0;
    for (uint32_t number = vpmm_index_first(&pool->complete); number;
         number = vpmm_index_next(&pool->complete, number)) {
        VPMM_STEP();
        struct vpmm_span span = vpmm_region_span(pool, vpmm_region_record(pool, number));
        uint64_t page = span.page;
        const struct vpmm_extent *extent;
        while ((extent = next_releasable(pool, &span, &page)))
            sum += extent->pages;
    }
    return sum;
}

void vpmm_pool_removal_done(struct vpmm_pool *pool, const struct vpmm_removal *removal,
                            enum vpmm_removal_outcome outcome)
{
    struct vpmm_root *root = vpmm_root_of(pool, removal->address);
    assert(root);
    struct vpmm_span span = {root, vpmm_root_page(pool, root, removal->address), removal->pages};
    uint32_t number = vpmm_region_at(root, span.page);
    assert(vpmm_region_state(vpmm_region_record(pool, number)) == VPMM_REGION_BUSY);
    assert(outcome != VPMM_KEPT || removal->extent);
    if (outcome != VPMM_REMOVED) {
        vpmm_region_restore(pool, &span,
                            outcome == VPMM_KEPT ? VPMM_REGION_FREE : VPMM_REGION_QUARANTINED);
        return;
    }
    vpmm_extent_unmap(pool, &span);
    vpmm_region_turn(pool, number, &(struct vpmm_content){.state = VPMM_REGION_HOLE});
    (void)vpmm_region_merge(pool, number);
}
