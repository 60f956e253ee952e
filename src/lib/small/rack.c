/* SPDX-License-Identifier: MIT */
/* Who has which rack. Must not give a rack to another stream before the work of the one that is
 * gone is complete. */
#include "small/small_internal.h"

struct vpmm_rack *vpmm_rack_take(struct vpmm_small *small, uint64_t id)
{
    struct vpmm_rack *rack = id ? vpmm_rack_find(small, id) : NULL;
    if (!rack)
        return NULL;
    vpmm_rack_latch(rack);
    if (vpmm_atomic_load(&rack->id) == id)
        return rack;
    vpmm_rack_give(rack);
    return NULL;
}

/* ---- with the lock ---- */

static void bind(struct vpmm_small *small, struct vpmm_rack *rack, uint64_t id)
{
    _Atomic(struct vpmm_rack *) *bucket = vpmm_rack_bucket(small, id);
    vpmm_atomic_store(&rack->next, vpmm_atomic_load(bucket));
    rack->n_owners++;
    vpmm_atomic_store(&rack->id, id);
    vpmm_atomic_store(bucket, rack);
}

static void unbind(struct vpmm_small *small, struct vpmm_rack *rack)
{
    _Atomic(struct vpmm_rack *) *link = vpmm_rack_bucket(small, vpmm_atomic_load(&rack->id));
    while (vpmm_atomic_load(link) != rack)
        link = &vpmm_atomic_load(link)->next;
    vpmm_atomic_store(link, vpmm_atomic_load(&rack->next));
    vpmm_atomic_store(&rack->id, 0);
}

static bool may_adopt(const struct vpmm_small *small, const struct vpmm_rack *rack,
                      const struct vpmm_context *context, bool is_async)
{
    bool is_near = rack->context == context || vpmm_context_is_gone(rack->context);
    return rack->is_left && !rack->is_lost && !rack->is_retired && rack->is_async == is_async &&
           is_near && vpmm_order_ask(small->order, rack->fence, 0) == VPMM_VERDICT_COMPLETE;
}

static struct vpmm_rack *adopt(struct vpmm_small *small, struct vpmm_context *context,
                               bool is_async)
{
    uint32_t n = small->n_left ? vpmm_atomic_load(&small->n_racks) : 0;
    for (uint32_t i = 1; i <= n; i++) {
        struct vpmm_rack *rack = vpmm_rack_at(small, i);
        if (!may_adopt(small, rack, context, is_async))
            continue;
        rack->is_left = rack->has_followed = false;
        rack->followed = VPMM_FENCE_NONE;
        small->n_left--;
        return rack;
    }
    return NULL;
}

static struct vpmm_rack *make(struct vpmm_small *small, bool is_async)
{
    uint32_t n = vpmm_atomic_load(&small->n_racks);
    uint32_t number = n < VPMM_RACKS_MAX ? vpmm_table_take(&small->racks) : 0;
    struct vpmm_rack *rack = vpmm_rack_at(small, number);
    if (rack) {
        rack->is_async = is_async;
        vpmm_atomic_store(&small->n_racks, n + 1);
    }
    return rack;
}

/* Where every rack is somebody's, one request looks at so many of them. */
#define LOOKED_AT_MAX 64u
/* So many requests find no rack before all racks are emptied again. */
#define WANTED_MIN 256u

/* With the latch: nothing lies in it, and nothing comes back to it. */
static bool is_unused(const struct vpmm_rack *rack)
{
    return !vpmm_atomic_load(&rack->n_slabs) && !rack->waiting_first &&
           !vpmm_atomic_load(&rack->returns) && !rack->batch;
}

/* A thread that ends does not say so of its stream: a rack that holds nothing may be another
 * stream's. If the stream is still there, it asks for a rack again. */
static struct vpmm_rack *take_unused(struct vpmm_small *small, bool is_async)
{
    uint32_t n = vpmm_atomic_load(&small->n_racks);
    for (uint32_t i = 0; i < LOOKED_AT_MAX && n; i++) {
        small->last_asked = small->last_asked % n + 1;
        struct vpmm_rack *rack = vpmm_rack_at(small, small->last_asked);
        if (rack->is_left || rack->is_async != is_async || vpmm_atomic_load(&rack->n_slabs))
            continue;
        vpmm_rack_latch(rack);
        bool is_taken = is_unused(rack);
        struct vpmm_track *track = is_taken ? rack->track : NULL;
        if (is_taken) {
            unbind(small, rack);
            rack->track = NULL;
            rack->has_followed = false;
            rack->followed = VPMM_FENCE_NONE;
        }
        vpmm_rack_give(rack);
        vpmm_order_track_end(track);
        if (is_taken)
            return rack;
    }
    return NULL;
}

