/* SPDX-License-Identifier: MIT */
/* Gives slabs that nobody uses back to the heap. Must not do that before a fence covers all that
 * was freed into them, and must not call the heap or the driver while it holds a latch. */
#include "small/small_internal.h"

/* So many empty slabs of one page are kept for the next requests of a rack. */
#define KEPT 1u

/* Nobody can tell what the region waits for where there is no fence: it is not used again. */
static void free_region(struct vpmm_small *small, uint64_t address, uint64_t region_id,
                        const struct vpmm_owner *owner, const struct vpmm_stream *stream,
                        enum vpmm_status *wait_out)
{
    vpmm_fence fence = VPMM_FENCE_NONE;
    if (stream && !vpmm_heap_fence_free(small->heap, owner, stream, &fence, wait_out))
        (void)vpmm_heap_give_up(small->heap, address);
    else
        (void)!vpmm_heap_free_fenced(small->heap, address, region_id, fence,
                                     stream ? stream->id : 0);
}

static uint32_t count_empties(const struct vpmm_rack *rack)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < VPMM_SHELVES; i++)
        n += rack->shelves[i].n_empties;
    return n;
}

/* With the latch. */
static struct vpmm_slab *take_spare(struct vpmm_small *small, struct vpmm_rack *rack)
{
    struct vpmm_slab *taken = NULL;
    uint32_t n = count_empties(rack);
    uint32_t n_kept = rack->is_retired ? 0 : KEPT;
    for (uint32_t i = VPMM_SHELVES; i-- > 0;) {
        struct vpmm_shelf *shelf = &rack->shelves[i];
        while (shelf->empties && (i == VPMM_SHELF_WIDE || n > n_kept)) {
            struct vpmm_slab *slab = shelf->empties;
            vpmm_slab_drop(small, slab);
            slab->next = taken;
            taken = slab;
            n--;
        }
    }
    return taken;
}

enum vpmm_status vpmm_small_shed(struct vpmm_small *small, struct vpmm_rack *rack,
                                 const struct vpmm_stream *stream)
{
    enum vpmm_status status = VPMM_OK;
    struct vpmm_slab *taken = take_spare(small, rack);
    vpmm_rack_give(rack);
    while (taken) {
        struct vpmm_slab *slab = taken;
        enum vpmm_status waited = VPMM_OK;
        uint64_t address = slab->begin, region_id = slab->region_id;
        const struct vpmm_owner owner = {.context_id = vpmm_atomic_load(&slab->context_id),
                                         .is_async = stream != NULL};
        taken = slab->next;
        vpmm_slab_recycle(small, slab);
        if (!stream || !vpmm_heap_free_cached(small->heap, address, stream, &waited))
            free_region(small, address, region_id, &owner, stream, &waited);
        if (waited)
            status = waited;
    }
    return status;
}

/* What has to be complete before others may have what the rack's owner freed into it. */
struct hold {
    uint64_t id, n_owners;
    vpmm_fence fence;
    bool is_open; /* until the slabs are out of the rack */
    bool is_known;
};

/* Nobody's rack waits for what its last owner left behind, and a context's for nothing. */
static struct hold hold(struct vpmm_small *small, struct vpmm_rack *rack)
{
    struct hold hold = {.fence = VPMM_FENCE_NONE};
    vpmm_lock_take(&small->lock);
    hold.is_known = !rack->is_lost;
    hold.id = vpmm_atomic_load(&rack->id);
    hold.n_owners = rack->n_owners;
    hold.fence = rack->is_left ? rack->fence : VPMM_FENCE_NONE;
    const struct vpmm_stream stream = {.context = rack->context, .id = hold.id};
    bool is_stream = rack->is_async && !rack->is_left;
    vpmm_lock_give(&small->lock);
    if (is_stream) {
        hold.fence = vpmm_order_open(small->order, &stream);
        hold.is_open = hold.fence != VPMM_FENCE_NONE;
        hold.is_known = hold.is_open || vpmm_context_is_gone(stream.context);
    }
    return hold;
}

