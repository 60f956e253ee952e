/* SPDX-License-Identifier: MIT */
/* The front cache: two lanes of two regions. Streams free and take their own pages while others
 * gather them, end the same block, or end the context. Pages are followed through stage.h: nobody
 * gets one that is another's, or before the work that was queued ahead of its free. */
#include "cases.h"

#include "heap/heap_cache.h"
#include "stage.h"

#define GROUP "cache"

#define STREAM 1 /* of context 0 */
#define SECOND 2 /* the legacy stream of context 1 */
#define OTHER 3  /* of context 1 */
#define BLOCKS 3

static struct world {
    struct stage_heap *stage;
    uint64_t blocks[BLOCKS]; /* of a page, live, most of them of STREAM */
    uint32_t n_done;         /* frees of a block that only one may do */
} * world;

static void free_on(uint64_t block, int stream)
{
    expect(!stage_heap_free(world->stage, block, 1, stream));
}

static void queue(int stream)
{
    device_queue(world->stage->device, stream);
}

/* As every request does before the pool moves or creates anything for it. */
static void gather(void)
{
    (void)vpmm_cache_close(world->stage->heap, NULL, true);
}

static void reap(void)
{
    vpmm_heap_reap(world->stage->heap);
}

/* `pages` are mapped, of which `n_blocks` are live. Only a small share of the device is cached. */
static void prepare_blocks(uint64_t pages, unsigned n_blocks)
{
    world = schedule_room(sizeof *world);
    world->stage = stage_heap(DEVICE_PAGES / 2, pages);
    for (int i = 1; i < DEVICE_STREAMS; i++)
        stage_know(world->stage, i);
    for (unsigned i = 0; i < n_blocks; i++)
        world->blocks[i] = stage_malloc(world->stage, 1, STREAM);
}

/* One page is cached; another free fills the lane. */
static void prepare_two(void)
{
    prepare_blocks(3, 2);
    free_on(stage_malloc(world->stage, 1, STREAM), STREAM);
}

/* Two are cached. */
static void prepare_full(void)
{
    prepare_blocks(3, 3);
    free_on(world->blocks[1], STREAM);
    free_on(world->blocks[2], STREAM);
}

/* A page is cached and one is live; the work ahead of the free goes on. */
static void prepare_pending(void)
{
    prepare_blocks(2, 2);
    queue(STREAM);
    free_on(world->blocks[1], STREAM);
}

/* A batch is open, nothing is cached, and the stream is idle. */
static void prepare_open(void)
{
    prepare_blocks(1, 0);
    free_on(stage_malloc(world->stage, 1, STREAM), STREAM);
    world->blocks[0] = stage_malloc(world->stage, 1, STREAM);
}

/* Somebody has asked for what was freed, so the next free closes its batch. */
static void prepare_due(void)
{
    prepare_blocks(3, 3);
    free_on(world->blocks[2], STREAM);
    gather();
}

/* Both lanes are had; STREAM's, which is the next to be taken away, holds a page. */
static void prepare_lanes(void)
{
    prepare_blocks(4, 3);
    uint64_t block = stage_malloc(world->stage, 1, OTHER);
    queue(STREAM);
    queue(SECOND);
    free_on(world->blocks[2], STREAM);
    free_on(block, OTHER);
}

/* No stream has a lane. */
static void prepare_cold(void)
{
    prepare_blocks(1, 1);
    queue(STREAM);
}

/* The block holds the fence of another stream, whose work goes on. */
static void prepare_prior(void)
{
    prepare_blocks(1, 0);
    queue(OTHER);
    free_on(stage_malloc(world->stage, 1, OTHER), OTHER);
    world->blocks[0] = stage_malloc(world->stage, 1, OTHER);
}

/* Of two streams. */
static void prepare_streams(void)
{
    prepare_blocks(2, 1);
    world->blocks[1] = stage_malloc(world->stage, 1, OTHER);
    queue(STREAM);
    queue(OTHER);
}