/* The stream has a rack from now on. False: there are too many, or no memory. */
static bool find_place(struct vpmm_small *small, uint64_t id, struct vpmm_context *context)
{
    bool is_async = !(id & VPMM_RACK_OF_CONTEXT);
    vpmm_lock_take(&small->lock);
    struct vpmm_rack *rack = vpmm_rack_find(small, id);
    bool is_there = rack != NULL;
    if (!rack)
        rack = adopt(small, context, is_async);
    if (!rack)
        rack = make(small, is_async);
    if (!rack) {
        small->n_wanted++;
        rack = take_unused(small, is_async);
    }
    if (rack && !is_there) {
        vpmm_rack_latch(rack);
        rack->context = context;
        bind(small, rack, id);
        vpmm_rack_give(rack);
    }
    vpmm_lock_give(&small->lock);
    return rack != NULL;
}

/* What all racks keep goes back for the sake of one, but not for each that wants one. */
static bool may_empty_all(struct vpmm_small *small)
{
    vpmm_lock_take(&small->lock);
    bool may = !small->emptied_at || small->n_wanted - small->emptied_at >= WANTED_MIN;
    if (may)
        small->emptied_at = small->n_wanted;
    vpmm_lock_give(&small->lock);
    return may;
}

struct vpmm_rack *vpmm_rack_require(struct vpmm_small *small, uint64_t id,
                                    struct vpmm_context *context)
{
    struct vpmm_rack *rack = vpmm_rack_take(small, id);
    if (rack)
        return rack;
    (void)vpmm_order_poll(small->order);
    bool has_place = find_place(small, id, context);
    if (!has_place && may_empty_all(small)) {
        vpmm_small_give_back(small);
        has_place = find_place(small, id, context);
    }
    return has_place ? vpmm_rack_take(small, id) : NULL;
}

/* With the lock. The rack may be adopted once the fence is complete. The batch, which the caller
 * closes. */
static vpmm_fence leave(struct vpmm_small *small, struct vpmm_rack *rack, vpmm_fence fence)
{
    vpmm_rack_latch(rack);
    unbind(small, rack);
    vpmm_fence batch = vpmm_rack_detach(rack);
    struct vpmm_track *track = rack->track;
    rack->track = NULL;
    vpmm_rack_give(rack);
    vpmm_order_track_end(track);
    rack->fence = fence;
    rack->is_left = true;
    small->n_left++;
    return batch;
}

/* The fence is open until nobody gives the rack pieces in the stream's order any more. */
void vpmm_small_stream_gone(struct vpmm_small *small, const struct vpmm_stream *stream)
{
    if (!stream->id || !vpmm_rack_find(small, stream->id))
        return;
    vpmm_fence fence = vpmm_order_open(small->order, stream);
    if (!fence && !vpmm_context_is_gone(stream->context))
        return;
    vpmm_lock_take(&small->lock);
    struct vpmm_rack *rack = vpmm_rack_find(small, stream->id);
    vpmm_fence fences[2] = {fence, rack ? leave(small, rack, fence) : VPMM_FENCE_NONE};
    vpmm_lock_give(&small->lock);
    vpmm_order_close_all(small->order, fences, 2);
}

/* Its pieces are freed as before. Whoever is just serving a request from it has the latch, or finds
 * that the id is another. */
void vpmm_small_retire(struct vpmm_small *small, uint64_t address)
{
    const struct vpmm_slab *slab = vpmm_slab_find(small, address);
    struct vpmm_rack *rack = slab ? vpmm_slab_rack(slab) : NULL;
    if (!rack)
        return;
    vpmm_lock_take(&small->lock);
    if (!rack->is_async && !rack->is_left) {
        vpmm_rack_latch(rack);
        unbind(small, rack);
        rack->is_retired = true;
        vpmm_hot_cool(small, rack);
        vpmm_rack_give(rack);
        rack->fence = VPMM_FENCE_NONE;
        rack->is_left = true;
        small->n_left++;
    }
    vpmm_lock_give(&small->lock);
}

/* ---- the end of a context ---- */

