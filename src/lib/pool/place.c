/* SPDX-License-Identifier: MIT */
/* Chooses for a stitch which extents move, what is created, and at which hole. Must not change a
 * region: plan.c does, once nothing can fail any more. */
#include "pool/plan.h"

#include <string.h>

/* So many of the largest growable regions of a group are looked at, until so many were found to
 * have room. */
#define LOOKED_MAX 16
#define BASES_MAX 2

/* So many usable neighbours of a growable region grow with it. */
#define REACH 64

struct vpmm_harvest_walk vpmm_place_walk(struct vpmm_pool *pool, const struct vpmm_want *want,
                                         const struct vpmm_span *base)
{
    return (struct vpmm_harvest_walk){.pool = pool, .want = want, .base = base};
}

/* How many extents of each class there are, as far as a request for `pages` can tell the
 * difference. */
static void count_available(struct vpmm_pool *pool, const struct vpmm_want *want,
                            const struct vpmm_span *base, uint64_t pages, struct vpmm_mix *mix)
{
    struct vpmm_harvest_walk walk = vpmm_place_walk(pool, want, base);
    unsigned class = VPMM_CLASSES;
    uint64_t missing = pages;
    memset(mix, 0, sizeof *mix);
    while (missing && vpmm_harvest_class_below(&walk, class, &class)) {
        uint64_t useful = missing >> class;
        vpmm_harvest_begin(&walk, class);
        while (mix->n[class] <= useful && vpmm_harvest_next(&walk))
            mix->n[class]++;
        missing -= (mix->n[class] < useful ? mix->n[class] : useful) << class;
    }
}

/* What a request allows. */
struct bounds {
    uint64_t create_pages_max;
    uint64_t kind; /* of the root that it is for */
    bool mixes;    /* another one will do where that is full */
    bool is_whole; /* nothing is left of its last extent */
};

static struct bounds bounds_of(const struct vpmm_pool *pool, const struct vpmm_want *want)
{
    return (struct bounds){want->create_pages_max, vpmm_want_kind(want, false),
                           vpmm_want_mixes(pool, want), want->owner.is_whole};
}

/* The hole to the right of `base`, or the best one where there is no base; 0 when it has not so
 * many pages. */
static uint32_t find_hole(const struct vpmm_pool *pool, const struct vpmm_span *base,
                          const struct bounds *bounds, uint64_t pages)
{
    if (!base->pages) {
        uint32_t best = vpmm_index_fit(&pool->holes, bounds->kind, pages);
        return best || !bounds->mixes
                   ? best
                   : vpmm_index_fit(&pool->holes, bounds->kind ^ VPMM_OF_SLABS, pages);
    }
    uint32_t number = vpmm_region_at(base->root, base->page + base->pages);
    const struct vpmm_region *hole = vpmm_table_record(&pool->regions, number);
    return vpmm_region_pages(hole) >= pages ? number : 0;
}

/* How what is missing of a request of `pages` is created; `room` pages are left in the hole behind
 * it. */
static void cut(const struct vpmm_pool *pool, uint64_t pages, uint64_t room,
                const struct bounds *bounds, struct vpmm_place *place)
{
    uint64_t held_pages = vpmm_atomic_load(&pool->counters.held_pages);
    uint64_t live_pages = vpmm_atomic_load(&pool->counters.pages[VPMM_REGION_LIVE]);
    uint64_t missing = place->harvest.missing;
    bool is_in_row = vpmm_policy_row_has(&pool->row, pages);
    place->unit = vpmm_policy_unit(&pool->params, held_pages, is_in_row, missing);
    place->extra = vpmm_policy_extra(place->unit, live_pages, missing);
    if (place->extra > room || missing + place->extra > bounds->create_pages_max ||
        bounds->is_whole)
        place->extra = 0;
    place->cost.created_pages += place->extra;
    place->cost.extents += vpmm_policy_cuts(place->unit, missing + place->extra);
}

/* Completes a place that has its base: fills a hole with `pages` of what is available, and new
 * memory. False when no hole is large enough. An excess that no hole has room for is not worth
 * another root. */
