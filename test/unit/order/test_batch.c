/* SPDX-License-Identifier: MIT */
/* Open fences: what they say before they are closed, how they are closed, and what they say then.
 */
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

static vpmm_fence open_on(int stream)
{
    struct vpmm_stream known = fake_known(order, stream);
    return vpmm_order_open(order, &known);
}

static enum vpmm_status close_on(int stream, vpmm_fence fence, bool is_alone)
{
    struct vpmm_stream known = fake_known(order, stream);
    return vpmm_order_close(order, fence, &known, is_alone);
}

static vpmm_fence free_on(int stream)
{
    struct vpmm_stream known = fake_known(order, stream);
    return vpmm_order_fence_stream(order, &known);
}

static enum vpmm_verdict ask(vpmm_fence fence, int stream)
{
    return vpmm_order_ask(order, fence, stream < 0 ? 0 : fake_known(order, stream).id);
}

static enum vpmm_fence_kind kind_of(vpmm_fence fence)
{
    struct vpmm_fence_facts facts;
    vpmm_order_facts(order, fence, &facts);
    return facts.kind;
}

static uint64_t n_fences(void)
{
    struct vpmm_order_totals totals;
    vpmm_order_totals(order, &totals);
    return totals.fences;
}

/* Whatever it is closed by, it is its stream's own, and nobody else's before it is complete. */
static void assert_is_of(vpmm_fence fence, int stream, int other)
{
    assert_int_equal(ask(fence, stream), VPMM_VERDICT_ORDERED);
    assert_int_equal(ask(fence, other), VPMM_VERDICT_PENDING);
    assert_int_equal(ask(fence, -1), VPMM_VERDICT_PENDING);
}

static void assert_completes(vpmm_fence fence)
{
    fake_complete(&fake, fake.last_event);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(ask(fence, -1), VPMM_VERDICT_COMPLETE);
    assert_int_equal(n_fences(), 0);
}

static void an_open_fence_is_its_streams_alone(void **state)
{
    (void)state;
    vpmm_fence fence = open_on(0);
    uint64_t context_id = vpmm_context_id(fake_known(order, 0).context);
    assert_int_not_equal(fence, VPMM_FENCE_NONE);
    assert_is_of(fence, 0, 1);
    assert_int_equal(kind_of(fence), VPMM_FENCE_IS_OPEN);
    assert_true(vpmm_order_covers(order, fence, context_id, fake_known(order, 0).id));
    assert_false(vpmm_order_covers(order, fence, context_id, fake_known(order, 1).id));
    assert_true(vpmm_order_covers(order, fence, context_id, 0));
    assert_false(vpmm_order_poll(order));
    assert_int_equal(fake.n_created, 0);
    assert_int_equal(n_fences(), 0);
}

static void an_open_fence_may_not_be_waited_for(void **state)
{
    (void)state;
    vpmm_fence fence = open_on(0);
    struct vpmm_stream other = fake_known(order, 1);
    assert_int_equal(vpmm_order_wait_kind(order, fence), VPMM_WAIT_NEVER);
    assert_int_equal(vpmm_order_wait_host(order, fence), VPMM_INVALID);
    assert_int_equal(vpmm_order_wait_stream(order, fence, &other), VPMM_INVALID);
    assert_int_equal(fake.n_stream_waits + fake.n_synchronized, 0);
}

static void its_stream_closes_it_by_one_record(void **state)
{
    (void)state;
    vpmm_fence fence = open_on(0);
    assert_int_equal(close_on(0, fence, true), VPMM_OK);
    assert_int_equal(fake.n_records, 1);
    assert_ptr_equal(fake.events[fake.last_event].stream, fake_stream(0));
    assert_int_equal(kind_of(fence), VPMM_FENCE_IS_STREAM);
    assert_int_equal(vpmm_order_wait_kind(order, fence), VPMM_WAIT_STREAM);
    assert_is_of(fence, 0, 1);
    assert_int_equal(n_fences(), 1);
    assert_completes(fence);
}

/* Its event covers work that was queued after all frees but the last. */
static void a_fence_of_several_frees_may_not_be_waited_for(void **state)
{
    (void)state;
    vpmm_fence fence = open_on(0);
    assert_int_equal(close_on(0, fence, false), VPMM_OK);
    assert_int_equal(vpmm_order_wait_kind(order, fence), VPMM_WAIT_NEVER);
    assert_int_equal(vpmm_order_wait_host(order, fence), VPMM_INVALID);
    assert_completes(fence);
}

