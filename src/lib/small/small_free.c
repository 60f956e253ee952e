/* SPDX-License-Identifier: MIT */
/* Frees blocks: one compare-and-swap decides whose free it is. What the rack's own stream frees is
 * free at once, and everything else comes back with a fence. Must not take a latch that the owner
 * of the rack takes, but in the owner's own frees. */
#include "small/small_internal.h"

/* The piece that may begin at `address`, which may lie in the slab. NULL: none can. */
static VPMM_INLINE struct vpmm_piece *piece_at(const struct vpmm_slab *slab, uint64_t address)
{
    uint64_t begin = vpmm_atomic_load(&slab->address);
    uint64_t offset = address - begin;
    if (!begin || offset >= slab->bytes || offset % VPMM_GRAIN_BYTES)
        return NULL;
    return &slab->pieces[offset / VPMM_GRAIN_BYTES];
}

/* A block of that word is the caller's to return; false: somebody else has freed it. */
static VPMM_INLINE bool win(struct vpmm_piece *piece, uint64_t word)
{
    return (word & VPMM_PIECE_STATE) == VPMM_PIECE_LIVE &&
           vpmm_atomic_swap_if(&piece->word, &word, word | VPMM_PIECE_RETURNED);
}

/* The block of the slab that starts exactly at `address` is the caller's to return. A number never
 * comes again: while the word stays, so does the slab. NULL: there is none, or somebody else has
 * freed it. */
static struct vpmm_piece *claim(const struct vpmm_slab *slab, uint64_t address)
{
    struct vpmm_piece *piece = piece_at(slab, address);
    uint64_t word = piece ? vpmm_atomic_load(&piece->word) : VPMM_PIECE_NONE;
    return piece && piece_at(slab, address) == piece && win(piece, word) ? piece : NULL;
}

/* With the latch. */
static VPMM_INLINE void uncount(struct vpmm_rack *rack, const struct vpmm_piece *piece)
{
    uint64_t bytes = vpmm_atomic_load(&piece->bytes);
    vpmm_atomic_store(&rack->n_bytes, vpmm_atomic_load(&rack->n_bytes) - bytes);
    vpmm_atomic_store(&rack->n_frees, vpmm_atomic_load(&rack->n_frees) + 1);
}

/* With the latch, which it gives; `piece` may be NULL. A program that frees one block after the
 * other may want none of them again: what is hot must not hold pages then. */
static void put_cold(struct vpmm_small *small, struct vpmm_rack *rack, struct vpmm_piece *piece,
                     const struct vpmm_stream *stream, enum vpmm_status *wait_out)
{
    if (rack->n_in_row == VPMM_HOT + 1)
        vpmm_hot_cool(small, rack);
    if (piece)
        vpmm_piece_put(rack, vpmm_slab_at(small, piece->slab), piece);
    enum vpmm_status status = vpmm_small_shed(small, rack, stream);
    if (status)
        *wait_out = status;
}

/* The piece is free at once, unless the rack is another's by now, or the slab ended with its
 * context. `stream` NULL: all that used it is complete. */
static bool put_back(struct vpmm_small *small, struct vpmm_slab *slab, struct vpmm_piece *piece,
                     const struct vpmm_stream *stream, enum vpmm_status *wait_out)
{
    struct vpmm_rack *rack = vpmm_slab_rack(slab);
    vpmm_rack_latch(rack);
    if (stream && vpmm_atomic_load(&rack->id) != stream->id) {
        vpmm_rack_give(rack);
        return false;
    }
    uint64_t begin = vpmm_atomic_load(&slab->address);
    if (!begin) {
        vpmm_rack_give(rack);
        return true;
    }
    uncount(rack, piece);
    bool is_hot = rack->n_in_row++ < VPMM_HOT && !rack->is_retired;
    struct vpmm_piece **room = is_hot ? vpmm_hot_room(rack, piece->n_grains) : NULL;
    bool has_room = room != NULL;
    if (is_hot && !has_room)
        room = vpmm_hot_make_room(small, rack, piece->n_grains);
    if (is_hot)
        vpmm_hot_put(room, piece,
                     begin + (uint64_t)vpmm_piece_grain(slab, piece) * VPMM_GRAIN_BYTES);
    if (has_room)
        vpmm_rack_give(rack);
    else
        put_cold(small, rack, is_hot ? NULL : piece, stream, wait_out);
    return true;
}

