/* SPDX-License-Identifier: MIT */
/* Fences of streams and contexts, and waiting for them. */
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

static void test_stream_fence(void **state)
{
    (void)state;
    vpmm_fence fence = free_on(0);
    assert_int_not_equal(fence, VPMM_FENCE_NONE);
    assert_int_equal(ask(fence, 0), VPMM_VERDICT_ORDERED);
    assert_int_equal(ask(fence, 1), VPMM_VERDICT_PENDING);
    assert_int_equal(ask(fence, -1), VPMM_VERDICT_PENDING);
    assert_int_equal(kind_of(fence), VPMM_FENCE_IS_STREAM);
    assert_int_equal(vpmm_order_wait_kind(order, fence), VPMM_WAIT_STREAM);
    assert_false(vpmm_order_poll(order));
    fake_complete(&fake, fake.last_event);
    assert_int_equal(ask(fence, -1), VPMM_VERDICT_PENDING);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(ask(fence, -1), VPMM_VERDICT_COMPLETE);
    assert_int_equal(kind_of(fence), VPMM_FENCE_IS_COMPLETE);
    assert_int_equal(n_fences(), 0);
    assert_false(vpmm_order_poll(order));
}

static void test_context_fence(void **state)
{
    (void)state;
    vpmm_fence fence = free_in(0);
    assert_int_equal(ask(fence, 0), VPMM_VERDICT_PENDING);
    assert_int_equal(kind_of(fence), VPMM_FENCE_IS_CONTEXT);
    assert_int_equal(vpmm_order_wait_kind(order, fence), VPMM_WAIT_OWN_CALL);
    assert_int_equal(fake.n_context_records, 1);
    fake_complete(&fake, fake.last_event);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(ask(fence, 0), VPMM_VERDICT_COMPLETE);
}

/* Where bare CUDA would not have waited, nobody may. */
static void test_context_fence_without_a_wait(void **state)
{
    (void)state;
    struct vpmm_context *context;
    enum vpmm_status status;
    assert_int_equal(vpmm_order_context(order, fake_context(0), &context), VPMM_OK);
    vpmm_fence fence = vpmm_order_fence_context(order, context, false, &status);
    assert_int_equal(vpmm_order_wait_kind(order, fence), VPMM_WAIT_NEVER);
    assert_int_equal(vpmm_order_wait_host(order, fence), VPMM_INVALID);
}

static void test_nothing_is_complete(void **state)
{
    (void)state;
    assert_int_equal(vpmm_order_ask(order, VPMM_FENCE_NONE, 0), VPMM_VERDICT_COMPLETE);
    assert_int_equal(vpmm_order_ask(order, UINT64_MAX, 0), VPMM_VERDICT_COMPLETE);
    assert_int_equal(vpmm_order_wait_kind(order, VPMM_FENCE_NONE), VPMM_WAIT_OWN_CALL);
    assert_int_equal(vpmm_order_wait_host(order, VPMM_FENCE_NONE), VPMM_OK);
    assert_true(vpmm_order_covers(order, VPMM_FENCE_NONE, 1, 1));
    assert_false(vpmm_order_poll(order));
}

/* A slot is used again at once; the old number must not come back to life with it. */
static void test_numbers_are_not_reused(void **state)
{
    (void)state;
    vpmm_fence old = free_on(0);
    fake_complete(&fake, fake.last_event);
    assert_true(vpmm_order_poll(order));
    for (int i = 0; i < 100; i++) {
        vpmm_fence fence = free_on(0);
        assert_int_not_equal(fence, old);
        assert_int_equal(ask(old, -1), VPMM_VERDICT_COMPLETE);
        assert_int_equal(ask(fence, -1), VPMM_VERDICT_PENDING);
        fake_complete(&fake, fake.last_event);
        assert_true(vpmm_order_poll(order));
    }
    assert_int_equal(fake.n_created, 1);
}

static void test_streams_complete_apart(void **state)
{
    (void)state;
    vpmm_fence a = free_on(0);
    vpmm_fence b = free_on(1);
    fake_complete(&fake, fake.last_event);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(ask(a, -1), VPMM_VERDICT_PENDING);
    assert_int_equal(ask(b, -1), VPMM_VERDICT_COMPLETE);
    fake_complete_context(&fake, 0);
    assert_true(vpmm_order_poll(order));
}

