/* SPDX-License-Identifier: MIT */
/* What a thread remembers of streams, what that costs, and when it is not believed. */
#include "fake.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

static struct fake fake;
static struct vpmm_order *order;

/* The operation stream_id, of one thread at a time. */
static enum vpmm_status stream_id(void *self, vpmm_stream_handle stream, uint64_t *id_out)
{
    struct vpmm_stream_facts facts;
    enum vpmm_status status = fake.driver.stream_facts(self, stream, &facts);
    fake.n_facts--;
    fake.n_ids++;
    fake.n_misused += stream == VPMM_STREAM_LEGACY || status || facts.is_capturing;
    if (!status)
        *id_out = facts.id;
    return status;
}

static int setup(void **state)
{
    (void)state;
    fake_init(&fake);
    fake.driver.stream_id = stream_id;
    order = fake_order(&fake);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fake_order_end(&fake, order);
    return 0;
}

static void learn(vpmm_stream_handle handle)
{
    struct vpmm_stream known;
    assert_int_equal(vpmm_order_stream(order, handle, &known), VPMM_OK);
}

static const struct vpmm_stream *recall(int stream)
{
    return vpmm_order_recall(order, fake_stream(stream));
}

static void what_was_learnt_is_recalled_for_one_question(void **state)
{
    (void)state;
    assert_null(recall(0));
    struct vpmm_stream known = fake_known(order, 0);
    int n_facts = fake.n_facts;
    int n_ids = fake.n_ids;
    const struct vpmm_stream *recalled = recall(0);
    assert_non_null(recalled);
    assert_ptr_equal(recalled->context, known.context);
    assert_ptr_equal(recalled->handle, known.handle);
    assert_int_equal(recalled->id, known.id);
    assert_false(recalled->is_legacy || recalled->is_capturing);
    assert_int_equal(fake.n_ids, n_ids + 1);
    assert_int_equal(fake_known(order, 0).id, known.id);
    assert_int_equal(fake.n_facts, n_facts);
}

static void learn_all(uint64_t ids[FAKE_STREAMS])
{
    for (int i = 0; i < FAKE_STREAMS; i++)
        ids[i] = fake_known(order, i).id;
}

static int n_recalled(const uint64_t ids[FAKE_STREAMS])
{
    int n = 0;
    for (int i = 0; i < FAKE_STREAMS; i++) {
        const struct vpmm_stream *recalled = recall(i);
        assert_true(!recalled || recalled->id == ids[i]);
        n += recalled != NULL;
    }
    return n;
}

static void every_stream_is_recalled_as_itself(void **state)
{
    (void)state;
    uint64_t ids[FAKE_STREAMS];
    learn_all(ids);
    assert_int_equal(n_recalled(ids), FAKE_STREAMS);
    learn_all(ids);
    assert_int_equal(n_recalled(ids), FAKE_STREAMS);
    fake_stream_create(&fake, FAKE_STREAMS - 1, 0);
    assert_int_equal(n_recalled(ids), FAKE_STREAMS - 1);
}

static void without_memory_some_are_forgotten(void **state)
{
    (void)state;
    uint64_t ids[FAKE_STREAMS];
    (void)fake_known(order, 0);
    fake.fail_map = fake.n_maps + 1;
    learn_all(ids);
    assert_in_range(n_recalled(ids), 1, FAKE_STREAMS - 1);
    assert_non_null(recall(FAKE_STREAMS - 1));
}

/* NULL: the thread recalled what it should not, or not what it should. */
static void *recall_all_elsewhere(void *unused)
{
    (void)unused;
    uint64_t ids[FAKE_STREAMS];
    struct vpmm_stream known;
    learn_all(ids);
    bool is_good = n_recalled(ids) == FAKE_STREAMS &&
                   !vpmm_order_remembered(order, VPMM_STREAM_PER_THREAD) &&
                   vpmm_order_stream(order, VPMM_STREAM_PER_THREAD, &known) == VPMM_OK &&
                   vpmm_order_remembered(order, VPMM_STREAM_PER_THREAD);
    return is_good ? &fake : NULL;
}

