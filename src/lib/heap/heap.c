/* SPDX-License-Identifier: MIT */
/* Makes a heap and ends it, adds its roots, and answers questions about it. Must not hold the
 * heap's lock during a driver call. */
#include "heap/heap_internal.h"

#include "base/bytes.h"
#include "base/layout.h"

#include <string.h>

#define MAPPINGS_MAX ((uint64_t)256 * 1024)
#define EAGER_PIECE_BYTES ((uint64_t)256 << 20)

/* A pool is tight from so much of the device, or of its limit, on. */
#define TIGHT_PERCENT 75

/* Whole pages are wasteful where they leave more unused than WASTED_BYTES, or the slack if that is
 * less, and more than this part of the live bytes. Below that a slower request is not worth it. */
#define WASTED_BYTES ((uint64_t)64 << 20)
#define WASTED_SHARE 10

/* A root holds at least twice the device, so that all of it can be mapped somewhere else once more.
 */
static uint64_t smallest_root_bytes(const struct vpmm_heap *heap, uint64_t pages)
{
    uint64_t wanted = pages * heap->page_bytes;
    uint64_t twice = heap->device_bytes * 2 / heap->page_bytes * heap->page_bytes;
    return heap->params.root_bytes < twice || wanted > twice ? wanted : twice;
}

enum vpmm_status vpmm_heap_add_root(struct vpmm_heap *heap, uint64_t pages, bool is_for_slabs)
{
    const struct vpmm_driver *driver = heap->driver;
    uint64_t smallest = smallest_root_bytes(heap, pages);
    uint64_t bytes = heap->params.root_bytes / heap->page_bytes * heap->page_bytes;
    if (bytes < smallest || (is_for_slabs && bytes > 2 * heap->device_bytes))
        bytes = smallest;
    uint64_t address;
    enum vpmm_status status;
    while ((status = driver->address_reserve(driver->self, bytes, &address)) && bytes > smallest) {
        bytes = bytes / 2 / heap->page_bytes * heap->page_bytes;
        if (bytes < smallest)
            bytes = smallest;
    }
    if (status)
        return status;
    vpmm_lock_take(&heap->lock);
    status = vpmm_pool_add_root(heap->pool, address, bytes / heap->page_bytes, is_for_slabs);
    vpmm_lock_give(&heap->lock);
    if (status)
        (void)driver->address_free(driver->self, address, bytes);
    return status;
}

/* As many of the eager pages as can be had. They are mapped piece by piece, because the policy cuts
 * what it creates at once into a few extents, and large ones would be pinned by small live regions.
 */
static void map_eagerly(struct vpmm_heap *heap)
{
    uint64_t left = heap->params.eager_pages;
    if (left > heap->capacity_pages)
        left = heap->capacity_pages;
    uint64_t piece = EAGER_PIECE_BYTES / heap->page_bytes;
    if (piece == 0)
        piece = 1;
    while (left > 0 && piece > 0) {
        uint64_t address;
        if (piece > left)
            piece = left;
        if (vpmm_edit_plan(heap, NULL, piece, &address, NULL))
            piece /= 2;
        else
            left -= piece;
    }
}

static uint64_t capacity_pages(const struct vpmm_heap *heap)
{
    uint64_t limit_bytes = heap->params.limit_bytes;
    bool is_limited = limit_bytes && limit_bytes < heap->device_bytes;
    return (is_limited ? limit_bytes : heap->device_bytes) / heap->page_bytes;
}

static enum vpmm_status init(struct vpmm_heap *heap)
{
    struct vpmm_device_facts facts;
    enum vpmm_status status =
        heap->driver->device_facts(heap->driver->self, heap->params.device, &facts);
    if (status)
        return status;
    if (!facts.has_vmm || facts.granularity_bytes == 0)
        return VPMM_NOT_SUPPORTED;
    heap->page_bytes = heap->params.page_bytes ? heap->params.page_bytes : facts.granularity_bytes;
    heap->device_bytes = facts.total_bytes;
    if (heap->page_bytes % facts.granularity_bytes || heap->page_bytes > heap->device_bytes)
        return VPMM_NOT_SUPPORTED;
    heap->capacity_pages = capacity_pages(heap);
    status = vpmm_cache_init(heap);
    if (!status)
        status = vpmm_habits_init(heap);
    if (status)
        return status;
    struct vpmm_pool_params pool_params = {
        .page_bytes = heap->page_bytes,
        .extent_pages_max = heap->params.extent_pages_max,
        .mappings_max = MAPPINGS_MAX,
        .spare_percent = heap->params.spare_percent,
    };
    status = vpmm_pool_create(&pool_params, heap->memory, &heap->pool);
    if (status)
        return status;
    if (heap->params.limit_bytes)
        (void)vpmm_pool_limit(heap->pool, heap->params.limit_bytes / heap->page_bytes);
    status = vpmm_heap_add_root(heap, 1, false);
    if (status) {
        vpmm_pool_destroy(heap->pool);
        return status;
    }
    map_eagerly(heap);
    return VPMM_OK;
}

