/* SPDX-License-Identifier: MIT */
/* Many threads ask for their first large block at once: one of them makes the heap, all of them are
 * served by it. */
#include "base/lock.h"
#include "route/route.h"

#include "fakes.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum {
    THREADS = 8
};

static struct vpmm_config config;
static struct vpmm_router *router;
static vpmm_atomic32 n_waiting, n_first_heaps, n_served, n_at_wrong_heap;

static void on_first_heap(void *self)
{
    (void)self;
    vpmm_atomic_add(&n_first_heaps, 1);
}

void __real_vpmm_condition_wait(struct vpmm_condition *condition, struct vpmm_lock *lock);
void __wrap_vpmm_condition_wait(struct vpmm_condition *condition, struct vpmm_lock *lock);

/* The router's own, counted. */
void __wrap_vpmm_condition_wait(struct vpmm_condition *condition, struct vpmm_lock *lock)
{
    vpmm_atomic_add(&n_waiting, 1);
    __real_vpmm_condition_wait(condition, lock);
}

/* Whoever makes a heap goes on when everybody else waits, or makes one, too. */
static void wait_for_the_others(void)
{
    while (vpmm_atomic_load(&n_waiting) + vpmm_atomic_load(&fakes.n_creates) < THREADS)
        (void)sched_yield();
}

static void *ask(void *argument)
{
    int stream = *(const int *)argument;
    const struct vpmm_route_request request = {
        .bytes = FAKE_GRANULARITY, .is_async = true, .stream = fake_stream(stream)};
    uint64_t address = 0;
    if (vpmm_router_malloc(router, &request, &address) == VPMM_ROUTE_POOL)
        vpmm_atomic_add(&n_served, 1);
    if (address != fakes.heaps[stream].base)
        vpmm_atomic_add(&n_at_wrong_heap, 1);
    vpmm_router_context_made(router, stream);
    return NULL;
}

static void one_thread_makes_the_heap_and_all_are_served(void **state)
{
    (void)state;
    char *const nothing[] = {NULL};
    struct vpmm_complaints complaints;
    const struct vpmm_first_heap first_heap = {NULL, on_first_heap, NULL};
    pthread_t threads[THREADS];
    int streams[THREADS];
    vpmm_config_read(&config, &complaints, nothing);
    for (int round = 0; round < 50; round++) {
        fakes_reset();
        fakes.creating = wait_for_the_others;
        vpmm_atomic_store(&n_waiting, 0);
        vpmm_atomic_store(&n_first_heaps, 0);
        vpmm_atomic_store(&n_served, 0);
        assert_int_equal(
            vpmm_router_create(&config, &fake_driver, &vpmm_memory_system, &first_heap, &router),
            VPMM_OK);
        for (int i = 0; i < THREADS; i++) {
            streams[i] = i % 2;
            assert_int_equal(pthread_create(&threads[i], NULL, ask, &streams[i]), 0);
        }
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(vpmm_atomic_load(&n_served), THREADS);
        assert_int_equal(vpmm_atomic_load(&n_at_wrong_heap), 0);
        assert_int_equal(vpmm_atomic_load(&n_first_heaps), 1);
        assert_int_equal(vpmm_atomic_load(&fakes.n_creates), 2);
        assert_int_equal(fakes.heaps[0].peers, 1 << 1);
        assert_int_equal(fakes.heaps[1].peers, 1 << 0);
        vpmm_router_destroy(router);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_makes_the_heap_and_all_are_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
