/* SPDX-License-Identifier: MIT */
/* What the files of src/lib/heap share. The lock protects the pool's bookkeeping; no driver call is
 * made under it. An *edit* is a plan or a removal under way: regions in transit are busy in the
 * pool, driver calls happen between begin and end, and adding a peer waits until no edit is under
 * way, so that one list of devices holds for all mappings. */
#ifndef VPMM_HEAP_INTERNAL_H
#define VPMM_HEAP_INTERNAL_H

#include "base/atomic.h"
#include "base/clock.h"
#include "base/lock.h"
#include "heap/heap_cache.h"
#include "heap/habit.h"
#include "heap/heap.h"
#include "heap/heap_parts.h"
#include "heap/lane.h"
#include "order/order_program.h"

struct vpmm_heap {
    struct vpmm_lock lock;
    struct vpmm_condition edits_done, frees_done;
    struct vpmm_waiting_free *waiting_frees; /* the last one first */
    uint64_t n_waiting_frees;                /* that ever began */
    const struct vpmm_driver *driver;
    struct vpmm_order *order;
    const struct vpmm_memory *memory;
    struct vpmm_pool *pool;
    struct vpmm_heap_params params;
    uint64_t page_bytes;
    uint64_t device_bytes;
    vpmm_atomic64 aside_bytes; /* of the limit: held outside */
    uint64_t capacity_pages;   /* of the device, or fewer where the limit allows no more */
    uint32_t n_edits;
    bool is_frozen;                /* no edit may begin: a peer is being added */
    bool is_unsettled;             /* there may be pending regions whose fences are complete */
    bool has_unasked;              /* streams that the last glance passed over */
    uint64_t settled_completions;  /* order's count when the pool last settled */
    int devices[VPMM_DEVICES_MAX]; /* with access to every extent; the first is the heap's own */
    int n_devices;
    struct vpmm_habits *habits;
    vpmm_atomic64 layout;                     /* habit.h: its part of the device's */
    struct vpmm_lane *used_lanes[VPMM_LANES]; /* that have had a stream: n_lanes of them */
    struct vpmm_lane *lanes;                  /* VPMM_LANES of them */
    struct vpmm_lane *first_lane;             /* of those that have had a stream */
    vpmm_atomic32 n_lanes;                    /* the same */
    vpmm_atomic64 only_stream; /* that has asked or freed: its id; 0: none yet; UINT64_MAX: many */
    uint32_t n_evictions;
    uint64_t cached_pages_max; /* larger regions are not cached */
    /* Little is left of the device, or has been: a request may have to wait for a free on the
     * device, which it can only where the free has an event of its own. */
    vpmm_atomic32 is_tight;
    vpmm_atomic32 is_wasteful;
    vpmm_atomic64 last_allocation_id;
    vpmm_atomic64 frees, habit_hits, fits, revives, stitches, grows;
    vpmm_atomic64 rungs[VPMM_RUNG_COUNT]; /* what each rung of the ladder served */
    vpmm_atomic64 late_hits;              /* of a front cache, that a whole malloc found */
    vpmm_atomic64 host_waits, stream_waits, failures;
    vpmm_atomic64 trimmed_bytes, decayed_bytes;
    /* heap_decay.c: the highest needs of the last slots, in pages; the next one is kept at `slot`.
     */
    uint64_t need_pages_highs[VPMM_DECAY_SLOTS];
    uint32_t decay_slot;
    struct vpmm_lease *leases; /* LEASES_MAX of them, in one mapping; NULL: there never was one */
    vpmm_atomic32 gives_whole; /* extents of their own to blocks of cudaMalloc */
    vpmm_atomic64 n_leases;    /* in use: the first ones */
    vpmm_atomic64 leased_regions;
    vpmm_atomic64 withheld_pages; /* freed, and busy until their leases end */
    vpmm_atomic64 lost_pages;     /* of blocks whose reuse nobody can tell the fence of */
    struct vpmm_keeper keeper;    /* without `give_back`: there is none */
};

