/* SPDX-License-Identifier: MIT */
/* Private to ipc/: the state of both sides. The lock guards what is marked with it and is held
 * neither during a driver call nor while a peer is waited for; instead one thread at a time is the
 * opening one. What belongs to the serving thread no other touches. */
#ifndef VPMM_IPC_INTERNAL_H
#define VPMM_IPC_INTERNAL_H

#include "base/atomic.h"
#include "base/lock.h"
#include "ipc/protocol.h"

#include <pthread.h>

#define VPMM_IPC_WAIT_MS 10000u
#define VPMM_IPC_CLIENTS_MAX 256u
/* Connections that have shown no seal yet: how many there may be, and for how long. */
#define VPMM_IPC_CALLERS_MAX 32u
#define VPMM_IPC_CALL_MS 1000u
/* So often an importer connects anew when it was dropped before it had an answer. */
#define VPMM_IPC_CALLS_MAX 8u
#define VPMM_IPC_LOANS_MAX 16384u
#define VPMM_IPC_PEERS_MAX 256u
#define VPMM_IPC_IMPORTS_MAX 4096u

/* A connection that has shown no seal yet. */
struct vpmm_ipc_caller {
    bool is_used;
    int socket;
    uint64_t since_ms;
};

/* An importer that is connected and has shown a seal, or that was and is not known to have ended.
 */
struct vpmm_ipc_client {
    bool is_used;
    int socket;  /* -1: it is closed */
    int process; /* a descriptor that tells of the end of the process, or -1 */
    uint32_t n_loans;
};

/* A block that a client has leased. */
struct vpmm_ipc_loan {
    struct vpmm_ipc_block block;
    uint32_t client;
    uint32_t n;
};

/* The serving thread's, but for `wake` and `thread`. */
struct vpmm_ipc_server {
    pthread_t thread;
    int listening, wake;
    struct vpmm_ipc_caller callers[VPMM_IPC_CALLERS_MAX];
    struct vpmm_ipc_client clients[VPMM_IPC_CLIENTS_MAX];
    struct vpmm_ipc_loan loans[VPMM_IPC_LOANS_MAX];
    uint32_t n_loans;
    bool is_short; /* of descriptors: nobody is accepted for a moment */
};

/* An exporter. */
struct vpmm_ipc_peer {
    uint32_t process, door;
    int socket;          /* -1: lost */
    uint32_t connection; /* of how many so far that is the last */
    uint32_t n;          /* imports, and openings under way; 0: not used */
};

/* A mapped block. */
struct vpmm_ipc_mapping {
    uint64_t base, bytes;
    int owner; /* the device whose memory it is */
};

enum vpmm_ipc_state {
    VPMM_IPC_UNUSED,
    VPMM_IPC_OPEN,
    VPMM_IPC_CLOSING, /* by one thread, without the lock */
    VPMM_IPC_DUE,     /* closed, but still mapped: a capture was in the way of waiting */
    VPMM_IPC_OWED     /* unmapped, but still leased: the exporter had too much to read */
};

struct vpmm_ipc_entry {
    enum vpmm_ipc_state state;
    uint32_t peer, connection; /* by which it is leased */
    uint32_t n;                /* openings */
    struct vpmm_ipc_block block;
    unsigned char seal[VPMM_IPC_SEAL_BYTES];
    struct vpmm_ipc_mapping mapping;
    struct vpmm_ipc_import import;
};

struct vpmm_ipc {
    const struct vpmm_driver *driver;
    const struct vpmm_memory *memory;
    struct vpmm_ipc_lender lender;
    uint32_t (*user)(void);
    struct vpmm_lock lock;
    struct vpmm_condition changed;
    vpmm_atomic32 is_ended;
    /* Once: the server, and with it the own door and key. */
    _Atomic(struct vpmm_ipc_server *) server;
    uint32_t door;
    unsigned char key[VPMM_IPC_KEY_BYTES];
    bool is_opening; /* lock */
    struct vpmm_ipc_peer peers[VPMM_IPC_PEERS_MAX];
    struct vpmm_ipc_entry entries[VPMM_IPC_IMPORTS_MAX]; /* lock */
    vpmm_atomic32 n_entries;                             /* above the last that was ever used */
    uint64_t last_id;                                    /* lock */
};

/* ---- server.c ---- */

