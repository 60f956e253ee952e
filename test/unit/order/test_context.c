/* SPDX-License-Identifier: MIT */
/* Contexts and streams: identity, death, and what becomes of their fences. */
#include "fake.h"

#include "base/atomic.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

static struct fake fake;
static struct vpmm_order *order;

static int setup(void **state)
{
    (void)state;
    fake_init(&fake);
    order = fake_order(&fake);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_order_end(&fake, order);
    return 0;
}

static struct vpmm_context *known_context(int context)
{
    struct vpmm_context *known;
    assert_int_equal(vpmm_order_context(order, fake_context(context), &known), VPMM_OK);
    return known;
}

static vpmm_fence free_of(struct vpmm_context *context)
{
    enum vpmm_status status;
    return vpmm_order_fence_context(order, context, true, &status);
}

static vpmm_fence free_in(int context)
{
    return free_of(known_context(context));
}

static vpmm_fence free_on(int stream)
{
    struct vpmm_stream known = fake_known(order, stream);
    return vpmm_order_fence_stream(order, &known);
}

static enum vpmm_verdict ask(vpmm_fence fence)
{
    return vpmm_order_ask(order, fence, 0);
}

static void destroy(int context)
{
    struct vpmm_departure departure =
        vpmm_order_context_leaving(order, fake_context(context), true);
    fake_context_destroy(&fake, context);
    vpmm_order_context_left(order, &departure, true);
}

static struct vpmm_order_totals totals(void)
{
    struct vpmm_order_totals now;
    vpmm_order_totals(order, &now);
    return now;
}

static void test_contexts(void **state)
{
    (void)state;
    struct vpmm_context *a = known_context(0);
    struct vpmm_context *b = known_context(1);
    struct vpmm_context *current;
    assert_ptr_equal(known_context(0), a);
    assert_ptr_not_equal(a, b);
    assert_int_not_equal(vpmm_context_id(a), 0);
    assert_int_not_equal(vpmm_context_id(a), vpmm_context_id(b));
    assert_int_equal(vpmm_context_device(a), 0);
    assert_int_equal(vpmm_context_device(b), 1);
    assert_ptr_equal(vpmm_order_context_by_id(order, vpmm_context_id(b)), b);
    assert_null(vpmm_order_context_by_id(order, 0));
    assert_null(vpmm_order_context_by_id(order, 3));
    fake.current = 1;
    assert_int_equal(vpmm_order_context(order, NULL, &current), VPMM_OK);
    assert_ptr_equal(current, b);
    fake.current = 2;
    assert_int_equal(vpmm_order_context(order, NULL, &current), VPMM_OK);
    assert_ptr_equal(current, known_context(2));
    fake.current = -1;
    assert_int_equal(vpmm_order_context(order, NULL, &current), VPMM_NO_CONTEXT);
    fake.contexts[3].is_alive = false;
    assert_int_equal(vpmm_order_context(order, fake_context(3), &current), VPMM_CONTEXT_GONE);
    assert_int_equal(totals().contexts, 3);
}

static vpmm_context_handle green_context;

static enum vpmm_status current_is_green(void *self, vpmm_context_handle *context_out)
{
    (void)self;
    *context_out = green_context;
    return VPMM_OK;
}

/* A green context is current: what counts is its primary one, which owns all its streams. */
static void test_green_context(void **state)
{
    (void)state;
    struct vpmm_context *current;
    int not_a_context;
    green_context = (vpmm_context_handle)(void *)&not_a_context;
    fake.driver.context_current = current_is_green;
    assert_int_equal(vpmm_order_context(order, NULL, &current), VPMM_OK);
    assert_ptr_equal(current, known_context(0));
    assert_int_equal(totals().contexts, 1);
}

