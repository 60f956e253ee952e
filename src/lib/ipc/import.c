/* SPDX-License-Identifier: MIT */
/* Opens blocks of other processes, and closes them again. Must not unmap a block before the work
 * that may use it is complete. */
#include "ipc/ipc_internal.h"
#include "ipc/socket.h"

#include <string.h>

bool vpmm_ipc_is_ours(const unsigned char handle[VPMM_IPC_HANDLE_BYTES])
{
    struct vpmm_ipc_name name;
    return vpmm_ipc_name_read(handle, &name) || vpmm_ipc_name_is_foreign(handle);
}

/* ---- opening ---- */

/* With the lock. */
static struct vpmm_ipc_entry *find_open(struct vpmm_ipc *ipc, const struct vpmm_ipc_name *name,
                                        uint64_t context_id)
{
    uint32_t n = vpmm_atomic_load(&ipc->n_entries);
    for (uint32_t i = 0; i < n; i++) {
        struct vpmm_ipc_entry *entry = &ipc->entries[i];
        if (entry->state == VPMM_IPC_OPEN && entry->import.context_id == context_id &&
            memcmp(entry->seal, name->seal, sizeof entry->seal) == 0 &&
            vpmm_ipc_peer_is(&ipc->peers[entry->peer], name))
            return entry;
    }
    return NULL;
}

/* The opening thread alone makes entries: one that is unused stays so. */
static struct vpmm_ipc_entry *unused_entry(struct vpmm_ipc *ipc)
{
    for (uint32_t i = 0; i < VPMM_IPC_IMPORTS_MAX; i++)
        if (ipc->entries[i].state == VPMM_IPC_UNUSED) {
            if (i >= vpmm_atomic_load(&ipc->n_entries))
                vpmm_atomic_store(&ipc->n_entries, i + 1);
            return &ipc->entries[i];
        }
    return NULL;
}

/* The entry is unused, and stays so or becomes owed. */
static enum vpmm_status lease_and_map(struct vpmm_ipc *ipc, const struct vpmm_ipc_name *name,
                                      const struct vpmm_ipc_opener *opener,
                                      struct vpmm_ipc_entry *entry,
                                      struct vpmm_ipc_mapping *mapping_out, uint64_t *start_out)
{
    uint32_t peer;
    uint64_t deadline_ms = vpmm_now_ms() + VPMM_IPC_WAIT_MS;
    struct vpmm_ipc_reply lease;
    enum vpmm_status status = vpmm_ipc_peer_lease(ipc, name, deadline_ms, &peer, &lease);
    if (status)
        return status;
    vpmm_lock_take(&ipc->lock);
    *entry = (struct vpmm_ipc_entry){
        .peer = peer, .connection = ipc->peers[peer].connection, .block = name->block};
    vpmm_lock_give(&ipc->lock);
    status = vpmm_ipc_map(ipc, peer, &name->block, &lease, opener, deadline_ms, mapping_out);
    if (status) {
        vpmm_lock_take(&ipc->lock);
        vpmm_ipc_lease_return(ipc, entry);
        vpmm_lock_give(&ipc->lock);
        return status;
    }
    *start_out = lease.start;
    return VPMM_OK;
}

static uint64_t granule_bytes(const struct vpmm_ipc *ipc, int device)
{
    struct vpmm_device_facts facts;
    bool is_known = !ipc->driver->device_facts(ipc->driver->self, device, &facts);
    return is_known && facts.granularity_bytes ? facts.granularity_bytes : 1;
}