static void push(struct vpmm_small *small, struct vpmm_slab *slab, struct vpmm_piece *piece,
                 vpmm_fence fence)
{
    struct vpmm_rack *rack = vpmm_slab_rack(slab);
    vpmm_atomic_add(&rack->n_returned, 1);
    vpmm_atomic_add(&rack->returned_bytes, vpmm_atomic_load(&piece->bytes));
    vpmm_return_push(rack, piece, fence);
    vpmm_order_tidy(small->order);
}

/* As bare cudaFree does. False: a capture was in the way, or the driver failed, and the work of the
 * context may go on. */
static bool wait_for_owner(struct vpmm_small *small, const struct vpmm_slab *slab,
                           enum vpmm_status *wait_out)
{
    struct vpmm_context *owner =
        vpmm_order_context_by_id(small->order, vpmm_atomic_load(&slab->context_id));
    enum vpmm_status status = owner && !vpmm_context_is_gone(owner)
                                  ? vpmm_order_drain_context(small->order, owner)
                                  : VPMM_OK;
    if (status && status != VPMM_CAPTURED && status != VPMM_NOT_READY)
        *wait_out = status;
    return !status;
}

/* The fence of a free on that stream alone. It belongs to the stream's turn, so that whoever the
 * program puts after it may have the piece. */
static bool fence_on(struct vpmm_small *small, const struct vpmm_owner *owner,
                     const struct vpmm_stream *stream, vpmm_fence *fence_out,
                     enum vpmm_status *status_out)
{
    struct vpmm_order *order = small->order;
    vpmm_fence fence = vpmm_order_open(order, stream);
    if (!fence)
        return vpmm_heap_fence_free(small->heap, owner, stream, fence_out, status_out);
    struct vpmm_track *track = vpmm_order_track(order, stream);
    vpmm_order_joined(order, fence, vpmm_order_turn(track));
    *status_out = vpmm_order_close(order, fence, stream, owner->is_async);
    vpmm_order_track_end(track);
    /* The record on the legacy stream is its mark, too. */
    if (!*status_out && !stream->is_legacy)
        *status_out = vpmm_order_mark_free(order, stream, owner->is_async ? owner->bytes : 0);
    *fence_out = fence;
    return true;
}

/* cudaFree that waits for nothing: all such frees of a context share an open fence, until a request
 * needs what they freed. False: there is no such fence. */
static bool join(struct vpmm_small *small, const struct vpmm_slab *slab, struct vpmm_piece *piece)
{
    struct vpmm_rack *rack = vpmm_slab_rack(slab);
    const struct vpmm_stream none = {
        .context = vpmm_order_context_by_id(small->order, vpmm_atomic_load(&slab->context_id)),
        .id = VPMM_RACK_OF_CONTEXT | vpmm_atomic_load(&slab->context_id)};
    if (rack->is_async || !none.context)
        return false;
    vpmm_rack_latch(rack);
    bool is_alive = vpmm_atomic_load(&slab->address) != 0;
    if (is_alive && !rack->batch)
        rack->batch = vpmm_order_open(small->order, &none);
    bool is_joined = is_alive && rack->batch;
    vpmm_fence due = VPMM_FENCE_NONE;
    if (is_joined) {
        uncount(rack, piece);
        vpmm_return_wait(rack, piece, rack->batch);
        due = vpmm_heap_is_tight(small->heap) ? vpmm_rack_detach(rack) : VPMM_FENCE_NONE;
    }
    vpmm_rack_give(rack);
    if (due)
        vpmm_order_close_all(small->order, &due, 1);
    return is_joined || !is_alive;
}

