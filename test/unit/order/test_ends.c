/* SPDX-License-Identifier: MIT */
/* References to a context that may or may not be the last one, and handles that come again. */
#include "fake.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

static struct fake fake;
static struct vpmm_order *order;
static struct vpmm_context *context;
static vpmm_fence fence; /* of a free in it that is not complete */

static vpmm_fence free_in(struct vpmm_context *in)
{
    enum vpmm_status status;
    return vpmm_order_fence_context(order, in, true, &status);
}

static int setup(void **state)
{
    (void)state;
    fake_init(&fake);
    order = fake_order(&fake);
    assert_int_equal(vpmm_order_context(order, fake_context(0), &context), VPMM_OK);
    fence = free_in(context);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_order_end(&fake, order);
    return 0;
}

static struct vpmm_context *look_up(void)
{
    struct vpmm_context *found;
    assert_int_equal(vpmm_order_context(order, fake_context(0), &found), VPMM_OK);
    return found;
}

static bool is_complete(void)
{
    return vpmm_order_ask(order, fence, 0) == VPMM_VERDICT_COMPLETE;
}

static void live_again(void)
{
    fake_context_destroy(&fake, 0);
    fake_context_create(&fake, 0);
}

static struct vpmm_departure release(void)
{
    return vpmm_order_context_leaving(order, fake_context(0), false);
}

/* ---- handles that come again ---- */

static void a_retained_context_that_died_unseen_is_gone(void **state)
{
    (void)state;
    vpmm_order_context_made(order, fake_context(0), false);
    assert_ptr_equal(look_up(), context);
    live_again();
    vpmm_order_context_made(order, fake_context(0), false);
    assert_true(vpmm_context_is_gone(context));
    assert_true(is_complete());
    assert_ptr_not_equal(look_up(), context);
    /* Nothing of the old one's is recorded again. */
    assert_int_equal(vpmm_order_ask(order, free_in(look_up()), 0), VPMM_VERDICT_PENDING);
    assert_int_equal(fake.n_created, 2);
}

/* Where the driver has no ids, a created context is another one, and a retained one may not be. */
static void without_ids_a_created_context_is_another_one(void **state)
{
    (void)state;
    fake.driver.context_id = NULL;
    vpmm_order_context_made(order, fake_context(0), false);
    assert_ptr_equal(look_up(), context);
    live_again();
    vpmm_order_context_made(order, fake_context(0), true);
    assert_ptr_not_equal(look_up(), context);
    assert_true(is_complete());
}

static void an_unknown_handle_is_no_matter(void **state)
{
    (void)state;
    vpmm_order_context_made(order, fake_context(5), true);
    assert_false(vpmm_context_is_gone(context));
    assert_int_equal(vpmm_order_next_gone(order), 0);
}

static void each_context_that_is_gone_is_told_once(void **state)
{
    (void)state;
    uint64_t first = vpmm_context_id(context);
    live_again();
    vpmm_order_context_made(order, fake_context(0), false);
    uint64_t second = vpmm_context_id(look_up());
    live_again();
    vpmm_order_context_made(order, fake_context(0), false);
    (void)look_up();
    assert_int_equal(vpmm_order_next_gone(order), second);
    assert_int_equal(vpmm_order_next_gone(order), first);
    assert_int_equal(vpmm_order_next_gone(order), 0);
}

/* ---- while it is leaving ---- */

/* Nobody waits for the call that may destroy it. */
static void a_leaving_context_is_looked_up_at_once(void **state)
{
    (void)state;
    struct vpmm_departure departure = release();
    assert_ptr_equal(look_up(), context);
    fake.current = 0;
    struct vpmm_context *current;
    assert_int_equal(vpmm_order_context(order, NULL, &current), VPMM_OK);
    assert_ptr_equal(current, context);
    vpmm_order_context_left(order, &departure, false);
    assert_ptr_equal(look_up(), context);
}

/* The call has destroyed it, another thread has brought it to life again and uses it, and only then
 * the call returns. */
static void the_next_one_is_not_taken_for_the_one_that_leaves(void **state)
{
    (void)state;
    struct vpmm_departure departure = release();
    live_again();
    struct vpmm_context *next = look_up();
    assert_ptr_not_equal(next, context);
    assert_true(vpmm_context_is_gone(context));
    vpmm_fence of_next = free_in(next);
    struct vpmm_departure later = release();
    assert_ptr_equal(later.context, next);
    assert_false(vpmm_order_context_lives(order, context));
    vpmm_order_context_left(order, &departure, true);
    assert_false(vpmm_context_is_gone(next));
    assert_int_equal(vpmm_order_ask(order, of_next, 0), VPMM_VERDICT_PENDING);
    assert_true(vpmm_order_context_lives(order, next));
    vpmm_order_context_left(order, &later, false);
    assert_ptr_equal(look_up(), next);
}

static void a_leaving_context_that_is_dead_is_not_found(void **state)
{
    (void)state;
    struct vpmm_context *found;
    struct vpmm_departure departure = release();
    fake_context_destroy(&fake, 0);
    assert_int_equal(vpmm_order_context(order, fake_context(0), &found), VPMM_CONTEXT_GONE);
    vpmm_order_context_left(order, &departure, true);
}

static enum vpmm_status fails_to_tell(void *self, vpmm_context_handle handle, uint64_t *id_out)
{
    (void)self;
    (void)handle;
    (void)id_out;
    return VPMM_BROKEN;
}

/* Only another id is a proof. */
static void an_id_that_cannot_be_had_proves_nothing(void **state)
{
    (void)state;
    fake.driver.context_id = fails_to_tell;
    struct vpmm_departure departure = release();
    assert_ptr_equal(look_up(), context);
    assert_true(vpmm_order_context_lives(order, context));
    vpmm_order_context_made(order, fake_context(0), false);
    vpmm_order_context_left(order, &departure, false);
    assert_false(vpmm_context_is_gone(context));
}