static void test_covers(void **state)
{
    (void)state;
    struct vpmm_stream s = fake_known(order, 0);
    uint64_t context_id = vpmm_context_id(s.context);
    vpmm_fence on_stream = free_on(0);
    vpmm_fence in_context = free_in(0);
    assert_true(vpmm_order_covers(order, on_stream, context_id, s.id));
    assert_true(vpmm_order_covers(order, on_stream, context_id, 0));
    assert_true(vpmm_order_covers(order, in_context, context_id, 0));
    assert_false(vpmm_order_covers(order, in_context, context_id, s.id));
    assert_false(vpmm_order_covers(order, on_stream, context_id, fake_known(order, 1).id));
    assert_false(vpmm_order_covers(order, in_context, context_id + 1, 0));
    vpmm_fence joined = vpmm_order_join(order, on_stream, free_on(1));
    assert_true(vpmm_order_covers(order, joined, context_id, 0));
    assert_false(vpmm_order_covers(order, joined, context_id, s.id));
    fake_complete_context(&fake, 0);
    assert_true(vpmm_order_poll(order));
}

static void test_wait_host(void **state)
{
    (void)state;
    vpmm_fence older = free_on(0);
    vpmm_fence fence = free_on(0);
    vpmm_fence other = free_on(1);
    assert_int_equal(vpmm_order_wait_host(order, fence), VPMM_OK);
    assert_int_equal(fake.n_synchronized, 1);
    assert_int_equal(ask(older, -1), VPMM_VERDICT_COMPLETE);
    assert_int_equal(ask(fence, -1), VPMM_VERDICT_COMPLETE);
    assert_int_equal(ask(other, -1), VPMM_VERDICT_PENDING);
    fake.fail_synchronize = VPMM_BROKEN;
    assert_int_equal(vpmm_order_wait_host(order, other), VPMM_BROKEN);
    assert_int_equal(ask(other, -1), VPMM_VERDICT_PENDING);
    assert_int_equal(vpmm_order_wait_host(order, other), VPMM_OK);
}

static void test_wait_stream(void **state)
{
    (void)state;
    struct vpmm_stream s1 = fake_known(order, 1);
    vpmm_fence own = free_on(1);
    assert_int_equal(vpmm_order_wait_stream(order, own, &s1), VPMM_OK);
    assert_int_equal(fake.n_stream_waits, 0);
    vpmm_fence joined = vpmm_order_join(order, vpmm_order_join(order, own, free_on(2)), free_in(3));
    assert_int_equal(vpmm_order_wait_stream(order, joined, &s1), VPMM_OK);
    assert_int_equal(fake.n_stream_waits, 2);
    assert_int_equal(ask(joined, -1), VPMM_VERDICT_PENDING);
    s1.is_capturing = true;
    assert_int_equal(vpmm_order_wait_stream(order, joined, &s1), VPMM_CAPTURED);
    assert_int_equal(fake.n_stream_waits, 2);
}

/* An event that could not be recorded would read as complete. */
static void test_failed_record_becomes_context_fence(void **state)
{
    (void)state;
    fake.fail_record = VPMM_INVALID;
    vpmm_fence fence = free_on(0);
    assert_int_equal(kind_of(fence), VPMM_FENCE_IS_CONTEXT);
    assert_int_equal(vpmm_order_wait_kind(order, fence), VPMM_WAIT_NEVER);
    assert_int_equal(vpmm_order_wait_host(order, fence), VPMM_INVALID);
    assert_int_equal(ask(fence, 0), VPMM_VERDICT_PENDING);
    assert_false(vpmm_order_poll(order));
    fake_complete(&fake, fake.last_event);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(ask(fence, 0), VPMM_VERDICT_COMPLETE);
}

