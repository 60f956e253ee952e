/* SPDX-License-Identifier: MIT */
/* Lists the extents that could be harvested, and walks over those that a request may have. An entry
 * may be out of date, so it must not be handed out before another look at its regions. */
#include "pool/harvest.h"
#include "pool/pool_internal.h"

#include "pool/pool_policy.h"

#include <stddef.h>

/* The groups of listed extents: those in complete regions alone, those that nobody has in order,
 * those in slab roots, and one for the numbers of streams that come to the same; what is found is
 * looked at again. */
#define GROUP_COMPLETE 0u
#define GROUP_MIXED 1u
#define GROUP_SLABS 2u /* in slab roots */
#define GROUP_STREAMS 3u
#define GROUPS (1u << VPMM_GROUP_BITS)
#define CLASS_BITS 6

static unsigned group_of(uint64_t stream_id)
{
    if (!stream_id)
        return GROUP_MIXED;
    return GROUP_STREAMS +
           (unsigned)((stream_id * 0x9e3779b97f4a7c15u >> 32) % (GROUPS - GROUP_STREAMS));
}

static uint64_t major_of(unsigned group, unsigned class)
{
    return (uint64_t)group << CLASS_BITS | class;
}

static struct vpmm_tree_key key_of(const void *record)
{
    const struct vpmm_extent *extent = record;
    return (struct vpmm_tree_key){major_of(extent->group, vpmm_policy_class(extent->pages)),
                                  extent->room,
                                  (uint64_t)extent->root << VPMM_PAGE_BITS | extent->page};
}

static bool is_below(const void *record, const struct vpmm_tree_key *key)
{
    return vpmm_tree_key_is_below(key_of(record), key);
}

void vpmm_harvest_init(struct vpmm_pool *pool)
{
    pool->harvest =
        (struct vpmm_tree){&pool->extents, offsetof(struct vpmm_extent, node), key_of, is_below, 0};
}

bool vpmm_harvest_group(const struct vpmm_pool *pool, const struct vpmm_extent *extent,
                        unsigned *group_out, unsigned *room_out)
{
    const struct vpmm_root *root = &pool->roots[extent->root];
    uint64_t end = extent->page + extent->pages;
    uint32_t number = vpmm_region_around(root, extent->page);
    *group_out = GROUP_COMPLETE;
    *room_out = vpmm_policy_class(vpmm_region_pages(vpmm_region_record(pool, number)));
    while (number) {
        VPMM_STEP();
        const struct vpmm_region *region = vpmm_region_record(pool, number);
        if (vpmm_region_state(region) != VPMM_REGION_FREE || extent->is_fixed)
            return false;
        if (vpmm_region_fence(region) != VPMM_FENCE_NONE) {
            unsigned group = group_of(vpmm_region_stream(region));
            bool differs = *group_out != GROUP_COMPLETE && *group_out != group;
            *group_out = differs ? GROUP_MIXED : group;
        }
        uint64_t region_end = region->page + vpmm_region_pages(region);
        number = region_end < end ? vpmm_region_at(root, region_end) : 0;
    }
    if (root->is_of_slabs)
        *group_out = GROUP_SLABS;
    return true;
}

void vpmm_harvest_unlist(struct vpmm_pool *pool, uint32_t number)
{
    struct vpmm_extent *extent = vpmm_extent_record(pool, number);
    if (!extent->is_listed)
        return;
    vpmm_tree_remove(&pool->harvest, number);
    extent->is_listed = 0;
}

/* Lists the extent as it lies now, or not at all. */
static void list(struct vpmm_pool *pool, uint32_t number)
{
    struct vpmm_extent *extent = vpmm_extent_record(pool, number);
    unsigned group;
    unsigned room;
    bool is_free = vpmm_harvest_group(pool, extent, &group, &room);
    if (is_free && extent->is_listed && extent->group == group && extent->room == room)
        return;
    vpmm_harvest_unlist(pool, number);
    if (!is_free)
        return;
    extent->group = VPMM_BITS(group, VPMM_GROUP_BITS);
    extent->room = VPMM_BITS(room, VPMM_ROOM_BITS);
    extent->is_listed = 1;
    vpmm_tree_insert(&pool->harvest, number);
}

/* Pages that were given out again or moved since show other extents, or none: an extent is listed
 * where it belongs. */
static void list_at(struct vpmm_pool *pool, const struct vpmm_root *root, uint64_t page)
{
    uint32_t number = root->extent_at[page];
    const struct vpmm_extent *extent = vpmm_extent_record(pool, number);
    if (extent->root == root->number && extent->page == page)
        list(pool, number);
}

void vpmm_harvest_note(struct vpmm_pool *pool, const struct vpmm_span *span)
{
    struct vpmm_root *root = span->root;
    vpmm_bits_set_span(&root->fresh, span->page, span->pages);
    if (root->is_fresh)
        return;
    root->is_fresh = true;
    root->next_fresh = pool->fresh_roots;
    pool->fresh_roots = root->number + 1;
}

/* Word by word, so that it takes no longer than noting did. */
static void refresh_root(struct vpmm_pool *pool, struct vpmm_root *root)
{
    uint64_t page = vpmm_bits_first_from(&root->fresh, 0);
    uint64_t listed = UINT64_MAX;
    uint64_t start;
    while (page < root->pages) {
        VPMM_STEP();
        uint64_t next = vpmm_bits_first_from(&root->extent_starts, page + 1);
        if (vpmm_bits_last_to(&root->extent_starts, page, &start) && start != listed)
            list_at(pool, root, listed = start);
        if (next > (page | 63) + 1)
            next = (page | 63) + 1;
        if (next > root->pages)
            next = root->pages;
        vpmm_bits_clear_span(&root->fresh, page, next - page);
        page = vpmm_bits_first_from(&root->fresh, next);
    }
}

