/* SPDX-License-Identifier: MIT */
/* Fences: the slot of each, what it stands for, and whether it is complete. Slots are read without
 * the lock, so what one says must not be believed before its number was read again. */
#include "order/order_internal.h"

#define SLOT_BITS 24

uint32_t vpmm_slot_number(vpmm_fence fence)
{
    return (uint32_t)(fence & ((1u << SLOT_BITS) - 1));
}

uint32_t vpmm_slot_take(struct vpmm_order *order, enum vpmm_fence_kind kind, enum vpmm_wait wait,
                        uint32_t context)
{
    uint32_t number = vpmm_table_take(&order->slots);
    struct vpmm_slot *slot = vpmm_slot_at(order, number);
    if (!slot)
        return 0;
    vpmm_atomic_store(&slot->stream_id, 0);
    vpmm_atomic_store(&slot->begin, 0);
    vpmm_atomic_store(&slot->part, VPMM_FENCE_NONE);
    vpmm_atomic_store(&slot->rest, VPMM_FENCE_NONE);
    vpmm_atomic_store(&slot->kind, (uint32_t)kind);
    vpmm_atomic_store(&slot->wait, (uint32_t)wait);
    vpmm_atomic_store(&slot->thread, 0);
    vpmm_atomic_store(&slot->turn, 0);
    vpmm_atomic_store(&slot->context, context);
    slot->event = slot->queue = slot->next = 0;
    vpmm_atomic_store(&slot->number, ++order->last_generation << SLOT_BITS | number);
    return number;
}

vpmm_fence vpmm_order_newest(struct vpmm_order *order)
{
    vpmm_lock_take(&order->lock);
    vpmm_fence newest = (order->last_generation + 1) << SLOT_BITS;
    vpmm_lock_give(&order->lock);
    return newest;
}

void vpmm_slot_give(struct vpmm_order *order, uint32_t number)
{
    vpmm_atomic_store(&vpmm_slot_at(order, number)->number, VPMM_FENCE_NONE);
    vpmm_table_give(&order->slots, number);
}

struct vpmm_slot *vpmm_slot_of(const struct vpmm_order *order, vpmm_fence fence)
{
    struct vpmm_slot *slot = vpmm_slot_at(order, vpmm_slot_number(fence));
    return slot && fence && vpmm_atomic_load(&slot->number) == fence ? slot : NULL;
}

/* The second look at the number tells that all members were those of one fence. */
bool vpmm_slot_look(const struct vpmm_order *order, vpmm_fence fence,
                    struct vpmm_slot_view *view_out)
{
    struct vpmm_slot *slot = vpmm_slot_of(order, fence);
    if (!slot)
        return false;
    view_out->kind = (enum vpmm_fence_kind)vpmm_atomic_load(&slot->kind);
    view_out->stream_id = vpmm_atomic_load(&slot->stream_id);
    view_out->begin = vpmm_atomic_load(&slot->begin);
    view_out->part = vpmm_atomic_load(&slot->part);
    view_out->rest = vpmm_atomic_load(&slot->rest);
    view_out->wait = (enum vpmm_wait)vpmm_atomic_load(&slot->wait);
    view_out->thread = vpmm_atomic_load(&slot->thread);
    view_out->turn = vpmm_atomic_load(&slot->turn);
    view_out->context = vpmm_atomic_load(&slot->context);
    return vpmm_atomic_load(&slot->number) == fence;
}

void vpmm_slot_complete(struct vpmm_order *order, uint32_t number)
{
    struct vpmm_slot *slot = vpmm_slot_at(order, number);
    if (slot->event)
        vpmm_event_give(order, slot->event);
    slot->event = 0;
    vpmm_atomic_sub(&order->n_fences, 1);
    vpmm_slot_give(order, number);
    /* Last, so that whoever sees the count sees the fence complete. */
    vpmm_atomic_add(&order->n_completed, 1);
}

bool vpmm_part_next(const struct vpmm_order *order, vpmm_fence *rest, vpmm_fence *part_out,
                    struct vpmm_slot_view *view_out)
{
    while (*rest) {
        vpmm_fence fence = *rest;
        struct vpmm_slot_view view;
        *rest = VPMM_FENCE_NONE;
        if (!vpmm_slot_look(order, fence, &view))
            return false;
        if (view.kind == VPMM_FENCE_IS_JOINED)
            *rest = view.rest;
        /* A fence that was open refers to one with an event, and stands for the work of its stream
         * alone whatever the event tells of: that is the part. */
        uint64_t stream_id = view.stream_id;
        uint64_t turn = view.turn;
        vpmm_fence part = fence;
        bool is_pending = true;
        while (is_pending && view.kind == VPMM_FENCE_IS_JOINED) {
            fence = view.part;
            part = stream_id ? part : fence;
            is_pending = vpmm_slot_look(order, fence, &view);
            turn = stream_id ? turn : view.turn;
            stream_id = stream_id ? stream_id : view.stream_id;
        }
        if (!is_pending)
            continue;
        view.stream_id = stream_id;
        view.turn = turn;
        view.event_fence = fence;
        *part_out = part;
        *view_out = view;
        return true;
    }
    return false;
}

