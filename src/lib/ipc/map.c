/* SPDX-License-Identifier: MIT */
/* Maps a block of another process as its extents arrive. Must not trust the sizes and addresses
 * that the exporter sends. */
#include "ipc/ipc_internal.h"

#include <unistd.h>

/* A block while its extents arrive. */
struct arrival {
    struct vpmm_ipc *ipc;
    const struct vpmm_ipc_block *block;
    uint64_t base, start, end; /* where it begins here; where it lies in the exporter */
    uint64_t next;             /* of that what is not mapped yet */
    int owner;                 /* the device whose memory it is; -1: not known yet */
};

static enum vpmm_status map_one(struct arrival *arrival, int descriptor, uint64_t bytes)
{
    const struct vpmm_driver *driver = arrival->ipc->driver;
    vpmm_extent_handle extent;
    if (bytes > arrival->end - arrival->next)
        return VPMM_INVALID;
    enum vpmm_status status =
        driver->extent_import(driver->self, descriptor, &extent, &arrival->owner);
    if (status)
        return status;
    status =
        driver->map(driver->self, arrival->base + (arrival->next - arrival->start), bytes, extent);
    /* Once mapped, the memory lives as long as the mapping. */
    (void)driver->extent_release(driver->self, extent);
    if (!status)
        arrival->next += bytes;
    return status;
}

static enum vpmm_status map_some(struct arrival *arrival, uint32_t peer, uint64_t deadline_ms)
{
    int descriptors[VPMM_IPC_CHUNK];
    size_t n = 0;
    struct vpmm_ipc_reply reply;
    struct vpmm_ipc_request request =
        vpmm_ipc_request_make(VPMM_IPC_EXTENTS, arrival->block, arrival->next, NULL);
    enum vpmm_status status =
        vpmm_ipc_peer_ask(arrival->ipc, peer, &request, deadline_ms, &reply, descriptors, &n);
    if (status)
        return status;
    for (size_t i = 0; i < n; i++) {
        if (!status)
            status = map_one(arrival, descriptors[i], reply.extent_bytes[i]);
        (void)close(descriptors[i]);
    }
    return n ? status : VPMM_NO_METADATA;
}

/* A device that cannot reach the memory must not keep the first from it. */
static enum vpmm_status give_access(const struct arrival *arrival,
                                    const struct vpmm_ipc_opener *opener)
{
    const struct vpmm_driver *driver = arrival->ipc->driver;
    uint64_t bytes = arrival->end - arrival->start;
    int devices[VPMM_DEVICES_MAX];
    int n = opener->devices(opener->self, arrival->owner, devices);
    enum vpmm_status status = driver->set_access(driver->self, arrival->base, bytes, devices, n);
    if (status && n > 1)
        status = driver->set_access(driver->self, arrival->base, bytes, devices, 1);
    return status;
}

enum vpmm_status vpmm_ipc_map(struct vpmm_ipc *ipc, uint32_t peer,
                              const struct vpmm_ipc_block *block,
                              const struct vpmm_ipc_reply *lease,
                              const struct vpmm_ipc_opener *opener, uint64_t deadline_ms,
                              struct vpmm_ipc_mapping *mapping_out)
{
    const struct vpmm_driver *driver = ipc->driver;
    struct arrival arrival = {.ipc = ipc,
                              .block = block,
                              .start = lease->start,
                              .end = lease->end,
                              .next = lease->start,
                              .owner = -1};
    if (!vpmm_ipc_holds(lease->start, lease->end, block))
        return VPMM_INVALID;
    uint64_t bytes = lease->end - lease->start;
    enum vpmm_status status = driver->address_reserve(driver->self, bytes, &arrival.base);
    if (status)
        return status;
    while (!status && arrival.next < arrival.end)
        status = map_some(&arrival, peer, deadline_ms);
    if (!status)
        status = give_access(&arrival, opener);
    if (!status) {
        *mapping_out = (struct vpmm_ipc_mapping){arrival.base, bytes, arrival.owner};
        return VPMM_OK;
    }
    uint64_t mapped_bytes = arrival.next - arrival.start;
    if (!mapped_bytes || !driver->unmap(driver->self, arrival.base, mapped_bytes))
        (void)driver->address_free(driver->self, arrival.base, bytes);
    return status;
}
