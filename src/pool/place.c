/* SPDX-License-Identifier: MIT */
#include "pool/plan.h"

#include <string.h>

bool vpmm_span_holds(const struct vpmm_span *span, const struct vpmm_root *root, uint64_t page)
{
    return span->root == root && page >= span->page && page - span->page < span->pages;
}

bool vpmm_extent_is_usable(const struct vpmm_pool *pool, const struct vpmm_extent *extent,
                           const struct vpmm_region *region)
{
    const struct vpmm_root *root = &pool->roots[region->root];
    uint64_t end = extent->page + extent->pages;
    if (extent->is_fixed)
        return false;
    for (;;) {
        if (!vpmm_region_is_usable(region))
            return false;
        uint64_t region_end = region->page + vpmm_region_pages(region);
        if (region_end >= end)
            return true;
        region = vpmm_region_record(pool, vpmm_region_at(root, region_end));
    }
}

/* Adds the usable extents that begin in the usable region. */
static void count_region(const struct vpmm_pool *pool, const struct vpmm_region *region,
                         struct vpmm_mix *mix)
{
    struct vpmm_span span = vpmm_region_span(pool, region);
    if (pool->params.extent_pages_max == 1 && !pool->fixed_extents) {
        mix->n[0] += span.pages;
        return;
    }
    uint64_t page = span.page;
    uint32_t number;
    while ((number = vpmm_extent_next(pool, &span, &page)) != 0) {
        const struct vpmm_extent *extent = vpmm_extent_record(pool, number);
        if (vpmm_extent_is_usable(pool, extent, region))
            mix->n[vpmm_policy_class(extent->pages)]++;
    }
}

static void count_all(const struct vpmm_pool *pool, struct vpmm_mix *mix)
{
    memset(mix, 0, sizeof *mix);
    for (uint32_t number = vpmm_usable_first(pool); number; number = vpmm_usable_next(pool, number))
        count_region(pool, vpmm_region_record(pool, number), mix);
}

/* `mix` without what lies in `run`, a run of usable regions that no extent leaves on the way to
 * another usable one. */
static struct vpmm_mix mix_without(const struct vpmm_pool *pool, const struct vpmm_mix *mix,
                                   const struct vpmm_span *run)
{
    struct vpmm_mix inside;
    struct vpmm_mix outside = *mix;
    memset(&inside, 0, sizeof inside);
    for (uint64_t page = run->page; page < run->page + run->pages;) {
        const struct vpmm_region *region =
            vpmm_region_record(pool, vpmm_region_at(run->root, page));
        count_region(pool, region, &inside);
        page += vpmm_region_pages(region);
    }
    for (unsigned i = 0; i < VPMM_CLASSES; i++)
        outside.n[i] -= inside.n[i];
    return outside;
}

/* The hole to the right of `base`, or the best one where there is no base; 0 when it has not so
 * many pages. */
static uint32_t find_hole(const struct vpmm_pool *pool, const struct vpmm_span *base,
                          uint64_t pages)
{
    if (!base->pages)
        return vpmm_index_fit(&pool->holes, pages);
    uint32_t number = vpmm_region_at(base->root, base->page + base->pages);
    return vpmm_region_pages(vpmm_region_record(pool, number)) >= pages ? number : 0;
}

/* Completes a place that has its base: fills a hole with `pages` of what is available, and new
 * memory. False when no hole is large enough. A surplus that no hole has room for is not worth
 * another root. */
static bool fill(const struct vpmm_pool *pool, const struct vpmm_mix *available, uint64_t pages,
                 struct vpmm_place *place)
{
    struct vpmm_harvest *harvest = &place->harvest;
    vpmm_policy_harvest(available, pages, true, harvest);
    uint32_t hole = find_hole(pool, &place->base, pages + harvest->surplus);
    if (!hole && harvest->surplus) {
        vpmm_policy_harvest(available, pages, false, harvest);
        hole = find_hole(pool, &place->base, pages);
    }
    if (!hole)
        return false;
    place->target = vpmm_region_span(pool, vpmm_region_record(pool, hole));
    place->target.pages = pages + harvest->surplus;
    place->cost = (struct vpmm_cost){harvest->missing, harvest->extents};
    if (harvest->missing) {
        place->unit = vpmm_policy_unit(&pool->params, harvest->missing);
        place->cost.extents += vpmm_policy_cuts(place->unit, harvest->missing);
    }
    return true;
}

/* The run that the usable region `number` ends, if a hole follows it. */
static bool find_base(const struct vpmm_pool *pool, uint32_t number, struct vpmm_span *base_out)
{
    uint32_t right = vpmm_region_right(pool, number);
    if (!right || vpmm_region_state(vpmm_region_record(pool, right)) != VPMM_REGION_HOLE)
        return false;
    *base_out = vpmm_run_around(pool, number, vpmm_region_is_usable);
    return true;
}

enum vpmm_status vpmm_place_choose(struct vpmm_pool *pool, const struct vpmm_want *want,
                                   struct vpmm_place *place_out)
{
    struct vpmm_place best = {.cost = {0, 0}};
    if (vpmm_fit_find(pool, want, &best.base)) {
        *place_out = best;
        return VPMM_OK;
    }
    struct vpmm_mix all;
    count_all(pool, &all);
    bool has_hole = fill(pool, &all, want->pages, &best);
    bool found = has_hole;
    for (uint32_t number = vpmm_usable_first(pool); number;
         number = vpmm_usable_next(pool, number)) {
        struct vpmm_place place = {.cost = {0, 0}};
        if (!find_base(pool, number, &place.base) || place.base.pages >= want->pages)
            continue;
        struct vpmm_mix others = mix_without(pool, &all, &place.base);
        if (fill(pool, &others, want->pages - place.base.pages, &place) &&
            (!found || !vpmm_policy_is_better(&best.cost, &place.cost))) {
            best = place;
            found = true;
        }
    }
    if (found && best.cost.created_pages <= want->create_pages_max) {
        *place_out = best;
        return VPMM_OK;
    }
    struct vpmm_harvest anywhere;
    vpmm_policy_harvest(&all, want->pages, true, &anywhere);
    return !has_hole && anywhere.missing <= want->create_pages_max ? VPMM_NO_SPACE : VPMM_NOT_FOUND;
}

enum vpmm_status vpmm_place_growth(const struct vpmm_pool *pool, uint64_t pages,
                                   struct vpmm_place *place_out)
{
    static const struct vpmm_mix nothing;
    struct vpmm_place place = {.cost = {0, 0}};
    if (!fill(pool, &nothing, pages, &place))
        return VPMM_NO_SPACE;
    *place_out = place;
    return VPMM_OK;
}
