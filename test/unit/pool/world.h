/* SPDX-License-Identifier: MIT */
/* A world for tests of the pool: it carries plans out on a page table of its own, checks every step
 * against it, keeps fences that the test completes, and memory that fails when told. Places are
 * page numbers from the start of the first root. Every check fails the running cmocka test. */
#ifndef VPMM_TEST_POOL_WORLD_H
#define VPMM_TEST_POOL_WORLD_H

#include "pool/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define WORLD_BASE ((uint64_t)1 << 40)
#define WORLD_PAGES ((uint64_t)1 << 17)
#define WORLD_FENCES ((uint64_t)1 << 18)

struct world_fence {
    bool is_complete;
    uint64_t stream; /* that work it stands for was queued on */
    vpmm_fence a, b; /* its parts, if it was joined */
};

/* One page of address space: which page of which extent it shows, and the fence of its last free
 * here. */
struct world_page {
    uint64_t extent, offset;
    vpmm_fence fence;
};

/* One extent, and for each of its pages the fence of its last free anywhere. */
struct world_extent {
    uint64_t pages;
    uint64_t mappings;
    vpmm_fence *fences;
    bool is_fixed; /* the driver refused for good to map it again, and the pool was told */
};

struct world {
    struct vpmm_pool *pool;
    struct vpmm_memory memory;
    struct vpmm_fence_view view;
    uint64_t page_bytes;
    long maps_left; /* metadata mappings that will succeed; negative: all */
    long maps;      /* that exist */
    uint64_t stream;
    uint64_t owner_id; /* of the next requests */
    uint64_t n_requests;
    bool is_whole;         /* the next requests want extents of their own */
    bool never_spares;     /* the next requests: extents move, however often */
    bool pays_by_extent;   /* likewise: each extent counts */
    bool is_slab, may_mix; /* the next requests */
    bool joins_fail;
    struct world_page *pages;
    struct world_extent *extents;
    uint64_t n_extents; /* numbers used so far */
    struct world_fence *fences;
    uint64_t n_fences;
    char layout[4096];
};

/* How a request is to go wrong. */
struct world_trouble {
    bool abandons;
    uint32_t after_steps; /* that were carried out before */
    bool is_stuck;        /* those cannot be unmapped again */
};

void world_init(struct world *world, uint64_t page_bytes, uint64_t extent_pages_max,
                uint64_t pages);
void world_finish(struct world *world);
void world_add_root(struct world *world, uint64_t page, uint64_t pages);
void world_add_slab_root(struct world *world, uint64_t page, uint64_t pages);

/* Everything the pool says agrees with itself and with the page table. */
void world_check(struct world *world);

vpmm_fence world_fence(struct world *world, uint64_t stream);
void world_complete(struct world *world, vpmm_fence fence);
/* The one stream that all work of the fence was queued on; 0 where there is none. */
uint64_t world_stream(const struct world *world, vpmm_fence fence);
bool world_is_complete(const struct world *world, vpmm_fence fence);

/* A request of `stream` as the heap makes it: settle, fit, revive, or else plan. `trouble` may be
 * NULL. Checks afterwards. */
enum vpmm_status world_try(struct world *world, uint64_t pages, uint64_t stream,
                           uint64_t create_pages_max, const struct world_trouble *trouble,
                           uint64_t *page_out);
/* The same, and it must succeed. */
uint64_t world_malloc(struct world *world, uint64_t pages, uint64_t stream);
/* A request at that page alone, as it lies: no settling. Whether it must be served, and what
 * becomes of every page, is judged page by page; OK, NOT_FOUND, or NO_METADATA where that may fail.
 * No front cache holds anything. */
enum vpmm_status world_serve_at(struct world *world, uint64_t page, uint64_t pages,
                                uint64_t stream);
/* Pages mapped eagerly. */
void world_grow(struct world *world, uint64_t pages);
/* Claims and frees, with the region's own fence joined in. */
void world_free(struct world *world, uint64_t page, vpmm_fence fence);
void world_settle(struct world *world);
/* Unmaps what zombies can be unmapped; returns how many. */
size_t world_reap(struct world *world, bool unmaps);
/* Tries to unmap all that is quarantined, in vain and then with success. */
void world_retry(struct world *world);
/* Releases at least `pages`, if there are so many; returns the pages. */
uint64_t world_trim(struct world *world, uint64_t pages, bool unmaps);

/* The steps fill the plan's range without a gap and add up to its totals. */
void world_check_plan(const struct world *world, const struct vpmm_plan *plan);
/* The region at `address` is live and of `pages`, and its owner follows everything that its pages'
 * last owners may still be running. */
void world_check_owner(struct world *world, uint64_t address, uint64_t pages, uint64_t stream);
/* Carries one step out. */
void world_step(struct world *world, struct vpmm_step *step);
void world_unmap(struct world *world, uint64_t address, uint64_t pages);

struct vpmm_want world_want(struct world *world, uint64_t pages, uint64_t stream);
struct vpmm_pool_totals world_totals(const struct world *world);
uint64_t world_page(const struct world *world, uint64_t address);
uint64_t world_address(const struct world *world, uint64_t page);
/* The most pages of free neighbours in one root. */
uint64_t world_largest_run(const struct world *world);

/* All regions in order: [4] live, [-4] free, [*4] hole, [z4] zombie, [?4] busy, [!4] quarantined; a
 * hole at the very end is left out. */
const char *world_layout(struct world *world);

#endif
