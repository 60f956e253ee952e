/* SPDX-License-Identifier: MIT */
/* The order of work: what each kind of stream promises, and that nothing more is kept. */
#define _POSIX_C_SOURCE 200809L
#include "fixture.h"

#include <string.h>
#include <time.h>

static void test_one_stream_is_in_order(void **state)
{
    struct fixture *f = fixture_new(NULL);
    struct trail trail = {0};
    CUstream stream = stream_make(f, CU_STREAM_NON_BLOCKING);
    (void)state;
    for (int i = 0; i < 8; i++)
        OK(step_queue(f, stream, &trail, i));
    IS(CUDA_ERROR_NOT_READY, sim_stream_query(f->sim, stream));
    assert_int_equal(trail.n, 0);
    OK(sim_stream_synchronize(f->sim, stream));
    OK(sim_stream_query(f->sim, stream));
    assert_int_equal(trail.n, 8);
    for (int i = 0; i < 8; i++)
        assert_int_equal(trail.steps[i], i);
    fixture_end(f);
}

static void test_synchronise_leaves_other_streams_alone(void **state)
{
    struct fixture *f = fixture_new(NULL);
    struct trail trail = {0};
    CUstream one = stream_make(f, CU_STREAM_DEFAULT);
    CUstream two = stream_make(f, CU_STREAM_DEFAULT);
    (void)state;
    OK(step_queue(f, one, &trail, 1));
    OK(step_queue(f, two, &trail, 2));
    OK(sim_stream_synchronize(f->sim, two));
    assert_int_equal(step_at(&trail, 2), 0);
    assert_int_equal(step_at(&trail, 1), -1);
    OK(sim_ctx_synchronize(f->sim));
    assert_int_equal(step_at(&trail, 1), 1);
    fixture_end(f);
}

static uint64_t seed;
static void with_seed(struct sim_config *config)
{
    config->seed = seed;
}

static struct trail trail_of_seed(uint64_t of)
{
    seed = of;
    struct fixture *f = fixture_new(with_seed);
    struct trail trail = {0};
    CUstream streams[4];
    for (int i = 0; i < 4; i++)
        streams[i] = stream_make(f, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 32; i++)
        OK(step_queue(f, streams[i % 4], &trail, i));
    assert_int_equal(sim_drain(f->sim), 32);
    for (int i = 0; i + 4 < 32; i++)
        assert_true(step_at(&trail, i) < step_at(&trail, i + 4));
    fixture_end(f);
    return trail;
}

static void test_a_seed_chooses_the_order(void **state)
{
    (void)state;
    struct trail first = trail_of_seed(1);
    struct trail again = trail_of_seed(1);
    struct trail other = trail_of_seed(2);
    assert_memory_equal(&first, &again, sizeof first);
    assert_memory_not_equal(&first, &other, sizeof first);
}

/* Legacy work comes after earlier work of blocking streams, and before their later work. */
static void test_legacy_orders_blocking_streams(void **state)
{
    struct fixture *f = fixture_new(NULL);
    struct trail trail = {0};
    CUstream one = stream_make(f, CU_STREAM_DEFAULT);
    CUstream two = stream_make(f, CU_STREAM_DEFAULT);
    CUstream free_one = stream_make(f, CU_STREAM_NON_BLOCKING);
    (void)state;
    OK(step_queue(f, one, &trail, 1));
    OK(step_queue(f, free_one, &trail, 2));
    OK(step_queue(f, NULL, &trail, 3));
    OK(step_queue(f, two, &trail, 4));
    OK(step_queue(f, free_one, &trail, 5));
    OK(sim_stream_synchronize(f->sim, two));
    assert_int_equal(trail.n, 3);
    assert_true(step_at(&trail, 1) == 0 && step_at(&trail, 3) == 1 && step_at(&trail, 4) == 2);
    OK(sim_stream_synchronize(f->sim, free_one));
    assert_true(step_at(&trail, 2) == 3 && step_at(&trail, 5) == 4);
    fixture_end(f);
}

/* What a lone action on the legacy stream does to two blocking streams that know nothing of each
 * other. */
static bool second_waits_for_first(CUresult (*action)(struct fixture *f))
{
    struct fixture *f = fixture_new(NULL);
    struct trail trail = {0};
    CUstream one = stream_make(f, CU_STREAM_DEFAULT);
    CUstream two = stream_make(f, CU_STREAM_DEFAULT);
    OK(step_queue(f, one, &trail, 1));
    OK(action(f));
    OK(step_queue(f, two, &trail, 2));
    OK(sim_stream_synchronize(f->sim, two));
    bool waits = step_at(&trail, 1) == 0;
    fixture_end(f);
    return waits;
}

static CUresult act_nothing(struct fixture *f)
{
    (void)f;
    return CUDA_SUCCESS;
}

static CUresult act_record(struct fixture *f)
{
    return sim_event_record(f->sim, event_make(f), CU_STREAM_LEGACY);
}

static CUresult act_alloc(struct fixture *f)
{
    CUdeviceptr address;
    return sim_mem_alloc_async(f->sim, PAGE, NULL, &address);
}

