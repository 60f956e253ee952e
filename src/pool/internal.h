/* SPDX-License-Identifier: MIT */
/* What the files of src/pool share: the pool, its roots, and the records of regions and extents. A
 * region record is read by threads without the lock, so every field they read is atomic and guarded
 * by the record's word; everything else belongs to the holder of the caller's lock. Page numbers
 * count from the start of a root. */
#ifndef VPMM_POOL_INTERNAL_H
#define VPMM_POOL_INTERNAL_H

#include "base/bits.h"
#include "base/table.h"
#include "base/tree.h"
#include "pool/pool.h"

/* In the running totals a cached region counts as live; what its cache adds corrects that. */
#define VPMM_REGION_STATES (VPMM_REGION_QUARANTINED + 1)
/* Page, root and verdict of a region fill one word, as do pages and mappings of an extent. */
#define VPMM_PAGE_BITS 48
#define VPMM_ROOT_BITS 14
#define VPMM_ROOTS_MAX (1u << VPMM_ROOT_BITS)
#define VPMM_ROOT_PAGES_MAX ((uint64_t)1 << VPMM_PAGE_BITS)
#define VPMM_EXTENT_PAGES_BITS 24
#define VPMM_MAPPINGS_BITS 20
/* `value`, which fits, cut to `bits` so that the compiler sees it. */
#define VPMM_BITS(value, bits) ((value) & (((uint64_t)1 << (bits)) - 1))

struct vpmm_region {
    /* Generation, is_async, state. The state is UNUSED while the fields change; each change makes a
     * new generation. */
    vpmm_atomic64 word;
    vpmm_atomic64 address, pages, fence;
    vpmm_atomic64 bytes, context_id, stream_id, id; /* of the owner */
    uint64_t age;               /* free and zombie regions: a smaller number was free earlier */
    struct vpmm_tree_node node; /* in the tree of its state */
    struct vpmm_tree_node usable_node; /* in the tree of the last snapshot */
    uint32_t older, newer;             /* in the list of its state */
    uint64_t page : VPMM_PAGE_BITS;
    uint64_t root : VPMM_ROOT_BITS;
    uint64_t verdict : 2; /* pending free regions: see vpmm_usable_snapshot */
};

struct vpmm_extent {
    uint64_t handle;
    /* Where it is mapped; its other mappings are zombies or quarantined. */
    uint64_t page : VPMM_PAGE_BITS;
    uint64_t root : VPMM_ROOT_BITS;
    uint64_t is_fixed : 1; /* the driver does not map it again: it is not harvested */
    uint64_t pages : VPMM_EXTENT_PAGES_BITS;
    uint64_t mappings : VPMM_MAPPINGS_BITS;
    uint64_t audit_mappings : VPMM_MAPPINGS_BITS; /* scratch of the audit */
};

struct vpmm_root {
    uint64_t address, pages;
    uint32_t number;
    vpmm_atomic32 *region_at; /* by page: the region's number, valid at its first and last page */
    uint32_t *extent_at; /* by page: the extent's number, valid at the members of extent_starts */
    struct vpmm_bits region_starts;
    struct vpmm_bits extent_starts; /* one member for each mapping */
};

struct vpmm_list {
    uint32_t oldest, newest;
};

struct vpmm_counters {
    vpmm_atomic64 regions[VPMM_REGION_STATES], pages[VPMM_REGION_STATES];
    vpmm_atomic64 live_bytes, root_pages;
    vpmm_atomic64 extents, held_pages, mappings;
    vpmm_atomic64 live_pages_peak, held_pages_peak;
    vpmm_atomic64 moved_pages, created_pages, released_pages;
};

struct vpmm_pool {
    const struct vpmm_memory *memory;
    struct vpmm_pool_params params;
    struct vpmm_table regions, extents;
    struct vpmm_root *roots;         /* in the order of adoption */
    vpmm_atomic32 *roots_by_address; /* their numbers */
    vpmm_atomic32 n_roots;
    vpmm_atomic32 roots_version;     /* odd while roots_by_address changes */
    struct vpmm_tree holes;          /* by (pages, address), as all of these */
    struct vpmm_tree complete;       /* free regions whose fence is VPMM_FENCE_NONE */
    struct vpmm_tree pending;        /* the other free regions */
    struct vpmm_tree usable;         /* those of them that the last snapshot found usable */
    struct vpmm_list pending_by_age; /* the same */
    struct vpmm_list zombies;
    struct vpmm_counters counters;
    _Atomic(struct vpmm_pool_share *) first_share;
    uint64_t last_age;
    uint64_t planned_mappings; /* of plans under way */
    uint64_t aliased_extents;  /* mapped more than once */
    uint64_t fixed_extents;
    uint32_t spare_regions, spare_extents; /* records that plans under way hold in reserve */
};