/* By the opening thread, without the lock. */
static enum vpmm_status import(struct vpmm_ipc *ipc, const struct vpmm_ipc_name *name,
                               const struct vpmm_ipc_opener *opener, uint64_t *address_out)
{
    struct vpmm_ipc_mapping mapping;
    uint64_t start;
    vpmm_lock_take(&ipc->lock);
    struct vpmm_ipc_entry *entry = unused_entry(ipc);
    vpmm_lock_give(&ipc->lock);
    if (!entry)
        return VPMM_NO_METADATA;
    enum vpmm_status status = lease_and_map(ipc, name, opener, entry, &mapping, &start);
    if (status)
        return status;
    uint64_t address = mapping.base + (name->block.address - start);
    uint64_t granule = granule_bytes(ipc, mapping.owner);
    vpmm_lock_take(&ipc->lock);
    entry->state = VPMM_IPC_OPEN;
    entry->n = 1;
    entry->mapping = mapping;
    entry->import = (struct vpmm_ipc_import){.address = address,
                                             .bytes = name->block.bytes,
                                             .granule_bytes = granule,
                                             .id = ++ipc->last_id,
                                             .context_id = opener->context_id};
    memcpy(entry->seal, name->seal, sizeof entry->seal);
    vpmm_lock_give(&ipc->lock);
    *address_out = address;
    return VPMM_OK;
}

static bool is_own(struct vpmm_ipc *ipc, const struct vpmm_ipc_name *name)
{
    return atomic_load(&ipc->server) && vpmm_ipc_seal_is(ipc->key, &name->block, name->seal);
}

enum vpmm_status vpmm_ipc_open(struct vpmm_ipc *ipc,
                               const unsigned char handle[VPMM_IPC_HANDLE_BYTES],
                               const struct vpmm_ipc_opener *opener, uint64_t *address_out)
{
    struct vpmm_ipc_name name;
    if (vpmm_ipc_name_is_foreign(handle))
        return VPMM_NOT_SUPPORTED;
    if (!vpmm_ipc_name_read(handle, &name))
        return VPMM_INVALID;
    if (is_own(ipc, &name))
        return VPMM_NO_CONTEXT;
    if (!ipc->driver->extent_import)
        return VPMM_FAILED;
    vpmm_lock_take(&ipc->lock);
    vpmm_ipc_leases_return(ipc);
    struct vpmm_ipc_entry *entry;
    while (!(entry = find_open(ipc, &name, opener->context_id)) && ipc->is_opening)
        vpmm_condition_wait(&ipc->changed, &ipc->lock);
    if (entry) {
        entry->n++;
        *address_out = entry->import.address;
        vpmm_lock_give(&ipc->lock);
        return VPMM_OK;
    }
    ipc->is_opening = true;
    vpmm_lock_give(&ipc->lock);
    enum vpmm_status status = import(ipc, &name, opener, address_out);
    vpmm_lock_take(&ipc->lock);
    ipc->is_opening = false;
    vpmm_condition_broadcast(&ipc->changed);
    vpmm_lock_give(&ipc->lock);
    return status;
}

/* ---- closing ---- */

/* Of an entry that is closing, and so nobody else's. What is still mapped stays leased. The entry
 * is let go before its address space, which may at once be another's. */
static void end(struct vpmm_ipc *ipc, struct vpmm_ipc_entry *entry)
{
    const struct vpmm_driver *driver = ipc->driver;
    const struct vpmm_ipc_mapping mapping = entry->mapping;
    if (driver->unmap(driver->self, mapping.base, mapping.bytes))
        return;
    vpmm_lock_take(&ipc->lock);
    vpmm_ipc_lease_return(ipc, entry);
    vpmm_lock_give(&ipc->lock);
    (void)driver->address_free(driver->self, mapping.base, mapping.bytes);
}

/* With the lock. */
static struct vpmm_ipc_entry *find_at(struct vpmm_ipc *ipc, uint64_t address)
{
    uint32_t n = vpmm_atomic_load(&ipc->n_entries);
    for (uint32_t i = 0; i < n; i++)
        if (ipc->entries[i].state == VPMM_IPC_OPEN && ipc->entries[i].import.address == address)
            return &ipc->entries[i];
    return NULL;
}

typedef enum vpmm_status waiting(void *self, const struct vpmm_ipc_import *import);

