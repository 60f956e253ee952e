/* SPDX-License-Identifier: MIT */
/* Serves a request, the cheapest way first: lane, habit, fit, revive, stitch. Must not wait on the
 * host without bound where bare CUDA would not have waited. */
#include "heap/heap_internal.h"

#include "base/pages.h"

/* However large the slack, the last share of the device is not taken by growth that waiting could
 * have saved. */
#define LAST_SHARE_PERCENT 2

static enum vpmm_verdict ask(void *self, vpmm_fence fence)
{
    const struct vpmm_request_view *view = self;
    enum vpmm_verdict verdict = vpmm_order_ask_for(view->order, fence, &view->follower);
    for (size_t i = 0; i < view->n_promised && verdict == VPMM_VERDICT_PENDING; i++)
        if (view->promised[i] == fence)
            verdict = VPMM_VERDICT_ORDERED;
    return verdict;
}

static vpmm_fence join(void *self, vpmm_fence a, vpmm_fence b)
{
    const struct vpmm_request_view *view = self;
    return vpmm_order_join(view->order, a, b);
}

void vpmm_request_view_init(struct vpmm_request_view *view, struct vpmm_order *order,
                            const struct vpmm_stream *stream, bool follows)
{
    view->view = (struct vpmm_fence_view){view, ask, join};
    view->order = order;
    view->follower.stream_id = stream ? stream->id : 0;
    view->follower.n_points = 0;
    if (stream && follows)
        vpmm_order_follower(order, stream, &view->follower);
    view->n_promised = 0;
}

/* With the lock. */
static enum vpmm_status fit_as_usual(struct vpmm_serving *serving, uint64_t *address_out)
{
    if (!serving->habit)
        return VPMM_NOT_FOUND;
    enum vpmm_status status =
        vpmm_pool_serve_at(serving->heap->pool, &serving->want, serving->habit);
    if (!status)
        *address_out = serving->habit;
    /* A fit may do with less metadata. */
    return status == VPMM_NO_METADATA ? VPMM_NOT_FOUND : status;
}

enum vpmm_status vpmm_serving_fit(struct vpmm_serving *serving, uint64_t *address_out)
{
    struct vpmm_heap *heap = serving->heap;
    vpmm_atomic64 *count = &heap->habit_hits;
    enum vpmm_way way = VPMM_WAY_HABIT;
    vpmm_lock_take(&heap->lock);
    vpmm_cache_drain(heap, serving->view.follower.stream_id);
    enum vpmm_status status = fit_as_usual(serving, address_out);
    if (status == VPMM_NOT_FOUND) {
        count = &heap->fits;
        way = VPMM_WAY_FIT;
        status = vpmm_pool_fit(heap->pool, &serving->want, address_out);
    }
    if (status == VPMM_NOT_FOUND) {
        count = &heap->revives;
        way = VPMM_WAY_REVIVE;
        status = vpmm_pool_revive(heap->pool, &serving->want, address_out);
    }
    vpmm_heap_check(heap);
    vpmm_lock_give(&heap->lock);
    if (!status) {
        vpmm_atomic_add(count, 1);
        serving->way = way;
    }
    return status;
}

/* The habit alone, before anything is done for the sake of a fit. */
static enum vpmm_status serve_as_usual(struct vpmm_serving *serving, uint64_t *address_out)
{
    struct vpmm_heap *heap = serving->heap;
    if (!serving->habit)
        return VPMM_NOT_FOUND;
    vpmm_lock_take(&heap->lock);
    enum vpmm_status status = vpmm_lane_serve(heap, &serving->want, serving->habit);
    if (status == VPMM_OK)
        *address_out = serving->habit;
    else
        status = fit_as_usual(serving, address_out);
    if (status == VPMM_NOT_FOUND && vpmm_lane_vacate(heap, serving->view.follower.stream_id,
                                                     serving->habit, serving->want.pages))
        status = fit_as_usual(serving, address_out);
    vpmm_heap_check(heap);
    vpmm_lock_give(&heap->lock);
    if (!status) {
        vpmm_atomic_add(&heap->habit_hits, 1);
        serving->way = VPMM_WAY_HABIT;
    }
    return status;
}

