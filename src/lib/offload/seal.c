/* SPDX-License-Identifier: MIT */
/* From weights to passes, and from one budget to another. Must not leave half of a change: it is
 * undone, or nothing is held. */
#include "offload/offload_internal.h"

static enum vpmm_status check_weights(struct vpmm_offload *offload, bool *has_staged_out)
{
    *has_staged_out = false;
    if (!offload->n_weights)
        return offload_tell(offload, VPMM_INVALID, "there are no weights", (char *)NULL);
    for (uint32_t i = 1; i <= offload->n_weights; i++) {
        const struct offload_weight *weight = offload_weight(offload, i);
        if (!weight->host && weight->descriptor < 0)
            return offload_tell(offload, VPMM_INVALID, weight->name,
                                ": it has neither a file nor host memory", (char *)NULL);
        *has_staged_out |= !weight->host;
    }
    return VPMM_OK;
}

/* What groups have for life: their part of the table of slots, and an event. */
static enum vpmm_status furnish_groups(struct vpmm_offload *offload)
{
    const struct vpmm_driver *driver = offload->driver;
    uint64_t n_chunks = 0;
    enum vpmm_status status = VPMM_OK;
    for (uint32_t i = 1; !status && i <= offload->n_groups; i++) {
        struct offload_group *group = offload_group(offload, i);
        group->first_chunk = n_chunks;
        n_chunks += group->n_chunks;
        if (!group->arrived)
            status = driver->event_create(driver->self, offload->params.context, &group->arrived);
    }
    if (status)
        return offload_tell_status(offload, status, "an event for each group");
    return offload_array_grow(offload, &offload->chunk_slot_array, n_chunks * sizeof(uint32_t));
}

static void note_arrivals(struct vpmm_offload *offload)
{
    for (uint32_t i = 1; i <= offload->n_groups; i++)
        offload_group(offload, i)->has_arrived = offload_group(offload, i)->is_loaded;
}

static enum vpmm_status seal(struct vpmm_offload *offload)
{
    bool has_staged;
    enum vpmm_status status = check_weights(offload, &has_staged);
    if (!status && has_staged)
        status = offload_stages_make(offload);
    if (!status)
        status = furnish_groups(offload);
    if (!status)
        status = offload_arrange(offload, offload->params.budget_bytes);
    if (!status)
        status = offload_wait_copies(offload);
    if (!status)
        note_arrivals(offload);
    return status;
}

enum vpmm_status vpmm_offload_seal(struct vpmm_offload *offload, struct vpmm_offload_need *need_out)
{
    if (offload->phase != OFFLOAD_SETTING_UP)
        return offload_tell(offload, VPMM_INVALID, "it is sealed already", (char *)NULL);
    enum vpmm_status status = seal(offload);
    if (!status)
        offload->phase = OFFLOAD_READY;
    else
        offload_abandon(offload);
    offload->need.host_bytes = offload->host_pinned_bytes;
    if (need_out)
        *need_out = offload->need;
    return status;
}

/* ---- another budget ---- */

enum vpmm_status offload_change(struct vpmm_offload *offload, uint64_t budget_bytes)
{
    uint64_t old_bytes = offload->budget_bytes;
    enum vpmm_status status = offload_arrange(offload, budget_bytes);
    if (status && !offload->is_torn)
        return status;
    if (status && offload_arrange(offload, old_bytes)) {
        offload_abandon(offload);
        offload->budget_bytes = old_bytes;
        vpmm_atomic_store(&offload->figures->budget_bytes, old_bytes);
    }
    return status;
}

static enum vpmm_status take(struct vpmm_offload *offload, uint64_t budget_bytes)
{
    enum vpmm_status status = offload_change(offload, budget_bytes);
    if (!status) {
        offload->params.budget_bytes = budget_bytes;
        offload->quiet_wanted = 0;
    }
    return status;
}

enum vpmm_status vpmm_offload_budget(struct vpmm_offload *offload, uint64_t budget_bytes,
                                     struct vpmm_offload_need *need_out)
{
    if (offload->phase == OFFLOAD_SETTING_UP)
        return offload_tell(offload, VPMM_INVALID, "it is not sealed yet", (char *)NULL);
    if (offload->phase == OFFLOAD_IN_PASS)
        return offload_tell(offload, VPMM_OCCUPIED, "the budget changes between passes",
                            (char *)NULL);
    enum vpmm_status status = offload_measure(offload, budget_bytes);
    if (need_out)
        *need_out = offload->need;
    if (status)
        return status;
    if (offload->is_frozen && budget_bytes < offload->budget_bytes)
        return offload_tell(offload, VPMM_CAPTURED,
                            "graphs of captured passes need what is held: thaw first",
                            (char *)NULL);
    offload->is_wide = false; /* the new plan is judged anew */
    if (offload->is_frozen) {
        offload->due_bytes = budget_bytes;
        return VPMM_OK;
    }
    return take(offload, budget_bytes);
}

/* From here on memory moves without a look at graphs: those that were launched must be over. */
enum vpmm_status vpmm_offload_thaw(struct vpmm_offload *offload)
{
    if (offload->phase != OFFLOAD_READY)
        return offload_tell(offload, VPMM_OCCUPIED, "thaw between passes", (char *)NULL);
    enum vpmm_status status = offload->is_frozen ? offload_wait_context(offload) : VPMM_OK;
    if (status)
        return status;
    offload->is_frozen = false;
    uint64_t due_bytes = offload->due_bytes;
    offload->due_bytes = 0;
    return due_bytes ? take(offload, due_bytes) : VPMM_OK;
}