static bool fill(const struct vpmm_pool *pool, const struct vpmm_mix *available, uint64_t pages,
                 const struct bounds *bounds, struct vpmm_place *place)
{
    struct vpmm_harvest *harvest = &place->harvest;
    vpmm_policy_harvest(available, pages, !bounds->is_whole, harvest);
    uint32_t hole = find_hole(pool, &place->base, bounds, pages + harvest->excess);
    if (!hole && harvest->excess) {
        vpmm_policy_harvest(available, pages, false, harvest);
        hole = find_hole(pool, &place->base, bounds, pages);
    }
    if (!hole)
        return false;
    place->target = vpmm_region_span(pool, vpmm_region_record(pool, hole));
    place->cost = (struct vpmm_cost){harvest->missing, harvest->extents};
    if (harvest->missing)
        cut(pool, place->base.pages + pages, place->target.pages - pages, bounds, place);
    place->target.pages = pages + harvest->excess + place->extra;
    return true;
}

/* The best place found so far for a request. */
struct choice {
    struct vpmm_pool *pool;
    const struct vpmm_want *want;
    struct vpmm_place best;
    bool found;
    bool moves_nothing;
};

/* A base begins where an extent does: it ends so, at its hole. */
static void leave_out_part(struct vpmm_span *base)
{
    uint64_t end = base->page + base->pages;
    uint64_t page = vpmm_bits_first_from(&base->root->extent_starts, base->page);
    base->page = page < end ? page : end;
    base->pages = end - base->page;
}

/* Completes a place whose base is a run of usable neighbours. One that is complete and not settled
 * yet may make that as long as the request. */
static bool build_on(const struct choice *choice, struct vpmm_place *place)
{
    struct vpmm_pool *pool = choice->pool;
    const struct vpmm_want *want = choice->want;
    const struct bounds bounds = bounds_of(pool, want);
    if (place->base.pages >= want->pages) {
        place->base.pages = want->pages;
        return !bounds.is_whole || vpmm_extent_tiles(pool, &place->base);
    }
    uint64_t pages = want->pages - place->base.pages;
    struct vpmm_mix others;
    if (!find_hole(pool, &place->base, &bounds, pages))
        return false;
    if (choice->moves_nothing)
        memset(&others, 0, sizeof others);
    else
        count_available(pool, want, &place->base, pages, &others);
    return fill(pool, &others, pages, &bounds, place);
}

/* Whether the run that the growable region `number` ends is a base for the request; then it
 * competes: with another base it must be better, without one no worse. */
static bool try_base(struct choice *choice, uint32_t number)
{
    struct vpmm_place place = {.cost = {0, 0}};
    const struct vpmm_fence_view *view = choice->want->view;
    if (!vpmm_region_is_usable(vpmm_region_record(choice->pool, number), view))
        return false;
    place.base = vpmm_run_around(choice->pool, number, view, REACH);
    if (choice->want->owner.is_whole)
        leave_out_part(&place.base);
    if (!place.base.pages || !build_on(choice, &place))
        return false;
    const struct vpmm_cost *best = &choice->best.cost;
    bool wins = choice->best.base.pages ? vpmm_policy_is_better(&place.cost, best)
                                        : !vpmm_policy_is_better(best, &place.cost);
    if (wins || !choice->found)
        choice->best = place;
    choice->found = true;
    return true;
}

/* The largest growable regions of a stream, or of none, that are smaller than the request. */
static void try_bases_of(struct choice *choice, const struct vpmm_tree *tree, uint64_t stream)
{
    unsigned n_tried = 0;
    uint32_t number = vpmm_index_below(tree, stream, choice->want->pages, 0);
    for (unsigned i = 0; number && i < LOOKED_MAX && n_tried < BASES_MAX; i++) {
        VPMM_STEP();
        const struct vpmm_region *region = vpmm_region_record(choice->pool, number);
        n_tried += try_base(choice, number);
        number = vpmm_index_below(tree, stream, vpmm_region_pages(region),
                                  vpmm_atomic_load(&region->address));
    }
}

static void try_bases(struct choice *choice)
{
    const struct vpmm_tree *pending = &choice->pool->growable_pending;
    uint64_t kind = vpmm_want_kind(choice->want, false), own = choice->want->owner.stream_id;
    if (choice->want->asks_all) {
        for (uint32_t number = vpmm_index_first(pending); number;) {
            VPMM_STEP();
            uint64_t key = vpmm_region_owner_key(vpmm_region_record(choice->pool, number));
            if ((key & VPMM_OF_SLABS) == kind || vpmm_want_mixes(choice->pool, choice->want))
                try_bases_of(choice, pending, key);
            number = vpmm_tree_first_from(pending, (struct vpmm_tree_key){key, UINT64_MAX, 0});
        }
    } else if (own) {
        try_bases_of(choice, pending, own | kind);
        for (uint64_t i = 0; i < choice->want->n_follows; i++)
            try_bases_of(choice, pending, choice->want->follows[i] | kind);
    }
    try_bases_of(choice, &choice->pool->growable, kind);
}