enum vpmm_verdict vpmm_order_ask(const struct vpmm_order *order, vpmm_fence fence,
                                 uint64_t stream_id)
{
    enum vpmm_verdict verdict = VPMM_VERDICT_COMPLETE;
    struct vpmm_slot_view view;
    vpmm_fence part;
    while (vpmm_part_next(order, &fence, &part, &view)) {
        if (!stream_id || view.stream_id != stream_id)
            return VPMM_VERDICT_PENDING;
        verdict = VPMM_VERDICT_ORDERED;
    }
    return verdict;
}

bool vpmm_order_covers(const struct vpmm_order *order, vpmm_fence fence, uint64_t context_id,
                       uint64_t stream_id)
{
    struct vpmm_slot_view view;
    vpmm_fence part;
    while (vpmm_part_next(order, &fence, &part, &view))
        if (stream_id ? view.stream_id != stream_id : view.context != context_id)
            return false;
    return true;
}

/* Whether all parts of `fence` come before what `later` stands for, and before any event of the
 * program that puts a stream behind `later`: one without a turn may have been freed after that. */
static bool is_before(const struct vpmm_order *order, vpmm_fence fence,
                      const struct vpmm_slot_view *later)
{
    struct vpmm_slot_view view;
    vpmm_fence part;
    while (vpmm_part_next(order, &fence, &part, &view))
        if (view.stream_id != later->stream_id || view.context != later->context ||
            view.begin >= later->begin || (later->turn && (!view.turn || view.turn > later->turn)))
            return false;
    return true;
}

static bool look_at_first(const struct vpmm_order *order, vpmm_fence fence,
                          struct vpmm_slot_view *view_out)
{
    vpmm_fence part;
    return vpmm_part_next(order, &fence, &part, view_out);
}

/* An open fence whose record has not begun is recorded later than all that has. Only the second
 * look tells that it had not begun when the other one was looked at. */
vpmm_fence vpmm_order_later(const struct vpmm_order *order, vpmm_fence a, vpmm_fence b)
{
    const vpmm_fence both[] = {a, b};
    for (int i = 0; i < 2; i++) {
        struct vpmm_slot_view view, again;
        if (look_at_first(order, both[i], &view) && view.stream_id &&
            is_before(order, both[1 - i], &view) && look_at_first(order, both[i], &again) &&
            again.begin == view.begin)
            return both[i];
    }
    return VPMM_FENCE_NONE;
}

uint64_t vpmm_order_completions(const struct vpmm_order *order)
{
    return vpmm_atomic_load(&order->n_completed);
}

enum vpmm_wait vpmm_order_wait_kind(const struct vpmm_order *order, vpmm_fence fence)
{
    enum vpmm_wait weakest = VPMM_WAIT_OWN_CALL;
    struct vpmm_slot_view view;
    vpmm_fence part;
    while (vpmm_part_next(order, &fence, &part, &view))
        if (view.wait > weakest)
            weakest = view.wait;
    return weakest;
}

void vpmm_order_forbid_wait(struct vpmm_order *order, vpmm_fence fence)
{
    struct vpmm_slot *slot = vpmm_slot_of(order, fence);
    if (slot)
        vpmm_atomic_store(&slot->wait, (uint32_t)VPMM_WAIT_NEVER);
}

bool vpmm_order_may_wait_host(struct vpmm_order *order, vpmm_fence fence,
                              const struct vpmm_context *context)
{
    uint64_t thread = vpmm_thread_number(order);
    struct vpmm_slot_view view;
    vpmm_fence part;
    while (vpmm_part_next(order, &fence, &part, &view)) {
        bool is_ours = view.thread == thread || (context && view.context == context->number);
        if (view.wait != VPMM_WAIT_OWN_CALL || !is_ours)
            return false;
    }
    return true;
}

bool vpmm_order_may_wait_stream(const struct vpmm_order *order, vpmm_fence fence,
                                const struct vpmm_stream *stream)
{
    struct vpmm_slot_view view;
    vpmm_fence part;
    while (vpmm_part_next(order, &fence, &part, &view))
        if (view.wait != VPMM_WAIT_STREAM || view.context != stream->context->number)
            return false;
    return true;
}

void vpmm_order_facts(const struct vpmm_order *order, vpmm_fence fence,
                      struct vpmm_fence_facts *facts_out)
{
    struct vpmm_slot_view view;
    if (vpmm_slot_look(order, fence, &view))
        *facts_out = (struct vpmm_fence_facts){view.kind, view.stream_id, view.context};
    else
        *facts_out = (struct vpmm_fence_facts){VPMM_FENCE_IS_COMPLETE, 0, 0};
}