/* With the lock and the latch. */
static void kill_list(struct vpmm_small *small, struct vpmm_slab **list,
                      struct vpmm_slab **dead_out)
{
    while (*list) {
        struct vpmm_slab *slab = *list;
        vpmm_slab_unlink(list, slab);
        if (!vpmm_slab_kill(small, slab))
            continue;
        slab->next = *dead_out;
        *dead_out = slab;
    }
}

/* With the lock. Everything that the rack has ends. */
static void kill_slabs(struct vpmm_small *small, struct vpmm_rack *rack,
                       struct vpmm_slab **dead_out)
{
    vpmm_rack_latch(rack);
    vpmm_returns_forget(rack);
    vpmm_hot_forget(rack);
    kill_list(small, &rack->slabs, dead_out);
    for (unsigned i = 0; i < VPMM_SHELVES; i++) {
        kill_list(small, &rack->shelves[i].empties, dead_out);
        rack->shelves[i] = (struct vpmm_shelf){.pages = 0};
    }
    rack->is_retired = false;
    vpmm_atomic_store(&rack->n_ended, vpmm_atomic_load(&rack->n_mallocs) -
                                          vpmm_atomic_load(&rack->n_frees) -
                                          vpmm_atomic_load(&rack->n_returned));
    vpmm_atomic_store(&rack->n_bytes, vpmm_atomic_load(&rack->returned_bytes));
    vpmm_rack_give(rack);
}

/* Whether work of other contexts may go on in the rack's memory: its stream took over what theirs
 * freed, or their streams freed blocks of it and are not known to be done. With the lock. */
static bool is_shared(struct vpmm_small *small, struct vpmm_rack *rack)
{
    if (rack->is_async)
        return rack->has_followed;
    vpmm_rack_latch(rack);
    vpmm_returns_settle(small, rack, NULL, 0, VPMM_THOROUGH_MAX);
    bool has_pending = rack->waiting_first != NULL;
    vpmm_rack_give(rack);
    return has_pending;
}

static bool has_shared(struct vpmm_small *small, uint64_t context_id)
{
    bool has_any = false;
    vpmm_lock_take(&small->lock);
    uint32_t n = vpmm_atomic_load(&small->n_racks);
    for (uint32_t i = 1; i <= n; i++) {
        struct vpmm_rack *rack = vpmm_rack_at(small, i);
        has_any |= vpmm_context_id(rack->context) == context_id && is_shared(small, rack);
    }
    vpmm_lock_give(&small->lock);
    return has_any;
}

/* With the lock. A context's streams have no work any more, and what they have in use stays. Their
 * open fences are complete. */
static struct vpmm_slab *end_racks(struct vpmm_small *small, uint64_t context_id, vpmm_fence others,
                                   bool is_lost)
{
    struct vpmm_slab *dead = NULL;
    uint32_t n = vpmm_atomic_load(&small->n_racks);
    for (uint32_t i = 1; i <= n; i++) {
        struct vpmm_rack *rack = vpmm_rack_at(small, i);
        if (vpmm_context_id(rack->context) != context_id)
            continue;
        if (!rack->is_async)
            kill_slabs(small, rack, &dead);
        if (!rack->is_left)
            (void)leave(small, rack, VPMM_FENCE_NONE);
        vpmm_rack_latch(rack);
        rack->n_owners++; /* whoever asked what it waits for asks again */
        vpmm_rack_give(rack);
        rack->fence = rack->has_followed ? others : VPMM_FENCE_NONE;
        rack->is_lost |= rack->has_followed && is_lost;
    }
    return dead;
}

void vpmm_small_context_gone(struct vpmm_small *small, uint64_t context_id)
{
    vpmm_fence others = VPMM_FENCE_NONE;
    bool has_any = has_shared(small, context_id);
    bool is_lost = has_any && vpmm_order_fence_all(small->order, &others);
    vpmm_lock_take(&small->lock);
    struct vpmm_slab *dead = end_racks(small, context_id, others, is_lost);
    vpmm_lock_give(&small->lock);
    while (dead) {
        struct vpmm_slab *slab = dead;
        uint64_t address = slab->begin, region_id = slab->region_id;
        dead = slab->next;
        vpmm_slab_recycle(small, slab);
        /* Else vpmm_heap_context_gone frees it as complete. */
        if (is_lost)
            (void)vpmm_heap_give_up(small->heap, address);
        else if (has_any)
            (void)!vpmm_heap_free_fenced(small->heap, address, region_id, others, 0);
    }
}
