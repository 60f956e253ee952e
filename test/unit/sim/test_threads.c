/* SPDX-License-Identifier: MIT */
/* Several threads on one machine: waits hold up nobody, host functions have their own thread,
 * streams outlive theirs. */
#include "fixture.h"

#include <pthread.h>
#include <sched.h>

static void hosted(struct sim_config *config)
{
    config->eager = true;
    config->host_thread = true;
    config->hang_ms = 20000;
}

struct gate {
    struct fixture *f;
    CUstream stream;
    CUdeviceptr plain;
    uint32_t flag;
    struct trail trail;
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    bool open;
};

static void gate_wait(void *argument)
{
    struct gate *gate = argument;
    pthread_mutex_lock(&gate->mutex);
    while (!gate->open)
        pthread_cond_wait(&gate->moved, &gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
}

static void gate_open(struct gate *gate)
{
    pthread_mutex_lock(&gate->mutex);
    gate->open = true;
    pthread_cond_broadcast(&gate->moved);
    pthread_mutex_unlock(&gate->mutex);
}

/* A host function that waits for the program does not hold up the program. */
static void test_host_functions_have_a_thread(void **state)
{
    struct gate gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
    (void)state;
    gate.f = fixture_new(hosted);
    CUevent event = event_make(gate.f);
    CUstream stream = stream_make(gate.f, CU_STREAM_NON_BLOCKING);
    CUstream other = stream_make(gate.f, CU_STREAM_NON_BLOCKING);
    OK(sim_launch_host_func(gate.f->sim, stream, gate_wait, &gate));
    OK(step_queue(gate.f, stream, &gate.trail, 1));
    OK(sim_event_record(gate.f->sim, event, stream));
    IS(CUDA_ERROR_NOT_READY, sim_event_query(gate.f->sim, event));
    OK(sim_stream_synchronize(gate.f->sim, other));
    assert_int_equal(gate.trail.n, 0);
    gate_open(&gate);
    OK(sim_event_synchronize(gate.f->sim, event));
    assert_int_equal(gate.trail.n, 1);
    fixture_end(gate.f);
}

static void *waiter(void *argument)
{
    struct gate *gate = argument;
    OK(sim_ctx_push_current(gate->f->sim, gate->f->context));
    OK(step_queue(gate->f, CU_STREAM_PER_THREAD, &gate->trail, 7));
    gate_open(gate);
    OK(sim_stream_synchronize(gate->f->sim, gate->stream));
    return NULL;
}

/* A thread sits in a synchronise until another one queues what it waits for. */
static void test_a_wait_holds_up_nobody(void **state)
{
    struct gate gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
    pthread_t thread;
    CUdeviceptr flag;
    (void)state;
    gate.f = fixture_new(hosted);
    gate.stream = stream_make(gate.f, CU_STREAM_NON_BLOCKING);
    CUstream other = stream_make(gate.f, CU_STREAM_NON_BLOCKING);
    OK(sim_mem_alloc(gate.f->sim, 4, &flag));
    OK(sim_stream_wait_value(gate.f->sim, gate.stream, flag, 1, 4, CU_STREAM_WAIT_VALUE_EQ));
    assert_int_equal(pthread_create(&thread, NULL, waiter, &gate), 0);
    gate_wait(&gate);
    OK(sim_stream_write_value(gate.f->sim, other, flag, 1, 4, 0));
    assert_int_equal(pthread_join(thread, NULL), 0);
    OK(sim_stream_query(gate.f->sim, gate.stream));
    fixture_end(gate.f);
}

static void *free_plain(void *argument)
{
    struct gate *gate = argument;
    OK(sim_ctx_push_current(gate->f->sim, gate->f->context));
    OK(sim_mem_free(gate->f->sim, gate->plain));
    return NULL;
}

static void *alloc_plain(void *argument)
{
    struct gate *gate = argument;
    CUdeviceptr address;
    OK(sim_ctx_push_current(gate->f->sim, gate->f->context));
    OK(sim_mem_alloc(gate->f->sim, PAGE, &address));
    return NULL;
}

/* Such a call keeps the lock until it waits. */
static void await_call(struct gate *gate, const char *name, uint64_t n_before)
{
    while (sim_calls(gate->f->sim, name) == n_before)
        sched_yield();
}

/* While a thread waits in cuMemFree, cuMemAlloc waits with it, in its own context alone. */
static void test_a_waiting_free_holds_up_allocations(void **state)
{
    struct gate gate = {.flag = 0};
    pthread_t freeing;
    pthread_t allocating;
    CUdeviceptr flag;
    CUdeviceptr elsewhere;
    CUdeviceptr ordered;
    CUcontext other;
    (void)state;
    gate.f = fixture_new(hosted);
    CUstream stream = stream_make(gate.f, CU_STREAM_NON_BLOCKING);
    OK(sim_mem_alloc(gate.f->sim, 4, &flag));
    OK(sim_mem_alloc(gate.f->sim, PAGE, &gate.plain));
    OK(sim_stream_wait_value(gate.f->sim, stream, flag, 1, 4, CU_STREAM_WAIT_VALUE_EQ));
    assert_int_equal(pthread_create(&freeing, NULL, free_plain, &gate), 0);
    await_call(&gate, "cuMemFree", 0);
    OK(sim_mem_alloc_async(gate.f->sim, PAGE, stream, &ordered));
    OK(sim_ctx_create(gate.f->sim, 0, 0, &other));
    OK(sim_mem_alloc(gate.f->sim, PAGE, &elsewhere));
    OK(sim_ctx_pop_current(gate.f->sim, NULL));
    uint64_t n_allocs = sim_calls(gate.f->sim, "cuMemAlloc");
    assert_int_equal(counts_of(gate.f).plain, 3);
    assert_int_equal(pthread_create(&allocating, NULL, alloc_plain, &gate), 0);
    await_call(&gate, "cuMemAlloc", n_allocs);
    assert_int_equal(counts_of(gate.f).plain, 3);
    OK(sim_stream_write_value(gate.f->sim, NULL, flag, 1, 4, 0));
    assert_int_equal(pthread_join(freeing, NULL), 0);
    assert_int_equal(pthread_join(allocating, NULL), 0);
    assert_int_equal(counts_of(gate.f).plain, 3);
    fixture_end(gate.f);
}

static void *queue_and_end(void *argument)
{
    struct gate *gate = argument;
    OK(sim_ctx_push_current(gate->f->sim, gate->f->context));
    OK(step_queue(gate->f, CU_STREAM_PER_THREAD, &gate->trail, 7));
    return NULL;
}

static void test_a_stream_of_an_ended_thread_is_covered(void **state)
{
    struct gate gate = {.flag = 0};
    pthread_t thread;
    (void)state;
    gate.f = fixture_new(NULL);
    CUevent event = event_make(gate.f);
    assert_int_equal(pthread_create(&thread, NULL, queue_and_end, &gate), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    OK(sim_ctx_record_event(gate.f->sim, gate.f->context, event));
    IS(CUDA_ERROR_NOT_READY, sim_event_query(gate.f->sim, event));
    OK(sim_event_synchronize(gate.f->sim, event));
    assert_int_equal(gate.trail.n, 1);
    fixture_end(gate.f);
}

enum {
    THREADS = 4,
    ROUNDS = 200
};

static void *worker(void *argument)
{
    struct fixture *f = argument;
    CUstream stream;
    CUevent event;
    OK(sim_ctx_push_current(f->sim, f->context));
    OK(sim_stream_create(f->sim, CU_STREAM_NON_BLOCKING, 0, &stream));
    OK(sim_event_create(f->sim, 0, &event));
    for (uint32_t i = 0; i < ROUNDS; i++) {
        CUdeviceptr one;
        CUdeviceptr two;
        OK(sim_mem_alloc_async(f->sim, PAGE, stream, &one));
        OK(sim_mem_alloc(f->sim, PAGE, &two));
        OK(word_write(f, stream, one, i));
        OK(word_write(f, stream, two, i));
        OK(sim_mem_free_async(f->sim, one, stream));
        OK(sim_ctx_record_event(f->sim, f->context, event));
        if (i % 2 == 0)
            OK(sim_event_synchronize(f->sim, event));
        OK(sim_mem_free(f->sim, two));
    }
    OK(sim_stream_synchronize(f->sim, stream));
    OK(sim_event_destroy(f->sim, event));
    OK(sim_stream_destroy(f->sim, stream));
    return NULL;
}

static void test_many_threads(void **state)
{
    void (*const modes[])(struct sim_config *) = {NULL, eager};
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        struct fixture *f = fixture_new(modes[mode]);
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, worker, f), 0);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        OK(sim_ctx_synchronize(f->sim));
        struct sim_counts counts = counts_of(f);
        assert_int_equal(counts.plain + counts.async + counts.events + counts.streams, 0);
        assert_int_equal(counts.used_bytes[0], 0);
        fixture_end(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_functions_have_a_thread),
        cmocka_unit_test(test_a_wait_holds_up_nobody),
        cmocka_unit_test(test_a_waiting_free_holds_up_allocations),
        cmocka_unit_test(test_a_stream_of_an_ended_thread_is_covered),
        cmocka_unit_test(test_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
