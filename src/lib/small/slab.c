/* SPDX-License-Identifier: MIT */
/* The records of slabs, and which of them lies at an address. Must not let a record become one of
 * another size, because readers without a lock may still follow it. */
#include "small/small_internal.h"

static size_t pieces_bytes(const struct vpmm_slab *slab)
{
    return sizeof(struct vpmm_piece) * slab->n_grains;
}

static size_t starts_bytes(const struct vpmm_slab *slab)
{
    return sizeof(vpmm_atomic64) * (slab->n_grains / 64 + 1);
}

/* ---- by address ---- */

struct vpmm_slab *vpmm_slab_find(const struct vpmm_small *small, uint64_t address)
{
    struct vpmm_slab *slab = vpmm_slab_guess(small, address);
    uint64_t begin = slab ? vpmm_atomic_load(&slab->address) : 0;
    return begin && address - begin < slab->bytes ? slab : NULL;
}

/* `named` NULL: its pages have none any more. */
static void publish(const struct vpmm_small *small, const struct vpmm_slab *slab,
                    struct vpmm_slab *named)
{
    _Atomic(struct vpmm_slab *) *word = vpmm_slab_word(small, vpmm_atomic_load(&slab->address));
    for (uint64_t i = 0; i < slab->pages; i++)
        vpmm_atomic_store(&word[i], named);
}

/* With the lock. False: without memory, or there are too many. */
static bool add_root(struct vpmm_small *small, uint64_t address, uint64_t pages)
{
    uint32_t n = vpmm_atomic_load(&small->n_roots);
    struct vpmm_small_root *root = &small->roots[n];
    if (n == VPMM_SMALL_ROOTS)
        return false;
    root->slabs = small->memory->map(small->memory->self, pages * sizeof *root->slabs);
    if (!root->slabs)
        return false;
    root->address = address;
    root->bytes = pages * small->page_bytes;
    vpmm_atomic_store(&small->n_roots, n + 1);
    return true;
}

/* With the lock. */
static bool require_root(struct vpmm_small *small, uint64_t address)
{
    uint64_t begin, pages;
    if (vpmm_slab_word(small, address))
        return true;
    for (uint32_t i = 0; vpmm_pool_root(vpmm_heap_pool(small->heap), i, &begin, &pages); i++)
        if (address - begin < pages * small->page_bytes)
            return add_root(small, begin, pages);
    return false;
}

/* ---- records ---- */

/* With the lock. NULL: no memory. */
static struct vpmm_slab *new_record(struct vpmm_small *small, uint64_t pages)
{
    const struct vpmm_memory *memory = small->memory;
    uint32_t number = vpmm_table_take(&small->slabs);
    struct vpmm_slab *slab = vpmm_slab_at(small, number);
    if (!slab)
        return NULL;
    slab->pages = pages;
    slab->bytes = pages * small->page_bytes;
    slab->n_grains = (uint32_t)(slab->bytes / VPMM_GRAIN_BYTES);
    slab->number = number;
    slab->pieces = memory->map(memory->self, pieces_bytes(slab));
    slab->starts = slab->pieces ? memory->map(memory->self, starts_bytes(slab)) : NULL;
    if (slab->starts)
        return slab;
    if (slab->pieces)
        memory->unmap(memory->self, slab->pieces, pieces_bytes(slab));
    slab->pieces = NULL;
    vpmm_table_give(&small->slabs, number);
    return NULL;
}

struct vpmm_slab *vpmm_slab_make(struct vpmm_small *small, uint64_t address, uint64_t pages)
{
    vpmm_lock_take(&small->lock);
    struct vpmm_slab *slab = NULL;
    if (require_root(small, address)) {
        slab = small->idle[pages];
        if (slab)
            small->idle[pages] = slab->next;
        else
            slab = new_record(small, pages);
    }
    vpmm_lock_give(&small->lock);
    struct vpmm_region_view region;
    if (slab) {
        slab->region_id =
            vpmm_heap_find(small->heap, address, &region) == VPMM_OK ? region.owner.id : 0;
        slab->begin = address;
        vpmm_atomic_store(&slab->address, address);
    }
    return slab;
}

void vpmm_slab_recycle(struct vpmm_small *small, struct vpmm_slab *slab)
{
    vpmm_lock_take(&small->lock);
    slab->next = small->idle[slab->pages];
    small->idle[slab->pages] = slab;
    vpmm_lock_give(&small->lock);
}

void vpmm_slabs_finish(struct vpmm_small *small)
{
    const struct vpmm_memory *memory = small->memory;
    for (uint32_t i = 1; i < vpmm_table_end(&small->slabs); i++) {
        struct vpmm_slab *slab = vpmm_slab_at(small, i);
        if (!slab || !slab->pieces)
            continue;
        memory->unmap(memory->self, slab->pieces, pieces_bytes(slab));
        memory->unmap(memory->self, slab->starts, starts_bytes(slab));
    }
    for (uint32_t i = 0; i < vpmm_atomic_load(&small->n_roots); i++) {
        struct vpmm_small_root *root = &small->roots[i];
        memory->unmap(memory->self, root->slabs,
                      vpmm_pages_in(root->bytes, small->page_bytes) * sizeof *root->slabs);
    }
}

