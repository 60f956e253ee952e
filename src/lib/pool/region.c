/* SPDX-License-Identifier: MIT */
/* Changes the records of regions, and keeps totals and indexes in step. Must not let a reader
 * without a lock believe a half-changed record: each change of state gives its word a new
 * generation. */
#include "pool/harvest.h"
#include "pool/pool_internal.h"

#include <assert.h>

/* The parts of a record's word. */
#define GENERATION VPMM_REGION_GENERATION

uint32_t vpmm_region_around(const struct vpmm_root *root, uint64_t page)
{
    uint64_t start = 0;
    (void)vpmm_bits_last_to(&root->region_starts, page, &start);
    return vpmm_region_at(root, start);
}

uint32_t vpmm_region_whole(const struct vpmm_pool *pool, const struct vpmm_span *span)
{
    uint32_t number = vpmm_region_around(span->root, span->page);
    const struct vpmm_region *region = vpmm_region_record(pool, number);
    return span->pages <= region->page + vpmm_region_pages(region) - span->page ? number : 0;
}

uint32_t vpmm_region_left(const struct vpmm_pool *pool, uint32_t number)
{
    struct vpmm_region *region = vpmm_region_record(pool, number);
    return region->page ? vpmm_region_at(&pool->roots[region->root], region->page - 1) : 0;
}

uint32_t vpmm_region_right(const struct vpmm_pool *pool, uint32_t number)
{
    struct vpmm_region *region = vpmm_region_record(pool, number);
    const struct vpmm_root *root = &pool->roots[region->root];
    uint64_t end = region->page + vpmm_region_pages(region);
    return end < root->pages ? vpmm_region_at(root, end) : 0;
}

/* Each load acquires: whoever sees a field of a later change also sees that the word has changed.
 */
bool vpmm_region_read(const struct vpmm_region *region, struct vpmm_region_view *view_out,
                      uint64_t *word_out)
{
    uint64_t word = vpmm_atomic_load(&region->word);
    enum vpmm_region_state state = (enum vpmm_region_state)(word & VPMM_REGION_STATE_MASK);
    if (state == VPMM_REGION_UNUSED)
        return false;
    struct vpmm_region_view view = {
        .state = state == VPMM_REGION_CACHED ? VPMM_REGION_FREE : state,
        .address = vpmm_atomic_load(&region->address),
        .pages = vpmm_atomic_load(&region->pages),
        .fence = vpmm_atomic_load(&region->fence),
        .owner = {.bytes = vpmm_atomic_load(&region->bytes),
                  .context_id = vpmm_atomic_load(&region->context_id),
                  .stamp = vpmm_atomic_load(&region->stamp),
                  .stream_id = vpmm_atomic_load(&region->stream_id),
                  .id = (word & VPMM_REGION_STATE_MASK) == VPMM_REGION_ZOMBIE
                            ? 0
                            : vpmm_atomic_load(&region->id),
                  .is_async = (word & VPMM_REGION_IS_ASYNC) != 0,
                  .is_whole = (word & VPMM_REGION_IS_WHOLE) != 0,
                  .mempool = vpmm_word_mempool(word)},
        .is_exported = (word & VPMM_REGION_IS_EXPORTED) != 0,
    };
    if (vpmm_atomic_load(&region->word) != word)
        return false;
    *view_out = view;
    *word_out = word;
    return true;
}

struct vpmm_content vpmm_region_content(const struct vpmm_region *region)
{
    struct vpmm_region_view view = {0};
    uint64_t word;
    bool is_used = vpmm_region_read(region, &view, &word);
    assert(is_used);
    (void)is_used;
    uint64_t age = view.state == VPMM_REGION_ZOMBIE ? vpmm_atomic_load(&region->id) : 0;
    return (struct vpmm_content){view.state, view.fence, age, view.owner};
}

/* What front caches hold counts as needed: they may make it live again without coming by here. */
static void note_need(struct vpmm_pool *pool, uint64_t live_pages)
{
    struct vpmm_counters *counters = &pool->counters;
    uint64_t need = live_pages + vpmm_atomic_load(&counters->waiting_pages);
    if (need > vpmm_atomic_load(&counters->need_pages_high))
        vpmm_atomic_store(&counters->need_pages_high, need);
}

