/* SPDX-License-Identifier: MIT */
#include "pool/internal.h"

#include <string.h>

/* Sums over what was met, to be compared with the running totals. */
struct sums {
    uint64_t regions[VPMM_REGION_STATES], pages[VPMM_REGION_STATES];
    uint64_t live_bytes, n_regions, mappings, homes, held_pages, aliased, fixed;
    uint64_t pending, complete, holes, zombies; /* regions that belong into each index */
    uint64_t cached_regions, cached_pages;
};

typedef const char *root_check(const struct vpmm_pool *pool, const struct vpmm_root *root,
                               struct sums *sums);

static bool is_home(const struct vpmm_root *root, const struct vpmm_extent *extent, uint64_t page)
{
    return extent->root == root->number && extent->page == page;
}

/* Every index of a region's place names it, and nothing else lies in it. */
static const char *check_place(const struct vpmm_pool *pool, const struct vpmm_root *root,
                               uint32_t number, uint64_t page)
{
    const struct vpmm_region *region = vpmm_region_record(pool, number);
    if (!region || vpmm_region_state(region) == VPMM_REGION_UNUSED)
        return "a page of a root belongs to no region";
    uint64_t pages = vpmm_region_pages(region);
    if (region->root != root->number || region->page != page ||
        vpmm_atomic_load(&region->address) != vpmm_root_address(pool, root, page))
        return "a region record is not where the page index says";
    if (pages == 0 || pages > root->pages - page)
        return "a region does not end inside its root";
    if (vpmm_region_at(root, page + pages - 1) != number)
        return "the last page of a region does not name it";
    if (!vpmm_bits_has(&root->region_starts, page) ||
        vpmm_bits_first_from(&root->region_starts, page + 1) !=
            (page + pages < root->pages ? page + pages : root->pages))
        return "the region starts do not tile a root";
    return NULL;
}

static const char *check_regions(const struct vpmm_pool *pool, const struct vpmm_root *root,
                                 struct sums *sums)
{
    const struct vpmm_region *left = NULL;
    for (uint64_t page = 0; page < root->pages;) {
        uint32_t number = vpmm_region_at(root, page);
        const char *fault = check_place(pool, root, number, page);
        if (fault)
            return fault;
        const struct vpmm_region *region = vpmm_region_record(pool, number);
        if (left && vpmm_region_can_merge(left, region))
            return "two neighbours should be one region";
        enum vpmm_region_state state = vpmm_region_state(region);
        bool is_pending = vpmm_region_fence(region) != VPMM_FENCE_NONE;
        sums->n_regions++;
        bool is_cached = state == VPMM_REGION_CACHED;
        sums->regions[is_cached ? VPMM_REGION_LIVE : state]++;
        sums->pages[is_cached ? VPMM_REGION_LIVE : state] += vpmm_region_pages(region);
        sums->cached_regions += is_cached;
        sums->cached_pages += is_cached ? vpmm_region_pages(region) : 0;
        sums->live_bytes += state == VPMM_REGION_LIVE ? vpmm_atomic_load(&region->bytes) : 0;
        sums->holes += state == VPMM_REGION_HOLE;
        sums->zombies += state == VPMM_REGION_ZOMBIE;
        sums->pending += state == VPMM_REGION_FREE && is_pending;
        sums->complete += state == VPMM_REGION_FREE && !is_pending;
        page += vpmm_region_pages(region);
        left = region;
    }
    return NULL;
}

/* An extent may reach from one of these into the next; the others are mapped or not as wholes. */
static bool may_straddle(enum vpmm_region_state state)
{
    return state == VPMM_REGION_LIVE || state == VPMM_REGION_CACHED || state == VPMM_REGION_FREE ||
           state == VPMM_REGION_BUSY;
}

/* One mapping that begins at `page` of a region in `state`. */
static const char *check_mapping(const struct vpmm_root *root, const struct vpmm_extent *extent,
                                 enum vpmm_region_state state, uint64_t page)
{
    if (extent->pages == 0 || extent->pages > root->pages - page)
        return "an extent does not end inside its root";
    if (state == VPMM_REGION_ZOMBIE && is_home(root, extent, page))
        return "a zombie is the only mapping of an extent";
    if ((state == VPMM_REGION_LIVE || state == VPMM_REGION_CACHED || state == VPMM_REGION_FREE) &&
        !is_home(root, extent, page))
        return "an extent is mapped twice outside zombies";
    return NULL;
}

