/* SPDX-License-Identifier: MIT */
/* Open fences closed, in each of the ways in which they are, beside readers without the lock,
 * joins, other closings, captures and the end of the context. */
#include "cases.h"

#include "order/order.h"
#include "stage.h"

#define GROUP "open"

#define STREAM 1 /* of context 0 */
#define SECOND 0 /* of context 0: its legacy stream */
#define OTHER 3  /* of context 1 */

static struct world {
    struct gpu *device;
    struct vpmm_order *order;
    struct vpmm_context *context;
    struct vpmm_stream stream, second, other;
    vpmm_fence fences[2]; /* open on STREAM, and where the case has it, on SECOND */
    size_t n_fences;
    uint64_t marks[DEVICE_STREAMS]; /* work that those stand for */
    vpmm_fence recorded;            /* on OTHER */
    vpmm_atomic64 shown;            /* a fence that a thread made, of STREAM and perhaps of OTHER */
} * world;

/* Work ahead of a free that joins the stream's fence. */
static void queue(int stream)
{
    device_queue(world->device, stream);
    world->marks[stream] = world->device->streams[stream].queued;
}

static void prepare_idle(void)
{
    world = schedule_room(sizeof *world);
    world->device = device_create(1);
    expect(!vpmm_order_create(&world->device->driver, &schedule_memory, &world->order));
    expect(!vpmm_order_stream(world->order, device_stream(STREAM), &world->stream));
    expect(!vpmm_order_stream(world->order, device_stream(SECOND), &world->second));
    world->context = world->stream.context;
    stage_count_order(world->order);
    world->fences[0] = vpmm_order_open(world->order, &world->stream);
    world->n_fences = 1;
}

static void prepare(void)
{
    prepare_idle();
    queue(STREAM);
}

static void prepare_two(void)
{
    prepare();
    queue(SECOND);
    world->fences[1] = vpmm_order_open(world->order, &world->second);
    world->n_fences = 2;
}

static void prepare_recorded(void)
{
    prepare();
    device_queue(world->device, OTHER);
    expect(!vpmm_order_stream(world->order, device_stream(OTHER), &world->other));
    world->recorded = vpmm_order_fence_stream(world->order, &world->other);
}

static void join(void)
{
    vpmm_fence joined = vpmm_order_join(world->order, world->fences[0], world->recorded);
    vpmm_atomic_store(&world->shown, joined);
}

static void prepare_joined(void)
{
    prepare_recorded();
    join();
}

static void capture_begins(int stream)
{
    struct vpmm_context *ticket = vpmm_order_capture_begin(world->order, device_stream(stream));
    (void)device_capture_begin(world->device, stream);
    vpmm_order_capture_began(world->order, ticket, device_stream(stream), true);
}

static void capture_ends(int stream)
{
    device_capture_end(world->device, stream);
    vpmm_order_capture_ended(world->order, device_stream(stream));
}

static void prepare_capture(void)
{
    prepare_two();
    capture_begins(OTHER);
}

static void fail_once(enum device_call call)
{
    prepare();
    world->device->fails = call;
    world->device->fails_nth = 1;
    world->device->failure = VPMM_FAILED;
}

static void prepare_failing_stream(void)
{
    fail_once(CALL_EVENT_RECORD);
}

static void prepare_failing_context(void)
{
    fail_once(CALL_EVENT_RECORD_CONTEXT);
}

/* ---- threads ---- */

static void poll(void)
{
    (void)vpmm_order_poll(world->order);
}

static void close(void)
{
    expect(!vpmm_order_close(world->order, world->fences[0], &world->stream, true));
}

static void close_all(void)
{
    vpmm_order_close_all(world->order, world->fences, world->n_fences);
}

static void close_and_poll(void)
{
    close();
    poll();
}

static void close_all_and_poll(void)
{
    close_all();
    poll();
}

/* What has the slot then is another's. */
static void close_and_reuse(void)
{
    close_and_poll();
    world->fences[1] = vpmm_order_open(world->order, &world->second);
    world->n_fences = 2;
}

