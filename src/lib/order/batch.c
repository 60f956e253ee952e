/* SPDX-License-Identifier: MIT */
/* Batches: opens the fence that frees of a stream share, and closes it with an event. A failed
 * record must not lose the fence: what is parked in the context then stands for it. */
#include "order/order_internal.h"

/* While a slot is open, `queue` leads backwards in the list of open ones, and `next` forwards. */

static uint32_t *next_link(struct vpmm_order *order, uint32_t number)
{
    return number ? &vpmm_slot_at(order, number)->next : &order->first_open;
}

void vpmm_open_add(struct vpmm_order *order, uint32_t number)
{
    struct vpmm_slot *slot = vpmm_slot_at(order, number);
    slot->next = order->first_open;
    slot->queue = 0;
    if (slot->next)
        vpmm_slot_at(order, slot->next)->queue = number;
    order->first_open = number;
    vpmm_atomic_add(&order->n_open, 1);
}

void vpmm_open_drop(struct vpmm_order *order, uint32_t number)
{
    struct vpmm_slot *slot = vpmm_slot_at(order, number);
    *next_link(order, slot->queue) = slot->next;
    if (slot->next)
        vpmm_slot_at(order, slot->next)->queue = slot->queue;
    slot->next = slot->queue = 0;
    vpmm_atomic_sub(&order->n_open, 1);
}

void vpmm_open_complete(struct vpmm_order *order, uint32_t context)
{
    for (uint32_t number = order->first_open, next; number; number = next) {
        struct vpmm_slot *slot = vpmm_slot_at(order, number);
        next = slot->next;
        if (vpmm_atomic_load(&slot->context) != context)
            continue;
        vpmm_open_drop(order, number);
        vpmm_atomic_add(&order->n_fences, 1);
        vpmm_slot_complete(order, number);
    }
}

vpmm_fence vpmm_order_open(struct vpmm_order *order, const struct vpmm_stream *stream)
{
    vpmm_fence fence = VPMM_FENCE_NONE;
    vpmm_lock_take(&order->lock);
    if (!vpmm_atomic_load(&stream->context->gone)) {
        uint32_t number =
            vpmm_slot_take(order, VPMM_FENCE_IS_OPEN, VPMM_WAIT_NEVER, stream->context->number);
        struct vpmm_slot *slot = vpmm_slot_at(order, number);
        if (slot) {
            /* No record that is made before it is closed stands for all of it. */
            vpmm_atomic_store(&slot->begin, UINT64_MAX);
            vpmm_atomic_store(&slot->stream_id, stream->id);
            vpmm_open_add(order, number);
            fence = vpmm_atomic_load(&slot->number);
        }
    }
    vpmm_lock_give(&order->lock);
    return fence;
}

/* The open fence stands for what `part` stands for, from now on. */
static void turn_into(struct vpmm_order *order, vpmm_fence fence, vpmm_fence part)
{
    struct vpmm_slot *slot = vpmm_slot_of(order, fence);
    if (!slot)
        return;
    uint32_t number = vpmm_slot_number(fence);
    vpmm_atomic_add(&order->n_fences, 1);
    vpmm_open_drop(order, number);
    vpmm_atomic_store(&slot->part, part);
    vpmm_joined_add(order, number);
    vpmm_atomic_store(&slot->kind, VPMM_FENCE_IS_JOINED);
}

/* NULL: the fence is open no more. */
static struct vpmm_context *context_of(struct vpmm_order *order, vpmm_fence fence)
{
    struct vpmm_context *context = NULL;
    vpmm_lock_take(&order->lock);
    struct vpmm_slot *slot = vpmm_slot_of(order, fence);
    if (slot && vpmm_atomic_load(&slot->kind) == VPMM_FENCE_IS_OPEN)
        context = vpmm_context_at(order, vpmm_atomic_load(&slot->context));
    vpmm_lock_give(&order->lock);
    return context;
}

/* All those of `fences` that are open in `context` turn into `part`; NONE: into what is parked in
 * the context. */
static void turn_all(struct vpmm_order *order, struct vpmm_context *context,
                     const vpmm_fence *fences, size_t n, vpmm_fence part)
{
    vpmm_lock_take(&order->lock);
    for (size_t i = 0; i < n; i++) {
        struct vpmm_slot *slot = vpmm_slot_of(order, fences[i]);
        if (!slot || vpmm_atomic_load(&slot->kind) != VPMM_FENCE_IS_OPEN ||
            vpmm_atomic_load(&slot->context) != context->number)
            continue;
        turn_into(order, fences[i], part ? part : vpmm_park(order, context));
    }
    vpmm_lock_give(&order->lock);
}

enum vpmm_status vpmm_order_close(struct vpmm_order *order, vpmm_fence fence,
                                  const struct vpmm_stream *stream, bool is_alone)
{
    enum vpmm_wait wait = is_alone ? VPMM_WAIT_STREAM : VPMM_WAIT_NEVER;
    enum vpmm_status status = vpmm_record_open(order, stream->context, stream, wait, fence);
    if (status == VPMM_CAPTURED)
        turn_all(order, stream->context, &fence, 1, VPMM_FENCE_NONE);
    else if (status)
        vpmm_order_close_all(order, &fence, 1);
    return vpmm_record_verdict(status);
}

void vpmm_order_close_all(struct vpmm_order *order, const vpmm_fence *fences, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct vpmm_context *context = context_of(order, fences[i]);
        if (!context)
            continue;
        enum vpmm_status status =
            vpmm_record_open(order, context, NULL, VPMM_WAIT_NEVER, fences[i]);
        turn_all(order, context, fences, n, status ? VPMM_FENCE_NONE : fences[i]);
    }
}
