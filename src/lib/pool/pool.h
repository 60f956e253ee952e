/* SPDX-License-Identifier: MIT */
/* The bookkeeping of one device's memory: regions of address space, extents of physical memory, and
 * the plans that turn one state into the next. Pure C: no lock, no driver call, no clock, no
 * environment, no CUDA type. The caller (src/lib/heap) holds one lock around every call here but
 * those marked "any thread", carries plans out while it holds none, and then commits or abandons
 * them.
 *
 * Sizes are in pages unless a name says bytes. An address is a device address. Every operation that
 * can fail for lack of metadata fails before it has changed anything; commit, abandon, free and the
 * "done" calls cannot fail.
 * docs/DESIGN.md has the glossary, the invariants, and one malloc and one free step by step. */
#ifndef VPMM_POOL_POOL_H
#define VPMM_POOL_POOL_H

#include "base/atomic.h"
#include "base/fence.h"
#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vpmm_region_state {
    VPMM_REGION_UNUSED, /* the record stands for nothing */
    VPMM_REGION_HOLE,
    VPMM_REGION_FREE,
    VPMM_REGION_LIVE,
    VPMM_REGION_ZOMBIE,
    VPMM_REGION_BUSY,
    VPMM_REGION_QUARANTINED,
    VPMM_REGION_CACHED, /* free, and a front cache holds it: every view shows it as free */
};

/* CUDA's memory pools by number: to which of them a block counts. */
#define VPMM_MEMPOOL_DEFAULT 0u /* the device's default one */
#define VPMM_MEMPOOL_NONE 1u    /* none: memory of cudaMalloc */
#define VPMM_MEMPOOL_FIRST 2u   /* from here on those that the program made */
#define VPMM_MEMPOOLS 64u

/* What a region may tell about its owner; the pool stores it, and reads what the totals count. */
struct vpmm_owner {
    uint64_t bytes;      /* as requested; the region is rounded up to pages */
    uint64_t context_id; /* of the allocating context */
    uint64_t stream_id;  /* that allocated it, or that freed it; 0 for cudaMalloc and cudaFree */
    uint64_t id, stamp;  /* unique to each allocation, never reused; the caller's own */
    bool is_async;       /* came from cudaMallocAsync */
    uint32_t mempool;    /* then the number of the memory pool that it counts to */
    bool is_whole;       /* the region begins and ends where extents do */
};

/* A copy of one region, consistent in itself. */
struct vpmm_region_view {
    enum vpmm_region_state state;
    uint64_t address;
    uint64_t pages;
    vpmm_fence fence; /* free, zombie: what must complete; live: what its memory's last owner may
                         still be running */
    struct vpmm_owner owner;
    bool is_exported; /* live, or busy after that: see vpmm_pool_export */
    bool is_part;     /* a block within a region: see src/lib/small */
    bool begins_root; /* of vpmm_pool_next: the first of a root, which may touch the one before */
};

struct vpmm_pool_params {
    uint64_t page_bytes;
    uint64_t extent_pages_max; /* 0: the policy's own choice; 1: every extent one page */
    uint64_t mappings_max;     /* at most so many mappings, aliases included */
    uint64_t spare_percent;    /* of what is needed at most: so much more may be held where requests
                                  have to move extents often (0: nothing) */
};

/* Running totals; each equals the sum over regions or extents at any time (the audit checks). */
struct vpmm_pool_totals {
    uint64_t roots, root_pages;
    uint64_t live_pages, live_bytes; /* bytes as requested */
    uint64_t free_pages;             /* reusable now or later */
    uint64_t waiting_pages; /* of the free ones, in no front cache: not known complete yet */
    uint64_t claimed_pages; /* of the busy ones, by vpmm_pool_claim */
    uint64_t hole_pages, zombie_pages, busy_pages, quarantined_pages;
    uint64_t extents, held_pages; /* physical memory, whatever maps it */
    uint64_t mappings;            /* extents counted once for each address they are mapped at */
    /* The live peak is as large as any lock holder saw it. */
    uint64_t live_pages_peak, held_pages_peak;
    uint64_t moved_pages, created_pages, released_pages; /* since the pool was made */
};

struct vpmm_pool;

/* An empty pool without address space. NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_pool_create(const struct vpmm_pool_params *params,
                                                  const struct vpmm_memory *memory,
                                                  struct vpmm_pool **pool_out);
/* Gives all metadata back; the caller has released the driver's objects. NULL is accepted. */
void vpmm_pool_destroy(struct vpmm_pool *pool);

/* No plan makes the pool hold more than so many pages; without it any number may be held. False,
 * and unchanged, where more is held or planned. */
bool vpmm_pool_limit(struct vpmm_pool *pool, uint64_t held_pages_max);

