/* SPDX-License-Identifier: MIT */
/* Which of two fences stands for both. */
#include "fake.h"

#include "order/order_program.h"

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

static void assert_later(vpmm_fence a, vpmm_fence b, vpmm_fence expected)
{
    assert_int_equal(vpmm_order_later(order, a, b), expected);
    assert_int_equal(vpmm_order_later(order, b, a), expected);
}

static void of_one_stream_it_is_the_one_recorded_later(void **state)
{
    (void)state;
    vpmm_fence first = free_on(0), second = free_on(0);
    assert_later(first, second, second);
}

static void an_open_one_is_later_than_what_is_recorded(void **state)
{
    (void)state;
    struct vpmm_stream known = fake_known(order, 0);
    vpmm_fence open = vpmm_order_open(order, &known);
    vpmm_fence recorded = free_on(0);
    assert_later(recorded, open, open);
    assert_int_equal(vpmm_order_close(order, open, &known, false), VPMM_OK);
    assert_later(recorded, open, open);
}

/* The frees that join one may come after the record of the other. */
static void of_two_open_ones_there_is_none(void **state)
{
    (void)state;
    struct vpmm_stream known = fake_known(order, 0);
    vpmm_fence one = vpmm_order_open(order, &known), other = vpmm_order_open(order, &known);
    assert_later(one, other, VPMM_FENCE_NONE);
}

/* What was freed at a later turn must not pass for what was freed at an earlier one. */
static void of_two_turns_of_a_batch_there_is_none(void **state)
{
    (void)state;
    struct vpmm_stream known = fake_known(order, 0);
    vpmm_fence batch = vpmm_order_open(order, &known);
    vpmm_order_joined(order, batch, 5);
    vpmm_fence earlier = vpmm_order_of_turn(order, batch, 3);
    assert_int_not_equal(earlier, batch);
    assert_later(earlier, batch, VPMM_FENCE_NONE);
    assert_int_equal(vpmm_order_close(order, batch, &known, false), VPMM_OK);
    assert_later(earlier, batch, VPMM_FENCE_NONE);
}

/* A stream may come after the first turn, and not after the second one. */
static void a_batch_of_an_earlier_turn_does_not_stand_for_a_later_free(void **state)
{
    (void)state;
    struct vpmm_stream known = fake_known(order, 0);
    vpmm_fence batch = vpmm_order_open(order, &known);
    vpmm_fence alone = free_on(0);
    assert_later(batch, alone, batch);
    vpmm_order_joined(order, batch, 3);
    assert_later(batch, alone, VPMM_FENCE_NONE);
    vpmm_fence second = vpmm_order_open(order, &known);
    vpmm_order_joined(order, second, 5);
    assert_int_equal(vpmm_order_close(order, second, &known, false), VPMM_OK);
    assert_later(batch, second, VPMM_FENCE_NONE);
    vpmm_order_joined(order, batch, 5);
    assert_later(batch, second, batch);
}

static vpmm_fence closing, beside;

static void free_beside(struct fake *self)
{
    self->after_record = NULL;
    beside = free_on(0);
    assert_later(closing, beside, beside);
}

/* Its event is recorded, and does not stand for what another thread frees before that is told. */
static void one_whose_record_is_being_made_is_open_no_more(void **state)
{
    (void)state;
    struct vpmm_stream known = fake_known(order, 0);
    beside = VPMM_FENCE_NONE;
    closing = vpmm_order_open(order, &known);
    fake.after_record = free_beside;
    assert_int_equal(vpmm_order_close(order, closing, &known, false), VPMM_OK);
    assert_int_not_equal(beside, VPMM_FENCE_NONE);
    assert_later(closing, beside, beside);
}

/* Closed by an event of the whole context it is still of its stream alone. */
static void one_that_was_open_goes_by_the_record_that_closed_it(void **state)
{
    (void)state;
    struct vpmm_stream known = fake_known(order, 0);
    vpmm_fence open = vpmm_order_open(order, &known);
    vpmm_order_close_all(order, &open, 1);
    vpmm_fence recorded = free_on(0);
    assert_later(recorded, open, recorded);
}

static void of_two_streams_there_is_none(void **state)
{
    (void)state;
    vpmm_fence one = free_on(0), other = free_on(1);
    assert_later(one, other, VPMM_FENCE_NONE);
    vpmm_fence both = vpmm_order_join(order, one, other);
    assert_later(free_on(0), both, VPMM_FENCE_NONE);
}

static void a_context_has_none(void **state)
{
    (void)state;
    enum vpmm_status status;
    struct vpmm_stream known = fake_known(order, 0);
    vpmm_fence one = free_on(0);
    vpmm_fence all = vpmm_order_fence_context(order, known.context, true, &status);
    assert_later(one, all, VPMM_FENCE_NONE);
}

static void of_a_complete_one_and_another_it_is_the_other(void **state)
{
    (void)state;
    vpmm_fence first = free_on(0);
    fake_complete(&fake, fake.last_event);
    assert_true(vpmm_order_poll(order));
    vpmm_fence other = free_on(1);
    assert_later(first, other, other);
    assert_later(first, VPMM_FENCE_NONE, VPMM_FENCE_NONE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(of_one_stream_it_is_the_one_recorded_later),
        TEST(an_open_one_is_later_than_what_is_recorded),
        TEST(of_two_open_ones_there_is_none),
        TEST(of_two_turns_of_a_batch_there_is_none),
        TEST(a_batch_of_an_earlier_turn_does_not_stand_for_a_later_free),
        TEST(one_whose_record_is_being_made_is_open_no_more),
        TEST(one_that_was_open_goes_by_the_record_that_closed_it),
        TEST(of_two_streams_there_is_none),
        TEST(a_context_has_none),
        TEST(of_a_complete_one_and_another_it_is_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
