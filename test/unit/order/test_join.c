/* SPDX-License-Identifier: MIT */
/* Joined fences, the same against a naive set of fences, and metadata that cannot be had. */
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

static vpmm_fence free_in(int context)
{
    struct vpmm_context *known;
    enum vpmm_status status;
    assert_int_equal(vpmm_order_context(order, fake_context(context), &known), VPMM_OK);
    return vpmm_order_fence_context(order, known, true, &status);
}

static uint64_t n_fences(void)
{
    struct vpmm_order_totals totals;
    vpmm_order_totals(order, &totals);
    return totals.fences;
}

static enum vpmm_verdict ask(vpmm_fence fence, int stream)
{
    return vpmm_order_ask(order, fence, stream < 0 ? 0 : fake_known(order, stream).id);
}

static void test_join(void **state)
{
    (void)state;
    struct vpmm_fence_facts facts;
    vpmm_fence a = free_on(0);
    int event_a = fake.last_event;
    vpmm_fence b = free_on(1);
    int event_b = fake.last_event;
    vpmm_fence joined = vpmm_order_join(order, a, b);
    assert_int_not_equal(joined, a);
    assert_int_not_equal(joined, b);
    vpmm_order_facts(order, joined, &facts);
    assert_int_equal(facts.kind, VPMM_FENCE_IS_JOINED);
    assert_int_equal(ask(joined, 0), VPMM_VERDICT_PENDING);
    assert_int_equal(vpmm_order_wait_kind(order, joined), VPMM_WAIT_STREAM);
    fake_complete(&fake, event_b);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(ask(joined, -1), VPMM_VERDICT_PENDING);
    assert_int_equal(ask(joined, 0), VPMM_VERDICT_ORDERED);
    fake_complete(&fake, event_a);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(ask(joined, -1), VPMM_VERDICT_COMPLETE);
    assert_int_equal(n_fences(), 0);
}

static void test_join_of_little(void **state)
{
    (void)state;
    vpmm_fence a = free_on(0);
    assert_int_equal(vpmm_order_join(order, VPMM_FENCE_NONE, VPMM_FENCE_NONE), VPMM_FENCE_NONE);
    assert_int_equal(vpmm_order_join(order, a, VPMM_FENCE_NONE), a);
    assert_int_equal(vpmm_order_join(order, VPMM_FENCE_NONE, a), a);
    assert_int_equal(vpmm_order_join(order, a, a), a);
    vpmm_fence b = free_on(0);
    assert_int_equal(vpmm_order_join(order, a, b), b);
    assert_int_equal(vpmm_order_join(order, b, a), b);
    vpmm_fence joined = vpmm_order_join(order, b, free_on(1));
    assert_int_equal(vpmm_order_join(order, joined, a), joined);
    assert_int_equal(vpmm_order_join(order, a, joined), joined);
    vpmm_fence context = free_in(0);
    assert_int_equal(vpmm_order_join(order, joined, context), context);
    vpmm_fence later = free_on(0);
    joined = vpmm_order_join(order, later, context);
    assert_int_not_equal(joined, later);
    assert_int_not_equal(joined, context);
    assert_int_not_equal(vpmm_order_join(order, context, free_in(1)), context);
    fake_complete_context(&fake, 0);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(vpmm_order_join(order, joined, a), VPMM_FENCE_NONE);
}

static void test_join_is_as_weak_as_its_weakest(void **state)
{
    (void)state;
    vpmm_fence own = free_in(1);
    fake.fail_record_context = VPMM_FAILED;
    vpmm_fence parked = free_in(0);
    vpmm_fence joined = vpmm_order_join(order, own, parked);
    assert_int_equal(vpmm_order_wait_kind(order, own), VPMM_WAIT_OWN_CALL);
    assert_int_equal(vpmm_order_wait_kind(order, joined), VPMM_WAIT_NEVER);
    assert_int_equal(vpmm_order_wait_host(order, joined), VPMM_INVALID);
    assert_int_equal(ask(joined, 0), VPMM_VERDICT_PENDING);
    assert_int_equal(vpmm_order_wait_kind(order, vpmm_order_join(order, own, free_on(0))),
                     VPMM_WAIT_STREAM);
    assert_int_equal(vpmm_order_wait_kind(order, vpmm_order_join(order, own, free_in(2))),
                     VPMM_WAIT_OWN_CALL);
}

static void test_wait_for_all_parts(void **state)
{
    (void)state;
    vpmm_fence joined = VPMM_FENCE_NONE;
    for (int i = 0; i < 6; i++)
        joined = vpmm_order_join(order, joined, free_on(i));
    assert_int_equal(vpmm_order_wait_host(order, joined), VPMM_OK);
    assert_int_equal(fake.n_synchronized, 6);
    assert_int_equal(ask(joined, -1), VPMM_VERDICT_COMPLETE);
    assert_int_equal(n_fences(), 0);
}

