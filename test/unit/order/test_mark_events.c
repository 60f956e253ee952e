/* SPDX-License-Identifier: MIT */
/* The event of a blocking stream's mark, which the stream gives up where somebody waits for it. */
#include "fake.h"

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

static uint64_t n_events(void)
{
    struct vpmm_order_totals totals;
    vpmm_order_totals(order, &totals);
    return totals.events;
}

static struct vpmm_stream blocking_new(int place)
{
    fake_stream_create(&fake, place, 0);
    fake.streams[place].is_blocking = true;
    return fake_known(order, place);
}

/* Each wait has the next mark take another event. */
static void events_that_were_waited_for_do_not_pile_up(void **state)
{
    (void)state;
    struct vpmm_stream stream = blocking_new(1);
    for (int i = 0; i < 1000; i++) {
        struct vpmm_mark_hold hold;
        assert_int_equal(vpmm_order_mark_free(order, &stream, 0), VPMM_OK);
        assert_true(vpmm_order_mark_hold(order, fake_stream(1), &hold));
        vpmm_order_mark_await(order, &hold, true);
    }
    assert_in_range(n_events(), 1, 3);
}

static void *mark_one_in_thread(void *stream)
{
    return vpmm_order_mark_free(order, stream, 0) ? stream : NULL;
}

/* One thread is about to record the event that another gives up, because a third waits for it. */
static void an_event_of_a_mark_under_way_is_no_fences(void **state)
{
    (void)state;
    pthread_t marker;
    void *failed;
    struct vpmm_mark_hold hold;
    struct vpmm_stream stream = blocking_new(1);
    fake_stream_create(&fake, 2, 0);
    struct vpmm_stream other = fake_known(order, 2);
    assert_int_equal(vpmm_order_mark_free(order, &stream, 0), VPMM_OK);
    int first = fake.last_event;
    fake.stop = FAKE_STOP_RECORD;
    assert_int_equal(pthread_create(&marker, NULL, mark_one_in_thread, &stream), 0);
    fake_await_stop(&fake);
    assert_true(vpmm_order_mark_hold(order, fake_stream(1), &hold));
    vpmm_order_mark_await(order, &hold, false);
    assert_int_equal(vpmm_order_mark_free(order, &stream, 0), VPMM_OK);
    vpmm_fence fence = vpmm_order_fence_stream(order, &other);
    int recorded = fake.last_event;
    fake_go(&fake);
    assert_int_equal(pthread_join(marker, &failed), 0);
    /* The stream is idle, the other one is not. */
    if (fake.last_event == recorded)
        fake_complete(&fake, recorded);
    (void)vpmm_order_poll(order);
    assert_int_equal(vpmm_order_ask(order, fence, 0), VPMM_VERDICT_PENDING);
    assert_int_not_equal(recorded, first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(events_that_were_waited_for_do_not_pile_up, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_event_of_a_mark_under_way_is_no_fences, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
