/* SPDX-License-Identifier: MIT */
/* The rungs of a request once memory has run out, and the help for requests that are CUDA's. Must
 * not wait without bound where bare CUDA would not have waited. */
#include "heap/ladder.h"

/* How long a request that would otherwise fail polls for work that it must not wait for without
 * bound. It also polls so many times, however long a busy host takes for that: on an idle one they
 * are over sooner. */
#define PATIENCE_MS 500
#define PATIENCE_LOOKS 100u

/* How often one allocation elsewhere is tried again, while other threads take what was given back.
 */
#define RELIEF_ROUNDS_MAX 16

/* Neighbours are asked for what is lacking and this share of the request. */
#define LACKING_SHARE 64

/* Pages the device itself could still give; "any number" where another device is current and nobody
 * can say. */
static uint64_t device_free_pages(const struct vpmm_heap *heap)
{
    const struct vpmm_driver *driver = heap->driver;
    vpmm_context_handle current;
    int device;
    uint64_t free_bytes;
    uint64_t total_bytes;
    if (driver->context_current(driver->self, &current) ||
        driver->context_device(driver->self, current, &device) || device != heap->params.device ||
        driver->memory_info(driver->self, &free_bytes, &total_bytes))
        return UINT64_MAX;
    return free_bytes / heap->page_bytes;
}

/* One more try with what is usable now. NOT_FOUND stands for every way in which that can fall
 * short. */
static enum vpmm_status try_with(struct vpmm_serving *serving, uint64_t create_pages_max,
                                 uint64_t *address_out)
{
    enum vpmm_status status = vpmm_serving_fit(serving, address_out);
    if (status == VPMM_NOT_FOUND)
        status = vpmm_serving_stitch(serving, create_pages_max, address_out);
    return status == VPMM_NO_MEMORY ? VPMM_NOT_FOUND : status;
}

static enum vpmm_status try_again(struct vpmm_serving *serving, uint64_t *address_out)
{
    return try_with(serving, device_free_pages(serving->heap), address_out);
}

/* Pages that the limit leaves, `held_pages` being held. */
static uint64_t limit_free_pages(const struct vpmm_heap *heap, uint64_t held_pages)
{
    if (!heap->params.limit_bytes)
        return UINT64_MAX;
    uint64_t limit_pages = vpmm_heap_limit_pages(heap);
    return limit_pages > held_pages ? limit_pages - held_pages : 0;
}

/* Whether all that is free, pending or in transit, and all that the device and the limit have left
 * could make up the request: if not, waiting is in vain. */
static bool could_suffice(const struct vpmm_serving *serving)
{
    struct vpmm_heap *heap = serving->heap;
    struct vpmm_pool_totals totals;
    /* Without the lock a region that just changes its state may count nowhere. */
    vpmm_lock_take(&heap->lock);
    vpmm_pool_totals(heap->pool, &totals);
    vpmm_lock_give(&heap->lock);
    uint64_t pages =
        totals.free_pages + vpmm_heap_busy_pages(heap, &totals) + vpmm_heap_keeper_pending(heap);
    if (pages >= serving->want.pages)
        return true;
    uint64_t missing = serving->want.pages - pages;
    return limit_free_pages(heap, totals.held_pages) >= missing &&
           device_free_pages(heap) >= missing;
}

/* cuMemPoolTrimTo would end a capture of a thread that is not relaxed (measured on driver 580). */
static void trim_default_pool(const struct vpmm_heap *heap)
{
    const struct vpmm_driver *driver = heap->driver;
    int mode;
    if (driver->capture_relax(driver->self, &mode))
        return;
    (void)driver->default_pool_trim(driver->self, heap->params.device);
    driver->capture_restore(driver->self, mode);
}

/* CUDA's own pool is trimmed, too, unless a limit of ours is what is short. */
enum vpmm_status vpmm_rung_reap(struct vpmm_serving *serving, uint64_t *address_out)
{
    /* A block that shares extents is better than none. */
    serving->want.owner.is_whole = false;
    vpmm_atomic_store(&serving->heap->is_tight, 1);
    vpmm_heap_reap(serving->heap);
    if (!serving->is_limited)
        trim_default_pool(serving->heap);
    enum vpmm_status status = try_again(serving, address_out);
    serving->is_worth_a_wait = status == VPMM_NOT_FOUND && could_suffice(serving);
    return status;
}

