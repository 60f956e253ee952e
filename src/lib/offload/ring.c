/* SPDX-License-Identifier: MIT */
/* Passes of a known order: loads run ahead of the uses as far as slots are free, and events keep
 * both apart. Must not map, allocate or wait on the host.
 *
 * Every end of a use lets the stream of copies wait for that use, at once. So a slot whose owner is
 * neither in use nor expected may be overwritten by whatever that stream is given from then on. */
#include "offload/offload_internal.h"

/* ---- loading ---- */

static bool is_free(struct vpmm_offload *offload, uint32_t slot, uint32_t for_group)
{
    uint32_t owner = offload_slots(offload)[slot].owner;
    const struct offload_group *group = owner ? offload_group(offload, owner) : NULL;
    return !group || owner == for_group || (!group->in_use && !group->expected);
}

/* Takes the group's slots from chunk `first` on, as far as they are free; where that ends. */
static uint64_t claim(struct vpmm_offload *offload, uint32_t number, uint64_t first)
{
    struct offload_group *group = offload_group(offload, number);
    const uint32_t *slots = offload_chunk_slots(offload, group);
    uint64_t c = first;
    for (; c < group->n_chunks && is_free(offload, slots[c], number); c++) {
        uint32_t *owner = &offload_slots(offload)[slots[c]].owner;
        struct offload_group *other = *owner ? offload_group(offload, *owner) : group;
        if (other != group && other->is_loaded) {
            other->is_loaded = false;
            vpmm_atomic_add(&offload->figures->evictions, 1);
            offload_tell_watch(offload, VPMM_WATCH_WEIGHTS_EVICT, other->address, other->bytes);
        }
        *owner = number;
    }
    return c;
}

/* The next load, as far as it can be queued. `*is_whole_out`: all of it was. */
static enum vpmm_status load_next(struct vpmm_offload *offload, uint32_t number, bool *is_whole_out)
{
    const struct vpmm_driver *driver = offload->driver;
    struct offload_group *group = offload_group(offload, number);
    *is_whole_out = true;
    if (group->is_resident)
        return VPMM_OK;
    if (group->is_loaded) {
        group->is_copied = group->expected && group->is_copied;
        group->expected++;
        return VPMM_OK;
    }
    uint64_t end = claim(offload, number, offload->load_chunk);
    struct offload_span *span = offload_times_copy(offload, end - offload->load_chunk);
    enum vpmm_status status = offload_copy(offload, group, offload->load_chunk, end);
    if (status) {
        offload_times_drop(offload);
        return status;
    }
    offload_times_copied(offload, span);
    offload->load_chunk = end;
    *is_whole_out = end == group->n_chunks;
    if (!*is_whole_out)
        return VPMM_OK;
    status = driver->event_record(driver->self, group->arrived, offload->copies);
    if (status)
        return status;
    offload_tell_watch(offload, VPMM_WATCH_WEIGHTS_LOAD, group->address, group->bytes);
    group->is_loaded = group->is_copied = true;
    group->has_arrived = false;
    group->expected++;
    return VPMM_OK;
}

enum vpmm_status offload_pump(struct vpmm_offload *offload)
{
    if (!offload->is_planned || !offload->n_slots || offload->is_wild)
        return VPMM_OK;
    while (offload->load_step < 2 * offload->n_steps) {
        uint32_t number = offload_steps(offload)[offload->load_step % offload->n_steps].item;
        bool is_whole;
        enum vpmm_status status = load_next(offload, number, &is_whole);
        if (status)
            return offload_tell_status(offload, status,
                                       offload_group_name(offload, offload_group(offload, number)));
        if (!is_whole)
            return VPMM_OK;
        offload->load_step++;
        offload->load_chunk = 0;
    }
    return VPMM_OK;
}

void offload_ring_restart(struct vpmm_offload *offload)
{
    for (uint32_t i = 1; i <= offload->n_groups; i++)
        offload_group(offload, i)->expected = 0;
    offload->load_step = 0;
    offload->load_chunk = 0;
}

void offload_ring_forget(struct vpmm_offload *offload)
{
    for (uint32_t i = 1; i <= offload->n_groups; i++) {
        struct offload_group *group = offload_group(offload, i);
        if (!group->is_resident && !group->expected)
            group->is_loaded = false;
        group->has_arrived = group->is_loaded;
    }
}