/* With the lock: the server runs. FAILED; NOT_SUPPORTED: this user cannot be told from others. */
VPMM_MUST_CHECK enum vpmm_status vpmm_ipc_serve(struct vpmm_ipc *ipc);
/* Ends it, and with it all leases. */
void vpmm_ipc_server_finish(struct vpmm_ipc *ipc);
/* Closes its descriptors, in a process where the thread does not run. */
void vpmm_ipc_server_abandon(struct vpmm_ipc_server *server);

/* Makes a client of a connection; its number, or VPMM_IPC_CLIENTS_MAX where there is no room. */
uint32_t vpmm_ipc_client_admit(struct vpmm_ipc *ipc, int socket);
/* Answers what the client sent; what it had leased stays so where it is to be dropped. */
void vpmm_ipc_client_hear(struct vpmm_ipc *ipc, uint32_t number, const void *bytes, size_t n);

/* ---- door.c: in the serving thread ---- */

/* Lets in who waits at the socket, some at a time. */
void vpmm_ipc_callers_accept(struct vpmm_ipc *ipc);
/* A caller has sent something, or has gone. */
void vpmm_ipc_caller_hear(struct vpmm_ipc *ipc, uint32_t number);
/* Drops those who have been silent for too long. How long until the next one has, in milliseconds;
 * -1: there is none. */
int vpmm_ipc_callers_expire(struct vpmm_ipc_server *server);
/* Closes the connections of all. */
void vpmm_ipc_callers_finish(struct vpmm_ipc_server *server);

/* ---- loans.c: in the serving thread ---- */

/* Whether the message is a LEASE with the seal of its block. */
bool vpmm_ipc_is_sealed(const struct vpmm_ipc *ipc, const void *bytes, size_t n);

/* Answers one message of a client; false: it is to be dropped. */
bool vpmm_ipc_answer(struct vpmm_ipc *ipc, uint32_t client, const void *bytes, size_t n);
/* All that the client had is returned. */
void vpmm_ipc_end_loans(struct vpmm_ipc *ipc, uint32_t client);

/* ---- ipc_peer.c: the opening thread, but for what says so ---- */

/* Whether that is the exporter of what the handle names. */
static inline bool vpmm_ipc_peer_is(const struct vpmm_ipc_peer *peer,
                                    const struct vpmm_ipc_name *name)
{
    return peer->process == name->process && peer->door == name->door;
}

/* The number of the exporter, with one more use, and its lease of the block; or why not. */
VPMM_MUST_CHECK enum vpmm_status vpmm_ipc_peer_lease(struct vpmm_ipc *ipc,
                                                     const struct vpmm_ipc_name *name,
                                                     uint64_t deadline_ms, uint32_t *peer_out,
                                                     struct vpmm_ipc_reply *lease_out);
/* A wish and its reply, or the status of one that is none: NOT_FOUND, NO_METADATA, or FAILED for
 * all others, which are of the exporter's driver and not of ours. Where there is no reply, the
 * connection is lost; but not where there was no room for the wish until the deadline: NOT_READY.
 */
VPMM_MUST_CHECK enum vpmm_status
vpmm_ipc_peer_ask(struct vpmm_ipc *ipc, uint32_t peer, const struct vpmm_ipc_request *request,
                  uint64_t deadline_ms, struct vpmm_ipc_reply *reply_out,
                  int descriptors_out[VPMM_IPC_CHUNK], size_t *n_descriptors_out);
/* Any thread, with the lock: the lease of an entry that shows nothing any more goes back to its
 * exporter, and the entry is unused; or it is owed, where there is no room for the message. A
 * connection that is lost takes none. */
void vpmm_ipc_lease_return(struct vpmm_ipc *ipc, struct vpmm_ipc_entry *entry);
/* Any thread, with the lock: tries it again with all that is owed. */
void vpmm_ipc_leases_return(struct vpmm_ipc *ipc);

/* ---- map.c ---- */

/* Maps the leased block of a peer, whose extents lie from `start` to `end` there. */
VPMM_MUST_CHECK enum vpmm_status
vpmm_ipc_map(struct vpmm_ipc *ipc, uint32_t peer, const struct vpmm_ipc_block *block,
             const struct vpmm_ipc_reply *lease, const struct vpmm_ipc_opener *opener,
             uint64_t deadline_ms, struct vpmm_ipc_mapping *mapping_out);

#endif
