/* SPDX-License-Identifier: MIT */
#include "ipc/internal.h"
#include "ipc/socket.h"

#include <string.h>
#include <unistd.h>

/* With the lock. VPMM_IPC_PEERS_MAX: there is no room. */
static uint32_t find_or_make(struct vpmm_ipc *ipc, const unsigned char *nonce)
{
    uint32_t unused = VPMM_IPC_PEERS_MAX;
    for (uint32_t i = 0; i < VPMM_IPC_PEERS_MAX; i++) {
        const struct vpmm_ipc_peer *peer = &ipc->peers[i];
        if (peer->n && memcmp(peer->nonce, nonce, VPMM_IPC_NONCE_BYTES) == 0)
            return i;
        if (!peer->n && unused == VPMM_IPC_PEERS_MAX)
            unused = i;
    }
    if (unused < VPMM_IPC_PEERS_MAX) {
        ipc->peers[unused].socket = -1;
        memcpy(ipc->peers[unused].nonce, nonce, VPMM_IPC_NONCE_BYTES);
    }
    return unused;
}

/* With the lock; by the opening thread, or where nobody uses the peer: the number of a closed
 * socket may soon be that of another. */
static void lose(struct vpmm_ipc_peer *peer)
{
    if (peer->socket >= 0)
        (void)close(peer->socket);
    peer->socket = -1;
}

static int connect_to(struct vpmm_ipc *ipc, const struct vpmm_ipc_name *name, uint64_t deadline_ms)
{
    int process;
    int socket = vpmm_ipc_connect(name->process, name->nonce, deadline_ms);
    if (socket >= 0 && !vpmm_ipc_peer_is_of(socket, ipc->user_id, &process)) {
        (void)close(socket);
        socket = -1;
    }
    return socket;
}

enum vpmm_status vpmm_ipc_peer_take(struct vpmm_ipc *ipc, const struct vpmm_ipc_name *name,
                                    uint64_t deadline_ms, uint32_t *peer_out)
{
    vpmm_lock_take(&ipc->lock);
    uint32_t number = find_or_make(ipc, name->nonce);
    struct vpmm_ipc_peer *peer = &ipc->peers[number];
    bool is_connected = number < VPMM_IPC_PEERS_MAX && peer->socket >= 0;
    if (number < VPMM_IPC_PEERS_MAX)
        peer->n++;
    vpmm_lock_give(&ipc->lock);
    if (number == VPMM_IPC_PEERS_MAX)
        return VPMM_NO_METADATA;
    int socket = is_connected ? -1 : connect_to(ipc, name, deadline_ms);
    vpmm_lock_take(&ipc->lock);
    if (!is_connected)
        peer->socket = socket;
    bool is_there = peer->socket >= 0;
    if (!is_there)
        peer->n--;
    vpmm_lock_give(&ipc->lock);
    *peer_out = number;
    return is_there ? VPMM_OK : VPMM_NOT_FOUND;
}

enum vpmm_status vpmm_ipc_peer_ask(struct vpmm_ipc *ipc, uint32_t peer,
                                   const struct vpmm_ipc_request *request, uint64_t deadline_ms,
                                   struct vpmm_ipc_reply *reply_out,
                                   int descriptors_out[VPMM_IPC_CHUNK], size_t *n_descriptors_out)
{
    struct vpmm_ipc_peer *exporter = &ipc->peers[peer];
    enum vpmm_status status = VPMM_NOT_FOUND;
    if (vpmm_ipc_send(exporter->socket, request, sizeof *request, NULL, 0))
        status = vpmm_ipc_receive_reply(exporter->socket, deadline_ms, reply_out, descriptors_out,
                                        n_descriptors_out);
    if (status) {
        vpmm_lock_take(&ipc->lock);
        lose(exporter);
        vpmm_lock_give(&ipc->lock);
        return status;
    }
    return (enum vpmm_status)reply_out->status;
}

void vpmm_ipc_peer_give(struct vpmm_ipc *ipc, uint32_t peer, const struct vpmm_ipc_block *returned)
{
    struct vpmm_ipc_peer *exporter = &ipc->peers[peer];
    if (returned && exporter->socket >= 0) {
        struct vpmm_ipc_request request = vpmm_ipc_request_make(VPMM_IPC_RETURN, returned, 0);
        (void)vpmm_ipc_send(exporter->socket, &request, sizeof request, NULL, 0);
    }
    if (--exporter->n == 0)
        lose(exporter);
}