static void a_context_lives_while_the_driver_knows_it(void **state)
{
    (void)state;
    assert_true(vpmm_order_context_lives(order, context));
    live_again();
    assert_false(vpmm_order_context_lives(order, context));
    fake_context_destroy(&fake, 0);
    assert_false(vpmm_order_context_lives(order, context));
    fake.driver.context_id = NULL;
    assert_false(vpmm_order_context_lives(order, context));
    fake_context_create(&fake, 0);
    assert_true(vpmm_order_context_lives(order, context));
    fake_context_destroy(&fake, 0);
    struct vpmm_departure departure = release();
    vpmm_order_context_left(order, &departure, true);
}

/* What the program itself does in it goes on, or the order that its calls make would be lost; the
 * events of it that others ask are let alone. */
static void a_program_goes_on_in_a_context_of_which_a_reference_is_given_up(void **state)
{
    (void)state;
    struct vpmm_fence_facts facts;
    struct vpmm_stream stream = fake_known(order, 0), legacy;
    fake.current = 0;
    assert_int_equal(vpmm_order_stream(order, VPMM_STREAM_LEGACY, &legacy), VPMM_OK);
    assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), VPMM_OK);
    struct vpmm_departure departure = release();
    fake.n_records = fake.n_queries = 0;
    assert_int_equal(vpmm_order_mark_free(order, &legacy, 0), VPMM_OK);
    assert_int_equal(fake.n_records, 1);
    vpmm_order_facts(order, vpmm_order_fence_stream(order, &stream), &facts);
    assert_int_equal(facts.kind, VPMM_FENCE_IS_STREAM);
    assert_int_equal(fake.n_records, 2);
    assert_int_equal(vpmm_order_wait_stream(order, fence, &stream), VPMM_OK);
    assert_int_equal(fake.n_stream_waits, 1);
    vpmm_order_facts(order, free_in(context), &facts);
    assert_int_equal(facts.kind, VPMM_FENCE_IS_PARKED);
    fake_complete_context(&fake, 0);
    assert_false(vpmm_order_poll(order));
    assert_int_equal(fake.n_queries, 0);
    vpmm_order_context_left(order, &departure, false);
    assert_true(vpmm_order_poll(order));
    assert_true(is_complete());
}

/* ---- waits ---- */

static void *wait_in_thread(void *unused)
{
    (void)unused;
    return (void *)(uintptr_t)vpmm_order_wait_host(order, fence);
}

static void *drain_in_thread(void *unused)
{
    (void)unused;
    return (void *)(uintptr_t)vpmm_order_drain_context(order, context);
}

static void expect_ok(pthread_t thread)
{
    void *answer;
    assert_int_equal(pthread_join(thread, &answer), 0);
    assert_int_equal((uintptr_t)answer, VPMM_OK);
}

static void a_reference_is_given_up_beside_who_waits(void **state)
{
    (void)state;
    pthread_t waiter;
    fake.current = 0;
    fake.stop = FAKE_STOP_SYNCHRONIZE;
    assert_int_equal(pthread_create(&waiter, NULL, wait_in_thread, NULL), 0);
    fake_await_stop(&fake);
    struct vpmm_departure departure = release();
    vpmm_order_context_left(order, &departure, false);
    assert_false(is_complete());
    fake_go(&fake);
    expect_ok(waiter);
    assert_true(is_complete());
}

static void a_reference_is_given_up_beside_who_waits_for_the_whole_context(void **state)
{
    (void)state;
    pthread_t waiter;
    fake.stop = FAKE_STOP_SYNCHRONIZE_CONTEXT;
    assert_int_equal(pthread_create(&waiter, NULL, drain_in_thread, NULL), 0);
    fake_await_stop(&fake);
    struct vpmm_departure departure = release();
    vpmm_order_context_left(order, &departure, false);
    fake_go(&fake);
    expect_ok(waiter);
    assert_true(is_complete());
}

/* In another context nobody keeps the waiter's alive: it asks now and then, and waits in no call.
 */
static void a_context_dies_beside_who_waits_in_another_one(void **state)
{
    (void)state;
    pthread_t waiter;
    fake.current = 1;
    fake.stop = FAKE_STOP_QUERY;
    assert_int_equal(pthread_create(&waiter, NULL, wait_in_thread, NULL), 0);
    fake_await_stop(&fake);
    fake_go(&fake);
    struct vpmm_departure departure = vpmm_order_context_leaving(order, fake_context(0), true);
    fake_context_destroy(&fake, 0);
    vpmm_order_context_left(order, &departure, true);
    expect_ok(waiter);
    assert_true(is_complete());
    assert_int_equal(fake.n_synchronized, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_retained_context_that_died_unseen_is_gone),
        TEST(without_ids_a_created_context_is_another_one),
        TEST(an_unknown_handle_is_no_matter),
        TEST(each_context_that_is_gone_is_told_once),
        TEST(a_leaving_context_is_looked_up_at_once),
        TEST(the_next_one_is_not_taken_for_the_one_that_leaves),
        TEST(a_leaving_context_that_is_dead_is_not_found),
        TEST(an_id_that_cannot_be_had_proves_nothing),
        TEST(a_context_lives_while_the_driver_knows_it),
        TEST(a_program_goes_on_in_a_context_of_which_a_reference_is_given_up),
        TEST(a_reference_is_given_up_beside_who_waits),
        TEST(a_reference_is_given_up_beside_who_waits_for_the_whole_context),
        TEST(a_context_dies_beside_who_waits_in_another_one),
    };
    return cmocka_run_group_tests_name("order/ends", tests, NULL, NULL);
}
