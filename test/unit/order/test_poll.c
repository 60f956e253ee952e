/* SPDX-License-Identifier: MIT */
/* Polling and glancing: whose fences the driver is asked about. */
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

static vpmm_fence free_on(int stream)
{
    struct vpmm_stream known = fake_known(order, stream);
    return vpmm_order_fence_stream(order, &known);
}

static enum vpmm_verdict ask(vpmm_fence fence)
{
    return vpmm_order_ask(order, fence, 0);
}

static uint64_t n_fences(void)
{
    struct vpmm_order_totals totals;
    vpmm_order_totals(order, &totals);
    return totals.fences;
}

/* While the oldest fence is not complete no other is asked; the newest vouches for all; else those
 * between are searched. */
static void test_poll_asks_little(void **state)
{
    (void)state;
    vpmm_fence fences[50];
    int events[50];
    for (int i = 0; i < 50; i++) {
        fences[i] = free_on(0);
        events[i] = fake.last_event;
    }
    assert_false(vpmm_order_poll(order));
    assert_int_equal(fake.n_queries, 1);
    for (int i = 0; i < 3; i++)
        fake_complete(&fake, events[i]);
    fake.n_queries = 0;
    assert_true(vpmm_order_poll(order));
    assert_int_equal(fake.n_queries, 5);
    assert_int_equal(ask(fences[2]), VPMM_VERDICT_COMPLETE);
    assert_int_equal(ask(fences[3]), VPMM_VERDICT_PENDING);
    fake_complete_context(&fake, 0);
    fake.n_queries = 0;
    assert_true(vpmm_order_poll(order));
    assert_int_equal(fake.n_queries, 2);
    assert_int_equal(n_fences(), 0);
}

/* Wherever the last complete one lies, it is found, and the number of queries hardly grows. */
static void many_that_completed_at_once_cost_few_queries(void **state)
{
    (void)state;
    enum {
        N = 200,
        QUERIES_MAX = 18
    };
    for (int n_complete = 1; n_complete < N; n_complete++) {
        vpmm_fence fences[N];
        int events[N];
        for (int i = 0; i < N; i++) {
            fences[i] = free_on(0);
            events[i] = fake.last_event;
        }
        for (int i = 0; i < n_complete; i++)
            fake_complete(&fake, events[i]);
        fake.n_queries = 0;
        assert_true(vpmm_order_poll(order));
        assert_true(fake.n_queries <= QUERIES_MAX);
        assert_int_equal(ask(fences[n_complete - 1]), VPMM_VERDICT_COMPLETE);
        assert_int_equal(ask(fences[n_complete]), VPMM_VERDICT_PENDING);
        assert_int_equal(n_fences(), N - n_complete);
        fake_complete_context(&fake, 0);
        assert_true(vpmm_order_poll(order));
        assert_int_equal(n_fences(), 0);
    }
}

/* Whether a glance asked the driver at all. */
static bool glance_asks(void)
{
    bool has_passed;
    fake.n_queries = 0;
    (void)vpmm_order_glance(order, &has_passed);
    assert_int_equal(has_passed, fake.n_queries == 0);
    return fake.n_queries > 0;
}

static void test_glances_pass_over_the_busy(void **state)
{
    (void)state;
    (void)free_on(0);
    unsigned passes[6] = {0};
    assert_true(glance_asks());
    for (int i = 0; i < 6; i++)
        while (!glance_asks())
            passes[i]++;
    static const unsigned expected[6] = {1, 2, 4, 8, 8, 8};
    assert_memory_equal(passes, expected, sizeof passes);
    assert_false(glance_asks());
    fake_complete_context(&fake, 0);
    assert_false(glance_asks());
    assert_true(vpmm_order_poll(order));
    (void)free_on(0);
    assert_true(glance_asks());
}

/* One of many fences that completes shows that the stream is worth asking about again. */
static void test_glances_ask_again_after_a_completion(void **state)
{
    (void)state;
    (void)free_on(0);
    int first = fake.last_event;
    (void)free_on(0);
    for (int i = 0; i < 40; i++)
        (void)glance_asks();
    fake_complete(&fake, first);
    assert_true(vpmm_order_poll(order));
    assert_true(glance_asks());
    assert_false(glance_asks());
    assert_true(glance_asks());
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_poll_asks_little),
        TEST(many_that_completed_at_once_cost_few_queries),
        TEST(test_glances_pass_over_the_busy),
        TEST(test_glances_ask_again_after_a_completion),
    };
    return cmocka_run_group_tests_name("order/poll", tests, NULL, NULL);
}