/* ---- using ---- */

enum vpmm_status offload_await(struct vpmm_offload *offload, struct offload_group *group,
                               vpmm_stream_handle stream)
{
    const struct vpmm_driver *driver = offload->driver;
    int mode;
    if (group->has_arrived)
        return VPMM_OK;
    if (!offload->is_capturing && !driver->capture_relax(driver->self, &mode)) {
        group->has_arrived = driver->event_query(driver->self, group->arrived) == VPMM_OK;
        driver->capture_restore(driver->self, mode);
        if (group->has_arrived)
            return VPMM_OK;
        vpmm_atomic_add(&offload->figures->late, group->is_copied);
    }
    struct offload_span *stall = group->is_copied ? offload_times_stall(offload, stream) : NULL;
    enum vpmm_status status = driver->stream_wait(driver->self, stream, group->arrived);
    offload_times_resume(offload, stall, stream);
    return status ? offload_tell_status(offload, status, offload_group_name(offload, group))
                  : VPMM_OK;
}

void offload_note_use(struct vpmm_offload *offload, struct offload_group *group)
{
    bool is_hit = group->is_resident || !group->is_copied;
    vpmm_atomic_add(is_hit ? &offload->figures->hits : &offload->figures->misses, 1);
    group->is_copied = false;
    group->in_use++;
    group->used_at = ++offload->n_uses;
    offload->n_in_use++;
}

enum vpmm_status offload_tell_order(struct vpmm_offload *offload, uint32_t number)
{
    const struct offload_group *group = offload_group(offload, number);
    bool is_over = offload->next_use >= offload->n_steps;
    const char *expected =
        is_over
            ? "the end of the pass"
            : offload_group_name(
                  offload, offload_group(offload, offload_steps(offload)[offload->next_use].item));
    return offload_tell(offload, VPMM_OUT_OF_ORDER, offload_group_name(offload, group),
                        ": it is used where the recorded order has ", expected, (char *)NULL);
}

/* Out of order: what was loaded ahead is not expected any more. */
static void go_wild(struct vpmm_offload *offload)
{
    offload_ring_restart(offload);
    offload->is_wild = true;
}

/* In its own slots, whatever lies there, unless that is in use. */
static enum vpmm_status load_wild(struct vpmm_offload *offload, uint32_t number)
{
    struct offload_group *group = offload_group(offload, number);
    if (group->is_resident || group->is_loaded)
        return VPMM_OK;
    if (claim(offload, number, 0) < group->n_chunks)
        return offload_tell(offload, VPMM_BELOW_FLOOR, offload_group_name(offload, group),
                            ": its place is in use by another group", (char *)NULL);
    enum vpmm_status status = offload_load(offload, group);
    group->is_copied = !status;
    return status;
}

static enum vpmm_status load_in_order(struct vpmm_offload *offload, uint32_t number)
{
    if (offload->load_step > offload->next_use)
        return VPMM_OK;
    enum vpmm_status status = offload_pump(offload);
    if (status || offload->load_step > offload->next_use)
        return status;
    return offload_tell(
        offload, VPMM_OUT_OF_ORDER, offload_group_name(offload, offload_group(offload, number)),
        ": more groups are in use together than in the recorded pass", (char *)NULL);
}

static enum vpmm_status check_order(struct vpmm_offload *offload, uint32_t number)
{
    if (!offload->n_slots || offload->is_wild ||
        (offload->next_use < offload->n_steps &&
         offload_steps(offload)[offload->next_use].item == number))
        return VPMM_OK;
    vpmm_atomic_add(&offload->figures->divergences, 1);
    if (!offload->params.follows || offload->is_capturing)
        return offload_tell_order(offload, number);
    go_wild(offload);
    return VPMM_OK;
}

enum vpmm_status offload_ring_use(struct vpmm_offload *offload, uint32_t number,
                                  vpmm_stream_handle stream)
{
    struct offload_group *group = offload_group(offload, number);
    enum vpmm_status status = check_order(offload, number);
    if (!status && offload->n_slots)
        status = offload->is_wild ? load_wild(offload, number) : load_in_order(offload, number);
    if (!status)
        status = offload_await(offload, group, stream);
    if (status)
        return status;
    if (group->expected)
        group->expected--;
    offload_note_use(offload, group);
    offload->next_use++;
    return VPMM_OK;
}
