/* SPDX-License-Identifier: MIT */
/* Marks: one event for all of the legacy stream, one for each blocking stream, no lock, and none in
 * a context that ends. */
#include "fake.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

static struct fake fake;
static struct vpmm_order *order;
static struct vpmm_stream legacy;

static int setup(void **state)
{
    (void)state;
    fake_init(&fake);
    order = fake_order(&fake);
    legacy = fake_known(order, 0);
    legacy.is_legacy = true;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_order_end(&fake, order);
    return 0;
}

static uint64_t n_events(void)
{
    struct vpmm_order_totals totals;
    vpmm_order_totals(order, &totals);
    return totals.events;
}

static void marks_share_an_event_that_is_no_fences(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), VPMM_OK);
    int event = fake.last_event;
    assert_int_equal(fake.n_records, 3);
    assert_int_equal(fake.n_created, 1);
    (void)vpmm_order_fence_stream(order, &legacy);
    assert_int_equal(fake.n_created, 2);
    assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), VPMM_OK);
    assert_int_equal(fake.last_event, event);
    assert_ptr_equal(fake.events[event].stream, fake_stream(0));
}

static void of_later_marks_too_only_a_broken_device_is_told(void **state)
{
    (void)state;
    static const enum vpmm_status told[] = {VPMM_BROKEN, VPMM_SHUT_DOWN};
    assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), VPMM_OK);
    fake.fail_record = VPMM_FAILED;
    assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), VPMM_OK);
    for (int i = 0; i < 2; i++) {
        fake.fail_record = told[i];
        assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), told[i]);
    }
    assert_int_equal(fake.n_created, 1);
}

static void a_context_that_leaves_is_not_marked(void **state)
{
    (void)state;
    assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), VPMM_OK);
    struct vpmm_departure departure = vpmm_order_context_leaving(order, fake_context(0), true);
    fake.n_records = 0;
    assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), VPMM_OK);
    assert_int_equal(fake.n_records, 0);
    vpmm_order_context_left(order, &departure, false);
    assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), VPMM_OK);
    assert_int_equal(fake.n_records, 1);
    departure = vpmm_order_context_leaving(order, fake_context(0), true);
    fake_context_destroy(&fake, 0);
    vpmm_order_context_left(order, &departure, true);
    assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), VPMM_OK);
    assert_int_equal(fake.n_records, 1);
    assert_int_equal(n_events(), 0);
}

static void a_mark_may_meet_a_context_that_was_lost(void **state)
{
    (void)state;
    assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), VPMM_OK);
    fake.fail_record = VPMM_CONTEXT_GONE;
    assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), VPMM_OK);
    assert_false(vpmm_context_is_gone(legacy.context));
    fake.contexts[0].is_alive = false;
    fake.fail_record = VPMM_CONTEXT_GONE;
    assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), VPMM_OK);
    assert_true(vpmm_context_is_gone(legacy.context));
    assert_int_equal(n_events(), 0);
    fake_context_destroy(&fake, 0);
}

static void *mark_in_thread(void *status)
{
    *(enum vpmm_status *)status = vpmm_order_mark_free(order, &legacy, 0);
    return NULL;
}

static vpmm_atomic32 has_left;

static void *destroy_in_thread(void *unused)
{
    (void)unused;
    struct vpmm_departure departure = vpmm_order_context_leaving(order, fake_context(0), true);
    vpmm_atomic_store(&has_left, 1);
    fake_context_destroy(&fake, 0);
    vpmm_order_context_left(order, &departure, true);
    return NULL;
}

/* While the context leaves, its frees are parked. */
static bool is_leaving(void)
{
    struct vpmm_fence_facts facts;
    enum vpmm_status wait;
    vpmm_order_facts(order, vpmm_order_fence_context(order, legacy.context, true, &wait), &facts);
    return facts.kind == VPMM_FENCE_IS_PARKED;
}

static void a_context_leaves_after_the_marks_under_way(void **state)
{
    (void)state;
    pthread_t marker, destroyer;
    enum vpmm_status status = VPMM_FAILED;
    vpmm_atomic_store(&has_left, 0);
    assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), VPMM_OK);
    fake.stop = FAKE_STOP_RECORD;
    assert_int_equal(pthread_create(&marker, NULL, mark_in_thread, &status), 0);
    fake_await_stop(&fake);
    assert_int_equal(pthread_create(&destroyer, NULL, destroy_in_thread, NULL), 0);
    while (!is_leaving() && !vpmm_atomic_load(&has_left)) {
        fake_complete(&fake, fake.last_event);
        (void)vpmm_order_poll(order);
    }
    bool left_too_early = vpmm_atomic_load(&has_left);
    fake_go(&fake);
    assert_int_equal(pthread_join(marker, NULL), 0);
    assert_int_equal(pthread_join(destroyer, NULL), 0);
    assert_false(left_too_early);
    assert_int_equal(status, VPMM_OK);
    assert_true(vpmm_context_is_gone(legacy.context));
}