/* Pages of one root. */
struct vpmm_span {
    struct vpmm_root *root;
    uint64_t page, pages;
};

/* What a region is, apart from where. */
struct vpmm_content {
    enum vpmm_region_state state;
    vpmm_fence fence;
    uint64_t age;
    struct vpmm_owner owner;
};

/* ---- root.c ---- */

/* Any thread. The root that holds `address`, or NULL. */
struct vpmm_root *vpmm_root_of(const struct vpmm_pool *pool, uint64_t address);
/* Gives the memory of the first `n` roots back. */
void vpmm_roots_finish(struct vpmm_pool *pool, uint32_t n);
uint64_t vpmm_root_address(const struct vpmm_pool *pool, const struct vpmm_root *root,
                           uint64_t page);
uint64_t vpmm_root_page(const struct vpmm_pool *pool, const struct vpmm_root *root,
                        uint64_t address);

/* ---- region.c ---- */

struct vpmm_region *vpmm_region_record(const struct vpmm_pool *pool, uint32_t number);
/* The region that starts or ends at `page`. */
uint32_t vpmm_region_at(const struct vpmm_root *root, uint64_t page);
/* The region that `page` lies in. */
uint32_t vpmm_region_around(const struct vpmm_root *root, uint64_t page);
/* The neighbours in the same root; 0 when there is none. */
uint32_t vpmm_region_left(const struct vpmm_pool *pool, uint32_t number);
uint32_t vpmm_region_right(const struct vpmm_pool *pool, uint32_t number);

enum vpmm_region_state vpmm_region_state(const struct vpmm_region *region);
uint64_t vpmm_region_pages(const struct vpmm_region *region);
vpmm_fence vpmm_region_fence(const struct vpmm_region *region);
struct vpmm_span vpmm_region_span(const struct vpmm_pool *pool, const struct vpmm_region *region);
struct vpmm_content vpmm_region_content(const struct vpmm_region *region);

/* Any thread. Copies the record if it stands for a region and did not change meanwhile. */
bool vpmm_region_read(const struct vpmm_region *region, struct vpmm_region_view *view_out,
                      uint64_t *word_out);
/* Whether a record's word says that it is live. */
bool vpmm_region_is_live(uint64_t word);
/* Any thread. live -> `state`, if the word still is `word`; touches nothing else. */
bool vpmm_region_swap_live(struct vpmm_region *region, uint64_t word, enum vpmm_region_state state);
/* cached -> live, with another owner. */
void vpmm_region_own(struct vpmm_region *region, const struct vpmm_owner *owner);
/* Any thread. live -> busy, if the word still is `word`. */
bool vpmm_region_claim(struct vpmm_pool *pool, struct vpmm_region *region, uint64_t word,
                       const struct vpmm_region_view *view);

/* Makes the unused record `number` the region of `span`, in every index and total. */
void vpmm_region_put(struct vpmm_pool *pool, uint32_t number, const struct vpmm_span *span,
                     const struct vpmm_content *content);
/* The opposite: the record stands for nothing, but stays taken. */
void vpmm_region_remove(struct vpmm_pool *pool, uint32_t number);
/* The region stays where it is, as something else. */
void vpmm_region_turn(struct vpmm_pool *pool, uint32_t number, const struct vpmm_content *content);
/* The same with another state only. */
void vpmm_region_turn_state(struct vpmm_pool *pool, uint32_t number, enum vpmm_region_state state);

/* ---- cache.c ---- */

/* Any thread. What all front caches add to the totals. */
struct vpmm_share_sum {
    uint64_t cached_regions, cached_pages, live_bytes;
};
void vpmm_shares_sum(const struct vpmm_pool *pool, struct vpmm_share_sum *sum_out);

/* ---- edit.c ---- */

/* Splits regions so that some begin and end exactly where `span` does. Takes at most two records,
 * reserved before. */
void vpmm_region_isolate(struct vpmm_pool *pool, const struct vpmm_span *span);
/* Makes one region of the whole ones that tile `span`; its number. */
uint32_t vpmm_region_fuse(struct vpmm_pool *pool, const struct vpmm_span *span,
                          const struct vpmm_content *content);
