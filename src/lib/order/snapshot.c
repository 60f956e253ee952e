/* SPDX-License-Identifier: MIT */
/* Snapshots: which frees lie before the last record of an event of the program. What is known of an
 * event may be dropped at any time, and is never that of another record: where two records may have
 * been under way at once, nobody learns from either. Must not call the driver. */
#include "order/order_internal.h"

#define SETS_BYTES (sizeof(struct vpmm_snapshot_set) * VPMM_SNAPSHOT_SETS)

static struct vpmm_snapshot_set *set_of(const struct vpmm_order *order, vpmm_event_handle event)
{
    struct vpmm_snapshot_set *sets = vpmm_atomic_load(&order->snapshots);
    uint64_t mixed = (uint64_t)(uintptr_t)event * UINT64_C(0x9e3779b97f4a7c15);
    return sets ? &sets[mixed >> 32 & (VPMM_SNAPSHOT_SETS - 1)] : NULL;
}

static struct vpmm_snapshot *find(struct vpmm_snapshot_set *set, vpmm_event_handle event)
{
    for (unsigned i = 0; i < VPMM_SNAPSHOT_WAYS; i++)
        if (vpmm_atomic_load(&set->ways[i].event) == event)
            return &set->ways[i];
    return NULL;
}

void vpmm_snapshots_make(struct vpmm_order *order)
{
    const struct vpmm_memory *memory = order->memory;
    if (vpmm_atomic_load(&order->snapshots))
        return;
    struct vpmm_snapshot_set *sets = memory->map(memory->self, SETS_BYTES), *none = NULL;
    if (sets && !vpmm_atomic_swap_if(&order->snapshots, &none, sets))
        memory->unmap(memory->self, sets, SETS_BYTES);
}

void vpmm_snapshots_finish(struct vpmm_order *order)
{
    struct vpmm_snapshot_set *sets = vpmm_atomic_load(&order->snapshots);
    if (sets)
        order->memory->unmap(order->memory->self, sets, SETS_BYTES);
}

void vpmm_snapshot_begin(struct vpmm_order *order, vpmm_event_handle event,
                         struct vpmm_event_points *points_out)
{
    struct vpmm_snapshot_set *set = set_of(order, event);
    points_out->n = 0;
    points_out->version = set ? vpmm_atomic_add(&set->n_begun, 1) + 1 : 0;
    points_out->is_alone = set && vpmm_atomic_load(&set->n_done) == points_out->version - 1;
}

/* With the latch. */
static void store(struct vpmm_snapshot_set *set, vpmm_event_handle event,
                  const struct vpmm_event_points *points)
{
    struct vpmm_snapshot *snapshot = find(set, event);
    if (!snapshot)
        snapshot = find(set, NULL);
    if (!snapshot)
        snapshot = &set->ways[set->next_way++ % VPMM_SNAPSHOT_WAYS];
    snapshot->n_points = points->n;
    for (uint32_t i = 0; i < points->n; i++)
        snapshot->points[i] = points->points[i];
    if (vpmm_atomic_load(&snapshot->event) != event)
        vpmm_atomic_store(&snapshot->event, event);
}

/* Between begin and end n_begun differs from n_done, and nobody looks. Whoever began alone sees all
 * that was stored before; another one may meet a store under way, and waits for it at the latch. */
void vpmm_snapshot_end(struct vpmm_order *order, vpmm_event_handle event,
                       const struct vpmm_event_points *points)
{
    struct vpmm_snapshot_set *set = set_of(order, event);
    if (points->n || !points->is_alone || find(set, event)) {
        vpmm_latch_take(&set->latch, VPMM_RANK_TRACK);
        struct vpmm_snapshot *last = find(set, event);
        if (points->n && points->is_alone && vpmm_atomic_load(&set->n_begun) == points->version)
            store(set, event, points);
        else if (last)
            vpmm_atomic_store(&last->event, NULL);
        vpmm_latch_give(&set->latch, VPMM_RANK_TRACK);
    }
    vpmm_atomic_add(&set->n_done, 1);
}

void vpmm_snapshot_look(struct vpmm_order *order, vpmm_event_handle event,
                        struct vpmm_event_points *points_out)
{
    struct vpmm_snapshot_set *set = set_of(order, event);
    points_out->n = 0;
    if (!set || !find(set, event))
        return;
    uint64_t n_done = vpmm_atomic_load(&set->n_done);
    vpmm_latch_take(&set->latch, VPMM_RANK_TRACK);
    const struct vpmm_snapshot *snapshot = find(set, event);
    uint32_t n = snapshot ? snapshot->n_points : 0;
    for (uint32_t i = 0; i < n; i++)
        points_out->points[i] = snapshot->points[i];
    vpmm_latch_give(&set->latch, VPMM_RANK_TRACK);
    points_out->version = vpmm_atomic_load(&set->n_begun);
    points_out->n = points_out->version == n_done ? n : 0;
}

bool vpmm_snapshot_is(struct vpmm_order *order, vpmm_event_handle event, uint64_t version)
{
    struct vpmm_snapshot_set *set = set_of(order, event);
    return set && vpmm_atomic_load(&set->n_begun) == version;
}