/* A stream that comes after one part alone does not come after both. */
static void test_join_keeps_what_fewer_streams_come_after(void **state)
{
    (void)state;
    struct vpmm_stream stream = fake_known(order, 0);
    const struct vpmm_follower follower = {
        .stream_id = fake_known(order, 1).id, .n_points = 1, .points = {{stream.id, 1}}};
    vpmm_fence batch = vpmm_order_open(order, &stream);
    vpmm_order_joined(order, batch, 1);
    vpmm_order_joined(order, batch, 2);
    assert_int_equal(vpmm_order_close(order, batch, &stream, false), VPMM_OK);
    vpmm_fence first = vpmm_order_of_turn(order, batch, 1);
    assert_int_equal(vpmm_order_ask_for(order, first, &follower), VPMM_VERDICT_ORDERED);
    assert_int_equal(vpmm_order_ask_for(order, batch, &follower), VPMM_VERDICT_PENDING);
    const vpmm_fence joins[] = {vpmm_order_join(order, first, batch),
                                vpmm_order_join(order, batch, first)};
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(vpmm_order_ask_for(order, joins[i], &follower), VPMM_VERDICT_PENDING);

    batch = vpmm_order_open(order, &stream);
    vpmm_order_joined(order, batch, 1);
    vpmm_fence alone = free_on(0);
    assert_int_equal(vpmm_order_close(order, batch, &stream, false), VPMM_OK);
    vpmm_fence joined = vpmm_order_join(order, batch, alone);
    assert_int_equal(vpmm_order_ask_for(order, joined, &follower), VPMM_VERDICT_PENDING);
}

/* A stream that is stuck keeps many, and those of others are let go all the same. */
static void test_joins_that_stay_pending_keep_no_others(void **state)
{
    (void)state;
    struct vpmm_stream stuck = fake_known(order, 0), busy = fake_known(order, 1);
    vpmm_fence batch = vpmm_order_open(order, &stuck);
    vpmm_order_joined(order, batch, 1000);
    assert_int_equal(vpmm_order_close(order, batch, &stuck, false), VPMM_OK);
    for (uint64_t turn = 1; turn <= 600; turn++)
        (void)vpmm_order_of_turn(order, batch, turn);
    uint64_t before = n_fences();
    for (int i = 0; i < 1000; i++) {
        batch = vpmm_order_open(order, &busy);
        vpmm_order_joined(order, batch, 2);
        assert_int_equal(vpmm_order_close(order, batch, &busy, false), VPMM_OK);
        (void)vpmm_order_of_turn(order, batch, 1);
        fake_complete(&fake, fake.last_event);
        (void)vpmm_order_poll(order);
    }
    assert_in_range(n_fences(), before, before + 100);
}

/* However many fences of a few streams are joined, what has to be asked stays one a stream. */
static void test_join_stays_short(void **state)
{
    (void)state;
    vpmm_fence joined = VPMM_FENCE_NONE;
    for (int i = 0; i < 60; i++)
        joined = vpmm_order_join(order, joined, free_on(i % 3));
    struct vpmm_stream other = fake_known(order, 4);
    assert_int_equal(vpmm_order_wait_stream(order, joined, &other), VPMM_OK);
    assert_int_equal(fake.n_stream_waits, 3);
    assert_int_equal(vpmm_order_wait_host(order, joined), VPMM_OK);
    assert_int_equal(fake.n_synchronized, 3);
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

#define N_FREES 40
#define N_JOINS 60

struct model {
    vpmm_fence fences[N_FREES + N_JOINS];
    uint64_t sets[N_FREES + N_JOINS]; /* which frees went in */
    int events[N_FREES];
    int streams[N_FREES]; /* -1 - context for a context fence */
};

static void build_model(struct model *model, uint32_t *random)
{
    int n = 0;
    for (; n < N_FREES; n++) {
        int what = (int)(next_random(random) % 8);
        int context = (int)(next_random(random) % 2);
        model->streams[n] = what == 7 ? -1 - context : what;
        model->fences[n] = what == 7 ? free_in(context) : free_on(what);
        model->events[n] = fake.last_event;
        model->sets[n] = UINT64_C(1) << n;
    }
    for (; n < N_FREES + N_JOINS; n++) {
        uint32_t a = next_random(random) % (uint32_t)n;
        uint32_t b = next_random(random) % (uint32_t)n;
        model->fences[n] = vpmm_order_join(order, model->fences[a], model->fences[b]);
        model->sets[n] = model->sets[a] | model->sets[b];
    }
}

/* The frees whose work has ended, as a complete event of theirs or of a later covering record
 * proves. All streams belong to context 0. */
static uint64_t ended(const struct model *model)
{
    uint64_t set = 0;
    for (int i = 0; i < N_FREES; i++)
        for (int later = i; later < N_FREES; later++)
            if (fake.events[model->events[later]].is_complete &&
                (model->streams[later] == model->streams[i] ||
                 (model->streams[later] == -1 && model->streams[i] >= 0)))
                set |= UINT64_C(1) << i;
    return set;
}

/* Random joins of random fences, completed in a random order: what is called complete has ended,
 * and what consists of known complete fences only is called complete. */
static void test_joins_against_sets(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        uint32_t random = seed;
        struct model model;
        build_model(&model, &random);
        for (int round = 0; round < 60; round++) {
            fake_complete(&fake, model.events[next_random(&random) % N_FREES]);
            (void)vpmm_order_poll(order);
            uint64_t known = 0;
            uint64_t true_set = ended(&model);
            for (int i = 0; i < N_FREES + N_JOINS; i++) {
                bool is_complete = ask(model.fences[i], -1) == VPMM_VERDICT_COMPLETE;
                if (is_complete)
                    assert_int_equal(model.sets[i] & ~true_set, 0);
                else
                    assert_int_not_equal(model.sets[i] & ~known, 0);
                if (is_complete && i < N_FREES)
                    known |= model.sets[i];
            }
        }
        fake_complete_context(&fake, 0);
        fake_complete_context(&fake, 1);
        (void)vpmm_order_poll(order);
        assert_int_equal(n_fences(), 0);
    }
}

