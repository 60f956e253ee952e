/* SPDX-License-Identifier: MIT */
/* Finds free pages that serve a request where they lie. Must not move an extent, and must not take
 * pages whose fence the request does not come after. */
#include "pool/pool_internal.h"

#include <assert.h>

/* So many pending regions of a stream are asked about, should some not be in order for it after
 * all. */
#define ASKED_MAX 256

/* Of a region of so many times the wanted pages, enough is left for others. */
#define NEAT_TIMES 4

/* So many of the largest pending regions are looked at for a run of neighbours, and so many
 * neighbours to either side. */
#define RUNS_MAX 4
#define REACH 8

/* So many complete regions, and so many extents of each, are looked at for one that begins and ends
 * where extents do. */
#define WHOLE_REGIONS_MAX 16
#define WHOLE_EXTENTS_MAX 32

/* Of two fits the smaller; of one size the pending one, as complete ones serve anybody; then the
 * lower address. */
static bool is_better(const struct vpmm_pool *pool, uint32_t number, uint32_t than)
{
    const struct vpmm_region *a = vpmm_region_record(pool, number);
    const struct vpmm_region *b = vpmm_region_record(pool, than);
    if (!b || vpmm_region_pages(a) != vpmm_region_pages(b))
        return !b || vpmm_region_pages(a) < vpmm_region_pages(b);
    return vpmm_region_fence(b) == VPMM_FENCE_NONE ||
           vpmm_atomic_load(&a->address) < vpmm_atomic_load(&b->address);
}

/* The best of `best` and the usable regions of that kind that a stream left pending. */
static uint32_t find_pending(const struct vpmm_pool *pool, const struct vpmm_want *want,
                             uint64_t owner_key, uint32_t best)
{
    uint32_t number = vpmm_index_fit(&pool->pending, owner_key, want->pages);
    for (unsigned asked = 0; number && (asked < ASKED_MAX || want->asks_all); asked++) {
        VPMM_STEP();
        const struct vpmm_region *region = vpmm_region_record(pool, number);
        if (vpmm_region_owner_key(region) != owner_key || !is_better(pool, number, best))
            return best;
        if (vpmm_region_is_usable(region, want->view))
            return number;
        number = vpmm_index_next(&pool->pending, number);
    }
    return best;
}

/* In roots of one kind. */
static uint32_t find_of_kind(const struct vpmm_pool *pool, const struct vpmm_want *want,
                             uint64_t kind)
{
    uint64_t own = want->owner.stream_id;
    uint32_t best = vpmm_index_fit(&pool->complete, kind, want->pages);
    if (!want->asks_all) {
        for (uint64_t i = 0; i < want->n_follows; i++)
            best = find_pending(pool, want, want->follows[i] | kind, best);
        return own ? find_pending(pool, want, own | kind, best) : best;
    }
    for (uint32_t number = vpmm_index_first(&pool->pending); number;) {
        VPMM_STEP();
        uint64_t key = vpmm_region_owner_key(vpmm_region_record(pool, number));
        if ((key & VPMM_OF_SLABS) == kind)
            best = find_pending(pool, want, key, best);
        number = vpmm_tree_first_from(&pool->pending, (struct vpmm_tree_key){key, UINT64_MAX, 0});
    }
    return best;
}

static uint32_t find_region(const struct vpmm_pool *pool, const struct vpmm_want *want)
{
    uint32_t best = find_of_kind(pool, want, vpmm_want_kind(want, false));
    return best || !vpmm_want_mixes(pool, want)
               ? best
               : find_of_kind(pool, want, vpmm_want_kind(want, true));
}

/* The shortest run of usable neighbours around the largest regions of that kind that a stream left
 * pending, or, UINT64_MAX, that any did. */
static void find_run_of(const struct vpmm_pool *pool, const struct vpmm_want *want,
                        uint64_t owner_key, struct vpmm_span *run)
{
    struct vpmm_tree_key key = {owner_key, UINT64_MAX, 0};
    uint32_t number = vpmm_tree_last_before(&pool->pending, key);
    for (unsigned i = 0; number && (i < RUNS_MAX || want->asks_all); i++) {
        VPMM_STEP();
        const struct vpmm_region *region = vpmm_region_record(pool, number);
        if (!want->asks_all && vpmm_region_owner_key(region) != owner_key)
            return;
        bool is_of_kind = region->is_of_slabs == want->is_slab || vpmm_want_mixes(pool, want);
        if (is_of_kind && vpmm_region_is_usable(region, want->view)) {
            struct vpmm_span found = vpmm_run_around(pool, number, want->view, REACH);
            if (found.pages >= want->pages && (!run->pages || found.pages < run->pages))
                *run = found;
        }
        number = vpmm_tree_last_before(&pool->pending, pool->pending.key(region));
    }
}

