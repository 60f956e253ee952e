/* SPDX-License-Identifier: MIT */
/* The capture gate. The device stops the program at a record while a capture is open, and the
 * explorer where a begin, or whoever waits for one, never gets through. */
#include "cases.h"

#include "order/order.h"
#include "stage.h"

#define GROUP "gate"

#define CAPTURING 1 /* streams; of context 0 */
#define OTHER 3     /* of context 1 */
#define LEGACY 2    /* of context 1 */

static struct world {
    struct gpu *device;
    struct vpmm_order *order;
    struct vpmm_context *context;
    struct vpmm_stream legacy, stream;
    vpmm_fence fences[SCHEDULE_THREADS + 1];
} * world;

static void prepare(void)
{
    world = schedule_room(sizeof *world);
    world->device = device_create(1);
    expect(!vpmm_order_create(&world->device->driver, &schedule_memory, &world->order));
    expect(!vpmm_order_context(world->order, device_context(0), &world->context));
    expect(!vpmm_order_stream(world->order, device_stream(LEGACY), &world->legacy));
    expect(!vpmm_order_stream(world->order, device_stream(CAPTURING), &world->stream));
    stage_count_order(world->order);
    device_queue(world->device, CAPTURING);
}

static void begin(int stream)
{
    struct vpmm_context *ticket = vpmm_order_capture_begin(world->order, device_stream(stream));
    (void)device_capture_begin(world->device, stream);
    vpmm_order_capture_began(world->order, ticket, device_stream(stream), true);
}

static void end(int stream)
{
    device_capture_end(world->device, stream);
    vpmm_order_capture_recheck(world->order, device_stream(stream));
}

static void prepare_parked(void)
{
    enum vpmm_status status;
    prepare();
    begin(OTHER);
    world->fences[SCHEDULE_THREADS] =
        vpmm_order_fence_context(world->order, world->context, true, &status);
}

static void capture(void)
{
    begin(CAPTURING);
    end(CAPTURING);
}

static void capture_other(void)
{
    begin(OTHER);
    end(OTHER);
}

static void end_other(void)
{
    end(OTHER);
}

/* The real call refuses. */
static void fail_to_capture(void)
{
    struct vpmm_context *ticket = vpmm_order_capture_begin(world->order, device_stream(CAPTURING));
    vpmm_order_capture_began(world->order, ticket, device_stream(CAPTURING), false);
}

static void record_context(void)
{
    enum vpmm_status status;
    world->fences[schedule_thread()] =
        vpmm_order_fence_context(world->order, world->context, true, &status);
    expect(status == VPMM_OK);
}

/* The order that the free gives to other streams must not be lost: never parked. */
static void record_legacy(void)
{
    struct vpmm_fence_facts facts;
    vpmm_fence fence = vpmm_order_fence_stream(world->order, &world->legacy);
    vpmm_order_facts(world->order, fence, &facts);
    expect(facts.kind == VPMM_FENCE_IS_STREAM);
    world->fences[schedule_thread()] = fence;
}

/* On the very stream that another thread captures: a program's error, which must not be answered
 * with memory given away too early. */
static void record_stream(void)
{
    world->fences[schedule_thread()] = vpmm_order_fence_stream(world->order, &world->stream);
}

static void poll(void)
{
    (void)vpmm_order_poll(world->order);
}

/* The gate is open again, nothing is lost, and no fence is complete before its work. */
static void check(void)
{
    enum vpmm_status status;
    struct vpmm_fence_facts facts;
    struct vpmm_order_totals totals;
    expect(!vpmm_order_captures(world->order));
    for (int i = 0; i <= SCHEDULE_THREADS; i++)
        expect(!world->fences[i] || i == 1 ||
               vpmm_order_ask(world->order, world->fences[i], 0) != VPMM_VERDICT_COMPLETE);
    vpmm_fence last = vpmm_order_fence_context(world->order, world->context, true, &status);
    vpmm_order_facts(world->order, last, &facts);
    expect(facts.kind == VPMM_FENCE_IS_CONTEXT);
    for (int i = 0; i < DEVICE_STREAMS; i++)
        device_finish(world->device, i);
    (void)vpmm_order_poll(world->order);
    (void)vpmm_order_poll(world->order);
    for (int i = 0; i <= SCHEDULE_THREADS; i++)
        expect(vpmm_order_ask(world->order, world->fences[i], 0) == VPMM_VERDICT_COMPLETE);
    vpmm_order_totals(world->order, &totals);
    expect(totals.fences == 0);
    vpmm_order_destroy(world->order);
    device_expect_empty(world->device);
}

const struct schedule_case cases_gate[] = {
    SCHEDULE_TEST(record_of_a_context, prepare, {record_context, capture}, check),
    SCHEDULE_TEST(record_on_a_legacy_stream, prepare, {capture, record_legacy}, check),
    SCHEDULE_TEST(record_on_the_stream, prepare, {record_stream, capture}, check),
    SCHEDULE_TEST(parked_record, prepare_parked, {poll, end_other, capture}, check),
    SCHEDULE_TEST(two_captures, prepare, {record_context, capture, capture_other}, check),
    SCHEDULE_TEST(two_records, prepare, {record_context, record_legacy, capture}, check),
    SCHEDULE_TEST(failed_begin, prepare, {record_context, fail_to_capture, poll}, check),
    SCHEDULE_TEST(failed_begin_beside_another, prepare,
                  {record_context, fail_to_capture, capture_other}, check),
    {0},
};
