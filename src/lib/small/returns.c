/* SPDX-License-Identifier: MIT */
/* Pieces that come back from elsewhere: a list that takes no latch, and what waits for its fences.
 * Must not give a piece to the bins before its fence is complete or in order. */
#include "small/small_internal.h"

void vpmm_return_push(struct vpmm_rack *rack, struct vpmm_piece *piece, vpmm_fence fence)
{
    struct vpmm_piece *first = vpmm_atomic_load(&rack->returns);
    piece->fence = fence;
    do
        piece->next = first;
    while (!vpmm_atomic_swap_if(&rack->returns, &first, piece));
}

static void wait(struct vpmm_rack *rack, struct vpmm_piece *piece)
{
    piece->next = NULL;
    if (rack->waiting_last)
        rack->waiting_last->next = piece;
    else
        rack->waiting_first = piece;
    rack->waiting_last = piece;
    rack->waiting_grains += piece->n_grains;
    vpmm_atomic_store(&rack->n_waiting, vpmm_atomic_load(&rack->n_waiting) + 1);
}

void vpmm_return_wait(struct vpmm_rack *rack, struct vpmm_piece *piece, vpmm_fence fence)
{
    piece->fence = fence;
    wait(rack, piece);
}

/* The list as it is now, in the order of the frees. */
static struct vpmm_piece *take_returns(struct vpmm_rack *rack)
{
    struct vpmm_piece *ordered = NULL;
    if (!vpmm_atomic_load(&rack->returns))
        return NULL;
    struct vpmm_piece *piece = vpmm_atomic_exchange(&rack->returns, NULL);
    uint64_t n = vpmm_atomic_load(&rack->n_taken);
    for (; piece; n++) {
        struct vpmm_piece *next = piece->next;
        piece->next = ordered;
        ordered = piece;
        piece = next;
    }
    vpmm_atomic_store(&rack->n_taken, n);
    return ordered;
}

/* Where the program's own events made the order, other contexts may still work on the piece after
 * the end of the rack's own. */
static bool is_usable(const struct vpmm_small *small, struct vpmm_rack *rack,
                      const struct vpmm_follower *follower, vpmm_fence fence)
{
    uint64_t stream_id = rack->is_async ? vpmm_atomic_load(&rack->id) : 0;
    if (vpmm_order_ask(small->order, fence, stream_id) != VPMM_VERDICT_PENDING)
        return true;
    if (!follower || vpmm_order_ask_for(small->order, fence, follower) == VPMM_VERDICT_PENDING)
        return false;
    vpmm_fence joined = vpmm_order_join(small->order, rack->followed, fence);
    rack->followed = joined ? joined : fence;
    rack->has_followed = true;
    return true;
}

/* What is asked of each piece, and the answer about the last one: many share a fence. */
struct question {
    const struct vpmm_follower *follower;
    uint32_t n_grains;
    bool is_usable;
    vpmm_fence fence;
};

static bool ask(const struct vpmm_small *small, struct vpmm_rack *rack, struct question *question,
                vpmm_fence fence)
{
    if (fence != question->fence) {
        question->fence = fence;
        question->is_usable = is_usable(small, rack, question->follower, fence);
    }
    return question->is_usable;
}

/* A piece that came back after its slab had ended with its context is nobody's. */
static void put(const struct vpmm_small *small, struct vpmm_rack *rack, struct vpmm_piece *piece,
                uint32_t n_grains)
{
    struct vpmm_slab *slab = vpmm_slab_at(small, piece->slab);
    uint64_t begin = vpmm_atomic_load(&slab->address);
    struct vpmm_piece **slot =
        begin && piece->n_grains == n_grains ? vpmm_hot_room(rack, n_grains) : NULL;
    if (slot)
        vpmm_hot_put(slot, piece,
                     begin + (uint64_t)vpmm_piece_grain(slab, piece) * VPMM_GRAIN_BYTES);
    else if (begin)
        vpmm_piece_put(rack, slab, piece);
}

/* Where a thorough look ends, the next look begins. Otherwise pieces that one stream keeps pending
 * would hide all that come later. */
static void settle_waiting(const struct vpmm_small *small, struct vpmm_rack *rack,
                           struct question *question, uint32_t pending_max)
{
    struct vpmm_piece *rest = rack->waiting_first, *last = rack->waiting_last;
    uint32_t n_pending = 0;
    uint64_t n_usable = 0;
    rack->waiting_first = rack->waiting_last = NULL;
    struct vpmm_piece **link = &rack->waiting_first;
    while (rest && n_pending < pending_max) {
        struct vpmm_piece *piece = rest;
        rest = piece->next;
        if (ask(small, rack, question, piece->fence)) {
            rack->waiting_grains -= piece->n_grains;
            put(small, rack, piece, question->n_grains);
            n_usable++;
            n_pending = 0;
            continue;
        }
        n_pending++;
        *link = rack->waiting_last = piece;
        piece->next = NULL;
        link = &piece->next;
    }
    if (rest && pending_max > VPMM_PENDING_MAX) {
        last->next = rack->waiting_first;
        rack->waiting_first = rest;
    } else if (rest) {
        *link = rest;
        rack->waiting_last = last;
    }
    vpmm_atomic_store(&rack->n_waiting, vpmm_atomic_load(&rack->n_waiting) - n_usable);
}

void vpmm_returns_settle(struct vpmm_small *small, struct vpmm_rack *rack,
                         const struct vpmm_follower *follower, uint32_t n_grains,
                         uint32_t pending_max)
{
    struct question question = {.follower = follower, .n_grains = n_grains, .is_usable = true};
    struct vpmm_piece *piece = take_returns(rack);
    if (rack->waiting_first)
        settle_waiting(small, rack, &question, pending_max);
    while (piece) {
        struct vpmm_piece *next = piece->next;
        if (ask(small, rack, &question, piece->fence))
            put(small, rack, piece, n_grains);
        else
            wait(rack, piece);
        piece = next;
    }
}

void vpmm_returns_forget(struct vpmm_rack *rack)
{
    struct vpmm_piece *lists[2] = {take_returns(rack), rack->waiting_first};
    rack->waiting_first = rack->waiting_last = NULL;
    rack->batch = VPMM_FENCE_NONE;
    rack->waiting_grains = 0;
    vpmm_atomic_store(&rack->n_waiting, 0);
    for (int i = 0; i < 2; i++)
        for (struct vpmm_piece *piece = lists[i]; piece;) {
            struct vpmm_piece *next = piece->next;
            vpmm_atomic_store(&piece->word, VPMM_PIECE_NONE);
            piece = next;
        }
}