#define VPMM_FENCES_MAX 64

/* The fences one request may build on: complete ones, those its stream follows, and those it has
 * promised to make its stream wait for before it uses the pages. */
struct vpmm_request_view {
    struct vpmm_fence_view view;
    struct vpmm_order *order;
    struct vpmm_follower follower;
    vpmm_fence promised[VPMM_FENCES_MAX];
    size_t n_promised;
};

/* `stream` NULL: cudaMalloc. `follows`: the program's own events count. */
void vpmm_request_view_init(struct vpmm_request_view *view, struct vpmm_order *order,
                            const struct vpmm_stream *stream, bool follows);

/* ---- heap_edit.c ---- */

/* Take and give the lock around the planning of an edit. `begin` returns with the lock held and the
 * edit counted; `end` is called with the lock held, ends the edit and gives the lock. */
void vpmm_edit_begin(struct vpmm_heap *heap);
void vpmm_edit_end(struct vpmm_heap *heap);

/* Plans `want` (or, when it is NULL, `pages` of eager growth), carries the plan out and commits it;
 * undoes all of it on failure. Adds roots as needed. `way_out`, with a want: STITCH or GROW. The
 * pool's statuses for planning and the driver's for the steps. */
VPMM_MUST_CHECK enum vpmm_status vpmm_edit_plan(struct vpmm_heap *heap,
                                                const struct vpmm_want *want, uint64_t pages,
                                                uint64_t *address_out, enum vpmm_way *way_out);

/* ---- watch.c: tells whoever listens; without the lock ---- */

/* What a plan has become since then; before it is committed or, with a status, abandoned with so
 * many pages stuck: of those the new ones are held, too, and the others stay where they were. */
void vpmm_heap_tell_plan(struct vpmm_heap *heap, const struct vpmm_plan *plan,
                         enum vpmm_status status, uint64_t stuck_pages, uint64_t begin_ns);
/* A range was unmapped, and its extent, if it names one, released. */
void vpmm_heap_tell_removal(struct vpmm_heap *heap, const struct vpmm_removal *removal,
                            uint64_t begin_ns);
/* `bytes` are held no more, and it is not known where they were. */
void vpmm_heap_tell_release(struct vpmm_heap *heap, uint64_t bytes);
/* The calling thread, or `stream`, waits for work of the device since then. */
void vpmm_heap_tell_wait(struct vpmm_heap *heap, const struct vpmm_stream *stream,
                         uint64_t begin_ns);
/* A block that was live then is one no more, and nobody asked for that. */
void vpmm_heap_tell_death(struct vpmm_heap *heap, const struct vpmm_region_view *region,
                          uint64_t begin_ns);

static inline uint64_t vpmm_heap_now_ns(const struct vpmm_heap *heap)
{
    return vpmm_watch_now_ns(heap->params.watch);
}

/* ---- heap_audit.c ---- */

/* With the lock held, after each change of the pool: stops the process with the first invariant
 * that does not hold. Only where the project is configured with it. */
#ifdef VPMM_AUDIT
void vpmm_heap_check(struct vpmm_heap *heap);
#else
#    define vpmm_heap_check(heap) ((void)(heap))
#endif

/* ---- heap_free.c ---- */

/* Pages of edits and frees under way; what is lost is busy for ever, what is withheld as long as
 * others please, and neither is counted. */
uint64_t vpmm_heap_busy_pages(const struct vpmm_heap *heap, const struct vpmm_pool_totals *totals);
/* With the lock: the claimed region at `address` is free, with that fence. What is complete by now
 * would otherwise stay pending until something else completes: see vpmm_heap_settle. The stream's
 * own is only what it comes after as it stands. */
void vpmm_heap_make_free(struct vpmm_heap *heap, uint64_t address, vpmm_fence fence,
                         uint64_t stream_id);

/* ---- heap_parts.c ---- */

