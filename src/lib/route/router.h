/* SPDX-License-Identifier: MIT */
/* The router's own state. Private to this folder: route.c serves requests, devices.c makes heaps
 * and connects devices.
 *
 * The lock guards what is marked with it and is never held during a driver call. A heap is made by
 * one thread, and the others that want the same one wait on `changed`. That cannot deadlock: the
 * maker waits for nothing that they could hold. They hold no lock of ours (nobody calls the router
 * with one), and they come from the program, so they are not inside the driver either; the maker's
 * own driver calls do not come back to the router. */
#ifndef VPMM_ROUTE_ROUTER_H
#define VPMM_ROUTE_ROUTER_H

#include "base/atomic.h"
#include "base/lock.h"
#include "route/route.h"
#include "small/small.h"

/* An object's place: its figures, which stay readable when it is gone. */
struct offload_place {
    vpmm_atomic32 is_taken;
    vpmm_atomic32 device;
    _Atomic(struct vpmm_offload *) offload; /* NULL: it ends, or there is none */
    vpmm_atomic32 n_askers;                 /* threads that may be inside of it for others' sake */
    vpmm_atomic32 is_shown;                 /* its figures are an object's, which may have ended */
    struct vpmm_offload_figures figures;
};

struct device {
    vpmm_atomic32 is_known; /* the next six are valid, and constant from then on */
    struct vpmm_device_facts facts;
    uint64_t page_bytes;
    uint64_t threshold_bytes;
    uint64_t whole_bytes; /* smaller requests get no pages of their own */
    uint64_t limit_bytes; /* of what its heap may hold; UINT64_MAX: there is none */
    bool is_off;          /* the page is larger than the device */

    _Atomic(struct vpmm_heap *) heap;
    struct vpmm_small *small; /* before the heap; NULL: small requests are CUDA's */
    struct vpmm_mempool default_mempool;
    _Atomic(vpmm_mempool_handle) default_handle; /* NULL: not heard of yet */
    _Atomic(struct vpmm_mempool *) current; /* its memory pool; NULL: one that we do not serve */
    bool is_making, is_hopeless;            /* lock: the heap is being made, can never be made */
    enum vpmm_status last_refusal;          /* lock: why it could not be made the last time */
    unsigned n_refusals;                    /* lock: how often that has been tried */
    uint64_t n_to_skip;                     /* lock: requests to pass on before it is tried again */
    uint64_t granted_peers; /* lock: devices given access to its default pool, one bit each */
};

/* A memory pool that the program made. */
struct made_mempool {
    vpmm_atomic32 is_alive; /* the next ones are valid and constant, and its handle means it; a
                               synchronisation may look at one that is just made anew */
    _Atomic(vpmm_mempool_handle) handle; /* stays, as the name of blocks that outlive it */
    vpmm_atomic32 device;
    struct vpmm_mempool mempool; /* its number is its place in the table */
};

struct vpmm_router {
    const struct vpmm_config *config;
    const struct vpmm_driver *driver;
    const struct vpmm_memory *memory;
    struct vpmm_first_heap first_heap;
    const struct vpmm_watch *watch;           /* NULL: nobody listens */
    const struct vpmm_neighbours *neighbours; /* NULL: there is nobody to ask */
    struct vpmm_neighbours weights_first;     /* our own weights, and then those */
    struct vpmm_order *order;

    struct vpmm_lock lock;
    struct vpmm_condition changed;
    uint64_t seen_devices;      /* lock: devices that had a context, one bit each */
    uint64_t connected_devices; /* lock: of those, whoever was seen before reaches them, too */

    vpmm_atomic64 small_bytes; /* whatever is smaller is too small on every device known; 0: none is
                                  known */
    vpmm_atomic64 part_bytes_max; /* no larger request is for a layer of small blocks; 0: none is */
    vpmm_atomic32 is_unconnected; /* two of these devices cannot reach each other */
    vpmm_atomic32 n_heaps;
    vpmm_atomic32 exports_parts; /* a small block was to be opened by another process */
    vpmm_atomic32 n_plain_heaps; /* the same, or 0 where any has a layer of small blocks */
    vpmm_atomic32 may_decay;     /* some heap has held so much once */
    _Atomic(struct vpmm_heap *) heaps[VPMM_DEVICES_MAX]; /* in the order in which they were made */
    struct vpmm_small *smalls[VPMM_DEVICES_MAX];         /* of those heaps, before they are there */
    vpmm_atomic64 counts[2][VPMM_ROUTE_COUNT];           /* by is_async */
    vpmm_atomic32 n_watched;    /* memory pools to which a synchronisation makes a difference */
    vpmm_atomic32 end_mempools; /* past the last number that was ever given */
    struct offload_place offloads[VPMM_OFFLOADS_MAX];
    struct made_mempool mempools[VPMM_MEMPOOLS];
    struct device devices[VPMM_DEVICES_MAX];
};