/* Of an entry that is closing. What could not be waited for stays mapped, and due. */
static enum vpmm_status end_waiting(struct vpmm_ipc *ipc, struct vpmm_ipc_entry *entry,
                                    waiting *wait, void *self)
{
    enum vpmm_status status = wait(self, &entry->import);
    if (status != VPMM_CAPTURED && status != VPMM_NOT_READY) {
        end(ipc, entry);
        return status;
    }
    vpmm_lock_take(&ipc->lock);
    entry->state = VPMM_IPC_DUE;
    vpmm_lock_give(&ipc->lock);
    return status;
}

/* What earlier closes could not wait for. */
static void end_due(struct vpmm_ipc *ipc, waiting *wait, void *self)
{
    for (uint32_t i = 0; i < vpmm_atomic_load(&ipc->n_entries); i++) {
        struct vpmm_ipc_entry *entry = &ipc->entries[i];
        vpmm_lock_take(&ipc->lock);
        bool is_due = entry->state == VPMM_IPC_DUE;
        if (is_due)
            entry->state = VPMM_IPC_CLOSING;
        vpmm_lock_give(&ipc->lock);
        if (is_due && end_waiting(ipc, entry, wait, self))
            return;
    }
}

enum vpmm_status vpmm_ipc_close(struct vpmm_ipc *ipc, uint64_t address,
                                enum vpmm_status (*wait)(void *self,
                                                         const struct vpmm_ipc_import *import),
                                void *self)
{
    vpmm_lock_take(&ipc->lock);
    vpmm_ipc_leases_return(ipc);
    struct vpmm_ipc_entry *entry = find_at(ipc, address);
    bool is_last = entry && --entry->n == 0;
    if (is_last)
        entry->state = VPMM_IPC_CLOSING;
    vpmm_lock_give(&ipc->lock);
    enum vpmm_status status = entry ? VPMM_OK : VPMM_NOT_FOUND;
    if (is_last)
        status = end_waiting(ipc, entry, wait, self);
    end_due(ipc, wait, self);
    return status == VPMM_CAPTURED || status == VPMM_NOT_READY ? VPMM_OK : status;
}

void vpmm_ipc_context_gone(struct vpmm_ipc *ipc, uint64_t context_id)
{
    for (uint32_t i = 0; i < vpmm_atomic_load(&ipc->n_entries); i++) {
        struct vpmm_ipc_entry *entry = &ipc->entries[i];
        vpmm_lock_take(&ipc->lock);
        bool is_its = (entry->state == VPMM_IPC_OPEN || entry->state == VPMM_IPC_DUE) &&
                      entry->import.context_id == context_id;
        if (is_its)
            entry->state = VPMM_IPC_CLOSING;
        vpmm_lock_give(&ipc->lock);
        if (is_its)
            end(ipc, entry);
    }
}

/* ---- looking ---- */

enum vpmm_ipc_place vpmm_ipc_find(struct vpmm_ipc *ipc, uint64_t address,
                                  struct vpmm_ipc_import *import_out)
{
    enum vpmm_ipc_place place = VPMM_IPC_ELSEWHERE;
    uint32_t n = vpmm_atomic_load(&ipc->n_entries);
    if (n == 0)
        return place;
    vpmm_lock_take(&ipc->lock);
    for (uint32_t i = 0; i < n && place == VPMM_IPC_ELSEWHERE; i++) {
        const struct vpmm_ipc_entry *entry = &ipc->entries[i];
        if (entry->state == VPMM_IPC_UNUSED || entry->state == VPMM_IPC_OWED ||
            address - entry->mapping.base >= entry->mapping.bytes)
            continue;
        place = VPMM_IPC_IN_MAPPING;
        if (entry->state == VPMM_IPC_OPEN &&
            address - entry->import.address < entry->import.bytes) {
            place = VPMM_IPC_IN_BLOCK;
            *import_out = entry->import;
        }
    }
    vpmm_lock_give(&ipc->lock);
    return place;
}
