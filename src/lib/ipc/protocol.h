/* SPDX-License-Identifier: MIT */
/* Private to ipc/: what a handle holds, and the messages between importer and exporter. Pure: bytes
 * in, bytes out. Both sides run on one machine, so numbers travel as they lie in memory. A reader
 * refuses whatever no writer here could have written. */
#ifndef VPMM_IPC_PROTOCOL_H
#define VPMM_IPC_PROTOCOL_H

#include "ipc/ipc.h"
#include "ipc/seal.h"

/* Extents in a message, and so descriptors: Linux takes 253. */
#define VPMM_IPC_CHUNK 64u

/* What a handle names. The process and the door make the name of the exporter's socket, which
 * everybody on the machine can read. The seal is in the handle alone. */
struct vpmm_ipc_name {
    uint32_t process, door;
    unsigned char seal[VPMM_IPC_SEAL_BYTES];
    struct vpmm_ipc_block block;
};
void vpmm_ipc_name_write(const struct vpmm_ipc_name *name,
                         unsigned char handle_out[VPMM_IPC_HANDLE_BYTES]);
bool vpmm_ipc_name_read(const unsigned char handle[VPMM_IPC_HANDLE_BYTES],
                        struct vpmm_ipc_name *name_out);
/* Whether a library of another version made the handle, which this one cannot read. */
bool vpmm_ipc_name_is_foreign(const unsigned char handle[VPMM_IPC_HANDLE_BYTES]);

/* The first message of a connection is a LEASE. Each LEASE holds the seal of its block; a wrong one
 * ends the connection. */
enum vpmm_ipc_wish {
    VPMM_IPC_LEASE = 1, /* answered by a reply without extents */
    VPMM_IPC_EXTENTS, /* of a leased block, from the address `from` on; a reply with descriptors */
    VPMM_IPC_RETURN,  /* of a lease; not answered */
};

struct vpmm_ipc_request {
    uint32_t magic;
    uint32_t wish;
    struct vpmm_ipc_block block; /* `bytes` does not count */
    uint64_t from;
    unsigned char seal[VPMM_IPC_SEAL_BYTES]; /* of a LEASE; zero in the others */
};
/* `seal`: of a LEASE; NULL otherwise. */
struct vpmm_ipc_request vpmm_ipc_request_make(enum vpmm_ipc_wish wish,
                                              const struct vpmm_ipc_block *block, uint64_t from,
                                              const unsigned char *seal);
bool vpmm_ipc_request_read(const void *bytes, size_t n, struct vpmm_ipc_request *request_out);

/* One with `n` extents is sent as its first vpmm_ipc_reply_bytes(n) bytes. */
struct vpmm_ipc_reply {
    uint32_t magic;
    uint32_t status;     /* enum vpmm_status; all else counts for VPMM_OK only */
    uint64_t start, end; /* of a lease: where the extents lie in the exporter */
    uint64_t n;          /* 0 without VPMM_OK */
    uint64_t extent_bytes[VPMM_IPC_CHUNK];
};
struct vpmm_ipc_reply vpmm_ipc_reply_make(enum vpmm_status status);
size_t vpmm_ipc_reply_bytes(uint64_t n);
bool vpmm_ipc_reply_read(const void *bytes, size_t n, struct vpmm_ipc_reply *reply_out);

/* Whether a lease of `block` may say that its extents lie there. */
bool vpmm_ipc_holds(uint64_t start, uint64_t end, const struct vpmm_ipc_block *block);

#endif