static void finish(void)
{
    device_finish(world->device, STREAM);
}

static void finish_all(void)
{
    for (int i = 0; i < DEVICE_STREAMS; i++)
        device_finish(world->device, i);
}

/* It is complete only when its work is done; its own stream comes after it at all times. */
static void expect_of(vpmm_fence fence, int stream)
{
    uint64_t stream_id = device_stream_id(stream);
    if (vpmm_order_ask(world->order, fence, 0) == VPMM_VERDICT_COMPLETE)
        expect(world->device->streams[stream].done >= world->marks[stream]);
    expect(vpmm_order_ask(world->order, fence, stream_id) != VPMM_VERDICT_PENDING);
    expect(vpmm_order_covers(world->order, fence, 1, stream_id));
}

static void ask(void)
{
    expect_of(world->fences[0], STREAM);
}

static void ask_second(void)
{
    expect_of(world->fences[1], SECOND);
}

static void ask_shown(void)
{
    vpmm_fence shown = vpmm_atomic_load(&world->shown);
    if (shown && vpmm_order_ask(world->order, shown, 0) == VPMM_VERDICT_COMPLETE)
        expect(device_is_idle(world->device, STREAM) && device_is_idle(world->device, OTHER));
}

static void join_and_ask(void)
{
    join();
    ask_shown();
}

/* A record that says nothing of what joins the fence later. */
static void record_and_join(void)
{
    world->recorded = vpmm_order_fence_stream(world->order, &world->stream);
    join();
    poll();
    ask_shown();
}

static void queue_and_close(void)
{
    queue(STREAM);
    close_and_poll();
}

/* As it was, as it became, or complete: never anything of the one in its slot. */
static void look(void)
{
    struct vpmm_fence_facts facts;
    vpmm_order_facts(world->order, world->fences[0], &facts);
    expect(facts.kind == VPMM_FENCE_IS_COMPLETE ||
           ((facts.kind == VPMM_FENCE_IS_OPEN || facts.kind == VPMM_FENCE_IS_STREAM) &&
            facts.stream_id == device_stream_id(STREAM) && facts.context_id == 1));
}

/* Only what has been recorded in the one free may be waited for. */
static void wait_on_device(void)
{
    enum vpmm_status status = vpmm_order_wait_stream(world->order, world->fences[0], &world->other);
    expect(!status || status == VPMM_INVALID);
}

static void wait_on_host(void)
{
    enum vpmm_status status = vpmm_order_wait_host(world->order, world->fences[0]);
    expect(!status || status == VPMM_INVALID);
    expect(status || device_is_idle(world->device, STREAM));
}

static void queue_and_record(void)
{
    device_queue(world->device, STREAM);
    vpmm_atomic_store(&world->shown, vpmm_order_fence_stream(world->order, &world->stream));
}

static void end_capture_and_poll(void)
{
    capture_ends(OTHER);
    poll();
}

static void capture(void)
{
    capture_begins(OTHER);
    capture_ends(OTHER);
}

static void capture_here(void)
{
    capture_begins(STREAM);
    capture_ends(STREAM);
}

static void die(void)
{
    struct vpmm_departure departure =
        vpmm_order_context_leaving(world->order, device_context(0), true);
    device_context_destroy(world->device, 0);
    vpmm_order_context_left(world->order, &departure, true);
}

static void open_another(void)
{
    vpmm_atomic_store(&world->shown, vpmm_order_open(world->order, &world->stream));
}

/* ---- afterwards ---- */

static bool is_open(size_t i)
{
    struct vpmm_fence_facts facts;
    vpmm_order_facts(world->order, world->fences[i], &facts);
    return facts.kind == VPMM_FENCE_IS_OPEN;
}

