/* SPDX-License-Identifier: MIT */
/* The importer's connections to exporters, and its requests over them. Must not hold the lock while
 * it waits for a peer. */
#include "ipc/ipc_internal.h"
#include "ipc/socket.h"

#include <errno.h>
#include <unistd.h>

/* With the lock. VPMM_IPC_PEERS_MAX: there is no room. */
static uint32_t find_or_make(struct vpmm_ipc *ipc, const struct vpmm_ipc_name *name)
{
    uint32_t unused = VPMM_IPC_PEERS_MAX;
    for (uint32_t i = 0; i < VPMM_IPC_PEERS_MAX; i++) {
        const struct vpmm_ipc_peer *peer = &ipc->peers[i];
        if (peer->n && vpmm_ipc_peer_is(peer, name))
            return i;
        if (!peer->n && unused == VPMM_IPC_PEERS_MAX)
            unused = i;
    }
    if (unused < VPMM_IPC_PEERS_MAX)
        ipc->peers[unused] =
            (struct vpmm_ipc_peer){.process = name->process, .door = name->door, .socket = -1};
    return unused;
}

/* With the lock; by the opening thread, or where nobody uses the peer: the number of a closed
 * socket may soon be that of another. */
static void lose(struct vpmm_ipc_peer *peer)
{
    int socket = peer->socket;
    peer->socket = -1; /* first: a child forked here must not close what has that number next */
    if (socket >= 0)
        (void)close(socket);
}

static int connect_to(const struct vpmm_ipc *ipc, const struct vpmm_ipc_peer *peer,
                      uint64_t deadline_ms)
{
    int socket = vpmm_ipc_connect(peer->process, peer->door, deadline_ms);
    if (socket >= 0 && !vpmm_ipc_peer_is_of(socket, ipc->user())) {
        (void)close(socket);
        socket = -1;
    }
    return socket;
}

/* Whether there is a connection; one that was lost is made anew. */
static bool is_connected(struct vpmm_ipc *ipc, struct vpmm_ipc_peer *peer, uint64_t deadline_ms)
{
    if (peer->socket >= 0)
        return true;
    int socket = connect_to(ipc, peer, deadline_ms);
    vpmm_lock_take(&ipc->lock);
    peer->socket = socket;
    peer->connection++;
    vpmm_lock_give(&ipc->lock);
    return socket >= 0;
}

static enum vpmm_status status_of(const struct vpmm_ipc_reply *reply)
{
    enum vpmm_status status = (enum vpmm_status)reply->status;
    return status && status != VPMM_NOT_FOUND && status != VPMM_NO_METADATA ? VPMM_FAILED : status;
}

enum vpmm_status vpmm_ipc_peer_ask(struct vpmm_ipc *ipc, uint32_t peer,
                                   const struct vpmm_ipc_request *request, uint64_t deadline_ms,
                                   struct vpmm_ipc_reply *reply_out,
                                   int descriptors_out[VPMM_IPC_CHUNK], size_t *n_descriptors_out)
{
    struct vpmm_ipc_peer *exporter = &ipc->peers[peer];
    enum vpmm_status status = vpmm_ipc_send_request(exporter->socket, request, deadline_ms);
    if (status == VPMM_NOT_READY)
        return status;
    if (!status)
        status = vpmm_ipc_receive_reply(exporter->socket, deadline_ms, reply_out, descriptors_out,
                                        n_descriptors_out);
    if (status) {
        vpmm_lock_take(&ipc->lock);
        lose(exporter);
        vpmm_lock_give(&ipc->lock);
        return status;
    }
    return status_of(reply_out);
}

/* An exporter with many callers may drop one of them, so it is called again. */
static enum vpmm_status lease(struct vpmm_ipc *ipc, uint32_t peer, const struct vpmm_ipc_name *name,
                              uint64_t deadline_ms, struct vpmm_ipc_reply *lease_out)
{
    struct vpmm_ipc_request request =
        vpmm_ipc_request_make(VPMM_IPC_LEASE, &name->block, 0, name->seal);
    int descriptors[VPMM_IPC_CHUNK];
    size_t n_descriptors = 0;
    enum vpmm_status status = VPMM_NOT_FOUND;
    for (unsigned i = 0; i < VPMM_IPC_CALLS_MAX; i++) {
        if (!is_connected(ipc, &ipc->peers[peer], deadline_ms))
            return VPMM_NOT_FOUND;
        vpmm_lock_take(&ipc->lock);
        vpmm_ipc_leases_return(ipc);
        vpmm_lock_give(&ipc->lock);
        status = vpmm_ipc_peer_ask(ipc, peer, &request, deadline_ms, lease_out, descriptors,
                                   &n_descriptors);
        if (status != VPMM_NOT_FOUND || ipc->peers[peer].socket >= 0)
            break;
    }
    for (size_t i = 0; i < n_descriptors; i++)
        (void)close(descriptors[i]);
    return status;
}

/* With the lock. */
static void give(struct vpmm_ipc *ipc, uint32_t peer)
{
    if (--ipc->peers[peer].n == 0)
        lose(&ipc->peers[peer]);
}

enum vpmm_status vpmm_ipc_peer_lease(struct vpmm_ipc *ipc, const struct vpmm_ipc_name *name,
                                     uint64_t deadline_ms, uint32_t *peer_out,
                                     struct vpmm_ipc_reply *lease_out)
{
    vpmm_lock_take(&ipc->lock);
    uint32_t number = find_or_make(ipc, name);
    if (number < VPMM_IPC_PEERS_MAX)
        ipc->peers[number].n++;
    vpmm_lock_give(&ipc->lock);
    if (number == VPMM_IPC_PEERS_MAX)
        return VPMM_NO_METADATA;
    enum vpmm_status status = lease(ipc, number, name, deadline_ms, lease_out);
    if (status) {
        vpmm_lock_take(&ipc->lock);
        give(ipc, number);
        vpmm_lock_give(&ipc->lock);
        return status;
    }
    *peer_out = number;
    return VPMM_OK;
}

void vpmm_ipc_lease_return(struct vpmm_ipc *ipc, struct vpmm_ipc_entry *entry)
{
    const struct vpmm_ipc_peer *exporter = &ipc->peers[entry->peer];
    const struct vpmm_ipc_request request =
        vpmm_ipc_request_make(VPMM_IPC_RETURN, &entry->block, 0, NULL);
    entry->state = VPMM_IPC_OWED;
    /* Over a later connection it would end another lease of the same block. */
    if (exporter->socket >= 0 && exporter->connection == entry->connection &&
        !vpmm_ipc_send(exporter->socket, &request, sizeof request, NULL, 0) && errno != EPIPE &&
        errno != ECONNRESET && errno != ENOTCONN)
        return;
    entry->state = VPMM_IPC_UNUSED;
    give(ipc, entry->peer);
}

void vpmm_ipc_leases_return(struct vpmm_ipc *ipc)
{
    bool has_no_room[VPMM_IPC_PEERS_MAX] = {false};
    for (uint32_t i = 0; i < vpmm_atomic_load(&ipc->n_entries); i++) {
        struct vpmm_ipc_entry *entry = &ipc->entries[i];
        if (entry->state != VPMM_IPC_OWED || has_no_room[entry->peer])
            continue;
        vpmm_ipc_lease_return(ipc, entry);
        has_no_room[entry->peer] = entry->state == VPMM_IPC_OWED;
    }
}
