/* SPDX-License-Identifier: MIT */
#include "heap/internal.h"

#include <assert.h>

void vpmm_edit_begin(struct vpmm_heap *heap)
{
    vpmm_lock_take(&heap->lock);
    while (heap->is_frozen)
        (void)pthread_cond_wait(&heap->edits_done, &heap->lock.mutex);
    heap->n_edits++;
}

void vpmm_edit_end(struct vpmm_heap *heap)
{
    assert(heap->n_edits > 0);
    if (--heap->n_edits == 0)
        (void)pthread_cond_broadcast(&heap->edits_done);
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

/* All steps and the access to them, or none. */
static enum vpmm_status carry_out(struct vpmm_heap *heap, struct vpmm_plan *plan,
                                  uint64_t *stuck_pages_out)
{
    const struct vpmm_driver *driver = heap->driver;
    enum vpmm_status status = VPMM_OK;
    uint32_t n_done = 0;
    while (n_done < plan->n_steps && !status) {
        status = carry_out_step(heap, &plan->steps[n_done]);
        n_done += !status;
    }
    if (!status && plan->pages)
        status = driver->set_access(driver->self, plan->address, plan->pages * heap->page_bytes,
                                    heap->devices, heap->n_devices);
    *stuck_pages_out = status ? undo_steps(heap, plan, n_done) : 0;
    return status;
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
            status = vpmm_heap_add_root(heap, want ? want->pages : pages);
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
    struct vpmm_pool_totals totals;
    vpmm_pool_totals(heap->pool, &totals);
    return totals.zombie_pages > heap->device_bytes / heap->page_bytes ? 2 * moved_pages : 0;
}

enum vpmm_status vpmm_edit_plan(struct vpmm_heap *heap, const struct vpmm_want *want,
                                uint64_t pages, uint64_t *address_out)
{
    struct vpmm_plan *plan;
    enum vpmm_status status = begin_with_plan(heap, want, pages, &plan);
    if (status)
        return status;
    vpmm_lock_give(&heap->lock);

    uint64_t stuck_pages;
    uint64_t moved_pages = plan->moved_pages;
    status = carry_out(heap, plan, &stuck_pages);

    vpmm_lock_take(&heap->lock);
    heap->is_unsettled |= status || moved_pages;
    if (status)
        vpmm_pool_abandon(heap->pool, plan, stuck_pages);
    else
        vpmm_pool_commit(heap->pool, plan, address_out);
    vpmm_edit_end(heap);
    if (status || !want)
        return status;
    vpmm_atomic_add(moved_pages ? &heap->stitches : &heap->grows, 1);
    if (moved_pages)
        vpmm_heap_unmap_zombies(heap, zombie_pages_due(heap, moved_pages));
    return VPMM_OK;
}