static inline bool vpmm_router_is_device(int number)
{
    return number >= 0 && number < VPMM_DEVICES_MAX;
}

/* vpmm_neighbours' ask: our own weights give back what they can, and then the neighbours. */
bool vpmm_router_ask_weights_first(void *self, int device, uint64_t bytes);

/* Makes sure that the facts of `device` are known (driver). INVALID for a number past the last. */
VPMM_MUST_CHECK enum vpmm_status vpmm_router_learn(struct vpmm_router *router, int device);

/* Of a new router: every device's current memory pool is its default one. */
void vpmm_router_mempools_init(struct vpmm_router *router);

/* The bytes of free memory that the program told memory pools of the heap's device to keep. */
uint64_t vpmm_router_kept_bytes(struct vpmm_router *router, struct vpmm_heap *heap);

/* Tells the first time that a heap holds enough for some of it to decay (route_decay.c). */
void vpmm_router_note_held(struct vpmm_router *router, const struct vpmm_heap *heap);

/* The heap of a known device, made if need be (driver). NOT_SUPPORTED, now and for ever, or what
 * else kept it from being made this time. */
VPMM_MUST_CHECK enum vpmm_status vpmm_router_require_heap(struct vpmm_router *router, int device,
                                                          struct vpmm_heap **heap_out);

/* The heap of the current context's device, or NULL. */
struct vpmm_heap *vpmm_router_current_heap(struct vpmm_router *router);

/* ---- parts.c: blocks that are parts of pages. Not in line, for the sake of all other requests.
 * ---- */

/* Makes the layer of small blocks of a heap that is not public yet, where small requests are
 * served. Without it CUDA serves them. */
void vpmm_router_make_small(struct vpmm_router *router, int number, struct vpmm_heap *heap);
/* The layer whose slabs hold `address`, or NULL. No lock, no driver. */
VPMM_NOINLINE struct vpmm_small *vpmm_router_find_small(struct vpmm_router *router,
                                                        uint64_t address);
static inline struct vpmm_small *vpmm_router_small_of(struct vpmm_router *router, uint64_t address)
{
    return vpmm_atomic_load(&router->n_plain_heaps) ? NULL
                                                    : vpmm_router_find_small(router, address);
}
/* What the context owned of the heap, and of its layer, is free (driver). */
void vpmm_router_end_context(struct vpmm_router *router, struct vpmm_heap *heap, uint64_t id);
/* Whether a request of so many bytes, of a device with a heap, is for the layer of small blocks. */
bool vpmm_router_is_part(const struct vpmm_router *router, int number, uint64_t bytes);
/* Serves such a request, of a known device with a heap. NOT_FOUND: CUDA has to. */
VPMM_MUST_CHECK VPMM_NOINLINE enum vpmm_status
vpmm_router_malloc_part(struct vpmm_router *router, struct vpmm_heap *heap,
                        const struct vpmm_request *request, uint64_t *address_out);
/* The same of a stream, without what it lacks being got. */
VPMM_NOINLINE bool vpmm_router_malloc_part_warm(struct vpmm_router *router,
                                                const struct vpmm_request *request, int number,
                                                uint64_t *address_out);
/* How many warm requests these layers have served: cudaMallocAsyncs or cudaMallocs. */
uint64_t vpmm_router_parts_served(struct vpmm_router *router, bool is_async);

/* ---- tell.c: one line each in the log ---- */

/* The heap found no room; CUDA is asked instead. */
void vpmm_router_tell_full(struct vpmm_router *router, struct vpmm_heap *heap,
                           const struct vpmm_route_request *request);
/* The limit refuses the request; the device is known and may have no heap yet. */
void vpmm_router_tell_limited(struct vpmm_router *router, int device,
                              const struct vpmm_route_request *request);
/* Something failed that the program did not cause; CUDA is asked instead. */
void vpmm_router_tell_failure(struct vpmm_heap *heap, const struct vpmm_route_request *request,
                              enum vpmm_status status);

#endif
