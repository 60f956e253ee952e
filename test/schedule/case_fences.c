/* SPDX-License-Identifier: MIT */
/* Fences published, completed and their slots used again, against readers without the lock. */
#include "cases.h"

#include "order/order.h"
#include "stage.h"

#define GROUP "fences"

#define STREAM 1 /* of context 0, whose legacy stream is 0 */
#define STREAM_ID 2

static struct world {
    struct gpu *device;
    struct vpmm_order *order;
    struct vpmm_context *context;
    struct vpmm_stream stream;
    vpmm_atomic64 shown; /* the fence that a thread made for the others to look at */
    vpmm_fence fence;    /* made before */
    vpmm_fence parts[2];
} * world;

static void prepare_work(void)
{
    world = schedule_room(sizeof *world);
    world->device = device_create(1);
    expect(!vpmm_order_create(&world->device->driver, &schedule_memory, &world->order));
    expect(!vpmm_order_context(world->order, device_context(0), &world->context));
    expect(!vpmm_order_stream(world->order, device_stream(STREAM), &world->stream));
    stage_count_order(world->order);
    device_queue(world->device, STREAM);
}

static void prepare_fence(void)
{
    prepare_work();
    world->fence = vpmm_order_fence_stream(world->order, &world->stream);
    vpmm_atomic_store(&world->shown, world->fence);
}

static void prepare_failing_record(void)
{
    prepare_work();
    world->device->fails = CALL_EVENT_RECORD;
    world->device->fails_nth = 1;
    world->device->failure = VPMM_FAILED;
}

static void prepare_parked(void)
{
    enum vpmm_status status;
    prepare_work();
    struct vpmm_context *ticket = vpmm_order_capture_begin(world->order, device_stream(2));
    (void)device_capture_begin(world->device, 2);
    vpmm_order_capture_began(world->order, ticket, device_stream(2), true);
    world->fence = vpmm_order_fence_context(world->order, world->context, true, &status);
    vpmm_atomic_store(&world->shown, world->fence);
}

static void prepare_joined(void)
{
    struct vpmm_stream other;
    prepare_fence();
    expect(!vpmm_order_stream(world->order, device_stream(3), &other));
    device_queue(world->device, 3);
    world->parts[0] = world->fence;
    world->parts[1] = vpmm_order_fence_stream(world->order, &other);
    world->fence = vpmm_order_join(world->order, world->parts[0], world->parts[1]);
    vpmm_atomic_store(&world->shown, world->fence);
}

/* The capture is over; of the two records to come, the first fails or the second. */
static void prepare_parked_again(uint32_t failing)
{
    prepare_parked();
    device_capture_end(world->device, 2);
    vpmm_order_capture_recheck(world->order, device_stream(2));
    world->device->fails = CALL_EVENT_RECORD_CONTEXT;
    world->device->fails_nth = failing;
    world->device->failure = VPMM_FAILED;
}

static void prepare_first_fails(void)
{
    prepare_parked_again(1);
}

static void prepare_second_fails(void)
{
    prepare_parked_again(2);
}

/* ---- threads ---- */

static void record(void)
{
    vpmm_atomic_store(&world->shown, vpmm_order_fence_stream(world->order, &world->stream));
}

static void poll(void)
{
    (void)vpmm_order_poll(world->order);
}

static void finish(void)
{
    device_finish(world->device, STREAM);
}

static void finish_both(void)
{
    device_finish(world->device, STREAM);
    device_finish(world->device, 3);
}

/* Whoever sees a fence complete sees its work done. */
static void ask_shown(void)
{
    vpmm_fence fence = vpmm_atomic_load(&world->shown);
    if (fence && vpmm_order_ask(world->order, fence, 0) == VPMM_VERDICT_COMPLETE)
        expect(device_is_idle(world->device, STREAM));
}

static void ask_joined(void)
{
    if (vpmm_order_ask(world->order, world->fence, 0) == VPMM_VERDICT_COMPLETE)
        expect(device_is_idle(world->device, STREAM) && device_is_idle(world->device, 3));
}

static void poll_and_ask(void)
{
    (void)vpmm_order_poll(world->order);
    ask_shown();
}

/* The count of completions says that a fence is complete: then it is. */
static void count_completions(void)
{
    if (vpmm_order_completions(world->order))
        expect(vpmm_order_ask(world->order, world->fence, 0) == VPMM_VERDICT_COMPLETE);
}

/* Completes the old fence, if its work is done, and makes new ones, the first of which lives in its
 * slot. */
