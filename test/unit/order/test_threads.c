/* SPDX-License-Identifier: MIT */
/* Several threads at once. */
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

static vpmm_fence free_on(int stream)
{
    struct vpmm_stream known = fake_known(order, stream);
    return vpmm_order_fence_stream(order, &known);
}

static vpmm_fence free_in(int context)
{
    struct vpmm_context *known;
    enum vpmm_status status;
    assert_int_equal(vpmm_order_context(order, fake_context(context), &known), VPMM_OK);
    vpmm_fence fence = vpmm_order_fence_context(order, known, true, &status);
    assert_int_equal(status, VPMM_OK);
    return fence;
}

static enum vpmm_verdict ask(vpmm_fence fence, int stream)
{
    return vpmm_order_ask(order, fence, stream < 0 ? 0 : fake_known(order, stream).id);
}

static uint64_t n_fences(void)
{
    struct vpmm_order_totals totals;
    vpmm_order_totals(order, &totals);
    return totals.fences;
}

static struct vpmm_stream recorder_stream;

static void *record_in_thread(void *result)
{
    *(vpmm_fence *)result = vpmm_order_fence_stream(order, &recorder_stream);
    return NULL;
}

/* While the record is being made, everything that can be asked is asked: nothing may claim it
 * complete. */
static void test_a_closing_fence_is_not_seen(void **state)
{
    (void)state;
    pthread_t thread;
    vpmm_fence fence = VPMM_FENCE_NONE;
    recorder_stream = fake_known(order, 0);
    vpmm_fence before = free_on(0);
    int event_before = fake.last_event;
    fake.stop = FAKE_STOP_RECORD;
    assert_int_equal(pthread_create(&thread, NULL, record_in_thread, &fence), 0);
    fake_await_stop(&fake);
    assert_false(vpmm_order_poll(order));
    assert_int_equal(fake.n_queries, 1);
    assert_int_equal(n_fences(), 1);
    fake_complete(&fake, event_before);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(ask(before, -1), VPMM_VERDICT_COMPLETE);
    fake_go(&fake);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(ask(fence, -1), VPMM_VERDICT_PENDING);
    assert_false(vpmm_order_poll(order));
    fake_complete(&fake, fake.last_event);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(ask(fence, -1), VPMM_VERDICT_COMPLETE);
}

static void *wait_in_thread(void *fence)
{
    return (void *)(uintptr_t)vpmm_order_wait_host(order, *(vpmm_fence *)fence);
}

/* The event of a wait under way is not recorded anew, although its fence has completed meanwhile.
 */
static void test_a_waited_event_is_not_recycled(void **state)
{
    (void)state;
    pthread_t thread;
    void *answer;
    vpmm_fence fence = free_on(0);
    int event = fake.last_event;
    fake.stop = FAKE_STOP_SYNCHRONIZE;
    assert_int_equal(pthread_create(&thread, NULL, wait_in_thread, &fence), 0);
    fake_await_stop(&fake);
    fake_complete(&fake, event);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(ask(fence, -1), VPMM_VERDICT_COMPLETE);
    vpmm_fence other = free_on(0);
    assert_int_not_equal(fake.last_event, event);
    fake_go(&fake);
    assert_int_equal(pthread_join(thread, &answer), 0);
    assert_int_equal((uintptr_t)answer, VPMM_OK);
    assert_int_equal(ask(other, -1), VPMM_VERDICT_PENDING);
    (void)free_on(0);
    assert_int_equal(fake.last_event, event);
}

static void *poll_in_thread(void *unused)
{
    (void)unused;
    (void)vpmm_order_poll(order);
    return NULL;
}

/* A free that parks while the parked fence is being recorded is not covered by that record. */
static void test_parking_while_the_parked_is_recorded(void **state)
{
    (void)state;
    pthread_t thread;
    fake.fail_record_context = VPMM_FAILED;
    vpmm_fence parked = free_in(0);
    fake.stop = FAKE_STOP_RECORD_CONTEXT;
    assert_int_equal(pthread_create(&thread, NULL, poll_in_thread, NULL), 0);
    fake_await_stop(&fake);
    fake.streams[0].is_capturing = true;
    assert_int_equal(free_on(0), parked);
    fake_go(&fake);
    assert_int_equal(pthread_join(thread, NULL), 0);
    fake_complete(&fake, fake.last_event);
    (void)vpmm_order_poll(order);
    assert_int_equal(ask(parked, -1), VPMM_VERDICT_PENDING);
    fake_complete(&fake, fake.last_event);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(ask(parked, -1), VPMM_VERDICT_COMPLETE);
}

#define N_ROUNDS 400
#define N_SHARED 16

static vpmm_atomic64 shared[N_SHARED];
static vpmm_atomic32 is_over;
static vpmm_atomic32 n_revived;

/* Frees on its own stream and in the context, joins with what others made, and lets work end. */
static void *free_often(void *number)
{
    int stream = *(int *)number;
    for (int i = 0; i < N_ROUNDS; i++) {
        vpmm_fence fence = i % 5 ? free_on(stream) : free_in(0);
        vpmm_atomic64 *place = &shared[(stream * 5 + i) % N_SHARED];
        vpmm_fence other = vpmm_atomic_load(place);
        vpmm_atomic_store(place, vpmm_order_join(order, fence, other));
        if (i % 8 == 7) {
            fake_complete_context(&fake, 0);
            (void)vpmm_order_poll(order);
        }
    }
    return NULL;
}

/* What was complete once is complete for ever, whatever becomes of its slot. */
static void *ask_often(void *unused)
{
    (void)unused;
    while (!vpmm_atomic_load(&is_over)) {
        for (int i = 0; i < N_SHARED; i++) {
            struct vpmm_fence_facts facts;
            vpmm_fence fence = vpmm_atomic_load(&shared[i]);
            bool was_complete = vpmm_order_ask(order, fence, 0) == VPMM_VERDICT_COMPLETE;
            vpmm_order_facts(order, fence, &facts);
            (void)vpmm_order_wait_kind(order, fence);
            if (was_complete && vpmm_order_ask(order, fence, 0) != VPMM_VERDICT_COMPLETE)
                vpmm_atomic_add(&n_revived, 1);
        }
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    int streams[3] = {0, 1, 2};
    vpmm_atomic_store(&is_over, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, free_often, &streams[i]), 0);
    assert_int_equal(pthread_create(&threads[3], NULL, ask_often, NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    vpmm_atomic_store(&is_over, 1);
    assert_int_equal(pthread_join(threads[3], NULL), 0);
    assert_int_equal(vpmm_atomic_load(&n_revived), 0);
    fake_complete_context(&fake, 0);
    (void)vpmm_order_poll(order);
    assert_int_equal(n_fences(), 0);
    for (int i = 0; i < N_SHARED; i++)
        assert_int_equal(ask(vpmm_atomic_load(&shared[i]), -1), VPMM_VERDICT_COMPLETE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_a_closing_fence_is_not_seen),
        TEST(test_a_waited_event_is_not_recycled),
        TEST(test_parking_while_the_parked_is_recorded),
        TEST(test_threads),
    };
    return cmocka_run_group_tests_name("order/threads", tests, NULL, NULL);
}
