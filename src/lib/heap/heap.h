/* SPDX-License-Identifier: MIT */
/* One device's heap: malloc and free of its large memory. It plans in the pool under its lock,
 * calls the driver without it, and commits or undoes under it. It owns the pool, the roots and the
 * extents; fences live in the order it is given.
 *
 * Any thread may call anything here, holding no lock of ours. */
#ifndef VPMM_HEAP_HEAP_H
#define VPMM_HEAP_HEAP_H

#include "base/memory.h"
#include "base/status.h"
#include "base/watch.h"
#include "driver/driver.h"
#include "order/order.h"
#include "pool/pool_export.h"
#include "pool/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vpmm_heap;

/* Who can be asked for device memory that this process does not hold, where a request would fail
 * without it. `ask` is called with no lock held, may take a bounded time, and answers whether
 * `bytes` of the device may have become free. */
struct vpmm_neighbours {
    void *self;
    bool (*ask)(void *self, int device, uint64_t bytes);
};

struct vpmm_heap_params {
    int device;
    uint64_t page_bytes; /* 0: the device's granularity; otherwise a multiple of it */
    uint64_t
        root_bytes; /* VPMM_VA_SIZE; tried smaller down to twice the device when it cannot be had */
    uint64_t eager_pages;      /* mapped when the heap is made; as many as can be had */
    uint64_t extent_pages_max; /* 0: the policy's own choice */
    uint64_t slack_bytes;   /* how much held may exceed live before cudaMalloc waits for cudaFree's
                               fences */
    uint64_t slack_percent; /* of the most ever live; the larger of the two counts */
    uint64_t spare_percent; /* of the most ever live: VPMM_SPARE */
    uint64_t limit_bytes;   /* the most that may be held: VPMM_LIMIT; 0: no limit */
    bool free_waits;        /* VPMM_FREE_SYNC */
    bool stream_waits;      /* VPMM_STREAM_WAITS */
    /* VPMM_IPC_SHARED=refuse: every block of cudaMalloc gets extents of its own where memory does
     * not run out, and one without is not exported. Otherwise blocks get them from the first export
     * on. */
    bool exports_whole;
    const struct vpmm_watch *watch; /* hears of what is done with memory; NULL: nobody does */
    const struct vpmm_neighbours *neighbours; /* NULL: there is nobody to ask */
};

/* Makes the heap of a device that has VMM, and maps `eager_pages`. NOT_SUPPORTED, NO_METADATA,
 * NO_MEMORY (no address space at all); whatever was made is undone. Too few eager pages are no
 * failure. */
VPMM_MUST_CHECK enum vpmm_status vpmm_heap_create(const struct vpmm_heap_params *params,
                                                  const struct vpmm_driver *driver,
                                                  struct vpmm_order *order,
                                                  const struct vpmm_memory *memory,
                                                  struct vpmm_heap **heap_out);

/* Waits for nothing: unmaps, releases and unreserves all. For tests that have no work under way.
 * NULL is accepted. */
void vpmm_heap_destroy(struct vpmm_heap *heap);

/* One of CUDA's memory pools, as far as a heap serves it. Whoever made it keeps it in place as long
 * as the heap lives. Any thread; marked fields are its maker's to write. */
struct vpmm_mempool {
    uint32_t number;               /* maker */
    uint64_t limit_bytes;          /* maker: of its live blocks; 0: none */
    vpmm_atomic64 threshold_bytes; /* maker: what it may hold after a synchronisation */
    vpmm_atomic32 has_threshold;   /* maker: the program chose it */
    vpmm_atomic32 is_cautious;     /* maker: what other streams freed is not asked about */
    vpmm_atomic32 follows_never;   /* maker: the program's own events put nothing in order */
    vpmm_atomic32 waits_never;     /* maker: a stream is not made to wait for another's free */
    vpmm_atomic32 was_used;        /* a block of it was served */
    vpmm_atomic32 is_asked;        /* somebody looked at its figures: from then on they are exact */
    vpmm_atomic64 used_high_bytes, reserved_high_bytes;
    vpmm_atomic64 kept_bytes; /* not of the default one: the most of it that was ever live, or what
                                 it was trimmed to since */
};
void vpmm_mempool_init(struct vpmm_mempool *mempool, uint32_t number, uint64_t limit_bytes);