enum vpmm_status vpmm_heap_create(const struct vpmm_heap_params *params,
                                  const struct vpmm_driver *driver, struct vpmm_order *order,
                                  const struct vpmm_memory *memory, struct vpmm_heap **heap_out)
{
    struct vpmm_heap *heap = memory->map(memory->self, sizeof *heap);
    if (!heap)
        return VPMM_NO_METADATA;
    heap->driver = driver;
    heap->order = order;
    heap->memory = memory;
    heap->params = *params;
    vpmm_atomic_store(&heap->gives_whole, params->exports_whole);
    heap->devices[0] = params->device;
    heap->n_devices = 1;
    vpmm_lock_init(&heap->lock, VPMM_RANK_HEAP);
    vpmm_condition_init(&heap->edits_done);
    vpmm_condition_init(&heap->frees_done);
    /* Without records of a context nobody else could close a batch. */
    vpmm_atomic_store(&heap->is_tight, !driver->event_record_context);
    enum vpmm_status status = init(heap);
    if (status) {
        vpmm_habits_finish(heap);
        vpmm_lanes_finish(heap);
        vpmm_condition_finish(&heap->frees_done);
        vpmm_condition_finish(&heap->edits_done);
        vpmm_lock_finish(&heap->lock);
        memory->unmap(memory->self, heap, sizeof *heap);
        return status;
    }
    *heap_out = heap;
    return VPMM_OK;
}

void vpmm_heap_destroy(struct vpmm_heap *heap)
{
    if (!heap)
        return;
    const struct vpmm_driver *driver = heap->driver;
    uint64_t cursor = 0;
    struct vpmm_region_view region;
    (void)vpmm_cache_close(heap, NULL, true);
    while (vpmm_pool_next(heap->pool, &cursor, &region))
        if (region.state == VPMM_REGION_LIVE &&
            !vpmm_pool_claim(heap->pool, region.address, &region))
            vpmm_pool_free(heap->pool, region.address, VPMM_FENCE_NONE, 0);
    (void)vpmm_heap_trim(heap, UINT64_MAX);
    uint64_t address;
    uint64_t pages;
    for (uint32_t i = 0; vpmm_pool_root(heap->pool, i, &address, &pages); i++)
        (void)driver->address_free(driver->self, address, pages * heap->page_bytes);
    vpmm_pool_destroy(heap->pool);
    vpmm_leases_finish(heap);
    vpmm_habits_finish(heap);
    vpmm_lanes_finish(heap);
    vpmm_condition_finish(&heap->frees_done);
    vpmm_condition_finish(&heap->edits_done);
    vpmm_lock_finish(&heap->lock);
    heap->memory->unmap(heap->memory->self, heap, sizeof *heap);
}

bool vpmm_heap_holds(const struct vpmm_heap *heap, uint64_t address)
{
    return vpmm_pool_holds(heap->pool, address);
}

enum vpmm_status vpmm_heap_find(const struct vpmm_heap *heap, uint64_t address,
                                struct vpmm_region_view *view_out)
{
    return vpmm_pool_find(heap->pool, address, view_out);
}

uint64_t vpmm_heap_live_bytes(const struct vpmm_heap *heap, uint64_t address)
{
    return vpmm_pool_live_bytes(heap->pool, address);
}

uint64_t vpmm_heap_reserve_ids(struct vpmm_heap *heap, uint64_t n)
{
    return vpmm_atomic_add(&heap->last_allocation_id, n) + 1;
}

uint64_t vpmm_heap_allocation_id(const struct vpmm_heap *heap, uint64_t number)
{
    return number * VPMM_DEVICES_MAX + (uint64_t)heap->params.device;
}

void vpmm_heap_note_tightness(struct vpmm_heap *heap)
{
    uint64_t limit = heap->capacity_pages / 100 * TIGHT_PERCENT;
    if (!vpmm_atomic_load(&heap->is_tight) && vpmm_pool_held_pages(heap->pool) > limit)
        vpmm_atomic_store(&heap->is_tight, 1);
}

/* The pages and the bytes may be of different moments: more bytes than pages are no waste. Once
 * wasteful they stay so: a program that repeats itself would lose its habits each time that
 * changed. With several streams whole pages waste less: each stream has shared pages of its own
 * that are not full, and what other streams free there comes back late. */
void vpmm_heap_note_waste(struct vpmm_heap *heap)
{
    bool was_wasteful = vpmm_atomic_load(&heap->is_wasteful) != 0;
    if (!vpmm_lanes_have_one_stream(heap)) {
        if (was_wasteful)
            vpmm_atomic_store(&heap->is_wasteful, 0);
        return;
    }
    if (was_wasteful)
        return;
    uint64_t pages, bytes;
    vpmm_pool_live(heap->pool, &pages, &bytes);
    uint64_t whole = pages * heap->page_bytes;
    uint64_t wasted = whole > bytes ? whole - bytes : 0;
    uint64_t slack = heap->params.slack_bytes;
    uint64_t most = slack < WASTED_BYTES ? slack : WASTED_BYTES;
    if (wasted > most && wasted > bytes / WASTED_SHARE)
        vpmm_atomic_store(&heap->is_wasteful, 1);
}

