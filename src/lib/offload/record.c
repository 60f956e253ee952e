/* SPDX-License-Identifier: MIT */
/* Passes of an unknown order, and passes that are checked: windows are mapped when they are used.
 * Must not unmap a window before the work that reads it is over, so it waits on the host. */
#include "offload/offload_internal.h"

static uint64_t count_free(struct vpmm_offload *offload)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < offload->n_slots; i++)
        n += offload_slots(offload)[i].owner == 0;
    return n;
}

static void free_slots(struct vpmm_offload *offload, uint32_t number)
{
    for (uint32_t i = 0; i < offload->n_slots; i++)
        if (offload_slots(offload)[i].owner == number)
            offload_slots(offload)[i].owner = 0;
}

/* The group that was used longest ago, of those that have slots and are not in use; 0: none. */
static uint32_t find_victim(struct vpmm_offload *offload)
{
    uint32_t victim = 0;
    for (uint32_t i = 0; i < offload->n_slots; i++) {
        uint32_t owner = offload_slots(offload)[i].owner;
        if (owner && !offload_group(offload, owner)->in_use &&
            (!victim ||
             offload_group(offload, owner)->used_at < offload_group(offload, victim)->used_at))
            victim = owner;
    }
    return victim;
}

static enum vpmm_status withdraw(struct vpmm_offload *offload, uint32_t number)
{
    enum vpmm_status status = offload_window_unmap(offload, offload_group(offload, number));
    if (!status)
        free_slots(offload, number);
    return status;
}

static enum vpmm_status make_room(struct vpmm_offload *offload, const struct offload_group *group)
{
    bool has_waited = false;
    while (count_free(offload) < group->n_chunks) {
        uint32_t victim = find_victim(offload);
        if (!victim)
            return offload_tell(offload, VPMM_BELOW_FLOOR, offload_group_name(offload, group),
                                ": it and the groups in use together exceed the budget",
                                (char *)NULL);
        enum vpmm_status status = has_waited ? VPMM_OK : offload_wait_copies(offload);
        if (!status)
            status = withdraw(offload, victim);
        if (status)
            return status;
        has_waited = true;
        vpmm_atomic_add(&offload->figures->evictions, 1);
        offload_tell_watch(offload, VPMM_WATCH_WEIGHTS_EVICT,
                           offload_group(offload, victim)->address,
                           offload_group(offload, victim)->bytes);
    }
    return VPMM_OK;
}

static enum vpmm_status place(struct vpmm_offload *offload, uint32_t number)
{
    struct offload_group *group = offload_group(offload, number);
    uint32_t *slots = offload_chunk_slots(offload, group);
    enum vpmm_status status = make_room(offload, group);
    if (status)
        return status;
    uint64_t c = 0;
    for (uint32_t i = 0; c < group->n_chunks; i++) {
        if (offload_slots(offload)[i].owner)
            continue;
        offload_slots(offload)[i].owner = number;
        slots[c++] = i;
    }
    status = offload_window_map(offload, group);
    if (status)
        free_slots(offload, number);
    return status;
}

static enum vpmm_status bring(struct vpmm_offload *offload, uint32_t number)
{
    struct offload_group *group = offload_group(offload, number);
    enum vpmm_status status = group->is_mapped ? VPMM_OK : place(offload, number);
    if (status || group->is_loaded)
        return status;
    status = offload_load(offload, group);
    group->is_copied = !status;
    return status;
}

/* Room for one more step. */
static enum vpmm_status reserve_step(struct vpmm_offload *offload)
{
    return offload_array_grow(offload, &offload->step_array,
                              (offload->n_steps + (size_t)1) * sizeof(struct vpmm_spread_step));
}

static void note_step(struct vpmm_offload *offload, uint32_t number)
{
    struct offload_group *group = offload_group(offload, number);
    offload_steps(offload)[offload->n_steps++] = (struct vpmm_spread_step){.item = number};
    if (!group->in_use)
        group->open_step = offload->n_steps;
}

static enum vpmm_status check_order(struct vpmm_offload *offload, uint32_t number)
{
    if (!offload->has_order)
        return reserve_step(offload);
    if (offload->next_use < offload->n_steps &&
        offload_steps(offload)[offload->next_use].item == number)
        return VPMM_OK;
    vpmm_atomic_add(&offload->figures->divergences, 1);
    return offload->params.follows ? VPMM_OK : offload_tell_order(offload, number);
}

enum vpmm_status offload_record_use(struct vpmm_offload *offload, uint32_t number,
                                    vpmm_stream_handle stream)
{
    struct offload_group *group = offload_group(offload, number);
    enum vpmm_status status = check_order(offload, number);
    if (!status)
        status = bring(offload, number);
    if (!status)
        status = offload_await(offload, group, stream);
    if (status)
        return status;
    if (!offload->has_order)
        note_step(offload, number);
    offload_note_use(offload, group);
    offload->next_use++;
    return VPMM_OK;
}

enum vpmm_status offload_record_done(struct vpmm_offload *offload, uint32_t number)
{
    struct offload_group *group = offload_group(offload, number);
    if (group->in_use)
        return VPMM_OK;
    if (!offload->has_order && group->open_step) {
        uint32_t span = offload->n_steps - group->open_step;
        offload_steps(offload)[group->open_step - 1].span = span;
        group->open_step = 0;
    }
    if (!offload->params.checks || group->is_resident)
        return VPMM_OK;
    enum vpmm_status status = offload_wait_copies(offload);
    return status ? status : withdraw(offload, number);
}

/* From the order that was recorded to the passes that follow it. */
static enum vpmm_status adopt(struct vpmm_offload *offload)
{
    enum vpmm_status status = offload_arrange(offload, offload->budget_bytes);
    if (status)
        offload_abandon(offload);
    return status;
}

enum vpmm_status offload_record_end(struct vpmm_offload *offload)
{
    bool is_complete = !offload->has_order || offload->next_use == offload->n_steps;
    if (!is_complete && !offload->params.follows)
        return offload_tell(offload, VPMM_OUT_OF_ORDER, "the pass ended before the recorded one",
                            (char *)NULL);
    if (!offload->has_order && offload->has_failed)
        return offload_tell(offload, VPMM_OUT_OF_ORDER,
                            "a pass in which a call failed is not recorded", (char *)NULL);
    if (offload->has_order || !offload->n_steps)
        return VPMM_OK;
    offload->has_order = true;
    return offload->params.checks ? VPMM_OK : adopt(offload);
}
