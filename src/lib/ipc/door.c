/* SPDX-License-Identifier: MIT */
/* Callers: connections that have not shown a seal yet. Must not answer a caller whose first message
 * is no lease with the right seal. */
#define _GNU_SOURCE
#include "ipc/ipc_internal.h"
#include "ipc/socket.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

/* So many are let in before the clients are heard again. */
#define ACCEPTED_MAX 16u

static void drop(struct vpmm_ipc_caller *caller)
{
    caller->is_used = false;
    (void)close(caller->socket);
}

static struct vpmm_ipc_caller *oldest(struct vpmm_ipc_server *server)
{
    struct vpmm_ipc_caller *found = NULL;
    for (uint32_t i = 0; i < VPMM_IPC_CALLERS_MAX; i++) {
        struct vpmm_ipc_caller *caller = &server->callers[i];
        if (caller->is_used && (!found || caller->since_ms < found->since_ms))
            found = caller;
    }
    return found;
}

static struct vpmm_ipc_caller *unused(struct vpmm_ipc_server *server)
{
    for (uint32_t i = 0; i < VPMM_IPC_CALLERS_MAX; i++)
        if (!server->callers[i].is_used)
            return &server->callers[i];
    return NULL;
}

/* The first message decides. False: there is none yet; else the socket is a client's or closed. */
static bool meet(struct vpmm_ipc *ipc, int socket)
{
    char bytes[sizeof(struct vpmm_ipc_request) + 1];
    uint32_t client = VPMM_IPC_CLIENTS_MAX;
    ssize_t n = recv(socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0 && vpmm_ipc_is_sealed(ipc, bytes, (size_t)n))
        client = vpmm_ipc_client_admit(ipc, socket);
    if (client < VPMM_IPC_CLIENTS_MAX)
        vpmm_ipc_client_hear(ipc, client, bytes, (size_t)n);
    else
        (void)close(socket);
    return true;
}

/* Who has been silent for longest makes room: who has a handle shows it at once. */
static void let_in(struct vpmm_ipc *ipc, int socket)
{
    struct vpmm_ipc_server *server = ipc->server;
    if (!vpmm_ipc_peer_is_of(socket, ipc->user())) {
        (void)close(socket);
        return;
    }
    if (meet(ipc, socket))
        return;
    struct vpmm_ipc_caller *caller = unused(server);
    if (!caller) {
        caller = oldest(server);
        drop(caller);
    }
    *caller = (struct vpmm_ipc_caller){true, socket, vpmm_now_ms()};
}

/* Where descriptors are short, those of callers go first. */
static void make_room(struct vpmm_ipc_server *server)
{
    struct vpmm_ipc_caller *caller = oldest(server);
    if (caller)
        drop(caller);
    else
        server->is_short = true;
}

void vpmm_ipc_callers_accept(struct vpmm_ipc *ipc)
{
    struct vpmm_ipc_server *server = ipc->server;
    for (unsigned i = 0; i < ACCEPTED_MAX && !server->is_short; i++) {
        int socket = accept4(server->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket >= 0)
            let_in(ipc, socket);
        else if (errno == EAGAIN)
            return;
        else if (errno != EINTR && errno != ECONNABORTED)
            make_room(server);
    }
}

void vpmm_ipc_caller_hear(struct vpmm_ipc *ipc, uint32_t number)
{
    struct vpmm_ipc_caller *caller = &ipc->server->callers[number];
    /* First: a child forked here must not close what has that number next. */
    caller->is_used = false;
    caller->is_used = !meet(ipc, caller->socket);
}

int vpmm_ipc_callers_expire(struct vpmm_ipc_server *server)
{
    uint64_t now_ms = vpmm_now_ms();
    struct vpmm_ipc_caller *caller;
    while ((caller = oldest(server)) != NULL) {
        uint64_t silent_ms = now_ms - caller->since_ms;
        if (silent_ms < VPMM_IPC_CALL_MS)
            return (int)(VPMM_IPC_CALL_MS - silent_ms);
        drop(caller);
    }
    return -1;
}

void vpmm_ipc_callers_finish(struct vpmm_ipc_server *server)
{
    for (uint32_t i = 0; i < VPMM_IPC_CALLERS_MAX; i++)
        if (server->callers[i].is_used)
            drop(&server->callers[i]);
}