/* Adopts a reserved range, page-aligned, as a root: one hole. Roots never merge with one another.
 * `is_of_slabs`: slabs lie there, apart from all other blocks. NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_pool_add_root(struct vpmm_pool *pool, uint64_t address,
                                                    uint64_t pages, bool is_of_slabs);

/* ---- requests ---- */

#define VPMM_WANT_FOLLOWS_MAX 9u
struct vpmm_want {
    uint64_t pages;
    struct vpmm_owner owner; /* for the live region; is_whole: whole extents alone serve it */
    const struct vpmm_fence_view *view; /* which fences this request may build on */
    uint64_t create_pages_max; /* at most so many new pages (0: none; UINT64_MAX: any number) */
    uint64_t number;           /* how many requests came before it, as far as anybody counts */
    uint64_t follows[VPMM_WANT_FOLLOWS_MAX], n_follows; /* other streams that the view may allow */
    bool may_spare;      /* new pages may replace extents that move, whatever create_pages_max */
    bool pays_by_extent; /* the toll counts each extent that it moves, not the request */
    bool is_neat;        /* a fit takes all of a region, or a quarter of it at most */
    bool asks_all; /* the view may allow what other streams left pending: ask about all of it */
    bool is_slab;  /* it is served in slab roots, all others elsewhere */
    bool may_mix;  /* memory is short: it may be served in roots of either kind */
};

/* Serves `want` from mapped pages without any driver call: best fit among the complete regions and
 * those that the stream of its owner freed, exact fits first and the stream's own before complete
 * ones of the same size; or else a run of such neighbours, looked for around the largest ones. The
 * low end is taken and the rest stays free with its fence. O(log n) steps. NOT_FOUND, NO_METADATA.
 */
VPMM_MUST_CHECK enum vpmm_status vpmm_pool_fit(struct vpmm_pool *pool, const struct vpmm_want *want,
                                               uint64_t *address_out);

/* Serves `want`, which fit could not, without any driver call either: at an old address that still
 * shows what it needs. A range of zombies, beside which free regions may lie, becomes the live
 * region, if all extents it shows lie wholly in regions that fit could use and the zombies' own
 * last users come before the request, too. Their old places become zombies, and what they show
 * beside the range becomes free. A bounded number of
 * ranges is tried, the youngest of exactly the wanted pages first. Steps: as many as extents are
 * looked at, and O(log n). NOT_FOUND, NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status
vpmm_pool_revive(struct vpmm_pool *pool, const struct vpmm_want *want, uint64_t *address_out);

/* Serves `want` at `address`, which is page-aligned, without any driver call: from free regions,
 * and from zombies as vpmm_pool_revive does. Steps: as many as regions and extents lie there, and
 * O(log n). NOT_FOUND, NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_pool_serve_at(struct vpmm_pool *pool,
                                                    const struct vpmm_want *want, uint64_t address);

/* One driver step of a plan, in the order in which they must be carried out. */
struct vpmm_step {
    enum vpmm_step_kind {
        VPMM_STEP_CREATE, /* create an extent of `pages`, map it at `address`; write its handle to
                             `extent` */
        VPMM_STEP_MOVE,   /* map the existing `extent` at `address` too */
    } kind;
    uint64_t address;
    uint64_t pages;
    uint64_t extent; /* the driver's handle */
};

/* A change under way. Its regions are busy, so nobody else plans with them. `steps` fill [address,
 * address + pages) without a gap: one range for one set-access. After the steps the caller commits
 * or abandons; both end the plan. */
struct vpmm_plan {
    uint64_t address;
    uint64_t pages;
    struct vpmm_step *steps;
    uint32_t n_steps;
    uint64_t created_pages, moved_pages;
};

/* Plans a stitch for `want` that fit could not serve: the plan that creates the fewest pages, and
 * of those the one that touches the fewest extents. It extends a free region in place into the hole
 * at its right where that is no worse, harvests wholly free extents of complete regions and of
 * those that the stream of its owner freed, and creates the shortfall as the extent policy says.
 * Where many requests have had to move extents lately, it creates pages instead of moving any, as
 * far as `spare_percent` goes.
 * Steps: as many as extents are taken, and O(log n); besides, each extent that became free since
 * the last plan is listed once. A plan without steps is possible: something
 * fit to serve as it lies was freed meanwhile. NOT_FOUND: more than `create_pages_max` would have
 * to be created. LIMITED: so many may be, but then more would be held than vpmm_pool_limit allows.
 * NO_SPACE: no hole is large enough, add a root and plan again. NO_METADATA. CAPTURED is never
 * returned. NOT_SUPPORTED: the cap on mappings is reached; unmap zombies first.
 */
VPMM_MUST_CHECK enum vpmm_status
vpmm_pool_plan(struct vpmm_pool *pool, const struct vpmm_want *want, struct vpmm_plan **plan_out);

