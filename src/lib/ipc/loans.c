/* SPDX-License-Identifier: MIT */
/* Answers a client: leases a block, sends its extents, takes a lease back. Must not send extents of
 * a block that this client has not leased. */
#include "ipc/ipc_internal.h"
#include "ipc/socket.h"

#include <unistd.h>

static struct vpmm_ipc_loan *find(struct vpmm_ipc_server *server, uint32_t client,
                                  const struct vpmm_ipc_block *block)
{
    for (uint32_t i = 0; i < server->n_loans; i++) {
        struct vpmm_ipc_loan *loan = &server->loans[i];
        if (loan->client == client && loan->block.address == block->address &&
            loan->block.id == block->id && loan->block.device == block->device)
            return loan;
    }
    return NULL;
}

static void end_loan(struct vpmm_ipc *ipc, struct vpmm_ipc_server *server,
                     struct vpmm_ipc_loan *loan)
{
    struct vpmm_ipc_loan ended = *loan;
    server->clients[ended.client].n_loans--;
    *loan = server->loans[--server->n_loans];
    for (; ended.n > 0; ended.n--)
        ipc->lender.unlease(ipc->lender.self, &ended.block);
}

void vpmm_ipc_end_loans(struct vpmm_ipc *ipc, uint32_t client)
{
    struct vpmm_ipc_server *server = ipc->server;
    for (uint32_t i = server->n_loans; i > 0; i--)
        if (server->loans[i - 1].client == client)
            end_loan(ipc, server, &server->loans[i - 1]);
}

static void take_back(struct vpmm_ipc *ipc, uint32_t client, const struct vpmm_ipc_block *block)
{
    struct vpmm_ipc_server *server = ipc->server;
    struct vpmm_ipc_loan *loan = find(server, client, block);
    if (loan && loan->n > 1) {
        loan->n--;
        ipc->lender.unlease(ipc->lender.self, block);
    } else if (loan) {
        end_loan(ipc, server, loan);
    }
}

/* Under a lease that it never hears of a client has nothing mapped. */
static bool answer_lease(struct vpmm_ipc *ipc, uint32_t client, const struct vpmm_ipc_block *block)
{
    struct vpmm_ipc_server *server = ipc->server;
    struct vpmm_ipc_loan *loan = find(server, client, block);
    struct vpmm_ipc_reply reply = vpmm_ipc_reply_make(VPMM_NO_METADATA);
    if (loan || server->n_loans < VPMM_IPC_LOANS_MAX) {
        enum vpmm_status status =
            ipc->lender.lease(ipc->lender.self, block, &reply.start, &reply.end);
        reply.status = (uint32_t)status;
        if (!status && !loan) {
            loan = &server->loans[server->n_loans++];
            *loan = (struct vpmm_ipc_loan){.block = *block, .client = client};
            server->clients[client].n_loans++;
        }
        if (!status)
            loan->n++;
    }
    bool is_sent =
        vpmm_ipc_send(server->clients[client].socket, &reply, vpmm_ipc_reply_bytes(0), NULL, 0);
    if (!is_sent && reply.status == VPMM_OK)
        take_back(ipc, client, block);
    return is_sent;
}

/* What can be exported of the extents, from the first on. */
static size_t export_extents(struct vpmm_ipc *ipc, const struct vpmm_ipc_extent *extents, size_t n,
                             struct vpmm_ipc_reply *reply, int descriptors[VPMM_IPC_CHUNK])
{
    const struct vpmm_driver *driver = ipc->driver;
    enum vpmm_status status = n ? VPMM_OK : VPMM_INVALID;
    size_t n_done = 0;
    while (n_done < n && !status) {
        status =
            vpmm_atomic_load(&ipc->is_ended)
                ? VPMM_SHUT_DOWN
                : driver->extent_export(driver->self, extents[n_done].handle, &descriptors[n_done]);
        if (!status)
            reply->extent_bytes[n_done] = extents[n_done].bytes;
        n_done += !status;
    }
    reply->status = (uint32_t)(n_done ? VPMM_OK : status);
    reply->n = n_done;
    return n_done;
}

/* The receiver has descriptors of its own. */
static bool answer_extents(struct vpmm_ipc *ipc, uint32_t client,
                           const struct vpmm_ipc_block *block, uint64_t from)
{
    struct vpmm_ipc_server *server = ipc->server;
    struct vpmm_ipc_extent extents[VPMM_IPC_CHUNK];
    struct vpmm_ipc_reply reply = vpmm_ipc_reply_make(VPMM_OK);
    int descriptors[VPMM_IPC_CHUNK];
    size_t n = 0;
    if (find(server, client, block))
        n = ipc->lender.extents(ipc->lender.self, block, from, extents, VPMM_IPC_CHUNK);
    n = export_extents(ipc, extents, n, &reply, descriptors);
    bool is_sent = vpmm_ipc_send(server->clients[client].socket, &reply, vpmm_ipc_reply_bytes(n),
                                 descriptors, n);
    for (size_t i = 0; i < n; i++)
        (void)close(descriptors[i]);
    return is_sent;
}

static bool is_sealed(const struct vpmm_ipc *ipc, const struct vpmm_ipc_request *request)
{
    return vpmm_ipc_seal_is(ipc->key, &request->block, request->seal);
}

bool vpmm_ipc_is_sealed(const struct vpmm_ipc *ipc, const void *bytes, size_t n)
{
    struct vpmm_ipc_request request;
    return vpmm_ipc_request_read(bytes, n, &request) && request.wish == VPMM_IPC_LEASE &&
           is_sealed(ipc, &request);
}

bool vpmm_ipc_answer(struct vpmm_ipc *ipc, uint32_t client, const void *bytes, size_t n)
{
    struct vpmm_ipc_request request;
    if (!vpmm_ipc_request_read(bytes, n, &request))
        return false;
    switch ((enum vpmm_ipc_wish)request.wish) {
    case VPMM_IPC_LEASE:
        return is_sealed(ipc, &request) && answer_lease(ipc, client, &request.block);
    case VPMM_IPC_EXTENTS:
        return answer_extents(ipc, client, &request.block, request.from);
    case VPMM_IPC_RETURN:
        take_back(ipc, client, &request.block);
        return true;
    }
    return false;
}
