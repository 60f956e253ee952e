/* SPDX-License-Identifier: MIT */
/* Takes a request up: asks its lane, recalls its habit, and sends it up the ladder. Must not decide
 * what the ladder does. */
#include "heap/ladder.h"

#include "base/pages.h"

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
static void mark(struct vpmm_heap *heap, const struct vpmm_request *request, uint64_t address)
{
    const struct vpmm_stream *stream = request->stream;
    struct vpmm_live live;
    if (!stream || !stream->is_blocking)
        return;
    bool is_own = vpmm_pool_look_live(heap->pool, address, &live) &&
                  vpmm_order_ask(heap->order, live.fence, stream->id) != VPMM_VERDICT_PENDING;
    vpmm_order_mark_malloc(heap->order, stream, request->bytes, is_own);
}

bool vpmm_heap_malloc_cached(struct vpmm_heap *heap, const struct vpmm_request *request,
                             uint64_t *address_out, bool *has_habit_out)
{
    struct vpmm_recalled recalled = {.address = 0};
    uint64_t pages = pages_of(heap, request);
    if (pages && vpmm_cache_malloc(heap, pages, request, address_out, &recalled)) {
        mark(heap, request, *address_out);
        return true;
    }
    *has_habit_out = recalled.address != 0;
    return false;
}

static bool serve_from_lane(struct vpmm_heap *heap, uint64_t pages,
                            const struct vpmm_request *request, uint64_t *address_out,
                            struct vpmm_recalled *recalled_out)
{
    if (request->stream)
        return vpmm_cache_malloc(heap, pages, request, address_out, recalled_out);
    enum vpmm_status status =
        vpmm_cache_malloc_sync(heap, pages, request, address_out, recalled_out);
    if (status == VPMM_NOT_READY && vpmm_order_poll(heap->order))
        status = vpmm_cache_malloc_sync(heap, pages, request, address_out, recalled_out);
    return status == VPMM_OK;
}

static void serving_init(struct vpmm_serving *serving, struct vpmm_heap *heap,
                         const struct vpmm_request *request, uint64_t pages)
{
    serving->heap = heap;
    serving->request = request;
    serving->is_limited = false;
    serving->is_worth_a_wait = false;
    serving->served = (struct vpmm_served){VPMM_WAY_GROW, VPMM_RUNG_NONE};
    serving->want = (struct vpmm_want){.pages = pages, .owner = owner_of(heap, request)};
    struct vpmm_want *want = &serving->want;
    want->number = vpmm_heap_reserve_ids(heap, 1);
    want->may_spare = !vpmm_atomic_load(&heap->is_tight);
    want->may_mix = !want->may_spare;
    want->is_slab = request->is_slab;
    want->pays_by_extent = !vpmm_lanes_have_one_stream(heap);
    want->owner.id = vpmm_heap_allocation_id(heap, want->number);
    vpmm_request_view_init(&serving->view, heap->order, request->stream,
                           !request->mempool ||
                               !vpmm_atomic_load(&request->mempool->follows_never));
    want->view = &serving->view.view;
    want->n_follows = serving->view.follower.n_points;
    for (uint32_t i = 0; i < want->n_follows; i++)
        want->follows[i] = serving->view.follower.points[i].stream_id;
    want->owner.stamp = serving->recalled.stamp;
}

static void note_served(struct vpmm_serving *serving, uint64_t address)
{
    struct vpmm_heap *heap = serving->heap;
    const struct vpmm_request *request = serving->request;
    vpmm_heap_remember(heap, &serving->recalled, address);
    vpmm_hint_xor(&heap->layout, serving->recalled.stamp);
    mark(heap, request, address);
    vpmm_heap_note_waste(heap);
    if (request->mempool)
        vpmm_mempool_note(heap, request->mempool);
    if (request->served_out)
        *request->served_out = serving->served;
}

bool vpmm_heap_malloc_by_habit(struct vpmm_heap *heap, const struct vpmm_request *request,
                               uint64_t *address_out)
{
    struct vpmm_serving serving;
    uint64_t pages = pages_of(heap, request);
    if (!pages)
        return false;
    serving.recalled = vpmm_cache_recall(heap, request, pages);
    if (!serving.recalled.address)
        return false;
    serving_init(&serving, heap, request, pages);
    if (vpmm_ladder_try(&serving, VPMM_RUNG_HABIT, address_out) != VPMM_OK)
        return false;
    note_served(&serving, *address_out);
    return true;
}

enum vpmm_status vpmm_heap_malloc(struct vpmm_heap *heap, const struct vpmm_request *request,
                                  uint64_t *address_out)
{
    uint64_t pages = pages_of(heap, request);
    if (!pages)
        return VPMM_INVALID;
    struct vpmm_serving serving;
    if (request->was_asked) {
        serving.recalled = vpmm_cache_recall(heap, request, pages);
    } else if (serve_from_lane(heap, pages, request, address_out, &serving.recalled)) {
        vpmm_atomic_add(&heap->late_hits, 1);
        mark(heap, request, *address_out);
        return VPMM_OK;
    }
    vpmm_leases_give_back(heap);
    vpmm_lanes_note_stream(heap, request->stream ? request->stream->id : 0);
    serving_init(&serving, heap, request, pages);
    enum vpmm_status status = vpmm_ladder_climb(&serving, address_out);
    if (!status)
        note_served(&serving, *address_out);
    else
        vpmm_atomic_add(&heap->failures, 1);
    return status == VPMM_NO_MEMORY && serving.is_limited ? VPMM_LIMITED : status;
}