/* Plans `pages` new pages as one free, complete region (eager mapping). NO_SPACE, NO_METADATA,
 * NOT_SUPPORTED, LIMITED. */
VPMM_MUST_CHECK enum vpmm_status vpmm_pool_plan_growth(struct vpmm_pool *pool, uint64_t pages,
                                                       struct vpmm_plan **plan_out);

/* All steps are done and accessible: publishes the result. A plan of vpmm_pool_plan yields the live
 * region's address, turns the old addresses of moved extents into zombies that wait for the fences
 * of all regions they overlapped, and returns the unused part of the hole. Ends the plan. */
void vpmm_pool_commit(struct vpmm_pool *pool, struct vpmm_plan *plan, uint64_t *address_out);

/* The driver refused for good to map the extent of that MOVE: it is never harvested again, and
 * serves where it is until it is given back. To be followed by vpmm_pool_abandon. */
void vpmm_pool_fix_extent(struct vpmm_pool *pool, struct vpmm_plan *plan, uint32_t step);

/* The steps were undone: everything is as it was before the plan. `stuck_pages` pages from the
 * plan's address could not be unmapped again (0: none; else those of whole steps) and are
 * quarantined; if they hold new extents, those stay counted as held. Ends the plan. */
void vpmm_pool_abandon(struct vpmm_pool *pool, struct vpmm_plan *plan, uint64_t stuck_pages);

/* ---- frees ---- */

/* The next three: any thread, no lock. Whether `address` lies in a root of this pool. */
bool vpmm_pool_holds(const struct vpmm_pool *pool, uint64_t address);
/* Copies the region that holds `address`; NOT_FOUND outside the roots. One that is just changing
 * may be shown as one busy page; a live one never changes. */
enum vpmm_status vpmm_pool_find(const struct vpmm_pool *pool, uint64_t address,
                                struct vpmm_region_view *view_out);
/* The bytes asked for of the live region that starts exactly at `address`; 0: there is none. Where
 * somebody frees it meanwhile, those of another one may be told. */
uint64_t vpmm_pool_live_bytes(const struct vpmm_pool *pool, uint64_t address);

/* Any thread, no lock. live -> busy in one compare-and-swap: of two frees of the live region that
 * starts exactly at `address`, one gets OK and a copy of it; everybody else gets NOT_FOUND. */
VPMM_MUST_CHECK enum vpmm_status vpmm_pool_claim(struct vpmm_pool *pool, uint64_t address,
                                                 struct vpmm_region_view *view_out);
/* The same, and NOT_FOUND too where the region has another owner.id than `owner_id`; 0: any. */
VPMM_MUST_CHECK enum vpmm_status vpmm_pool_claim_of(struct vpmm_pool *pool, uint64_t address,
                                                    uint64_t owner_id,
                                                    struct vpmm_region_view *view_out);

/* The claimed region at `address` becomes free with `fence`, and merges with neighbours of the same
 * root that are free and hold the same fence, or are complete when it is. `stream_id`, not 0: as
 * long as the fence is not complete, it is in order for every request of that stream. Cannot fail.
 */
void vpmm_pool_free(struct vpmm_pool *pool, uint64_t address, vpmm_fence fence, uint64_t stream_id);

/* Fences that `view` now calls complete become VPMM_FENCE_NONE, and what can merge then does. Those
 * of a stream are asked about in their order until some are not complete, the others from the
 * oldest on; so many at a time that it takes O(log n) steps, and for each region that it settles.
 * What is left out another call finds; true if there may be such. Cannot fail. */
bool vpmm_pool_settle(struct vpmm_pool *pool, const struct vpmm_fence_view *view);
/* The same for every fence, those of zombies too: for a caller that has waited. */
void vpmm_pool_settle_all(struct vpmm_pool *pool, const struct vpmm_fence_view *view);

/* The fences of all pending free regions that `is_wanted` says yes to (NULL: all), the oldest fence
 * first, at most `room` distinct ones; returns how many. Asks about every fence: for a caller that
 * wants to wait. */
size_t vpmm_pool_pending(struct vpmm_pool *pool, bool (*is_wanted)(void *self, vpmm_fence fence),
                         void *self, vpmm_fence *fences_out, size_t room);

/* ---- CUDA's memory pools ---- */

/* What live blocks count to memory pools, in parts that add up modulo 2 to the 64: each cache keeps
 * one, and the pool the rest. */
struct vpmm_tally {
    /* [VPMM_MEMPOOL_DEFAULT]: bytes that count to the default one, less those of all live blocks;
     * so blocks of that one, which are most, change nothing. [VPMM_MEMPOOL_NONE]: the pages of all
     * blocks that do not count to the default one. Of the others their bytes. */
    vpmm_atomic64 by_mempool[VPMM_MEMPOOLS];
};

