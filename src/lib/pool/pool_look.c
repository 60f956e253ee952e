/* SPDX-License-Identifier: MIT */
/* Answers questions about addresses, regions and totals without a lock. A signal handler asks, too,
 * so it must not wait for a change to end. */
#include "pool/pool_internal.h"

/* How often a region that changes under the reader's eyes is looked at again before it is shown as
 * busy. A reader may be a signal handler on top of the very thread that makes the change, so it
 * cannot wait for its end. */
#ifndef LOOKS
#    define LOOKS 32
#endif

static bool holds(const struct vpmm_pool *pool, const struct vpmm_region_view *view,
                  uint64_t address)
{
    return address >= view->address &&
           (address - view->address) / pool->params.page_bytes < view->pages;
}

/* The region that holds `address`, found by the nearest start at or below `page`. */
static bool look(const struct vpmm_pool *pool, const struct vpmm_root *root, uint64_t page,
                 uint64_t address, struct vpmm_region_view *view_out)
{
    for (int i = 0; i < LOOKS; i++) {
        VPMM_STEP();
        uint64_t start;
        uint64_t word;
        struct vpmm_region_view view;
        if (!vpmm_bits_last_to(&root->region_starts, page, &start))
            continue;
        const struct vpmm_region *region = vpmm_region_record(pool, vpmm_region_at(root, start));
        if (region && vpmm_region_read(region, &view, &word) && holds(pool, &view, address)) {
            *view_out = view;
            return true;
        }
    }
    return false;
}

bool vpmm_pool_holds(const struct vpmm_pool *pool, uint64_t address)
{
    return vpmm_root_of(pool, address) != NULL;
}

enum vpmm_status vpmm_pool_find(const struct vpmm_pool *pool, uint64_t address,
                                struct vpmm_region_view *view_out)
{
    const struct vpmm_root *root = vpmm_root_of(pool, address);
    if (!root)
        return VPMM_NOT_FOUND;
    uint64_t page = vpmm_root_page(pool, root, address);
    if (!look(pool, root, page, address, view_out))
        *view_out = (struct vpmm_region_view){
            .state = VPMM_REGION_BUSY,
            .address = vpmm_root_address(pool, root, page),
            .pages = 1,
        };
    return VPMM_OK;
}

uint64_t vpmm_pool_live_bytes(const struct vpmm_pool *pool, uint64_t address)
{
    const struct vpmm_root *root = vpmm_root_of(pool, address);
    if (!root)
        return 0;
    uint32_t number = vpmm_region_at(root, vpmm_root_page(pool, root, address));
    const struct vpmm_region *region = vpmm_region_record(pool, number);
    bool is_live = region && vpmm_region_state(region) == VPMM_REGION_LIVE &&
                   vpmm_atomic_load(&region->address) == address;
    return is_live ? vpmm_atomic_load(&region->bytes) : 0;
}

/* The region that starts at `page`, or, where it keeps changing, everything up to the next start as
 * busy. */
static void look_at_start(const struct vpmm_pool *pool, const struct vpmm_root *root, uint64_t page,
                          struct vpmm_region_view *view_out)
{
    uint64_t address = vpmm_root_address(pool, root, page);
    if (look(pool, root, page, address, view_out) && view_out->address == address)
        return;
    uint64_t end = vpmm_bits_first_from(&root->region_starts, page + 1);
    *view_out = (struct vpmm_region_view){
        .state = VPMM_REGION_BUSY,
        .address = address,
        .pages = end - page,
    };
}

bool vpmm_pool_next(const struct vpmm_pool *pool, uint64_t *cursor,
                    struct vpmm_region_view *view_out)
{
    const struct vpmm_root *root;
    while ((root = vpmm_root_from(pool, *cursor))) {
        VPMM_STEP();
        uint64_t page = root->address < *cursor ? vpmm_root_page(pool, root, *cursor) : (uint64_t)0;
        page = vpmm_bits_first_from(&root->region_starts, page);
        if (page >= root->pages) {
            *cursor = vpmm_root_address(pool, root, root->pages);
            continue;
        }
        look_at_start(pool, root, page, view_out);
        view_out->begins_root = page == 0;
        *cursor = vpmm_root_address(pool, root, page + view_out->pages);
        return true;
    }
    return false;
}