/* ---- blocking streams ---- */

static struct vpmm_stream blocking_new(int place)
{
    fake_stream_create(&fake, place, 0);
    fake.streams[place].is_blocking = true;
    return fake_known(order, place);
}

static enum vpmm_status state_of(int place)
{
    return vpmm_order_mark_query(order, fake_stream(place));
}

static void a_blocking_stream_is_idle_when_its_last_mark_is_complete(void **state)
{
    (void)state;
    struct vpmm_stream stream = blocking_new(1);
    assert_false(vpmm_order_has_marks(order));
    assert_int_equal(state_of(1), VPMM_OK);
    assert_int_equal(vpmm_order_mark_free(order, &stream, 0), VPMM_OK);
    assert_true(vpmm_order_has_marks(order));
    assert_int_equal(state_of(1), VPMM_NOT_READY);
    fake_complete(&fake, fake.last_event);
    assert_int_equal(vpmm_order_mark_free(order, &stream, 0), VPMM_OK);
    assert_int_equal(state_of(1), VPMM_NOT_READY);
    fake_complete(&fake, fake.last_event);
    int n_queries = fake.n_queries;
    for (int i = 0; i < 3; i++)
        assert_int_equal(state_of(1), VPMM_OK);
    assert_int_equal(fake.n_queries, n_queries + 1);
    assert_int_equal(fake.n_created, 1);
}

static void a_synchronisation_waits_for_the_mark(void **state)
{
    (void)state;
    struct vpmm_mark_hold hold;
    struct vpmm_stream stream = blocking_new(1);
    assert_false(vpmm_order_mark_hold(order, fake_stream(1), &hold));
    assert_int_equal(vpmm_order_mark_free(order, &stream, 0), VPMM_OK);
    assert_true(vpmm_order_mark_hold(order, fake_stream(1), &hold));
    vpmm_order_mark_await(order, &hold, true);
    assert_int_equal(fake.n_synchronized, 1);
    assert_false(vpmm_order_mark_hold(order, fake_stream(1), &hold));
}

/* Who waits for a mark waits for no later one: another thread may make it behind work that only the
 * waiting thread lets go. */
static void a_mark_that_is_waited_for_is_not_recorded_again(void **state)
{
    (void)state;
    struct vpmm_mark_hold hold;
    struct vpmm_stream stream = blocking_new(1);
    assert_int_equal(vpmm_order_mark_free(order, &stream, 0), VPMM_OK);
    int first = fake.last_event;
    assert_true(vpmm_order_mark_hold(order, fake_stream(1), &hold));
    assert_int_equal(vpmm_order_mark_free(order, &stream, 0), VPMM_OK);
    int second = fake.last_event;
    assert_int_not_equal(first, second);
    assert_int_equal(vpmm_order_mark_free(order, &stream, 0), VPMM_OK);
    assert_int_equal(fake.last_event, second);
    vpmm_order_mark_await(order, &hold, true);
    assert_int_equal(state_of(1), VPMM_NOT_READY);
    fake_complete(&fake, second);
    assert_int_equal(state_of(1), VPMM_OK);
    assert_int_equal(fake.n_created, 2);
}

static void other_streams_have_no_mark(void **state)
{
    (void)state;
    fake_stream_create(&fake, 2, 0);
    struct vpmm_stream apart = fake_known(order, 2), blocking = blocking_new(1);
    assert_int_equal(vpmm_order_mark_free(order, &apart, 0), VPMM_OK);
    assert_int_equal(fake.n_records, 0);
    assert_int_equal(vpmm_order_mark_free(order, &blocking, 0), VPMM_OK);
    assert_int_equal(state_of(2), VPMM_OK);
    assert_int_equal(vpmm_order_mark_query(order, VPMM_STREAM_LEGACY), VPMM_OK);
    assert_int_equal(fake.n_queries, 0);
}

static void a_streams_mark_goes_with_it(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        struct vpmm_stream stream = blocking_new(1);
        assert_int_equal(vpmm_order_mark_free(order, &stream, 0), VPMM_OK);
        vpmm_order_stream_gone(order, fake_stream(1));
        assert_false(vpmm_order_has_marks(order));
    }
    assert_int_equal(fake.n_created, 1);
    struct vpmm_stream stream = blocking_new(1);
    assert_int_equal(vpmm_order_mark_free(order, &stream, 0), VPMM_OK);
    struct vpmm_departure departure = vpmm_order_context_leaving(order, fake_context(0), true);
    fake_context_destroy(&fake, 0);
    vpmm_order_context_left(order, &departure, true);
    assert_false(vpmm_order_has_marks(order));
    assert_int_equal(n_events(), 0);
}