static enum vpmm_status stitch(struct vpmm_serving *serving, uint64_t *address_out)
{
    enum vpmm_status status =
        vpmm_edit_plan(serving->heap, &serving->want, 0, address_out, &serving->way);
    if (status == VPMM_NOT_SUPPORTED) {
        vpmm_heap_reap(serving->heap);
        status = vpmm_edit_plan(serving->heap, &serving->want, 0, address_out, &serving->way);
    }
    return status;
}

/* Memory that was only to spare a move may be refused while the request can do without. */
enum vpmm_status vpmm_serving_stitch(struct vpmm_serving *serving, uint64_t create_pages_max,
                                     uint64_t *address_out)
{
    serving->want.create_pages_max = create_pages_max;
    enum vpmm_status status = stitch(serving, address_out);
    if (status == VPMM_NO_MEMORY && serving->want.may_spare) {
        serving->want.may_spare = false;
        status = stitch(serving, address_out);
    }
    serving->is_limited |= status == VPMM_LIMITED;
    return status == VPMM_LIMITED ? VPMM_NO_MEMORY : status;
}

/* The pages that may be created while what is held stays within what is live, `pages` more, and
 * the slack. */
static uint64_t pages_within_slack(struct vpmm_heap *heap, uint64_t pages)
{
    struct vpmm_pool_totals totals;
    vpmm_lock_take(&heap->lock);
    vpmm_pool_totals(heap->pool, &totals);
    vpmm_lock_give(&heap->lock);
    uint64_t slack = heap->params.slack_bytes / heap->page_bytes;
    uint64_t share = totals.live_pages_peak / 100 * heap->params.slack_percent;
    if (slack < share)
        slack = share;
    uint64_t limit = totals.live_pages + pages + slack;
    uint64_t last_share = heap->capacity_pages / 100 * LAST_SHARE_PERCENT;
    if (limit > heap->capacity_pages - last_share)
        limit = totals.live_pages + pages;
    return limit > totals.held_pages ? limit - totals.held_pages : 0;
}

/* cudaMalloc: as cudaMallocAsync, but it prefers waiting for what cudaFree recorded over growing
 * past the slack. Bare CUDA would have waited in that cudaFree, and a cudaMalloc of another thread
 * with it, so this wait is one the program already survives. */
static enum vpmm_status serve_waiting(struct vpmm_serving *serving, uint64_t *address_out)
{
    struct vpmm_heap *heap = serving->heap;
    bool has_settled = false;
    unsigned gathers_left = VPMM_GATHERS_MAX;
    for (bool has_gathered = false;; has_gathered = true) {
        enum vpmm_status status = vpmm_serving_fit(serving, address_out);
        if (status != VPMM_NOT_FOUND)
            return status;
        if (!has_gathered && vpmm_cache_gather(heap, NULL)) {
            (void)vpmm_heap_settle(heap);
            continue;
        }
        if (!has_settled && vpmm_heap_settle_more(heap)) {
            has_settled = true;
            continue;
        }
        uint64_t within = pages_within_slack(heap, serving->want.pages);
        status = vpmm_serving_stitch(serving, within, address_out);
        if (status != VPMM_NOT_FOUND)
            return status;
        status = vpmm_heap_wait_oldest(heap, serving->request->context, &gathers_left);
        if (status == VPMM_NOT_FOUND)
            return vpmm_serving_stitch(serving, UINT64_MAX, address_out);
        if (status)
            return status;
    }
}

/* Streams that hand one block back and forth never find it in their own lanes. Who lost it again
 * and again gets another block of that size, as far as memory may be spared for that. */
