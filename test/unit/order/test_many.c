/* SPDX-License-Identifier: MIT */
/* More streams than the order's tables have buckets: each keeps its own id, fences and capture,
 * whichever of its neighbours in a chain come and go. */
#include "fake.h"

#include "order/order_internal.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#define NAMES 4096
#define QUEUES 240
#define CAPTURES 64
#define ENDED 400

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

static vpmm_stream_handle handle_of(unsigned number)
{
    return (vpmm_stream_handle)(uintptr_t)(0x10000 + 64 * (uintptr_t)number);
}

/* Any handle is a stream of context 0, without an id. */
static enum vpmm_status facts_of_any(void *self, vpmm_stream_handle handle,
                                     struct vpmm_stream_facts *facts_out)
{
    (void)self;
    (void)handle;
    *facts_out = (struct vpmm_stream_facts){.context = fake_context(0)};
    return VPMM_OK;
}

static uint64_t id_of(vpmm_stream_handle handle)
{
    struct vpmm_stream stream;
    assert_int_equal(vpmm_order_stream(order, handle, &stream), VPMM_OK);
    return stream.id;
}

static void every_stream_keeps_its_id_until_it_is_destroyed(void **state)
{
    (void)state;
    static uint64_t ids[NAMES];
    uint64_t last = 0;
    fake.driver.stream_facts = facts_of_any;
    for (unsigned i = 0; i < NAMES; i++) {
        ids[i] = id_of(handle_of(i));
        assert_true(ids[i] > last);
        last = ids[i];
    }
    for (unsigned i = 0; i < NAMES; i += 3)
        vpmm_order_stream_gone(order, handle_of(i));
    for (unsigned i = 0; i < NAMES; i++) {
        uint64_t id = id_of(handle_of(i));
        if (i % 3 ? id != ids[i] : id <= last)
            fail_msg("stream %u: id %#llx, before %#llx", i, (unsigned long long)id,
                     (unsigned long long)ids[i]);
        ids[i] = id;
    }
    for (unsigned i = NAMES; i-- > 0;)
        assert_int_equal(id_of(handle_of(i)), ids[i]);
}

static void streams_that_cannot_be_destroyed_keep_their_ids(void **state)
{
    (void)state;
    fake.has_ids = false;
    uint64_t per_thread = id_of(VPMM_STREAM_PER_THREAD);
    uint64_t legacy = id_of(VPMM_STREAM_LEGACY);
    vpmm_order_stream_gone(order, VPMM_STREAM_PER_THREAD);
    vpmm_order_stream_gone(order, VPMM_STREAM_LEGACY);
    assert_int_equal(id_of(VPMM_STREAM_PER_THREAD), per_thread);
    assert_int_equal(id_of(VPMM_STREAM_LEGACY), legacy);
}

static void *name_own_stream(void *id_out)
{
    *(uint64_t *)id_out = id_of(VPMM_STREAM_PER_THREAD);
    return NULL;
}

static void threads_that_have_ended_leave_few_names(void **state)
{
    (void)state;
    fake.has_ids = false;
    uint64_t last = id_of(VPMM_STREAM_PER_THREAD), own = last, id = 0;
    for (unsigned i = 0; i < ENDED; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, name_own_stream, &id), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(id > last);
        last = id;
    }
    assert_in_range(order->names.n_used, 1, ENDED / 2);
    assert_int_equal(id_of(VPMM_STREAM_PER_THREAD), own);
}

static void contexts_that_have_ended_leave_few_names(void **state)
{
    (void)state;
    fake.has_ids = false;
    for (unsigned i = 0; i < ENDED; i++) {
        (void)id_of(VPMM_STREAM_LEGACY);
        struct vpmm_departure departure = vpmm_order_context_leaving(order, fake_context(0), true);
        fake_context_destroy(&fake, 0);
        fake_context_create(&fake, 0);
        vpmm_order_context_left(order, &departure, true);
    }
    assert_in_range(order->names.n_used, 1, ENDED / 2);
}

static vpmm_fence free_as(unsigned number)
{
    fake.streams[0].id = 1 + number;
    struct vpmm_stream stream = fake_known(order, 0);
    return vpmm_order_fence_stream(order, &stream);
}