/* So many pages may be created before the pool holds as much as it may. */
static uint64_t room_to_limit(const struct vpmm_pool *pool)
{
    uint64_t held = pool->planned_pages + vpmm_atomic_load(&pool->counters.held_pages);
    return held < pool->held_pages_max ? pool->held_pages_max - held : 0;
}

/* Where `place` would move extents: the same without, if moves have become so frequent that the
 * memory may be held for it. A program that is far ahead of the device needs what is pending as
 * much as what is live. */
static void choose_spare(struct vpmm_pool *pool, const struct vpmm_want *want,
                         struct vpmm_place *place)
{
    static const struct vpmm_mix nothing;
    struct choice choice = {.pool = pool, .want = want, .moves_nothing = true};
    uint64_t need = vpmm_pool_need_pages_high(pool);
    uint64_t peak = vpmm_atomic_load(&pool->counters.live_pages_peak);
    uint64_t held_max = vpmm_policy_spare(&pool->params, &pool->toll, need > peak ? need : peak);
    if (held_max > pool->held_pages_max)
        held_max = pool->held_pages_max;
    if (!place->harvest.extents || !want->may_spare || !held_max)
        return;
    const struct bounds bounds = bounds_of(pool, want);
    choice.found = fill(pool, &nothing, want->pages, &bounds, &choice.best);
    try_bases(&choice);
    uint64_t held = vpmm_atomic_load(&pool->counters.held_pages) + pool->planned_pages;
    if (choice.found && held + choice.best.cost.created_pages <= held_max)
        *place = choice.best;
}

/* `needed` pages would have to be created. */
static enum vpmm_status refusal(const struct vpmm_want *want, uint64_t needed)
{
    return needed <= want->create_pages_max ? VPMM_LIMITED : VPMM_NOT_FOUND;
}

static enum vpmm_status choose(struct vpmm_pool *pool, const struct vpmm_want *asked,
                               const struct vpmm_want *want, struct vpmm_place *place_out)
{
    static const struct vpmm_span no_base;
    bool is_apart = want->is_slab && !vpmm_want_mixes(pool, want);
    struct choice choice = {.pool = pool, .want = want, .moves_nothing = is_apart};
    if (vpmm_fit_find(pool, want, &choice.best.base)) {
        *place_out = choice.best;
        return VPMM_OK;
    }
    struct vpmm_mix all;
    vpmm_harvest_refresh(pool);
    if (is_apart)
        memset(&all, 0, sizeof all);
    else
        count_available(pool, want, &no_base, want->pages, &all);
    choice.best.base = no_base;
    const struct bounds bounds = bounds_of(pool, want);
    bool has_hole = choice.found = fill(pool, &all, want->pages, &bounds, &choice.best);
    try_bases(&choice);
    if (choice.found && choice.best.cost.created_pages <= want->create_pages_max) {
        *place_out = choice.best;
        choose_spare(pool, want, place_out);
        return VPMM_OK;
    }
    struct vpmm_harvest anywhere;
    vpmm_policy_harvest(&all, want->pages, !bounds.is_whole, &anywhere);
    if (!has_hole && anywhere.missing <= want->create_pages_max)
        return VPMM_NO_SPACE;
    return refusal(asked, choice.found ? choice.best.cost.created_pages : anywhere.missing);
}

enum vpmm_status vpmm_place_choose(struct vpmm_pool *pool, const struct vpmm_want *want,
                                   struct vpmm_place *place_out)
{
    uint64_t room = room_to_limit(pool);
    struct vpmm_want limited = *want;
    if (limited.create_pages_max > room)
        limited.create_pages_max = room;
    return choose(pool, want, &limited, place_out);
}

enum vpmm_status vpmm_place_growth(const struct vpmm_pool *pool, uint64_t pages,
                                   struct vpmm_place *place_out)
{
    static const struct vpmm_mix nothing;
    struct vpmm_place place = {.cost = {0, 0}};
    if (pages > room_to_limit(pool))
        return VPMM_LIMITED;
    const struct bounds bounds = {.create_pages_max = pages};
    if (!fill(pool, &nothing, pages, &bounds, &place))
        return VPMM_NO_SPACE;
    *place_out = place;
    return VPMM_OK;
}
