/* SPDX-License-Identifier: MIT */
/* Walks every invariant of the layer. Must not wait for a latch, because the process may be ending
 * and its holder may never run again. */
#include "small/small_internal.h"

/* What a walk over one rack has seen. */
struct seen {
    uint64_t n_slabs, n_pages, n_free, n_binned, n_live, live_bytes;
};

static const char *audit_piece(const struct vpmm_slab *slab, uint32_t grain, uint32_t n_left,
                               bool is_after_free, struct seen *seen)
{
    const struct vpmm_piece *piece = &slab->pieces[grain];
    uint64_t state = vpmm_piece_state(piece);
    bool is_start = vpmm_atomic_load(&slab->starts[grain / 64]) >> grain % 64 & 1;
    if (state == VPMM_PIECE_NONE || !is_start)
        return "a piece is not marked as one";
    if (piece->n_grains == 0 || piece->n_grains > slab->n_grains - grain)
        return "a piece reaches beyond its slab";
    if (piece->n_left != n_left || piece->slab != slab->number)
        return "a piece does not know its neighbour or its slab";
    if (state == VPMM_PIECE_FREE && is_after_free)
        return "two free pieces lie side by side";
    seen->n_free += state == VPMM_PIECE_FREE;
    seen->n_live += state == VPMM_PIECE_LIVE;
    seen->live_bytes += state == VPMM_PIECE_LIVE ? vpmm_atomic_load(&piece->bytes) : 0;
    return NULL;
}

static uint64_t count_starts(const struct vpmm_slab *slab)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i <= slab->n_grains / 64; i++)
        n += (uint64_t)__builtin_popcountll(vpmm_atomic_load(&slab->starts[i]));
    return n;
}

static const char *audit_slab(const struct vpmm_small *small, const struct vpmm_slab *slab,
                              bool is_empty, struct seen *seen)
{
    uint32_t n_left = 0;
    uint64_t n_pieces = 0;
    bool is_free = false;
    seen->n_slabs++;
    seen->n_pages += slab->pages;
    if (vpmm_slab_find(small, slab->begin + slab->bytes - 1) != slab)
        return "a slab is not found at its address";
    for (uint32_t grain = 0; grain < slab->n_grains; n_pieces++) {
        const struct vpmm_piece *piece = &slab->pieces[grain];
        const char *broken = audit_piece(slab, grain, n_left, is_free, seen);
        if (broken)
            return broken;
        is_free = vpmm_piece_state(piece) == VPMM_PIECE_FREE;
        n_left = piece->n_grains;
        grain += piece->n_grains;
    }
    if (n_pieces != count_starts(slab))
        return "a start is marked where no piece begins";
    return is_empty == (is_free && n_left == slab->n_grains) ? NULL
                                                             : "an empty slab is in the wrong list";
}

static const char *audit_shelf(const struct vpmm_shelf *shelf, uint32_t number,
                               const struct vpmm_small *small, struct seen *seen)
{
    for (uint32_t bin = 0; bin < VPMM_BINS; bin++) {
        bool has_any = shelf->has[bin / 64] >> bin % 64 & 1;
        if (has_any != (shelf->bins[bin] != NULL))
            return "a bin is not marked as it is";
        for (const struct vpmm_piece *piece = shelf->bins[bin]; piece; piece = piece->next) {
            if (vpmm_piece_state(piece) != VPMM_PIECE_FREE ||
                vpmm_piece_bin_of(piece->n_grains) != bin ||
                vpmm_slab_at(small, piece->slab)->shelf != number)
                return "a piece is in the wrong bin";
            seen->n_binned++;
        }
    }
    return NULL;
}

static const char *audit_slabs(const struct vpmm_small *small, const struct vpmm_slab *slab,
                               bool are_empty, struct seen *seen)
{
    const char *broken = NULL;
    for (; slab && !broken; slab = slab->next)
        broken = audit_slab(small, slab, are_empty, seen);
    return broken;
}

static const char *audit_rack(const struct vpmm_small *small, const struct vpmm_rack *rack)
{
    struct seen seen = {0};
    /* What others just free is no live piece any more before it is counted as freed. */
    uint64_t n_over = vpmm_atomic_load(&rack->n_frees) + vpmm_atomic_load(&rack->n_ended);
    uint64_t n_blocks = vpmm_atomic_load(&rack->n_mallocs) - n_over;
    n_blocks -= vpmm_atomic_load(&rack->n_returned);
    uint64_t n_bytes = vpmm_atomic_load(&rack->n_bytes) - vpmm_atomic_load(&rack->returned_bytes);
    const char *broken = audit_slabs(small, rack->slabs, false, &seen);
    for (uint32_t i = 0; i < VPMM_SHELVES && !broken; i++) {
        const struct vpmm_shelf *shelf = &rack->shelves[i];
        broken = audit_slabs(small, shelf->empties, true, &seen);
        if (!broken)
            broken = audit_shelf(shelf, i, small, &seen);
    }
    if (broken)
        return broken;
    if (seen.n_binned != seen.n_free)
        return "a free piece is in no bin";
    if (seen.n_slabs != vpmm_atomic_load(&rack->n_slabs) ||
        seen.n_pages != vpmm_atomic_load(&rack->n_pages))
        return "the slabs do not add up";
    if (seen.n_live > n_blocks || seen.live_bytes > n_bytes)
        return "the live blocks do not add up";
    return NULL;
}

const char *vpmm_small_audit(struct vpmm_small *small)
{
    const char *broken = NULL;
    uint32_t n = vpmm_atomic_load(&small->n_racks);
    for (uint32_t i = 1; i <= n && !broken; i++) {
        struct vpmm_rack *rack = vpmm_rack_at(small, i);
        if (!vpmm_latch_try(&rack->latch, VPMM_RANK_RACK))
            continue;
        broken = audit_rack(small, rack);
        vpmm_rack_give(rack);
    }
    return broken;
}