/* The live total includes what front caches hold. That is subtracted before a peak is recorded. */
static void note_live(struct vpmm_pool *pool, uint64_t pages)
{
    struct vpmm_share_sum sum;
    note_need(pool, pages);
    if (pages <= vpmm_atomic_load(&pool->counters.live_pages_peak))
        return;
    vpmm_shares_sum(pool, &sum);
    pages = pages > sum.cached_pages ? pages - sum.cached_pages : 0;
    if (pages > vpmm_atomic_load(&pool->counters.live_pages_peak))
        vpmm_atomic_store(&pool->counters.live_pages_peak, pages);
}

/* A total of that state grows, modulo 2 to the 64. A claim changes those of two states without the
 * lock; the others need no atomic addition. */
static void grow(vpmm_atomic64 *total, uint64_t by, enum vpmm_region_state state)
{
    if (state == VPMM_REGION_LIVE || state == VPMM_REGION_BUSY)
        vpmm_atomic_add(total, by);
    else
        vpmm_atomic_store(total, vpmm_atomic_load(total) + by);
}

static void count(struct vpmm_pool *pool, enum vpmm_region_state state,
                  const struct vpmm_tallied *block)
{
    uint64_t pages = block->pages;
    struct vpmm_counters *counters = &pool->counters;
    grow(&counters->pages[state], pages, state);
    if (state != VPMM_REGION_LIVE)
        return;
    vpmm_atomic_add(&counters->live_bytes, block->bytes);
    vpmm_pool_tally(pool, block, true);
    note_live(pool, vpmm_atomic_load(&counters->pages[state]));
}

static void discount(struct vpmm_pool *pool, enum vpmm_region_state state,
                     const struct vpmm_tallied *block)
{
    grow(&pool->counters.pages[state], -block->pages, state);
    if (state != VPMM_REGION_LIVE)
        return;
    vpmm_atomic_sub(&pool->counters.live_bytes, block->bytes);
    vpmm_pool_tally(pool, block, false);
}

bool vpmm_region_claim(struct vpmm_pool *pool, struct vpmm_region *region, uint64_t word,
                       const struct vpmm_region_view *view)
{
    if (!vpmm_region_swap_live(region, word, VPMM_REGION_BUSY))
        return false;
    struct vpmm_tallied block = {view->pages, view->owner.bytes, vpmm_word_tallied(word)};
    /* First, so that whoever adds the two up later misses no page. */
    vpmm_atomic_add(&pool->counters.claimed_pages, view->pages);
    discount(pool, VPMM_REGION_LIVE, &block);
    count(pool, VPMM_REGION_BUSY, &block);
    return true;
}

/* A word of the generation after that of `word`. */
static uint64_t next_of(uint64_t word, enum vpmm_region_state state, const struct vpmm_owner *owner)
{
    uint64_t generation = word & ~(GENERATION - 1);
    uint64_t mempool = (uint64_t)owner->mempool << VPMM_REGION_MEMPOOL_SHIFT;
    uint64_t kind = mempool | (owner->is_async ? VPMM_REGION_IS_ASYNC : 0) |
                    (owner->is_whole ? VPMM_REGION_IS_WHOLE : 0);
    return (generation + GENERATION) | kind | (uint64_t)state;
}

static uint64_t next_word(const struct vpmm_region *region, enum vpmm_region_state state,
                          const struct vpmm_owner *owner)
{
    return next_of(vpmm_atomic_load(&region->word), state, owner);
}

static const struct vpmm_owner nobody;

static inline void set_owner(struct vpmm_region *region, const struct vpmm_owner *owner)
{
    vpmm_atomic_store(&region->bytes, owner->bytes);
    vpmm_atomic_store(&region->context_id, owner->context_id);
    vpmm_atomic_store(&region->stamp, owner->stamp);
    vpmm_atomic_store(&region->stream_id, owner->stream_id);
    vpmm_atomic_store(&region->id, owner->id);
}