/* Any thread. The bytes of live blocks that count to a memory pool, as requested (measured on
 * driver 580); and the pages of those that do not count to the default one. What others free or
 * allocate meanwhile may be missing or count twice. */
uint64_t vpmm_pool_mempool_bytes(const struct vpmm_pool *pool, uint32_t mempool);
/* The part of that sum, modulo 2 to the 64, which no front cache has. */
uint64_t vpmm_pool_mempool_part(const struct vpmm_pool *pool, uint32_t mempool);
uint64_t vpmm_pool_other_pages(const struct vpmm_pool *pool);

/* ---- giving back ---- */

/* A page is *needed* while it is live, in a front cache, or free and pending. The pages needed now,
 * and the most that were needed since the last restart or since the pool was made. Lost and
 * withheld pages are not counted. */
uint64_t vpmm_pool_need_pages(const struct vpmm_pool *pool);
uint64_t vpmm_pool_need_pages_high(const struct vpmm_pool *pool);
/* The highest need starts again from the present one. */
void vpmm_pool_need_restart(struct vpmm_pool *pool);

/* A range that the caller unmaps with one driver call; of an extent, it releases the handle before.
 */
struct vpmm_removal {
    uint64_t address;
    uint64_t pages;
    uint64_t extent; /* the handle to release first; 0 for a zombie or quarantined range */
};

/* Takes up to `room` zombies whose fences `view` calls complete, those longest abandoned first, and
 * marks them busy. Returns how many. It asks about fences as vpmm_pool_settle does. */
size_t vpmm_pool_take_zombies(struct vpmm_pool *pool, const struct vpmm_fence_view *view,
                              struct vpmm_removal *removals_out, size_t room);

/* Takes up to `room` quarantined ranges for another try at their unmap, and marks them busy.
 * Returns how many. */
size_t vpmm_pool_take_quarantined(struct vpmm_pool *pool, struct vpmm_removal *removals_out,
                                  size_t room);

/* Takes up to `room` extents that lie wholly in complete free regions and are mapped once, largest
 * runs first, until they amount to `pages`, and marks their pages busy. Never more than
 * `most_pages` in all, and from the upper ends of regions that have more. Returns how many; fewer
 * than there are when metadata runs out. */
size_t vpmm_pool_take_extents(struct vpmm_pool *pool, uint64_t pages, uint64_t most_pages,
                              struct vpmm_removal *removals_out, size_t room);

/* The pages that vpmm_pool_take_extents could take in all once the zombies are unmapped; where
 * something is quarantined, a walk leaves out what is mapped more than once. */
uint64_t vpmm_pool_releasable_pages(struct vpmm_pool *pool);

enum vpmm_removal_outcome {
    VPMM_REMOVED, /* unmapped: the range is a hole again, and an extent is forgotten */
    VPMM_KEPT,    /* nothing happened: an extent's pages are free again; not for other ranges */
    VPMM_STUCK, /* still mapped, though an extent's handle is released: the range is quarantined */
};
/* What became of a removal. */
void vpmm_pool_removal_done(struct vpmm_pool *pool, const struct vpmm_removal *removal,
                            enum vpmm_removal_outcome outcome);

/* ---- looking ---- */

/* Any thread, no lock, also in a signal handler. Continues a walk over all regions in ascending
 * address order: `*cursor`, an address, starts at 0 and is advanced. False at the end. Regions that
 * change meanwhile are shown as they were or as they become; none is shown twice for one address.
 */
bool vpmm_pool_next(const struct vpmm_pool *pool, uint64_t *cursor,
                    struct vpmm_region_view *view_out);

/* Any thread; without the lock, a copy whose fields may be of slightly different moments. */
void vpmm_pool_totals(const struct vpmm_pool *pool, struct vpmm_pool_totals *totals_out);
/* Some of them, for those who need no more. Owned: by live and by cached regions. */
void vpmm_pool_live(const struct vpmm_pool *pool, uint64_t *pages_out, uint64_t *bytes_out);
uint64_t vpmm_pool_owned_pages(const struct vpmm_pool *pool);
uint64_t vpmm_pool_held_pages(const struct vpmm_pool *pool);
uint64_t vpmm_pool_zombie_pages(const struct vpmm_pool *pool);

/* The roots, by number from 0: false past the last. Any thread. */
bool vpmm_pool_root(const struct vpmm_pool *pool, uint32_t number, uint64_t *address_out,
                    uint64_t *pages_out);
/* How a pool lies in memory: see base/layout.h. */
uint64_t vpmm_pool_layout(void);

/* Walks every invariant of docs/DESIGN.md. NULL when all hold, else a static text that names the
 * first that does not. */
const char *vpmm_pool_audit(const struct vpmm_pool *pool);

#endif