/* Waits for what bare CUDA has made this thread wait for, oldest first. */
enum vpmm_status vpmm_rung_host_wait(struct vpmm_serving *serving, uint64_t *address_out)
{
    const struct vpmm_request *request = serving->request;
    const struct vpmm_context *context = request->stream ? NULL : request->context;
    enum vpmm_status status = VPMM_NOT_FOUND;
    struct vpmm_endurance endurance = vpmm_endurance_begin(serving->heap);
    while (status == VPMM_NOT_FOUND && serving->is_worth_a_wait) {
        status = vpmm_heap_wait_oldest(serving->heap, context, &endurance);
        if (status)
            break;
        status = try_again(serving, address_out);
    }
    return status;
}

static bool may_wait_on_device(const struct vpmm_request *request)
{
    return !request->mempool || !vpmm_atomic_load(&request->mempool->waits_never);
}

static bool is_promised(const struct vpmm_request_view *view, vpmm_fence fence)
{
    size_t i = 0;
    while (i < view->n_promised && view->promised[i] != fence)
        i++;
    return i < view->n_promised;
}

/* Each wait is issued before the pages behind it are touched, so a wait that fails leaves nothing
 * to undo. A climb may come here twice. */
enum vpmm_status vpmm_serving_wait_on_device(struct vpmm_serving *serving,
                                             uint64_t create_pages_max, uint64_t *address_out)
{
    struct vpmm_heap *heap = serving->heap;
    const struct vpmm_stream *stream = serving->request->stream;
    vpmm_fence fences[VPMM_FENCES_MAX];
    enum vpmm_status status = VPMM_NOT_FOUND;
    if (!may_wait_on_device(serving->request))
        return status;
    size_t n = vpmm_heap_pending_of_streams(heap, stream, fences, VPMM_FENCES_MAX);
    for (size_t i = 0; i < n && status == VPMM_NOT_FOUND; i++) {
        uint64_t begin_ns = vpmm_heap_now_ns(heap);
        struct vpmm_request_view *view = &serving->view;
        if (view->n_promised == VPMM_FENCES_MAX || is_promised(view, fences[i]))
            continue;
        if (vpmm_order_wait_stream(heap->order, fences[i], stream))
            continue;
        vpmm_atomic_add(&heap->stream_waits, 1);
        vpmm_heap_tell_wait(heap, stream, begin_ns);
        view->promised[view->n_promised++] = fences[i];
        serving->want.asks_all = true;
        status = try_with(serving, create_pages_max, address_out);
    }
    return status;
}

enum vpmm_status vpmm_rung_device_wait(struct vpmm_serving *serving, uint64_t *address_out)
{
    if (!serving->is_worth_a_wait)
        return VPMM_NOT_FOUND;
    return vpmm_serving_wait_on_device(serving, device_free_pages(serving->heap), address_out);
}

/* Whether anything may still become usable without the program doing anything. What a front cache
 * holds counts for nothing until it is in the pool. */
static bool may_change(struct vpmm_heap *heap, const struct vpmm_stream *own)
{
    struct vpmm_pool_totals totals;
    (void)vpmm_cache_close(heap, own, true);
    vpmm_pool_totals(heap->pool, &totals);
    return vpmm_heap_busy_pages(heap, &totals) > 0 || vpmm_heap_has_pending(heap) ||
           vpmm_heap_keeper_pending(heap) > 0;
}

/* Counts one look. False: that was long enough, and often enough. */
static bool has_patience(struct vpmm_patience *patience)
{
    if (!patience->end_ms)
        *patience = (struct vpmm_patience){vpmm_now_ms() + PATIENCE_MS, PATIENCE_LOOKS};
    if (!patience->looks_left)
        return vpmm_now_ms() < patience->end_ms;
    patience->looks_left--;
    return true;
}

