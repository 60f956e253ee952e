/* SPDX-License-Identifier: MIT */
/* What the program's own synchronisations and queries prove complete, and what they do not. The
 * driver is never asked about an event. */
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
    assert_int_equal(fake.n_queries + fake.n_synchronized, 0);
    fake_complete_context(&fake, 0);
    fake_complete_context(&fake, 1);
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
    enum vpmm_status status;
    struct vpmm_context *known;
    assert_int_equal(vpmm_order_context(order, fake_context(context), &known), VPMM_OK);
    return vpmm_order_fence_context(order, known, true, &status);
}

static bool is_complete(vpmm_fence fence)
{
    return vpmm_order_ask(order, fence, 0) == VPMM_VERDICT_COMPLETE;
}

static struct vpmm_proof of_stream(int stream)
{
    struct vpmm_proof proof;
    vpmm_order_prove_stream(order, fake_stream(stream), &proof);
    return proof;
}

static struct vpmm_proof of_context(vpmm_context_handle context)
{
    struct vpmm_proof proof;
    vpmm_order_prove_context(order, context, &proof);
    return proof;
}

static bool is_empty(const struct vpmm_proof *proof)
{
    return !proof->n && !proof->moment;
}

static void proven(struct vpmm_proof proof)
{
    vpmm_order_proven(order, &proof);
}

static void test_nothing_is_proven_where_nothing_is_pending(void **state)
{
    (void)state;
    struct vpmm_proof proof = of_stream(1);
    assert_true(is_empty(&proof));
    vpmm_fence fence = free_on(1);
    proof = of_stream(1);
    assert_false(is_empty(&proof));
    proven(proof);
    assert_true(is_complete(fence));
    proof = of_context(NULL);
    assert_true(is_empty(&proof));
}

static void test_a_stream_speaks_for_itself(void **state)
{
    (void)state;
    vpmm_fence own = free_on(1);
    vpmm_fence other = free_on(2);
    vpmm_fence whole = free_in(0);
    struct vpmm_proof proof = of_stream(1);
    vpmm_fence later = free_on(1);
    proven(proof);
    assert_true(is_complete(own));
    assert_false(is_complete(other));
    assert_false(is_complete(whole));
    assert_false(is_complete(later));
}

/* The driver calls it idle while what its events come after is pending on the legacy stream. */
static void test_a_blocking_stream_does_not_speak(void **state)
{
    (void)state;
    fake.streams[1].is_blocking = true;
    vpmm_fence fence = free_on(1);
    struct vpmm_proof proof = of_stream(1);
    assert_true(is_empty(&proof));
    proven(proof);
    assert_false(is_complete(fence));
}

/* To ask the legacy stream, or one that captures, could end a capture. */
static void test_nobody_is_asked_who_could_end_a_capture(void **state)
{
    (void)state;
    struct vpmm_proof proof;
    free_on(1);
    int n_facts = fake.n_facts;
    vpmm_order_prove_stream(order, VPMM_STREAM_LEGACY, &proof);
    assert_true(is_empty(&proof));
    assert_int_equal(fake.n_facts, n_facts);
    struct vpmm_context *ticket = vpmm_order_capture_begin(order, fake_stream(3));
    fake_capture(&fake, 3, true);
    vpmm_order_capture_began(order, ticket, fake_stream(3), true);
    n_facts = fake.n_facts;
    proof = of_stream(1);
    assert_true(is_empty(&proof));
    assert_int_equal(fake.n_facts, n_facts);
    fake_capture(&fake, 3, false);
    vpmm_order_capture_ended(order, fake_stream(3));
}

static void test_a_joined_fence_is_complete_with_its_parts(void **state)
{
    (void)state;
    vpmm_fence joined = vpmm_order_join(order, free_on(1), free_on(2));
    proven(of_stream(1));
    assert_false(is_complete(joined));
    proven(of_stream(2));
    assert_true(is_complete(joined));
}

