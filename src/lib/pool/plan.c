/* SPDX-License-Identifier: MIT */
/* Makes a plan of what was chosen, and makes everything in transit busy. Must not change a region
 * before all that can fail has succeeded. */
#include "pool/plan.h"

#include <assert.h>

/* Room for the draft and its arrays in one mapping: every count is known beforehand. */
static struct vpmm_draft *draft_create(const struct vpmm_pool *pool, const struct vpmm_place *place)
{
    uint64_t n_steps = place->cost.extents;
    uint64_t n_moves = place->harvest.extents;
    uint64_t bytes = sizeof(struct vpmm_draft) + n_steps * sizeof(struct vpmm_step) +
                     n_moves * sizeof(struct vpmm_group) + n_steps * sizeof(uint32_t);
    if (n_steps > UINT32_MAX)
        return NULL;
    struct vpmm_draft *draft = pool->memory->map(pool->memory->self, bytes);
    if (!draft)
        return NULL;
    draft->bytes = bytes;
    draft->plan.steps = (struct vpmm_step *)(void *)(draft + 1);
    draft->groups = (struct vpmm_group *)(void *)(draft->plan.steps + n_steps);
    draft->extents = (uint32_t *)(void *)(draft->groups + n_moves);
    draft->base = place->base;
    draft->target = place->target;
    draft->excess = place->harvest.excess + place->extra;
    return draft;
}

/* Adds the extent to what moves. A neighbour from the same region joins the last group, `*open`. */
static enum vpmm_status pick_extent(struct vpmm_pool *pool, const struct vpmm_fence_view *view,
                                    struct vpmm_draft *draft, uint32_t number, uint32_t *open)
{
    const struct vpmm_extent *extent = vpmm_extent_record(pool, number);
    struct vpmm_span span = vpmm_extent_span(pool, extent);
    uint32_t region = vpmm_region_whole(pool, &span);
    draft->extents[draft->plan.n_steps] = number;
    draft->plan.steps[draft->plan.n_steps++] =
        (struct vpmm_step){VPMM_STEP_MOVE, 0, extent->pages, extent->handle};
    draft->plan.moved_pages += extent->pages;
    if (region && *open == region) {
        struct vpmm_span *last = &draft->groups[draft->n_groups - 1].span;
        if (last->page + last->pages == span.page) {
            last->pages += span.pages;
            return VPMM_OK;
        }
    }
    struct vpmm_group group = {span, VPMM_FENCE_NONE};
    enum vpmm_status status = vpmm_fence_add_span(pool, view, &span, &group.fence);
    draft->groups[draft->n_groups++] = group;
    *open = region;
    return status;
}

static enum vpmm_status pick_moves(struct vpmm_pool *pool, const struct vpmm_want *want,
                                   const struct vpmm_place *place, struct vpmm_draft *draft)
{
    struct vpmm_harvest_walk walk = vpmm_place_walk(pool, want, &place->base);
    uint32_t open = 0;
    enum vpmm_status status = VPMM_OK;
    if (!place->harvest.extents)
        return VPMM_OK;
    assert(want);
    draft->tolled_moves = want->pays_by_extent ? place->harvest.extents : 1;
    for (unsigned class = VPMM_CLASSES; class -- > 0 && !status;) {
        VPMM_STEP();
        uint64_t n = place->harvest.take.n[class];
        if (n)
            vpmm_harvest_begin(&walk, class);
        for (; n && !status; n--) {
            uint32_t number = vpmm_harvest_next(&walk);
            /* A free that joins a batch meanwhile may make what was counted wait once more. */
            status = number ? pick_extent(pool, want->view, draft, number, &open) : VPMM_NOT_FOUND;
        }
    }
    return status;
}

/* The extent with the excess goes last; and what is left of it must wait for all that the extent
 * left. */
static enum vpmm_status place_excess(struct vpmm_pool *pool, const struct vpmm_fence_view *view,
                                     const struct vpmm_place *place, struct vpmm_draft *draft)
{
    if (!place->harvest.excess)
        return VPMM_OK;
    uint32_t last = draft->plan.n_steps - 1;
    uint32_t i = last;
    while (vpmm_policy_class(draft->plan.steps[i].pages) != place->harvest.last_class)
        i--;
    struct vpmm_step step = draft->plan.steps[i];
    draft->plan.steps[i] = draft->plan.steps[last];
    draft->plan.steps[last] = step;
    uint32_t number = draft->extents[i];
    draft->extents[i] = draft->extents[last];
    draft->extents[last] = number;
    const struct vpmm_extent *extent = vpmm_extent_record(pool, number);
    struct vpmm_span span = {&pool->roots[extent->root], extent->page, extent->pages};
    return vpmm_fence_add_span(pool, view, &span, &draft->rest.fence);
}

static void add_creates(const struct vpmm_place *place, struct vpmm_draft *draft)
{
    for (uint64_t left = place->harvest.missing + place->extra; left;) {
        VPMM_STEP();
        uint64_t pages = vpmm_policy_cut(place->unit, left);
        draft->plan.steps[draft->plan.n_steps++] = (struct vpmm_step){
            .kind = VPMM_STEP_CREATE,
            .pages = pages,
        };
        draft->plan.created_pages += pages;
        left -= pages;
    }
}

