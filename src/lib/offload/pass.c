/* SPDX-License-Identifier: MIT */
/* A pass from its begin to its end. Must not let a pass begin on what a broken one left. */
#include "offload/offload_internal.h"

/* ---- begin ---- */

/* After a pass that left groups in use, only the end of all work tells that they are not read. What
 * it loaded may be part of a graph that is never launched. */
static enum vpmm_status recover(struct vpmm_offload *offload)
{
    enum vpmm_status status = offload->is_lost ? offload_wait_context(offload) : VPMM_OK;
    if (status)
        return status;
    if (offload->is_lost) {
        for (uint32_t i = 1; i <= offload->n_groups; i++)
            offload_group(offload, i)->in_use = 0;
        offload->n_in_use = 0;
        offload_ring_restart(offload);
        offload_ring_forget(offload);
        offload->is_lost = false;
    }
    if (offload->is_dismantled) {
        status = offload_arrange(offload, offload->budget_bytes);
        if (status)
            offload_abandon(offload);
    }
    return status;
}

static bool is_staged(struct vpmm_offload *offload)
{
    return offload->stages[0].memory != NULL;
}

/* A graph is launched when the device is as it was at its capture: what the first steps need is
 * loaded, and nothing else can be relied on. */
static enum vpmm_status begin_capture(struct vpmm_offload *offload, vpmm_stream_handle stream)
{
    enum vpmm_status status = offload_wait_copies(offload);
    if (status)
        return status;
    offload_ring_forget(offload);
    offload->captured_step = offload->load_step;
    offload->captured_chunk = offload->load_chunk;
    status = offload_follow(offload, offload->copies, stream);
    return status ? offload_tell_status(offload, status, "capturing a pass") : VPMM_OK;
}

/* Graphs that were launched may still read what the pass is to overwrite. */
static enum vpmm_status load_first(struct vpmm_offload *offload, vpmm_stream_handle stream,
                                   bool is_capturing)
{
    enum vpmm_status status = VPMM_OK;
    if (offload->is_frozen && !is_capturing)
        status = offload_follow(offload, offload->copies, stream);
    if (status)
        return offload_tell_status(offload, status, "loads behind graphs");
    status = offload_pump(offload);
    return !status && is_capturing ? begin_capture(offload, stream) : status;
}

/* Where nothing is streamed, uses need not be told. */
static enum vpmm_status await_residents(struct vpmm_offload *offload, vpmm_stream_handle stream)
{
    enum vpmm_status status = VPMM_OK;
    bool is_whole = offload->is_planned && !offload->n_slots;
    for (uint32_t i = 1; is_whole && !status && i <= offload->n_groups; i++)
        if (offload_group(offload, i)->is_resident)
            status = offload_await(offload, offload_group(offload, i), stream);
    return status;
}

enum vpmm_status vpmm_offload_begin(struct vpmm_offload *offload, vpmm_stream_handle stream)
{
    struct vpmm_stream_facts facts;
    if (offload->phase != OFFLOAD_READY)
        return offload_tell(offload,
                            offload->phase == OFFLOAD_IN_PASS ? VPMM_OCCUPIED : VPMM_INVALID,
                            "a pass is under way, or there was no seal", (char *)NULL);
    enum vpmm_status status = offload->driver->stream_facts(offload->driver->self, stream, &facts);
    if (status)
        return offload_tell_status(offload, status, "the stream of a pass");
    status = recover(offload);
    if (status)
        return status;
    if (facts.is_capturing && (!offload->is_planned || is_staged(offload)))
        return offload_tell(offload, VPMM_CAPTURED,
                            is_staged(offload)
                                ? "weights that are read from a file cannot be captured"
                                : "the first pass is recorded, and cannot be captured",
                            (char *)NULL);
    offload->is_wild = offload->has_failed = false;
    status = load_first(offload, stream, facts.is_capturing);
    if (status)
        return status;
    offload->is_capturing = facts.is_capturing;
    status = await_residents(offload, stream);
    if (status)
        return status;
    offload_times_begin(offload, stream);
    offload->next_use = 0;
    offload->n_begun++;
    offload->begun_bytes = vpmm_atomic_load(&offload->figures->copied_bytes);
    if (!offload->has_order)
        offload->n_steps = 0;
    offload->phase = OFFLOAD_IN_PASS;
    return VPMM_OK;
}