static enum vpmm_status serve_victim(struct vpmm_serving *serving, uint64_t *address_out)
{
    struct vpmm_heap *heap = serving->heap;
    struct vpmm_pool_totals totals;
    uint64_t address;
    vpmm_lock_take(&heap->lock);
    vpmm_pool_totals(heap->pool, &totals);
    vpmm_lock_give(&heap->lock);
    uint64_t spare = totals.live_pages_peak * heap->params.spare_percent / 100;
    uint64_t slack = heap->params.slack_bytes / heap->page_bytes;
    uint64_t held_max = totals.live_pages_peak + (spare > slack ? spare : slack);
    if (totals.held_pages + serving->want.pages > held_max ||
        vpmm_edit_plan(heap, NULL, serving->want.pages, &address, NULL))
        return VPMM_NOT_FOUND;
    vpmm_heap_note_tightness(heap);
    return vpmm_serving_fit(serving, address_out);
}

/* Whether the memory pool wants no block reused because its work was seen to be complete: only what
 * the stream itself freed, and what a synchronisation has shown. */
static bool is_cautious(const struct vpmm_serving *serving)
{
    const struct vpmm_mempool *mempool = serving->request->mempool;
    return mempool && vpmm_atomic_load(&mempool->is_cautious);
}

/* What the lane does not have is looked for among all that is free and complete by now, merged as
 * far as it can be: a fit that knows only a part of that leaves holes that later requests pay for.
 */
static enum vpmm_status serve_in_order(struct vpmm_serving *serving, uint64_t *address_out)
{
    enum vpmm_status status = VPMM_NOT_FOUND;
    if (serving->want.may_spare &&
        vpmm_lane_is_victim(serving->heap, serving->view.follower.stream_id, serving->want.pages))
        status = serve_victim(serving, address_out);
    if (status != VPMM_NOT_FOUND)
        return status;
    /* Where all that the lanes hold is in order for the request, nobody's work needs to be recorded
     * or asked about. */
    if (vpmm_cache_drain_followed(serving->heap, &serving->view.follower))
        status = vpmm_serving_fit(serving, address_out);
    if (status != VPMM_NOT_FOUND)
        return status;
    if (!is_cautious(serving)) {
        (void)vpmm_cache_gather(serving->heap, serving->request->stream);
        (void)vpmm_heap_settle(serving->heap);
    }
    status = vpmm_serving_fit(serving, address_out);
    if (status == VPMM_NOT_FOUND && !is_cautious(serving) && vpmm_heap_settle_more(serving->heap))
        status = vpmm_serving_fit(serving, address_out);
    if (status == VPMM_NOT_FOUND && serving->heap->params.stream_waits)
        status = vpmm_ladder_wait_early(serving, pages_within_slack(serving->heap, 0), address_out);
    if (status == VPMM_NOT_FOUND)
        status = vpmm_serving_stitch(serving, UINT64_MAX, address_out);
    return status;
}

/* What a habit of cudaMalloc is about may be complete by now; or it may be a matter of the lanes,
 * and any other fit would break the habit. */
static enum vpmm_status serve_late(struct vpmm_serving *serving, uint64_t *address_out)
{
    enum vpmm_status status = serve_as_usual(serving, address_out);
    if (serving->habit && status == VPMM_NOT_FOUND && vpmm_cache_gather(serving->heap, NULL))
        (void)vpmm_heap_settle(serving->heap);
    return status;
}

static enum vpmm_status serve(struct vpmm_serving *serving, uint64_t *address_out)
{
    enum vpmm_status status = serve_as_usual(serving, address_out);
    if (status != VPMM_NOT_FOUND)
        return status;
    if (serving->request->stream)
        return serve_in_order(serving, address_out);
    (void)vpmm_heap_settle(serving->heap);
    status = serve_late(serving, address_out);
    return status == VPMM_NOT_FOUND ? serve_waiting(serving, address_out) : status;
}

/* ---- habits ---- */

static void recall(struct vpmm_serving *serving)
{
    uint64_t layout = vpmm_habit_layout(serving->heap);
    serving->habit_key = vpmm_habit_key(layout, serving->want.owner.stream_id, serving->want.pages);
    serving->habit = vpmm_habit_find(serving->heap->habits, serving->habit_key);
}

static void remember(const struct vpmm_serving *serving, uint64_t address)
{
    if (address != serving->habit)
        vpmm_habit_keep(serving->heap->habits, serving->habit_key, address);
    vpmm_hint_xor(&serving->heap->layout, vpmm_habit_mark(address, serving->want.pages));
}

