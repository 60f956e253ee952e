/* SPDX-License-Identifier: MIT */
/* The capture gate: captures and the records they exclude keep out of each other's way. */
#include "fake.h"

#include "base/atomic.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

static struct fake fake;
static struct vpmm_order *order;
static struct vpmm_context *context;

static int setup(void **state)
{
    (void)state;
    fake_init(&fake);
    order = fake_order(&fake);
    return vpmm_order_context(order, fake_context(0), &context) != VPMM_OK;
}

static int teardown(void **state)
{
    (void)state;
    assert_false(fake.contexts[0].is_capture_broken);
    fake_order_end(&fake, order);
    return 0;
}

static vpmm_fence free_on_handle(vpmm_stream_handle handle)
{
    struct vpmm_stream stream;
    assert_int_equal(vpmm_order_stream(order, handle, &stream), VPMM_OK);
    return vpmm_order_fence_stream(order, &stream);
}

static vpmm_fence free_in_context(void)
{
    enum vpmm_status status;
    vpmm_fence fence = vpmm_order_fence_context(order, context, true, &status);
    assert_int_equal(status, VPMM_OK);
    return fence;
}

static enum vpmm_fence_kind kind_of(vpmm_fence fence)
{
    struct vpmm_fence_facts facts;
    vpmm_order_facts(order, fence, &facts);
    return facts.kind;
}

static void begin_capture(int stream)
{
    struct vpmm_context *ticket = vpmm_order_capture_begin(order, fake_stream(stream));
    assert_ptr_equal(ticket, context);
    fake_capture(&fake, stream, true);
    vpmm_order_capture_began(order, ticket, fake_stream(stream), true);
}

static void end_capture(int stream)
{
    fake_capture(&fake, stream, false);
    vpmm_order_capture_recheck(order, fake_stream(stream));
}

static void test_capture_parks(void **state)
{
    (void)state;
    begin_capture(0);
    assert_int_equal(vpmm_order_captures(order), 1);
    vpmm_fence in_context = free_in_context();
    assert_int_equal(kind_of(in_context), VPMM_FENCE_IS_PARKED);
    assert_int_equal(kind_of(free_on_handle(VPMM_STREAM_LEGACY)), VPMM_FENCE_IS_STREAM);
    assert_int_equal(free_on_handle(fake_stream(0)), in_context);
    assert_int_equal(kind_of(free_on_handle(fake_stream(1))), VPMM_FENCE_IS_STREAM);
    assert_int_equal(kind_of(free_on_handle(VPMM_STREAM_PER_THREAD)), VPMM_FENCE_IS_STREAM);
    assert_false(vpmm_order_poll(order));
    assert_int_equal(fake.n_context_records, 0);
    end_capture(0);
    assert_int_equal(vpmm_order_captures(order), 0);
    assert_false(vpmm_order_poll(order));
    assert_int_equal(fake.n_context_records, 1);
    assert_int_equal(kind_of(in_context), VPMM_FENCE_IS_CONTEXT);
    fake_complete_context(&fake, 0);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(vpmm_order_ask(order, in_context, 0), VPMM_VERDICT_COMPLETE);
}

/* A wait on the legacy stream would break the capture of a blocking one. */
static void test_wait_on_the_legacy_stream(void **state)
{
    (void)state;
    struct vpmm_stream legacy;
    assert_int_equal(vpmm_order_stream(order, VPMM_STREAM_LEGACY, &legacy), VPMM_OK);
    vpmm_fence fence = free_on_handle(fake_stream(1));
    begin_capture(0);
    assert_int_equal(vpmm_order_wait_stream(order, fence, &legacy), VPMM_CAPTURED);
    assert_int_equal(fake.n_stream_waits, 0);
    end_capture(0);
    assert_int_equal(vpmm_order_wait_stream(order, fence, &legacy), VPMM_OK);
    assert_int_equal(fake.n_stream_waits, 1);
}

static void test_captures_are_counted(void **state)
{
    (void)state;
    begin_capture(0);
    begin_capture(1);
    assert_int_equal(vpmm_order_captures(order), 2);
    vpmm_order_capture_recheck(order, fake_stream(2));
    vpmm_order_capture_recheck(order, fake_stream(0));
    assert_int_equal(vpmm_order_captures(order), 2);
    end_capture(0);
    assert_int_equal(kind_of(free_in_context()), VPMM_FENCE_IS_PARKED);
    end_capture(1);
    assert_int_equal(kind_of(free_in_context()), VPMM_FENCE_IS_CONTEXT);
    vpmm_order_capture_recheck(order, fake_stream(1));
    assert_int_equal(vpmm_order_captures(order), 0);
}