static void test_failed_context_record_is_parked(void **state)
{
    (void)state;
    struct vpmm_stream s = fake_known(order, 0);
    fake.fail_record = VPMM_INVALID;
    fake.fail_record_context = VPMM_FAILED;
    vpmm_fence fence = free_on(0);
    assert_int_equal(kind_of(fence), VPMM_FENCE_IS_PARKED);
    fake.fail_record_context = VPMM_FAILED;
    assert_int_equal(free_in(0), fence);
    assert_int_equal(vpmm_order_wait_kind(order, fence), VPMM_WAIT_NEVER);
    assert_int_equal(vpmm_order_wait_host(order, fence), VPMM_INVALID);
    assert_int_equal(vpmm_order_wait_stream(order, fence, &s), VPMM_INVALID);
    assert_int_equal(ask(fence, 0), VPMM_VERDICT_PENDING);
    fake.fail_record_context = VPMM_FAILED;
    assert_false(vpmm_order_poll(order));
    assert_int_equal(kind_of(fence), VPMM_FENCE_IS_PARKED);
    assert_false(vpmm_order_poll(order));
    assert_int_equal(kind_of(fence), VPMM_FENCE_IS_CONTEXT);
    assert_int_equal(vpmm_order_wait_kind(order, fence), VPMM_WAIT_NEVER);
    fake.fail_record_context = VPMM_FAILED;
    vpmm_fence next = free_in(0);
    assert_int_not_equal(next, fence);
    fake_complete(&fake, fake.last_event);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(ask(fence, -1), VPMM_VERDICT_COMPLETE);
    assert_int_equal(ask(next, -1), VPMM_VERDICT_PENDING);
    fake_complete(&fake, fake.last_event);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(n_fences(), 0);
}

static void test_failed_create_covers_the_context(void **state)
{
    (void)state;
    fake.fail_create = VPMM_NO_MEMORY;
    vpmm_fence fence = free_on(0);
    assert_int_equal(kind_of(fence), VPMM_FENCE_IS_CONTEXT);
    fake_complete(&fake, fake.last_event);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(ask(fence, -1), VPMM_VERDICT_COMPLETE);
}

static void test_query_errors_prove_nothing(void **state)
{
    (void)state;
    static const enum vpmm_status answers[] = {VPMM_BROKEN, VPMM_SHUT_DOWN, VPMM_CAPTURED,
                                               VPMM_INVALID, VPMM_CONTEXT_GONE};
    vpmm_fence fence = free_on(0);
    fake_complete(&fake, fake.last_event);
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        fake.fail_query = answers[i];
        assert_false(vpmm_order_poll(order));
        assert_int_equal(ask(fence, -1), VPMM_VERDICT_PENDING);
    }
    assert_true(vpmm_order_poll(order));
}

/* Without cuCtxRecordEvent, cudaFree waits as bare CUDA does. */
static void test_without_context_record(void **state)
{
    (void)state;
    fake.driver.event_record_context = NULL;
    vpmm_fence on_stream = free_on(0);
    fake.fail_record = VPMM_FAILED;
    vpmm_fence parked = free_on(1);
    assert_int_equal(kind_of(parked), VPMM_FENCE_IS_PARKED);
    assert_false(vpmm_order_poll(order));
    assert_int_equal(fake.n_context_synchronized, 0);
    assert_int_equal(free_in(0), VPMM_FENCE_NONE);
    assert_int_equal(fake.n_context_synchronized, 1);
    assert_int_equal(ask(on_stream, -1), VPMM_VERDICT_COMPLETE);
    assert_int_equal(ask(parked, -1), VPMM_VERDICT_COMPLETE);
    struct vpmm_context *context = fake_known(order, 0).context;
    enum vpmm_status status;
    fake.fail_synchronize = VPMM_BROKEN;
    parked = vpmm_order_fence_context(order, context, true, &status);
    assert_int_equal(status, VPMM_BROKEN);
    assert_int_equal(kind_of(parked), VPMM_FENCE_IS_PARKED);
}

/* Who looks for the oldest looks for the smallest number. */
static void test_a_later_fence_has_a_larger_number(void **state)
{
    (void)state;
    vpmm_fence last = VPMM_FENCE_NONE;
    for (int round = 1; round < 4; round++) {
        for (int i = 0; i < round * 8; i++) {
            vpmm_fence fence = free_on(0);
            assert_true(fence > last);
            last = fence;
        }
        fake_complete_context(&fake, 0);
        assert_true(vpmm_order_poll(order));
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_stream_fence),
        TEST(test_context_fence),
        TEST(test_context_fence_without_a_wait),
        TEST(test_nothing_is_complete),
        TEST(test_numbers_are_not_reused),
        TEST(test_a_later_fence_has_a_larger_number),
        TEST(test_streams_complete_apart),
        TEST(test_covers),
        TEST(test_wait_host),
        TEST(test_wait_stream),
        TEST(test_failed_record_becomes_context_fence),
        TEST(test_failed_context_record_is_parked),
        TEST(test_failed_create_covers_the_context),
        TEST(test_query_errors_prove_nothing),
        TEST(test_without_context_record),
    };
    return cmocka_run_group_tests_name("order/fence", tests, NULL, NULL);
}
