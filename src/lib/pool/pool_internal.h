/* SPDX-License-Identifier: MIT */
/* What the files of src/lib/pool share: the pool, its roots, and the records of regions and
 * extents. A region record is read by threads without the lock, so every field they read is atomic
 * and guarded by the record's word; everything else belongs to the holder of the caller's lock.
 * Page numbers count from the start of a root. */
#ifndef VPMM_POOL_INTERNAL_H
#define VPMM_POOL_INTERNAL_H

#include "base/bits.h"
#include "base/pages.h"
#include "base/step.h"
#include "base/table.h"
#include "base/tree.h"
#include "pool/pool_cache.h"
#include "pool/pool_export.h"
#include "pool/pool_policy.h"
#include "pool/pool.h"
#include "pool/tally.h"

/* In the running totals a cached region counts as live; what its cache adds corrects that. */
#define VPMM_REGION_STATES (VPMM_REGION_QUARANTINED + 1)
/* Page, root and verdict of a region fill one word, as do pages and mappings of an extent. */
#define VPMM_PAGE_BITS 47
#define VPMM_ROOT_BITS 14
#define VPMM_ROOTS_MAX (1u << VPMM_ROOT_BITS)
#define VPMM_ROOT_PAGES_MAX ((uint64_t)1 << VPMM_PAGE_BITS)
#define VPMM_EXTENT_PAGES_BITS 24
#define VPMM_MAPPINGS_BITS 20
/* `value`, which fits, cut to `bits` so that the compiler sees it. */
#define VPMM_BITS(value, bits) ((value) & (((uint64_t)1 << (bits)) - 1))

struct vpmm_region {
    /* Generation, memory pool, is_whole, is_exported, is_async, state. The state is UNUSED while
     * the fields change; each change makes a new generation. */
    vpmm_atomic64 word;
    vpmm_atomic64 address, pages, fence;
    vpmm_atomic64 bytes, context_id, stamp; /* of the owner */
    vpmm_atomic64 stream_id;                /* the same; of a free region: who has it in order */
    vpmm_atomic64 id;                       /* of the owner; of a zombie its age */
    struct vpmm_tree_node size_node;        /* in the tree by size of its state */
    struct vpmm_tree_node side_node;        /* growable regions */
    struct vpmm_tree_node fence_node;       /* free regions that wait, and zombies, by fence */
    uint64_t page : VPMM_PAGE_BITS;
    uint64_t root : VPMM_ROOT_BITS;
    uint64_t is_growable : 1; /* free, with a hole at its right */
    uint64_t is_of_slabs : 1; /* as its root */
    uint64_t is_arrival : 1;  /* free, and in no tree yet: size_node.left is its place, from 0 */
};

/* Extents that lie wholly in free regions are listed by group: who may harvest them. */
#define VPMM_GROUP_BITS 13
#define VPMM_ROOM_BITS 6

struct vpmm_extent {
    uint64_t handle;
    /* Where it is mapped; its other mappings are zombies or quarantined. */
    uint64_t page : VPMM_PAGE_BITS;
    uint64_t root : VPMM_ROOT_BITS;
    uint64_t is_fixed : 1; /* the driver does not map it again: it is not harvested */
    uint64_t is_listed : 1;
    uint64_t pages : VPMM_EXTENT_PAGES_BITS;
    uint64_t mappings : VPMM_MAPPINGS_BITS;
    uint64_t group : VPMM_GROUP_BITS; /* where listed: see harvest.c */
    uint64_t room : VPMM_ROOM_BITS;   /* the class of the free region it lay in then */
    uint64_t is_picked : 1;           /* by the request being served */
    struct vpmm_tree_node node;
};

struct vpmm_root {
    uint64_t address, pages;
    uint32_t number;
    vpmm_atomic32 *region_at; /* by page: the region's number, valid at its first and last page */
    uint32_t *extent_at; /* by page: the extent's number, valid at the members of extent_starts */
    struct vpmm_bits region_starts;
    struct vpmm_bits extent_starts; /* one member for each mapping */
    struct vpmm_bits fresh; /* pages that became free, or complete, since the last harvest */
    uint32_t next_fresh;    /* the number of the next root with such pages, plus 1 */
    bool is_fresh;
    bool is_of_slabs;
};

