/* SPDX-License-Identifier: MIT */
/* Who serves this request? The router holds one heap a device and the process's order; its policy
 * is a pure function that gives a reason with each answer. The preload asks it first and calls the
 * original function when it says no.
 *
 * Any thread may call anything here, holding no lock of ours. */
#ifndef VPMM_ROUTE_ROUTE_H
#define VPMM_ROUTE_ROUTE_H

#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"
#include "driver/driver.h"
#include "heap/heap.h"
#include "offload/offload.h"
#include "order/order.h"
#include "small/small.h"

#include <stdbool.h>
#include <stdint.h>

/* Who serves a request, and why it is not us. */
#define VPMM_ROUTE_LIST(X)                                                                         \
    X(POOL, "served by the pool")                                                                  \
    X(SMALL, "smaller than the threshold")                                                         \
    X(LARGE, "larger than the device")                                                             \
    X(CAPTURING, "the stream is capturing")                                                        \
    X(NO_CONTEXT, "no current context")                                                            \
    X(NO_VMM, "the driver or the device cannot do it")                                             \
    X(EXPLICIT_POOL, "another memory pool was named")                                              \
    X(OTHER_POOL, "the device's current memory pool was changed")                                  \
    X(POOL_LIMIT, "the memory pool's limit")                                                       \
    X(NO_PEER, "two devices of the process cannot reach each other")                               \
    X(NO_IPC, "VPMM_IPC=0 leaves cudaMalloc to CUDA")                                              \
    X(DISABLED, "disabled")                                                                        \
    X(LIMITED, "more than VPMM_LIMIT allows")                                                      \
    X(FULL, "out of memory")                                                                       \
    X(OTHER, "for another reason")
#define VPMM_ROUTE_ENUM(name, text) VPMM_ROUTE_##name,
enum vpmm_route {
    VPMM_ROUTE_LIST(VPMM_ROUTE_ENUM) VPMM_ROUTE_COUNT
};
#undef VPMM_ROUTE_ENUM
/* A short static text. */
const char *vpmm_route_text(enum vpmm_route route);

/* Everything the decision depends on. */
struct vpmm_route_question {
    uint64_t bytes;
    uint64_t threshold_bytes; /* requests below it pass through */
    uint64_t device_bytes;
    uint64_t limit_bytes; /* of what the device's pool may hold */
    bool is_async;
    bool is_capturing;
    bool has_context;
    bool has_vmm;
    bool names_our_pool;      /* cudaMallocAsync: its memory pool, named or current, is one of the
                                 stream's device that we serve */
    bool names_explicit_pool; /* cudaMallocFromPoolAsync on one that we do not serve */
    bool peers_possible;
    bool emulates_ipc; /* cudaMalloc: its memory can be opened by other processes as CUDA's own can
                        */
    bool is_disabled;
};
/* The policy: pure, no state. */
enum vpmm_route vpmm_route_decide(const struct vpmm_route_question *question);

struct vpmm_router;

/* What to do when the process gets its first heap; called once, with no lock held, by the thread
 * that made the heap and before that thread's request is answered. */
struct vpmm_first_heap {
    void *self;
    void (*call)(void *self); /* NULL: nothing */
    /* What to do when a heap first holds so much that some of it may decay; under the same terms.
     * NULL: nothing. */
    void (*call_large)(void *self);
};

/* NO_METADATA. All arguments outlive the router (`first_heap` is copied). No driver call is made.
 */
VPMM_MUST_CHECK enum vpmm_status vpmm_router_create(const struct vpmm_config *config,
                                                    const struct vpmm_driver *driver,
                                                    const struct vpmm_memory *memory,
                                                    const struct vpmm_first_heap *first_heap,
                                                    struct vpmm_router **router_out);
/* Destroys heaps and order. For tests. */
void vpmm_router_destroy(struct vpmm_router *router);

/* From now on `watch` hears what heaps do that are not made yet; it outlives the router. */
void vpmm_router_watch(struct vpmm_router *router, const struct vpmm_watch *watch);

/* Heaps that are not made yet may ask `neighbours`, which outlives the router. */
void vpmm_router_neighbours(struct vpmm_router *router, const struct vpmm_neighbours *neighbours);

struct vpmm_route_request {
    uint64_t bytes;
    bool is_async;
    vpmm_stream_handle stream;      /* async: never NULL, see driver.h */
    bool names_explicit_pool;       /* a memory pool was named that we do not serve */
    struct vpmm_mempool *mempool;   /* one was named that we do; or NULL */
    int pool_device;                /* its device */
    struct vpmm_served *served_out; /* as in struct vpmm_request */
    bool was_asked;                 /* likewise */
};