/* And of no thread that lives. */
static void a_thread_takes_over_the_memory_of_one_that_has_ended(void **state)
{
    (void)state;
    uint64_t ids[FAKE_STREAMS];
    int64_t bytes = 0;
    learn_all(ids);
    for (int round = 0; round < 3; round++) {
        pthread_t thread;
        void *is_good;
        int64_t before = (int64_t)fake.mapped_bytes;
        assert_int_equal(pthread_create(&thread, NULL, recall_all_elsewhere, NULL), 0);
        assert_int_equal(pthread_join(thread, &is_good), 0);
        assert_non_null(is_good);
        bytes = (int64_t)fake.mapped_bytes - before;
        assert_true(round == 0 ? bytes > 0 : bytes == 0);
    }
    assert_int_equal(n_recalled(ids), FAKE_STREAMS);
}

/* Their handles are such that some have one place together. */
static void four_streams_in_turn_are_recalled(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        (void)fake_known(order, i);
    for (int i = 0; i < 4; i++)
        assert_non_null(recall(i));
}

/* Nobody told of the destruction. */
static void a_handle_that_means_another_stream_is_looked_up(void **state)
{
    (void)state;
    uint64_t id = fake_known(order, 0).id;
    fake_stream_create(&fake, 0, 0);
    assert_null(recall(0));
    assert_int_not_equal(fake_known(order, 0).id, id);
    assert_non_null(recall(0));
}

/* The driver's part of a beginning may be over before it is counted. */
static void nothing_is_learnt_beside_the_beginning_of_a_capture(void **state)
{
    (void)state;
    (void)fake_known(order, 0);
    struct vpmm_context *ticket = vpmm_order_capture_begin(order, fake_stream(0));
    assert_false(fake_known(order, 0).is_capturing);
    fake_capture(&fake, 0, true);
    int n_ids = fake.n_ids;
    assert_true(fake_known(order, 0).is_capturing);
    assert_int_equal(fake.n_ids, n_ids);
    vpmm_order_capture_began(order, ticket, fake_stream(0), true);
    fake_capture(&fake, 0, false);
    vpmm_order_capture_recheck(order, fake_stream(0));
    assert_false(fake_known(order, 0).is_capturing);
    assert_non_null(recall(0));
}

static void a_stream_about_to_be_destroyed_is_forgotten(void **state)
{
    (void)state;
    (void)fake_known(order, 0);
    vpmm_order_stream_gone(order, fake_stream(0));
    assert_null(recall(0));
}

static void a_context_that_leaves_takes_its_streams_along(void **state)
{
    (void)state;
    (void)fake_known(order, 0);
    struct vpmm_departure departure = vpmm_order_context_leaving(order, fake_context(0), true);
    assert_null(recall(0));
    vpmm_order_context_left(order, &departure, false);
    (void)fake_known(order, 0);
    assert_non_null(recall(0));
}

/* Only an event of it tells of its end. */
static void a_context_that_is_lost_takes_its_streams_along(void **state)
{
    (void)state;
    struct vpmm_stream known = fake_known(order, 0);
    learn(VPMM_STREAM_LEGACY);
    assert_non_null(vpmm_order_recall(order, VPMM_STREAM_LEGACY));
    vpmm_fence fence = vpmm_order_fence_stream(order, &known);
    assert_int_not_equal(fence, VPMM_FENCE_NONE);
    fake.contexts[0].is_alive = false;
    assert_true(vpmm_order_poll(order));
    assert_true(vpmm_context_is_gone(known.context));
    assert_null(recall(0));
    assert_null(vpmm_order_recall(order, VPMM_STREAM_LEGACY));
    fake_context_destroy(&fake, 0);
}