/* Pages that it may have to give once work is complete. No driver. */
uint64_t vpmm_heap_keeper_pending(const struct vpmm_heap *heap);

/* ---- lease.c ---- */

/* With the lock: the claimed region is free, or, where it is leased, will be. */
void vpmm_lease_release(struct vpmm_heap *heap, const struct vpmm_region_view *region,
                        vpmm_fence fence, uint64_t stream_id);
void vpmm_leases_finish(struct vpmm_heap *heap);
/* Gives back the extents of regions that are free and were leased, as far as the fences of their
 * frees are complete. */
void vpmm_leases_give_back(struct vpmm_heap *heap);
/* Waits for these fences; of the failures the first, and NOT_READY where there is no other. */
VPMM_MUST_CHECK enum vpmm_status vpmm_leases_synchronize(struct vpmm_heap *heap);

/* ---- heap.c ---- */

/* What the limit leaves to the heap, in pages. Only where there is one. */
uint64_t vpmm_heap_limit_pages(const struct vpmm_heap *heap);
/* Looks how much of the device the pool holds by now. */
void vpmm_heap_note_tightness(struct vpmm_heap *heap);
/* After a request: whether whole pages waste much by now. */
void vpmm_heap_note_waste(struct vpmm_heap *heap);

/* Reserves one more root for at least `pages` and gives it to the pool. */
VPMM_MUST_CHECK enum vpmm_status vpmm_heap_add_root(struct vpmm_heap *heap, uint64_t pages,
                                                    bool is_for_slabs);

/* ---- reap.c ---- */

/* Learns what has completed, without unmapping anything. True if anything did. */
bool vpmm_heap_settle(struct vpmm_heap *heap);
/* Gathers the lanes, and settles before they are emptied: what is complete by then goes to its
 * place at once. `own` as in vpmm_cache_close. */
void vpmm_heap_gather_settled(struct vpmm_heap *heap, const struct vpmm_stream *own);
/* The same down to the last fence: for who has waited for one. */
void vpmm_heap_settle_all(struct vpmm_heap *heap);
/* The same where the last settling left some for another time; true then. `more`: for a request
 * that finds nothing, which asks about a bounded number of fences (vpmm_order_poll_more). */
bool vpmm_heap_settle_rest(struct vpmm_heap *heap);
bool vpmm_heap_settle_more(struct vpmm_heap *heap);

/* In an edit, with the lock, which it gives and takes again: the claimed region at `address`
 * becomes free, and the extents that lie wholly in it go back to the device. `removals`: room for
 * `room`. */
void vpmm_heap_free_for_good(struct vpmm_heap *heap, uint64_t address,
                             struct vpmm_removal *removals, size_t room);

/* Unmaps zombies whose fences are complete, oldest first, until `pages` are unmapped or no more can
 * be. */
void vpmm_heap_unmap_zombies(struct vpmm_heap *heap, uint64_t pages);

/* Removals carried out between two looks at the bookkeeping. */
#define VPMM_REMOVALS_MAX 64
/* Between begin and end of an edit, with the lock held: drops it for the driver calls. At most
 * VPMM_REMOVALS_MAX. Returns the pages removed. `unheld_bytes`, or NULL, grows by what is held no
 * more of removals that name no extent. */
uint64_t vpmm_heap_remove(struct vpmm_heap *heap, const struct vpmm_removal *removals, size_t n,
                          uint64_t *unheld_bytes);

/* ---- heap_mempool.c ---- */

/* A block of it was served: its highest figures may be higher. */
void vpmm_mempool_note(const struct vpmm_heap *heap, struct vpmm_mempool *mempool);
/* The same of the bytes used alone, for whoever had the block from a lane; that takes no more than
 * was live before, unless the highest figures began anew, and is left out until somebody asks.
 * Returns those bytes. */
VPMM_NOINLINE uint64_t vpmm_mempool_note_used(const struct vpmm_heap *heap,
                                              struct vpmm_mempool *mempool);