static bool malloc_is_marked(struct vpmm_stream *stream, uint64_t bytes)
{
    int n_records = fake.n_records;
    vpmm_order_mark_malloc(order, stream, bytes, true);
    return fake.n_records != n_records;
}

static void what_others_freed_is_marked_however_much_the_stream_freed(void **state)
{
    (void)state;
    struct vpmm_stream stream = blocking_new(1);
    assert_int_equal(vpmm_order_mark_free(order, &stream, 10), VPMM_OK);
    int n_records = fake.n_records;
    vpmm_order_mark_malloc(order, &stream, 10, false);
    assert_int_equal(fake.n_records, n_records + 1);
    assert_false(malloc_is_marked(&stream, 10));
}

static void what_a_stream_freed_itself_it_takes_without_a_mark(void **state)
{
    (void)state;
    struct vpmm_mark_hold hold;
    struct vpmm_stream one = blocking_new(1), two = blocking_new(2);
    assert_true(malloc_is_marked(&one, 10));
    assert_int_equal(vpmm_order_mark_free(order, &one, 10), VPMM_OK);
    assert_true(malloc_is_marked(&two, 10));
    assert_true(malloc_is_marked(&one, 11));
    assert_false(malloc_is_marked(&one, 4));
    assert_false(malloc_is_marked(&one, 6));
    assert_true(malloc_is_marked(&one, 1));
    assert_int_equal(vpmm_order_mark_free(order, &one, 10), VPMM_OK);
    assert_int_equal(vpmm_order_mark_free(order, &one, 0), VPMM_OK);
    if (vpmm_order_mark_hold(order, fake_stream(2), &hold))
        vpmm_order_mark_await(order, &hold, true);
    assert_false(malloc_is_marked(&one, 5));
    if (vpmm_order_mark_hold(order, fake_stream(1), &hold))
        vpmm_order_mark_await(order, &hold, true);
    assert_true(malloc_is_marked(&one, 5));
    assert_int_equal(vpmm_order_mark_free(order, &one, 10), VPMM_OK);
    vpmm_order_collect(order);
    assert_true(malloc_is_marked(&one, 5));
    assert_int_equal(vpmm_order_mark_free(order, &one, 7), VPMM_OK);
    assert_true(malloc_is_marked(&one, 8));
    assert_false(malloc_is_marked(&one, 7));
}

static void a_new_stream_has_freed_nothing(void **state)
{
    (void)state;
    struct vpmm_stream stream = blocking_new(1);
    assert_int_equal(vpmm_order_mark_free(order, &stream, 10), VPMM_OK);
    vpmm_order_stream_gone(order, fake_stream(1));
    stream = blocking_new(1);
    assert_true(malloc_is_marked(&stream, 10));
}

/* A thread's own stream ends without a call. */
static void marks_that_are_over_do_not_pile_up(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++) {
        struct vpmm_stream stream = blocking_new(1);
        assert_int_equal(vpmm_order_mark_free(order, &stream, 0), VPMM_OK);
        fake_complete(&fake, fake.last_event);
    }
    assert_in_range(n_events(), 1, 130);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static void without_a_blocking_stream_the_legacy_one_leaves_no_mark(void **state)
{
    (void)state;
    vpmm_atomic32 has_blocking = 0;
    struct vpmm_stream blocking = fake_known(order, 1);
    blocking.is_blocking = true;
    vpmm_order_watch_streams(order, &has_blocking);
    assert_false(vpmm_order_marks_free(order, &legacy));
    assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), VPMM_OK);
    assert_int_equal(fake.n_records, 0);
    assert_int_equal(vpmm_order_mark_free(order, &blocking, 0), VPMM_OK);
    assert_int_equal(fake.n_records, 1);
    vpmm_atomic_store(&has_blocking, 1);
    assert_true(vpmm_order_marks_free(order, &legacy));
    assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), VPMM_OK);
    assert_int_equal(fake.n_records, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(marks_share_an_event_that_is_no_fences),
        TEST(of_later_marks_too_only_a_broken_device_is_told),
        TEST(without_a_blocking_stream_the_legacy_one_leaves_no_mark),
        TEST(a_context_that_leaves_is_not_marked),
        TEST(a_mark_may_meet_a_context_that_was_lost),
        TEST(a_context_leaves_after_the_marks_under_way),
        TEST(a_blocking_stream_is_idle_when_its_last_mark_is_complete),
        TEST(a_synchronisation_waits_for_the_mark),
        TEST(a_mark_that_is_waited_for_is_not_recorded_again),
        TEST(other_streams_have_no_mark),
        TEST(a_streams_mark_goes_with_it),
        TEST(what_a_stream_freed_itself_it_takes_without_a_mark),
        TEST(what_others_freed_is_marked_however_much_the_stream_freed),
        TEST(a_new_stream_has_freed_nothing),
        TEST(marks_that_are_over_do_not_pile_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