void vpmm_harvest_refresh(struct vpmm_pool *pool)
{
    while (pool->fresh_roots) {
        VPMM_STEP();
        struct vpmm_root *root = &pool->roots[pool->fresh_roots - 1];
        refresh_root(pool, root);
        pool->fresh_roots = root->next_fresh;
        root->is_fresh = false;
    }
}

/* ---- walks ---- */

static void enter(struct vpmm_harvest_walk *walk, unsigned group)
{
    walk->group = group;
    walk->next = (struct vpmm_tree_key){major_of(group, walk->class), 0, 0};
}

void vpmm_harvest_begin(struct vpmm_harvest_walk *walk, unsigned class)
{
    walk->class = class;
    enter(walk, GROUP_COMPLETE);
}

/* Of the groups of the streams that the request comes after, and of slabs where it may have some,
 * the lowest above `group`; that itself: there is none. */
static unsigned next_followed(const struct vpmm_pool *pool, const struct vpmm_want *want,
                              unsigned group)
{
    unsigned best = group < GROUP_SLABS && vpmm_want_mixes(pool, want) ? GROUP_SLABS : group;
    for (uint64_t i = 0; i <= want->n_follows; i++) {
        unsigned other = group_of(i ? want->follows[i - 1] : want->owner.stream_id);
        if (other != GROUP_MIXED && other > group && (best == group || other < best))
            best = other;
    }
    return best;
}

/* The next group that the request may have something of: its stream's; or, where it may have what
 * others freed, any. */
static bool enter_next_group(struct vpmm_harvest_walk *walk)
{
    if (!walk->want->asks_all) {
        unsigned followed = next_followed(walk->pool, walk->want, walk->group);
        if (followed == walk->group)
            return false;
        enter(walk, followed);
        return true;
    }
    const struct vpmm_tree *tree = &walk->pool->harvest;
    for (unsigned group = walk->group + 1; group < GROUPS; group++) {
        VPMM_STEP();
        uint32_t number =
            vpmm_tree_first_from(tree, (struct vpmm_tree_key){major_of(group, walk->class), 0, 0});
        if (!number)
            return false;
        const struct vpmm_extent *extent = vpmm_extent_record(walk->pool, number);
        bool is_for_it = extent->group != GROUP_SLABS || vpmm_want_mixes(walk->pool, walk->want);
        if (is_for_it && vpmm_policy_class(extent->pages) == walk->class) {
            enter(walk, extent->group);
            return true;
        }
        if (extent->group > group)
            group = extent->group - 1;
    }
    return false;
}

/* Where a walk that met the extent goes on, if that overlaps the base: behind the base. */
static bool is_in_base(struct vpmm_harvest_walk *walk, const struct vpmm_extent *extent)
{
    const struct vpmm_span *base = walk->base;
    uint64_t end = base->page + base->pages;
    if (!base->pages || extent->root != base->root->number || extent->page >= end ||
        extent->page + extent->pages <= base->page)
        return false;
    walk->next.minor = (uint64_t)extent->root << VPMM_PAGE_BITS | end;
    return true;
}

uint32_t vpmm_harvest_next(struct vpmm_harvest_walk *walk)
{
    struct vpmm_pool *pool = walk->pool;
    for (;;) {
        VPMM_STEP();
        uint32_t number = vpmm_tree_first_from(&pool->harvest, walk->next);
        const struct vpmm_extent *extent = vpmm_extent_record(pool, number);
        struct vpmm_tree_key key = {0, 0, 0};
        if (extent)
            key = key_of(extent);
        if (!extent || key.major != walk->next.major) {
            if (!enter_next_group(walk))
                return 0;
            continue;
        }
        walk->next = key;
        if (is_in_base(walk, extent))
            continue;
        walk->next.minor++;
        if (vpmm_extent_is_usable(pool, walk->want->view, extent))
            return number;
        list(pool, number);
    }
}

static bool class_below(const struct vpmm_pool *pool, unsigned group, unsigned class,
                        unsigned *class_out)
{
    uint32_t number =
        vpmm_tree_last_before(&pool->harvest, (struct vpmm_tree_key){major_of(group, class), 0, 0});
    const struct vpmm_extent *extent = vpmm_extent_record(pool, number);
    if (!extent || extent->group != group)
        return false;
    *class_out = vpmm_policy_class(extent->pages);
    return true;
}

bool vpmm_harvest_class_below(const struct vpmm_harvest_walk *walk, unsigned class,
                              unsigned *class_out)
{
    if (walk->want->asks_all) {
        *class_out = class - 1;
        return class > 0;
    }
    unsigned best = 0;
    unsigned other = 0;
    bool has_any = class_below(walk->pool, GROUP_COMPLETE, class, &best);
    unsigned group = GROUP_COMPLETE;
    for (unsigned next; (next = next_followed(walk->pool, walk->want, group)) != group;
         group = next) {
        if (!class_below(walk->pool, next, class, &other))
            continue;
        best = has_any && best > other ? best : other;
        has_any = true;
    }
    if (has_any)
        *class_out = best;
    return has_any;
}
