/* SPDX-License-Identifier: MIT */
/* A context dies beside everything that may use it. The device stops the program at a call on an
 * event or a context that is gone, and the explorer where somebody waits for ever. */
#include "cases.h"

#include "order/order.h"
#include "stage.h"

#define GROUP "death"

#define STREAM 1 /* of context 0, which dies */
#define OTHER 3  /* of context 1, which stays */

static struct world {
    struct gpu *device;
    struct vpmm_order *order;
    struct vpmm_context *context, *found;
    struct vpmm_stream stream, other;
    vpmm_fence fence;                    /* of a cudaFree before */
    vpmm_fence fences[SCHEDULE_THREADS]; /* of frees meanwhile */
    bool is_refused;                     /* the destruction */
    struct stage_heap *heap;
    uint64_t address;
    enum vpmm_status status;
} * world;

static void prepare_order(void)
{
    enum vpmm_status status;
    expect(!vpmm_order_context(world->order, device_context(0), &world->context));
    expect(!vpmm_order_stream(world->order, device_stream(STREAM), &world->stream));
    expect(!vpmm_order_stream(world->order, device_stream(OTHER), &world->other));
    stage_count_order(world->order);
    world->device->current = 0;
    device_queue(world->device, STREAM);
    world->fence = vpmm_order_fence_context(world->order, world->context, true, &status);
}

static void prepare(void)
{
    world = schedule_room(sizeof *world);
    world->device = device_create(1);
    expect(!vpmm_order_create(&world->device->driver, &schedule_memory, &world->order));
    prepare_order();
}

static void prepare_refused(void)
{
    prepare();
    world->is_refused = true;
}

static void prepare_heap(void)
{
    world = schedule_room(sizeof *world);
    world->heap = stage_heap(1, 1);
    world->device = world->heap->device;
    world->order = world->heap->order;
    world->address = stage_malloc(world->heap, 1, 0);
    prepare_order();
}

/* ---- threads ---- */

static void die(void)
{
    struct vpmm_departure departure =
        vpmm_order_context_leaving(world->order, device_context(0), true);
    if (!world->is_refused)
        device_context_destroy(world->device, 0);
    vpmm_order_context_left(world->order, &departure, !world->is_refused);
}

static void die_with_heap(void)
{
    uint64_t id = vpmm_context_id(world->context);
    die();
    vpmm_heap_context_gone(world->heap->heap, id);
}

/* Gives up a reference that is not the last one: nobody waits for the device meanwhile. */
static void release(void)
{
    struct vpmm_departure departure =
        vpmm_order_context_leaving(world->order, device_context(0), false);
    vpmm_order_context_left(world->order, &departure, false);
}

/* The device gets on only once the reference is given up. */
static void release_and_finish(void)
{
    release();
    device_finish(world->device, STREAM);
}

static void finish(void)
{
    device_finish(world->device, STREAM);
}

static void record_context(void)
{
    enum vpmm_status status;
    world->fences[schedule_thread()] =
        vpmm_order_fence_context(world->order, world->context, true, &status);
    expect(status == VPMM_OK);
}

static void record_stream(void)
{
    world->fences[schedule_thread()] = vpmm_order_fence_stream(world->order, &world->stream);
}

static void poll(void)
{
    (void)vpmm_order_poll(world->order);
}

static void wait_on_host(void)
{
    expect(!vpmm_order_wait_host(world->order, world->fence));
    expect(vpmm_order_ask(world->order, world->fence, 0) == VPMM_VERDICT_COMPLETE);
    expect(device_is_idle(world->device, STREAM));
}

static void wait_on_device(void)
{
    enum vpmm_status status = vpmm_order_wait_stream(world->order, world->fence, &world->other);
    expect(!status || status == VPMM_CONTEXT_GONE);
}

/* A handle that is being destroyed is looked up once that is over. */
static void look_up(void)
{
    struct vpmm_context *found;
    enum vpmm_status status = vpmm_order_context(world->order, device_context(0), &found);
    expect(status == VPMM_OK || status == VPMM_CONTEXT_GONE);
    expect(status || found == world->context || world->is_refused);
}

