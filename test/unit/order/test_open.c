/* SPDX-License-Identifier: MIT */
/* Open fences that one record closes: each goes on standing for the work of its own stream, also
 * when it is joined with others. */
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
    fake_complete_context(&fake, 0);
    (void)vpmm_order_poll(order);
    fake_order_end(&fake, order);
    return 0;
}

static vpmm_fence open_on(int stream)
{
    struct vpmm_stream known = fake_known(order, stream);
    return vpmm_order_open(order, &known);
}

static enum vpmm_verdict ask(vpmm_fence fence, int stream)
{
    return vpmm_order_ask(order, fence, fake_known(order, stream).id);
}

/* The first of `fences`, of stream 0, gets the event; the second, of stream 1, refers to it. */
static void close_two(vpmm_fence fences[2])
{
    fences[0] = open_on(0);
    fences[1] = open_on(1);
    vpmm_order_close_all(order, fences, 2);
}

static void two_batches_of_a_stream_joined_are_still_that_streams(void **state)
{
    (void)state;
    vpmm_fence old[2];
    vpmm_fence new[2];
    close_two(old);
    close_two(new);
    for (int i = 0; i < 2; i++) {
        vpmm_fence joined =
            i ? vpmm_order_join(order, new[1], old[1]) : vpmm_order_join(order, old[1], new[1]);
        assert_int_equal(ask(joined, 1), VPMM_VERDICT_ORDERED);
        assert_int_equal(ask(joined, 0), VPMM_VERDICT_PENDING);
    }
}

static void batches_of_two_streams_joined_are_nobodys(void **state)
{
    (void)state;
    vpmm_fence fences[2];
    close_two(fences);
    for (int i = 0; i < 2; i++) {
        vpmm_fence joined = vpmm_order_join(order, fences[i], fences[1 - i]);
        assert_int_equal(ask(joined, 0), VPMM_VERDICT_PENDING);
        assert_int_equal(ask(joined, 1), VPMM_VERDICT_PENDING);
    }
}

/* What is parked stands for all streams, whoever else has parked there for one. */
static void a_parked_batch_joined_with_what_is_parked_is_nobodys(void **state)
{
    (void)state;
    struct vpmm_context *context;
    enum vpmm_status status;
    vpmm_fence batch = open_on(1);
    assert_int_equal(vpmm_order_context(order, fake_context(0), &context), VPMM_OK);
    fake.fail_record_context = VPMM_FAILED;
    vpmm_order_close_all(order, &batch, 1);
    assert_int_equal(ask(batch, 1), VPMM_VERDICT_ORDERED);
    fake.fail_record_context = VPMM_FAILED;
    vpmm_fence parked = vpmm_order_fence_context(order, context, true, &status);
    assert_int_equal(ask(vpmm_order_join(order, batch, parked), 1), VPMM_VERDICT_PENDING);
    assert_int_equal(ask(vpmm_order_join(order, parked, batch), 1), VPMM_VERDICT_PENDING);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(two_batches_of_a_stream_joined_are_still_that_streams),
        TEST(batches_of_two_streams_joined_are_nobodys),
        TEST(a_parked_batch_joined_with_what_is_parked_is_nobodys),
    };
    return cmocka_run_group_tests_name("order/open", tests, NULL, NULL);
}