/* The first is closed by now. */
static void check(void)
{
    poll();
    ask();
    if (world->fences[1])
        ask_second();
    ask_shown();
    expect(!is_open(0));
    close_all();
    for (size_t i = 0; i < world->n_fences; i++)
        expect(!is_open(i));
    finish_all();
    for (int i = 0; i < 2; i++)
        poll();
    for (size_t i = 0; i < world->n_fences; i++)
        expect(vpmm_order_ask(world->order, world->fences[i], 0) == VPMM_VERDICT_COMPLETE);
    expect(vpmm_order_ask(world->order, vpmm_atomic_load(&world->shown), 0) ==
           VPMM_VERDICT_COMPLETE);
    stage_expect_no_fences(world->order);
    vpmm_order_destroy(world->order);
    device_expect_empty(world->device);
}

static void check_captured(void)
{
    expect(!is_open(0));
    capture_ends(OTHER);
    check();
}

const struct schedule_case cases_open[] = {
    SCHEDULE_TEST(closed_on_the_stream, prepare, {close_and_poll, ask, finish}, check),
    SCHEDULE_TEST(closed_for_all, prepare, {close_all_and_poll, ask, finish}, check),
    SCHEDULE_TEST(two_closed_for_all, prepare_two, {close_all_and_poll, ask_second, finish_all},
                  check),
    SCHEDULE_TEST(closed_by_two, prepare, {close, close_all}, check),
    SCHEDULE_TEST(closed_for_all_by_two, prepare_two, {close_all, close_all}, check),
    SCHEDULE_TEST(closed_beside_a_poll, prepare, {close, poll, finish}, check),
    SCHEDULE_TEST(closed_beside_a_record, prepare_idle, {close, queue_and_record, poll}, check),
    SCHEDULE_TEST(record_fails, prepare_failing_stream, {close_and_poll, ask, finish}, check),
    SCHEDULE_TEST(record_for_all_fails, prepare_failing_context, {close_all_and_poll, ask, finish},
                  check),
    SCHEDULE_TEST(slot_used_again, prepare_idle, {close_and_reuse, look}, check),
    SCHEDULE_TEST(slot_asked_again, prepare_idle, {close_and_reuse, ask}, check),
    SCHEDULE_TEST(waited_for_on_the_device, prepare_recorded, {close, wait_on_device}, check),
    SCHEDULE_TEST(waited_for_on_the_host, prepare, {close, wait_on_host, finish}, check),
    SCHEDULE_TEST(joined_beside_its_closing, prepare_recorded, {join_and_ask, close, finish_all},
                  check),
    SCHEDULE_TEST(joined_beside_its_closing_for_all, prepare_recorded,
                  {join_and_ask, close_all_and_poll, finish_all}, check),
    SCHEDULE_TEST(joined_with_an_earlier_record, prepare_idle, {record_and_join, queue_and_close},
                  check),
    SCHEDULE_TEST(closed_within_a_join, prepare_joined, {close_and_poll, ask_shown, finish_all},
                  check),
    SCHEDULE_TEST(closed_for_all_within_a_join, prepare_joined,
                  {close_all_and_poll, ask_shown, finish_all}, check),
    SCHEDULE_TEST(closed_in_a_capture, prepare_capture, {close_all, ask_second, finish_all},
                  check_captured),
    SCHEDULE_TEST(closed_as_a_capture_ends, prepare_capture, {close_all, end_capture_and_poll},
                  check),
    SCHEDULE_TEST(closed_as_a_capture_begins, prepare_two, {close_all, capture}, check),
    SCHEDULE_TEST(closed_on_a_stream_that_captures, prepare, {close, capture_here, poll}, check),
    SCHEDULE_TEST(closed_beside_death, prepare, {close, die}, check),
    SCHEDULE_TEST(closed_for_all_beside_death, prepare_two, {close_all, die}, check),
    SCHEDULE_TEST(joined_beside_death, prepare_joined, {ask_shown, close, die}, check),
    SCHEDULE_TEST(opened_beside_death, prepare_idle, {open_another, die}, check),
    {0},
};