/* The owner of what is served, but for its id. */
static struct vpmm_owner owner_of(const struct vpmm_heap *heap, const struct vpmm_request *request)
{
    return (struct vpmm_owner){.bytes = request->bytes,
                               .context_id = vpmm_context_id(request->context),
                               .stream_id = request->stream ? request->stream->id : 0,
                               .is_async = request->stream != NULL,
                               .is_whole = vpmm_heap_gives_whole(heap, request->stream != NULL),
                               .mempool = vpmm_mempool_number(request)};
}

/* 0: no heap can serve it. */
static uint64_t pages_of(const struct vpmm_heap *heap, const struct vpmm_request *request)
{
    if (request->bytes == 0 || request->bytes > heap->device_bytes)
        return 0;
    return vpmm_pages_in(request->bytes - 1, heap->page_bytes) + 1;
}

/* What the device answers to that is told by the program's next call. */
static void mark(struct vpmm_heap *heap, const struct vpmm_request *request)
{
    if (request->stream && request->stream->is_blocking)
        (void)!vpmm_order_mark(heap->order, request->stream);
}

bool vpmm_heap_malloc_cached(struct vpmm_heap *heap, const struct vpmm_request *request,
                             uint64_t *address_out)
{
    uint64_t pages = pages_of(heap, request);
    if (!pages || !vpmm_cache_malloc(heap, pages, request, address_out))
        return false;
    mark(heap, request);
    return true;
}

static bool serve_from_lane(struct vpmm_heap *heap, uint64_t pages,
                            const struct vpmm_request *request, uint64_t *address_out)
{
    if (request->stream)
        return vpmm_cache_malloc(heap, pages, request, address_out);
    enum vpmm_status status = vpmm_cache_malloc_waiting(heap, pages, request, address_out);
    if (status == VPMM_NOT_READY && vpmm_order_poll(heap->order))
        status = vpmm_cache_malloc_waiting(heap, pages, request, address_out);
    return status == VPMM_OK;
}

enum vpmm_status vpmm_heap_malloc(struct vpmm_heap *heap, const struct vpmm_request *request,
                                  uint64_t *address_out)
{
    uint64_t pages = pages_of(heap, request);
    if (!pages)
        return VPMM_INVALID;
    if (serve_from_lane(heap, pages, request, address_out)) {
        vpmm_atomic_add(&heap->late_hits, 1);
        mark(heap, request);
        return VPMM_OK;
    }
    vpmm_leases_give_back(heap);
    struct vpmm_serving serving;
    serving.heap = heap;
    serving.request = request;
    serving.is_limited = false;
    serving.way = VPMM_WAY_GROW;
    serving.want = (struct vpmm_want){.pages = pages, .owner = owner_of(heap, request)};
    serving.want.number = vpmm_heap_reserve_ids(heap, 1);
    serving.want.may_spare = !vpmm_atomic_load(&heap->is_tight);
    serving.want.owner.id = vpmm_heap_allocation_id(heap, serving.want.number);
    vpmm_request_view_init(&serving.view, heap->order, request->stream,
                           !request->mempool ||
                               !vpmm_atomic_load(&request->mempool->follows_never));
    serving.want.view = &serving.view.view;
    serving.want.n_follows = serving.view.follower.n_points;
    for (uint32_t i = 0; i < serving.want.n_follows; i++)
        serving.want.follows[i] = serving.view.follower.points[i].stream_id;

    recall(&serving);
    enum vpmm_status status = serve(&serving, address_out);
    if (status == VPMM_NO_MEMORY)
        status = vpmm_ladder_climb(&serving, address_out);
    if (!status) {
        remember(&serving, *address_out);
        mark(heap, request);
    }
    if (status == VPMM_NO_MEMORY && serving.is_limited)
        status = VPMM_LIMITED;
    if (!status && request->mempool)
        vpmm_mempool_note(heap, request->mempool);
    if (!status && request->way_out)
        *request->way_out = serving.way;
    vpmm_atomic_add(status ? &heap->failures : &heap->mallocs, 1);
    return status;
}
