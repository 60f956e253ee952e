/* SPDX-License-Identifier: MIT */
/* Keeps free regions, holes and zombies in trees by size, fence and age. The key of a region must
 * not change while the region is in a tree. */
#include "pool/pool_internal.h"

#include <stddef.h>

/* The larger of APART_BYTES and this part of what is held is the bound of what is kept apart: other
 * requests get free memory of slab roots beyond it, and slabs may lie elsewhere once slab roots
 * have more than that in all. */
#define APART_BYTES ((uint64_t)32 << 20)
#define APART_SHARE 16u

static struct vpmm_tree_key by_size(const void *record)
{
    const struct vpmm_region *region = record;
    return (struct vpmm_tree_key){vpmm_region_owner_key(region), vpmm_region_pages(region),
                                  vpmm_atomic_load(&region->address)};
}

static bool by_size_is_below(const void *record, const struct vpmm_tree_key *key)
{
    return vpmm_tree_key_is_below(by_size(record), key);
}

static uint64_t age_of(const struct vpmm_region *zombie)
{
    return vpmm_atomic_load(&zombie->id);
}

static struct vpmm_tree_key by_fence(const void *record)
{
    const struct vpmm_region *region = record;
    uint64_t address = vpmm_atomic_load(&region->address);
    vpmm_fence fence = vpmm_region_fence(region);
    if (fence == VPMM_FENCE_NONE)
        return (struct vpmm_tree_key){0, age_of(region), address};
    return (struct vpmm_tree_key){vpmm_region_stream(region) + 1, fence, address};
}

static bool by_fence_is_below(const void *record, const struct vpmm_tree_key *key)
{
    return vpmm_tree_key_is_below(by_fence(record), key);
}

static struct vpmm_tree_key by_pages_and_youth(const void *record)
{
    const struct vpmm_region *region = record;
    return (struct vpmm_tree_key){vpmm_region_pages(region), UINT64_MAX - age_of(region),
                                  vpmm_atomic_load(&region->address)};
}

static bool by_pages_and_youth_is_below(const void *record, const struct vpmm_tree_key *key)
{
    return vpmm_tree_key_is_below(by_pages_and_youth(record), key);
}

void vpmm_index_init(struct vpmm_pool *pool)
{
    const struct vpmm_table *records = &pool->regions;
    size_t size = offsetof(struct vpmm_region, size_node);
    size_t side = offsetof(struct vpmm_region, side_node);
    size_t fence = offsetof(struct vpmm_region, fence_node);
    pool->holes = pool->complete = pool->pending =
        (struct vpmm_tree){records, size, by_size, by_size_is_below, 0};
    pool->growable = pool->growable_pending =
        (struct vpmm_tree){records, side, by_size, by_size_is_below, 0};
    pool->zombies =
        (struct vpmm_tree){records, size, by_pages_and_youth, by_pages_and_youth_is_below, 0};
    pool->waiting_regions.tree = pool->waiting_zombies.tree =
        (struct vpmm_tree){records, fence, by_fence, by_fence_is_below, 0};
}

static struct vpmm_tree *growable_tree(struct vpmm_pool *pool, const struct vpmm_region *region)
{
    return vpmm_region_fence(region) == VPMM_FENCE_NONE ? &pool->growable : &pool->growable_pending;
}

static void set_growable(struct vpmm_pool *pool, uint32_t number, bool is_growable)
{
    struct vpmm_region *region = vpmm_region_record(pool, number);
    if (region->is_growable == is_growable)
        return;
    region->is_growable = is_growable;
    if (is_growable)
        vpmm_tree_insert(growable_tree(pool, region), number);
    else
        vpmm_tree_remove(growable_tree(pool, region), number);
}

/* Whether `number`, read where a region may just be changing, is one of `state` that lies in `root`
 * and begins or ends, as `page` says. */
static bool is_there(const struct vpmm_pool *pool, uint32_t number, enum vpmm_region_state state,
                     const struct vpmm_root *root, uint64_t start, uint64_t end)
{
    const struct vpmm_region *region = vpmm_region_record(pool, number);
    return region && vpmm_region_state(region) == state && region->root == root->number &&
           (region->page == start || region->page + vpmm_region_pages(region) == end);
}

/* A hole comes or goes: what lies to its left can grow into it or no longer. */
static void update_left(struct vpmm_pool *pool, const struct vpmm_region *hole, bool comes)
{
    const struct vpmm_root *root = &pool->roots[hole->root];
    if (hole->page == 0)
        return;
    uint32_t left = vpmm_region_at(root, hole->page - 1);
    const struct vpmm_region *region = vpmm_table_record(&pool->regions, left);
    if (is_there(pool, left, VPMM_REGION_FREE, root, UINT64_MAX, hole->page) && !region->is_arrival)
        set_growable(pool, left, comes);
}

static bool has_hole_at_right(const struct vpmm_pool *pool, const struct vpmm_region *region)
{
    const struct vpmm_root *root = &pool->roots[region->root];
    uint64_t end = region->page + vpmm_region_pages(region);
    return end < root->pages &&
           is_there(pool, vpmm_region_at(root, end), VPMM_REGION_HOLE, root, end, UINT64_MAX);
}

bool vpmm_want_mixes(const struct vpmm_pool *pool, const struct vpmm_want *want)
{
    uint64_t apart = want->is_slab ? pool->slab_pages : pool->slab_free_pages;
    uint64_t most = vpmm_atomic_load(&pool->counters.held_pages) / APART_SHARE;
    if (most < APART_BYTES / pool->params.page_bytes)
        most = APART_BYTES / pool->params.page_bytes;
    return want->may_mix || apart > most;
}

