/* SPDX-License-Identifier: MIT */
/* Makes and ends the state of both sides, and makes handles of blocks. Must not start the thread or
 * open a socket before the first block is exported. */
#include "ipc/ipc_internal.h"

#include <unistd.h>

enum vpmm_status vpmm_ipc_create(const struct vpmm_driver *driver, const struct vpmm_memory *memory,
                                 const struct vpmm_ipc_lender *lender, uint32_t (*user)(void),
                                 struct vpmm_ipc **ipc_out)
{
    struct vpmm_ipc *ipc = memory->map(memory->self, sizeof *ipc);
    if (!ipc)
        return VPMM_NO_METADATA;
    ipc->driver = driver;
    ipc->memory = memory;
    ipc->lender = *lender;
    ipc->user = user;
    vpmm_lock_init(&ipc->lock, VPMM_RANK_IPC);
    vpmm_condition_init(&ipc->changed);
    *ipc_out = ipc;
    return VPMM_OK;
}

static void close_peers(struct vpmm_ipc *ipc)
{
    for (uint32_t i = 0; i < VPMM_IPC_PEERS_MAX; i++)
        if (ipc->peers[i].n && ipc->peers[i].socket >= 0)
            (void)close(ipc->peers[i].socket);
}

void vpmm_ipc_destroy(struct vpmm_ipc *ipc)
{
    if (!ipc)
        return;
    vpmm_ipc_server_finish(ipc);
    close_peers(ipc);
    vpmm_condition_finish(&ipc->changed);
    vpmm_lock_finish(&ipc->lock);
    ipc->memory->unmap(ipc->memory->self, ipc, sizeof *ipc);
}

void vpmm_ipc_abandon(struct vpmm_ipc *ipc)
{
    if (!ipc)
        return;
    struct vpmm_ipc_server *server = atomic_load(&ipc->server);
    if (server)
        vpmm_ipc_server_abandon(server);
    close_peers(ipc);
}

void vpmm_ipc_end(struct vpmm_ipc *ipc)
{
    if (ipc)
        vpmm_atomic_store(&ipc->is_ended, 1);
}

enum vpmm_status vpmm_ipc_export(struct vpmm_ipc *ipc, const struct vpmm_ipc_block *block,
                                 unsigned char handle_out[VPMM_IPC_HANDLE_BYTES])
{
    struct vpmm_ipc_name name = {.process = (uint32_t)getpid(), .block = *block};
    vpmm_lock_take(&ipc->lock);
    enum vpmm_status status = vpmm_ipc_serve(ipc);
    vpmm_lock_give(&ipc->lock);
    if (status)
        return status;
    name.door = ipc->door;
    vpmm_ipc_seal_make(ipc->key, block, name.seal);
    vpmm_ipc_name_write(&name, handle_out);
    return VPMM_OK;
}
