/* SPDX-License-Identifier: MIT */
/* Small blocks: what comes back from elsewhere takes no latch of the owner. Streams free each
 * other's blocks, and the same one, while the owner takes and gives back pages, or ends. */
#include "cases.h"

#include "heap/heap_internal.h"
#include "small/small_internal.h"
#include "stage.h"

#define GROUP "small"

#define STREAM 1 /* of context 0 */
#define SECOND 2 /* the legacy stream of context 1 */
#define OTHER 3  /* of context 1 */
#define BYTES 512u

static struct world {
    struct stage_heap *stage;
    struct vpmm_small *small;
    uint64_t blocks[2], waiting; /* of STREAM; of cudaMalloc in context 0 */
    uint64_t taken[SCHEDULE_THREADS];
    uint32_t n_done;
} * world;

/* 0: cudaMalloc. */
static uint64_t take_on(int stream)
{
    uint64_t address;
    struct stage_heap *stage = world->stage;
    const struct vpmm_request request = {.bytes = BYTES,
                                         .context = stream ? stage->streams[stream].context
                                                           : stage->context,
                                         .stream = stream ? &stage->streams[stream] : NULL};
    expect(!vpmm_small_malloc(world->small, &request, &address));
    return address;
}

static enum vpmm_status free_on(uint64_t block, int stream)
{
    enum vpmm_status waited;
    const struct vpmm_stream *known = stream ? &world->stage->streams[stream] : NULL;
    if (known && !vpmm_small_free_warm(world->small, block, known))
        return VPMM_OK;
    return vpmm_small_free(world->small, block, known, &waited);
}

/* One slab is much of so small a device, and frees are told of at once where memory is tight. */
static void loosen(void)
{
    vpmm_atomic_store(&world->stage->heap->is_tight, 0);
}

static void prepare(void)
{
    const struct vpmm_small_params params = {.free_waits = false};
    world = schedule_room(sizeof *world);
    world->stage = stage_heap(DEVICE_PAGES / 4, 4);
    for (int i = 1; i < DEVICE_STREAMS; i++)
        stage_know(world->stage, i);
    expect(!vpmm_small_create(&params, world->stage->heap, world->stage->order, &schedule_memory,
                              &world->small));
    world->blocks[0] = take_on(STREAM);
    world->blocks[1] = take_on(STREAM);
    loosen();
    struct vpmm_rack *rack = vpmm_rack_at(world->small, 1);
    schedule_counters(&rack->n_returned, sizeof rack->n_returned);
    schedule_counters(&rack->returned_bytes, sizeof rack->returned_bytes);
}

/* The work of OTHER and SECOND goes on. */
static void prepare_busy(void)
{
    prepare();
    device_queue(world->stage->device, OTHER);
    device_queue(world->stage->device, SECOND);
}

static void prepare_waiting(void)
{
    prepare();
    world->waiting = take_on(0);
    loosen();
}

/* One of two blocks of cudaMalloc was freed, and joined a batch. */
static void prepare_batched(void)
{
    prepare_waiting();
    expect(!free_on(take_on(0), 0));
}

/* One block is live: with its free the page is empty. */
static void prepare_one(void)
{
    prepare();
    expect(!free_on(world->blocks[1], STREAM));
}

/* ---- threads ---- */

/* OTHER has freed two blocks of STREAM: the second has opened a batch for one more. */
static void prepare_joined(void)
{
    prepare();
    for (int i = 0; i < 2; i++)
        expect(!free_on(take_on(STREAM), OTHER));
}

static void free_first_behind_work(void)
{
    device_queue(world->stage->device, OTHER);
    expect(!free_on(world->blocks[0], OTHER));
}

static void free_first_on_other(void)
{
    expect(!free_on(world->blocks[0], OTHER));
}

static void free_second_on_second(void)
{
    expect(!free_on(world->blocks[1], SECOND));
}

static void free_first_here(void)
{
    expect(!free_on(world->blocks[0], STREAM));
}

static void free_second_here(void)
{
    expect(!free_on(world->blocks[1], STREAM));
}

/* What others freed behind work that goes on is nobody's yet. */
static void take(void)
{
    uint64_t block;
    const struct vpmm_stream *stream = &world->stage->streams[STREAM];
    const struct vpmm_request request = {
        .bytes = BYTES, .context = stream->context, .stream = stream};
    expect(vpmm_small_malloc_warm(world->small, &request, &block));
    expect(block != world->blocks[0] && block != world->blocks[1]);
    world->taken[schedule_thread()] = block;
}

static void take_any(void)
{
    world->taken[schedule_thread()] = take_on(STREAM);
}

static void take_and_free(void)
{
    expect(!free_on(take_on(STREAM), STREAM));
}

