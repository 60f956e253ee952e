/* SPDX-License-Identifier: MIT */
/* Device memory of an object, and the windows that show it. Must not hold more than the budget at
 * any moment: what goes is given back before what comes is taken. */
#include "offload/offload_internal.h"

static void count_call(struct vpmm_offload *offload)
{
    vpmm_atomic_add(&offload->figures->vmm_calls, 1);
}

/* ---- extents ---- */

static void note_held(struct vpmm_offload *offload, uint64_t held)
{
    vpmm_atomic_store(&offload->figures->held_bytes, held);
    if (held > vpmm_atomic_load(&offload->figures->held_peak_bytes))
        vpmm_atomic_store(&offload->figures->held_peak_bytes, held);
}

/* BELOW_FLOOR: more than the budget; LIMITED: the ledger refuses; NO_MEMORY, the driver's. */
enum vpmm_status offload_extent_take(struct vpmm_offload *offload, uint64_t bytes,
                                     vpmm_extent_handle *extent_out)
{
    const struct vpmm_driver *driver = offload->driver;
    const struct vpmm_offload_ledger *ledger = &offload->params.ledger;
    uint64_t held = vpmm_atomic_load(&offload->figures->held_bytes);
    if (bytes > offload->budget_bytes || held > offload->budget_bytes - bytes)
        return VPMM_BELOW_FLOOR;
    if (ledger->take && !ledger->take(ledger->self, offload->params.device, bytes))
        return offload_tell(offload, VPMM_LIMITED,
                            "device memory: VPMM_LIMIT leaves too little of it", (char *)NULL);
    count_call(offload);
    enum vpmm_status status =
        driver->extent_create(driver->self, offload->params.device, bytes, extent_out);
    if (status == VPMM_NO_MEMORY && ledger->relieve &&
        ledger->relieve(ledger->self, offload->params.device, bytes))
        status = driver->extent_create(driver->self, offload->params.device, bytes, extent_out);
    if (status) {
        if (ledger->take)
            ledger->give(ledger->self, offload->params.device, bytes);
        return offload_tell_status(offload, status, "device memory for weights");
    }
    note_held(offload, held + bytes);
    return VPMM_OK;
}

void offload_extent_give(struct vpmm_offload *offload, vpmm_extent_handle extent, uint64_t bytes)
{
    const struct vpmm_driver *driver = offload->driver;
    const struct vpmm_offload_ledger *ledger = &offload->params.ledger;
    count_call(offload);
    (void)driver->extent_release(driver->self, extent);
    if (ledger->take)
        ledger->give(ledger->self, offload->params.device, bytes);
    note_held(offload, vpmm_atomic_load(&offload->figures->held_bytes) - bytes);
}

/* ---- windows ---- */

static uint64_t window_bytes(const struct vpmm_offload *offload, const struct offload_group *group)
{
    return group->n_chunks * offload->chunk_bytes;
}

static enum vpmm_status map_slots(struct vpmm_offload *offload, struct offload_group *group,
                                  uint64_t *n_mapped_out)
{
    const struct vpmm_driver *driver = offload->driver;
    const uint32_t *slots = offload_chunk_slots(offload, group);
    enum vpmm_status status = VPMM_OK;
    for (*n_mapped_out = 0; !status && *n_mapped_out < group->n_chunks;) {
        count_call(offload);
        status =
            driver->map(driver->self, group->address + *n_mapped_out * offload->chunk_bytes,
                        offload->chunk_bytes, offload_slots(offload)[slots[*n_mapped_out]].extent);
        *n_mapped_out += !status;
    }
    return status;
}

enum vpmm_status offload_window_map(struct vpmm_offload *offload, struct offload_group *group)
{
    const struct vpmm_driver *driver = offload->driver;
    uint64_t n_mapped = 0;
    enum vpmm_status status;
    count_call(offload);
    if (group->has_extent) {
        status =
            driver->map(driver->self, group->address, window_bytes(offload, group), group->extent);
        n_mapped = status ? 0 : group->n_chunks;
    } else {
        status = map_slots(offload, group, &n_mapped);
    }
    if (!status)
        status = driver->set_access(driver->self, group->address, window_bytes(offload, group),
                                    &offload->params.device, 1);
    if (status && n_mapped)
        (void)driver->unmap(driver->self, group->address, n_mapped * offload->chunk_bytes);
    group->is_mapped = !status;
    return status ? offload_tell_status(offload, status, offload_group_name(offload, group))
                  : VPMM_OK;
}