/* Fences that cover work queued after their free may depend on what the program does next, so they
 * are only polled, and not for ever. What may change is looked at before each try, because another
 * thread may learn of it and settle it in between. */
enum vpmm_status vpmm_rung_poll(struct vpmm_serving *serving, uint64_t *address_out)
{
    struct vpmm_heap *heap = serving->heap;
    struct vpmm_patience patience = {0};
    uint64_t begin_ns = vpmm_heap_now_ns(heap);
    enum vpmm_status status = VPMM_NOT_FOUND;
    bool may_go_on = serving->is_worth_a_wait;
    if (!may_go_on)
        return status;
    while (status == VPMM_NOT_FOUND && may_go_on) {
        may_go_on = may_change(heap, serving->request->stream) && has_patience(&patience);
        if (vpmm_heap_keeper_pending(heap))
            vpmm_heap_ask_keeper(heap);
        vpmm_heap_settle_all(heap);
        vpmm_leases_give_back(heap);
        status = try_again(serving, address_out);
        if (status == VPMM_NOT_FOUND && may_go_on)
            vpmm_pause();
    }
    vpmm_heap_tell_wait(heap, NULL, begin_ns);
    return status;
}

/* Whether all that the pool could give back and all that the device has left could make it up. */
static bool could_relieve(struct vpmm_heap *heap, uint64_t bytes)
{
    struct vpmm_pool_totals totals;
    vpmm_lock_take(&heap->lock);
    vpmm_pool_totals(heap->pool, &totals);
    vpmm_lock_give(&heap->lock);
    uint64_t pages =
        totals.free_pages + totals.quarantined_pages + vpmm_heap_busy_pages(heap, &totals);
    return pages >= bytes / heap->page_bytes ||
           device_free_pages(heap) >= bytes / heap->page_bytes - pages;
}

bool vpmm_heap_relieve(struct vpmm_heap *heap, struct vpmm_relief *relief)
{
    if (relief->rounds++ == RELIEF_ROUNDS_MAX || !could_relieve(heap, relief->bytes))
        return false;
    struct vpmm_context *context = NULL;
    if (relief->may_wait && vpmm_order_context(heap->order, NULL, &context))
        context = NULL;
    struct vpmm_endurance endurance = vpmm_endurance_begin(heap);
    uint64_t trimmed_bytes = vpmm_heap_trim(heap, UINT64_MAX);
    for (unsigned n = 0; n < VPMM_FENCES_MAX && !trimmed_bytes && relief->may_wait; n++) {
        if (vpmm_heap_wait_oldest(heap, context, &endurance))
            break;
        trimmed_bytes = vpmm_heap_trim(heap, UINT64_MAX);
    }
    while (!trimmed_bytes && relief->may_poll && may_change(heap, NULL) &&
           has_patience(&relief->patience)) {
        vpmm_pause();
        trimmed_bytes = vpmm_heap_trim(heap, UINT64_MAX);
    }
    return trimmed_bytes != 0;
}

/* What the device lacks for the request, and a little more: it keeps some to itself. */
static uint64_t lacking_pages(const struct vpmm_serving *serving)
{
    uint64_t pages = serving->want.pages;
    uint64_t free_pages = device_free_pages(serving->heap);
    uint64_t lacking = pages / LACKING_SHARE + 1;
    if (free_pages == UINT64_MAX || free_pages <= lacking)
        return pages;
    lacking += pages > free_pages ? pages - free_pages : 0;
    return lacking < pages ? lacking : pages;
}

/* At the limit nobody else's memory would help. */
static bool ask_neighbours(const struct vpmm_serving *serving)
{
    const struct vpmm_heap *heap = serving->heap;
    const struct vpmm_neighbours *neighbours = heap->params.neighbours;
    return neighbours && !serving->is_limited &&
           neighbours->ask(neighbours->self, heap->params.device,
                           lacking_pages(serving) * heap->page_bytes);
}

enum vpmm_status vpmm_rung_neighbour(struct vpmm_serving *serving, uint64_t *address_out)
{
    return ask_neighbours(serving) ? try_again(serving, address_out) : VPMM_NOT_FOUND;
}