static void free_once(int stream)
{
    enum vpmm_status status = free_on(world->blocks[0], stream);
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

static void give_back(void)
{
    vpmm_small_give_back(world->small);
}

static void leave(void)
{
    vpmm_small_stream_gone(world->small, &world->stage->streams[STREAM]);
}

static void free_waiting_on_other(void)
{
    enum vpmm_status status = free_on(world->waiting, OTHER);
    expect(!status || status == VPMM_NOT_FOUND || status == VPMM_INVALID);
}

/* cudaFree behind work that goes on. */
static void free_waiting_behind_work(void)
{
    device_queue(world->stage->device, STREAM);
    if (vpmm_small_free_warm(world->small, world->waiting, NULL))
        expect(!free_on(world->waiting, 0));
}

static void free_waiting_any(void)
{
    if (vpmm_small_free_warm(world->small, world->waiting, NULL))
        (void)free_on(world->waiting, 0);
}

static void die(void)
{
    struct stage_heap *stage = world->stage;
    uint64_t id = vpmm_context_id(stage->context);
    struct vpmm_departure departure =
        vpmm_order_context_leaving(stage->order, device_context(0), true);
    device_context_destroy(stage->device, 0);
    vpmm_order_context_left(stage->order, &departure, true);
    vpmm_small_context_gone(world->small, id);
    vpmm_heap_context_gone(stage->heap, id);
}

/* Somebody's block, or free. */
static void look(void)
{
    struct vpmm_region_view view;
    expect(vpmm_small_find(world->small, world->blocks[0] + 1, &view));
    if (view.state == VPMM_REGION_LIVE)
        expect(view.address == world->blocks[0] && view.owner.bytes == BYTES);
}

/* ---- afterwards ---- */

static void audit(void)
{
    const char *broken = vpmm_small_audit(world->small);
    if (!broken)
        broken = vpmm_heap_audit(world->stage->heap);
    if (broken)
        schedule_fail("audit: %s", broken);
}

static void finish(void)
{
    for (int i = 1; i < DEVICE_STREAMS; i++)
        device_finish(world->stage->device, i);
    for (int i = 0; i < 2; i++)
        vpmm_small_give_back(world->small);
    audit();
}

/* No record that was made before the free stands for it. */
static void check_pending(uint64_t block)
{
    audit();
    const struct vpmm_slab *slab = vpmm_slab_find(world->small, block);
    uint64_t grain = (block - slab->begin) / VPMM_GRAIN_BYTES;
    expect(vpmm_piece_state(&slab->pieces[grain]) == VPMM_PIECE_RETURNED);
}

static void check_batched(void)
{
    check_pending(world->waiting);
    finish();
    expect(!vpmm_slab_find(world->small, world->waiting));
}

/* Every block was freed, by whomever: all pages are the heap's again. */
static void check_empty(void)
{
    struct vpmm_small_figures figures;
    audit();
    for (int i = 0; i < SCHEDULE_THREADS; i++)
        if (world->taken[i])
            expect(!free_on(world->taken[i], STREAM));
    finish();
    vpmm_small_figures(world->small, &figures);
    expect(figures.blocks == 0 && figures.waiting_blocks == 0 && figures.slabs == 0);
}

static void check_one_left(void)
{
    struct vpmm_small_figures figures;
    audit();
    finish();
    vpmm_small_figures(world->small, &figures);
    expect(figures.blocks == 1 && figures.slabs == 1);
}

static void check_joined(void)
{
    check_pending(world->blocks[0]);
    check_one_left();
}

static void check_once(void)
{
    expect(world->n_done == 1);
    check_one_left();
}

static void check_taken(void)
{
    expect(world->taken[0] != world->taken[1]);
    expect(!free_on(world->blocks[0], STREAM) && !free_on(world->blocks[1], STREAM));
    check_empty();
}

const struct schedule_case cases_small[] = {
    SCHEDULE_TEST(two_returns, prepare_busy, {free_first_on_other, free_second_on_second},
                  check_empty),
    SCHEDULE_TEST(returned_beside_a_free, prepare_busy, {free_first_on_other, free_second_here},
                  check_empty),
    SCHEDULE_TEST(two_takes, prepare, {take_any, take_any}, check_taken),
    SCHEDULE_TEST(freed_twice, prepare, {free_once_here, free_once_here}, check_once),
    SCHEDULE_TEST(freed_on_two_streams, prepare_busy, {free_once_here, free_once_there},
                  check_once),
    SCHEDULE_TEST(looked_at, prepare, {free_first_here, look}, check_one_left),
    SCHEDULE_TEST(given_back_beside_a_return, prepare_busy, {free_first_on_other, give_back},
                  check_one_left),
    SCHEDULE_TEST(given_back_beside_a_free, prepare_one, {free_first_here, give_back}, check_empty),
    SCHEDULE_TEST(given_back_beside_a_pair, prepare_one, {take_and_free, give_back},
                  check_one_left),
    SCHEDULE_TEST(given_back_by_two, prepare_one, {free_first_here, give_back, give_back},
                  check_empty),
    SCHEDULE_TEST(left_beside_a_free, prepare, {free_first_here, leave}, check_one_left),
    SCHEDULE_TEST(dies_beside_a_return, prepare_waiting, {free_waiting_on_other, die}, finish),
    SCHEDULE_TEST(joined_beside_a_record, prepare_joined, {free_first_behind_work, give_back},
                  check_joined),
    SCHEDULE_TEST(batched_beside_a_record, prepare_batched, {free_waiting_behind_work, give_back},
                  check_batched),
    SCHEDULE_TEST(dies_beside_a_batched_free, prepare_batched, {free_waiting_any, die}, finish),
    /* The long ones. */
    SCHEDULE_TEST(taken_beside_a_return, prepare_busy, {free_first_on_other, take}, NULL),
    {0},
};