/* The mappings from `*covered` on that begin in the region; moves `*covered` behind the last one.
 */
static const char *check_coverage(const struct vpmm_pool *pool, const struct vpmm_root *root,
                                  const struct vpmm_region *region, uint64_t *covered)
{
    enum vpmm_region_state state = vpmm_region_state(region);
    uint64_t end = region->page + vpmm_region_pages(region);
    bool starts_inside = *covered > region->page;
    if (starts_inside && !may_straddle(state))
        return "an extent reaches into a region that is mapped as a whole or not at all";
    uint64_t page = starts_inside ? *covered : region->page;
    bool is_mapped = starts_inside || vpmm_bits_has(&root->extent_starts, page);
    if (is_mapped ? state == VPMM_REGION_HOLE
                  : state != VPMM_REGION_HOLE && state != VPMM_REGION_BUSY)
        return "a mapped region has no extents, or a hole has some";
    while (page < end && vpmm_bits_has(&root->extent_starts, page)) {
        const struct vpmm_extent *extent = vpmm_extent_record(pool, root->extent_at[page]);
        const char *fault = check_mapping(root, extent, state, page);
        if (fault)
            return fault;
        page += extent->pages;
    }
    if (is_mapped && (page < end || (page > end && !may_straddle(state))))
        return "the extents of a region do not fill it";
    if (!is_mapped && vpmm_bits_first_from(&root->extent_starts, page) < end)
        return "a region that is not mapped has extents";
    *covered = page;
    return NULL;
}

static const char *check_extents(const struct vpmm_pool *pool, const struct vpmm_root *root,
                                 struct sums *sums)
{
    uint64_t covered = 0;
    (void)sums;
    for (uint64_t page = 0; page < root->pages;) {
        const struct vpmm_region *region = vpmm_region_record(pool, vpmm_region_at(root, page));
        const char *fault = check_coverage(pool, root, region, &covered);
        if (fault)
            return fault;
        page += vpmm_region_pages(region);
    }
    for (uint64_t page = 0; page < root->pages;) {
        uint64_t start = vpmm_bits_first_from(&root->extent_starts, page);
        if (start >= root->pages)
            break;
        page = start + vpmm_extent_record(pool, root->extent_at[start])->pages;
        if (vpmm_bits_first_from(&root->extent_starts, start + 1) < page)
            return "two extents overlap";
    }
    return NULL;
}

/* Three walks over all mappings count those of each extent in its own record: clear, count,
 * compare. */
static const char *clear_mappings(const struct vpmm_pool *pool, const struct vpmm_root *root,
                                  struct sums *sums)
{
    struct vpmm_span all = {&pool->roots[root->number], 0, root->pages};
    uint64_t page = 0;
    uint32_t number;
    (void)sums;
    while ((number = vpmm_extent_next(pool, &all, &page)) != 0)
        vpmm_extent_record(pool, number)->audit_mappings = 0;
    return NULL;
}

static const char *count_mappings(const struct vpmm_pool *pool, const struct vpmm_root *root,
                                  struct sums *sums)
{
    struct vpmm_span all = {&pool->roots[root->number], 0, root->pages};
    uint64_t page = 0;
    uint32_t number;
    while ((number = vpmm_extent_next(pool, &all, &page)) != 0) {
        struct vpmm_extent *extent = vpmm_extent_record(pool, number);
        extent->audit_mappings++;
        sums->mappings++;
        if (!is_home(root, extent, page - extent->pages))
            continue;
        sums->homes++;
        sums->held_pages += extent->pages;
        sums->aliased += extent->mappings > 1;
        sums->fixed += extent->is_fixed;
    }
    return NULL;
}

static const char *compare_mappings(const struct vpmm_pool *pool, const struct vpmm_root *root,
                                    struct sums *sums)
{
    struct vpmm_span all = {&pool->roots[root->number], 0, root->pages};
    uint64_t page = 0;
    uint32_t number;
    (void)sums;
    while ((number = vpmm_extent_next(pool, &all, &page)) != 0) {
        const struct vpmm_extent *extent = vpmm_extent_record(pool, number);
        if (extent->audit_mappings != extent->mappings)
            return "an extent is not mapped as often as its record says";
    }
    return NULL;
}

