/* SPDX-License-Identifier: MIT */
/* Makes a pool and ends it. Must not take memory but by the functions that it is given. */
#include "pool/harvest.h"
#include "pool/pool_internal.h"

#include "base/layout.h"

#include <assert.h>

#define ROOTS_BYTES (VPMM_ROOTS_MAX * sizeof(struct vpmm_root))
#define ROOTS_BY_ADDRESS_BYTES (VPMM_ROOTS_MAX * sizeof(vpmm_atomic32))

enum vpmm_status vpmm_pool_create(const struct vpmm_pool_params *params,
                                  const struct vpmm_memory *memory, struct vpmm_pool **pool_out)
{
    assert(params->page_bytes > 0 && params->mappings_max >> VPMM_MAPPINGS_BITS == 0);
    struct vpmm_pool *pool = memory->map(memory->self, sizeof *pool);
    if (!pool)
        return VPMM_NO_METADATA;
    pool->memory = memory;
    pool->params = *params;
    pool->held_pages_max = UINT64_MAX;
    vpmm_index_init(pool);
    vpmm_harvest_init(pool);
    pool->roots = memory->map(memory->self, ROOTS_BYTES);
    pool->roots_by_address = memory->map(memory->self, ROOTS_BY_ADDRESS_BYTES);
    if (!pool->roots || !pool->roots_by_address ||
        vpmm_table_init(&pool->regions, sizeof(struct vpmm_region), memory) ||
        vpmm_table_init(&pool->extents, sizeof(struct vpmm_extent), memory)) {
        vpmm_pool_destroy(pool);
        return VPMM_NO_METADATA;
    }
    *pool_out = pool;
    return VPMM_OK;
}

bool vpmm_pool_limit(struct vpmm_pool *pool, uint64_t held_pages_max)
{
    if (pool->planned_pages + vpmm_atomic_load(&pool->counters.held_pages) > held_pages_max)
        return false;
    pool->held_pages_max = held_pages_max;
    return true;
}

void vpmm_pool_destroy(struct vpmm_pool *pool)
{
    if (!pool)
        return;
    const struct vpmm_memory *memory = pool->memory;
    vpmm_roots_finish(pool, vpmm_atomic_load(&pool->n_roots));
    vpmm_table_finish(&pool->extents);
    vpmm_table_finish(&pool->regions);
    if (pool->roots_by_address)
        memory->unmap(memory->self, pool->roots_by_address, ROOTS_BY_ADDRESS_BYTES);
    if (pool->roots)
        memory->unmap(memory->self, pool->roots, ROOTS_BYTES);
    memory->unmap(memory->self, pool, sizeof *pool);
}

uint64_t vpmm_pool_layout(void)
{
    uint64_t layout = vpmm_layout_mix(sizeof(struct vpmm_pool), sizeof(struct vpmm_root));
    layout = vpmm_layout_mix(layout, sizeof(struct vpmm_region));
    layout = vpmm_layout_mix(layout, sizeof(struct vpmm_pool_share));
    layout = vpmm_layout_mix(layout, offsetof(struct vpmm_pool, counters));
    layout = vpmm_layout_mix(layout, offsetof(struct vpmm_pool, first_share));
    return vpmm_layout_mix(layout, VPMM_TABLE_CHUNK_RECORDS);
}
