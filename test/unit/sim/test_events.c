/* SPDX-License-Identifier: MIT */
/* Events, and what an event of a whole context covers. */
#include "fixture.h"

static void test_events_follow_their_stream(void **state)
{
    struct fixture *f = fixture_new(NULL);
    struct trail trail = {0};
    CUstream stream = stream_make(f, 0);
    CUevent event = event_make(f);
    (void)state;
    OK(sim_event_query(f->sim, event));
    OK(sim_event_synchronize(f->sim, event));
    OK(step_queue(f, stream, &trail, 1));
    OK(sim_event_query(f->sim, event));
    OK(sim_event_record(f->sim, event, stream));
    OK(step_queue(f, stream, &trail, 2));
    IS(CUDA_ERROR_NOT_READY, sim_event_query(f->sim, event));
    OK(sim_event_synchronize(f->sim, event));
    OK(sim_event_query(f->sim, event));
    assert_int_equal(trail.n, 1);
    OK(sim_event_record(f->sim, event, stream));
    IS(CUDA_ERROR_NOT_READY, sim_event_query(f->sim, event));
    OK(sim_event_destroy(f->sim, event));
    OK(sim_stream_synchronize(f->sim, stream));
    assert_int_equal(counts_of(f).events, 0);
    fixture_end(f);
}

static void test_a_stream_waits_for_an_event_as_it_was(void **state)
{
    struct fixture *f = fixture_new(NULL);
    struct trail trail = {0};
    CUstream one = stream_make(f, CU_STREAM_NON_BLOCKING);
    CUstream two = stream_make(f, CU_STREAM_NON_BLOCKING);
    CUevent event = event_make(f);
    (void)state;
    OK(sim_stream_wait_event(f->sim, two, event, 0));
    OK(step_queue(f, one, &trail, 1));
    OK(sim_event_record(f->sim, event, one));
    OK(sim_stream_wait_event(f->sim, two, event, 0));
    OK(step_queue(f, one, &trail, 2));
    OK(sim_event_record(f->sim, event, one));
    OK(step_queue(f, two, &trail, 3));
    OK(sim_stream_synchronize(f->sim, two));
    assert_true(step_at(&trail, 1) == 0 && step_at(&trail, 3) == 1 && trail.n == 2);
    fixture_end(f);
}

/* Every kind of stream is covered; the question is asked of each alone. */
static void covered(struct fixture *f, CUstream stream, bool destroyed)
{
    struct trail trail = {0};
    CUevent event = event_make(f);
    OK(step_queue(f, stream, &trail, 1));
    if (destroyed)
        OK(sim_stream_destroy(f->sim, stream));
    OK(sim_ctx_record_event(f->sim, f->context, event));
    IS(CUDA_ERROR_NOT_READY, sim_event_query(f->sim, event));
    OK(sim_event_synchronize(f->sim, event));
    assert_int_equal(trail.n, 1);
    OK(sim_event_destroy(f->sim, event));
}

static void test_a_context_record_covers_every_stream(void **state)
{
    struct fixture *f = fixture_new(NULL);
    (void)state;
    covered(f, NULL, false);
    covered(f, CU_STREAM_PER_THREAD, false);
    covered(f, stream_make(f, CU_STREAM_DEFAULT), false);
    covered(f, stream_make(f, CU_STREAM_NON_BLOCKING), false);
    covered(f, stream_make(f, CU_STREAM_NON_BLOCKING), true);
    fixture_end(f);
}

static void host_nothing(void *argument)
{
    *(int *)argument += 1;
}

static void test_a_context_record_covers_copies_and_host_functions(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUevent event = event_make(f);
    CUdeviceptr memory;
    int n = 0;
    (void)state;
    OK(sim_mem_alloc(f->sim, PAGE, &memory));
    OK(sim_memcpy_async(f->sim, memory, memory + 4096, 4096, stream_make(f, 1)));
    OK(sim_launch_host_func(f->sim, stream_make(f, 1), host_nothing, &n));
    OK(sim_ctx_record_event(f->sim, f->context, event));
    OK(sim_event_synchronize(f->sim, event));
    assert_int_equal(n, 1);
    assert_int_equal(counts_of(f).pending, 0);
    fixture_end(f);
}