void vpmm_heap_counts(const struct vpmm_heap *heap, struct vpmm_heap_counts *counts_out)
{
    uint64_t cache_mallocs;
    uint64_t cache_frees;
    uint64_t late_hits = vpmm_atomic_load(&heap->late_hits);
    vpmm_lanes_counts(heap, &cache_mallocs, &cache_frees);
    *counts_out = (struct vpmm_heap_counts){
        .mallocs = cache_mallocs,
        .frees = vpmm_atomic_load(&heap->frees) + cache_frees,
        .cache_hits = cache_mallocs,
        .direct_hits = cache_mallocs - late_hits,
        .habit_hits = vpmm_atomic_load(&heap->habit_hits),
        .fits = vpmm_atomic_load(&heap->fits),
        .revives = vpmm_atomic_load(&heap->revives),
        .stitches = vpmm_atomic_load(&heap->stitches),
        .grows = vpmm_atomic_load(&heap->grows),
        .host_waits = vpmm_atomic_load(&heap->host_waits),
        .stream_waits = vpmm_atomic_load(&heap->stream_waits),
        .failures = vpmm_atomic_load(&heap->failures),
        .trimmed_bytes = vpmm_atomic_load(&heap->trimmed_bytes),
        .decayed_bytes = vpmm_atomic_load(&heap->decayed_bytes),
        .leased_regions = vpmm_atomic_load(&heap->leased_regions),
        .withheld_pages = vpmm_atomic_load(&heap->withheld_pages),
    };
    for (unsigned i = 0; i < VPMM_RUNG_COUNT; i++) {
        counts_out->rungs[i] = vpmm_atomic_load(&heap->rungs[i]);
        counts_out->mallocs += counts_out->rungs[i];
    }
}

int vpmm_heap_device(const struct vpmm_heap *heap)
{
    return heap->params.device;
}

uint64_t vpmm_heap_page_bytes(const struct vpmm_heap *heap)
{
    return heap->page_bytes;
}

uint64_t vpmm_heap_limit_pages(const struct vpmm_heap *heap)
{
    uint64_t aside = vpmm_atomic_load(&heap->aside_bytes);
    uint64_t limit = heap->params.limit_bytes;
    return aside < limit ? (limit - aside) / heap->page_bytes : 0;
}

bool vpmm_heap_set_aside(struct vpmm_heap *heap, uint64_t bytes)
{
    if (!heap->params.limit_bytes)
        return true;
    vpmm_lock_take(&heap->lock);
    uint64_t aside = vpmm_atomic_load(&heap->aside_bytes);
    bool may_be = bytes <= heap->params.limit_bytes - aside;
    if (may_be) {
        vpmm_atomic_store(&heap->aside_bytes, aside + bytes);
        may_be = vpmm_pool_limit(heap->pool, vpmm_heap_limit_pages(heap));
    }
    if (!may_be)
        vpmm_atomic_store(&heap->aside_bytes, aside);
    vpmm_lock_give(&heap->lock);
    return may_be;
}

void vpmm_heap_set_back(struct vpmm_heap *heap, uint64_t bytes)
{
    if (!heap->params.limit_bytes)
        return;
    vpmm_lock_take(&heap->lock);
    vpmm_atomic_store(&heap->aside_bytes, vpmm_atomic_load(&heap->aside_bytes) - bytes);
    (void)vpmm_pool_limit(heap->pool, vpmm_heap_limit_pages(heap));
    vpmm_lock_give(&heap->lock);
}

uint64_t vpmm_heap_limit_bytes(const struct vpmm_heap *heap)
{
    return heap->params.limit_bytes / heap->page_bytes * heap->page_bytes;
}

const struct vpmm_pool *vpmm_heap_pool(const struct vpmm_heap *heap)
{
    return heap->pool;
}

uint64_t vpmm_heap_layout(void)
{
    uint64_t layout = vpmm_layout_mix(sizeof(struct vpmm_heap), sizeof(struct vpmm_lane));
    layout = vpmm_layout_mix(layout, offsetof(struct vpmm_heap, lanes));
    layout = vpmm_layout_mix(layout, offsetof(struct vpmm_heap, frees));
    return vpmm_layout_mix(layout, VPMM_LANES);
}

/* With the lock and all latches. */
static const char *audit(struct vpmm_heap *heap)
{
    const char *broken = vpmm_pool_audit(heap->pool);
    return broken ? broken : vpmm_lanes_audit(heap);
}

bool vpmm_heap_try_audit(struct vpmm_heap *heap, const char **broken_out)
{
    if (!vpmm_lock_try(&heap->lock))
        return false;
    bool holds_all = vpmm_lanes_try_hold(heap);
    if (holds_all) {
        *broken_out = audit(heap);
        vpmm_lanes_let_go(heap);
    }
    vpmm_lock_give(&heap->lock);
    return holds_all;
}

const char *vpmm_heap_audit(struct vpmm_heap *heap)
{
    vpmm_lock_take(&heap->lock);
    vpmm_lanes_hold(heap);
    const char *broken = audit(heap);
    vpmm_lanes_let_go(heap);
    vpmm_lock_give(&heap->lock);
    return broken;
}
