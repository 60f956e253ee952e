/* SPDX-License-Identifier: MIT */
#include "pool/internal.h"

#include <stddef.h>

static struct vpmm_tree_key key_of(const void *record)
{
    const struct vpmm_region *region = record;
    return (struct vpmm_tree_key){vpmm_region_pages(region), vpmm_atomic_load(&region->address)};
}

void vpmm_index_init(struct vpmm_pool *pool)
{
    struct vpmm_tree empty = {&pool->regions, offsetof(struct vpmm_region, node), key_of, 0};
    pool->holes = pool->complete = pool->pending = pool->usable = empty;
    pool->usable.node_offset = offsetof(struct vpmm_region, usable_node);
}

static struct vpmm_tree *tree_of(struct vpmm_pool *pool, const struct vpmm_region *region)
{
    enum vpmm_region_state state = vpmm_region_state(region);
    if (state == VPMM_REGION_HOLE)
        return &pool->holes;
    if (state != VPMM_REGION_FREE)
        return NULL;
    return vpmm_region_fence(region) == VPMM_FENCE_NONE ? &pool->complete : &pool->pending;
}

static struct vpmm_list *list_of(struct vpmm_pool *pool, const struct vpmm_region *region)
{
    enum vpmm_region_state state = vpmm_region_state(region);
    if (state == VPMM_REGION_ZOMBIE)
        return &pool->zombies;
    bool is_pending = state == VPMM_REGION_FREE && vpmm_region_fence(region) != VPMM_FENCE_NONE;
    return is_pending ? &pool->pending_by_age : NULL;
}

/* The link that leads forwards from `number`, or from the list's start where that is 0; and
 * backwards likewise. */
static uint32_t *newer_link(struct vpmm_pool *pool, struct vpmm_list *list, uint32_t number)
{
    return number ? &vpmm_region_record(pool, number)->newer : &list->oldest;
}

static uint32_t *older_link(struct vpmm_pool *pool, struct vpmm_list *list, uint32_t number)
{
    return number ? &vpmm_region_record(pool, number)->older : &list->newest;
}

static uint64_t age_of(const struct vpmm_pool *pool, uint32_t number)
{
    return vpmm_region_record(pool, number)->age;
}

/* The newest in the list that is not newer than `age`; 0 when there is none. Looked for from the
 * end that is nearer by age: what is freed belongs at the newest, what is left of an old region
 * that was taken near the oldest. */
static uint32_t last_not_newer(const struct vpmm_pool *pool, const struct vpmm_list *list,
                               uint64_t age)
{
    uint32_t number = list->newest;
    if (!number || age_of(pool, list->oldest) > age)
        return 0;
    if (age_of(pool, number) <= age ||
        age_of(pool, number) - age < age - age_of(pool, list->oldest)) {
        while (age_of(pool, number) > age)
            number = vpmm_region_record(pool, number)->older;
        return number;
    }
    uint32_t newer = list->oldest;
    while (age_of(pool, newer) <= age) {
        number = newer;
        newer = vpmm_region_record(pool, newer)->newer;
    }
    return number;
}

/* By age. */
static void list_add(struct vpmm_pool *pool, struct vpmm_list *list, uint32_t number)
{
    struct vpmm_region *region = vpmm_region_record(pool, number);
    uint32_t older = last_not_newer(pool, list, region->age);
    region->older = older;
    region->newer = *newer_link(pool, list, older);
    *older_link(pool, list, region->newer) = number;
    *newer_link(pool, list, older) = number;
}

static void list_drop(struct vpmm_pool *pool, struct vpmm_list *list, uint32_t number)
{
    struct vpmm_region *region = vpmm_region_record(pool, number);
    *newer_link(pool, list, region->older) = region->newer;
    *older_link(pool, list, region->newer) = region->older;
}

void vpmm_index_add(struct vpmm_pool *pool, uint32_t number)
{
    const struct vpmm_region *region = vpmm_region_record(pool, number);
    struct vpmm_tree *tree = tree_of(pool, region);
    struct vpmm_list *list = list_of(pool, region);
    if (tree)
        vpmm_tree_insert(tree, number);
    if (list)
        list_add(pool, list, number);
}

void vpmm_index_drop(struct vpmm_pool *pool, uint32_t number)
{
    const struct vpmm_region *region = vpmm_region_record(pool, number);
    struct vpmm_tree *tree = tree_of(pool, region);
    struct vpmm_list *list = list_of(pool, region);
    if (tree)
        vpmm_tree_remove(tree, number);
    if (list)
        list_drop(pool, list, number);
}

uint32_t vpmm_index_first(const struct vpmm_tree *tree)
{
    return vpmm_tree_first_from(tree, (struct vpmm_tree_key){0, 0});
}

uint32_t vpmm_index_next(const struct vpmm_tree *tree, uint32_t number)
{
    struct vpmm_tree_key key = key_of(vpmm_table_at(tree->records, number));
    return vpmm_tree_first_from(tree, (struct vpmm_tree_key){key.major, key.minor + 1});
}

uint32_t vpmm_index_fit(const struct vpmm_tree *tree, uint64_t pages)
{
    return vpmm_tree_first_from(tree, (struct vpmm_tree_key){pages, 0});
}

uint32_t vpmm_index_below(const struct vpmm_tree *tree, uint64_t pages, uint64_t address)
{
    return vpmm_tree_last_before(tree, (struct vpmm_tree_key){pages, address});
}