static void test_death_completes(void **state)
{
    (void)state;
    fake_stream_create(&fake, 5, 1);
    for (int i = 0; i < 3; i++)
        (void)free_on(0);
    fake_complete_context(&fake, 0);
    assert_true(vpmm_order_poll(order));
    fake.fail_record_context = VPMM_FAILED;
    vpmm_fence parked = free_in(0);
    vpmm_fence in_context = free_in(0);
    vpmm_fence on_stream = free_on(0);
    vpmm_fence elsewhere = free_on(5);
    vpmm_fence both = vpmm_order_join(order, on_stream, elsewhere);
    struct vpmm_context *old = known_context(0);
    destroy(0);
    assert_true(vpmm_context_is_gone(old));
    assert_int_equal(ask(parked), VPMM_VERDICT_COMPLETE);
    assert_int_equal(ask(in_context), VPMM_VERDICT_COMPLETE);
    assert_int_equal(ask(on_stream), VPMM_VERDICT_COMPLETE);
    assert_int_equal(ask(elsewhere), VPMM_VERDICT_PENDING);
    assert_int_equal(ask(both), VPMM_VERDICT_PENDING);
    assert_false(vpmm_order_poll(order));
    enum vpmm_status status;
    assert_int_equal(totals().events, 1);
    assert_int_equal(vpmm_order_fence_context(order, old, true, &status), VPMM_FENCE_NONE);
    fake_context_create(&fake, 0);
    struct vpmm_context *next = known_context(0);
    assert_ptr_not_equal(next, old);
    assert_int_not_equal(vpmm_context_id(next), vpmm_context_id(old));
    assert_true(vpmm_context_is_gone(old));
    assert_false(vpmm_context_is_gone(next));
    assert_int_equal(ask(free_in(0)), VPMM_VERDICT_PENDING);
    destroy(1);
    assert_int_equal(ask(both), VPMM_VERDICT_COMPLETE);
    assert_int_equal(totals().fences, 1);
}

static void test_leaving_touches_nothing(void **state)
{
    (void)state;
    vpmm_fence before = free_on(0);
    struct vpmm_stream stream = fake_known(order, 0);
    int n_created = fake.n_created;
    struct vpmm_departure departure = vpmm_order_context_leaving(order, fake_context(0), true);
    fake.n_records = fake.n_queries = 0;
    vpmm_fence meanwhile = vpmm_order_fence_stream(order, &stream);
    assert_int_equal(free_of(stream.context), meanwhile);
    fake_complete_context(&fake, 0);
    assert_false(vpmm_order_poll(order));
    assert_int_equal(vpmm_order_wait_stream(order, before, &stream), VPMM_OK);
    assert_int_equal(fake.n_records + fake.n_context_records + fake.n_queries, 0);
    assert_int_equal(fake.n_created, n_created);
    vpmm_order_context_left(order, &departure, false);
    assert_false(vpmm_context_is_gone(stream.context));
    assert_int_equal(ask(meanwhile), VPMM_VERDICT_PENDING);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(ask(before), VPMM_VERDICT_COMPLETE);
    assert_int_equal(ask(meanwhile), VPMM_VERDICT_PENDING);
    fake_complete_context(&fake, 0);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(ask(meanwhile), VPMM_VERDICT_COMPLETE);
}

static void test_context_that_is_not_known(void **state)
{
    (void)state;
    struct vpmm_departure departure = vpmm_order_context_leaving(order, fake_context(7), true);
    assert_null(departure.context);
    vpmm_order_context_left(order, &departure, true);
    assert_false(vpmm_context_is_gone(known_context(0)));
}

static void test_death_ends_captures(void **state)
{
    (void)state;
    struct vpmm_context *ticket = vpmm_order_capture_begin(order, fake_stream(0));
    vpmm_order_capture_began(order, ticket, fake_stream(0), true);
    destroy(0);
    assert_int_equal(vpmm_order_captures(order), 0);
    vpmm_order_capture_recheck(order, fake_stream(0));
    assert_int_equal(vpmm_order_captures(order), 0);
}

