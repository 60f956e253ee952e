/* SPDX-License-Identifier: MIT */
/* Carries out a plan: calls the driver without the lock, then commits or undoes. A driver call that
 * fails must not leave anything changed that a caller can see. */
#include "heap/heap_internal.h"

#include <assert.h>

/* How many plans in a row may meet an extent that the driver refuses; then it is taken to refuse
 * everything, as it does where memory ran out. */
#define PLANS_MAX 32

void vpmm_edit_begin(struct vpmm_heap *heap)
{
    vpmm_lock_take(&heap->lock);
    while (heap->is_frozen)
        vpmm_condition_wait(&heap->edits_done, &heap->lock);
    heap->n_edits++;
}

void vpmm_edit_end(struct vpmm_heap *heap)
{
    assert(heap->n_edits > 0);
    if (--heap->n_edits == 0)
        vpmm_condition_broadcast(&heap->edits_done);
    vpmm_lock_give(&heap->lock);
}

/* Creates where the step wants a new extent, and maps. Undoes its own half on failure. */
static enum vpmm_status carry_out_step(struct vpmm_heap *heap, struct vpmm_step *step)
{
    const struct vpmm_driver *driver = heap->driver;
    uint64_t bytes = step->pages * heap->page_bytes;
    enum vpmm_status status;
    if (step->kind == VPMM_STEP_CREATE) {
        status = driver->extent_create(driver->self, heap->params.device, bytes, &step->extent);
        if (status)
            return status;
        vpmm_order_collect(heap->order);
    }
    status = driver->map(driver->self, step->address, bytes, step->extent);
    if (status && step->kind == VPMM_STEP_CREATE)
        (void)driver->extent_release(driver->self, step->extent);
    return status;
}

/* Takes back the first `n_done` steps. Returns the pages that could not be unmapped again. Their
 * new extents are released all the same: the memory lives as long as it is mapped, and a later
 * unmap then is all that is missing. */
static uint64_t undo_steps(struct vpmm_heap *heap, const struct vpmm_plan *plan, uint32_t n_done)
{
    const struct vpmm_driver *driver = heap->driver;
    uint64_t pages = 0;
    for (uint32_t i = 0; i < n_done; i++)
        pages += plan->steps[i].pages;
    bool stuck = pages && driver->unmap(driver->self, plan->address, pages * heap->page_bytes);
    for (uint32_t i = 0; i < n_done; i++)
        if (plan->steps[i].kind == VPMM_STEP_CREATE)
            (void)driver->extent_release(driver->self, plan->steps[i].extent);
    return stuck ? pages : 0;
}

/* What became of a plan's steps. */
struct outcome {
    enum vpmm_status status;
    uint32_t n_done;
    uint64_t stuck_pages;
};

/* All steps and the access to them, or none. */
static struct outcome carry_out(struct vpmm_heap *heap, struct vpmm_plan *plan)
{
    const struct vpmm_driver *driver = heap->driver;
    struct outcome outcome = {VPMM_OK, 0, 0};
    while (outcome.n_done < plan->n_steps && !outcome.status) {
        outcome.status = carry_out_step(heap, &plan->steps[outcome.n_done]);
        outcome.n_done += !outcome.status;
    }
    if (!outcome.status && plan->pages)
        outcome.status =
            driver->set_access(driver->self, plan->address, plan->pages * heap->page_bytes,
                               heap->devices, heap->n_devices);
    if (outcome.status)
        outcome.stuck_pages = undo_steps(heap, plan, outcome.n_done);
    return outcome;
}

/* Under memory pressure cuMemMap answers CUDA_ERROR_UNKNOWN for single handles, and goes on doing
 * so at every address (driver 580). The next plan does without that extent. */
static bool fixes_extent(struct vpmm_heap *heap, struct vpmm_plan *plan,
                         const struct outcome *outcome)
{
    if (outcome->status != VPMM_FAILED || outcome->n_done == plan->n_steps ||
        plan->steps[outcome->n_done].kind != VPMM_STEP_MOVE)
        return false;
    vpmm_pool_fix_extent(heap->pool, plan, outcome->n_done);
    return true;
}