/* ---- uses ---- */

/* NULL: it is not one of a pass under way. `*is_idle_out`: nothing is to be done for it. */
static struct offload_group *find(struct vpmm_offload *offload, uint32_t group, bool *is_idle_out)
{
    if (offload->phase != OFFLOAD_IN_PASS || group >= offload->n_groups)
        return NULL;
    struct offload_group *found = offload_group(offload, group + 1);
    *is_idle_out = found->kind != VPMM_OFFLOAD_STREAMED;
    return found;
}

enum vpmm_status vpmm_offload_use(struct vpmm_offload *offload, uint32_t number,
                                  vpmm_stream_handle stream)
{
    bool is_idle;
    struct offload_group *group = find(offload, number, &is_idle);
    if (!group)
        return offload_tell(offload, VPMM_INVALID, "no such group, or no pass", (char *)NULL);
    if (is_idle) {
        offload_note_heat(offload, group);
        return VPMM_OK;
    }
    enum vpmm_status status = offload->is_planned ? offload_ring_use(offload, number + 1, stream)
                                                  : offload_record_use(offload, number + 1, stream);
    offload->has_failed |= status != VPMM_OK;
    if (status)
        offload_times_drop(offload);
    return status;
}

/* A load that fails here is made by the use that needs it, which tells. */
enum vpmm_status vpmm_offload_done(struct vpmm_offload *offload, uint32_t number,
                                   vpmm_stream_handle stream)
{
    bool is_idle;
    struct offload_group *group = find(offload, number, &is_idle);
    if (!group)
        return offload_tell(offload, VPMM_INVALID, "no such group, or no pass", (char *)NULL);
    if (group->is_promoted)
        offload_note_done(offload, stream);
    if (is_idle)
        return VPMM_OK;
    if (!group->in_use)
        return offload_tell(offload, VPMM_INVALID, offload_group_name(offload, group),
                            ": it is not in use", (char *)NULL);
    if (group->is_resident) {
        offload_note_done(offload, stream);
    } else {
        enum vpmm_status status = offload_follow(offload, offload->copies, stream);
        if (status)
            return offload_tell_status(offload, status, offload_group_name(offload, group));
    }
    group->in_use--;
    offload->n_in_use--;
    if (!offload->is_planned) {
        enum vpmm_status status = offload_record_done(offload, number + 1);
        offload->has_failed |= status != VPMM_OK;
        return status;
    }
    if (!group->is_resident)
        (void)offload_pump(offload);
    return VPMM_OK;
}

/* ---- end ---- */

/* Loads from here on belong to the next pass. Its begin tries again what fails, but a graph would
 * read other bytes. */
static enum vpmm_status end_planned(struct vpmm_offload *offload, vpmm_stream_handle stream)
{
    bool is_complete = !offload->n_slots || offload->is_wild || offload->params.follows ||
                       offload->next_use == offload->n_steps;
    bool is_ordered =
        offload->n_slots && !offload->is_wild && offload->next_use == offload->n_steps;
    offload->is_wild = false;
    if (!offload->n_slots)
        offload_note_done(offload, stream);
    if (offload->n_slots && !is_ordered)
        offload_times_drop(offload);
    if (is_ordered)
        offload->load_step -= offload->n_steps;
    else
        offload_ring_restart(offload);
    enum vpmm_status status = offload_pump(offload);
    offload_times_end(offload, stream);
    vpmm_atomic_add(&offload->figures->divergences, !is_complete);
    if (status && offload->is_frozen)
        return status;
    if (is_complete)
        return VPMM_OK;
    return offload_tell(offload, VPMM_OUT_OF_ORDER, "the pass ended before the recorded one",
                        (char *)NULL);
}