/* The driver ends a capture where a context is synchronised, which may begin at any moment. */
static void test_a_wait_for_the_context_spares_captures(void **state)
{
    (void)state;
    fake.current = 0;
    assert_int_equal(vpmm_order_drain_context(order, context), VPMM_OK);
    assert_int_equal(fake.n_context_synchronized, 1);
    begin_capture(0);
    assert_int_equal(vpmm_order_drain_context(order, context), VPMM_CAPTURED);
    end_capture(0);
    assert_int_equal(vpmm_order_drain_context(order, context), VPMM_OK);
    assert_int_equal(fake.n_context_synchronized, 1);
    assert_int_equal(fake.n_context_records, 1);
    assert_int_equal(fake.n_synchronized, 1);
}

/* A capture may draw in streams of other contexts, where a record would end it as well. */
static void test_capture_closes_every_context(void **state)
{
    (void)state;
    struct vpmm_context *other;
    enum vpmm_status status;
    assert_int_equal(vpmm_order_context(order, fake_context(1), &other), VPMM_OK);
    begin_capture(0);
    vpmm_fence fence = vpmm_order_fence_context(order, other, true, &status);
    assert_int_equal(kind_of(fence), VPMM_FENCE_IS_PARKED);
    (void)vpmm_order_poll(order);
    assert_int_equal(fake.n_context_records, 0);
    end_capture(0);
    (void)vpmm_order_poll(order);
    assert_int_equal(fake.n_context_records, 1);
    assert_int_equal(kind_of(fence), VPMM_FENCE_IS_CONTEXT);
}

static void test_capture_that_did_not_begin(void **state)
{
    (void)state;
    struct vpmm_context *ticket = vpmm_order_capture_begin(order, fake_stream(0));
    assert_int_equal(kind_of(free_in_context()), VPMM_FENCE_IS_PARKED);
    vpmm_order_capture_began(order, ticket, fake_stream(0), false);
    assert_int_equal(vpmm_order_captures(order), 0);
    assert_int_equal(kind_of(free_in_context()), VPMM_FENCE_IS_CONTEXT);
}

/* The next capture of a stream begins before the thread that ended the last one has told so. */
static void test_capture_that_begins_before_the_last_is_told(void **state)
{
    (void)state;
    begin_capture(0);
    fake_capture(&fake, 0, false);
    begin_capture(0);
    vpmm_order_capture_ended(order, fake_stream(0));
    assert_true(vpmm_order_captures(order));
    assert_int_equal(kind_of(free_in_context()), VPMM_FENCE_IS_PARKED);
    fake_capture(&fake, 0, false);
    vpmm_order_capture_ended(order, fake_stream(0));
    assert_false(vpmm_order_captures(order));
}

/* Whose capture it is does not matter: nothing may be recorded until it ends. */
static void test_capture_of_a_stream_that_cannot_be_told(void **state)
{
    (void)state;
    fake.streams[3].is_alive = false;
    struct vpmm_context *ticket = vpmm_order_capture_begin(order, fake_stream(3));
    assert_int_equal(kind_of(free_in_context()), VPMM_FENCE_IS_PARKED);
    vpmm_order_capture_began(order, ticket, fake_stream(3), false);
    assert_int_equal(kind_of(free_in_context()), VPMM_FENCE_IS_CONTEXT);
    ticket = vpmm_order_capture_begin(order, fake_stream(3));
    vpmm_order_capture_began(order, ticket, fake_stream(3), true);
    assert_true(vpmm_order_captures(order));
    assert_int_equal(kind_of(free_in_context()), VPMM_FENCE_IS_PARKED);
    vpmm_order_capture_recheck(order, fake_stream(3));
    assert_true(vpmm_order_captures(order));
    vpmm_order_capture_ended(order, fake_stream(3));
    assert_false(vpmm_order_captures(order));
    assert_int_equal(kind_of(free_in_context()), VPMM_FENCE_IS_CONTEXT);
}

/* The first capture ended where nobody saw it, for example by a function that is not wrapped. */
static void test_second_begin_counts_once(void **state)
{
    (void)state;
    begin_capture(0);
    fake_capture(&fake, 0, false);
    begin_capture(0);
    assert_int_equal(vpmm_order_captures(order), 1);
    end_capture(0);
    assert_int_equal(vpmm_order_captures(order), 0);
}

static void test_destroyed_stream_captures_no_more(void **state)
{
    (void)state;
    begin_capture(0);
    begin_capture(1);
    vpmm_order_stream_gone(order, fake_stream(0));
    fake_capture(&fake, 0, false);
    assert_int_equal(vpmm_order_captures(order), 1);
    vpmm_order_stream_gone(order, fake_stream(2));
    vpmm_order_stream_gone(order, VPMM_STREAM_LEGACY);
    assert_int_equal(vpmm_order_captures(order), 1);
    vpmm_order_stream_gone(order, fake_stream(1));
    fake_capture(&fake, 1, false);
    assert_int_equal(vpmm_order_captures(order), 0);
}

static void begin_during_record(struct fake *self)
{
    self->after_record = NULL;
    self->streams[0].is_capturing = true;
}

/* The stream was drawn into a capture that the order knows nothing of: the event may be the
 * graph's, and a record of the whole context would break that capture. */