static void one_record_closes_all_of_a_context(void **state)
{
    (void)state;
    const vpmm_fence fences[] = {open_on(0), open_on(1), open_on(2)};
    vpmm_order_close_all(order, fences, 3);
    assert_int_equal(fake.n_context_records, 1);
    assert_int_equal(fake.n_records, 0);
    for (int i = 0; i < 3; i++) {
        assert_is_of(fences[i], i, 3);
        assert_int_not_equal(kind_of(fences[i]), VPMM_FENCE_IS_OPEN);
        assert_int_equal(vpmm_order_wait_kind(order, fences[i]), VPMM_WAIT_NEVER);
    }
    assert_int_equal(n_fences(), 3);
    assert_completes(fences[0]);
    assert_int_equal(ask(fences[1], -1), VPMM_VERDICT_COMPLETE);
    assert_int_equal(ask(fences[2], -1), VPMM_VERDICT_COMPLETE);
}

static void each_context_has_a_record_of_its_own(void **state)
{
    (void)state;
    fake_stream_create(&fake, 1, 2);
    const vpmm_fence fences[] = {open_on(0), open_on(1), open_on(2)};
    vpmm_order_close_all(order, fences, 3);
    assert_int_equal(fake.n_context_records, 2);
    fake_complete_context(&fake, 0);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(ask(fences[0], -1), VPMM_VERDICT_COMPLETE);
    assert_int_equal(ask(fences[2], -1), VPMM_VERDICT_COMPLETE);
    assert_is_of(fences[1], 1, 0);
    assert_completes(fences[1]);
}

static void what_is_closed_is_left_alone(void **state)
{
    (void)state;
    const vpmm_fence fences[] = {open_on(0), open_on(1), VPMM_FENCE_NONE};
    assert_int_equal(close_on(0, fences[0], true), VPMM_OK);
    fake_complete(&fake, fake.last_event);
    assert_true(vpmm_order_poll(order));
    vpmm_order_close_all(order, fences, 3);
    vpmm_order_close_all(order, fences, 3);
    assert_int_equal(fake.n_context_records, 1);
    assert_int_equal(fake.n_records, 1);
    assert_completes(fences[1]);
}

static void a_record_that_fails_is_made_of_the_context(void **state)
{
    (void)state;
    vpmm_fence fence = open_on(0);
    fake.fail_record = VPMM_FAILED;
    assert_int_equal(close_on(0, fence, true), VPMM_OK);
    assert_int_equal(fake.n_context_records, 1);
    assert_is_of(fence, 0, 1);
    assert_int_equal(vpmm_order_wait_kind(order, fence), VPMM_WAIT_NEVER);
    assert_completes(fence);
}

static void a_broken_device_is_told_and_the_fence_is_closed(void **state)
{
    (void)state;
    vpmm_fence fence = open_on(0);
    fake.fail_record = VPMM_BROKEN;
    assert_int_equal(close_on(0, fence, true), VPMM_BROKEN);
    assert_int_not_equal(kind_of(fence), VPMM_FENCE_IS_OPEN);
    assert_completes(fence);
}

/* A poll records what is parked, as soon as that can be. */
static void without_any_record_it_is_parked(void **state)
{
    (void)state;
    vpmm_fence fence = open_on(0);
    fake.fail_record = VPMM_FAILED;
    fake.fail_record_context = VPMM_FAILED;
    assert_int_equal(close_on(0, fence, true), VPMM_OK);
    assert_int_equal(kind_of(fence), VPMM_FENCE_IS_JOINED);
    assert_is_of(fence, 0, 1);
    assert_false(vpmm_order_poll(order));
    assert_int_equal(fake.n_context_records, 2);
    assert_is_of(fence, 0, 1);
    assert_completes(fence);
}