static CUresult act_free(struct fixture *f)
{
    CUdeviceptr address;
    OK(sim_mem_alloc(f->sim, PAGE, &address));
    return sim_mem_free_async(f->sim, address, NULL);
}

static CUresult act_memset(struct fixture *f)
{
    CUdeviceptr address;
    OK(sim_mem_alloc(f->sim, PAGE, &address));
    return sim_memset(f->sim, address, 1, 4, 16, NULL);
}

static CUresult act_context_record(struct fixture *f)
{
    return sim_ctx_record_event(f->sim, f->context, event_make(f));
}

static CUresult act_other_threads_legacy(struct fixture *f)
{
    sim_thread_act_as(f->sim, 1);
    OK(sim_ctx_push_current(f->sim, f->context));
    CUresult result = act_record(f);
    sim_thread_act_as(f->sim, 0);
    return result;
}

static void test_actions_on_the_legacy_stream(void **state)
{
    (void)state;
    assert_false(second_waits_for_first(act_nothing));
    assert_true(second_waits_for_first(act_record));
    assert_true(second_waits_for_first(act_free));
    assert_true(second_waits_for_first(act_memset));
    assert_true(second_waits_for_first(act_other_threads_legacy));
    assert_false(second_waits_for_first(act_alloc));
    assert_false(second_waits_for_first(act_context_record));
}

static void test_per_thread_streams(void **state)
{
    struct fixture *f = fixture_new(NULL);
    struct trail trail = {0};
    unsigned long long mine;
    unsigned long long others;
    unsigned long long again;
    (void)state;
    OK(step_queue(f, CU_STREAM_PER_THREAD, &trail, 1));
    OK(sim_stream_get_id(f->sim, CU_STREAM_PER_THREAD, &mine));
    sim_thread_act_as(f->sim, 1);
    IS(CUDA_ERROR_INVALID_CONTEXT, step_queue(f, CU_STREAM_PER_THREAD, &trail, 2));
    OK(sim_ctx_push_current(f->sim, f->context));
    OK(sim_stream_get_id(f->sim, CU_STREAM_PER_THREAD, &others));
    assert_int_not_equal(mine, others);
    OK(step_queue(f, CU_STREAM_PER_THREAD, &trail, 2));
    OK(sim_stream_synchronize(f->sim, CU_STREAM_PER_THREAD));
    assert_int_equal(step_at(&trail, 1), -1);
    assert_int_equal(step_at(&trail, 2), 0);
    OK(step_queue(f, NULL, &trail, 3));
    OK(sim_stream_synchronize(f->sim, NULL));
    assert_true(step_at(&trail, 1) == 1 && step_at(&trail, 3) == 2);
    sim_thread_act_as(f->sim, 0);
    OK(sim_stream_get_id(f->sim, CU_STREAM_PER_THREAD, &again));
    assert_int_equal(mine, again);
    fixture_end(f);
}

static void reuse(struct sim_config *config)
{
    config->reuse_handles = true;
}

static void test_ids_are_never_reused(void **state)
{
    struct fixture *f = fixture_new(reuse);
    unsigned long long first_id;
    unsigned long long second_id;
    (void)state;
    CUstream first = stream_make(f, 0);
    OK(sim_stream_get_id(f->sim, first, &first_id));
    OK(sim_stream_destroy(f->sim, first));
    CUstream second = stream_make(f, 0);
    OK(sim_stream_get_id(f->sim, second, &second_id));
    assert_ptr_equal(first, second);
    assert_int_not_equal(first_id, second_id);
    OK(sim_stream_get_id(f->sim, NULL, &first_id));
    OK(sim_stream_get_id(f->sim, CU_STREAM_LEGACY, &second_id));
    assert_int_equal(first_id, second_id);
    fixture_end(f);
}

static void test_a_destroyed_streams_work_goes_on(void **state)
{
    struct fixture *f = fixture_new(NULL);
    struct trail trail = {0};
    CUstream stream = stream_make(f, 0);
    (void)state;
    OK(step_queue(f, stream, &trail, 1));
    OK(sim_stream_destroy(f->sim, stream));
    assert_int_equal(trail.n, 0);
    assert_int_equal(counts_of(f).streams, 0);
    OK(sim_stream_synchronize(f->sim, NULL));
    assert_int_equal(trail.n, 1);
    fixture_end(f);
}

static void test_eager_work_is_done_at_once(void **state)
{
    struct fixture *f = fixture_new(eager);
    struct trail trail = {0};
    CUevent event = event_make(f);
    CUstream stream = stream_make(f, 0);
    (void)state;
    OK(step_queue(f, stream, &trail, 1));
    OK(sim_event_record(f->sim, event, stream));
    OK(sim_event_query(f->sim, event));
    assert_int_equal(trail.n, 1);
    assert_int_equal(counts_of(f).pending, 0);
    fixture_end(f);
}

/* Stream A waits for a flag that B's next work sets: held up as long as that is not queued, and no
 * longer. */