/* Of two pages of cudaMalloc the left one is cached and the right one is free. */
static void prepare_waiting(void)
{
    prepare_blocks(2, 0);
    uint64_t first = stage_malloc(world->stage, 1, 0);
    uint64_t second = stage_malloc(world->stage, 1, 0);
    free_on(second, 0);
    reap();
    free_on(first, 0);
    (void)vpmm_order_poll(world->stage->order);
}

/* ---- threads ---- */

static void free_first(void)
{
    free_on(world->blocks[0], STREAM);
}

static void free_second(void)
{
    free_on(world->blocks[1], STREAM);
}

static void free_on_other(void)
{
    free_on(world->blocks[1], OTHER);
}

static void take(void)
{
    expect(stage_malloc(world->stage, 1, STREAM));
}

static void take_on_other(void)
{
    expect(stage_malloc(world->stage, 1, OTHER));
}

/* cudaMalloc. */
static void take_for_all(void)
{
    expect(stage_malloc(world->stage, 1, 0));
}

static void take_and_free(void)
{
    free_on(stage_malloc(world->stage, 1, STREAM), STREAM);
}

/* What a miss does, other cases explore. */
static void take_cached(void)
{
    (void)stage_malloc_cached(world->stage, 1, STREAM);
}

static void free_and_take_cached(void)
{
    free_first();
    take_cached();
}

/* SECOND takes a lane away. */
static void evict(void)
{
    free_on(world->blocks[1], SECOND);
}

static void evict_and_take(void)
{
    evict();
    expect(stage_malloc(world->stage, 1, SECOND));
    expect(stage_malloc(world->stage, 1, SECOND));
}

/* More work, so that what was recorded before it says nothing of this free. */
static void queue_and_free(void)
{
    queue(STREAM);
    free_first();
}

static void finish(void)
{
    device_finish(world->stage->device, STREAM);
}

/* One of those who free the first block does it. */
static void free_once(int stream)
{
    enum vpmm_status status = stage_heap_free(world->stage, world->blocks[0], 1, stream);
    expect(!status || status == VPMM_NOT_FOUND);
    world->n_done += !status;
}

static void free_once_here(void)
{
    free_once(STREAM);
}

static void free_once_there(void)
{
    free_once(OTHER);
}

static void free_once_for_all(void)
{
    free_once(0);
}

static void take_waiting(void)
{
    (void)stage_malloc(world->stage, 1, 0);
}

/* Somebody else has found out that the context is gone. */
static void bury(void)
{
    vpmm_heap_context_gone(world->stage->heap, vpmm_context_id(world->stage->context));
}

static void die(void)
{
    struct stage_heap *stage = world->stage;
    uint64_t id = vpmm_context_id(stage->context);
    struct vpmm_departure departure =
        vpmm_order_context_leaving(stage->order, device_context(0), true);
    device_context_destroy(stage->device, 0);
    vpmm_order_context_left(stage->order, &departure, true);
    vpmm_heap_context_gone(stage->heap, id);
}

/* Of a stream of the other context, so that none that frees here captures. */
static void capture(void)
{
    struct stage_heap *stage = world->stage;
    vpmm_stream_handle handle = device_stream(OTHER);
    struct vpmm_context *ticket = vpmm_order_capture_begin(stage->order, handle);
    (void)device_capture_begin(stage->device, OTHER);
    vpmm_order_capture_began(stage->order, ticket, handle, true);
    device_capture_end(stage->device, OTHER);
    vpmm_order_capture_ended(stage->order, handle);
}

static void audit(void)
{
    const char *broken = vpmm_heap_audit(world->stage->heap);
    if (broken)
        schedule_fail("audit: %s", broken);
}

/* A block is as one owner had it, or free. */
static void look(void)
{
    struct vpmm_region_view view;
    expect(!vpmm_heap_find(world->stage->heap, world->blocks[1], &view));
    if (view.state == VPMM_REGION_LIVE)
        expect(view.owner.bytes == DEVICE_PAGE_BYTES &&
               view.owner.stream_id == device_stream_id(STREAM) && view.owner.is_async &&
               view.owner.id);
}

static void trim(void)
{
    (void)vpmm_heap_trim(world->stage->heap, UINT64_MAX);
}

/* ---- afterwards ---- */