/* Whether every request of so many bytes gets the answer SMALL, whoever asks. No lock, no driver.
 */
bool vpmm_router_is_small(const struct vpmm_router *router, uint64_t bytes);
/* Counts a request that the router need not be asked about, because the driver refuses it. */
void vpmm_router_refused(struct vpmm_router *router, bool is_async, enum vpmm_route reason);

/* The loop of every program that frees what it allocates again: serves a cudaMallocAsync that names
 * no memory pool from what its stream freed, or where it was served in the round before, where
 * nothing has to be found out for that. `served_out` as in struct vpmm_route_request.
 * Otherwise it is to be asked of vpmm_router_malloc: NOT_FOUND, as one that was_asked; NOT_READY,
 * as any. */
enum vpmm_status vpmm_router_malloc_warm(struct vpmm_router *router, uint64_t bytes,
                                         vpmm_stream_handle stream, struct vpmm_served *served_out,
                                         uint64_t *address_out);
/* The same of a cudaMalloc that shares a page with others. `may_be`: such requests may do so (no
 * driver). Not beside a capture, nor in a broken context. */
bool vpmm_router_may_be_part(const struct vpmm_router *router, uint64_t bytes);
bool vpmm_router_malloc_part_sync(struct vpmm_router *router, uint64_t bytes,
                                  uint64_t *address_out);
/* Serves the request (POOL and an address), or says why the original function must. LIMITED and
 * POOL_LIMIT: nobody is to serve it, and the program is out of memory. */
enum vpmm_route vpmm_router_malloc(struct vpmm_router *router,
                                   const struct vpmm_route_request *request, uint64_t *address_out);

/* What became of a free. */
enum vpmm_free_answer {
    VPMM_FREED,         /* done; for cudaFree see `status_out` */
    VPMM_FREE_NOT_OURS, /* the original function must answer: it is not a live region of ours (or
                           the stream is capturing, or its context is not there: bare CUDA refuses
                           that with the code the program expects) */
    VPMM_FREE_IN_DOUBT, /* nothing has happened: asked about the stream, the driver answered
                           something that no stream of a correct program explains. The original
                           function may refuse the call, or may not */
};
/* `handle` NULL: cudaFree. `status_out`: BROKEN or SHUT_DOWN where the driver told of it meanwhile.
 */
enum vpmm_free_answer vpmm_router_free(struct vpmm_router *router, uint64_t address,
                                       vpmm_stream_handle handle, enum vpmm_status *status_out);
/* After VPMM_FREE_IN_DOUBT, where the original function would not refuse the call. The stream is
 * asked about once more; if that fails again, the pages are reused when all work of all contexts is
 * complete. Never IN_DOUBT. */
enum vpmm_free_answer vpmm_router_free_anyhow(struct vpmm_router *router, uint64_t address,
                                              vpmm_stream_handle handle,
                                              enum vpmm_status *status_out);

/* The region of ours that holds `address`, live or not, or the small block, and its heap's device.
 * False outside our roots. No lock, no driver. */
bool vpmm_router_find(struct vpmm_router *router, uint64_t address,
                      struct vpmm_region_view *view_out, int *device_out);

/* See vpmm_pool_live_bytes. `*device_out`: of the heap whose roots hold `address`, or -1. No lock,
 * no driver. */
uint64_t vpmm_router_live_bytes(struct vpmm_router *router, uint64_t address, int *device_out);

/* ---- cudaMalloc memory that other processes open ---- */

/* A block as its exporter knows it. */
struct vpmm_exported {
    int device;
    uint64_t address, id, bytes; /* of the whole block; bytes as requested */
    uint64_t shared_bytes;       /* beside it in its extents, which an importer can reach, too */
};

/* Whether other processes can be given a block of that kind: VPMM_IPC, cudaMalloc, and a device
 * whose extents can be exported. No lock, no driver. */
bool vpmm_router_can_export(struct vpmm_router *router, const struct vpmm_region_view *block,
                            int device);
/* Marks the live block that holds `address` as one that may be leased. NOT_FOUND: there is none
 * that can; NOT_SUPPORTED: it shares extents with other memory, and VPMM_IPC_SHARED=refuse. No
 * driver. */
VPMM_MUST_CHECK enum vpmm_status vpmm_router_export(struct vpmm_router *router, uint64_t address,
                                                    struct vpmm_exported *exported_out);
/* A lease of a block that is exported, as of vpmm_heap_lease: of the whole region that it lies in.
 * NOT_FOUND: it is not there any more, or was never exported. */
VPMM_MUST_CHECK enum vpmm_status vpmm_router_lease(struct vpmm_router *router,
                                                   const struct vpmm_exported *exported,
                                                   uint64_t *start_out, uint64_t *end_out);