static void during_a_capture_it_is_parked(void **state)
{
    (void)state;
    const vpmm_fence fences[] = {open_on(0), open_on(1)};
    vpmm_stream_handle handle = fake_stream(0);
    struct vpmm_stream known = fake_known(order, 0);
    struct vpmm_context *ticket = vpmm_order_capture_begin(order, handle);
    fake_capture(&fake, 0, true);
    vpmm_order_capture_began(order, ticket, handle, true);
    known.is_capturing = true;
    assert_int_equal(vpmm_order_close(order, fences[0], &known, true), VPMM_OK);
    vpmm_order_close_all(order, fences, 2);
    assert_int_equal(fake.n_records + fake.n_context_records, 0);
    assert_int_equal(vpmm_order_ask(order, fences[0], known.id), VPMM_VERDICT_ORDERED);
    assert_is_of(fences[1], 1, 2);
    fake_capture(&fake, 0, false);
    vpmm_order_capture_ended(order, handle);
    assert_false(vpmm_order_poll(order));
    assert_int_equal(fake.n_context_records, 1);
    assert_is_of(fences[0], 0, 1);
    assert_completes(fences[0]);
    assert_int_equal(ask(fences[1], -1), VPMM_VERDICT_COMPLETE);
}

static void with_its_context_it_is_complete(void **state)
{
    (void)state;
    vpmm_fence fences[] = {open_on(0), open_on(1)};
    struct vpmm_stream known = fake_known(order, 0);
    fake_stream_create(&fake, 2, 2);
    fake_stream_create(&fake, 3, 2);
    vpmm_fence other = open_on(2);
    struct vpmm_departure departure = vpmm_order_context_leaving(order, fake_context(0), true);
    fake_context_destroy(&fake, 0);
    vpmm_order_context_left(order, &departure, true);
    assert_int_equal(ask(fences[0], -1), VPMM_VERDICT_COMPLETE);
    assert_int_equal(ask(fences[1], -1), VPMM_VERDICT_COMPLETE);
    assert_is_of(other, 2, 3);
    assert_int_equal(vpmm_order_open(order, &known), VPMM_FENCE_NONE);
    assert_int_equal(vpmm_order_close(order, fences[0], &known, true), VPMM_OK);
    assert_int_equal(n_fences(), 0);
}

/* The record is older than whatever free joins the open fence later. */
static void no_earlier_record_stands_for_it(void **state)
{
    (void)state;
    vpmm_fence fence = open_on(0);
    vpmm_fence recorded = free_on(0);
    vpmm_fence joined = vpmm_order_join(order, fence, recorded);
    fake_complete(&fake, fake.last_event);
    assert_true(vpmm_order_poll(order));
    assert_is_of(joined, 0, 1);
    assert_int_equal(close_on(0, fence, true), VPMM_OK);
    assert_is_of(joined, 0, 1);
    assert_completes(joined);
}

/* Nor does it, while it is open, for what was recorded: nobody can say when it will be closed. */
static void it_stands_for_no_record_while_it_is_open(void **state)
{
    (void)state;
    vpmm_fence recorded = free_on(0);
    vpmm_fence joined = vpmm_order_join(order, recorded, open_on(0));
    assert_int_equal(kind_of(joined), VPMM_FENCE_IS_JOINED);
    assert_is_of(joined, 0, 1);
}

static void without_memory_there_is_none(void **state)
{
    (void)state;
    vpmm_fence fence = open_on(0);
    struct vpmm_stream known = fake_known(order, 0);
    fake.fail_map = fake.n_maps + 1;
    for (int i = 0; i < 1 << 20 && fence; i++)
        fence = vpmm_order_open(order, &known);
    assert_int_equal(fence, VPMM_FENCE_NONE);
    assert_int_not_equal(vpmm_order_open(order, &known), VPMM_FENCE_NONE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_open_fence_is_its_streams_alone),
        TEST(an_open_fence_may_not_be_waited_for),
        TEST(its_stream_closes_it_by_one_record),
        TEST(a_fence_of_several_frees_may_not_be_waited_for),
        TEST(one_record_closes_all_of_a_context),
        TEST(each_context_has_a_record_of_its_own),
        TEST(what_is_closed_is_left_alone),
        TEST(a_record_that_fails_is_made_of_the_context),
        TEST(a_broken_device_is_told_and_the_fence_is_closed),
        TEST(without_any_record_it_is_parked),
        TEST(during_a_capture_it_is_parked),
        TEST(with_its_context_it_is_complete),
        TEST(no_earlier_record_stands_for_it),
        TEST(it_stands_for_no_record_while_it_is_open),
        TEST(without_memory_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
