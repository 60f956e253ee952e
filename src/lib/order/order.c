/* SPDX-License-Identifier: MIT */
/* Makes the order of a process and ends it. Must not touch an event whose context is gone. */
#define _POSIX_C_SOURCE 200809L
#include "order/memo.h"
#include "order/order_internal.h"

#include "base/layout.h"

#include <time.h>

static uint64_t first_epoch(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void give_memory_back(struct vpmm_order *order)
{
    const struct vpmm_memory *memory = order->memory;
    vpmm_table_finish(&order->slots);
    vpmm_table_finish(&order->events);
    vpmm_table_finish(&order->queues);
    vpmm_table_finish(&order->names);
    vpmm_table_finish(&order->captures);
    vpmm_table_finish(&order->contexts);
    vpmm_table_finish(&order->tracks);
    vpmm_snapshots_finish(order);
    memory->unmap(memory->self, order, sizeof *order);
}

enum vpmm_status vpmm_order_create(const struct vpmm_driver *driver,
                                   const struct vpmm_memory *memory, struct vpmm_order **order_out)
{
    struct vpmm_order *order = memory->map(memory->self, sizeof *order);
    if (!order)
        return VPMM_NO_METADATA;
    order->driver = driver;
    order->memory = memory;
    order->number = first_epoch();
    order->first_turn = 1;
    vpmm_atomic_store(&order->epoch, order->number);
    if (vpmm_table_init(&order->slots, sizeof(struct vpmm_slot), memory) ||
        vpmm_table_init(&order->events, sizeof(struct vpmm_event), memory) ||
        vpmm_table_init(&order->queues, sizeof(struct vpmm_queue), memory) ||
        vpmm_table_init(&order->names, sizeof(struct vpmm_name), memory) ||
        vpmm_table_init(&order->captures, sizeof(struct vpmm_capture), memory) ||
        vpmm_table_init(&order->contexts, sizeof(struct vpmm_context), memory) ||
        vpmm_table_init(&order->tracks, sizeof(struct vpmm_track), memory) ||
        vpmm_table_reserve(&order->captures, 1)) {
        give_memory_back(order);
        return VPMM_NO_METADATA;
    }
    vpmm_lock_init(&order->lock, VPMM_RANK_ORDER);
    vpmm_condition_init(&order->calmed);
    *order_out = order;
    return VPMM_OK;
}

static bool is_alive(const struct vpmm_order *order, const struct vpmm_event *event)
{
    return event->handle && !vpmm_atomic_load(&vpmm_context_at(order, event->context)->gone);
}

void vpmm_order_destroy(struct vpmm_order *order)
{
    if (!order)
        return;
    const struct vpmm_driver *driver = order->driver;
    for (uint32_t number = 1; number < vpmm_table_end(&order->events); number++)
        if (is_alive(order, vpmm_event_at(order, number)))
            (void)driver->event_destroy(driver->self, vpmm_event_at(order, number)->handle);
    vpmm_memos_finish(order);
    vpmm_condition_finish(&order->calmed);
    vpmm_lock_finish(&order->lock);
    give_memory_back(order);
}

void vpmm_order_totals(const struct vpmm_order *order, struct vpmm_order_totals *totals_out)
{
    *totals_out = (struct vpmm_order_totals){
        .events = vpmm_atomic_load(&order->n_events),
        .fences = vpmm_atomic_load(&order->n_fences),
        .contexts = vpmm_atomic_load(&order->n_contexts),
    };
}

uint64_t vpmm_order_layout(void)
{
    uint64_t layout = vpmm_layout_mix(sizeof(struct vpmm_order), sizeof(struct vpmm_slot));
    return vpmm_layout_mix(layout, offsetof(struct vpmm_order, slots));
}