static void test_record_drawn_into_a_capture(void **state)
{
    (void)state;
    fake.after_record = begin_during_record;
    vpmm_fence fence = free_on_handle(fake_stream(0));
    assert_int_equal(kind_of(fence), VPMM_FENCE_IS_PARKED);
    assert_int_equal(fake.n_context_records, 0);
    assert_int_equal(fake.n_destroyed, 1);
    fake.streams[0].is_capturing = false;
    assert_false(vpmm_order_poll(order));
    fake_complete(&fake, fake.last_event);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(vpmm_order_ask(order, fence, 0), VPMM_VERDICT_COMPLETE);
}

static void begin_and_end_during_record(struct fake *self)
{
    self->after_record = NULL;
    begin_capture(0);
    end_capture(0);
    self->events[self->last_event].is_captured = true;
}

static void test_capture_within_a_record(void **state)
{
    (void)state;
    fake.after_record = begin_and_end_during_record;
    assert_int_equal(kind_of(free_on_handle(fake_stream(0))), VPMM_FENCE_IS_PARKED);
}

static void *free_context_in_thread(void *fence)
{
    enum vpmm_status status;
    *(vpmm_fence *)fence = vpmm_order_fence_context(order, context, true, &status);
    return NULL;
}

static vpmm_atomic32 has_begun;

static void *capture_in_thread(void *stream)
{
    begin_capture(*(int *)stream);
    vpmm_atomic_store(&has_begun, 1);
    end_capture(*(int *)stream);
    return NULL;
}

/* A capture that begins waits for the record under way, and keeps new ones out meanwhile. */
static void test_begin_waits_for_records(void **state)
{
    (void)state;
    pthread_t recorder, capturer;
    vpmm_fence fence = VPMM_FENCE_NONE;
    int stream = 0;
    struct vpmm_stream legacy;
    assert_int_equal(vpmm_order_stream(order, VPMM_STREAM_LEGACY, &legacy), VPMM_OK);
    vpmm_fence pending = free_on_handle(fake_stream(1));
    vpmm_atomic_store(&has_begun, 0);
    fake.stop = FAKE_STOP_RECORD_CONTEXT;
    assert_int_equal(pthread_create(&recorder, NULL, free_context_in_thread, &fence), 0);
    fake_await_stop(&fake);
    assert_int_equal(pthread_create(&capturer, NULL, capture_in_thread, &stream), 0);
    while (vpmm_order_wait_stream(order, pending, &legacy) != VPMM_CAPTURED)
        ;
    assert_int_equal(vpmm_atomic_load(&has_begun), 0);
    fake_go(&fake);
    assert_int_equal(pthread_join(recorder, NULL), 0);
    assert_int_equal(pthread_join(capturer, NULL), 0);
    assert_int_equal(kind_of(fence), VPMM_FENCE_IS_CONTEXT);
    assert_int_equal(vpmm_order_captures(order), 0);
}

#define N_ROUNDS 300

static void *capture_often(void *stream)
{
    for (int i = 0; i < N_ROUNDS; i++) {
        begin_capture(*(int *)stream);
        end_capture(*(int *)stream);
    }
    return NULL;
}

static void *free_often(void *unused)
{
    (void)unused;
    for (int i = 0; i < N_ROUNDS; i++) {
        vpmm_fence fence = free_in_context();
        (void)free_on_handle(VPMM_STREAM_LEGACY);
        (void)free_on_handle(fake_stream(5));
        fake_complete_context(&fake, 0);
        (void)vpmm_order_poll(order);
        (void)vpmm_order_ask(order, fence, 0);
    }
    return NULL;
}

/* The fake counts every record that would have broken a capture. */
static void test_threads_never_break_a_capture(void **state)
{
    (void)state;
    pthread_t threads[4];
    int streams[2] = {0, 1};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, capture_often, &streams[i]), 0);
        assert_int_equal(pthread_create(&threads[i + 2], NULL, free_often, NULL), 0);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(vpmm_order_captures(order), 0);
    (void)vpmm_order_poll(order);
    fake_complete_context(&fake, 0);
    (void)vpmm_order_poll(order);
    struct vpmm_order_totals totals;
    vpmm_order_totals(order, &totals);
    assert_int_equal(totals.fences, 0);
    assert_true(fake.n_records + fake.n_context_records > N_ROUNDS);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_capture_parks),
        TEST(test_wait_on_the_legacy_stream),
        TEST(test_captures_are_counted),
        TEST(test_a_wait_for_the_context_spares_captures),
        TEST(test_capture_closes_every_context),
        TEST(test_capture_that_did_not_begin),
        TEST(test_capture_that_begins_before_the_last_is_told),
        TEST(test_capture_of_a_stream_that_cannot_be_told),
        TEST(test_second_begin_counts_once),
        TEST(test_destroyed_stream_captures_no_more),
        TEST(test_record_drawn_into_a_capture),
        TEST(test_capture_within_a_record),
        TEST(test_begin_waits_for_records),
        TEST(test_threads_never_break_a_capture),
    };
    return cmocka_run_group_tests_name("order/capture", tests, NULL, NULL);
}
