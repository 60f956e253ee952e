/* SPDX-License-Identifier: MIT */
/* Makes the layer of one heap and ends it, and answers questions about blocks and figures. Must not
 * take a lock to answer about an address, because a signal handler may ask. */
#include "small/small_internal.h"

#include "base/layout.h"

#include <stddef.h>

/* A slab's grains are counted in 26 bits, which is what the bins are made for. */
#define PAGE_BYTES_MAX ((uint64_t)1 << 31)

/* ---- figures ---- */

uint64_t vpmm_small_layout(void)
{
    uint64_t layout = vpmm_layout_mix(sizeof(struct vpmm_small), sizeof(struct vpmm_rack));
    layout = vpmm_layout_mix(layout, sizeof(struct vpmm_slab));
    layout = vpmm_layout_mix(layout, sizeof(struct vpmm_piece));
    return vpmm_layout_mix(layout, offsetof(struct vpmm_small, n_racks));
}

/* Of slightly different moments. */
static uint64_t less(uint64_t whole, uint64_t part)
{
    return whole > part ? whole - part : 0;
}

static uint64_t live_bytes(const struct vpmm_rack *rack)
{
    uint64_t bytes = vpmm_atomic_load(&rack->n_bytes);
    return less(bytes, vpmm_atomic_load(&rack->returned_bytes));
}

static void add_rack(const struct vpmm_rack *rack, struct vpmm_small_figures *figures)
{
    uint64_t n_mallocs = vpmm_atomic_load(&rack->n_mallocs);
    uint64_t n_frees = vpmm_atomic_load(&rack->n_frees);
    uint64_t n_warm = less(n_mallocs, vpmm_atomic_load(&rack->n_cold));
    uint64_t pages = vpmm_atomic_load(&rack->n_pages);
    uint64_t n_returned = vpmm_atomic_load(&rack->n_returned);
    uint64_t bytes = live_bytes(rack);
    figures->slabs += vpmm_atomic_load(&rack->n_slabs);
    figures->pages += pages;
    figures->blocks += less(n_mallocs, n_frees + n_returned + vpmm_atomic_load(&rack->n_ended));
    figures->bytes += bytes;
    figures->async_bytes += rack->is_async ? bytes : 0;
    figures->waiting_blocks +=
        vpmm_atomic_load(&rack->n_waiting) + less(n_returned, vpmm_atomic_load(&rack->n_taken));
    figures->mallocs += n_mallocs;
    figures->frees += n_frees + n_returned;
    figures->warm_mallocs += n_warm;
    figures->warm_async_mallocs += rack->is_async ? n_warm : 0;
}

void vpmm_small_figures(const struct vpmm_small *small, struct vpmm_small_figures *figures_out)
{
    uint32_t n = vpmm_atomic_load(&small->n_racks);
    struct vpmm_small_figures figures = {.racks = n};
    for (uint32_t i = 1; i <= n; i++)
        add_rack(vpmm_rack_at(small, i), &figures);
    *figures_out = figures;
}

static uint64_t used_bytes(void *self)
{
    const struct vpmm_small *small = self;
    uint32_t n = vpmm_atomic_load(&small->n_racks);
    uint64_t sum = 0;
    for (uint32_t i = 1; i <= n; i++) {
        const struct vpmm_rack *rack = vpmm_rack_at(small, i);
        sum += rack->is_async ? live_bytes(rack) : 0;
    }
    return sum;
}

static uint64_t async_pages(void *self)
{
    const struct vpmm_small *small = self;
    return vpmm_atomic_load(&small->async_pages);
}

/* ---- its beginning and end ---- */

static enum vpmm_status init(struct vpmm_small *small)
{
    const struct vpmm_memory *memory = small->memory;
    enum vpmm_status status = vpmm_table_init(&small->slabs, sizeof(struct vpmm_slab), memory);
    if (!status)
        status = vpmm_table_init(&small->racks, sizeof(struct vpmm_rack), memory);
    if (status)
        vpmm_table_finish(&small->slabs);
    return status;
}

