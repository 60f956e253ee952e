/* SPDX-License-Identifier: MIT */
/* Direct groups that are used in many passes get device memory, and give it back when others are
 * used more. Must not touch a window that work may read: it waits for the context. */
#include "offload/offload_internal.h"

/* So many passes lie between two looks at what is used. */
#define LOOK_PASSES 32u
/* Used in so many of them, a group is worth a move. */
#define HOT_PASSES 8u
/* At one look; all moves of a look share one wait. */
#define MOVES_MAX 8u

void offload_note_heat(struct vpmm_offload *offload, struct offload_group *group)
{
    if (group->heat_pass == offload->n_begun)
        return;
    group->heat_pass = offload->n_begun;
    group->heat++;
}

static uint64_t bytes_of(const struct vpmm_offload *offload, const struct offload_group *group)
{
    return group->n_chunks * offload->chunk_bytes;
}

/* ---- moves ---- */

/* The host's memory has all bytes all the time. */
enum vpmm_status offload_demote(struct vpmm_offload *offload, struct offload_group *group)
{
    enum vpmm_status status = offload_window_unmap(offload, group);
    if (status)
        return status;
    offload_group_unpromote(offload, group);
    status = offload_window_map(offload, group);
    group->is_loaded = group->has_arrived = !status;
    return status;
}

/* On failure it is shown as before, or the answer of `is_shown_out` is that it is not. */
static enum vpmm_status promote(struct vpmm_offload *offload, struct offload_group *group,
                                bool *is_shown_out)
{
    vpmm_extent_handle extent;
    enum vpmm_status status = offload_extent_take(offload, bytes_of(offload, group), &extent);
    *is_shown_out = true;
    if (status)
        return status;
    status = offload_window_unmap(offload, group);
    if (status) {
        offload_extent_give(offload, extent, bytes_of(offload, group));
        return status;
    }
    offload_group_promote(offload, group, extent);
    status = offload_window_map(offload, group);
    if (!status)
        status = offload_load(offload, group);
    if (!status)
        status = offload_wait_copies(offload);
    if (status)
        *is_shown_out = offload_demote(offload, group) == VPMM_OK;
    return status;
}

/* ---- choosing ---- */

/* The one with the most heat that is not promoted, or with the least that is; 0: none. */
static uint32_t pick(struct vpmm_offload *offload, bool is_promoted)
{
    uint32_t picked = 0;
    for (uint32_t i = 1; i <= offload->n_groups; i++) {
        const struct offload_group *group = offload_group(offload, i);
        const struct offload_group *best = picked ? offload_group(offload, picked) : NULL;
        if (group->kind != VPMM_OFFLOAD_DIRECT || group->is_promoted != is_promoted ||
            bytes_of(offload, group) > offload->promote_room_bytes)
            continue;
        if (!best || (is_promoted ? group->heat < best->heat : group->heat > best->heat))
            picked = i;
    }
    return picked;
}

/* Makes room for a group that is used twice as much as the one that goes. */
static enum vpmm_status make_room(struct vpmm_offload *offload, const struct offload_group *hot,
                                  bool *has_room_out, bool *is_shown_out)
{
    const vpmm_atomic64 *promoted = &offload->figures->promoted_bytes;
    enum vpmm_status status = VPMM_OK;
    *is_shown_out = true;
    while (!status &&
           vpmm_atomic_load(promoted) + bytes_of(offload, hot) > offload->promote_room_bytes) {
        uint32_t cold = pick(offload, true);
        *has_room_out = cold && 2 * offload_group(offload, cold)->heat < hot->heat;
        if (!*has_room_out)
            return VPMM_OK;
        status = offload_demote(offload, offload_group(offload, cold));
        *is_shown_out = !status;
        vpmm_atomic_add(&offload->figures->demotions, !status);
    }
    *has_room_out = !status;
    return status;
}

/* Whether there is something to move: then, and only then, the device is waited for. */
static bool has_move(struct vpmm_offload *offload, uint32_t *hot_out)
{
    *hot_out = pick(offload, false);
    if (!*hot_out || offload_group(offload, *hot_out)->heat < HOT_PASSES)
        return false;
    const struct offload_group *hot = offload_group(offload, *hot_out);
    uint64_t promoted = vpmm_atomic_load(&offload->figures->promoted_bytes);
    uint32_t cold = pick(offload, true);
    return promoted + bytes_of(offload, hot) <= offload->promote_room_bytes ||
           (cold && 2 * offload_group(offload, cold)->heat < hot->heat);
}

static void move(struct vpmm_offload *offload)
{
    uint32_t hot;
    bool has_room, is_shown = true;
    if (!has_move(offload, &hot) || offload_wait_context(offload))
        return;
    for (unsigned i = 0; i < MOVES_MAX && has_move(offload, &hot); i++) {
        struct offload_group *group = offload_group(offload, hot);
        enum vpmm_status status = make_room(offload, group, &has_room, &is_shown);
        if (!status && has_room)
            status = promote(offload, group, &is_shown);
        if (!is_shown)
            offload_abandon(offload);
        if (status || !has_room)
            return;
        vpmm_atomic_add(&offload->figures->promotions, 1);
    }
}

void offload_settle_heat(struct vpmm_offload *offload)
{
    if (!offload->params.promote_bytes || !offload_may_change(offload) ||
        ++offload->passes_unlooked < LOOK_PASSES)
        return;
    offload->passes_unlooked = 0;
    move(offload);
    for (uint32_t i = 1; i <= offload->n_groups; i++)
        offload_group(offload, i)->heat /= 2;
}
