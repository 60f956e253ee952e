/* SPDX-License-Identifier: MIT */
/* Legacy IPC of memory that CUDA itself would not share: one process exports blocks by opaque
 * handles, others open them. The exporter's pages go to the importer as file descriptors of their
 * extents, over an abstract Unix socket that a thread of the exporter serves; the thread is started
 * with the first handle. Peers are processes of the same user, and nothing that they send is taken
 * on trust. What an importer has open the exporter leases to it until it returns it or its process
 * ends.
 *
 * Any thread may call anything here, holding no lock of ours. */
#ifndef VPMM_IPC_IPC_H
#define VPMM_IPC_IPC_H

#include "base/memory.h"
#include "base/status.h"
#include "driver/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vpmm_ipc;

#define VPMM_IPC_HANDLE_BYTES 64

/* A block as its exporter knows it. */
struct vpmm_ipc_block {
    uint64_t address, id, bytes; /* bytes as the program asked for them */
    int device;
};

/* An extent where it shows part of a block. */
struct vpmm_ipc_extent {
    vpmm_extent_handle handle;
    uint64_t address, bytes;
};

/* Who has the blocks. Called by the serving thread alone. */
struct vpmm_ipc_lender {
    void *self;
    /* Once, before anything else in that thread. */
    void (*begin)(void *self);
    /* A lease of the block; the addresses of the extents that show it, which stay as they are until
     * the lease ends. NOT_FOUND: the block is not there, or no handle of it was given out. */
    enum vpmm_status (*lease)(void *self, const struct vpmm_ipc_block *block, uint64_t *start_out,
                              uint64_t *end_out);
    void (*unlease)(void *self, const struct vpmm_ipc_block *block);
    /* The extents of a leased block from the one on that holds the address `from`; how many. */
    size_t (*extents)(void *self, const struct vpmm_ipc_block *block, uint64_t from,
                      struct vpmm_ipc_extent *extents_out, size_t room);
};

/* No thread, socket or driver call yet. `user`: whose processes may be peers; asked each time,
 * because a process may become another user's. The arguments outlive it (`lender` is copied).
 * NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_ipc_create(const struct vpmm_driver *driver,
                                                 const struct vpmm_memory *memory,
                                                 const struct vpmm_ipc_lender *lender,
                                                 uint32_t (*user)(void), struct vpmm_ipc **ipc_out);
/* Ends the thread and closes what is open, for tests. NULL is accepted. */
void vpmm_ipc_destroy(struct vpmm_ipc *ipc);
/* In a forked child: closes what it inherited of the parent's sockets, and nothing else; `ipc` is
 * of no use any more. NULL is accepted. */
void vpmm_ipc_abandon(struct vpmm_ipc *ipc);
/* The process ends: the serving thread makes no driver call any more. NULL is
 * accepted. */
void vpmm_ipc_end(struct vpmm_ipc *ipc);

/* ---- exporting ---- */

/* A handle of the block, which stays good while the lender leases it. FAILED: no thread or socket
 * can be had; NOT_SUPPORTED: other users have the same number as this one here. */
VPMM_MUST_CHECK enum vpmm_status vpmm_ipc_export(struct vpmm_ipc *ipc,
                                                 const struct vpmm_ipc_block *block,
                                                 unsigned char handle_out[VPMM_IPC_HANDLE_BYTES]);

/* ---- importing ---- */

/* Whether some process made this handle with vpmm_ipc_export, of this version or another. */
bool vpmm_ipc_is_ours(const unsigned char handle[VPMM_IPC_HANDLE_BYTES]);

/* Who opens. */
struct vpmm_ipc_opener {
    void *self;
    uint64_t context_id; /* of its context: a number that no other one ever has */
    /* The devices that shall reach memory of device `owner`, the most important first, at most
     * VPMM_DEVICES_MAX; how many. Where not all can, the first does. */
    int (*devices)(void *self, int owner, int devices_out[VPMM_DEVICES_MAX]);
};

/* Maps the block that `handle` names, or counts one more opening where the same context has it
 * open. NO_CONTEXT: it is this process's own; NOT_FOUND: the exporter is gone, or of another user,
 * or has no such block any more; NOT_READY: it did not answer in ten seconds; INVALID: it answered
 * nonsense, or the handle is none of ours; NOT_SUPPORTED: another version of the library made it;
 * NO_METADATA; or what the driver refused. */
VPMM_MUST_CHECK enum vpmm_status vpmm_ipc_open(struct vpmm_ipc *ipc,
                                               const unsigned char handle[VPMM_IPC_HANDLE_BYTES],
                                               const struct vpmm_ipc_opener *opener,
                                               uint64_t *address_out);

/* What is to be known of an open block. */
struct vpmm_ipc_import {
    uint64_t address, bytes;
    uint64_t granule_bytes; /* of its device */
    uint64_t id;            /* unique to each mapping of this process, from 1 */
    uint64_t context_id;    /* of who opened it */
};

/* Undoes one opening of the block at `address`. With the last one, `wait` is called, which waits
 * for all work that may use the block, and it is unmapped, whatever `wait` answers; but for
 * CAPTURED and NOT_READY, with which it says that it could not wait: then a later close tries
 * again. NOT_FOUND: none is open there; OK where it was not unmapped yet; else what `wait`
 * answered. */
VPMM_MUST_CHECK enum vpmm_status
vpmm_ipc_close(struct vpmm_ipc *ipc, uint64_t address,
               enum vpmm_status (*wait)(void *self, const struct vpmm_ipc_import *import),
               void *self);
/* The context is destroyed, and with it all that it opened. */
void vpmm_ipc_context_gone(struct vpmm_ipc *ipc, uint64_t context_id);

enum vpmm_ipc_place {
    VPMM_IPC_ELSEWHERE,
    VPMM_IPC_IN_BLOCK,  /* among the bytes of an open block */
    VPMM_IPC_IN_MAPPING /* beside them, in what is mapped with it */
};
/* What lies at `address`; `import_out` is written for VPMM_IPC_IN_BLOCK. No driver. */
enum vpmm_ipc_place vpmm_ipc_find(struct vpmm_ipc *ipc, uint64_t address,
                                  struct vpmm_ipc_import *import_out);

#endif