/* Whether two neighbours must be one region. */
bool vpmm_region_can_merge(const struct vpmm_region *left, const struct vpmm_region *right);
/* Merges the region with each neighbour it must be one with; the number of the result. */
uint32_t vpmm_region_merge(struct vpmm_pool *pool, uint32_t number);
/* Gives every region that tiles `span` the state, keeping fences, ages and owners, and merges what
 * must be one. */
void vpmm_region_restore(struct vpmm_pool *pool, const struct vpmm_span *span,
                         enum vpmm_region_state state);
/* The counterpart: the regions that tile `span` become busy, each for itself. */
void vpmm_region_make_busy(struct vpmm_pool *pool, const struct vpmm_span *span);

/* ---- index.c ---- */

/* Into and out of the tree and the list of its state. */
void vpmm_index_add(struct vpmm_pool *pool, uint32_t number);
void vpmm_index_drop(struct vpmm_pool *pool, uint32_t number);
void vpmm_index_init(struct vpmm_pool *pool);
/* Walks a tree in ascending order: the first, and the one after `number`; 0 at the end. */
uint32_t vpmm_index_first(const struct vpmm_tree *tree);
uint32_t vpmm_index_next(const struct vpmm_tree *tree, uint32_t number);
/* The smallest of at least `pages`, lowest address first. */
uint32_t vpmm_index_fit(const struct vpmm_tree *tree, uint64_t pages);
/* The largest below the key (pages, address). */
uint32_t vpmm_index_below(const struct vpmm_tree *tree, uint64_t pages, uint64_t address);

/* ---- extent.c ---- */

struct vpmm_extent *vpmm_extent_record(const struct vpmm_pool *pool, uint32_t number);
/* The record `number` becomes an extent with one mapping. */
void vpmm_extent_create(struct vpmm_pool *pool, uint32_t number, uint64_t handle,
                        const struct vpmm_span *span);
/* Adds a mapping of the extent at `page`; `is_home`: there it belongs from now on. */
void vpmm_extent_map(struct vpmm_pool *pool, uint32_t number, struct vpmm_root *root, uint64_t page,
                     bool is_home);
/* Nothing is mapped in `span` any more: aliases there end, and so do extents whose home it was (a
 * quarantined range's new extents, whose handles are released already). */
void vpmm_extent_unmap(struct vpmm_pool *pool, const struct vpmm_span *span);
/* Continues a walk over the mappings that begin in `span` from `*page`, which is moved past the one
 * returned; 0 at the end. */
uint32_t vpmm_extent_next(const struct vpmm_pool *pool, const struct vpmm_span *span,
                          uint64_t *page);

/* ---- usable.c ---- */

/* Asks once about each pending free region, so that one plan works with one set of answers; they
 * hold until a region changes. */
void vpmm_usable_snapshot(struct vpmm_pool *pool, const struct vpmm_fence_view *view);
/* By the last answer: whether the region is free and the request may have it. */
bool vpmm_region_is_usable(const struct vpmm_region *region);
/* Walks the usable regions, complete ones first, small ones first; 0 at the end. */
uint32_t vpmm_usable_first(const struct vpmm_pool *pool);
uint32_t vpmm_usable_next(const struct vpmm_pool *pool, uint32_t number);

typedef bool vpmm_region_test(const struct vpmm_region *region);

/* The longest span around region `number` of neighbours that pass `test`, as it does. */
struct vpmm_span vpmm_run_around(const struct vpmm_pool *pool, uint32_t number,
                                 vpmm_region_test *test);
/* Whether the pending free region `number` is the first pending one of its run, so that a walk over
 * all pending ones meets each run once. */
bool vpmm_run_is_led_by(const struct vpmm_pool *pool, uint32_t number, vpmm_region_test *test);

/* Adds the fences of the regions that `span` overlaps, as far as they were not complete when last
 * asked, to those that
 * `*sum` stands for. NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_fence_add_span(const struct vpmm_pool *pool,
                                                     const struct vpmm_fence_view *view,
                                                     const struct vpmm_span *span, vpmm_fence *sum);
VPMM_MUST_CHECK enum vpmm_status vpmm_fence_add(const struct vpmm_fence_view *view,
                                                vpmm_fence fence, vpmm_fence *sum);

/* ---- fit.c ---- */

/* Where `want` fits without any step: `want->pages` at the low end of the best region or run. False
 * when nothing fits; then a snapshot has been made. */
bool vpmm_fit_find(struct vpmm_pool *pool, const struct vpmm_want *want,
                   struct vpmm_span *span_out);

#endif