static void free_block(void)
{
    world->status = stage_heap_free(world->heap, world->address, 1, 0);
}

static void free_block_on_other(void)
{
    world->status = stage_heap_free(world->heap, world->address, 1, OTHER);
}

/* ---- afterwards ---- */

static void expect_complete(void)
{
    struct vpmm_order_totals totals;
    for (int i = 0; i < SCHEDULE_THREADS; i++)
        expect(vpmm_order_ask(world->order, world->fences[i], 0) == VPMM_VERDICT_COMPLETE);
    expect(vpmm_order_ask(world->order, world->fence, 0) == VPMM_VERDICT_COMPLETE);
    vpmm_order_totals(world->order, &totals);
    expect(totals.fences == 0);
}

static void check_dead(void)
{
    expect(vpmm_context_is_gone(world->context));
    expect_complete();
    vpmm_order_destroy(world->order);
    device_expect_empty(world->device);
}

static void check_alive(void)
{
    struct vpmm_fence_facts facts;
    enum vpmm_status status;
    expect(!vpmm_context_is_gone(world->context));
    vpmm_fence last = vpmm_order_fence_context(world->order, world->context, true, &status);
    vpmm_order_facts(world->order, last, &facts);
    expect(facts.kind == VPMM_FENCE_IS_CONTEXT);
    finish();
    (void)vpmm_order_poll(world->order);
    (void)vpmm_order_poll(world->order);
    expect_complete();
    vpmm_order_destroy(world->order);
    device_expect_empty(world->device);
}

/* The block was freed once, by its owner or with its context. */
static void check_heap(void)
{
    for (int i = 0; i < DEVICE_STREAMS; i++)
        device_finish(world->device, i);
    vpmm_heap_reap(world->heap->heap);
    expect(world->status == VPMM_OK || world->status == VPMM_NOT_FOUND);
    expect(stage_totals(world->heap).live_pages == 0 && stage_totals(world->heap).free_pages == 1);
    stage_heap_check(world->heap);
}

const struct schedule_case cases_death[] = {
    SCHEDULE_TEST(record_of_the_context, prepare, {record_context, die}, check_dead),
    SCHEDULE_TEST(record_on_a_stream, prepare, {record_stream, die}, check_dead),
    SCHEDULE_TEST(poll, prepare, {poll, die, finish}, check_dead),
    SCHEDULE_TEST(poll_and_record, prepare, {record_context, poll, die}, check_dead),
    SCHEDULE_TEST(wait_on_the_host, prepare, {wait_on_host, die, finish}, check_dead),
    SCHEDULE_TEST(wait_on_the_device, prepare, {wait_on_device, die}, check_dead),
    SCHEDULE_TEST(wait_and_poll, prepare, {wait_on_device, poll, die}, check_dead),
    SCHEDULE_TEST(look_up, prepare, {look_up, die, poll}, check_dead),
    SCHEDULE_TEST(refused, prepare_refused, {record_context, die, poll}, check_alive),
    SCHEDULE_TEST(refused_wait, prepare_refused, {wait_on_host, die, finish}, check_alive),
    SCHEDULE_TEST(refused_look_up, prepare_refused, {look_up, die}, check_alive),
    SCHEDULE_TEST(released, prepare_refused, {record_context, release, poll}, check_alive),
    SCHEDULE_TEST(released_beside_a_record, prepare_refused, {record_stream, release}, check_alive),
    SCHEDULE_TEST(released_beside_a_wait, prepare_refused, {wait_on_host, release_and_finish},
                  check_alive),
    SCHEDULE_TEST(released_by_two, prepare_refused, {release, release_and_finish, poll},
                  check_alive),
    SCHEDULE_TEST(free_of_its_memory, prepare_heap, {free_block, die_with_heap}, check_heap),
    SCHEDULE_TEST(free_on_another_stream, prepare_heap, {free_block_on_other, die_with_heap},
                  check_heap),
    {0},
};