/* All empty slabs, if the rack is still the same one's. It may be nobody's again, and then what its
 * last owner left behind is another fence. */
static struct vpmm_slab *take_empties(struct vpmm_small *small, struct vpmm_rack *rack,
                                      const struct hold *hold)
{
    struct vpmm_slab *taken = NULL;
    vpmm_rack_latch(rack);
    bool is_same = vpmm_atomic_load(&rack->id) == hold->id && rack->n_owners == hold->n_owners;
    for (uint32_t i = 0; i < VPMM_SHELVES && is_same; i++) {
        struct vpmm_slab *slab;
        while ((slab = rack->shelves[i].empties) != NULL) {
            vpmm_slab_drop(small, slab);
            slab->next = taken;
            taken = slab;
        }
    }
    vpmm_rack_give(rack);
    return taken;
}

static void give_back(struct vpmm_small *small, struct vpmm_rack *rack)
{
    vpmm_rack_latch(rack);
    vpmm_returns_settle(small, rack, NULL, 0, VPMM_THOROUGH_MAX);
    vpmm_hot_cool(small, rack);
    bool has_any = count_empties(rack) > 0;
    vpmm_rack_give(rack);
    if (!has_any)
        return;
    struct hold held = hold(small, rack);
    struct vpmm_slab *taken = held.is_known ? take_empties(small, rack, &held) : NULL;
    if (held.is_open)
        vpmm_order_close_all(small->order, &held.fence, 1);
    while (taken) {
        struct vpmm_slab *slab = taken;
        uint64_t address = slab->begin, region_id = slab->region_id;
        taken = slab->next;
        vpmm_slab_recycle(small, slab);
        (void)!vpmm_heap_free_fenced(small->heap, address, region_id, held.fence,
                                     held.is_open ? held.id : 0);
    }
}

void vpmm_small_give_back(void *self)
{
    struct vpmm_small *small = self;
    uint32_t n = vpmm_atomic_load(&small->n_racks);
    if (!n)
        return;
    vpmm_batches_close_all(small);
    (void)vpmm_order_poll(small->order);
    for (uint32_t i = 1; i <= n; i++)
        give_back(small, vpmm_rack_at(small, i));
}

uint64_t vpmm_small_pending_pages(void *self)
{
    struct vpmm_small *small = self;
    uint64_t pages = 0;
    uint32_t n = vpmm_atomic_load(&small->n_racks);
    for (uint32_t i = 1; i <= n; i++) {
        struct vpmm_rack *rack = vpmm_rack_at(small, i);
        bool is_pending = vpmm_atomic_load(&rack->n_waiting) || vpmm_atomic_load(&rack->returns);
        pages += is_pending ? vpmm_atomic_load(&rack->n_pages) : 0;
    }
    return pages;
}

/* Only among those that a look at the rack comes to. */
static vpmm_fence oldest_of(struct vpmm_small *small, struct vpmm_rack *rack,
                            const struct vpmm_context *context)
{
    vpmm_fence fence = VPMM_FENCE_NONE;
    uint32_t n = 0;
    vpmm_rack_latch(rack);
    for (const struct vpmm_piece *piece = rack->waiting_first;
         piece && !fence && n < VPMM_THOROUGH_MAX; piece = piece->next, n++)
        if (vpmm_order_may_wait_host(small->order, piece->fence, context))
            fence = piece->fence;
    vpmm_rack_give(rack);
    return fence;
}

vpmm_fence vpmm_small_oldest(void *self, const struct vpmm_context *context)
{
    struct vpmm_small *small = self;
    vpmm_fence fence = VPMM_FENCE_NONE;
    uint32_t n = vpmm_atomic_load(&small->n_racks);
    for (uint32_t i = 1; i <= n && !fence; i++)
        fence = oldest_of(small, vpmm_rack_at(small, i), context);
    return fence;
}