/* The Nth mapping fails: every call still answers, nothing pending is called complete, nothing is
 * left over. */
static void test_without_metadata(void **state)
{
    (void)state;
    int n_maps = fake.n_maps + 8;
    for (int nth = 1; nth <= n_maps; nth++) {
        vpmm_order_destroy(order);
        fake.n_maps = 0;
        fake.fail_map = nth;
        enum vpmm_status status = vpmm_order_create(&fake.driver, &fake.memory, &order);
        if (status) {
            assert_int_equal(status, VPMM_NO_METADATA);
            assert_int_equal(fake.mapped_bytes, 0);
            order = fake_order(&fake);
        }
        struct vpmm_stream stream;
        status = vpmm_order_stream(order, fake_stream(0), &stream);
        if (status) {
            assert_int_equal(status, VPMM_NO_METADATA);
            assert_int_equal(vpmm_order_stream(order, fake_stream(0), &stream), VPMM_OK);
        }
        vpmm_fence on_stream = vpmm_order_fence_stream(order, &stream);
        vpmm_fence in_context = vpmm_order_fence_context(order, stream.context, true, &status);
        assert_int_equal(vpmm_order_ask(order, on_stream, 0), VPMM_VERDICT_PENDING);
        assert_int_equal(vpmm_order_ask(order, in_context, 0), VPMM_VERDICT_PENDING);
        assert_false(vpmm_order_poll(order));
        assert_int_equal(vpmm_order_ask(order, on_stream, 0), VPMM_VERDICT_PENDING);
        fake_complete_context(&fake, 0);
        assert_true(vpmm_order_poll(order));
        assert_int_equal(n_fences(), 0);
    }
    fake.fail_map = 0;
}

/* A chunk of the table of fences is used up and no other can be had. */
static void test_join_without_metadata(void **state)
{
    (void)state;
    vpmm_fence a = free_on(0);
    vpmm_fence b = free_on(1);
    vpmm_fence joined;
    fake.fail_map = fake.n_maps + 1;
    int n_joins = 0;
    while ((joined = vpmm_order_join(order, a, b)) != VPMM_FENCE_NONE && n_joins < 5000)
        n_joins++;
    assert_in_range(n_joins, 4000, 4096);
    assert_int_equal(vpmm_order_ask(order, a, 0), VPMM_VERDICT_PENDING);
    /* What cannot be described any more goes to the parked fence, which was made beforehand. */
    fake.fail_map = fake.n_maps + 1;
    vpmm_fence parked = free_on(2);
    assert_int_equal(vpmm_order_ask(order, parked, 0), VPMM_VERDICT_PENDING);
    fake_complete_context(&fake, 0);
    assert_true(vpmm_order_poll(order));
    assert_int_equal(vpmm_order_ask(order, a, 0), VPMM_VERDICT_COMPLETE);
    (void)vpmm_order_poll(order);
    fake_complete_context(&fake, 0);
    (void)vpmm_order_poll(order);
    assert_int_equal(vpmm_order_ask(order, parked, 0), VPMM_VERDICT_COMPLETE);
    assert_int_equal(n_fences(), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_join),
        TEST(test_join_of_little),
        TEST(test_join_is_as_weak_as_its_weakest),
        TEST(test_wait_for_all_parts),
        TEST(test_join_keeps_what_fewer_streams_come_after),
        TEST(test_joins_that_stay_pending_keep_no_others),
        TEST(test_join_stays_short),
        TEST(test_joins_against_sets),
        TEST(test_without_metadata),
        TEST(test_join_without_metadata),
    };
    return cmocka_run_group_tests_name("order/join", tests, NULL, NULL);
}