/* How a request was served. */
enum vpmm_way {
    VPMM_WAY_CACHE,  /* by a front cache */
    VPMM_WAY_HABIT,  /* where the same stream had it before in the same situation */
    VPMM_WAY_FIT,    /* as it lay free */
    VPMM_WAY_REVIVE, /* at an old address */
    VPMM_WAY_STITCH, /* with moved extents */
    VPMM_WAY_GROW,   /* with new ones only */
};

/* The rungs of the ladder: what a request that no front cache serves may try. Which of them it
 * tries, and in which order, is ladder.c's. */
#define VPMM_RUNG_LIST(X)                                                                          \
    X(HABIT, habit, "where a round before was")                                                    \
    X(SPARE, spare, "one more, after losing many")                                                 \
    X(FOLLOW, follow, "in order, nothing asked")                                                   \
    X(SETTLE, settle, "complete by now")                                                           \
    X(GATHER, gather, "complete, lanes gathered")                                                  \
    X(ASK, ask, "complete, busy streams asked")                                                    \
    X(EARLY_WAIT, early_wait, "its stream waits")                                                  \
    X(SLACK, slack, "created within the slack")                                                    \
    X(FREE_WAIT, free_wait, "waited for a cudaFree")                                               \
    X(CREATE, create, "moved or created")                                                          \
    X(REAP, reap, "out of memory, reaped")                                                         \
    X(HOST_WAIT, host_wait, "out of memory, waited")                                               \
    X(DEVICE_WAIT, device_wait, "out of memory, its stream waits")                                 \
    X(POLL, poll, "out of memory, polled")                                                         \
    X(NEIGHBOUR, neighbour, "out of memory, neighbours asked")                                     \
    X(SPOT, spot, "of its size, lanes left alone")

#define VPMM_RUNG_ENUM(NAME, name, text) VPMM_RUNG_##NAME,
enum vpmm_rung {
    VPMM_RUNG_NONE,
    VPMM_RUNG_LIST(VPMM_RUNG_ENUM) VPMM_RUNG_COUNT,
};
#undef VPMM_RUNG_ENUM

/* What served a request, and how. */
struct vpmm_served {
    enum vpmm_way way;
    enum vpmm_rung rung;
};

struct vpmm_request {
    uint64_t bytes;                   /* not 0, at most the device */
    struct vpmm_context *context;     /* the allocating context */
    const struct vpmm_stream *stream; /* NULL: cudaMalloc; else cudaMallocAsync on it */
    struct vpmm_mempool *mempool;     /* with a stream; NULL: the default one, and nobody asks */
    struct vpmm_served *served_out;   /* NULL: nobody asks; left alone where a front cache serves */
    bool is_slab;                     /* not the program's: see habit.h */
    /* vpmm_heap_malloc_cached has just failed to serve it, and so has _by_habit where it might. */
    bool was_asked;
};

/* OK and an address; or why the heap could not serve it (the caller then asks the original
 * function): NO_MEMORY after the whole out-of-memory ladder, NO_METADATA, INVALID (0 bytes, or more
 * than the device), BROKEN, SHUT_DOWN. LIMITED is NO_MEMORY where the limit was the cause, or one
 * of them: nobody else is to serve it. */
VPMM_MUST_CHECK enum vpmm_status
vpmm_heap_malloc(struct vpmm_heap *heap, const struct vpmm_request *request, uint64_t *address_out);

/* Serves `request`, of a stream, from that stream's front cache alone: no lock that others share,
 * no driver. False: `*has_habit_out` tells whether the next one may serve it; otherwise
 * vpmm_heap_malloc has to. */
bool vpmm_heap_malloc_cached(struct vpmm_heap *heap, const struct vpmm_request *request,
                             uint64_t *address_out, bool *has_habit_out);
/* Serves `request`, of a stream, at the address that its habit names, under the heap's lock. False:
 * it has no habit, or the address cannot be had now; vpmm_heap_malloc has to. */
bool vpmm_heap_malloc_by_habit(struct vpmm_heap *heap, const struct vpmm_request *request,
                               uint64_t *address_out);
