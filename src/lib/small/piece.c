/* SPDX-License-Identifier: MIT */
/* Cuts slabs into pieces and puts pieces together again: a best fit among bins by size, and a merge
 * with free neighbours at once. Must not touch a piece that is not the rack's. */
#include "small/small_internal.h"

/* In each of the bins of several sizes so many pieces are looked at for the smallest. */
#define SEEN_MAX 8u

/* Sizes below have a bin each, and each power of two from there on has so many. */
#define EXACT_BITS 4u
#define SUB_BITS 3u

uint32_t vpmm_piece_bin_of(uint32_t n_grains)
{
    if (n_grains < 1u << EXACT_BITS)
        return n_grains;
    uint32_t log = 31u - (uint32_t)__builtin_clz(n_grains);
    uint32_t sub = n_grains >> (log - SUB_BITS) & ((1u << SUB_BITS) - 1);
    return (1u << EXACT_BITS) + ((log - EXACT_BITS) << SUB_BITS) + sub;
}

void vpmm_piece_bin(struct vpmm_shelf *shelf, struct vpmm_piece *piece)
{
    uint32_t bin = vpmm_piece_bin_of(piece->n_grains);
    piece->prev = NULL;
    piece->next = shelf->bins[bin];
    if (piece->next)
        piece->next->prev = piece;
    shelf->bins[bin] = piece;
    shelf->has[bin / 64] |= (uint64_t)1 << bin % 64;
}

void vpmm_piece_unbin(struct vpmm_shelf *shelf, struct vpmm_piece *piece)
{
    uint32_t bin = vpmm_piece_bin_of(piece->n_grains);
    if (piece->next)
        piece->next->prev = piece->prev;
    if (piece->prev)
        piece->prev->next = piece->next;
    else
        shelf->bins[bin] = piece->next;
    if (!shelf->bins[bin])
        shelf->has[bin / 64] &= ~((uint64_t)1 << bin % 64);
}

void vpmm_slab_link(struct vpmm_slab **list, struct vpmm_slab *slab)
{
    slab->prev = NULL;
    slab->next = *list;
    if (slab->next)
        slab->next->prev = slab;
    *list = slab;
}

void vpmm_slab_unlink(struct vpmm_slab **list, struct vpmm_slab *slab)
{
    if (slab->next)
        slab->next->prev = slab->prev;
    if (slab->prev)
        slab->prev->next = slab->next;
    else
        *list = slab->next;
}

/* The first bin from `bin` on that is not empty; VPMM_BINS: there is none. */
static uint32_t next_bin(const struct vpmm_shelf *shelf, uint32_t bin)
{
    for (uint32_t i = bin / 64; i < VPMM_BINS_WORDS; i++) {
        uint64_t has = shelf->has[i];
        if (i == bin / 64)
            has &= UINT64_MAX << bin % 64;
        if (has)
            return i * 64 + (uint32_t)__builtin_ctzll(has);
    }
    return VPMM_BINS;
}

/* Of the first few that are large enough the smallest, or NULL. */
static struct vpmm_piece *smallest_in(const struct vpmm_shelf *shelf, uint32_t bin,
                                      uint32_t n_grains)
{
    struct vpmm_piece *best = NULL;
    struct vpmm_piece *piece = shelf->bins[bin];
    for (uint32_t i = 0; piece && i < SEEN_MAX; i++, piece = piece->next) {
        if (piece->n_grains == n_grains)
            return piece;
        if (piece->n_grains > n_grains && (!best || piece->n_grains < best->n_grains))
            best = piece;
    }
    return best;
}

static struct vpmm_piece *find(const struct vpmm_shelf *shelf, uint32_t n_grains)
{
    uint32_t bin = next_bin(shelf, vpmm_piece_bin_of(n_grains));
    struct vpmm_piece *piece = bin < VPMM_BINS ? smallest_in(shelf, bin, n_grains) : NULL;
    if (piece || bin >= VPMM_BINS)
        return piece;
    bin = next_bin(shelf, bin + 1);
    return bin < VPMM_BINS ? smallest_in(shelf, bin, n_grains) : NULL;
}