/* With the latch: what the rack's own stream frees only becomes hot. */
static VPMM_INLINE bool put_hot(struct vpmm_rack *rack, struct vpmm_piece *piece, uint64_t address)
{
    struct vpmm_piece **room =
        rack->n_in_row < VPMM_HOT ? vpmm_hot_room(rack, piece->n_grains) : NULL;
    if (!room || !win(piece, vpmm_atomic_load(&piece->word)))
        return false;
    uncount(rack, piece);
    rack->n_in_row++;
    vpmm_hot_put(room, piece, address);
    return true;
}

/* With the latch: a cudaFree that waits for nothing joins the batch. */
static VPMM_INLINE bool put_batched(struct vpmm_rack *rack, struct vpmm_piece *piece)
{
    if (!rack->batch || !win(piece, vpmm_atomic_load(&piece->word)))
        return false;
    uncount(rack, piece);
    vpmm_return_wait(rack, piece, rack->batch);
    return true;
}

/* A free into another rack that only joins the stream's batch. */
VPMM_NOINLINE static bool free_batched(struct vpmm_small *small, struct vpmm_slab *slab,
                                       uint64_t address, const struct vpmm_stream *stream)
{
    struct vpmm_rack *own =
        vpmm_heap_is_tight(small->heap) ? NULL : vpmm_rack_find(small, stream->id);
    const struct vpmm_piece *seen = own ? piece_at(slab, address) : NULL;
    if (!seen || !vpmm_latch_try(&own->latch, VPMM_RANK_RACK))
        return false;
    /* Of a piece that is no block any more anything may be read. */
    bool has_room = vpmm_atomic_load(&own->id) == stream->id &&
                    vpmm_batch_has_room(small, own, vpmm_hint_load(&seen->bytes));
    struct vpmm_piece *piece = has_room ? claim(slab, address) : NULL;
    if (piece)
        vpmm_batch_add(small, own, slab->rack, piece);
    vpmm_rack_give(own);
    return piece != NULL;
}

/* The same where the slab is of the stream's own rack, or of the context's. */
static VPMM_INLINE bool free_own(struct vpmm_slab *slab, struct vpmm_rack *rack, uint64_t address,
                                 const struct vpmm_stream *stream)
{
    if (!vpmm_latch_try(&rack->latch, VPMM_RANK_RACK))
        return false;
    /* While its rack's latch is held, the slab stays. */
    bool is_here =
        vpmm_slab_rack(slab) == rack && (!stream || vpmm_atomic_load(&rack->id) == stream->id);
    struct vpmm_piece *piece = is_here ? piece_at(slab, address) : NULL;
    bool is_freed = piece && (stream ? put_hot(rack, piece, address) : put_batched(rack, piece));
    vpmm_rack_give(rack);
    return is_freed;
}

enum vpmm_status vpmm_small_free_warm(struct vpmm_small *small, uint64_t address,
                                      const struct vpmm_stream *stream)
{
    struct vpmm_slab *slab = vpmm_slab_guess(small, address);
    struct vpmm_rack *rack = slab ? vpmm_slab_rack(slab) : NULL;
    if (!rack)
        return VPMM_INVALID;
    if (stream ? vpmm_order_marks_free(small->order, stream)
               : small->params.free_waits || rack->is_async || vpmm_heap_is_tight(small->heap))
        return VPMM_NOT_READY;
    bool is_elsewhere = stream && vpmm_atomic_load(&rack->id) != stream->id;
    bool is_freed = is_elsewhere ? free_batched(small, slab, address, stream)
                                 : free_own(slab, rack, address, stream);
    return is_freed ? VPMM_OK : VPMM_NOT_READY;
}

/* Whether the slab's context has ended: a stream of another context may have the rack by now, and
 * that context's work may use the block. */
