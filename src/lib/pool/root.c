/* SPDX-License-Identifier: MIT */
/* Adds roots, and finds the root of an address. Readers hold no lock, so a root must not move or go
 * before the pool ends. */
#include "pool/pool_internal.h"

#include <string.h>

/* So few roots are looked through faster than searched. */
#ifndef FEW_ROOTS
#    define FEW_ROOTS 8
#endif

/* How often a search that a new root disturbed is tried again, before all roots are looked through.
 */
#ifndef SEARCHES
#    define SEARCHES 4
#endif

uint64_t vpmm_root_address(const struct vpmm_pool *pool, const struct vpmm_root *root,
                           uint64_t page)
{
    return root->address + page * pool->params.page_bytes;
}

static struct vpmm_root *look_through(const struct vpmm_pool *pool, uint64_t address, uint32_t n)
{
    struct vpmm_root *lowest = NULL;
    for (uint32_t i = 0; i < n; i++) {
        VPMM_STEP();
        struct vpmm_root *root = &pool->roots[i];
        if (vpmm_root_holds(pool, root, address))
            return root;
        if (root->address > address && (!lowest || root->address < lowest->address))
            lowest = root;
    }
    return lowest;
}

/* The place in roots_by_address of the first root above `address`. */
static uint32_t place_above(const struct vpmm_pool *pool, uint64_t address, uint32_t n)
{
    uint32_t low = 0;
    uint32_t high = n;
    while (low < high) {
        VPMM_STEP();
        uint32_t middle = low + (high - low) / 2;
        if (pool->roots[vpmm_atomic_load(&pool->roots_by_address[middle])].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct vpmm_root *root_at_place(const struct vpmm_pool *pool, uint32_t place)
{
    return &pool->roots[vpmm_atomic_load(&pool->roots_by_address[place])];
}

struct vpmm_root *vpmm_root_from(const struct vpmm_pool *pool, uint64_t address)
{
    uint32_t n = vpmm_atomic_load(&pool->n_roots);
    if (n <= FEW_ROOTS)
        return look_through(pool, address, n);
    for (int i = 0; i < SEARCHES; i++) {
        uint32_t version = vpmm_atomic_load(&pool->roots_version);
        n = vpmm_atomic_load(&pool->n_roots);
        uint32_t place = place_above(pool, address, n);
        struct vpmm_root *below = place ? root_at_place(pool, place - 1) : NULL;
        struct vpmm_root *above = place < n ? root_at_place(pool, place) : NULL;
        if (version % 2 == 0 && vpmm_atomic_load(&pool->roots_version) == version)
            return below && vpmm_root_holds(pool, below, address) ? below : above;
    }
    return look_through(pool, address, vpmm_atomic_load(&pool->n_roots));
}

struct vpmm_root *vpmm_root_search(const struct vpmm_pool *pool, uint64_t address)
{
    struct vpmm_root *root = vpmm_root_from(pool, address);
    return root && vpmm_root_holds(pool, root, address) ? root : NULL;
}

static void root_finish(const struct vpmm_memory *memory, struct vpmm_root *root)
{
    if (root->extent_at)
        memory->unmap(memory->self, root->extent_at, root->pages * sizeof *root->extent_at);
    if (root->region_at)
        memory->unmap(memory->self, root->region_at, root->pages * sizeof *root->region_at);
    vpmm_bits_finish(&root->fresh);
    vpmm_bits_finish(&root->extent_starts);
    vpmm_bits_finish(&root->region_starts);
    memset(root, 0, sizeof *root);
}

void vpmm_roots_finish(struct vpmm_pool *pool, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        root_finish(pool->memory, &pool->roots[i]);
}

static enum vpmm_status root_init(const struct vpmm_memory *memory, struct vpmm_root *root,
                                  uint32_t number, uint64_t address, uint64_t pages)
{
    root->address = address;
    root->pages = pages;
    root->number = number;
    root->region_at = memory->map(memory->self, pages * sizeof *root->region_at);
    root->extent_at = memory->map(memory->self, pages * sizeof *root->extent_at);
    if (root->region_at && root->extent_at &&
        !vpmm_bits_init(&root->region_starts, pages, memory) &&
        !vpmm_bits_init(&root->extent_starts, pages, memory) &&
        !vpmm_bits_init(&root->fresh, pages, memory))
        return VPMM_OK;
    root_finish(memory, root);
    return VPMM_NO_METADATA;
}

/* Makes the root known to readers, who meanwhile look through the roots in order of adoption if
 * they must. */
static void publish(struct vpmm_pool *pool, struct vpmm_root *root)
{
    uint32_t place = place_above(pool, root->address, root->number);
    vpmm_atomic_add(&pool->roots_version, 1);
    for (uint32_t i = root->number; i > place; i--)
        vpmm_atomic_store(&pool->roots_by_address[i],
                          vpmm_atomic_load(&pool->roots_by_address[i - 1]));
    vpmm_atomic_store(&pool->roots_by_address[place], root->number);
    vpmm_atomic_store(&pool->n_roots, root->number + 1);
    vpmm_atomic_add(&pool->roots_version, 1);
    vpmm_atomic_add(&pool->counters.root_pages, root->pages);
}

enum vpmm_status vpmm_pool_add_root(struct vpmm_pool *pool, uint64_t address, uint64_t pages,
                                    bool is_of_slabs)
{
    uint32_t number = vpmm_atomic_load(&pool->n_roots);
    if (pages == 0 || pages > VPMM_ROOT_PAGES_MAX ||
        pages > (UINT64_MAX - address) / pool->params.page_bytes)
        return VPMM_INVALID;
    if (number == VPMM_ROOTS_MAX || vpmm_table_reserve(&pool->regions, 1))
        return VPMM_NO_METADATA;
    struct vpmm_root *root = &pool->roots[number];
    enum vpmm_status status = root_init(pool->memory, root, number, address, pages);
    if (status)
        return status;
    root->is_of_slabs = is_of_slabs;
    vpmm_region_put(pool, vpmm_table_take(&pool->regions), &(struct vpmm_span){root, 0, pages},
                    &(struct vpmm_content){.state = VPMM_REGION_HOLE});
    publish(pool, root);
    return VPMM_OK;
}

bool vpmm_pool_root(const struct vpmm_pool *pool, uint32_t number, uint64_t *address_out,
                    uint64_t *pages_out)
{
    if (number >= vpmm_atomic_load(&pool->n_roots))
        return false;
    *address_out = pool->roots[number].address;
    *pages_out = pool->roots[number].pages;
    return true;
}