static void set_start(struct vpmm_slab *slab, uint32_t grain, bool is_start)
{
    vpmm_atomic64 *word = &slab->starts[grain / 64];
    uint64_t bit = (uint64_t)1 << grain % 64;
    uint64_t seen = vpmm_atomic_load(word);
    vpmm_atomic_store(word, is_start ? seen | bit : seen & ~bit);
}

/* Whoever looks from outside finds the piece as it was, or as it is now. */
static void cut(struct vpmm_shelf *shelf, struct vpmm_slab *slab, struct vpmm_piece *piece,
                uint32_t n_grains)
{
    struct vpmm_piece *rest = piece + n_grains;
    uint32_t after = vpmm_piece_grain(slab, piece) + piece->n_grains;
    rest->n_grains = piece->n_grains - n_grains;
    rest->n_left = n_grains;
    rest->slab = slab->number;
    if (after < slab->n_grains)
        slab->pieces[after].n_left = rest->n_grains;
    vpmm_atomic_store(&rest->word, VPMM_PIECE_FREE);
    piece->n_grains = n_grains;
    set_start(slab, vpmm_piece_grain(slab, rest), true);
    vpmm_piece_bin(shelf, rest);
}

struct vpmm_piece *vpmm_piece_take(const struct vpmm_small *small, struct vpmm_rack *rack,
                                   uint32_t shelf_kind, uint32_t n_grains)
{
    struct vpmm_shelf *shelf = &rack->shelves[shelf_kind];
    struct vpmm_piece *piece = find(shelf, n_grains);
    if (!piece)
        return NULL;
    struct vpmm_slab *slab = vpmm_slab_at(small, piece->slab);
    vpmm_piece_unbin(shelf, piece);
    if (piece->n_grains == slab->n_grains) {
        vpmm_slab_unlink(&shelf->empties, slab);
        shelf->n_empties--;
        vpmm_slab_link(&rack->slabs, slab);
    }
    if (piece->n_grains > n_grains)
        cut(shelf, slab, piece, n_grains);
    return piece;
}

/* `low` grows over the piece at its right, which is in no bin. */
static void merge(struct vpmm_slab *slab, struct vpmm_piece *low, struct vpmm_piece *high)
{
    uint32_t after = vpmm_piece_grain(slab, high) + high->n_grains;
    set_start(slab, vpmm_piece_grain(slab, high), false);
    vpmm_atomic_store(&high->word, VPMM_PIECE_NONE);
    low->n_grains += high->n_grains;
    if (after < slab->n_grains)
        slab->pieces[after].n_left = low->n_grains;
}

void vpmm_piece_put(struct vpmm_rack *rack, struct vpmm_slab *slab, struct vpmm_piece *piece)
{
    struct vpmm_shelf *shelf = &rack->shelves[vpmm_atomic_load(&slab->shelf)];
    uint32_t after = vpmm_piece_grain(slab, piece) + piece->n_grains;
    struct vpmm_piece *right = &slab->pieces[after];
    struct vpmm_piece *left = piece->n_left ? piece - piece->n_left : NULL;
    vpmm_atomic_store(&piece->word, VPMM_PIECE_FREE);
    if (after < slab->n_grains && vpmm_piece_state(right) == VPMM_PIECE_FREE) {
        vpmm_piece_unbin(shelf, right);
        merge(slab, piece, right);
    }
    if (left && vpmm_piece_state(left) == VPMM_PIECE_FREE) {
        vpmm_piece_unbin(shelf, left);
        merge(slab, left, piece);
        piece = left;
    }
    vpmm_piece_bin(shelf, piece);
    if (piece->n_grains == slab->n_grains) {
        vpmm_slab_unlink(&rack->slabs, slab);
        vpmm_slab_link(&shelf->empties, slab);
        shelf->n_empties++;
    }
}
