/* SPDX-License-Identifier: MIT */
/* Ends a plan: commits what was carried out, or abandons it. Must not fail: the plan has reserved
 * all records that this needs. */
#include "pool/plan.h"

#include <assert.h>

/* Every plan that leaves this folder is the head of a draft. */
static struct vpmm_draft *draft_of(struct vpmm_plan *plan)
{
    return (struct vpmm_draft *)(void *)plan;
}

static void give_spare(struct vpmm_pool *pool, struct vpmm_draft *draft)
{
    vpmm_table_give(&pool->regions, draft->spare);
    pool->spare_regions--;
    pool->planned_mappings -= draft->plan.n_steps;
    pool->planned_pages -= draft->plan.created_pages;
}

static void draft_destroy(struct vpmm_pool *pool, struct vpmm_draft *draft)
{
    pool->memory->unmap(pool->memory->self, draft, draft->bytes);
}

void vpmm_zombie_make(struct vpmm_pool *pool, const struct vpmm_span *span, vpmm_fence fence)
{
    struct vpmm_content zombie = {VPMM_REGION_ZOMBIE, fence, pool->last_age, .owner = {0}};
    uint32_t number = vpmm_region_fuse(pool, span, &zombie);
    (void)vpmm_region_merge(pool, number);
}

/* The step's mapping stands. */
static void step_done(struct vpmm_pool *pool, const struct vpmm_draft *draft, uint32_t i,
                      bool is_home)
{
    const struct vpmm_step *step = &draft->plan.steps[i];
    uint64_t page = vpmm_root_page(pool, draft->target.root, step->address);
    struct vpmm_span span = {draft->target.root, page, step->pages};
    if (step->kind == VPMM_STEP_MOVE) {
        vpmm_extent_map(pool, draft->extents[i], span.root, page, is_home);
        return;
    }
    vpmm_extent_create(pool, draft->extents[i], step->extent, &span);
    vpmm_atomic_add(&pool->counters.created_pages, step->pages);
    pool->spare_extents--;
}

void vpmm_pool_commit(struct vpmm_pool *pool, struct vpmm_plan *plan, uint64_t *address_out)
{
    struct vpmm_draft *draft = draft_of(plan);
    struct vpmm_span result = draft->base.pages ? draft->base : draft->target;
    result.pages = draft->base.pages + draft->target.pages - draft->excess;
    give_spare(pool, draft);
    for (uint32_t i = 0; i < plan->n_steps; i++)
        step_done(pool, draft, i, true);
    pool->last_age++;
    for (uint32_t i = 0; i < draft->n_groups; i++)
        vpmm_zombie_make(pool, &draft->groups[i].span, draft->groups[i].fence);
    if (draft->excess) {
        uint64_t page = draft->target.page + draft->target.pages - draft->excess;
        uint32_t rest = vpmm_region_at(draft->target.root, page);
        vpmm_region_turn(pool, rest, &draft->rest);
        (void)vpmm_region_merge(pool, rest);
    }
    uint32_t number = vpmm_region_fuse(pool, &result, &draft->result);
    if (draft->result.state == VPMM_REGION_FREE) {
        vpmm_harvest_note(pool, &result);
        (void)vpmm_region_merge(pool, number);
    } else if (plan->created_pages) {
        vpmm_policy_row_note(&pool->params, &pool->row, result.pages);
    }
    vpmm_atomic_add(&pool->counters.moved_pages, plan->moved_pages);
    vpmm_policy_toll_take(&pool->toll, draft->tolled_moves);
    *address_out = vpmm_root_address(pool, result.root, result.page);
    draft_destroy(pool, draft);
}

/* Mappings that could not be undone: what they show is never used again, and never mapped over. A
 * created extent has its home there; a moved one keeps it where it was. */
static void quarantine(struct vpmm_pool *pool, const struct vpmm_draft *draft,
                       const struct vpmm_span *stuck)
{
    struct vpmm_content content = {.state = VPMM_REGION_QUARANTINED};
    vpmm_region_isolate(pool, stuck);
    (void)vpmm_region_fuse(pool, stuck, &content);
    for (uint32_t i = 0; i < draft->plan.n_steps; i++) {
        uint64_t page = vpmm_root_page(pool, stuck->root, draft->plan.steps[i].address);
        if (page - stuck->page < stuck->pages)
            step_done(pool, draft, i, false);
    }
}

void vpmm_pool_fix_extent(struct vpmm_pool *pool, struct vpmm_plan *plan, uint32_t step)
{
    const struct vpmm_draft *draft = draft_of(plan);
    assert(step < plan->n_steps && plan->steps[step].kind == VPMM_STEP_MOVE);
    vpmm_harvest_unlist(pool, draft->extents[step]);
    vpmm_extent_record(pool, draft->extents[step])->is_fixed = 1;
}

void vpmm_pool_abandon(struct vpmm_pool *pool, struct vpmm_plan *plan, uint64_t stuck_pages)
{
    struct vpmm_draft *draft = draft_of(plan);
    struct vpmm_span stuck = {draft->target.root, draft->target.page, stuck_pages};
    struct vpmm_span rest = {stuck.root, stuck.page + stuck_pages,
                             draft->target.pages - stuck_pages};
    assert(stuck_pages <= draft->target.pages);
    give_spare(pool, draft);
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        bool is_stuck =
            (plan->steps[i].address - plan->address) / pool->params.page_bytes < stuck_pages;
        if (plan->steps[i].kind == VPMM_STEP_CREATE && !is_stuck) {
            vpmm_table_give(&pool->extents, draft->extents[i]);
            pool->spare_extents--;
        }
    }
    if (stuck_pages)
        quarantine(pool, draft, &stuck);
    vpmm_region_restore(pool, &rest, VPMM_REGION_HOLE);
    for (uint32_t i = 0; i < draft->n_groups; i++)
        vpmm_region_restore(pool, &draft->groups[i].span, VPMM_REGION_FREE);
    vpmm_region_restore(pool, &draft->base, VPMM_REGION_FREE);
    draft_destroy(pool, draft);
}