static const char *check_tree(const struct vpmm_pool *pool, const struct vpmm_tree *tree,
                              uint64_t n_expected, enum vpmm_region_state state, bool is_pending)
{
    uint64_t n = 0;
    for (uint32_t number = vpmm_index_first(tree); number; number = vpmm_index_next(tree, number)) {
        const struct vpmm_region *region = vpmm_region_record(pool, number);
        if (vpmm_region_state(region) != state ||
            (vpmm_region_fence(region) != VPMM_FENCE_NONE) != is_pending)
            return "a region is in the wrong tree";
        n++;
    }
    return n == n_expected ? NULL : "a region is missing in its tree";
}

static const char *check_list(const struct vpmm_pool *pool, const struct vpmm_list *list,
                              uint64_t n_expected, enum vpmm_region_state state)
{
    uint64_t n = 0;
    uint32_t older = 0;
    uint64_t age = 0;
    for (uint32_t number = list->oldest; number; n++) {
        const struct vpmm_region *region = vpmm_region_record(pool, number);
        if (n == n_expected || vpmm_region_state(region) != state)
            return "a region is in the wrong list";
        if (region->older != older || region->age < age)
            return "a list is out of order";
        older = number;
        age = region->age;
        number = region->newer;
    }
    return n == n_expected && list->newest == older ? NULL : "a region is missing in its list";
}

static const char *check_indexes(const struct vpmm_pool *pool, const struct sums *sums)
{
    const char *fault = check_tree(pool, &pool->holes, sums->holes, VPMM_REGION_HOLE, false);
    if (!fault)
        fault = check_tree(pool, &pool->complete, sums->complete, VPMM_REGION_FREE, false);
    if (!fault)
        fault = check_tree(pool, &pool->pending, sums->pending, VPMM_REGION_FREE, true);
    if (!fault)
        fault = check_list(pool, &pool->pending_by_age, sums->pending, VPMM_REGION_FREE);
    if (!fault)
        fault = check_list(pool, &pool->zombies, sums->zombies, VPMM_REGION_ZOMBIE);
    return fault;
}

static const char *check_totals(const struct vpmm_pool *pool, const struct sums *sums)
{
    const struct vpmm_counters *counters = &pool->counters;
    for (unsigned i = 0; i < VPMM_REGION_STATES; i++)
        if (sums->regions[i] != vpmm_atomic_load(&counters->regions[i]) ||
            sums->pages[i] != vpmm_atomic_load(&counters->pages[i]))
            return "the running totals of a state are not the sums over its regions";
    struct vpmm_share_sum cached;
    vpmm_shares_sum(pool, &cached);
    if (sums->cached_regions != cached.cached_regions || sums->cached_pages != cached.cached_pages)
        return "what the front caches hold is not the sum over cached regions";
    if (sums->live_bytes != vpmm_atomic_load(&counters->live_bytes) + cached.live_bytes)
        return "the running total of live bytes is not their sum";
    if (sums->homes != vpmm_atomic_load(&counters->extents) ||
        sums->held_pages != vpmm_atomic_load(&counters->held_pages) ||
        sums->mappings != vpmm_atomic_load(&counters->mappings) ||
        sums->aliased != pool->aliased_extents || sums->fixed != pool->fixed_extents)
        return "the running totals of extents are not the sums over them";
    if (sums->n_regions + pool->spare_regions != pool->regions.n_used)
        return "a region record is lost";
    if (sums->homes + pool->spare_extents != pool->extents.n_used)
        return "an extent record is lost";
    return NULL;
}

const char *vpmm_pool_audit(const struct vpmm_pool *pool)
{
    static root_check *const checks[] = {check_regions,  check_extents,    clear_mappings,
                                         count_mappings, compare_mappings, NULL};
    struct sums sums;
    memset(&sums, 0, sizeof sums);
    for (root_check *const *check = checks; *check; check++)
        for (uint32_t i = 0; i < vpmm_atomic_load(&pool->n_roots); i++) {
            const char *fault = (*check)(pool, &pool->roots[i], &sums);
            if (fault)
                return fault;
        }
    const char *fault = check_totals(pool, &sums);
    return fault ? fault : check_indexes(pool, &sums);
}