static void nothing_is_recalled_while_anything_captures(void **state)
{
    (void)state;
    vpmm_stream_handle handle = fake_stream(1);
    (void)fake_known(order, 0);
    struct vpmm_context *ticket = vpmm_order_capture_begin(order, handle);
    assert_null(recall(0));
    fake_capture(&fake, 1, true);
    vpmm_order_capture_began(order, ticket, handle, true);
    (void)fake_known(order, 0);
    assert_null(recall(0));
    fake_capture(&fake, 1, false);
    vpmm_order_capture_ended(order, handle);
    (void)fake_known(order, 0);
    assert_non_null(recall(0));
}

/* Their handles mean a stream of the current context. */
static void special_handles_are_of_the_current_context(void **state)
{
    (void)state;
    static const vpmm_stream_handle handles[] = {VPMM_STREAM_LEGACY, VPMM_STREAM_PER_THREAD};
    for (int i = 0; i < 2; i++) {
        fake.current = 0;
        learn(handles[i]);
        assert_non_null(vpmm_order_recall(order, handles[i]));
        assert_int_equal(vpmm_order_recall(order, handles[i])->is_legacy, i == 0);
        fake.current = 1;
        assert_null(vpmm_order_recall(order, handles[i]));
        fake.current = -1;
        assert_null(vpmm_order_recall(order, handles[i]));
        fake.current = 0;
        assert_non_null(vpmm_order_recall(order, handles[i]));
    }
}

/* To ask its id could break a capture that it does not take part in. */
static void the_legacy_stream_is_not_asked_its_id(void **state)
{
    (void)state;
    learn(VPMM_STREAM_LEGACY);
    assert_non_null(vpmm_order_recall(order, VPMM_STREAM_LEGACY));
    assert_int_equal(fake.n_ids, 0);
}

static void *recall_elsewhere(void *unused)
{
    (void)unused;
    return recall(0) ? &fake : NULL;
}

static void a_thread_remembers_for_itself(void **state)
{
    (void)state;
    pthread_t thread;
    void *recalled;
    (void)fake_known(order, 0);
    assert_int_equal(pthread_create(&thread, NULL, recall_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, &recalled), 0);
    assert_null(recalled);
    assert_non_null(recall(0));
}

static void without_ids_nothing_is_remembered(void **state)
{
    (void)state;
    fake.driver.stream_id = NULL;
    fake.has_ids = false;
    uint64_t id = fake_known(order, 0).id;
    assert_null(recall(0));
    assert_int_equal(fake_known(order, 0).id, id);
}

static void another_order_remembers_nothing_of_this_one(void **state)
{
    (void)state;
    uint64_t ids[FAKE_STREAMS];
    learn_all(ids);
    vpmm_order_destroy(order);
    order = fake_order(&fake);
    assert_int_equal(n_recalled(ids), 0);
    learn_all(ids);
    assert_int_equal(n_recalled(ids), FAKE_STREAMS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_learnt_is_recalled_for_one_question),
        TEST(every_stream_is_recalled_as_itself),
        TEST(without_memory_some_are_forgotten),
        TEST(a_thread_takes_over_the_memory_of_one_that_has_ended),
        TEST(four_streams_in_turn_are_recalled),
        TEST(a_handle_that_means_another_stream_is_looked_up),
        TEST(nothing_is_learnt_beside_the_beginning_of_a_capture),
        TEST(a_stream_about_to_be_destroyed_is_forgotten),
        TEST(a_context_that_leaves_takes_its_streams_along),
        TEST(a_context_that_is_lost_takes_its_streams_along),
        TEST(nothing_is_recalled_while_anything_captures),
        TEST(special_handles_are_of_the_current_context),
        TEST(the_legacy_stream_is_not_asked_its_id),
        TEST(a_thread_remembers_for_itself),
        TEST(without_ids_nothing_is_remembered),
        TEST(another_order_remembers_nothing_of_this_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