static void enter_trees(struct vpmm_pool *pool, uint32_t number)
{
    const struct vpmm_region *region = vpmm_table_record(&pool->regions, number);
    set_growable(pool, number, has_hole_at_right(pool, region));
    if (vpmm_region_fence(region) != VPMM_FENCE_NONE) {
        vpmm_tree_insert(&pool->pending, number);
        vpmm_tree_insert(&pool->waiting_regions.tree, number);
        return;
    }
    struct vpmm_span span = vpmm_region_span(pool, region);
    vpmm_tree_insert(&pool->complete, number);
    pool->whole_pages += vpmm_extent_whole_pages(pool, &span);
}

static void leave_trees(struct vpmm_pool *pool, uint32_t number)
{
    const struct vpmm_region *region = vpmm_table_record(&pool->regions, number);
    set_growable(pool, number, false);
    if (vpmm_region_fence(region) != VPMM_FENCE_NONE) {
        vpmm_tree_remove(&pool->pending, number);
        vpmm_tree_remove(&pool->waiting_regions.tree, number);
        return;
    }
    struct vpmm_span span = vpmm_region_span(pool, region);
    vpmm_tree_remove(&pool->complete, number);
    pool->whole_pages -= vpmm_extent_whole_pages(pool, &span);
}

void vpmm_index_admit(struct vpmm_pool *pool)
{
    while (pool->n_arrivals) {
        VPMM_STEP();
        uint32_t number = pool->arrivals[--pool->n_arrivals];
        struct vpmm_region *region = vpmm_table_record(&pool->regions, number);
        region->is_arrival = 0;
        enter_trees(pool, number);
    }
}

static void set_arrival(struct vpmm_pool *pool, uint32_t place, uint32_t number)
{
    struct vpmm_region *region = vpmm_table_record(&pool->regions, number);
    pool->arrivals[place] = number;
    region->size_node.left = place;
}

/* The sums over free regions like `region` grow by so much, modulo 2 to the 64. */
static void change_free(struct vpmm_pool *pool, const struct vpmm_region *region, uint64_t pages)
{
    vpmm_atomic64 *waiting = &pool->counters.waiting_pages;
    pool->slab_free_pages += region->is_of_slabs ? pages : 0;
    /* With the lock: no other thread writes it. */
    if (vpmm_region_fence(region) != VPMM_FENCE_NONE)
        vpmm_atomic_store(waiting, vpmm_atomic_load(waiting) + pages);
}

static void add_free(struct vpmm_pool *pool, uint32_t number)
{
    struct vpmm_region *region = vpmm_table_record(&pool->regions, number);
    change_free(pool, region, vpmm_region_pages(region));
    if (pool->n_arrivals == VPMM_ARRIVALS_MAX)
        vpmm_index_admit(pool);
    region->is_growable = 0;
    region->is_arrival = 1;
    set_arrival(pool, pool->n_arrivals++, number);
}

static void drop_free(struct vpmm_pool *pool, uint32_t number)
{
    struct vpmm_region *region = vpmm_table_record(&pool->regions, number);
    change_free(pool, region, -vpmm_region_pages(region));
    if (region->is_arrival) {
        region->is_arrival = 0;
        set_arrival(pool, region->size_node.left, pool->arrivals[--pool->n_arrivals]);
    } else {
        leave_trees(pool, number);
    }
}

void vpmm_index_add(struct vpmm_pool *pool, uint32_t number)
{
    const struct vpmm_region *region = vpmm_region_record(pool, number);
    enum vpmm_region_state state = vpmm_region_state(region);
    if (state == VPMM_REGION_FREE) {
        add_free(pool, number);
    } else if (state == VPMM_REGION_HOLE) {
        vpmm_tree_insert(&pool->holes, number);
        update_left(pool, region, true);
    } else if (state == VPMM_REGION_ZOMBIE) {
        vpmm_tree_insert(&pool->zombies, number);
        vpmm_tree_insert(&pool->waiting_zombies.tree, number);
    }
}

void vpmm_index_drop(struct vpmm_pool *pool, uint32_t number)
{
    const struct vpmm_region *region = vpmm_region_record(pool, number);
    enum vpmm_region_state state = vpmm_region_state(region);
    if (state == VPMM_REGION_FREE) {
        drop_free(pool, number);
    } else if (state == VPMM_REGION_HOLE) {
        vpmm_tree_remove(&pool->holes, number);
        update_left(pool, region, false);
    } else if (state == VPMM_REGION_ZOMBIE) {
        vpmm_tree_remove(&pool->zombies, number);
        vpmm_tree_remove(&pool->waiting_zombies.tree, number);
    }
}

uint32_t vpmm_index_first(const struct vpmm_tree *tree)
{
    return vpmm_tree_first_from(tree, (struct vpmm_tree_key){0, 0, 0});
}

uint32_t vpmm_index_next(const struct vpmm_tree *tree, uint32_t number)
{
    struct vpmm_tree_key key = tree->key(vpmm_table_at(tree->records, number));
    key.minor++;
    return vpmm_tree_first_from(tree, key);
}

/* `number` if it belongs to `stream`, else 0. */
static uint32_t of_stream(const struct vpmm_tree *tree, uint32_t number, uint64_t stream)
{
    return number && tree->key(vpmm_table_at(tree->records, number)).major == stream ? number : 0;
}

uint32_t vpmm_index_fit(const struct vpmm_tree *tree, uint64_t stream, uint64_t pages)
{
    return of_stream(tree, vpmm_tree_first_from(tree, (struct vpmm_tree_key){stream, pages, 0}),
                     stream);
}

uint32_t vpmm_index_below(const struct vpmm_tree *tree, uint64_t stream, uint64_t pages,
                          uint64_t address)
{
    struct vpmm_tree_key key = {stream, pages, address};
    return of_stream(tree, vpmm_tree_last_before(tree, key), stream);
}