/* Ends one of them; no driver. */
void vpmm_router_unlease(struct vpmm_router *router, const struct vpmm_exported *exported);
/* Of a leased block: see vpmm_pool_shown_extents. `page_bytes_out` is written if there are any. */
size_t vpmm_router_leased_extents(struct vpmm_router *router, const struct vpmm_exported *exported,
                                  uint64_t from, struct vpmm_shown_extent *extents_out, size_t room,
                                  uint64_t *page_bytes_out);
/* The devices that shall reach memory of `owner` mapped for `device`: these two first, then those
 * that had a context. At most VPMM_DEVICES_MAX; returns how many. */
int vpmm_router_devices(struct vpmm_router *router, int device, int owner,
                        int devices_out[VPMM_DEVICES_MAX]);

/* ---- memory that may go back ---- */

/* An allocation that is not ours failed for lack of memory on `device`: see vpmm_heap_relieve.
 * False too where the device has no pool. */
#define VPMM_DEVICE_OF_CONTEXT (-1) /* whatever device the current context is of */
bool vpmm_router_relieve(struct vpmm_router *router, int device, struct vpmm_relief *relief);

/* What a caller that looks now and then has seen: all zero at first but for how often a pool must
 * have been found without a request in between until its memory is idle. */
struct vpmm_quiet {
    unsigned looks_min;
    unsigned looks[VPMM_DEVICES_MAX]; /* in a row */
    uint64_t requests[VPMM_DEVICES_MAX];
};
/* Gives back what pools hold that are idle now, and then again after as many looks: a free whose
 * work was not complete may be by then. Needs no current context. */
void vpmm_router_give_back(struct vpmm_router *router, struct vpmm_quiet *quiet);

/* Decay: gives back what was not needed for a while, slice by slice (vpmm_heap_decay_slice). Looks
 * are the clock: one thread ends a slot of every heap's window by `is_look`, at equal intervals,
 * and calls again soon where the answer is true: there may be more to give back. Memory that the
 * program told a memory pool to keep stays. Needs no current context. */
bool vpmm_router_decay(struct vpmm_router *router, bool is_look);

/* What the program asks of a device's heap by the public interface: vpmm_heap_trim_to and
 * vpmm_heap_synchronize, where the calling thread's captures are none the worse for it. The former
 * returns false, and the latter the driver's answer, where that cannot be had. Need no current
 * context. */
bool vpmm_router_trim(struct vpmm_router *router, struct vpmm_heap *heap, uint64_t keep_bytes,
                      uint64_t *given_back_out);
VPMM_MUST_CHECK enum vpmm_status vpmm_router_reap(struct vpmm_router *router,
                                                  struct vpmm_heap *heap);

/* Where the pool of the current context's device is limited: how much it may hold, and how much
 * more than it holds. */
bool vpmm_router_limit(struct vpmm_router *router, uint64_t *limit_out, uint64_t *left_out);

/* Bytes to add to what cuMemGetInfo reports as free for the device of the current context. */
uint64_t vpmm_router_reusable_bytes(struct vpmm_router *router);

/* ---- what the program tells the driver, and we overhear ---- */

/* A context exists (after cuCtxCreate, cuDevicePrimaryCtxRetain): a second device makes extents
 * accessible to peers. */
void vpmm_router_context_made(struct vpmm_router *router, int device);
/* The program got this handle of one: see vpmm_order_context_made. */
void vpmm_router_context_handed_out(struct vpmm_router *router, vpmm_context_handle handle,
                                    bool is_new);
/* After the real call that destroys the context, or may do so: see vpmm_order_context_leaving.
 * `destroyed`: it surely is; otherwise the driver is asked. Returns whether it is: then what it
 * owned is free. */
bool vpmm_router_context_left(struct vpmm_router *router, const struct vpmm_departure *departure,
                              bool destroyed);
/* Before the real call that begins a capture: vpmm_order_capture_begin, once all that was freed has
 * its event. */
struct vpmm_context *vpmm_router_capture_begin(struct vpmm_router *router,
                                               vpmm_stream_handle handle);
/* cuMemPoolSetAccess on a memory pool of `device` that we serve gave `peer` access. */
void vpmm_router_pool_access(struct vpmm_router *router, int device, int peer);
struct vpmm_order *vpmm_router_order(struct vpmm_router *router);

/* ---- CUDA's memory pools (mempools.c) ---- */

/* The driver's handle; never followed here. */
typedef struct vpmm_opaque_mempool *vpmm_mempool_handle;

/* The program made a memory pool of `device` that we can serve; `limit_bytes` 0: no limit. Where
 * there are too many it stays unknown. */