static void test_a_context_speaks_for_its_streams(void **state)
{
    (void)state;
    fake_stream_create(&fake, 9, 1);
    struct vpmm_context *ticket = vpmm_order_capture_begin(order, fake_stream(3));
    vpmm_fence parked = free_in(0);
    vpmm_order_capture_began(order, ticket, fake_stream(3), false);
    vpmm_fence own = free_on(1);
    vpmm_fence foreign = free_on(9);
    struct vpmm_proof proof = of_context(NULL);
    vpmm_fence later = free_on(1);
    proven(proof);
    assert_true(is_complete(own));
    assert_true(is_complete(parked));
    assert_false(is_complete(foreign));
    assert_false(is_complete(later));
    proven(of_context(fake_context(1)));
    assert_true(is_complete(foreign));
}

/* A green context that is current has another handle than its primary one. */
static void test_an_unknown_context_speaks_for_nobody(void **state)
{
    (void)state;
    vpmm_fence fence = free_on(1);
    proven(of_context(fake_context(FAKE_CONTEXTS - 1)));
    assert_false(is_complete(fence));
}

/* ---- batches that are open ---- */

struct freeing {
    struct vpmm_stream stream;
    struct vpmm_track *track;
    vpmm_fence fence;
};

static struct freeing freeing_on(int stream)
{
    struct freeing freeing = {.stream = fake_known(order, stream)};
    freeing.track = vpmm_order_track(order, &freeing.stream);
    freeing.fence = vpmm_order_open(order, &freeing.stream);
    return freeing;
}

static uint64_t free_one(const struct freeing *freeing)
{
    uint64_t turn = vpmm_order_turn(freeing->track);
    vpmm_order_joined(order, freeing->fence, turn);
    return turn;
}

static bool ends(struct freeing *freeing)
{
    bool is_over = vpmm_order_over(order, freeing->fence, freeing->track);
    assert_true(!is_over || is_complete(freeing->fence));
    if (!is_over)
        assert_int_equal(vpmm_order_close(order, freeing->fence, &freeing->stream, false), VPMM_OK);
    vpmm_order_track_end(freeing->track);
    return is_over;
}

/* No event is recorded for it. */
static void test_an_open_batch_ends_with_a_wait_of_its_stream(void **state)
{
    (void)state;
    struct freeing freeing = freeing_on(1);
    uint64_t turn = free_one(&freeing);
    struct vpmm_proof proof = of_stream(1);
    assert_false(vpmm_order_turn_over(freeing.track, turn));
    proven(proof);
    assert_true(vpmm_order_turn_over(freeing.track, turn));
    assert_true(ends(&freeing));
    assert_int_equal(fake.n_records, 0);
}

static void test_an_open_batch_ends_with_a_wait_of_its_context(void **state)
{
    (void)state;
    struct freeing one = freeing_on(1);
    struct freeing two = freeing_on(2);
    fake_stream_create(&fake, 9, 1);
    struct freeing foreign = freeing_on(9);
    free_one(&one);
    free_one(&two);
    free_one(&foreign);
    proven(of_context(NULL));
    assert_true(ends(&one));
    assert_true(ends(&two));
    assert_false(ends(&foreign));
}

static void test_what_joins_an_open_batch_later_is_not_proven(void **state)
{
    (void)state;
    struct freeing freeing = freeing_on(1);
    uint64_t early = free_one(&freeing);
    struct vpmm_proof proof = of_stream(1);
    uint64_t late = free_one(&freeing);
    proven(proof);
    assert_true(vpmm_order_turn_over(freeing.track, early));
    assert_false(vpmm_order_turn_over(freeing.track, late));
    assert_false(ends(&freeing));
    assert_false(is_complete(freeing.fence));
}

/* More streams than a proof has room for: the others stay as they are. */
static void test_a_proof_is_bounded(void **state)
{
    (void)state;
    struct freeing all[VPMM_PROVEN_MAX + 8];
    for (unsigned i = 0; i < VPMM_PROVEN_MAX + 8; i++) {
        fake_stream_create(&fake, 1, 0);
        all[i] = freeing_on(1);
        free_one(&all[i]);
    }
    struct vpmm_proof proof = of_context(NULL);
    assert_int_equal(proof.n, VPMM_PROVEN_MAX);
    proven(proof);
    unsigned n_over = 0;
    for (unsigned i = 0; i < VPMM_PROVEN_MAX + 8; i++)
        n_over += ends(&all[i]);
    assert_int_equal(n_over, VPMM_PROVEN_MAX);
}

