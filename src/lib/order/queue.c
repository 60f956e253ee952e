/* SPDX-License-Identifier: MIT */
/* Queues: the recorded fences of one stream in one context, in the order of their records. Must not
 * complete a fence whose record began after the one that is known complete. */
#include "order/order_internal.h"

static uint32_t *bucket_of(struct vpmm_order *order, uint32_t context, uint64_t stream_id)
{
    uint64_t mixed = (stream_id ^ (uint64_t)context << 40) * UINT64_C(0x9e3779b97f4a7c15);
    return &order->queue_buckets[mixed >> 32 & (VPMM_ORDER_BUCKETS - 1)];
}

uint32_t vpmm_queue_find(struct vpmm_order *order, uint32_t context, uint64_t stream_id)
{
    uint32_t number = *bucket_of(order, context, stream_id);
    const struct vpmm_queue *queue;
    while ((queue = vpmm_queue_at(order, number)) != NULL &&
           (queue->context != context || queue->stream_id != stream_id))
        number = queue->next;
    return number;
}

static uint32_t find_or_make(struct vpmm_order *order, uint32_t context, uint64_t stream_id)
{
    uint32_t number = vpmm_queue_find(order, context, stream_id);
    if (number)
        return number;
    uint32_t *bucket = bucket_of(order, context, stream_id);
    number = vpmm_table_take(&order->queues);
    struct vpmm_queue *queue = vpmm_queue_at(order, number);
    if (!queue)
        return 0;
    *queue = (struct vpmm_queue){.stream_id = stream_id, .context = context, .next = *bucket};
    *bucket = number;
    if (number >= order->queues_end)
        order->queues_end = number + 1;
    return number;
}

static void give(struct vpmm_order *order, uint32_t number)
{
    struct vpmm_queue *queue = vpmm_queue_at(order, number);
    uint32_t *link = bucket_of(order, queue->context, queue->stream_id);
    while (*link != number)
        link = &vpmm_queue_at(order, *link)->next;
    *link = queue->next;
    vpmm_table_give(&order->queues, number);
}

static uint64_t begin_of(const struct vpmm_order *order, uint32_t slot)
{
    const struct vpmm_slot *taken = vpmm_table_record(&order->slots, slot);
    return vpmm_atomic_load(&taken->begin);
}

enum vpmm_status vpmm_queue_put(struct vpmm_order *order, uint32_t slot_number, uint64_t stream_id)
{
    struct vpmm_slot *slot = vpmm_slot_at(order, slot_number);
    uint32_t number = find_or_make(order, vpmm_atomic_load(&slot->context), stream_id);
    if (!number)
        return VPMM_NO_METADATA;
    struct vpmm_queue *queue = vpmm_queue_at(order, number);
    /* Two threads that record at once may arrive here in the other order than they began. */
    uint64_t begin = vpmm_atomic_load(&slot->begin);
    uint32_t before = queue->last;
    if (before && begin_of(order, before) > begin) {
        before = 0;
        for (uint32_t i = queue->first; begin_of(order, i) < begin;
             i = vpmm_slot_at(order, i)->next)
            before = i;
    }
    uint32_t *link = before ? &vpmm_slot_at(order, before)->next : &queue->first;
    slot->next = *link;
    slot->queue = number;
    *link = slot_number;
    if (before == queue->last)
        queue->last = slot_number;
    return VPMM_OK;
}

void vpmm_queue_complete(struct vpmm_order *order, uint32_t number, uint64_t begin)
{
    struct vpmm_queue *queue = vpmm_queue_at(order, number);
    queue->n_passes = queue->n_passes_left = 0;
    while (queue->first && begin_of(order, queue->first) <= begin) {
        uint32_t slot = queue->first;
        queue->first = vpmm_slot_at(order, slot)->next;
        if (!queue->first)
            queue->last = 0;
        vpmm_slot_complete(order, slot);
    }
    if (!queue->first)
        give(order, number);
}

void vpmm_queues_complete(struct vpmm_order *order, uint32_t context, uint64_t begin)
{
    for (uint32_t number = 1; number < order->queues_end; number++) {
        struct vpmm_queue *queue = vpmm_queue_at(order, number);
        if (queue && queue->first && queue->context == context)
            vpmm_queue_complete(order, number, begin);
    }
}