enum vpmm_status offload_window_unmap(struct vpmm_offload *offload, struct offload_group *group)
{
    const struct vpmm_driver *driver = offload->driver;
    if (!group->is_mapped)
        return VPMM_OK;
    count_call(offload);
    enum vpmm_status status =
        driver->unmap(driver->self, group->address, window_bytes(offload, group));
    if (status)
        return offload_tell_status(offload, status, offload_group_name(offload, group));
    group->is_mapped = group->is_loaded = group->has_arrived = false;
    return VPMM_OK;
}

/* ---- groups with memory of their own ---- */

/* Host memory counts against the host's room. */
static enum vpmm_status host_extent_take(struct vpmm_offload *offload, uint64_t bytes,
                                         vpmm_extent_handle *extent_out)
{
    const struct vpmm_driver *driver = offload->driver;
    enum vpmm_status status = offload_host_charge(offload, bytes);
    if (status)
        return status;
    count_call(offload);
    status = driver->extent_create_host(driver->self, offload->params.device, bytes, extent_out);
    if (!status) {
        vpmm_atomic_add(&offload->figures->direct_bytes, bytes);
        return VPMM_OK;
    }
    offload_host_refund(offload, bytes);
    (void)offload_tell_status(offload, status, "host memory for a direct window");
    return status == VPMM_NO_MEMORY ? VPMM_NO_HOST_ROOM : status;
}

static void host_extent_give(struct vpmm_offload *offload, vpmm_extent_handle extent,
                             uint64_t bytes)
{
    count_call(offload);
    (void)offload->driver->extent_release(offload->driver->self, extent);
    offload_host_refund(offload, bytes);
    vpmm_atomic_sub(&offload->figures->direct_bytes, bytes);
}

enum vpmm_status offload_group_house(struct vpmm_offload *offload, struct offload_group *group)
{
    uint64_t bytes = window_bytes(offload, group);
    bool is_direct = group->kind == VPMM_OFFLOAD_DIRECT;
    enum vpmm_status status = is_direct ? host_extent_take(offload, bytes, &group->extent)
                                        : offload_extent_take(offload, bytes, &group->extent);
    if (status)
        return status;
    group->has_extent = true;
    status = offload_window_map(offload, group);
    if (!status) {
        group->is_resident = true;
        if (!is_direct)
            vpmm_atomic_add(&offload->figures->resident_bytes, bytes);
        return VPMM_OK;
    }
    group->has_extent = false;
    if (is_direct)
        host_extent_give(offload, group->extent, bytes);
    else
        offload_extent_give(offload, group->extent, bytes);
    return status;
}

enum vpmm_status offload_group_evict(struct vpmm_offload *offload, struct offload_group *group)
{
    uint64_t bytes = window_bytes(offload, group);
    enum vpmm_status status = offload_window_unmap(offload, group);
    if (status || !group->has_extent)
        return status;
    if (group->is_promoted)
        offload_group_unpromote(offload, group);
    if (group->kind == VPMM_OFFLOAD_DIRECT) {
        host_extent_give(offload, group->extent, bytes);
    } else {
        offload_extent_give(offload, group->extent, bytes);
        vpmm_atomic_sub(&offload->figures->resident_bytes, bytes);
    }
    group->has_extent = group->is_resident = false;
    return VPMM_OK;
}

void offload_group_promote(struct vpmm_offload *offload, struct offload_group *group,
                           vpmm_extent_handle extent)
{
    group->host_extent = group->extent;
    group->extent = extent;
    group->is_promoted = true;
    vpmm_atomic_add(&offload->figures->promoted_bytes, window_bytes(offload, group));
}

void offload_group_unpromote(struct vpmm_offload *offload, struct offload_group *group)
{
    offload_extent_give(offload, group->extent, window_bytes(offload, group));
    group->extent = group->host_extent;
    group->is_promoted = false;
    vpmm_atomic_sub(&offload->figures->promoted_bytes, window_bytes(offload, group));
}

/* ---- the ring ---- */

enum vpmm_status offload_ring_resize(struct vpmm_offload *offload, uint32_t n_slots)
{
    struct offload_slot *slots = offload_slots(offload);
    enum vpmm_status status = VPMM_OK;
    while (offload->n_slots > n_slots)
        offload_extent_give(offload, slots[--offload->n_slots].extent, offload->chunk_bytes);
    while (!status && offload->n_slots < n_slots) {
        status =
            offload_extent_take(offload, offload->chunk_bytes, &slots[offload->n_slots].extent);
        slots[offload->n_slots].owner = 0;
        offload->n_slots += !status;
    }
    vpmm_atomic_store(&offload->figures->ring_bytes, offload->n_slots * offload->chunk_bytes);
    return status;
}
