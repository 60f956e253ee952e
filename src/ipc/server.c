/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "ipc/internal.h"
#include "ipc/socket.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How long nobody is accepted where descriptors are short. */
#define SHORT_MS 100

/* Where poll looks: at the wake, the socket, and each client. */
enum {
    AT_WAKE,
    AT_SOCKET,
    AT_CLIENTS
};
#define PLACES (AT_CLIENTS + VPMM_IPC_CLIENTS_MAX)

static void close_descriptor(int *descriptor)
{
    int number = *descriptor;
    *descriptor = -1; /* first: a child forked here must not close what has that number next */
    if (number >= 0)
        (void)close(number);
}

/* ---- clients ---- */

/* Tells when the process has ended: after its descriptors are closed, and so after the driver has
 * stopped its work. */
static int watch_process(int process)
{
    return process > 0 ? (int)syscall(SYS_pidfd_open, process, 0) : -1;
}

static void end_client(struct vpmm_ipc *ipc, uint32_t number)
{
    struct vpmm_ipc_client *client = &ipc->server->clients[number];
    close_descriptor(&client->socket);
    close_descriptor(&client->process);
    vpmm_ipc_end_loans(ipc, number);
    client->is_used = false;
}

/* What it had mapped, its work may still use, until its process has ended; where nobody can tell of
 * that, for ever. */
static void lose_client(struct vpmm_ipc *ipc, uint32_t number)
{
    struct vpmm_ipc_client *client = &ipc->server->clients[number];
    close_descriptor(&client->socket);
    if (client->n_loans == 0)
        end_client(ipc, number);
}

static void hear_client(struct vpmm_ipc *ipc, uint32_t number)
{
    struct vpmm_ipc_client *client = &ipc->server->clients[number];
    char bytes[sizeof(struct vpmm_ipc_request) + 1];
    if (client->socket < 0) {
        end_client(ipc, number);
        return;
    }
    ssize_t n = recv(client->socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || !vpmm_ipc_answer(ipc, number, bytes, (size_t)n))
        lose_client(ipc, number);
}

static uint32_t unused_client(const struct vpmm_ipc_server *server)
{
    uint32_t number = 0;
    while (number < VPMM_IPC_CLIENTS_MAX && server->clients[number].is_used)
        number++;
    return number;
}

static void accept_client(struct vpmm_ipc *ipc)
{
    struct vpmm_ipc_server *server = ipc->server;
    int process = 0;
    int socket = accept4(server->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
        server->is_short = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
        return;
    }
    uint32_t number = unused_client(server);
    if (number == VPMM_IPC_CLIENTS_MAX || !vpmm_ipc_peer_is_of(socket, ipc->user_id, &process)) {
        (void)close(socket);
        return;
    }
    server->clients[number] = (struct vpmm_ipc_client){
        .is_used = true, .socket = socket, .process = watch_process(process)};
}

/* ---- the thread ---- */

/* How many places there are to look at: more than descriptors are allowed would be refused. */
static nfds_t look(const struct vpmm_ipc_server *server, struct pollfd places[PLACES])
{
    nfds_t n = AT_CLIENTS;
    places[AT_WAKE] = (struct pollfd){.fd = server->wake, .events = POLLIN};
    places[AT_SOCKET] =
        (struct pollfd){.fd = server->is_short ? -1 : server->listening, .events = POLLIN};
    for (uint32_t i = 0; i < VPMM_IPC_CLIENTS_MAX; i++) {
        const struct vpmm_ipc_client *client = &server->clients[i];
        int watched = client->socket >= 0 ? client->socket : client->process;
        places[AT_CLIENTS + i] =
            (struct pollfd){.fd = client->is_used ? watched : -1, .events = POLLIN};
        if (client->is_used)
            n = AT_CLIENTS + i + 1;
    }
    return n;
}

static void *serve(void *self)
{
    struct vpmm_ipc *ipc = self;
    struct vpmm_ipc_server *server = ipc->server;
    struct pollfd places[PLACES];
    ipc->lender.begin(ipc->lender.self);
    for (;;) {
        nfds_t n_places = look(server, places);
        int n = poll(places, n_places, server->is_short ? SHORT_MS : -1);
        server->is_short = false;
        if (n < 0 && errno != EINTR)
            (void)poll(NULL, 0, SHORT_MS);
        if (n <= 0)
            continue;
        if (places[AT_WAKE].revents)
            return NULL;
        for (uint32_t i = 0; AT_CLIENTS + i < n_places; i++)
            if (places[AT_CLIENTS + i].revents)
                hear_client(ipc, i);
        if (places[AT_SOCKET].revents)
            accept_client(ipc);
    }
}

/* The program's signals are for the program's threads. */
static bool start_thread(struct vpmm_ipc *ipc, struct vpmm_ipc_server *server)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    bool is_started = pthread_create(&server->thread, NULL, serve, ipc) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

static bool start(struct vpmm_ipc *ipc, struct vpmm_ipc_server *server)
{
    server->listening = server->wake = -1;
    if (getrandom(ipc->nonce, sizeof ipc->nonce, GRND_NONBLOCK) != (ssize_t)sizeof ipc->nonce)
        return false;
    server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->listening = vpmm_ipc_listen((uint32_t)getpid(), ipc->nonce);
    if (server->wake < 0 || server->listening < 0)
        return false;
    atomic_store(&ipc->server, server);
    if (start_thread(ipc, server))
        return true;
    atomic_store(&ipc->server, NULL);
    return false;
}

enum vpmm_status vpmm_ipc_serve(struct vpmm_ipc *ipc)
{
    const struct vpmm_memory *memory = ipc->memory;
    if (atomic_load(&ipc->server))
        return VPMM_OK;
    struct vpmm_ipc_server *server = memory->map(memory->self, sizeof *server);
    if (!server)
        return VPMM_NO_METADATA;
    if (start(ipc, server))
        return VPMM_OK;
    close_descriptor(&server->wake);
    close_descriptor(&server->listening);
    memory->unmap(memory->self, server, sizeof *server);
    return VPMM_FAILED;
}

void vpmm_ipc_server_finish(struct vpmm_ipc *ipc)
{
    struct vpmm_ipc_server *server = atomic_load(&ipc->server);
    const uint64_t one = 1;
    if (!server || write(server->wake, &one, sizeof one) != (ssize_t)sizeof one)
        return;
    (void)pthread_join(server->thread, NULL);
    for (uint32_t i = 0; i < VPMM_IPC_CLIENTS_MAX; i++)
        if (server->clients[i].is_used)
            end_client(ipc, i);
    close_descriptor(&server->listening);
    close_descriptor(&server->wake);
    ipc->memory->unmap(ipc->memory->self, server, sizeof *server);
}

void vpmm_ipc_server_abandon(struct vpmm_ipc_server *server)
{
    close_descriptor(&server->listening);
    close_descriptor(&server->wake);
    for (uint32_t i = 0; i < VPMM_IPC_CLIENTS_MAX; i++) {
        struct vpmm_ipc_client *client = &server->clients[i];
        if (client->is_used) {
            close_descriptor(&client->socket);
            close_descriptor(&client->process);
        }
    }
}