/* The graph begins where it ends, or its second launch would find other bytes. */
static enum vpmm_status end_capture(struct vpmm_offload *offload)
{
    bool is_cycle = offload->captured_step == offload->load_step &&
                    offload->captured_chunk == offload->load_chunk;
    offload_ring_forget(offload);
    offload->is_capturing = false;
    offload->is_frozen = true;
    vpmm_atomic_add(&offload->figures->captured_passes, 1);
    return is_cycle ? VPMM_OK
                    : offload_tell(offload, VPMM_OUT_OF_ORDER,
                                   "the captured pass does not end as it began", (char *)NULL);
}

static enum vpmm_status end(struct vpmm_offload *offload, vpmm_stream_handle stream)
{
    enum vpmm_status status =
        offload->is_planned ? end_planned(offload, stream) : offload_record_end(offload);
    if (offload->is_capturing || (offload->is_frozen && offload->is_planned)) {
        enum vpmm_status joined = offload_follow(offload, stream, offload->copies);
        status = status ? status : joined;
    }
    if (offload->is_capturing) {
        enum vpmm_status captured = end_capture(offload);
        status = status ? status : captured;
        offload->is_lost = status != VPMM_OK;
    }
    return status;
}

/* The program's capture can end only if the stream of copies has come back to it. */
static void rejoin(struct vpmm_offload *offload, vpmm_stream_handle stream)
{
    enum vpmm_status status = offload_follow(offload, stream, offload->copies);
    if (status)
        (void)offload_tell_status(offload, status, "ending a captured pass");
}

/* As before the pass, for a graph that is launched next. */
static enum vpmm_status reload(struct vpmm_offload *offload, vpmm_stream_handle stream)
{
    enum vpmm_status status = recover(offload);
    if (!status)
        status = offload_pump(offload);
    if (status)
        return status;
    status = offload_follow(offload, stream, offload->copies);
    return status ? offload_tell_status(offload, status, "loads ahead of graphs") : VPMM_OK;
}

static enum vpmm_status end_in_use(struct vpmm_offload *offload, vpmm_stream_handle stream)
{
    bool was_captured = offload->is_capturing;
    enum vpmm_status status = VPMM_OK;
    offload_times_drop(offload);
    if (was_captured)
        rejoin(offload, stream);
    offload->is_capturing = offload->is_wild = false;
    offload->is_lost = true;
    vpmm_atomic_add(&offload->figures->divergences, 1);
    if (offload->is_frozen && !was_captured)
        status = reload(offload, stream);
    return status ? status
                  : offload_tell(offload, VPMM_OUT_OF_ORDER, "the pass ended with groups in use",
                                 (char *)NULL);
}

enum vpmm_status vpmm_offload_cancel(struct vpmm_offload *offload, vpmm_stream_handle stream)
{
    offload->has_failed = true;
    enum vpmm_status status = vpmm_offload_end(offload, stream);
    return status == VPMM_OUT_OF_ORDER ? VPMM_OK : status;
}

enum vpmm_status vpmm_offload_end(struct vpmm_offload *offload, vpmm_stream_handle stream)
{
    if (offload->phase != OFFLOAD_IN_PASS)
        return offload_tell(offload, VPMM_INVALID, "no pass is under way", (char *)NULL);
    offload->phase = OFFLOAD_READY;
    if (offload->n_in_use)
        return end_in_use(offload, stream);
    enum vpmm_status status = end(offload, stream);
    if (!status) {
        uint64_t copied = vpmm_atomic_load(&offload->figures->copied_bytes);
        vpmm_atomic_add(&offload->figures->passes, 1);
        offload_tell_watch(offload, VPMM_WATCH_WEIGHTS_PASS, offload->n_begun,
                           copied - offload->begun_bytes);
        offload_settle_pressure(offload);
        offload_settle_heat(offload);
        offload_settle_ring(offload);
    }
    return status;
}