static bool is_of_ended_context(struct vpmm_small *small, const struct vpmm_owner *owner)
{
    const struct vpmm_context *context = vpmm_order_context_by_id(small->order, owner->context_id);
    return owner->is_async && (!context || vpmm_context_is_gone(context));
}

/* Nobody can tell what the piece waits for where there is no fence: it stays as it is for ever. */
static void return_fenced(struct vpmm_small *small, struct vpmm_slab *slab,
                          struct vpmm_piece *piece, const struct vpmm_stream *stream,
                          enum vpmm_status *wait_out)
{
    const struct vpmm_owner owner = {.bytes = vpmm_atomic_load(&piece->bytes),
                                     .context_id = vpmm_atomic_load(&slab->context_id),
                                     .is_async = vpmm_slab_rack(slab)->is_async};
    vpmm_fence fence;
    enum vpmm_status status = VPMM_OK;
    bool is_fenced = stream ? fence_on(small, &owner, stream, &fence, &status)
                     : is_of_ended_context(small, &owner)
                         ? !vpmm_order_fence_all(small->order, &fence)
                         : vpmm_heap_fence_free(small->heap, &owner, NULL, &fence, &status);
    if (status)
        *wait_out = status;
    if (is_fenced)
        push(small, slab, piece, fence);
}

/* A claimed piece that the rack's own stream does not free. */
VPMM_NOINLINE static void free_elsewhere(struct vpmm_small *small, struct vpmm_slab *slab,
                                         struct vpmm_piece *piece, const struct vpmm_stream *stream,
                                         enum vpmm_status *wait_out)
{
    bool is_wide = vpmm_atomic_load(&piece->bytes) >= small->page_bytes;
    bool is_plain = !stream && !vpmm_slab_rack(slab)->is_async;
    bool waits = is_plain && (is_wide ? small->params.wide_waits : small->params.free_waits);
    if (waits && wait_for_owner(small, slab, wait_out))
        (void)put_back(small, slab, piece, NULL, wait_out);
    else if (stream ? !vpmm_batch_join(small, slab, piece, stream, wait_out)
                    : waits || is_wide || !join(small, slab, piece))
        return_fenced(small, slab, piece, stream, wait_out);
}

enum vpmm_status vpmm_small_free(struct vpmm_small *small, uint64_t address,
                                 const struct vpmm_stream *stream, enum vpmm_status *wait_out)
{
    struct vpmm_slab *slab = vpmm_slab_find(small, address);
    struct vpmm_piece *piece = slab ? claim(slab, address) : NULL;
    *wait_out = VPMM_OK;
    if (!piece)
        return slab ? VPMM_NOT_FOUND : VPMM_INVALID;
    bool is_own = stream && vpmm_atomic_load(&vpmm_slab_rack(slab)->id) == stream->id;
    uint64_t bytes = vpmm_slab_rack(slab)->is_async ? vpmm_atomic_load(&piece->bytes) : 0;
    if (!is_own || !put_back(small, slab, piece, stream, wait_out))
        free_elsewhere(small, slab, piece, stream, wait_out);
    else if (!*wait_out)
        *wait_out = vpmm_order_mark_free(small->order, stream, bytes);
    return VPMM_OK;
}

bool vpmm_small_give_up(struct vpmm_small *small, uint64_t address)
{
    const struct vpmm_slab *slab = vpmm_slab_find(small, address);
    return slab && claim(slab, address);
}

bool vpmm_small_free_unknown(struct vpmm_small *small, uint64_t address)
{
    vpmm_fence fence;
    bool is_fenced = !vpmm_order_fence_all(small->order, &fence);
    struct vpmm_slab *slab = vpmm_slab_find(small, address);
    struct vpmm_piece *piece = slab ? claim(slab, address) : NULL;
    if (piece && is_fenced)
        push(small, slab, piece, fence);
    return piece != NULL;
}