/* Taken at slightly different moments, the part may be more than the whole. */
static uint64_t without(uint64_t whole, uint64_t part)
{
    return whole > part ? whole - part : 0;
}

void vpmm_pool_totals(const struct vpmm_pool *pool, struct vpmm_pool_totals *totals_out)
{
    const struct vpmm_counters *counters = &pool->counters;
    const vpmm_atomic64 *pages = counters->pages;
    struct vpmm_share_sum cached;
    vpmm_shares_sum(pool, &cached);
    *totals_out = (struct vpmm_pool_totals){
        .roots = vpmm_atomic_load(&pool->n_roots),
        .root_pages = vpmm_atomic_load(&counters->root_pages),
        .live_pages = without(vpmm_atomic_load(&pages[VPMM_REGION_LIVE]), cached.cached_pages),
        .live_bytes = vpmm_atomic_load(&counters->live_bytes) + cached.live_bytes,
        .free_pages = vpmm_atomic_load(&pages[VPMM_REGION_FREE]) + cached.cached_pages,
        .waiting_pages = vpmm_atomic_load(&counters->waiting_pages),
        .hole_pages = vpmm_atomic_load(&pages[VPMM_REGION_HOLE]),
        .zombie_pages = vpmm_atomic_load(&pages[VPMM_REGION_ZOMBIE]),
        .busy_pages = vpmm_atomic_load(&pages[VPMM_REGION_BUSY]),
        .quarantined_pages = vpmm_atomic_load(&pages[VPMM_REGION_QUARANTINED]),
        .extents = vpmm_atomic_load(&counters->extents),
        .held_pages = vpmm_atomic_load(&counters->held_pages),
        .mappings = vpmm_atomic_load(&counters->mappings),
        .live_pages_peak = vpmm_atomic_load(&counters->live_pages_peak),
        .held_pages_peak = vpmm_atomic_load(&counters->held_pages_peak),
        .moved_pages = vpmm_atomic_load(&counters->moved_pages),
        .created_pages = vpmm_atomic_load(&counters->created_pages),
        .released_pages = vpmm_atomic_load(&counters->released_pages),
    };
    /* After what is live: what is claimed meanwhile counts twice, not at all never. */
    totals_out->claimed_pages = vpmm_atomic_load(&counters->claimed_pages);
    /* What front caches made live again is in no peak yet. */
    if (totals_out->live_pages_peak < totals_out->live_pages)
        totals_out->live_pages_peak = totals_out->live_pages;
}

void vpmm_pool_live(const struct vpmm_pool *pool, uint64_t *pages_out, uint64_t *bytes_out)
{
    struct vpmm_share_sum cached;
    vpmm_shares_sum(pool, &cached);
    *pages_out =
        without(vpmm_atomic_load(&pool->counters.pages[VPMM_REGION_LIVE]), cached.cached_pages);
    *bytes_out = vpmm_atomic_load(&pool->counters.live_bytes) + cached.live_bytes;
}

uint64_t vpmm_pool_owned_pages(const struct vpmm_pool *pool)
{
    return vpmm_atomic_load(&pool->counters.pages[VPMM_REGION_LIVE]);
}

uint64_t vpmm_pool_held_pages(const struct vpmm_pool *pool)
{
    return vpmm_atomic_load(&pool->counters.held_pages);
}

uint64_t vpmm_pool_zombie_pages(const struct vpmm_pool *pool)
{
    return vpmm_atomic_load(&pool->counters.pages[VPMM_REGION_ZOMBIE]);
}