/* Free regions or zombies that wait for fences: by stream plus 1, fence and address. Zombies that
 * wait for nothing come before them, by age. */
struct vpmm_waiting {
    struct vpmm_tree tree;
    vpmm_fence next;      /* of those of no stream: where the last settling stopped */
    uint64_t next_stream; /* likewise, of the streams */
};

/* So many free regions at most are in no tree yet. */
#define VPMM_ARRIVALS_MAX 64u

struct vpmm_counters {
    vpmm_atomic64 pages[VPMM_REGION_STATES];
    vpmm_atomic64 live_bytes, root_pages;
    vpmm_atomic64 waiting_pages, claimed_pages; /* see struct vpmm_pool_totals */
    struct vpmm_tally tally;
    vpmm_atomic64 extents, held_pages, mappings;
    vpmm_atomic64 live_pages_peak, held_pages_peak, need_pages_high;
    vpmm_atomic64 moved_pages, created_pages, released_pages;
};

struct vpmm_pool {
    const struct vpmm_memory *memory;
    struct vpmm_pool_params params;
    struct vpmm_table regions, extents;
    struct vpmm_root *roots;         /* in the order of adoption */
    vpmm_atomic32 *roots_by_address; /* their numbers */
    vpmm_atomic32 n_roots;
    vpmm_atomic32 roots_version; /* odd while roots_by_address changes */
    struct vpmm_tree holes;      /* by pages and address */
    struct vpmm_tree complete;   /* the same: free regions whose fence is VPMM_FENCE_NONE */
    struct vpmm_tree pending;    /* the other free regions, by stream, pages and address */
    struct vpmm_tree growable, growable_pending; /* those of them with a hole at their right */
    struct vpmm_tree zombies;                    /* by pages, the youngest first */
    struct vpmm_tree harvest;                    /* extents, by group and class, room, and place */
    struct vpmm_waiting waiting_regions, waiting_zombies;
    uint32_t arrivals[VPMM_ARRIVALS_MAX];
    uint32_t n_arrivals;
    uint32_t fresh_roots; /* the number of the first root with fresh pages, plus 1 */
    uint64_t whole_pages; /* of extents that lie wholly in one region of `complete` */
    uint64_t slab_pages, slab_free_pages; /* of extents, and of free regions, in slab roots */
    struct vpmm_counters counters;
    struct vpmm_row row;
    struct vpmm_toll toll;
    _Atomic(struct vpmm_pool_share *) first_share;
    uint64_t last_age;
    uint64_t planned_mappings, planned_pages; /* that plans under way are to add */
    uint64_t held_pages_max;
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

/* Whether `address` lies in the root, whose last byte the numbers reach. */
static inline bool vpmm_root_holds(const struct vpmm_pool *pool, const struct vpmm_root *root,
                                   uint64_t address)
{
    return address - root->address < root->pages * pool->params.page_bytes;
}

/* Any thread. The root that holds `address`, or else the lowest one above it; NULL: there is none.
 */
struct vpmm_root *vpmm_root_from(const struct vpmm_pool *pool, uint64_t address);

/* Any thread. The root that holds `address`, or NULL. Most addresses lie in the first root. */
struct vpmm_root *vpmm_root_search(const struct vpmm_pool *pool, uint64_t address);
static inline struct vpmm_root *vpmm_root_of(const struct vpmm_pool *pool, uint64_t address)
{
    uint32_t n = vpmm_atomic_load(&pool->n_roots);
    if (n > 0 && vpmm_root_holds(pool, &pool->roots[0], address))
        return &pool->roots[0];
    return n > 1 ? vpmm_root_search(pool, address) : NULL;
}

/* Gives the memory of the first `n` roots back. */
void vpmm_roots_finish(struct vpmm_pool *pool, uint32_t n);
uint64_t vpmm_root_address(const struct vpmm_pool *pool, const struct vpmm_root *root,
                           uint64_t page);
static inline uint64_t vpmm_root_page(const struct vpmm_pool *pool, const struct vpmm_root *root,
                                      uint64_t address)
{
    return vpmm_pages_in(address - root->address, pool->params.page_bytes);
}

/* ---- region.c ---- */

/* NULL for 0; any other number was taken at some time. */
static inline struct vpmm_region *vpmm_region_record(const struct vpmm_pool *pool, uint32_t number)
{
    return number ? vpmm_table_record(&pool->regions, number) : NULL;
}

/* The region that starts or ends at `page`. */
static inline uint32_t vpmm_region_at(const struct vpmm_root *root, uint64_t page)
{
    return vpmm_atomic_load(&root->region_at[page]);
}

/* The region that `page` lies in. */
uint32_t vpmm_region_around(const struct vpmm_root *root, uint64_t page);
/* The one that holds all of `span`; 0 where it lies in several. */
uint32_t vpmm_region_whole(const struct vpmm_pool *pool, const struct vpmm_span *span);
/* The neighbours in the same root; 0 when there is none. */
uint32_t vpmm_region_left(const struct vpmm_pool *pool, uint32_t number);
uint32_t vpmm_region_right(const struct vpmm_pool *pool, uint32_t number);

static inline enum vpmm_region_state vpmm_region_state(const struct vpmm_region *region)
{
    return (enum vpmm_region_state)(vpmm_atomic_load(&region->word) & VPMM_REGION_STATE_MASK);
}

static inline uint64_t vpmm_region_pages(const struct vpmm_region *region)
{
    return vpmm_atomic_load(&region->pages);
}

static inline vpmm_fence vpmm_region_fence(const struct vpmm_region *region)
{
    return vpmm_atomic_load(&region->fence);
}

static inline struct vpmm_span vpmm_region_span(const struct vpmm_pool *pool,
                                                const struct vpmm_region *region)
{
    return (struct vpmm_span){&pool->roots[region->root], region->page, vpmm_region_pages(region)};
}

struct vpmm_content vpmm_region_content(const struct vpmm_region *region);

/* Any thread. Copies the record if it stands for a region and did not change meanwhile. */
bool vpmm_region_read(const struct vpmm_region *region, struct vpmm_region_view *view_out,
                      uint64_t *word_out);
/* Whether a record's word says that it is live, and not exported. */
static inline bool vpmm_region_is_private(uint64_t word)
{
    return (word & (VPMM_REGION_STATE_MASK | VPMM_REGION_IS_EXPORTED)) == VPMM_REGION_LIVE;
}

/* Any thread. live -> `state`, if the word still is `word`; touches nothing else. */
static inline bool vpmm_region_swap_live(struct vpmm_region *region, uint64_t word,
                                         enum vpmm_region_state state)
{
    uint64_t left = ((word & ~VPMM_REGION_STATE_MASK) | (uint64_t)state) + VPMM_REGION_GENERATION;
    return vpmm_atomic_swap_if(&region->word, &word, left);
}

/* cached -> live, with another owner. Its word then. */
uint64_t vpmm_region_own(struct vpmm_region *region, const struct vpmm_owner *owner);
/* Any thread. live -> busy, if the word still is `word`. */
bool vpmm_region_claim(struct vpmm_pool *pool, struct vpmm_region *region, uint64_t word,
                       const struct vpmm_region_view *view);

/* Makes the unused record `number` the region of `span`, in every index and total. */
void vpmm_region_put(struct vpmm_pool *pool, uint32_t number, const struct vpmm_span *span,
                     const struct vpmm_content *content);
/* The opposite: the record stands for nothing, but stays taken. */
void vpmm_region_remove(struct vpmm_pool *pool, uint32_t number);
/* The region stays where it is, as something else: what is free now is not noted for harvests. */
void vpmm_region_change(struct vpmm_pool *pool, uint32_t number,
                        const struct vpmm_content *content);
/* The same, and noted. */
void vpmm_region_turn(struct vpmm_pool *pool, uint32_t number, const struct vpmm_content *content);
/* The same with another state only. */
void vpmm_region_turn_state(struct vpmm_pool *pool, uint32_t number, enum vpmm_region_state state);

/* ---- pool_edit.c ---- */

/* Some regions begin and end where `span` does. Takes at most two records, reserved before. */
void vpmm_region_isolate(struct vpmm_pool *pool, const struct vpmm_span *span);
/* Makes one region of `span`, whatever lies there. Takes at most two records, reserved before. */
void vpmm_region_become(struct vpmm_pool *pool, const struct vpmm_span *span,
                        const struct vpmm_content *content);
/* Makes one region of the whole ones that tile `span`; its number. */
uint32_t vpmm_region_fuse(struct vpmm_pool *pool, const struct vpmm_span *span,
                          const struct vpmm_content *content);
/* Whether two neighbours must be one region: holes, free regions that the same users have left,
 * and zombies that one request left behind. */
bool vpmm_region_can_merge(const struct vpmm_region *left, const struct vpmm_region *right);
/* The region turns into `content`, as one with neighbours that must be, or are in line with it. */
void vpmm_region_turn_merged(struct vpmm_pool *pool, uint32_t number,
                             const struct vpmm_content *content,
                             const struct vpmm_fence_line *line);
/* Merges the region with each neighbour it must be one with; the number of the result. */
uint32_t vpmm_region_merge(struct vpmm_pool *pool, uint32_t number);
/* Gives every region that tiles `span` the state, keeping fences, ages and owners, and merges what
 * must be one. */
void vpmm_region_restore(struct vpmm_pool *pool, const struct vpmm_span *span,
                         enum vpmm_region_state state);
/* The counterpart: the regions that tile `span` become busy, each for itself. */
void vpmm_region_make_busy(struct vpmm_pool *pool, const struct vpmm_span *span);

/* ---- index.c ---- */

/* Into and out of the trees of its state. A free region becomes an *arrival* first. If it is taken,
 * or merged with a neighbour, before the next search, it never enters a tree. */
void vpmm_index_add(struct vpmm_pool *pool, uint32_t number);
void vpmm_index_drop(struct vpmm_pool *pool, uint32_t number);
/* The arrivals enter their trees. Before any search among free regions. */
void vpmm_index_admit(struct vpmm_pool *pool);
void vpmm_index_init(struct vpmm_pool *pool);
/* Whose pending region it is in the trees: a stream, or 0. */
static inline uint64_t vpmm_region_stream(const struct vpmm_region *region)
{
    return vpmm_region_fence(region) == VPMM_FENCE_NONE ? 0 : vpmm_atomic_load(&region->stream_id);
}

/* In the trees by size those of slab roots lie apart from all others: their streams have this bit,
 * which no stream's id has. */
#define VPMM_OF_SLABS ((uint64_t)1 << 62)
static inline uint64_t vpmm_region_owner_key(const struct vpmm_region *region)
{
    return vpmm_region_stream(region) | (region->is_of_slabs ? VPMM_OF_SLABS : 0);
}
/* Whether roots of either kind may serve the request: what is kept apart must not be much. */
bool vpmm_want_mixes(const struct vpmm_pool *pool, const struct vpmm_want *want);
/* The kind of root that the request is for, or (`is_mixed`) the other one. */
static inline uint64_t vpmm_want_kind(const struct vpmm_want *want, bool is_mixed)
{
    return want->is_slab != is_mixed ? VPMM_OF_SLABS : 0;
}

/* Walks a tree of regions in ascending order: the first, the one after `number`; 0 at the end. */
uint32_t vpmm_index_first(const struct vpmm_tree *tree);
uint32_t vpmm_index_next(const struct vpmm_tree *tree, uint32_t number);
/* The smallest of at least `pages`, lowest address first; of a tree by stream, that of `stream`. */
uint32_t vpmm_index_fit(const struct vpmm_tree *tree, uint64_t stream, uint64_t pages);
/* The largest below the key (pages, address), likewise. */
uint32_t vpmm_index_below(const struct vpmm_tree *tree, uint64_t stream, uint64_t pages,
                          uint64_t address);

/* ---- extent.c ---- */

/* NULL for 0; any other number was taken at some time. */
static inline struct vpmm_extent *vpmm_extent_record(const struct vpmm_pool *pool, uint32_t number)
{
    return number ? vpmm_table_record(&pool->extents, number) : NULL;
}

struct vpmm_span vpmm_extent_span(const struct vpmm_pool *pool, const struct vpmm_extent *extent);
/* The record `number` becomes an extent with one mapping. */
void vpmm_extent_create(struct vpmm_pool *pool, uint32_t number, uint64_t handle,
                        const struct vpmm_span *span);
/* Adds a mapping of the extent at `page`; `is_home`: there it belongs from now on. */
void vpmm_extent_map(struct vpmm_pool *pool, uint32_t number, struct vpmm_root *root, uint64_t page,
                     bool is_home);
/* It belongs to `page` from now on, where it is mapped already. */
void vpmm_extent_move_home(struct vpmm_pool *pool, uint32_t number, const struct vpmm_root *root,
                           uint64_t page);
/* Nothing is mapped in `span` any more: aliases there end, and so do extents whose home it was (a
 * quarantined range's new extents, whose handles are released already). */
void vpmm_extent_unmap(struct vpmm_pool *pool, const struct vpmm_span *span);
/* Continues a walk over the mappings that begin in `span` from `*page`, which is moved past the one
 * returned; 0 at the end. */
uint32_t vpmm_extent_next(const struct vpmm_pool *pool, const struct vpmm_span *span,
                          uint64_t *page);
/* The pages of a mapped span that its own extents fill, and whether these are all of them. */
uint64_t vpmm_extent_whole_pages(const struct vpmm_pool *pool, const struct vpmm_span *span);
bool vpmm_extent_tiles(const struct vpmm_pool *pool, const struct vpmm_span *span);
/* Whether the extent may be mapped elsewhere and lies wholly in regions that `view` allows. */
bool vpmm_extent_is_usable(const struct vpmm_pool *pool, const struct vpmm_fence_view *view,
                           const struct vpmm_extent *extent);

/* ---- usable.c ---- */

/* Whether the region is free and `view` may have it. What is usable stays so until the region
 * changes, as fences only become more complete. */
bool vpmm_region_is_usable(const struct vpmm_region *region, const struct vpmm_fence_view *view);

/* The longest span around region `number` of usable neighbours, as far as `reach` regions to either
 * side. */
struct vpmm_span vpmm_run_around(const struct vpmm_pool *pool, uint32_t number,
                                 const struct vpmm_fence_view *view, unsigned reach);

/* Adds the fences of the regions that `span` overlaps, as far as they are not complete, to those
 * that `*sum` stands for. NO_METADATA. */
VPMM_MUST_CHECK enum vpmm_status vpmm_fence_add_span(const struct vpmm_pool *pool,
                                                     const struct vpmm_fence_view *view,
                                                     const struct vpmm_span *span, vpmm_fence *sum);
VPMM_MUST_CHECK enum vpmm_status vpmm_fence_add(const struct vpmm_fence_view *view,
                                                vpmm_fence fence, vpmm_fence *sum);

/* ---- commit.c ---- */

/* The whole regions that tile `span` become a zombie of the present age, one with a neighbour that
 * the same request left. */
void vpmm_zombie_make(struct vpmm_pool *pool, const struct vpmm_span *span, vpmm_fence fence);

/* ---- settle.c ---- */

/* Zombies whose fences `view` calls complete wait for nothing any more. */
void vpmm_zombies_settle(struct vpmm_pool *pool, const struct vpmm_fence_view *view);

/* ---- fit.c ---- */

/* Where `want` fits without any step: `want->pages` at the low end of the best region or run. False
 * when nothing fits. */
bool vpmm_fit_find(struct vpmm_pool *pool, const struct vpmm_want *want,
                   struct vpmm_span *span_out);

#endif