/* Frees the live region that starts exactly at `address` into the stream's front cache; then
 * `status_out` is BROKEN or SHUT_DOWN where the driver told of it, OK otherwise. False: nothing has
 * happened, and vpmm_heap_free has to. */
bool vpmm_heap_free_cached(struct vpmm_heap *heap, uint64_t address,
                           const struct vpmm_stream *stream, enum vpmm_status *status_out);

/* Frees the live region that starts exactly at `address`. `stream` NULL: cudaFree. OK; NOT_FOUND:
 * no live region starts there (never allocated, interior, or freed before): nothing changed.
 * `wait_out` tells what the wait of free_waits answered, or BROKEN or SHUT_DOWN where a record did
 * (OK otherwise); the region is free in any case. */
VPMM_MUST_CHECK enum vpmm_status vpmm_heap_free(struct vpmm_heap *heap, uint64_t address,
                                                const struct vpmm_stream *stream,
                                                enum vpmm_status *wait_out);

/* Frees the live region that starts exactly at `address` where nobody can tell on which stream: it
 * is used again when all work of all contexts is complete. False where there is none (driver). */
bool vpmm_heap_free_unknown(struct vpmm_heap *heap, uint64_t address);

/* Frees the live region that starts exactly at `address` where nobody can tell what its reuse must
 * wait for: it is never used again. False where there is none. No driver. */
bool vpmm_heap_give_up(struct vpmm_heap *heap, uint64_t address);

/* ---- blocks that other processes open ---- */

/* Lets the live region at `address` with that owner's id be leased from now on. No driver.
 * `shared_bytes_out`, of OK and NOT_SUPPORTED: how much lies beside it in its extents. NOT_FOUND:
 * there is no such region; NOT_SUPPORTED: something lies there, and may not (exports_whole). */
VPMM_MUST_CHECK enum vpmm_status vpmm_heap_export(struct vpmm_heap *heap, uint64_t address,
                                                  uint64_t owner_id, uint64_t *shared_bytes_out);

/* A lease keeps an exported region out of reuse: freed, it is withheld until its last lease ends.
 * Leases are counted. NOT_FOUND: no such region is live and exported; NO_METADATA. `start_out` and
 * `end_out`: the addresses of the extents that show it, which stay as they are meanwhile. */
VPMM_MUST_CHECK enum vpmm_status vpmm_heap_lease(struct vpmm_heap *heap, uint64_t address,
                                                 uint64_t owner_id, uint64_t *start_out,
                                                 uint64_t *end_out);
/* Ends one of them; nothing happens where there is none. No driver. */
void vpmm_heap_unlease(struct vpmm_heap *heap, uint64_t address, uint64_t owner_id);
/* Of a leased region: see vpmm_pool_shown_extents. */
size_t vpmm_heap_leased_extents(struct vpmm_heap *heap, uint64_t address, uint64_t from,
                                struct vpmm_shown_extent *extents_out, size_t room);

/* Whether `address` lies in this heap's roots. No lock, no driver. */
bool vpmm_heap_holds(const struct vpmm_heap *heap, uint64_t address);
/* The region that holds `address`. NOT_FOUND outside this heap's roots. No lock, no driver. */
enum vpmm_status vpmm_heap_find(const struct vpmm_heap *heap, uint64_t address,
                                struct vpmm_region_view *view_out);
/* See vpmm_pool_live_bytes. No lock, no driver. */
uint64_t vpmm_heap_live_bytes(const struct vpmm_heap *heap, uint64_t address);

/* What the heap has at one moment, in pages. */
struct vpmm_heap_account {
    struct vpmm_pool_totals totals;
    /* Freed, and not known complete: free with such a fence, in a front cache or not, or claimed
     * by a free, be it under way, withheld or lost. A page that a free just claims may count both
     * to this and to what is live; none counts to neither. */
    uint64_t pending_pages;
    uint64_t ready_pages;                /* free, and complete */
    uint64_t withheld_pages, lost_pages; /* of the pending ones */
};

/* Empties the front caches, has the keeper free what nobody uses, and makes the fences of all that
 * was freed there recorded ones (driver). */
void vpmm_heap_gather(struct vpmm_heap *heap);