/* ---- events ---- */

/* Any handle: the driver is never asked about it. */
#define EVENT ((vpmm_event_handle)0x1000)

/* A batch of frees of the stream that a program's event lies between. */
static vpmm_fence batch_on(struct vpmm_track *track, int stream)
{
    struct vpmm_stream known = fake_known(order, stream);
    vpmm_fence fence = vpmm_order_open(order, &known);
    vpmm_order_joined(order, fence, vpmm_order_turn(track));
    assert_int_equal(vpmm_order_close(order, fence, &known, true), VPMM_OK);
    return fence;
}

static void record_on(int stream)
{
    struct vpmm_event_points points;
    vpmm_order_event_recording(order, EVENT, fake_stream(stream), &points);
    vpmm_order_event_recorded(order, EVENT, &points, true);
}

static struct vpmm_proof of_event(void)
{
    struct vpmm_proof proof;
    vpmm_order_prove_event(order, EVENT, &proof);
    return proof;
}

static void test_an_event_speaks_for_what_was_freed_before_it(void **state)
{
    (void)state;
    struct vpmm_stream known = fake_known(order, 1);
    struct vpmm_track *track = vpmm_order_track(order, &known);
    vpmm_fence before = batch_on(track, 1);
    record_on(1);
    vpmm_fence after = batch_on(track, 1);
    proven(of_event());
    assert_true(is_complete(before));
    assert_false(is_complete(after));
    vpmm_order_track_end(track);
}

/* The call was about the first record or about the second one; nobody knows. */
static void test_an_event_that_was_recorded_again_speaks_for_nothing(void **state)
{
    (void)state;
    struct vpmm_stream known = fake_known(order, 1);
    struct vpmm_track *track = vpmm_order_track(order, &known);
    vpmm_fence before = batch_on(track, 1);
    record_on(1);
    struct vpmm_proof proof = of_event();
    record_on(2);
    proven(proof);
    assert_false(is_complete(before));
    vpmm_order_track_end(track);
}

/* What the event's stream had waited for was over before the event. */
static void test_an_event_speaks_for_streams_that_its_own_comes_after(void **state)
{
    (void)state;
    struct vpmm_stream known = fake_known(order, 1);
    struct vpmm_track *track = vpmm_order_track(order, &known);
    vpmm_fence before = batch_on(track, 1);
    record_on(1);
    struct vpmm_event_points points;
    vpmm_order_event_waiting(order, EVENT, &points);
    vpmm_order_event_waited(order, EVENT, fake_stream(2), &points);
    record_on(2);
    proven(of_event());
    assert_true(is_complete(before));
    vpmm_order_track_end(track);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_nothing_is_proven_where_nothing_is_pending),
        TEST(test_a_stream_speaks_for_itself),
        TEST(test_a_blocking_stream_does_not_speak),
        TEST(test_nobody_is_asked_who_could_end_a_capture),
        TEST(test_a_joined_fence_is_complete_with_its_parts),
        TEST(test_a_context_speaks_for_its_streams),
        TEST(test_an_unknown_context_speaks_for_nobody),
        TEST(test_an_open_batch_ends_with_a_wait_of_its_stream),
        TEST(test_an_open_batch_ends_with_a_wait_of_its_context),
        TEST(test_what_joins_an_open_batch_later_is_not_proven),
        TEST(test_a_proof_is_bounded),
        TEST(test_an_event_speaks_for_what_was_freed_before_it),
        TEST(test_an_event_that_was_recorded_again_speaks_for_nothing),
        TEST(test_an_event_speaks_for_streams_that_its_own_comes_after),
    };
    return cmocka_run_group_tests_name("order/proof", tests, NULL, NULL);
}