static void set_addresses(const struct vpmm_pool *pool, struct vpmm_draft *draft)
{
    const struct vpmm_span *start = draft->target.pages ? &draft->target : &draft->base;
    draft->plan.address = vpmm_root_address(pool, start->root, start->page);
    draft->plan.pages = draft->target.pages;
    uint64_t address = draft->plan.address;
    for (uint32_t i = 0; i < draft->plan.n_steps; i++) {
        VPMM_STEP();
        draft->plan.steps[i].address = address;
        address += draft->plan.steps[i].pages * pool->params.page_bytes;
    }
}

/* What the result must come after: everything that its parts must. */
static enum vpmm_status join_result(const struct vpmm_pool *pool,
                                    const struct vpmm_fence_view *view, struct vpmm_draft *draft)
{
    enum vpmm_status status = VPMM_OK;
    if (draft->base.pages)
        status = vpmm_fence_add_span(pool, view, &draft->base, &draft->result.fence);
    for (uint32_t i = 0; i < draft->n_groups && !status; i++)
        status = vpmm_fence_add(view, draft->groups[i].fence, &draft->result.fence);
    return status;
}

static void make_busy(struct vpmm_pool *pool, const struct vpmm_span *span)
{
    if (!span->pages)
        return;
    vpmm_region_isolate(pool, span);
    vpmm_region_make_busy(pool, span);
}

/* Everything that can fail has been done but for the records: reserves them, and only then changes
 * anything. */
static enum vpmm_status begin(struct vpmm_pool *pool, const struct vpmm_place *place,
                              struct vpmm_draft *draft)
{
    uint64_t n_boundaries = 2 * (uint64_t)draft->n_groups + 5;
    uint32_t n_moves = (uint32_t)place->harvest.extents;
    uint32_t n_creates = draft->plan.n_steps - n_moves;
    if (n_boundaries >= UINT32_MAX ||
        vpmm_table_reserve(&pool->regions, (uint32_t)n_boundaries + 1) ||
        vpmm_table_reserve(&pool->extents, n_creates))
        return VPMM_NO_METADATA;
    draft->spare = vpmm_table_take(&pool->regions);
    pool->spare_regions++;
    for (uint32_t i = n_moves; i < draft->plan.n_steps; i++)
        draft->extents[i] = vpmm_table_take(&pool->extents);
    pool->spare_extents += n_creates;
    pool->planned_mappings += draft->plan.n_steps;
    pool->planned_pages += draft->plan.created_pages;
    for (uint32_t i = 0; i < draft->n_groups; i++)
        make_busy(pool, &draft->groups[i].span);
    make_busy(pool, &draft->base);
    struct vpmm_span need = draft->target;
    need.pages -= draft->excess;
    make_busy(pool, &need);
    make_busy(pool, &(struct vpmm_span){need.root, need.page + need.pages, draft->excess});
    return VPMM_OK;
}

static enum vpmm_status make_plan(struct vpmm_pool *pool, const struct vpmm_want *want,
                                  const struct vpmm_place *place, const struct vpmm_content *result,
                                  struct vpmm_plan **plan_out)
{
    uint64_t mappings = vpmm_atomic_load(&pool->counters.mappings) + pool->planned_mappings;
    if (place->cost.extents && mappings + place->cost.extents > pool->params.mappings_max)
        return VPMM_NOT_SUPPORTED;
    struct vpmm_draft *draft = draft_create(pool, place);
    if (!draft)
        return VPMM_NO_METADATA;
    draft->result = *result;
    draft->rest.state = VPMM_REGION_FREE;
    const struct vpmm_fence_view *view = want ? want->view : NULL;
    enum vpmm_status status = pick_moves(pool, want, place, draft);
    if (!status)
        status = place_excess(pool, view, place, draft);
    if (!status)
        status = join_result(pool, view, draft);
    if (!status) {
        add_creates(place, draft);
        set_addresses(pool, draft);
        status = begin(pool, place, draft);
    }
    if (status) {
        pool->memory->unmap(pool->memory->self, draft, draft->bytes);
        return status;
    }
    *plan_out = &draft->plan;
    return VPMM_OK;
}

enum vpmm_status vpmm_pool_plan(struct vpmm_pool *pool, const struct vpmm_want *want,
                                struct vpmm_plan **plan_out)
{
    struct vpmm_place place;
    struct vpmm_content live = {.state = VPMM_REGION_LIVE, .owner = want->owner};
    assert(want->pages > 0);
    vpmm_policy_toll_ease(&pool->toll, want->number);
    enum vpmm_status status = vpmm_place_choose(pool, want, &place);
    return status ? status : make_plan(pool, want, &place, &live, plan_out);
}

enum vpmm_status vpmm_pool_plan_growth(struct vpmm_pool *pool, uint64_t pages,
                                       struct vpmm_plan **plan_out)
{
    struct vpmm_place place;
    struct vpmm_content free = {.state = VPMM_REGION_FREE};
    assert(pages > 0);
    enum vpmm_status status = vpmm_place_growth(pool, pages, &place);
    return status ? status : make_plan(pool, NULL, &place, &free, plan_out);
}
