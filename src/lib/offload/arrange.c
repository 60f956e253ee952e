/* SPDX-License-Identifier: MIT */
/* From one plan to another: what goes is given back first, then what comes is taken. Must not be
 * unmap what work may still use: it waits for the context. */
#include "offload/offload_internal.h"

/* The ring has so much beyond the largest step, or this share of a small budget. */
#define SLACK_BYTES ((uint64_t)32 << 20)
#define SLACK_SHARE 16u

/* ---- the plan ---- */

static enum vpmm_status describe(struct vpmm_offload *offload, uint64_t budget_bytes,
                                 struct vpmm_spread *spread)
{
    size_t bytes = (offload->n_groups + 1) * sizeof(struct vpmm_spread_item);
    enum vpmm_status status = offload_array_grow(offload, &offload->item_array, bytes);
    if (status)
        return status;
    uint64_t share_bytes = budget_bytes / SLACK_SHARE;
    struct vpmm_spread_item *items = offload->item_array.at;
    items[0] = (struct vpmm_spread_item){0};
    for (uint32_t i = 1; i <= offload->n_groups; i++) {
        const struct offload_group *group = offload_group(offload, i);
        items[i] = (struct vpmm_spread_item){
            .n_chunks = group->kind == VPMM_OFFLOAD_DIRECT ? 0 : group->n_chunks,
            .is_kept = group->kind == VPMM_OFFLOAD_KEPT,
        };
    }
    *spread = (struct vpmm_spread){
        .items = items,
        .n_items = offload->n_groups + 1,
        .steps = offload_steps(offload),
        .n_steps = offload->has_order ? offload->n_steps : 0,
        .budget_chunks = budget_bytes / offload->chunk_bytes,
        .ring_wish_chunks = offload->params.ring_bytes / offload->chunk_bytes,
        .is_wide = offload->is_wide,
        .slack_chunks =
            (share_bytes < SLACK_BYTES ? share_bytes : SLACK_BYTES) / offload->chunk_bytes,
    };
    return VPMM_OK;
}

/* What direct groups may get of a budget that is large enough. */
static uint64_t promote_chunks(struct vpmm_offload *offload)
{
    uint64_t most = offload->params.promote_bytes / offload->chunk_bytes, sum = 0;
    for (uint32_t i = 1; i <= offload->n_groups; i++)
        if (offload_group(offload, i)->kind == VPMM_OFFLOAD_DIRECT)
            sum += offload_group(offload, i)->n_chunks;
    return sum < most ? sum : most;
}

static void note_need(struct vpmm_offload *offload, const struct vpmm_spread *spread)
{
    uint64_t promoted = promote_chunks(offload);
    offload->need = (struct vpmm_offload_need){
        .floor_bytes = spread->floor_chunks * offload->chunk_bytes,
        .smooth_bytes = (spread->smooth_chunks + promoted) * offload->chunk_bytes,
        .all_bytes = (spread->all_chunks + promoted) * offload->chunk_bytes,
        .host_bytes = offload->host_pinned_bytes,
    };
}

static enum vpmm_status tell_floor(struct vpmm_offload *offload, uint64_t budget_bytes)
{
    return offload_tell_bytes(offload, VPMM_BELOW_FLOOR, "the budget of ", budget_bytes,
                              " bytes is too small: at least ", offload->need.floor_bytes,
                              " bytes are needed");
}

enum vpmm_status offload_measure(struct vpmm_offload *offload, uint64_t budget_bytes)
{
    struct vpmm_spread spread;
    enum vpmm_status status = describe(offload, budget_bytes, &spread);
    if (status)
        return status;
    vpmm_spread_need(&spread);
    note_need(offload, &spread);
    return spread.budget_chunks < spread.floor_chunks ? tell_floor(offload, budget_bytes) : VPMM_OK;
}

/* Without an order, or where only what is in use is mapped: kept groups, and as many slots as the
 * budget has or the others could fill. */
static void plan_unordered(struct vpmm_spread *spread)
{
    uint64_t kept = 0, streamed = 0;
    for (uint32_t i = 0; i < spread->n_items; i++) {
        struct vpmm_spread_item *item = &spread->items[i];
        item->is_resident = item->is_kept;
        if (item->is_kept)
            kept += item->n_chunks;
        else
            streamed += item->n_chunks;
    }
    bool is_whole = spread->budget_chunks >= kept + streamed;
    spread->ring_chunks = is_whole ? streamed : spread->budget_chunks - kept;
}

static enum vpmm_status plan(struct vpmm_offload *offload, uint64_t budget_bytes,
                             struct vpmm_spread *spread, bool *is_planned_out,
                             uint64_t *promote_bytes_out)
{
    enum vpmm_status status = describe(offload, budget_bytes, spread);
    if (status)
        return status;
    vpmm_spread_need(spread);
    note_need(offload, spread);
    if (spread->budget_chunks < spread->floor_chunks)
        return tell_floor(offload, budget_bytes);
    uint64_t spare = spread->budget_chunks - spread->floor_chunks;
    uint64_t promoted = promote_chunks(offload);
    promoted = promoted < spare ? promoted : spare;
    spread->budget_chunks -= promoted;
    status = vpmm_spread_plan(spread);
    if (status)
        return tell_floor(offload, budget_bytes);
    *promote_bytes_out = promoted * offload->chunk_bytes;
    bool is_whole = spread->ring_chunks == 0;
    *is_planned_out = !offload->params.checks && (offload->has_order || is_whole);
    if (!*is_planned_out)
        plan_unordered(spread);
    return VPMM_OK;
}