static void test_a_context_record_serialises_nothing(void **state)
{
    struct fixture *f = fixture_new(NULL);
    struct trail trail = {0};
    CUstream one = stream_make(f, CU_STREAM_DEFAULT);
    CUstream two = stream_make(f, CU_STREAM_DEFAULT);
    (void)state;
    OK(step_queue(f, one, &trail, 1));
    OK(sim_ctx_record_event(f->sim, f->context, event_make(f)));
    OK(step_queue(f, two, &trail, 2));
    OK(sim_stream_synchronize(f->sim, two));
    assert_int_equal(step_at(&trail, 1), -1);
    fixture_end(f);
}

static void test_a_context_record_stops_at_the_context(void **state)
{
    struct fixture *f = fixture_new(NULL);
    struct trail trail = {0};
    CUcontext other;
    CUevent event = event_make(f);
    (void)state;
    OK(sim_ctx_create(f->sim, 0, 0, &other));
    OK(step_queue(f, NULL, &trail, 1));
    OK(sim_ctx_record_event(f->sim, f->context, event));
    OK(sim_event_synchronize(f->sim, event));
    assert_int_equal(trail.n, 0);
    IS(CUDA_ERROR_INVALID_HANDLE, sim_ctx_record_event(f->sim, other, event));
    IS(CUDA_ERROR_INVALID_HANDLE, sim_event_record(f->sim, event, NULL));
    fixture_end(f);
}

static void test_a_green_contexts_streams_count_for_the_primary(void **state)
{
    struct fixture *f = fixture_new(NULL);
    struct trail trail = {0};
    CUcontext primary;
    CUcontext found;
    CUgreenCtx green;
    CUstream stream;
    CUevent event;
    (void)state;
    OK(sim_device_primary_ctx_retain(f->sim, 0, &primary));
    OK(sim_ctx_push_current(f->sim, primary));
    OK(sim_event_create(f->sim, 0, &event));
    OK(sim_green_ctx_create(f->sim, 0, &green));
    OK(sim_green_ctx_stream_create(f->sim, green, CU_STREAM_NON_BLOCKING, 0, &stream));
    OK(sim_stream_get_ctx(f->sim, stream, &found, NULL));
    assert_ptr_equal(found, primary);
    OK(step_queue(f, stream, &trail, 1));
    OK(sim_ctx_record_event(f->sim, primary, event));
    OK(sim_event_synchronize(f->sim, event));
    assert_int_equal(trail.n, 1);
    OK(sim_green_ctx_destroy(f->sim, green));
    fixture_end(f);
}

static void test_a_context_waits(void **state)
{
    struct fixture *f = fixture_new(NULL);
    struct trail trail = {0};
    CUstream one = stream_make(f, CU_STREAM_NON_BLOCKING);
    CUstream two = stream_make(f, CU_STREAM_NON_BLOCKING);
    CUevent event = event_make(f);
    (void)state;
    OK(step_queue(f, one, &trail, 1));
    OK(sim_event_record(f->sim, event, one));
    OK(sim_ctx_wait_event(f->sim, f->context, event));
    OK(step_queue(f, two, &trail, 2));
    OK(sim_stream_synchronize(f->sim, two));
    assert_true(step_at(&trail, 1) == 0 && step_at(&trail, 2) == 1);
    fixture_end(f);
}

static void older(struct sim_config *config)
{
    config->driver_version = 11080;
}

static void test_older_drivers_lack_calls(void **state)
{
    struct fixture *f = fixture_new(older);
    unsigned long long id;
    (void)state;
    IS(CUDA_ERROR_NOT_SUPPORTED, sim_ctx_record_event(f->sim, f->context, event_make(f)));
    IS(CUDA_ERROR_NOT_SUPPORTED, sim_ctx_wait_event(f->sim, f->context, event_make(f)));
    IS(CUDA_ERROR_NOT_SUPPORTED, sim_stream_get_id(f->sim, NULL, &id));
    fixture_end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events_follow_their_stream),
        cmocka_unit_test(test_a_stream_waits_for_an_event_as_it_was),
        cmocka_unit_test(test_a_context_record_covers_every_stream),
        cmocka_unit_test(test_a_context_record_covers_copies_and_host_functions),
        cmocka_unit_test(test_a_context_record_serialises_nothing),
        cmocka_unit_test(test_a_context_record_stops_at_the_context),
        cmocka_unit_test(test_a_green_contexts_streams_count_for_the_primary),
        cmocka_unit_test(test_a_context_waits),
        cmocka_unit_test(test_older_drivers_lack_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