uint64_t vpmm_region_own(struct vpmm_region *region, const struct vpmm_owner *owner)
{
    uint64_t before = vpmm_atomic_load(&region->word);
    uint64_t word = next_of(before, VPMM_REGION_UNUSED, &nobody);
    uint64_t extents = before & VPMM_REGION_IS_WHOLE;
    vpmm_atomic_store(&region->word, word);
    set_owner(region, owner);
    word = next_of(word, VPMM_REGION_LIVE, owner) | extents;
    vpmm_atomic_store(&region->word, word);
    return word;
}

/* Of a record that is unused meanwhile. */
static void describe(struct vpmm_region *region, const struct vpmm_content *content)
{
    vpmm_atomic_store(&region->fence, content->fence);
    set_owner(region, &content->owner);
    if (content->state == VPMM_REGION_ZOMBIE)
        vpmm_atomic_store(&region->id, content->age);
}

/* Into totals and indexes. */
static void appear(struct vpmm_pool *pool, uint32_t number, struct vpmm_region *region,
                   const struct vpmm_content *content)
{
    VPMM_STEP();
    const struct vpmm_owner *owner = &content->owner;
    struct vpmm_tallied block = {vpmm_region_pages(region), owner->bytes,
                                 vpmm_owner_tallied(owner)};
    count(pool, content->state, &block);
    vpmm_atomic_store(&region->word, next_word(region, content->state, owner));
    vpmm_index_add(pool, number);
}

/* The opposite. */
static void forget(struct vpmm_pool *pool, uint32_t number, struct vpmm_region *region)
{
    VPMM_STEP();
    enum vpmm_region_state state = vpmm_region_state(region);
    struct vpmm_tallied block = vpmm_region_tallied(region);
    discount(pool, state == VPMM_REGION_CACHED ? VPMM_REGION_LIVE : state, &block);
    vpmm_index_drop(pool, number);
    vpmm_atomic_store(&region->word, next_word(region, VPMM_REGION_UNUSED, &nobody));
}

/* The record, still unused, and what finds it by its place. */
static struct vpmm_region *place(struct vpmm_pool *pool, uint32_t number,
                                 const struct vpmm_span *span, const struct vpmm_content *content)
{
    struct vpmm_region *region = vpmm_region_record(pool, number);
    struct vpmm_root *root = span->root;
    assert(vpmm_region_state(region) == VPMM_REGION_UNUSED);
    vpmm_atomic_store(&region->address, vpmm_root_address(pool, root, span->page));
    vpmm_atomic_store(&region->pages, span->pages);
    describe(region, content);
    region->page = VPMM_BITS(span->page, VPMM_PAGE_BITS);
    region->root = VPMM_BITS(root->number, VPMM_ROOT_BITS);
    region->is_of_slabs = root->is_of_slabs;
    vpmm_atomic_store(&root->region_at[span->page], number);
    vpmm_atomic_store(&root->region_at[span->page + span->pages - 1], number);
    vpmm_bits_set(&root->region_starts, span->page);
    return region;
}

void vpmm_region_put(struct vpmm_pool *pool, uint32_t number, const struct vpmm_span *span,
                     const struct vpmm_content *content)
{
    appear(pool, number, place(pool, number, span, content), content);
}

void vpmm_region_remove(struct vpmm_pool *pool, uint32_t number)
{
    const struct vpmm_region *region = vpmm_table_record(&pool->regions, number);
    forget(pool, number, vpmm_table_record(&pool->regions, number));
    vpmm_bits_clear(&pool->roots[region->root].region_starts, region->page);
}

void vpmm_region_change(struct vpmm_pool *pool, uint32_t number, const struct vpmm_content *content)
{
    struct vpmm_region *region = vpmm_table_record(&pool->regions, number);
    forget(pool, number, region);
    describe(region, content);
    appear(pool, number, region, content);
}

void vpmm_region_turn(struct vpmm_pool *pool, uint32_t number, const struct vpmm_content *content)
{
    vpmm_region_change(pool, number, content);
    if (content->state == VPMM_REGION_FREE) {
        struct vpmm_span span = vpmm_region_span(pool, vpmm_region_record(pool, number));
        vpmm_harvest_note(pool, &span);
    }
}

void vpmm_region_turn_state(struct vpmm_pool *pool, uint32_t number, enum vpmm_region_state state)
{
    struct vpmm_content content = vpmm_region_content(vpmm_region_record(pool, number));
    content.state = state;
    vpmm_region_turn(pool, number, &content);
}
