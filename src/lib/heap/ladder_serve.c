/* SPDX-License-Identifier: MIT */
/* The rungs of a request while memory lasts: lane, habit, fit, revive, stitch. Must not wait on the
 * host without bound where bare CUDA would not have waited. */
#include "heap/ladder.h"

/* However large the slack, the last share of the device is not taken by growth that waiting could
 * have saved. */
#define LAST_SHARE_PERCENT 2

/* So many plans in a row may lose what they counted on. */
#define REPLANS_MAX 8

/* With the lock. */
static enum vpmm_status serve_at_habit(struct vpmm_serving *serving, uint64_t *address_out)
{
    if (!serving->recalled.address)
        return VPMM_NOT_FOUND;
    enum vpmm_status status =
        vpmm_pool_serve_at(serving->heap->pool, &serving->want, serving->recalled.address);
    if (!status)
        *address_out = serving->recalled.address;
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
    enum vpmm_status status = serve_at_habit(serving, address_out);
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
        serving->served.way = way;
    }
    return status;
}

/* The habit alone, before anything is done for the sake of a fit. */
enum vpmm_status vpmm_rung_habit(struct vpmm_serving *serving, uint64_t *address_out)
{
    struct vpmm_heap *heap = serving->heap;
    if (!serving->recalled.address || serving->request->was_asked)
        return VPMM_NOT_FOUND;
    vpmm_lock_take(&heap->lock);
    vpmm_cache_drain_range(heap, serving->view.follower.stream_id, serving->recalled.address,
                           serving->want.pages);
    enum vpmm_status status = serve_at_habit(serving, address_out);
    vpmm_heap_check(heap);
    vpmm_lock_give(&heap->lock);
    if (!status) {
        vpmm_atomic_add(&heap->habit_hits, 1);
        serving->served.way = VPMM_WAY_HABIT;
    }
    return status;
}

static enum vpmm_status stitch(struct vpmm_serving *serving, uint64_t *address_out)
{
    enum vpmm_status status =
        vpmm_edit_plan(serving->heap, &serving->want, 0, address_out, &serving->served.way);
    if (status == VPMM_NOT_SUPPORTED) {
        vpmm_heap_reap(serving->heap);
        status =
            vpmm_edit_plan(serving->heap, &serving->want, 0, address_out, &serving->served.way);
    }
    return status;
}

/* Memory that was only to spare a move, or to lie apart, may be refused while the request can do
 * without. */
enum vpmm_status vpmm_serving_stitch(struct vpmm_serving *serving, uint64_t create_pages_max,
                                     uint64_t *address_out)
{
    serving->want.create_pages_max = create_pages_max;
    enum vpmm_status status = stitch(serving, address_out);
    if ((status == VPMM_NO_MEMORY || status == VPMM_LIMITED) && !serving->want.may_mix) {
        serving->want.may_spare = false;
        serving->want.may_mix = true;
        status = stitch(serving, address_out);
    }
    serving->is_limited |= status == VPMM_LIMITED;
    return status == VPMM_LIMITED ? VPMM_NO_MEMORY : status;
}

static uint64_t slack_pages(const struct vpmm_heap *heap, const struct vpmm_pool_totals *totals)
{
    uint64_t slack = heap->params.slack_bytes / heap->page_bytes;
    uint64_t share = totals->live_pages_peak * heap->params.slack_percent / 100;
    return slack > share ? slack : share;
}

/* The pages that may be created while what is held stays within what is live, `pages` more, and
 * the slack. */
static uint64_t pages_within_slack(struct vpmm_heap *heap, uint64_t pages)
{
    struct vpmm_pool_totals totals;
    vpmm_lock_take(&heap->lock);
    vpmm_pool_totals(heap->pool, &totals);
    vpmm_lock_give(&heap->lock);
    uint64_t limit = totals.live_pages + pages + slack_pages(heap, &totals);
    uint64_t last_share = heap->capacity_pages / 100 * LAST_SHARE_PERCENT;
    if (limit > heap->capacity_pages - last_share)
        limit = totals.live_pages + pages;
    return limit > totals.held_pages ? limit - totals.held_pages : 0;
}

/* Streams that hand one block back and forth never find it in their own lanes. Who lost it again
 * and again gets another block of that size, as far as memory may be spared for that. */
static bool may_have_another(struct vpmm_serving *serving)
{
    struct vpmm_heap *heap = serving->heap;
    struct vpmm_pool_totals totals;
    if (!serving->want.may_spare ||
        !vpmm_lane_is_victim(heap, serving->view.follower.stream_id, serving->want.pages))
        return false;
    vpmm_lock_take(&heap->lock);
    vpmm_pool_totals(heap->pool, &totals);
    vpmm_lock_give(&heap->lock);
    uint64_t spare = totals.live_pages_peak * heap->params.spare_percent / 100;
    uint64_t slack = slack_pages(heap, &totals);
    uint64_t held_max = totals.live_pages_peak + (spare > slack ? spare : slack);
    return totals.held_pages + serving->want.pages <= held_max;
}

enum vpmm_status vpmm_rung_spare(struct vpmm_serving *serving, uint64_t *address_out)
{
    uint64_t address;
    if (serving->want.is_slab || !may_have_another(serving) ||
        vpmm_edit_plan(serving->heap, NULL, serving->want.pages, &address, NULL))
        return VPMM_NOT_FOUND;
    vpmm_heap_note_tightness(serving->heap);
    return vpmm_serving_fit(serving, address_out);
}