static void check(void)
{
    struct stage_heap *stage = world->stage;
    uint64_t live = stage->n_mallocs - stage->n_frees;
    audit();
    for (int i = 0; i < 2; i++)
        (void)vpmm_order_poll(stage->order);
    stage_expect_fences(stage);
    struct vpmm_pool_totals totals = stage_totals(stage);
    expect(totals.live_pages == live && totals.live_bytes == live * DEVICE_PAGE_BYTES);
    expect(totals.live_pages + totals.free_pages == totals.held_pages);
    stage_heap_check(stage);
}

static void check_once(void)
{
    expect(world->n_done == 1);
    check();
}

const struct schedule_case cases_cache[] = {
    SCHEDULE_TEST(two_takes, prepare_full, {take, take}, check),
    SCHEDULE_TEST(two_pairs, prepare_full, {take_and_free, take_and_free}, check),
    SCHEDULE_TEST(two_frees, prepare_two, {free_first, free_second}, check),
    SCHEDULE_TEST(two_first_frees, prepare_streams, {free_first, free_on_other}, check),
    SCHEDULE_TEST(take_beside_a_free, prepare_pending, {take, free_first}, check),
    SCHEDULE_TEST(gathered_beside_a_take, prepare_pending, {take, take_on_other}, check),
    SCHEDULE_TEST(gathered_beside_a_free, prepare_pending, {free_first, take_on_other}, check),
    SCHEDULE_TEST(reaped_and_done, prepare_pending, {free_first, reap, finish}, check),
    SCHEDULE_TEST(closed_before_it_is_joined, prepare_open, {queue_and_free, gather}, check),
    SCHEDULE_TEST(closed_when_due, prepare_due, {queue_and_free, gather}, check),
    SCHEDULE_TEST(due_twice, prepare_due, {free_second, queue_and_free}, check),
    SCHEDULE_TEST(freed_twice, prepare_cold, {free_once_here, free_once_here}, check_once),
    SCHEDULE_TEST(freed_on_two_streams, prepare_cold, {free_once_here, free_once_there},
                  check_once),
    SCHEDULE_TEST(evicted_beside_a_take, prepare_lanes, {take_cached, evict_and_take}, check),
    SCHEDULE_TEST(dies_beside_a_free, prepare_pending, {free_first, die}, check),
    SCHEDULE_TEST(buried_beside_a_take, prepare_waiting, {take_waiting, bury}, audit),
    SCHEDULE_TEST(dies_when_due, prepare_due, {queue_and_free, die}, check),
    SCHEDULE_TEST(dies_beside_a_gather, prepare_pending, {gather, die}, check),
    SCHEDULE_TEST(capture_beside_a_free, prepare_open, {queue_and_free, capture}, check),
    SCHEDULE_TEST(capture_when_due, prepare_due, {queue_and_free, capture}, check),
    SCHEDULE_TEST(capture_beside_a_gather, prepare_pending, {gather, capture}, check),
    SCHEDULE_TEST(audited, prepare_full, {take_and_free, audit}, check),
    SCHEDULE_TEST(looked_at, prepare_pending, {take, look}, check),
    SCHEDULE_TEST(trimmed_beside_a_free, prepare_pending, {free_first, trim}, check),
    /* The long ones. */
    SCHEDULE_TEST(gathered_for_all, prepare_pending, {free_and_take_cached, take_for_all}, check),
    SCHEDULE_TEST(gathered_for_all_beside_a_take, prepare_pending, {take, take_for_all}, check),
    SCHEDULE_TEST(gathered_from_two, prepare_streams, {free_first, free_on_other, gather}, check),
    SCHEDULE_TEST(freed_by_a_second_stream, prepare_prior, {free_first, gather}, check),
    SCHEDULE_TEST(freed_here_and_for_all, prepare_cold, {free_once_here, free_once_for_all},
                  check_once),
    SCHEDULE_TEST(evicted_beside_a_free, prepare_lanes, {free_first, evict}, check),
    SCHEDULE_TEST(evicted_beside_a_gather, prepare_lanes, {evict, gather}, check),
    {0},
};
