/* SPDX-License-Identifier: MIT */
/* Pieces that the rack's owner may have as they are: requests of their size take them without a
 * cut, and they were put here without a merge. Must not keep any where a request would get a new
 * slab instead. */
#include "small/small_internal.h"

static void cool(const struct vpmm_small *small, struct vpmm_rack *rack, struct vpmm_piece **slot)
{
    struct vpmm_piece *piece = *slot;
    *slot = NULL;
    while (piece) {
        struct vpmm_piece *next = piece->next;
        vpmm_piece_put(rack, vpmm_slab_at(small, piece->slab), piece);
        piece = next;
    }
}

struct vpmm_piece **vpmm_hot_make_room(const struct vpmm_small *small, struct vpmm_rack *rack,
                                       uint32_t n_grains)
{
    struct vpmm_piece **slot = vpmm_hot_slot(rack, n_grains);
    cool(small, rack, slot);
    return slot;
}

void vpmm_hot_cool(const struct vpmm_small *small, struct vpmm_rack *rack)
{
    for (uint32_t i = 0; i < VPMM_HOT; i++)
        cool(small, rack, &rack->hot[i]);
}

void vpmm_hot_forget(struct vpmm_rack *rack)
{
    for (uint32_t i = 0; i < VPMM_HOT; i++) {
        for (struct vpmm_piece *piece = rack->hot[i]; piece; piece = piece->next)
            vpmm_atomic_store(&piece->word, VPMM_PIECE_NONE);
        rack->hot[i] = NULL;
    }
}