static void test_wait_for_a_device_word(void **state)
{
    void (*const modes[])(struct sim_config *) = {NULL, eager};
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        struct fixture *f = fixture_new(modes[mode]);
        struct trail trail = {0};
        CUdeviceptr flag;
        CUstream a = stream_make(f, CU_STREAM_NON_BLOCKING);
        CUstream b = stream_make(f, CU_STREAM_NON_BLOCKING);
        OK(sim_mem_alloc(f->sim, 8, &flag));
        OK(sim_stream_wait_value(f->sim, a, flag, 5, 4, CU_STREAM_WAIT_VALUE_GEQ));
        OK(step_queue(f, a, &trail, 1));
        sim_drain(f->sim);
        assert_int_equal(trail.n, 0);
        IS(CUDA_ERROR_NOT_READY, sim_stream_query(f->sim, a));
        OK(sim_stream_write_value(f->sim, b, flag, 6, 4, 0));
        OK(sim_stream_synchronize(f->sim, a));
        assert_int_equal(trail.n, 1);
        fixture_end(f);
    }
}

static void test_wait_for_a_host_word(void **state)
{
    struct fixture *f = fixture_new(eager);
    struct trail trail = {0};
    uint32_t flag = 0;
    CUstream stream = stream_make(f, 0);
    (void)state;
    OK(sim_stream_wait_value(f->sim, stream, (CUdeviceptr)(uintptr_t)&flag, 1, 4,
                             CU_STREAM_WAIT_VALUE_EQ));
    OK(step_queue(f, stream, &trail, 1));
    IS(CUDA_ERROR_NOT_READY, sim_stream_query(f->sim, stream));
    IS(CUDA_ERROR_LAUNCH_TIMEOUT, sim_stream_synchronize(f->sim, stream));
    misuse_taken(f, SIM_HANG);
    flag = 1;
    OK(sim_stream_query(f->sim, stream));
    assert_int_equal(trail.n, 1);
    fixture_end(f);
}

/* Not ready before the third look; the machine stops this process in each of the first two. */
static bool ready_after_stops(struct sim_view *view, void *n_looks)
{
    (void)view;
    if (++*(unsigned *)n_looks > 2)
        return true;
    (void)nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    return false;
}

/* The fixture's limit is shorter than a stop. */
static void test_a_process_that_was_stopped_does_not_hang(void **state)
{
    struct fixture *f = fixture_new(NULL);
    unsigned n_looks = 0;
    CUstream stream = stream_make(f, 0);
    const struct sim_kernel kernel = {
        .name = "late", .ready = ready_after_stops, .argument = &n_looks};
    (void)state;
    OK(sim_launch(f->sim, stream, &kernel));
    OK(sim_stream_synchronize(f->sim, stream));
    assert_int_equal(n_looks, 3);
    fixture_end(f);
}

static void host_step(void *argument)
{
    struct trail *trail = argument;
    trail->steps[trail->n++] = 100;
}

static void test_host_functions_take_their_turn(void **state)
{
    struct fixture *f = fixture_new(NULL);
    struct trail trail = {0};
    CUstream stream = stream_make(f, 0);
    (void)state;
    OK(step_queue(f, stream, &trail, 1));
    OK(sim_launch_host_func(f->sim, stream, host_step, &trail));
    OK(step_queue(f, stream, &trail, 2));
    OK(sim_stream_synchronize(f->sim, stream));
    assert_true(step_at(&trail, 1) == 0 && step_at(&trail, 100) == 1 && step_at(&trail, 2) == 2);
    fixture_end(f);
}

static void progress(struct sim_config *config)
{
    config->query_progress = 3;
}

static void test_queries_may_move_the_queue(void **state)
{
    struct fixture *f = fixture_new(progress);
    struct trail trail = {0};
    CUstream stream = stream_make(f, 0);
    (void)state;
    OK(step_queue(f, stream, &trail, 1));
    for (int i = 0; i < 3; i++)
        IS(CUDA_ERROR_NOT_READY, sim_stream_query(f->sim, stream));
    OK(sim_stream_query(f->sim, stream));
    fixture_end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_stream_is_in_order),
        cmocka_unit_test(test_synchronise_leaves_other_streams_alone),
        cmocka_unit_test(test_a_seed_chooses_the_order),
        cmocka_unit_test(test_legacy_orders_blocking_streams),
        cmocka_unit_test(test_actions_on_the_legacy_stream),
        cmocka_unit_test(test_per_thread_streams),
        cmocka_unit_test(test_ids_are_never_reused),
        cmocka_unit_test(test_a_destroyed_streams_work_goes_on),
        cmocka_unit_test(test_eager_work_is_done_at_once),
        cmocka_unit_test(test_wait_for_a_device_word),
        cmocka_unit_test(test_wait_for_a_host_word),
        cmocka_unit_test(test_a_process_that_was_stopped_does_not_hang),
        cmocka_unit_test(test_host_functions_take_their_turn),
        cmocka_unit_test(test_queries_may_move_the_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