/* A run holds at least one region that is pending: complete ones would be one region. */
static bool find_run(const struct vpmm_pool *pool, const struct vpmm_want *want,
                     struct vpmm_span *run_out)
{
    struct vpmm_span run = {.pages = 0};
    uint64_t kind = vpmm_want_kind(want, false), own = want->owner.stream_id;
    if (want->asks_all || own)
        find_run_of(pool, want, want->asks_all ? UINT64_MAX : own | kind, &run);
    for (uint64_t i = 0; i < want->n_follows && !want->asks_all; i++)
        find_run_of(pool, want, want->follows[i] | kind, &run);
    if (run.pages)
        *run_out = run;
    return run.pages != 0;
}

/* The lowest pages of the region that begin and end where extents do. */
static bool find_tiled(const struct vpmm_pool *pool, const struct vpmm_want *want, uint32_t number,
                       struct vpmm_span *span_out)
{
    struct vpmm_span span = vpmm_region_span(pool, vpmm_region_record(pool, number));
    uint64_t end = span.page + span.pages;
    span.pages = want->pages;
    for (unsigned i = 0; i < WHOLE_EXTENTS_MAX; i++) {
        VPMM_STEP();
        span.page = vpmm_bits_first_from(&span.root->extent_starts, span.page);
        if (span.page >= end || end - span.page < want->pages)
            return false;
        if (vpmm_extent_tiles(pool, &span)) {
            *span_out = span;
            return true;
        }
        span.page++;
    }
    return false;
}

/* What is pending is not looked at: who wants whole extents has no stream. */
static bool find_whole(const struct vpmm_pool *pool, const struct vpmm_want *want,
                       struct vpmm_span *span_out)
{
    uint32_t number = vpmm_index_fit(&pool->complete, vpmm_want_kind(want, false), want->pages);
    for (unsigned i = 0; number && i < WHOLE_REGIONS_MAX; i++) {
        if (find_tiled(pool, want, number, span_out))
            return true;
        number = vpmm_index_next(&pool->complete, number);
    }
    return false;
}

static bool is_neat(const struct vpmm_pool *pool, const struct vpmm_want *want, uint32_t number)
{
    uint64_t pages = number ? vpmm_region_pages(vpmm_region_record(pool, number)) : 0;
    return pages == want->pages || pages >= NEAT_TIMES * want->pages;
}

bool vpmm_fit_find(struct vpmm_pool *pool, const struct vpmm_want *want, struct vpmm_span *span_out)
{
    vpmm_index_admit(pool);
    if (want->owner.is_whole)
        return find_whole(pool, want, span_out);
    uint32_t number = find_region(pool, want);
    struct vpmm_span span;
    if (want->is_neat && !is_neat(pool, want, number))
        return false;
    if (number)
        span = vpmm_region_span(pool, vpmm_region_record(pool, number));
    else if (!find_run(pool, want, &span))
        return false;
    span.pages = want->pages;
    *span_out = span;
    return true;
}

enum vpmm_status vpmm_pool_fit(struct vpmm_pool *pool, const struct vpmm_want *want,
                               uint64_t *address_out)
{
    struct vpmm_span span;
    struct vpmm_content live = {.state = VPMM_REGION_LIVE, .owner = want->owner};
    assert(want->pages > 0);
    if (vpmm_atomic_load(&pool->counters.pages[VPMM_REGION_FREE]) < want->pages ||
        !vpmm_fit_find(pool, want, &span))
        return VPMM_NOT_FOUND;
    enum vpmm_status status = vpmm_fence_add_span(pool, want->view, &span, &live.fence);
    if (!status)
        status = vpmm_table_reserve(&pool->regions, 2);
    if (status)
        return status;
    vpmm_region_become(pool, &span, &live);
    *address_out = vpmm_root_address(pool, span.root, span.page);
    return VPMM_OK;
}