/* Learns what has completed and unmaps what may be unmapped. */
void vpmm_heap_reap(struct vpmm_heap *heap);

/* What is live and what is not reusable yet, so that no page that was freed is missing: see struct
 * vpmm_heap_account. No driver. */
void vpmm_heap_account(struct vpmm_heap *heap, struct vpmm_heap_account *account_out);

/* Waits on the host for all that is pending now, whatever it takes, and learns that it is complete
 * (driver). What cannot be waited for stays pending, and does not keep the rest from being waited
 * for; the first failure is told: CAPTURED where a capture keeps a fence from being recorded, or
 * the driver's; where there is none, NOT_READY if another thread keeps one from being recorded for
 * long. Not where the program did not ask for it. */
VPMM_MUST_CHECK enum vpmm_status vpmm_heap_synchronize(struct vpmm_heap *heap);

/* Tries unmaps that failed again, and gives wholly free, complete extents back to the device until
 * `bytes` are given back; returns how many bytes both unmapped. */
uint64_t vpmm_heap_trim(struct vpmm_heap *heap, uint64_t bytes);
/* The same, but never more than `bytes`: larger extents stay. */
uint64_t vpmm_heap_trim_within(struct vpmm_heap *heap, uint64_t bytes);

/* The same until at most `keep_bytes` are held, or nothing more can be given back; because extents
 * go as wholes, it may become less. What is live stays. Returns as vpmm_heap_trim does; 0 where no
 * more was held. */
uint64_t vpmm_heap_trim_to(struct vpmm_heap *heap, uint64_t keep_bytes);

/* ---- decay: what was not needed for a while goes back (heap_decay.c) ---- */

/* The window over which need is remembered has so many slots. Time is the caller's: a slot is what
 * lies between two looks. */
#define VPMM_DECAY_SLOTS 8

/* Whether the heap holds so much that some of it might ever decay. No lock, no driver. */
bool vpmm_heap_may_decay(const struct vpmm_heap *heap);

/* Ends a slot: learns what has completed and remembers the highest need of the slot. Every second
 * time it also empties the front caches, because what they hold counts as needed (driver: events
 * only). `may_record` false: it records no event, because a capture is under way. */
void vpmm_heap_decay_look(struct vpmm_heap *heap, bool may_record);

/* Gives one slice of what was not needed in the whole window back to the device: wholly free,
 * complete extents, a bounded number of them. It keeps the highest need of the window, the larger
 * of slack and spare beyond that, the eager pages, and at least `keep_bytes` of free memory.
 * Zombies are unmapped where nothing else can be given back. True: there may be more. */
bool vpmm_heap_decay_slice(struct vpmm_heap *heap, uint64_t keep_bytes);

/* How long to go on looking at work that must not be waited for without bound. Zero-initialised: it
 * has not begun. */
struct vpmm_patience {
    uint64_t end_ms;
    unsigned looks_left; /* until then it lasts whatever the time: a busy host looks seldom */
};

/* How far the pool goes for an allocation elsewhere that failed for lack of memory; one for all
 * tries of that allocation. `bytes`: what it asks for. `may_wait`: bare CUDA may have waited there
 * for what cudaFree left pending. `may_poll`: pending frees may be polled for. The rest begins as
 * 0. */
struct vpmm_relief {
    uint64_t bytes;
    bool may_wait, may_poll;
    unsigned rounds;
    struct vpmm_patience patience;
};

/* Gives all that it can back to the device, and waits for pending frees as far as `relief` allows
 * where that is nothing. False: trying again is in vain. */
bool vpmm_heap_relieve(struct vpmm_heap *heap, struct vpmm_relief *relief);

/* Whether so many bytes more of the limit may be held outside the heap: from then on it holds as
 * much less. Always true where there is no limit. No driver. */
bool vpmm_heap_set_aside(struct vpmm_heap *heap, uint64_t bytes);
/* Ends that for so many of them. */
void vpmm_heap_set_back(struct vpmm_heap *heap, uint64_t bytes);

/* Bytes in extents. */
uint64_t vpmm_heap_held_bytes(const struct vpmm_heap *heap);