/* ---- of a rack; with its latch ---- */

static void count(struct vpmm_small *small, struct vpmm_rack *rack, const struct vpmm_slab *slab,
                  bool is_added)
{
    uint64_t sign = is_added ? 1 : UINT64_MAX;
    rack->shelves[vpmm_atomic_load(&slab->shelf)].pages += sign * slab->pages;
    vpmm_atomic_store(&rack->n_slabs, vpmm_atomic_load(&rack->n_slabs) + sign);
    vpmm_atomic_store(&rack->n_pages, vpmm_atomic_load(&rack->n_pages) + sign * slab->pages);
    if (rack->is_async)
        vpmm_atomic_add(&small->async_pages, sign * slab->pages);
}

static void leave_empties(struct vpmm_slab *slab)
{
    struct vpmm_shelf *shelf = &vpmm_slab_rack(slab)->shelves[vpmm_atomic_load(&slab->shelf)];
    vpmm_piece_unbin(shelf, &slab->pieces[0]);
    vpmm_slab_unlink(&shelf->empties, slab);
    shelf->n_empties--;
}

static void join_empties(struct vpmm_slab *slab)
{
    struct vpmm_shelf *shelf = &vpmm_slab_rack(slab)->shelves[vpmm_atomic_load(&slab->shelf)];
    vpmm_piece_bin(shelf, &slab->pieces[0]);
    vpmm_slab_link(&shelf->empties, slab);
    shelf->n_empties++;
}

void vpmm_slab_add(struct vpmm_small *small, struct vpmm_rack *rack, struct vpmm_slab *slab,
                   uint32_t shelf)
{
    struct vpmm_piece *piece = &slab->pieces[0];
    vpmm_atomic_store(&slab->rack, rack);
    vpmm_atomic_store(&slab->shelf, shelf);
    piece->n_grains = slab->n_grains;
    piece->n_left = 0;
    piece->slab = slab->number;
    vpmm_atomic_store(&piece->word, VPMM_PIECE_FREE);
    vpmm_atomic_store(&slab->starts[0], 1);
    join_empties(slab);
    count(small, rack, slab, true);
    publish(small, slab, slab);
}

bool vpmm_slab_move(struct vpmm_rack *rack, uint32_t to, uint32_t n_grains)
{
    for (uint32_t i = 0; i < VPMM_SHELVES; i++) {
        struct vpmm_slab *slab = rack->shelves[i].empties;
        bool is_plain = slab && (slab->pages == 1 || to == VPMM_SHELF_WIDE);
        if (i == to || !is_plain || slab->n_grains < n_grains)
            continue;
        leave_empties(slab);
        rack->shelves[i].pages -= slab->pages;
        rack->shelves[to].pages += slab->pages;
        vpmm_atomic_store(&slab->shelf, to);
        join_empties(slab);
        return true;
    }
    return false;
}

static void hide(struct vpmm_small *small, struct vpmm_slab *slab)
{
    publish(small, slab, NULL);
    vpmm_atomic_store(&slab->address, 0);
    count(small, slab->rack, slab, false);
}

void vpmm_slab_drop(struct vpmm_small *small, struct vpmm_slab *slab)
{
    leave_empties(slab);
    vpmm_atomic_store(&slab->pieces[0].word, VPMM_PIECE_NONE);
    hide(small, slab);
}

/* Live to none is one compare-and-swap, as it is for whoever frees the piece. */
static bool kill_piece(struct vpmm_piece *piece)
{
    uint64_t word = vpmm_atomic_load(&piece->word);
    if ((word & VPMM_PIECE_STATE) == VPMM_PIECE_LIVE &&
        vpmm_atomic_swap_if(&piece->word, &word, VPMM_PIECE_NONE))
        return true;
    if ((word & VPMM_PIECE_STATE) == VPMM_PIECE_RETURNED)
        return false;
    vpmm_atomic_store(&piece->word, VPMM_PIECE_NONE);
    return true;
}

bool vpmm_slab_kill(struct vpmm_small *small, struct vpmm_slab *slab)
{
    bool is_quiet = true;
    hide(small, slab);
    for (uint32_t grain = 0; grain < slab->n_grains; grain += slab->pieces[grain].n_grains)
        is_quiet &= kill_piece(&slab->pieces[grain]);
    for (uint32_t i = 0; i <= slab->n_grains / 64; i++)
        vpmm_atomic_store(&slab->starts[i], 0);
    return is_quiet;
}
