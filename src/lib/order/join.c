/* SPDX-License-Identifier: MIT */
/* Joined fences: lists of fences that all have to be complete. A list must not change once it is
 * made, because readers walk along it without the lock. */
#include "order/order_internal.h"

/* A joined fence is an unchanging list: one part that is not joined, or was open, and the rest,
 * which may be another such list. */

/* A sweep only gives slots back: complete they are as soon as their parts are. So past this many
 * that are not, it leaves the rest to the next one, which begins there. */
#define PENDING_MAX 256

/* Whether `later` stands for all that `earlier` does: it is recorded on the same stream, or on the
 * whole context, by a call that began later than the one for which `earlier` stands; and no stream
 * comes after it that does not come after `earlier`. */
static bool stands_for(const struct vpmm_slot_view *later, const struct vpmm_slot_view *earlier)
{
    if (later->begin < earlier->begin || later->context != earlier->context ||
        later->kind == VPMM_FENCE_IS_OPEN)
        return false;
    /* A stream may come after the turn of `later` and not after that of `earlier`. */
    bool has_more_followers = later->turn && (!earlier->turn || earlier->turn > later->turn);
    if (has_more_followers)
        return false;
    return later->stream_id ? later->stream_id == earlier->stream_id
                            : later->kind == VPMM_FENCE_IS_CONTEXT;
}

void vpmm_joined_add(struct vpmm_order *order, uint32_t number)
{
    if (order->last_joined)
        vpmm_slot_at(order, order->last_joined)->next = number;
    else
        order->first_joined = number;
    order->last_joined = number;
}

/* A reserve covers it, so it does not fail. */
static vpmm_fence cell(struct vpmm_order *order, vpmm_fence part, vpmm_fence rest)
{
    uint32_t number = vpmm_slot_take(order, VPMM_FENCE_IS_JOINED, VPMM_WAIT_NEVER, 0);
    struct vpmm_slot *slot = vpmm_slot_at(order, number);
    vpmm_atomic_store(&slot->part, part);
    vpmm_atomic_store(&slot->rest, rest);
    vpmm_joined_add(order, number);
    vpmm_atomic_add(&order->n_fences, 1);
    return vpmm_atomic_load(&slot->number);
}

/* `list` without what `view` stands for, built anew. */
static vpmm_fence pruned(struct vpmm_order *order, vpmm_fence list,
                         const struct vpmm_slot_view *view)
{
    vpmm_fence kept = VPMM_FENCE_NONE;
    struct vpmm_slot_view other;
    vpmm_fence part;
    while (vpmm_part_next(order, &list, &part, &other))
        if (!stands_for(view, &other))
            kept = kept ? cell(order, part, kept) : part;
    return kept;
}

/* `list` and `part`, of which `view` is the copy. False without memory. */
static bool add_part(struct vpmm_order *order, vpmm_fence *list, vpmm_fence part,
                     const struct vpmm_slot_view *view)
{
    uint32_t n_kept = 0, n_parts = 0;
    struct vpmm_slot_view other;
    vpmm_fence other_part;
    vpmm_fence rest = *list;
    while (vpmm_part_next(order, &rest, &other_part, &other)) {
        if (other_part == part || stands_for(&other, view))
            return true;
        n_parts++;
        n_kept += !stands_for(view, &other);
    }
    if (n_kept == 0) {
        *list = part;
        return true;
    }
    /* The turn of an open part may grow meanwhile, and then one more is kept. */
    bool is_pruned = n_kept < n_parts;
    if (vpmm_table_reserve(&order->slots, is_pruned ? n_parts : 1))
        return false;
    *list = cell(order, part, is_pruned ? pruned(order, *list, view) : *list);
    return true;
}

vpmm_fence vpmm_order_join(struct vpmm_order *order, vpmm_fence a, vpmm_fence b)
{
    struct vpmm_slot_view view;
    vpmm_fence part;
    vpmm_lock_take(&order->lock);
    if (!vpmm_slot_look(order, b, &view) || view.kind != VPMM_FENCE_IS_JOINED) {
        vpmm_fence single = b;
        b = a;
        a = single;
    }
    vpmm_fence joined = vpmm_order_ask(order, b, 0) == VPMM_VERDICT_COMPLETE ? VPMM_FENCE_NONE : b;
    while (vpmm_part_next(order, &a, &part, &view)) {
        if (!add_part(order, &joined, part, &view)) {
            joined = VPMM_FENCE_NONE;
            break;
        }
    }
    vpmm_lock_give(&order->lock);
    return joined;
}

/* For a free whose stream or context the driver does not tell. What is parked is recorded by
 * whoever polls next. */
enum vpmm_status vpmm_order_fence_all(struct vpmm_order *order, vpmm_fence *fence_out)
{
    struct vpmm_context *context;
    vpmm_fence all = VPMM_FENCE_NONE;
    (void)!vpmm_order_context(order, NULL, &context);
    uint32_t n = vpmm_atomic_load(&order->n_contexts);
    for (uint32_t number = 1; number <= n; number++) {
        vpmm_fence fence = vpmm_park_living(order, vpmm_context_at(order, number));
        vpmm_fence both = vpmm_order_join(order, all, fence);
        /* Either may have completed meanwhile, if its context is gone. */
        if (!both && (vpmm_order_ask(order, all, 0) != VPMM_VERDICT_COMPLETE ||
                      vpmm_order_ask(order, fence, 0) != VPMM_VERDICT_COMPLETE))
            return VPMM_NO_METADATA;
        all = both;
    }
    *fence_out = all;
    return VPMM_OK;
}

void vpmm_joined_sweep(struct vpmm_order *order)
{
    uint32_t previous = 0, number = order->first_joined;
    uint32_t n_pending = 0;
    for (uint32_t next; number && n_pending < PENDING_MAX; number = next) {
        struct vpmm_slot *slot = vpmm_slot_at(order, number);
        next = slot->next;
        if (vpmm_order_ask(order, vpmm_atomic_load(&slot->number), 0) != VPMM_VERDICT_COMPLETE) {
            previous = number;
            n_pending++;
            continue;
        }
        if (previous)
            vpmm_slot_at(order, previous)->next = next;
        else
            order->first_joined = next;
        if (order->last_joined == number)
            order->last_joined = previous;
        vpmm_slot_complete(order, number);
    }
    if (!number || !previous)
        return;
    vpmm_slot_at(order, order->last_joined)->next = order->first_joined;
    vpmm_slot_at(order, previous)->next = 0;
    order->last_joined = previous;
    order->first_joined = number;
}