/* Bytes that vpmm_heap_trim could give back now, as far as vpmm_heap_reap has shown. */
uint64_t vpmm_heap_releasable_bytes(struct vpmm_heap *heap);

/* What its blocks here are and were. The default one has all that the heap holds and that other
 * memory is not made of; the others have what was live of them, because the heap is one. */
struct vpmm_mempool_figures {
    uint64_t used_bytes, used_high_bytes, reserved_bytes, reserved_high_bytes;
};
void vpmm_heap_mempool_figures(struct vpmm_heap *heap, struct vpmm_mempool *mempool,
                               struct vpmm_mempool_figures *figures_out);
/* The highest figures start anew from the present ones. */
void vpmm_heap_mempool_reset_used(struct vpmm_heap *heap, struct vpmm_mempool *mempool);
void vpmm_heap_mempool_reset_reserved(struct vpmm_heap *heap, struct vpmm_mempool *mempool);
/* Whether its limit allows so many bytes more. */
bool vpmm_heap_mempool_has_room(struct vpmm_heap *heap, const struct vpmm_mempool *mempool,
                                uint64_t bytes);
/* Gives back to the device what it reserves beyond `keep_bytes`, as far as work is complete.
 * `keeps_all`: no more, because CUDA promises that so much stays; larger extents stay then.
 * Otherwise, and where nothing is to be kept, the last extent may be larger. */
void vpmm_heap_mempool_trim(struct vpmm_heap *heap, struct vpmm_mempool *mempool,
                            uint64_t keep_bytes, bool keeps_all);

/* The bytes of free memory that the program told it to keep, by the threshold it chose. */
uint64_t vpmm_heap_mempool_kept_bytes(const struct vpmm_heap *heap,
                                      const struct vpmm_mempool *mempool);

/* The context is gone: its cudaMalloc memory is free and complete, as bare CUDA would have freed
 * it; cudaMallocAsync memory stays live. To be called after vpmm_order_context_left(..., true). */
void vpmm_heap_context_gone(struct vpmm_heap *heap, uint64_t context_id);

/* Makes all extents, present and future, accessible to `peer` too. On failure access is as before.
 */
VPMM_MUST_CHECK enum vpmm_status vpmm_heap_add_peer(struct vpmm_heap *heap, int peer);

/* How requests were served, since the heap was made. */
struct vpmm_heap_counts {
    uint64_t mallocs, frees;
    uint64_t cache_hits;  /* mallocs that a front cache served; they count nowhere below */
    uint64_t direct_hits; /* those of them that vpmm_heap_malloc_cached answered to its caller */
    /* How a malloc was served: without a driver call where the same stream had it before in the
     * same situation, where it lay free, or at an old address; with moved extents; with new ones
     * only. */
    uint64_t habit_hits, fits, revives, stitches, grows;
    uint64_t rungs[VPMM_RUNG_COUNT]; /* mallocs that each rung served */
    uint64_t host_waits, stream_waits;
    uint64_t failures;       /* mallocs that the caller had to pass on */
    uint64_t trimmed_bytes;  /* given back because somebody asked for it */
    uint64_t decayed_bytes;  /* given back because it was not needed for a while */
    uint64_t leased_regions; /* now: other processes have them open */
    uint64_t withheld_pages; /* of those of them that were freed */
};
void vpmm_heap_counts(const struct vpmm_heap *heap, struct vpmm_heap_counts *counts_out);

/* For queries, dumps, tests and audits. */
/* The most that may be held, in whole pages; 0: there is no limit. */
uint64_t vpmm_heap_limit_bytes(const struct vpmm_heap *heap);
int vpmm_heap_device(const struct vpmm_heap *heap);
uint64_t vpmm_heap_page_bytes(const struct vpmm_heap *heap);
const struct vpmm_pool *vpmm_heap_pool(const struct vpmm_heap *heap);
/* How a heap lies in memory: see base/layout.h. */
uint64_t vpmm_heap_layout(void);
/* The pool's audit under the lock: NULL or a static text. */
const char *vpmm_heap_audit(struct vpmm_heap *heap);
/* The same, but false where the lock is held: for the end of the process, when its holder may never
 * run again. */
bool vpmm_heap_try_audit(struct vpmm_heap *heap, const char **broken_out);

#endif