static void poll_and_reuse(void)
{
    enum vpmm_status status;
    (void)vpmm_order_poll(world->order);
    (void)vpmm_order_fence_context(world->order, world->context, true, &status);
}

static void wait_for_old(void)
{
    expect(!vpmm_order_wait_host(world->order, world->fence));
    expect(device_is_idle(world->device, STREAM));
}

static void poll_and_record(void)
{
    (void)vpmm_order_poll(world->order);
    record();
}

/* The old fence is what it was or complete, never anything of the one in its slot. */
static void look_at_old(void)
{
    struct vpmm_fence_facts facts;
    vpmm_order_facts(world->order, world->fence, &facts);
    expect(facts.kind == VPMM_FENCE_IS_COMPLETE ||
           (facts.kind == VPMM_FENCE_IS_STREAM && facts.stream_id == STREAM_ID &&
            facts.context_id == vpmm_context_id(world->context)));
}

static void ask_old(void)
{
    expect(vpmm_order_ask(world->order, world->fence, STREAM_ID) != VPMM_VERDICT_PENDING);
    expect(vpmm_order_covers(world->order, world->fence, 1, STREAM_ID));
    expect(vpmm_order_wait_kind(world->order, world->fence) <= VPMM_WAIT_STREAM);
}

static void end_capture_and_poll(void)
{
    device_capture_end(world->device, 2);
    vpmm_order_capture_recheck(world->order, device_stream(2));
    (void)vpmm_order_poll(world->order);
}

/* Joins what is parked, where its own record fails; but not a record that began before. */
static void finish_and_park(void)
{
    enum vpmm_status status;
    finish();
    device_queue(world->device, STREAM);
    vpmm_fence fence = vpmm_order_fence_context(world->order, world->context, true, &status);
    if (vpmm_order_ask(world->order, fence, 0) == VPMM_VERDICT_COMPLETE)
        expect(device_is_idle(world->device, STREAM));
}

/* Recorded late, so it may never be waited for; complete, it need not be. */
static void ask_parked(void)
{
    bool may_wait = vpmm_order_wait_kind(world->order, world->fence) != VPMM_WAIT_NEVER;
    if (may_wait || vpmm_order_ask(world->order, world->fence, 0) == VPMM_VERDICT_COMPLETE)
        expect(device_is_idle(world->device, STREAM));
}

static void check(void)
{
    struct vpmm_order_totals totals;
    finish_both();
    for (int i = 0; i < 2; i++)
        (void)vpmm_order_poll(world->order);
    expect(vpmm_order_ask(world->order, world->fence, 0) == VPMM_VERDICT_COMPLETE);
    expect(vpmm_order_ask(world->order, vpmm_atomic_load(&world->shown), 0) ==
           VPMM_VERDICT_COMPLETE);
    vpmm_order_totals(world->order, &totals);
    expect(totals.fences == 0);
    vpmm_order_destroy(world->order);
    device_expect_empty(world->device);
}

const struct schedule_case cases_fences[] = {
    SCHEDULE_TEST(published_after_the_record, prepare_work, {record, poll_and_ask, finish}, check),
    SCHEDULE_TEST(failed_record, prepare_failing_record, {record, poll_and_ask, finish}, check),
    SCHEDULE_TEST(two_polls, prepare_fence, {poll_and_ask, poll_and_ask, finish}, check),
    SCHEDULE_TEST(record_beside_a_poll, prepare_fence, {record, poll_and_ask, finish}, check),
    SCHEDULE_TEST(slot_used_again, prepare_fence, {poll_and_reuse, look_at_old, finish}, check),
    SCHEDULE_TEST(old_fence_asked, prepare_fence, {poll_and_reuse, ask_old, finish}, check),
    SCHEDULE_TEST(event_used_again, prepare_fence, {wait_for_old, poll_and_record, finish}, check),
    SCHEDULE_TEST(event_asked_by_two, prepare_fence, {poll, poll_and_record, finish}, check),
    SCHEDULE_TEST(parked, prepare_parked, {end_capture_and_poll, ask_parked, finish}, check),
    SCHEDULE_TEST(parked_and_first_record_fails, prepare_first_fails, {poll, finish_and_park},
                  check),
    SCHEDULE_TEST(parked_and_second_record_fails, prepare_second_fails, {poll, finish_and_park},
                  check),
    SCHEDULE_TEST(joined, prepare_joined, {poll, ask_joined, finish_both}, check),
    SCHEDULE_TEST(completions, prepare_fence, {poll, count_completions, finish}, check),
    {0},
};