/* ---- carrying it out ---- */

static bool is_housed(const struct vpmm_offload *offload, const struct vpmm_spread *spread,
                      uint32_t number)
{
    const struct offload_group *group = vpmm_table_record(&offload->groups, number);
    return group->kind == VPMM_OFFLOAD_DIRECT || spread->items[number].is_resident;
}

static enum vpmm_status give_back(struct vpmm_offload *offload, const struct vpmm_spread *spread)
{
    enum vpmm_status status = VPMM_OK;
    for (uint32_t i = 1; !status && i <= offload->n_groups; i++) {
        struct offload_group *group = offload_group(offload, i);
        if (!group->has_extent || !group->is_mapped || !is_housed(offload, spread, i))
            status = offload_group_evict(offload, group);
        else if (group->is_promoted)
            status = offload_demote(offload, group);
    }
    if (!status && spread->ring_chunks < offload->n_slots)
        status = offload_ring_resize(offload, (uint32_t)spread->ring_chunks);
    for (uint32_t i = 0; i < offload->n_slots; i++)
        offload_slots(offload)[i].owner = 0;
    return status;
}

/* What may be read at any time is there when this returns. */
static enum vpmm_status house(struct vpmm_offload *offload, const struct vpmm_spread *spread)
{
    enum vpmm_status status = VPMM_OK;
    bool is_awaited = false;
    for (uint32_t i = 1; !status && i <= offload->n_groups; i++) {
        struct offload_group *group = offload_group(offload, i);
        if (!is_housed(offload, spread, i))
            continue;
        if (!group->has_extent)
            status = offload_group_house(offload, group);
        if (status || group->is_loaded)
            continue;
        status = offload_load(offload, group);
        is_awaited |= group->kind != VPMM_OFFLOAD_STREAMED;
    }
    return !status && is_awaited ? offload_wait_copies(offload) : status;
}

static enum vpmm_status show_ring(struct vpmm_offload *offload, const struct vpmm_spread *spread)
{
    enum vpmm_status status = VPMM_OK;
    for (uint32_t i = 1; !status && i <= offload->n_groups; i++) {
        struct offload_group *group = offload_group(offload, i);
        uint32_t *slots = offload_chunk_slots(offload, group);
        if (is_housed(offload, spread, i))
            continue;
        for (uint64_t c = 0; c < group->n_chunks; c++)
            slots[c] = (uint32_t)((spread->items[i].position + c) % spread->ring_chunks);
        status = offload_window_map(offload, group);
    }
    return status;
}

enum vpmm_status offload_arrange(struct vpmm_offload *offload, uint64_t budget_bytes)
{
    struct vpmm_spread spread;
    bool is_planned = false;
    uint64_t promote_bytes = 0;
    enum vpmm_status status = plan(offload, budget_bytes, &spread, &is_planned, &promote_bytes);
    if (!status && spread.ring_chunks >= OFFLOAD_NO_SLOT)
        status =
            offload_tell(offload, VPMM_INVALID, "the budget has too many chunks", (char *)NULL);
    if (!status)
        status = offload_array_grow(offload, &offload->slot_array,
                                    spread.ring_chunks * sizeof(struct offload_slot));
    if (!status && !offload->is_idle)
        status = offload_wait_context(offload);
    if (status)
        return status;
    offload->is_idle = false;
    offload->is_torn = true;
    offload_ring_restart(offload);
    offload->is_planned = false;
    status = give_back(offload, &spread);
    if (status)
        return status;
    offload->budget_bytes = budget_bytes;
    vpmm_atomic_store(&offload->figures->budget_bytes, budget_bytes);
    status = house(offload, &spread);
    if (!status)
        status = offload_ring_resize(offload, (uint32_t)spread.ring_chunks);
    if (!status && is_planned)
        status = show_ring(offload, &spread);
    offload->is_planned = !status && is_planned;
    offload->is_torn = status != VPMM_OK;
    offload->is_dismantled = offload->is_dismantled && status;
    offload->promote_room_bytes = promote_bytes;
    if (offload->is_planned)
        offload_times_plan(offload);
    return status;
}

enum vpmm_status offload_dismantle(struct vpmm_offload *offload)
{
    enum vpmm_status status = VPMM_OK;
    offload->is_planned = false;
    for (uint32_t i = 1; i <= offload->n_groups; i++) {
        enum vpmm_status one = offload_group_evict(offload, offload_group(offload, i));
        status = status ? status : one;
    }
    return status ? status : offload_ring_resize(offload, 0);
}

void offload_abandon(struct vpmm_offload *offload)
{
    offload->is_dismantled = true;
    offload->is_planned = false;
    if (!offload_wait_context(offload))
        (void)offload_dismantle(offload);
}