enum vpmm_status vpmm_small_create(const struct vpmm_small_params *params, struct vpmm_heap *heap,
                                   struct vpmm_order *order, const struct vpmm_memory *memory,
                                   struct vpmm_small **small_out)
{
    uint64_t page_bytes = vpmm_heap_page_bytes(heap);
    if (page_bytes % VPMM_GRAIN_BYTES || page_bytes > PAGE_BYTES_MAX)
        return VPMM_NOT_SUPPORTED;
    struct vpmm_small *small = memory->map(memory->self, sizeof *small);
    if (!small)
        return VPMM_NO_METADATA;
    small->heap = heap;
    small->order = order;
    small->memory = memory;
    small->params = *params;
    small->page_bytes = page_bytes;
    vpmm_mempool_init(&small->mempool, VPMM_MEMPOOL_NONE, 0);
    enum vpmm_status status = init(small);
    if (status) {
        memory->unmap(memory->self, small, sizeof *small);
        return status;
    }
    vpmm_lock_init(&small->lock, VPMM_RANK_SMALL);
    const struct vpmm_keeper keeper = {small,       vpmm_small_give_back,     used_bytes,
                                       async_pages, vpmm_small_pending_pages, vpmm_small_oldest};
    vpmm_heap_set_keeper(heap, &keeper);
    *small_out = small;
    return VPMM_OK;
}

void vpmm_small_destroy(struct vpmm_small *small)
{
    if (!small)
        return;
    vpmm_slabs_finish(small);
    vpmm_table_finish(&small->slabs);
    vpmm_table_finish(&small->racks);
    vpmm_lock_finish(&small->lock);
    small->memory->unmap(small->memory->self, small, sizeof *small);
}

/* ---- addresses ---- */

bool vpmm_small_holds(const struct vpmm_small *small, uint64_t address)
{
    return vpmm_slab_find(small, address) != NULL;
}

/* The piece that has the grain, or NULL where that is just changing. */
static const struct vpmm_piece *piece_at(const struct vpmm_slab *slab, uint32_t grain)
{
    uint64_t seen = vpmm_atomic_load(&slab->starts[grain / 64]) & (UINT64_MAX >> (63 - grain % 64));
    uint32_t word = grain / 64;
    while (!seen && word > 0)
        seen = vpmm_atomic_load(&slab->starts[--word]);
    return seen ? &slab->pieces[word * 64 + 63 - (uint32_t)__builtin_clzll(seen)] : NULL;
}

bool vpmm_small_find(const struct vpmm_small *small, uint64_t address,
                     struct vpmm_region_view *view_out)
{
    const struct vpmm_slab *slab = vpmm_slab_find(small, address);
    if (!slab)
        return false;
    uint64_t begin = vpmm_atomic_load(&slab->address);
    const struct vpmm_rack *rack = vpmm_slab_rack(slab);
    struct vpmm_region_view view = {.state = VPMM_REGION_FREE, .address = address, .is_part = true};
    uint64_t offset = address - begin;
    const struct vpmm_piece *piece =
        offset < slab->bytes ? piece_at(slab, (uint32_t)(offset / VPMM_GRAIN_BYTES)) : NULL;
    uint64_t word = piece ? vpmm_atomic_load(&piece->word) : VPMM_PIECE_NONE;
    if ((word & VPMM_PIECE_STATE) == VPMM_PIECE_LIVE) {
        view.address = begin + (uint64_t)vpmm_piece_grain(slab, piece) * VPMM_GRAIN_BYTES;
        view.owner = (struct vpmm_owner){
            .bytes = vpmm_atomic_load(&piece->bytes),
            .context_id = vpmm_atomic_load(&slab->context_id),
            .id = vpmm_heap_allocation_id(small->heap, word >> VPMM_PIECE_NUMBER_SHIFT),
            .is_async = rack->is_async,
        };
        view.owner.stream_id = rack->is_async ? vpmm_atomic_load(&rack->id) : 0;
        if (vpmm_atomic_load(&piece->word) == word)
            view.state = VPMM_REGION_LIVE;
    }
    *view_out = view;
    return true;
}