/* The destruction was not announced: the events say so, and so must the context itself. */
static void test_unseen_death(void **state)
{
    (void)state;
    vpmm_fence fence = free_on(0);
    fake_stream_create(&fake, 5, 1);
    vpmm_fence elsewhere = free_on(5);
    fake.fail_query = VPMM_CONTEXT_GONE;
    assert_false(vpmm_order_poll(order));
    assert_int_equal(ask(fence), VPMM_VERDICT_PENDING);
    struct vpmm_context *context = known_context(0);
    fake.contexts[0].is_alive = false;
    assert_true(vpmm_order_poll(order));
    assert_true(vpmm_context_is_gone(context));
    assert_int_equal(ask(fence), VPMM_VERDICT_COMPLETE);
    assert_int_equal(ask(elsewhere), VPMM_VERDICT_PENDING);
    fake_context_destroy(&fake, 0);
}

static struct vpmm_stream recorder_stream;

static void *record_in_thread(void *fence)
{
    *(vpmm_fence *)fence = vpmm_order_fence_stream(order, &recorder_stream);
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

static void test_leaving_waits_for_records(void **state)
{
    (void)state;
    pthread_t recorder, destroyer;
    vpmm_fence fence = VPMM_FENCE_NONE;
    vpmm_atomic_store(&has_left, 0);
    recorder_stream = fake_known(order, 0);
    vpmm_fence before = free_on(1);
    struct vpmm_context *context = known_context(0);
    fake.stop = FAKE_STOP_RECORD;
    assert_int_equal(pthread_create(&recorder, NULL, record_in_thread, &fence), 0);
    fake_await_stop(&fake);
    assert_int_equal(pthread_create(&destroyer, NULL, destroy_in_thread, NULL), 0);
    struct vpmm_fence_facts facts;
    vpmm_order_facts(order, free_of(context), &facts);
    while (facts.kind != VPMM_FENCE_IS_PARKED) {
        fake_complete(&fake, fake.last_event);
        (void)vpmm_order_poll(order);
        vpmm_order_facts(order, free_of(context), &facts);
    }
    assert_int_equal(vpmm_atomic_load(&has_left), 0);
    assert_int_equal(ask(before), VPMM_VERDICT_PENDING);
    fake_go(&fake);
    assert_int_equal(pthread_join(recorder, NULL), 0);
    assert_int_equal(pthread_join(destroyer, NULL), 0);
    assert_int_equal(ask(fence), VPMM_VERDICT_COMPLETE);
    assert_int_equal(ask(before), VPMM_VERDICT_COMPLETE);
    assert_int_equal(totals().fences, 0);
}

static void *wait_in_thread(void *fence)
{
    return (void *)(uintptr_t)vpmm_order_wait_host(order, *(vpmm_fence *)fence);
}

static void test_wait_for_a_context_that_dies(void **state)
{
    (void)state;
    pthread_t waiter;
    void *answer;
    vpmm_fence fence = free_on(0);
    struct vpmm_departure departure = vpmm_order_context_leaving(order, fake_context(0), true);
    assert_int_equal(pthread_create(&waiter, NULL, wait_in_thread, &fence), 0);
    while (!vpmm_atomic_load(&fake.n_relaxed))
        ;
    fake_context_destroy(&fake, 0);
    vpmm_order_context_left(order, &departure, true);
    assert_int_equal(pthread_join(waiter, &answer), 0);
    assert_int_equal((uintptr_t)answer, VPMM_OK);
    assert_int_equal(fake.n_synchronized, 0);
}

static void test_stream_identity(void **state)
{
    (void)state;
    struct vpmm_stream legacy, other, again;
    struct vpmm_stream s = fake_known(order, 0);
    assert_int_equal(fake_known(order, 0).id, s.id);
    assert_int_not_equal(fake_known(order, 1).id, s.id);
    assert_false(s.is_legacy);
    vpmm_fence fence = free_on(0);
    vpmm_order_stream_gone(order, fake_stream(0));
    fake_stream_create(&fake, 0, 0);
    assert_int_not_equal(fake_known(order, 0).id, s.id);
    assert_int_equal(vpmm_order_ask(order, fence, fake_known(order, 0).id), VPMM_VERDICT_PENDING);
    assert_int_equal(vpmm_order_stream(order, VPMM_STREAM_LEGACY, &legacy), VPMM_OK);
    assert_true(legacy.is_legacy);
    fake.current = 1;
    assert_int_equal(vpmm_order_stream(order, VPMM_STREAM_LEGACY, &other), VPMM_OK);
    assert_int_not_equal(other.id, legacy.id);
    fake.current = 0;
    assert_int_equal(vpmm_order_stream(order, VPMM_STREAM_LEGACY, &again), VPMM_OK);
    assert_int_equal(again.id, legacy.id);
    fake.current = -1;
    assert_int_equal(vpmm_order_stream(order, VPMM_STREAM_LEGACY, &again), VPMM_NO_CONTEXT);
    fake.streams[3].is_alive = false;
    assert_int_equal(vpmm_order_stream(order, fake_stream(3), &again), VPMM_INVALID);
}

/* A driver that counts its ids by context. */
static void test_ids_are_unique_over_contexts(void **state)
{
    (void)state;
    fake_stream_create(&fake, 1, 1);
    fake.streams[1].id = fake.streams[0].id;
    assert_int_not_equal(fake_known(order, 0).id, fake_known(order, 1).id);
}

static void *per_thread_id(void *id)
{
    struct vpmm_stream stream;
    if (vpmm_order_stream(order, VPMM_STREAM_PER_THREAD, &stream) == VPMM_OK)
        *(uint64_t *)id = stream.id;
    return NULL;
}

/* Before driver 12.0 a handle that comes back is told apart by the destruction between. */
static void test_without_ids(void **state)
{
    (void)state;
    struct vpmm_stream legacy, other;
    uint64_t own = 0, again = 0, thread_id = 0, next_thread_id = 0;
    pthread_t thread;
    fake.has_ids = false;
    uint64_t id = fake_known(order, 0).id;
    assert_int_not_equal(id, 0);
    assert_int_equal(fake_known(order, 0).id, id);
    assert_int_not_equal(fake_known(order, 1).id, id);
    vpmm_fence fence = free_on(0);
    assert_int_equal(vpmm_order_ask(order, fence, id), VPMM_VERDICT_ORDERED);
    vpmm_order_stream_gone(order, fake_stream(0));
    fake_stream_create(&fake, 0, 0);
    uint64_t next = fake_known(order, 0).id;
    assert_int_not_equal(next, id);
    assert_int_equal(vpmm_order_ask(order, fence, next), VPMM_VERDICT_PENDING);
    assert_int_equal(vpmm_order_stream(order, VPMM_STREAM_LEGACY, &legacy), VPMM_OK);
    fake.current = 1;
    assert_int_equal(vpmm_order_stream(order, VPMM_STREAM_LEGACY, &other), VPMM_OK);
    assert_int_not_equal(other.id, legacy.id);
    (void)per_thread_id(&own);
    (void)per_thread_id(&again);
    assert_int_equal(own, again);
    /* The second thread usually gets the memory of the first. */
    assert_int_equal(pthread_create(&thread, NULL, per_thread_id, &thread_id), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, per_thread_id, &next_thread_id), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_not_equal(own, thread_id);
    assert_int_not_equal(thread_id, next_thread_id);
    fake.current = 0;
    (void)per_thread_id(&again);
    assert_int_not_equal(own, again);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_contexts),
        TEST(test_green_context),
        TEST(test_death_completes),
        TEST(test_leaving_touches_nothing),
        TEST(test_context_that_is_not_known),
        TEST(test_death_ends_captures),
        TEST(test_unseen_death),
        TEST(test_leaving_waits_for_records),
        TEST(test_wait_for_a_context_that_dies),
        TEST(test_stream_identity),
        TEST(test_ids_are_unique_over_contexts),
        TEST(test_without_ids),
    };
    return cmocka_run_group_tests_name("order/context", tests, NULL, NULL);
}
