/* SPDX-License-Identifier: MIT */
/* The exporter's thread: lets callers in, hears clients, and ends the leases of those that are
 * gone. Must not wait for one client while others speak. */
#define _GNU_SOURCE
#include "ipc/ipc_internal.h"
#include "ipc/socket.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long nobody is accepted where descriptors are short. */
#define SHORT_MS 100

/* The program's threads may have too little for a driver call. */
#define STACK_BYTES ((size_t)1 << 20)

/* Where poll looks: at the wake, the socket, and each connection and process. */
enum {
    AT_WAKE,
    AT_SOCKET,
    AT_WATCHED
};
/* A caller has a connection, a client that and a process. */
#define WATCHED_MAX (VPMM_IPC_CALLERS_MAX + 2 * VPMM_IPC_CLIENTS_MAX)

enum {
    OF_CLIENTS = VPMM_IPC_CALLERS_MAX,
    OF_PROCESSES = OF_CLIENTS + VPMM_IPC_CLIENTS_MAX
};

/* As many places as there are descriptors: more than are allowed would be refused. */
struct outlook {
    nfds_t n;
    struct pollfd places[AT_WATCHED + WATCHED_MAX];
    /* By place from AT_WATCHED on: a caller, or from OF_CLIENTS on a client, or from OF_PROCESSES
     * on its process. */
    uint32_t numbers[WATCHED_MAX];
};

static void close_descriptor(int *descriptor)
{
    int number = *descriptor;
    *descriptor = -1; /* first: a child forked here must not close what has that number next */
    if (number >= 0)
        (void)close(number);
}

/* ---- clients ---- */

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

void vpmm_ipc_client_hear(struct vpmm_ipc *ipc, uint32_t number, const void *bytes, size_t n)
{
    if (!vpmm_ipc_answer(ipc, number, bytes, n))
        lose_client(ipc, number);
}

static void hear_client(struct vpmm_ipc *ipc, uint32_t number)
{
    struct vpmm_ipc_client *client = &ipc->server->clients[number];
    char bytes[sizeof(struct vpmm_ipc_request) + 1];
    ssize_t n = recv(client->socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        lose_client(ipc, number);
    else
        vpmm_ipc_client_hear(ipc, number, bytes, (size_t)n);
}

uint32_t vpmm_ipc_client_admit(struct vpmm_ipc *ipc, int socket)
{
    struct vpmm_ipc_server *server = ipc->server;
    uint32_t number = 0;
    int process;
    while (number < VPMM_IPC_CLIENTS_MAX && server->clients[number].is_used)
        number++;
    if (number == VPMM_IPC_CLIENTS_MAX || !vpmm_ipc_peer_watch(socket, &process))
        return VPMM_IPC_CLIENTS_MAX;
    server->clients[number] =
        (struct vpmm_ipc_client){.is_used = true, .socket = socket, .process = process};
    return number;
}

/* ---- the thread ---- */

static void add(struct outlook *outlook, uint32_t number, int descriptor)
{
    outlook->numbers[outlook->n - AT_WATCHED] = number;
    outlook->places[outlook->n++] = (struct pollfd){.fd = descriptor, .events = POLLIN};
}

/* A process may end while its connection stays: a child of it may hold that. */
static void look(const struct vpmm_ipc_server *server, struct outlook *outlook)
{
    int listening = server->is_short ? -1 : server->listening;
    outlook->places[AT_WAKE] = (struct pollfd){.fd = server->wake, .events = POLLIN};
    outlook->places[AT_SOCKET] = (struct pollfd){.fd = listening, .events = POLLIN};
    outlook->n = AT_WATCHED;
    for (uint32_t i = 0; i < VPMM_IPC_CALLERS_MAX; i++)
        if (server->callers[i].is_used)
            add(outlook, i, server->callers[i].socket);
    for (uint32_t i = 0; i < VPMM_IPC_CLIENTS_MAX; i++) {
        const struct vpmm_ipc_client *client = &server->clients[i];
        if (client->is_used && client->socket >= 0)
            add(outlook, OF_CLIENTS + i, client->socket);
        if (client->is_used && client->process >= 0)
            add(outlook, OF_PROCESSES + i, client->process);
    }
}

static void hear(struct vpmm_ipc *ipc, const struct outlook *outlook)
{
    for (nfds_t i = AT_WATCHED; i < outlook->n; i++) {
        uint32_t number = outlook->numbers[i - AT_WATCHED];
        if (!outlook->places[i].revents)
            continue;
        if (number >= OF_PROCESSES)
            end_client(ipc, number - OF_PROCESSES);
        else if (number >= OF_CLIENTS)
            hear_client(ipc, number - OF_CLIENTS);
        else
            vpmm_ipc_caller_hear(ipc, number);
    }
}

static void *serve(void *self)
{
    struct vpmm_ipc *ipc = self;
    struct vpmm_ipc_server *server = ipc->server;
    struct outlook outlook;
    ipc->lender.begin(ipc->lender.self);
    for (;;) {
        int wait_ms = vpmm_ipc_callers_expire(server);
        look(server, &outlook);
        int n = poll(outlook.places, outlook.n, server->is_short ? SHORT_MS : wait_ms);
        server->is_short = false;
        if (n < 0 && errno != EINTR)
            (void)poll(NULL, 0, SHORT_MS);
        if (n <= 0)
            continue;
        if (outlook.places[AT_WAKE].revents)
            return NULL;
        hear(ipc, &outlook);
        if (outlook.places[AT_SOCKET].revents)
            vpmm_ipc_callers_accept(ipc);
    }
}

/* The program's signals are for the program's threads. */
static bool start_thread(struct vpmm_ipc *ipc, struct vpmm_ipc_server *server)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    bool is_started = pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0 &&
                      pthread_create(&server->thread, &attributes, serve, ipc) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return is_started;
}

static bool make_random(void *bytes_out, size_t n)
{
    return getrandom(bytes_out, n, GRND_NONBLOCK) == (ssize_t)n;
}

static bool start(struct vpmm_ipc *ipc, struct vpmm_ipc_server *server)
{
    server->listening = server->wake = -1;
    if (!make_random(&ipc->door, sizeof ipc->door) || !make_random(ipc->key, sizeof ipc->key))
        return false;
    server->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->listening = vpmm_ipc_listen((uint32_t)getpid(), ipc->door);
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
    if (!vpmm_ipc_user_is_one(ipc->user()))
        return VPMM_NOT_SUPPORTED;
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
    vpmm_ipc_callers_finish(server);
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
    vpmm_ipc_callers_finish(server);
    for (uint32_t i = 0; i < VPMM_IPC_CLIENTS_MAX; i++) {
        struct vpmm_ipc_client *client = &server->clients[i];
        if (client->is_used) {
            close_descriptor(&client->socket);
            close_descriptor(&client->process);
        }
    }
}