static inline void vpmm_mempool_note_hit(const struct vpmm_heap *heap, struct vpmm_mempool *mempool)
{
    if (mempool && vpmm_hint_load(&mempool->is_asked))
        (void)vpmm_mempool_note_used(heap, mempool);
}

/* ---- habits; any thread, no lock ---- */

/* The key of the request's habit, which nobody has looked for yet. */
static VPMM_INLINE struct vpmm_recalled
vpmm_heap_recall_key(const struct vpmm_heap *heap, uint64_t stream_id, uint64_t pages, bool is_slab)
{
    if (is_slab || vpmm_atomic_load(&heap->n_lanes) > VPMM_HABIT_LANES)
        return (struct vpmm_recalled){.is_kept = false};
    uint64_t key = vpmm_habit_key(vpmm_habit_layout(heap), stream_id, pages);
    return (struct vpmm_recalled){
        .key = key, .place = VPMM_HABITS, .stamp = vpmm_habit_stamp(key), .is_kept = true};
}
/* The request was served at `address`. */
static inline void vpmm_heap_remember(const struct vpmm_heap *heap,
                                      const struct vpmm_recalled *recalled, uint64_t address)
{
    if (recalled->is_kept && address != recalled->address)
        vpmm_habit_keep(heap->habits, recalled, address);
}

/* Whether the request's block is to have its extents to itself. */
static inline bool vpmm_heap_gives_whole(const struct vpmm_heap *heap, bool is_async)
{
    return !is_async && vpmm_atomic_load(&heap->gives_whole) != 0;
}
static inline uint32_t vpmm_mempool_number(const struct vpmm_request *request)
{
    return request->mempool ? request->mempool->number : VPMM_MEMPOOL_DEFAULT;
}

/* ---- heap_wait.c ---- */

/* Lets others run for a moment. */
void vpmm_pause(void);

/* vpmm_pool_pending, under the lock. */
size_t vpmm_heap_pending(struct vpmm_heap *heap, bool (*is_wanted)(void *self, vpmm_fence fence),
                         void *self, vpmm_fence *fences_out, size_t room);
/* The same of those that `stream` may wait for. */
size_t vpmm_heap_pending_of_streams(struct vpmm_heap *heap, const struct vpmm_stream *stream,
                                    vpmm_fence *fences_out, size_t room);
/* Whether any free region is pending. */
bool vpmm_heap_has_pending(struct vpmm_heap *heap);

/* A cudaFree that waits for its context itself, because that cannot be recorded. To a cudaMalloc it
 * is what a fence of a cudaFree is. */
struct vpmm_waiting_free {
    uint64_t context_id, number; /* numbers grow */
    struct vpmm_waiting_free *next;
};
void vpmm_waiting_free_begin(struct vpmm_heap *heap, struct vpmm_waiting_free *waiting,
                             uint64_t context_id);
/* Its pages are free. */
void vpmm_waiting_free_end(struct vpmm_heap *heap, const struct vpmm_waiting_free *waiting);

/* Bounds the waits of one request: other threads may free, and fill lanes, for ever. */
struct vpmm_endurance {
    vpmm_fence newest;     /* when the request began to wait */
    uint64_t newest_free;  /* the same of cudaFrees that wait themselves */
    unsigned later_left;   /* waits for later ones */
    unsigned gathers_left; /* looks into the lanes */
};
struct vpmm_endurance vpmm_endurance_begin(struct vpmm_heap *heap);
/* Waits on the host for the oldest fence that the calling thread may wait for
 * (vpmm_order_may_wait_host; `context` NULL: it is in no cudaMalloc). Where the pool has none, it
 * looks into the lanes, and then for a cudaFree of another thread that waits itself. NOT_FOUND:
 * there is none, or no endurance left. */
VPMM_MUST_CHECK enum vpmm_status vpmm_heap_wait_oldest(struct vpmm_heap *heap,
                                                       const struct vpmm_context *context,
                                                       struct vpmm_endurance *endurance);

#endif