void vpmm_router_mempool_made(struct vpmm_router *router, vpmm_mempool_handle handle, int device,
                              uint64_t limit_bytes);
/* It destroys that one: its blocks go on living. Its number; 0, and nothing happens: it is not
 * known. */
uint32_t vpmm_router_mempool_gone(struct vpmm_router *router, vpmm_mempool_handle handle);
/* It could not be destroyed, and is as it was, but that it is no device's current one. Nothing
 * happens where another one got its number meanwhile. */
void vpmm_router_mempool_stays(struct vpmm_router *router, uint32_t number,
                               vpmm_mempool_handle handle);
/* `handle` is the default memory pool of `device`. */
void vpmm_router_mempool_default(struct vpmm_router *router, vpmm_mempool_handle handle,
                                 int device);
/* The memory pool that `handle` means, and its device; NULL: unknown, or not one that we serve. No
 * lock, no driver. */
struct vpmm_mempool *vpmm_router_mempool(struct vpmm_router *router, vpmm_mempool_handle handle,
                                         int *device_out);
/* The handle of the memory pool that a block with this number came from; NULL: its device's default
 * one. */
vpmm_mempool_handle vpmm_router_mempool_handle(struct vpmm_router *router, uint32_t number);
/* The current memory pool of `device` was set; NULL: to one that we do not serve. */
void vpmm_router_mempool_set(struct vpmm_router *router, int device, struct vpmm_mempool *mempool);

/* The program chose how much it may hold after a synchronisation; UINT64_MAX: any. */
void vpmm_router_mempool_keep(struct vpmm_router *router, struct vpmm_mempool *mempool,
                              uint64_t bytes);
/* It chose whether that member of a memory pool is set. */
void vpmm_router_mempool_choose(struct vpmm_router *router, vpmm_atomic32 *member, bool is_set);

/* After a call with which the program waited for work: memory pools that hold more than their
 * threshold give that back, and those that are cautious learn what is complete (driver). At most
 * costs of one load where no program chose either. */
void vpmm_router_synchronised(struct vpmm_router *router);

/* The program is about to destroy that stream (driver). */
void vpmm_router_stream_gone(struct vpmm_router *router, vpmm_stream_handle handle);

/* ---- weights larger than their budget (offloads.c) ---- */

/* The driver that the router was made with. */
const struct vpmm_driver *vpmm_router_driver(const struct vpmm_router *router);

#define VPMM_OFFLOADS_MAX 16
/* vpmm_offload_create on the device of `params->context`: what it holds counts against VPMM_LIMIT,
 * and the pool gives back what it has free where the device has too little. The ledger and figures
 * of `params` are filled in here. NOT_SUPPORTED too: there are VPMM_OFFLOADS_MAX already. */
VPMM_MUST_CHECK enum vpmm_status vpmm_router_offload_create(struct vpmm_router *router,
                                                            struct vpmm_offload_params *params,
                                                            struct vpmm_offload **offload_out);
VPMM_MUST_CHECK enum vpmm_status vpmm_router_offload_destroy(struct vpmm_router *router,
                                                             struct vpmm_offload *offload);
/* Of the object in that place, or of the last one there; false: there was none. No lock, no driver;
 * also from outside. */
bool vpmm_router_offload_stats(const struct vpmm_router *router, uint32_t place, int *device_out,
                               struct vpmm_offload_stats *stats_out);
/* Whether that object has not ended: the figures of one that has stay readable. */
bool vpmm_router_offload_is_alive(const struct vpmm_router *router, uint32_t place);
/* Asks the objects on `device` for so much memory: vpmm_offload_yield. Whether any gave some. */
bool vpmm_router_offload_yield(struct vpmm_router *router, int device, uint64_t bytes);
/* What all of them hold on `device`. */
uint64_t vpmm_router_offload_bytes(const struct vpmm_router *router, int device);

/* ---- looking ---- */

/* The device's layer of small blocks; NULL: such requests pass through, or get pages. */
struct vpmm_small *vpmm_router_small(struct vpmm_router *router, int device);
/* The heap of `device`, or NULL if it has none (yet). Any thread, also in a signal handler. */
struct vpmm_heap *vpmm_router_heap(struct vpmm_router *router, int device);
/* Requests by answer, all devices. */
void vpmm_router_counts(struct vpmm_router *router, bool is_async,
                        uint64_t counts_out[VPMM_ROUTE_COUNT]);
/* How a router and all below it lie in memory: see base/layout.h. Whoever has that mapped at the
 * same addresses may call what this section names, the looks at its heaps' figures and pools, at
 * its layers of small blocks, and vpmm_order_ask and vpmm_order_facts on its order: they read, and
 * go nowhere else. */
uint64_t vpmm_router_layout(void);

#endif
