/* SPDX-License-Identifier: MIT */
/* Compares all regions and extents with the indexes and totals. Must not leave anything changed,
 * and must not be part of a request of a program, because it walks all of them. */
#include "pool/harvest.h"
#include "pool/pool_internal.h"

#include <string.h>

/* Sums over what was met, to be compared with the running totals. */
struct sums {
    uint64_t pages[VPMM_REGION_STATES];
    uint64_t live_bytes, n_regions, mappings, homes, held_pages;
    uint64_t mempool_bytes[VPMM_MEMPOOLS], other_pages;
    uint64_t pending, complete, holes, zombies; /* regions that belong into each index */
    uint64_t cached_pages, waiting_pages, arrivals;
    uint64_t growable, growable_pending;
    uint64_t whole_pages, n_listed, n_miscounted;
    uint64_t slab_pages, slab_free_pages;
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

static void count_indexes(const struct vpmm_pool *pool, const struct vpmm_region *region,
                          struct sums *sums)
{
    enum vpmm_region_state state = vpmm_region_state(region);
    bool waits = vpmm_region_fence(region) != VPMM_FENCE_NONE;
    struct vpmm_span span = vpmm_region_span(pool, region);
    uint64_t end = span.page + span.pages;
    const struct vpmm_region *right =
        end < span.root->pages ? vpmm_region_record(pool, vpmm_region_at(span.root, end)) : NULL;
    bool can_grow = right && vpmm_region_state(right) == VPMM_REGION_HOLE;
    sums->holes += state == VPMM_REGION_HOLE;
    sums->zombies += state == VPMM_REGION_ZOMBIE;
    if (state != VPMM_REGION_FREE)
        return;
    sums->waiting_pages += waits ? span.pages : 0;
    sums->slab_free_pages += span.root->is_of_slabs ? span.pages : 0;
    sums->arrivals += region->is_arrival;
    if (region->is_arrival)
        return;
    *(waits ? &sums->pending : &sums->complete) += 1;
    *(waits ? &sums->growable_pending : &sums->growable) += can_grow;
    sums->whole_pages += waits ? 0 : vpmm_extent_whole_pages(pool, &span);
}

static void sum_live(struct sums *sums, const struct vpmm_region *region)
{
    struct vpmm_tallied block = vpmm_region_tallied(region);
    sums->live_bytes += block.bytes;
    sums->mempool_bytes[block.mempool] += block.bytes;
    sums->other_pages += block.mempool == VPMM_MEMPOOL_DEFAULT ? 0 : block.pages;
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
        struct vpmm_span span = vpmm_region_span(pool, region);
        if ((vpmm_atomic_load(&region->word) & VPMM_REGION_IS_WHOLE) != 0 &&
            (state == VPMM_REGION_LIVE || state == VPMM_REGION_CACHED) &&
            !vpmm_extent_tiles(pool, &span))
            return "a region that has its extents to itself shares one";
        count_indexes(pool, region, sums);
        sums->n_regions++;
        bool is_cached = state == VPMM_REGION_CACHED;
        sums->pages[is_cached ? VPMM_REGION_LIVE : state] += vpmm_region_pages(region);
        sums->cached_pages += is_cached ? vpmm_region_pages(region) : 0;
        if (state == VPMM_REGION_LIVE)
            sum_live(sums, region);
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

/* Three walks over all mappings compare their number with what each extent's record says: take them
 * off it, see that nothing is left, and put them back. */
static const char *take_mappings(const struct vpmm_pool *pool, const struct vpmm_root *root,
                                 struct sums *sums)
{
    struct vpmm_span all = {&pool->roots[root->number], 0, root->pages};
    uint64_t page = 0;
    uint32_t number;
    while ((number = vpmm_extent_next(pool, &all, &page)) != 0) {
        vpmm_extent_record(pool, number)->mappings--;
        sums->mappings++;
    }
    return NULL;
}

static const char *compare_mappings(const struct vpmm_pool *pool, const struct vpmm_root *root,
                                    struct sums *sums)
{
    struct vpmm_span all = {&pool->roots[root->number], 0, root->pages};
    uint64_t page = 0;
    uint32_t number;
    while ((number = vpmm_extent_next(pool, &all, &page)) != 0)
        sums->n_miscounted += vpmm_extent_record(pool, number)->mappings != 0;
    return NULL;
}

static const char *return_mappings(const struct vpmm_pool *pool, const struct vpmm_root *root,
                                   struct sums *sums)
{
    struct vpmm_span all = {&pool->roots[root->number], 0, root->pages};
    uint64_t page = 0;
    uint32_t number;
    (void)sums;
    while ((number = vpmm_extent_next(pool, &all, &page)) != 0)
        vpmm_extent_record(pool, number)->mappings++;
    return NULL;
}

/* What could be harvested is listed, or will be because its pages are fresh. */
static const char *check_homes(const struct vpmm_pool *pool, const struct vpmm_root *root,
                               struct sums *sums)
{
    struct vpmm_span all = {&pool->roots[root->number], 0, root->pages};
    uint64_t page = 0;
    uint32_t number;
    if (sums->n_miscounted)
        return "an extent is not mapped as often as its record says";
    while ((number = vpmm_extent_next(pool, &all, &page)) != 0) {
        const struct vpmm_extent *extent = vpmm_extent_record(pool, number);
        unsigned group;
        unsigned room;
        if (!is_home(root, extent, page - extent->pages))
            continue;
        sums->homes++;
        sums->held_pages += extent->pages;
        sums->slab_pages += root->is_of_slabs ? extent->pages : 0;
        sums->n_listed += extent->is_listed;
        if (extent->is_picked)
            return "an extent is still marked by a request that has ended";
        if (!extent->is_listed && vpmm_harvest_group(pool, extent, &group, &room) &&
            vpmm_bits_first_from(&root->fresh, extent->page) >= page)
            return "an extent that could be harvested is not listed";
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

/* Zombies that wait and others lie in one tree together. */
static const char *check_zombies(const struct vpmm_pool *pool, const struct vpmm_tree *tree,
                                 uint64_t n_expected)
{
    for (uint32_t number = vpmm_index_first(tree); number; number = vpmm_index_next(tree, number)) {
        if (vpmm_region_state(vpmm_region_record(pool, number)) != VPMM_REGION_ZOMBIE)
            return "a region is in the wrong tree";
        n_expected--;
    }
    return n_expected ? "a region is missing in its tree" : NULL;
}

static const char *check_listed(const struct vpmm_pool *pool, uint64_t n_expected)
{
    const struct vpmm_tree *tree = &pool->harvest;
    for (uint32_t number = vpmm_index_first(tree); number; number = vpmm_index_next(tree, number)) {
        if (!vpmm_extent_record(pool, number)->is_listed)
            return "an extent is listed and does not know it";
        n_expected--;
    }
    return n_expected ? "a listed extent is missing in the list" : NULL;
}

static const char *check_arrivals(const struct vpmm_pool *pool, uint64_t n_expected)
{
    for (uint32_t i = 0; i < pool->n_arrivals; i++) {
        const struct vpmm_region *region = vpmm_region_record(pool, pool->arrivals[i]);
        if (vpmm_region_state(region) != VPMM_REGION_FREE || !region->is_arrival ||
            region->size_node.left != i)
            return "an arrival does not know its place";
    }
    return pool->n_arrivals == n_expected ? NULL : "an arrival is in no list";
}

static const char *check_indexes(const struct vpmm_pool *pool, const struct sums *sums)
{
    const struct {
        const struct vpmm_tree *tree;
        uint64_t n;
        enum vpmm_region_state state;
        bool is_pending;
    } trees[] = {
        {&pool->holes, sums->holes, VPMM_REGION_HOLE, false},
        {&pool->complete, sums->complete, VPMM_REGION_FREE, false},
        {&pool->pending, sums->pending, VPMM_REGION_FREE, true},
        {&pool->waiting_regions.tree, sums->pending, VPMM_REGION_FREE, true},
        {&pool->growable, sums->growable, VPMM_REGION_FREE, false},
        {&pool->growable_pending, sums->growable_pending, VPMM_REGION_FREE, true},
    };
    const char *fault = NULL;
    for (size_t i = 0; i < sizeof trees / sizeof *trees && !fault; i++)
        fault = check_tree(pool, trees[i].tree, trees[i].n, trees[i].state, trees[i].is_pending);
    if (!fault)
        fault = check_zombies(pool, &pool->zombies, sums->zombies);
    if (!fault)
        fault = check_zombies(pool, &pool->waiting_zombies.tree, sums->zombies);
    if (!fault)
        fault = check_arrivals(pool, sums->arrivals);
    return fault ? fault : check_listed(pool, sums->n_listed);
}

static const char *check_totals(const struct vpmm_pool *pool, const struct sums *sums)
{
    const struct vpmm_counters *counters = &pool->counters;
    for (unsigned i = 0; i < VPMM_REGION_STATES; i++)
        if (sums->pages[i] != vpmm_atomic_load(&counters->pages[i]))
            return "the running totals of a state are not the sums over its regions";
    if (sums->waiting_pages != vpmm_atomic_load(&counters->waiting_pages))
        return "the running total of what waits is not the sum over such regions";
    struct vpmm_share_sum cached;
    vpmm_shares_sum(pool, &cached);
    if (sums->cached_pages != cached.cached_pages)
        return "what the front caches hold is not the sum over cached regions";
    if (sums->live_bytes != vpmm_atomic_load(&counters->live_bytes) + cached.live_bytes)
        return "the running total of live bytes is not their sum";
    for (uint32_t i = 0; i < VPMM_MEMPOOLS; i++)
        if (i != VPMM_MEMPOOL_NONE && sums->mempool_bytes[i] != vpmm_pool_mempool_bytes(pool, i))
            return "what counts to a memory pool is not the sum over its blocks";
    if (sums->other_pages != vpmm_pool_other_pages(pool))
        return "what does not count to the default memory pool is not the sum over such blocks";
    if (sums->homes != vpmm_atomic_load(&counters->extents) ||
        sums->held_pages != vpmm_atomic_load(&counters->held_pages) ||
        sums->mappings != vpmm_atomic_load(&counters->mappings) ||
        sums->whole_pages != pool->whole_pages)
        return "the running totals of extents are not the sums over them";
    if (sums->slab_pages != pool->slab_pages || sums->slab_free_pages != pool->slab_free_pages)
        return "what lies in slab roots is not the sum over it";
    if (sums->held_pages + pool->planned_pages > pool->held_pages_max)
        return "more is held than may be";
    if (sums->n_regions + pool->spare_regions != pool->regions.n_used)
        return "a region record is lost";
    if (sums->homes + pool->spare_extents != pool->extents.n_used)
        return "an extent record is lost";
    return NULL;
}

const char *vpmm_pool_audit(const struct vpmm_pool *pool)
{
    static root_check *const checks[] = {
        check_regions,   check_extents, take_mappings, compare_mappings,
        return_mappings, check_homes,   NULL};
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
