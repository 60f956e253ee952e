/* SPDX-License-Identifier: MIT */
/* The simulated machine's memory, private to this folder: physical bytes, mappings, plain and
 * stream-ordered memory, and the translation of an address as one device sees it. The machine's
 * lock is held by every caller. */
#ifndef VPMM_SIM_MEMORY_H
#define VPMM_SIM_MEMORY_H

#include "sim/engine.h"

struct context;
struct stream;
struct graph;
struct pool;

struct store {
    uint64_t bytes;
    unsigned char *data; /* NULL until written */
    bool is_shared;      /* `data` is the file `descriptor`, which other processes may map too */
    int descriptor;
};
void store_read(const struct store *store, uint64_t offset, void *bytes_out, uint64_t n);
void store_write(struct sim *sim, struct store *store, uint64_t offset, const void *bytes,
                 uint64_t n);
void store_finish(struct store *store);
/* What stands behind the bytes of a shared store, for those who map it. */
#define STORE_MAGIC 0x7669727475616c6du
struct store_label {
    uint64_t magic, bytes, id;
    CUmemAllocationProp prop; /* of a handle; that of a plain allocation says its device only */
};
/* Moves the bytes into a file that other processes can map. False: there is no room for it. */
bool store_share(struct store *store, const struct store_label *label);
/* The store that `descriptor`, which stays the caller's, is the file of. False: it is none. */
bool store_adopt(struct store *store, int descriptor, struct store_label *label_out);

struct handle {
    uint64_t value;
    int device;
    CUmemAllocationProp prop;
    bool is_imported; /* another process's memory: that is charged for it */
    bool is_host;     /* in host memory: no device is charged, and each can reach it */
    unsigned held;
    uint64_t n_mapped;
    struct store store;
};

struct mapping {
    CUdeviceptr address;
    uint64_t bytes;
    struct handle *handle;
    unsigned readers, writers; /* masks of devices */
};

struct reservation {
    CUdeviceptr address;
    uint64_t bytes;
    uint64_t n_mappings;
    struct mapping **entries; /* by granule; a mapping stands in each of its own */
};

/* A cuMemAlloc or cuMemAllocAsync allocation. */
struct plain {
    CUdeviceptr address;
    uint64_t bytes;   /* as asked */
    uint64_t charged; /* of the device, or of the pool */
    uint64_t granules;
    uint64_t id;
    int device;
    struct context *context; /* owner, NULL for stream-ordered memory */
    struct pool *pool;       /* NULL for cuMemAlloc */
    struct graph *graph;     /* the graph whose node allocates it, which then owns it, or NULL */
    struct store store;
    bool freed;       /* a queued free holds it, a node of its graph frees it, or it is parked */
    bool graph_frees; /* a node of its graph frees it */
    bool parked;      /* freed, but its graph's next launch allocates it again */
    bool sync_memops;
    unsigned n_opens; /* by cuIpcOpenMemHandle; not 0: memory of another process, which the next
                         two name */
    uint64_t opened_id;
    int opened_process;
};

/* What one stream has given back to a pool, and no synchronisation has told of. */
struct returned {
    struct op *last; /* its last free; counted */
    uint64_t bytes;
    struct returned *next;
};

struct pool {
    uint64_t handle;
    int device;
    bool is_default, destroyed;
    uint64_t reserved, reserved_high, used, used_high;
    uint64_t busy; /* freed, the free not yet reached */
    uint64_t late; /* freed by cuMemFree, shown as used until the pool is next put in order */
    uint64_t threshold;
    uint64_t limit; /* of what it reserves; 0: none */
    uint64_t n_live;
    unsigned readers, writers;
    uint64_t reuse_flags[3];
    struct returned *returned;
    struct pool *next;
};

struct span_bin { /* address space of freed plain memory, by size */
    uint64_t granules;
    CUdeviceptr *addresses;
    size_t n, room;
};

struct host_range {
    uintptr_t address;
    size_t bytes;
    bool allocated;
    struct host_range *next;
};

/* A piece of memory in one store. */
struct segment {
    struct store *store;
    uint64_t offset, bytes;
    int device;
};

enum reach {
    REACH_NONE,
    REACH_DENIED,
    REACH_OK
};
/* The start of [address, address + bytes) that lies in one store, as `context` (NULL: none) on
 * `device` may use it. */
enum reach space_find(struct sim *sim, int device, const struct context *context,
                      CUdeviceptr address, uint64_t bytes, bool writes,
                      struct segment *segment_out);
/* Whether all of a range can be used so. */
enum reach space_check(struct sim *sim, int device, const struct context *context,
                       CUdeviceptr address, uint64_t bytes, bool writes);
struct reservation *space_reservation(struct sim *sim, CUdeviceptr address);
struct mapping *space_mapping(struct sim *sim, CUdeviceptr address);
struct plain *space_plain(struct sim *sim, CUdeviceptr address);
bool space_is_device(CUdeviceptr address);

bool device_charge(struct sim *sim, int device, uint64_t bytes);
void device_refund(struct sim *sim, int device, uint64_t bytes);

/* Makes a live allocation record with address space; the caller has charged it. */
struct plain *plain_add(struct sim *sim, int device, uint64_t bytes, uint64_t charged);
/* The program has freed it; its memory is in use until plain_end. */
void plain_part(struct plain *plain);
/* Ends it: address space, bytes and charge go back. */
void plain_end(struct sim *sim, struct plain *plain);
/* The one that this context has opened of what process `process` calls `id`, or NULL. */
struct plain *plain_opened(struct sim *sim, const struct context *context, int process,
                           uint64_t id);
/* A free has been reached: ends it, or parks it where a graph owns it. */
void plain_free_reached(struct sim *sim, struct plain *plain);
/* Its graph is launched: allocated again if it was freed since. */
CUresult plain_revive(struct sim *sim, struct plain *plain);
void plain_end_of_context(struct sim *sim, struct context *context);
void plain_finish(struct sim *sim);
void memory_finish(struct sim *sim);
void mapping_end(struct sim *sim, struct mapping *mapping);
void pool_give(struct sim *sim,
               struct plain *plain); /* a freed async block's stream has reached the free */
void pool_relax(struct sim *sim);    /* what synchronising calls give back */
struct pool *pool_new(struct sim *sim, int device, bool is_default);
CUresult pool_take(struct sim *sim, struct pool *pool, uint64_t bytes);
CUresult pool_of(struct sim *sim, CUmemoryPool handle, struct pool **pool_out);
void pool_end_if_unused(struct sim *sim, struct pool *pool);
void returned_add(struct pool *pool, struct op *op, uint64_t bytes);
/* Whether the stream takes what it gave back itself. */
bool returned_take(struct pool *pool, const struct stream *stream, uint64_t bytes);
/* A synchronisation has told of it: of one stream's, or, where that is NULL, of the context's. */
void returned_forget(struct sim *sim, const struct context *context, const struct stream *stream);
void returned_end(struct pool *pool);
/* The pinned range that holds `address`, or NULL. */
const struct host_range *host_range_of(struct sim *sim, uintptr_t address);
bool host_is_pinned(struct sim *sim, uintptr_t address, size_t bytes);

#endif