static enum vpmm_status make_plan(struct vpmm_heap *heap, const struct vpmm_want *want,
                                  uint64_t pages, struct vpmm_plan **plan_out)
{
    return want ? vpmm_pool_plan(heap->pool, want, plan_out)
                : vpmm_pool_plan_growth(heap->pool, pages, plan_out);
}

/* Begins an edit with a plan. Address space that zombies hold comes before more of it. */
static enum vpmm_status begin_with_plan(struct vpmm_heap *heap, const struct vpmm_want *want,
                                        uint64_t pages, struct vpmm_plan **plan_out)
{
    bool has_reaped = false;
    vpmm_edit_begin(heap);
    enum vpmm_status status = make_plan(heap, want, pages, plan_out);
    while (status == VPMM_NO_SPACE) {
        vpmm_edit_end(heap);
        status = VPMM_OK;
        if (has_reaped)
            status = vpmm_heap_add_root(heap, want ? want->pages : pages, want && want->is_slab);
        else
            vpmm_heap_reap(heap);
        has_reaped = true;
        vpmm_edit_begin(heap);
        if (!status)
            status = make_plan(heap, want, pages, plan_out);
    }
    if (status)
        vpmm_edit_end(heap);
    return status;
}

/* Beyond one device's worth of zombies every move unmaps more of them than it adds: address space
 * and mappings stay bounded, and nobody ever has all of them to unmap at once. */
static uint64_t zombie_pages_due(const struct vpmm_heap *heap, uint64_t moved_pages)
{
    uint64_t zombie_pages = vpmm_pool_zombie_pages(heap->pool);
    return zombie_pages > heap->device_bytes / heap->page_bytes ? 2 * moved_pages : 0;
}

/* One plan, made and carried out. `may_try_again_out`: it failed, and another one need not. */
static enum vpmm_status try_plan(struct vpmm_heap *heap, const struct vpmm_want *want,
                                 uint64_t pages, uint64_t *address_out, uint64_t *moved_pages_out,
                                 bool *may_try_again_out)
{
    struct vpmm_plan *plan;
    *may_try_again_out = false;
    enum vpmm_status status = begin_with_plan(heap, want, pages, &plan);
    if (status)
        return status;
    vpmm_lock_give(&heap->lock);

    *moved_pages_out = plan->moved_pages;
    uint64_t begin_ns = vpmm_heap_now_ns(heap);
    struct outcome outcome = carry_out(heap, plan);
    vpmm_heap_tell_plan(heap, plan, outcome.status, outcome.stuck_pages, begin_ns);

    vpmm_lock_take(&heap->lock);
    heap->is_unsettled |= outcome.status || plan->moved_pages;
    *may_try_again_out = fixes_extent(heap, plan, &outcome);
    if (outcome.status)
        vpmm_pool_abandon(heap->pool, plan, outcome.stuck_pages);
    else
        vpmm_pool_commit(heap->pool, plan, address_out);
    vpmm_heap_check(heap);
    vpmm_edit_end(heap);
    return outcome.status;
}

enum vpmm_status vpmm_edit_plan(struct vpmm_heap *heap, const struct vpmm_want *want,
                                uint64_t pages, uint64_t *address_out, enum vpmm_way *way_out)
{
    uint64_t moved_pages;
    bool may_try_again = true;
    enum vpmm_status status = VPMM_OK;
    for (unsigned n = 0; n < PLANS_MAX && may_try_again; n++)
        status = try_plan(heap, want, pages, address_out, &moved_pages, &may_try_again);
    if (may_try_again)
        status = VPMM_NO_MEMORY;
    if (status || !want)
        return status;
    vpmm_atomic_add(moved_pages ? &heap->stitches : &heap->grows, 1);
    *way_out = moved_pages ? VPMM_WAY_STITCH : VPMM_WAY_GROW;
    vpmm_heap_note_tightness(heap);
    if (moved_pages)
        vpmm_heap_unmap_zombies(heap, zombie_pages_due(heap, moved_pages));
    return VPMM_OK;
}