/* Where all that the lanes hold is in order for the request, nobody's work needs to be recorded or
 * asked about. */
enum vpmm_status vpmm_rung_follow(struct vpmm_serving *serving, uint64_t *address_out)
{
    if (!vpmm_cache_drain_followed(serving->heap, &serving->view.follower))
        return VPMM_NOT_FOUND;
    return vpmm_serving_fit(serving, address_out);
}

/* Any other fit would break the habit, which what the lanes hold may still serve. */
enum vpmm_status vpmm_rung_settle(struct vpmm_serving *serving, uint64_t *address_out)
{
    (void)vpmm_heap_settle(serving->heap);
    return serving->recalled.address ? vpmm_rung_habit(serving, address_out)
                                     : vpmm_serving_fit(serving, address_out);
}

/* Whether the memory pool wants no block reused because its work was seen to be complete: only what
 * the stream itself freed, and what a synchronisation has shown. */
static bool is_cautious(const struct vpmm_serving *serving)
{
    const struct vpmm_mempool *mempool = serving->request->mempool;
    return mempool && vpmm_atomic_load(&mempool->is_cautious);
}

/* What lies free is taken before anybody's lane is emptied. Otherwise one stream that finds its
 * lane empty takes the blocks of all others, these find theirs empty, and so on for ever. A request
 * with a habit goes on to the lanes: they may hold the place that it names. The only stream has
 * nobody to take from. */
enum vpmm_status vpmm_rung_spot(struct vpmm_serving *serving, uint64_t *address_out)
{
    struct vpmm_heap *heap = serving->heap;
    if (serving->recalled.address || vpmm_lanes_have_one_stream(heap))
        return VPMM_NOT_FOUND;
    vpmm_lock_take(&heap->lock);
    serving->want.is_neat = true;
    enum vpmm_status status = vpmm_pool_fit(heap->pool, &serving->want, address_out);
    serving->want.is_neat = false;
    vpmm_heap_check(heap);
    vpmm_lock_give(&heap->lock);
    if (!status) {
        vpmm_atomic_add(&heap->fits, 1);
        serving->served.way = VPMM_WAY_FIT;
    }
    return status == VPMM_NO_METADATA ? VPMM_NOT_FOUND : status;
}

/* What the lane does not have is looked for among all that is free and complete by now, merged as
 * far as it can be: a fit that knows only a part of that leaves holes that later requests pay for.
 */
enum vpmm_status vpmm_rung_gather(struct vpmm_serving *serving, uint64_t *address_out)
{
    if (!is_cautious(serving))
        vpmm_heap_gather_settled(serving->heap, serving->request->stream);
    return vpmm_serving_fit(serving, address_out);
}

enum vpmm_status vpmm_rung_ask(struct vpmm_serving *serving, uint64_t *address_out)
{
    if (is_cautious(serving) || !vpmm_heap_settle_more(serving->heap))
        return VPMM_NOT_FOUND;
    return vpmm_serving_fit(serving, address_out);
}

/* VPMM_STREAM_WAITS. */
enum vpmm_status vpmm_rung_early_wait(struct vpmm_serving *serving, uint64_t *address_out)
{
    struct vpmm_heap *heap = serving->heap;
    if (!heap->params.stream_waits)
        return VPMM_NOT_FOUND;
    uint64_t within = pages_within_slack(heap, 0);
    enum vpmm_status status = vpmm_serving_stitch(serving, within, address_out);
    if (status == VPMM_NOT_FOUND)
        status = vpmm_serving_wait_on_device(serving, within, address_out);
    return status == VPMM_NO_MEMORY ? VPMM_NOT_FOUND : status;
}

enum vpmm_status vpmm_rung_slack(struct vpmm_serving *serving, uint64_t *address_out)
{
    uint64_t within = pages_within_slack(serving->heap, serving->want.pages);
    return vpmm_serving_stitch(serving, within, address_out);
}

/* cudaMalloc prefers waiting for what cudaFree recorded over growing past the slack. Bare CUDA
 * would have waited in that cudaFree, and a cudaMalloc of another thread with it, so this wait is
 * one the program already survives. */
enum vpmm_status vpmm_rung_free_wait(struct vpmm_serving *serving, uint64_t *address_out)
{
    struct vpmm_heap *heap = serving->heap;
    struct vpmm_endurance endurance = vpmm_endurance_begin(heap);
    for (;;) {
        enum vpmm_status status =
            vpmm_heap_wait_oldest(heap, serving->request->context, &endurance);
        if (status)
            return status;
        status = vpmm_serving_fit(serving, address_out);
        if (status == VPMM_NOT_FOUND)
            status = vpmm_rung_slack(serving, address_out);
        if (status != VPMM_NOT_FOUND)
            return status;
    }
}

enum vpmm_status vpmm_rung_create(struct vpmm_serving *serving, uint64_t *address_out)
{
    enum vpmm_status status = VPMM_NOT_FOUND;
    /* Another thread's free may join the batch whose pages the plan has counted: they are pending
     * again, and the plan comes to nothing. */
    for (unsigned n = 0; n < REPLANS_MAX && status == VPMM_NOT_FOUND; n++)
        status = vpmm_serving_stitch(serving, UINT64_MAX, address_out);
    return status == VPMM_NOT_FOUND ? VPMM_NO_MEMORY : status;
}
