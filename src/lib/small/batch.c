/* SPDX-License-Identifier: MIT */
/* Batches: frees that a stream makes into racks of others share a fence, which one event closes.
 * Must not let a free join a fence that is being closed, nor one of another turn, which would come
 * later for whoever the program puts after the free. */
#include "small/small_internal.h"

/* So many frees share an event at most; a stream's first ones fewer. */
#define BATCH_MAX 1024u

/* With the latch of the stream's rack, after a free has joined: the fence to be closed, if it is
 * time. */
static vpmm_fence due(const struct vpmm_small *small, struct vpmm_rack *own)
{
    bool is_large = own->joined_bytes >= small->page_bytes;
    if (own->n_joined < own->n_joined_max && !is_large)
        return VPMM_FENCE_NONE;
    if (own->n_joined_max < BATCH_MAX)
        own->n_joined_max *= 2;
    return vpmm_rack_detach(own);
}

void vpmm_batch_add(struct vpmm_small *small, struct vpmm_rack *own, struct vpmm_rack *rack,
                    struct vpmm_piece *piece)
{
    uint64_t bytes = vpmm_atomic_load(&piece->bytes);
    vpmm_order_joined(small->order, own->batch, own->turn);
    own->n_joined++;
    own->joined_bytes += bytes;
    vpmm_atomic_add(&rack->n_returned, 1);
    vpmm_atomic_add(&rack->returned_bytes, bytes);
    vpmm_return_push(rack, piece, own->batch);
}

/* The stream's rack with its latch, and what is remembered of the stream. NULL: too many, or no
 * memory. */
static struct vpmm_rack *require(struct vpmm_small *small, const struct vpmm_stream *stream)
{
    struct vpmm_rack *own = vpmm_rack_require(small, stream->id, stream->context);
    if (!own || own->track)
        return own;
    vpmm_rack_give(own);
    struct vpmm_track *track = vpmm_order_track(small->order, stream);
    own = vpmm_rack_take(small, stream->id);
    if (own && !own->track) {
        own->track = track;
        own->n_joined_max = 1;
        return own;
    }
    vpmm_order_track_end(track);
    return own;
}

/* Where the record on the legacy stream is its mark, each free there has one of its own. */
static bool may_join(const struct vpmm_small *small, const struct vpmm_piece *piece,
                     const struct vpmm_stream *stream)
{
    bool is_record_mark = stream->is_legacy && vpmm_order_marks_free(small->order, stream);
    return !is_record_mark && vpmm_atomic_load(&piece->bytes) < small->page_bytes &&
           !vpmm_heap_is_tight(small->heap) && !vpmm_order_captures(small->order) &&
           vpmm_context_device(stream->context) == vpmm_heap_device(small->heap);
}

bool vpmm_batch_join(struct vpmm_small *small, struct vpmm_slab *slab, struct vpmm_piece *piece,
                     const struct vpmm_stream *stream, enum vpmm_status *wait_out)
{
    struct vpmm_order *order = small->order;
    uint64_t bytes = vpmm_slab_rack(slab)->is_async ? vpmm_atomic_load(&piece->bytes) : 0;
    struct vpmm_rack *own = may_join(small, piece, stream) ? require(small, stream) : NULL;
    if (!own)
        return false;
    uint64_t turn = vpmm_order_turn(own->track);
    vpmm_fence last = own->turn != turn ? vpmm_rack_detach(own) : VPMM_FENCE_NONE;
    if (!own->batch)
        own->batch = vpmm_order_open(order, stream);
    own->turn = turn;
    bool has_joined = own->batch != VPMM_FENCE_NONE;
    bool is_first = own->n_joined == 0;
    if (has_joined)
        vpmm_batch_add(small, own, slab->rack, piece);
    vpmm_fence closing = has_joined ? due(small, own) : VPMM_FENCE_NONE;
    vpmm_rack_give(own);
    if (last)
        *wait_out = vpmm_order_close(order, last, stream, false);
    if (closing && !*wait_out)
        *wait_out = vpmm_order_close(order, closing, stream, is_first && bytes);
    else if (closing)
        vpmm_order_close_all(order, &closing, 1);
    if (has_joined && !*wait_out)
        *wait_out = vpmm_order_mark_free(order, stream, bytes);
    if (last || closing)
        vpmm_order_tidy(order);
    return has_joined;
}

/* ---- closing ---- */

uint32_t vpmm_batches_awaited(const struct vpmm_small *small, const struct vpmm_rack *rack,
                              vpmm_fence fences_out[VPMM_BATCHES_MAX])
{
    uint32_t n = 0, n_seen = 0;
    const struct vpmm_piece *piece = rack->waiting_first;
    if (rack->batch && !rack->is_async)
        fences_out[n++] = rack->batch;
    for (; piece && n < VPMM_BATCHES_MAX && n_seen < VPMM_PENDING_MAX; piece = piece->next) {
        struct vpmm_fence_facts facts;
        n_seen++;
        if (n && fences_out[n - 1] == piece->fence)
            continue;
        vpmm_order_facts(small->order, piece->fence, &facts);
        if (facts.kind == VPMM_FENCE_IS_OPEN)
            fences_out[n++] = piece->fence;
    }
    return n;
}

/* The rack's batch, if it is that one, or any (NONE); somebody else wants what was freed there, so
 * its next frees are told of at once. NONE: there is none, or all that joined it is proven
 * complete. */
static vpmm_fence take_batch(struct vpmm_small *small, struct vpmm_rack *rack, vpmm_fence fence)
{
    if (!rack->batch || (fence && rack->batch != fence))
        return VPMM_FENCE_NONE;
    vpmm_fence batch = vpmm_rack_detach(rack);
    rack->n_joined_max = 1;
    return vpmm_order_over(small->order, batch, rack->track) ? VPMM_FENCE_NONE : batch;
}

void vpmm_batches_close(struct vpmm_small *small, const vpmm_fence *fences, uint32_t n)
{
    vpmm_fence taken[VPMM_BATCHES_MAX];
    uint32_t n_taken = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct vpmm_fence_facts facts;
        vpmm_order_facts(small->order, fences[i], &facts);
        struct vpmm_rack *rack = vpmm_rack_take(small, facts.stream_id);
        vpmm_fence batch = rack ? take_batch(small, rack, fences[i]) : VPMM_FENCE_NONE;
        if (rack)
            vpmm_rack_give(rack);
        if (batch)
            taken[n_taken++] = batch;
    }
    vpmm_order_close_all(small->order, taken, n_taken);
}

void vpmm_batches_close_all(struct vpmm_small *small)
{
    vpmm_fence taken[VPMM_BATCHES_MAX];
    uint32_t n_taken = 0, n = vpmm_atomic_load(&small->n_racks);
    for (uint32_t i = 1; i <= n; i++) {
        struct vpmm_rack *rack = vpmm_rack_at(small, i);
        vpmm_rack_latch(rack);
        vpmm_fence batch = take_batch(small, rack, VPMM_FENCE_NONE);
        vpmm_rack_give(rack);
        if (batch)
            taken[n_taken++] = batch;
        if (n_taken == VPMM_BATCHES_MAX || (n_taken && i == n)) {
            vpmm_order_close_all(small->order, taken, n_taken);
            n_taken = 0;
        }
    }
}