static void a_fence_is_complete_when_its_own_stream_got_there(void **state)
{
    (void)state;
    vpmm_fence fences[QUEUES];
    int events[QUEUES];
    bool is_complete[QUEUES] = {false};
    for (unsigned i = 0; i < QUEUES; i++) {
        fences[i] = free_as(i);
        events[i] = fake.last_event;
    }
    for (unsigned i = 0; i < QUEUES; i++) {
        unsigned next = i * 77 % QUEUES;
        fake_complete(&fake, events[next]);
        is_complete[next] = true;
        assert_true(vpmm_order_poll(order));
        for (unsigned k = 0; k < QUEUES; k++)
            if ((vpmm_order_ask(order, fences[k], 0) == VPMM_VERDICT_COMPLETE) != is_complete[k])
                fail_msg("fence %u after %u completions", k, i + 1);
    }
    /* Their queues are gone; the streams go on. */
    vpmm_fence again = free_as(7);
    assert_int_equal(vpmm_order_ask(order, again, fake_known(order, 0).id), VPMM_VERDICT_ORDERED);
    assert_int_equal(vpmm_order_ask(order, fences[7], 0), VPMM_VERDICT_COMPLETE);
}

/* What one request pays does not grow with the streams, and each stream's turn comes. One fence is
 * complete, which is asked about in addition. */
static void a_glance_asks_a_few_streams_and_the_next_one_others(void **state)
{
    (void)state;
    vpmm_fence fences[QUEUES];
    int events[QUEUES];
    for (unsigned i = 0; i < QUEUES; i++) {
        fences[i] = free_as(i);
        events[i] = fake.last_event;
    }
    for (unsigned i = 0; i < QUEUES; i += 31) {
        unsigned n_glances = 0;
        fake_complete(&fake, events[i]);
        while (vpmm_order_ask(order, fences[i], 0) != VPMM_VERDICT_COMPLETE) {
            bool has_others;
            fake.n_queries = 0;
            (void)vpmm_order_glance(order, &has_others);
            assert_in_range(fake.n_queries, 0, 7 + 2);
            assert_true(has_others);
            assert_in_range(++n_glances, 1, (VPMM_PASSES_MAX + 1) * QUEUES / 7);
        }
    }
}

/* Who finds nothing asks as often as glances have left, and at least as often as a glance. */
static void requests_ask_in_proportion_to_their_number(void **state)
{
    (void)state;
    for (unsigned i = 0; i < QUEUES; i++)
        (void)free_as(i);
    for (unsigned round = 0; round < 8; round++) {
        bool has_others;
        fake.n_queries = 0;
        for (unsigned i = 0; i < 10; i++)
            (void)vpmm_order_glance(order, &has_others);
        (void)vpmm_order_poll_more(order, &has_others);
        assert_in_range(fake.n_queries, 7, 11 * 7);
        fake.n_queries = 0;
        (void)vpmm_order_poll_more(order, &has_others);
        assert_int_equal(fake.n_queries, 7);
        assert_true(has_others);
    }
}

static void the_gate_opens_after_the_last_of_many_captures(void **state)
{
    (void)state;
    fake.driver.stream_facts = facts_of_any;
    struct vpmm_context *context = NULL;
    for (unsigned i = 0; i < CAPTURES; i++) {
        context = vpmm_order_capture_begin(order, handle_of(i));
        vpmm_order_capture_began(order, context, handle_of(i), true);
        assert_int_equal(vpmm_order_captures(order), i + 1);
    }
    /* One that was not begun, one that nobody knows of. */
    vpmm_order_capture_began(order, vpmm_order_capture_begin(order, handle_of(CAPTURES)),
                             handle_of(CAPTURES), false);
    vpmm_order_capture_recheck(order, handle_of(CAPTURES));
    assert_int_equal(vpmm_order_captures(order), CAPTURES);
    for (unsigned i = 0; i < CAPTURES; i++) {
        vpmm_stream_handle next = handle_of(i * 37 % CAPTURES);
        assert_true(vpmm_order_captures(order));
        if (i % 2)
            vpmm_order_stream_gone(order, next);
        vpmm_order_capture_recheck(order, next);
        assert_int_equal(vpmm_order_captures(order), CAPTURES - 1 - i);
    }
    assert_false(vpmm_order_captures(order));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_stream_keeps_its_id_until_it_is_destroyed),
        TEST(streams_that_cannot_be_destroyed_keep_their_ids),
        TEST(threads_that_have_ended_leave_few_names),
        TEST(contexts_that_have_ended_leave_few_names),
        TEST(a_fence_is_complete_when_its_own_stream_got_there),
        TEST(a_glance_asks_a_few_streams_and_the_next_one_others),
        TEST(requests_ask_in_proportion_to_their_number),
        TEST(the_gate_opens_after_the_last_of_many_captures),
    };
    return cmocka_run_group_tests_name("order/many", tests, NULL, NULL);
}
