/* SPDX-License-Identifier: MIT */
/* Another thread comes between two steps of a request, at a moment that the test chooses. */
#include "fixture.h"

#include "heap/heap_internal.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static struct fixture f;
static volatile bool gate;

/* What the other thread does, and how many looks, or waits, of the request come before it. */
static void (*meanwhile)(void);
static unsigned n_before, n_looks, n_waits;

enum vpmm_verdict __real_vpmm_order_ask_for(const struct vpmm_order *, vpmm_fence,
                                            const struct vpmm_follower *);
enum vpmm_verdict __wrap_vpmm_order_ask_for(const struct vpmm_order *, vpmm_fence,
                                            const struct vpmm_follower *);
enum vpmm_status __real_vpmm_order_wait_host(struct vpmm_order *, vpmm_fence);
enum vpmm_status __wrap_vpmm_order_wait_host(struct vpmm_order *, vpmm_fence);

static void *run(void *self)
{
    (void)self;
    assert_int_equal(sim_ctx_set_current(f.sim, f.handle), CUDA_SUCCESS);
    meanwhile();
    return NULL;
}

static void let_other_thread_run(void)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

enum vpmm_verdict __wrap_vpmm_order_ask_for(const struct vpmm_order *order, vpmm_fence fence,
                                            const struct vpmm_follower *follower)
{
    enum vpmm_verdict verdict = __real_vpmm_order_ask_for(order, fence, follower);
    if (n_before && ++n_looks == n_before)
        let_other_thread_run();
    return verdict;
}

enum vpmm_status __wrap_vpmm_order_wait_host(struct vpmm_order *order, vpmm_fence fence)
{
    enum vpmm_status status = __real_vpmm_order_wait_host(order, fence);
    n_waits++;
    if (meanwhile)
        let_other_thread_run();
    return status;
}

/* Of a cudaFree that waits for its context itself, until the other thread does. */
static enum vpmm_status (*synchronize)(void *, vpmm_context_handle);
static vpmm_atomic32 is_free_waiting, is_malloc_waiting, is_malloc_over;

static enum vpmm_status synchronize_held(void *self, vpmm_context_handle context)
{
    vpmm_atomic_store(&is_free_waiting, 1);
    while (!vpmm_atomic_load(&is_malloc_waiting) && !vpmm_atomic_load(&is_malloc_over))
        (void)sched_yield();
    return synchronize(self, context);
}

void __real_vpmm_condition_wait(struct vpmm_condition *, struct vpmm_lock *);
void __wrap_vpmm_condition_wait(struct vpmm_condition *, struct vpmm_lock *);
void __wrap_vpmm_condition_wait(struct vpmm_condition *condition, struct vpmm_lock *lock)
{
    if (condition == &f.heap->frees_done)
        vpmm_atomic_store(&is_malloc_waiting, 1);
    __real_vpmm_condition_wait(condition, lock);
}

static void begin(const struct fixture_params *params)
{
    gate = false;
    meanwhile = NULL;
    n_before = n_looks = n_waits = 0;
    fixture_setup(&f, params);
}

static uint64_t other_block;
static CUstream other_stream;

static void free_other_block(void)
{
    struct vpmm_stream stream;
    enum vpmm_status waited;
    assert_int_equal(vpmm_order_stream(f.order, (vpmm_stream_handle)other_stream, &stream),
                     VPMM_OK);
    assert_int_equal(vpmm_heap_free(f.heap, other_block, &stream, &waited), VPMM_OK);
}

/* A request of a memory pool that reuses nothing by chance follows a stream. Another thread's free
 * there, at the `n`th look, makes pages pending again that the request has counted. How many looks
 * the request took. */
static unsigned request_beside_a_free(unsigned n, CUstream own)
{
    struct fixture_params params;
    struct vpmm_mempool mempool;
    struct vpmm_heap_counts counts;
    fixture_params_cache(&params);
    params.heap.spare_percent = 0;
    begin(&params);
    vpmm_mempool_init(&mempool, VPMM_MEMPOOL_DEFAULT, 0);
    vpmm_atomic_store(&mempool.is_cautious, 1);
    f.mempool = &mempool;
    other_stream = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    own = own ? own : fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    fixture_cycle(&f, 1, own);
    for (int i = 0; i < 12; i++)
        fixture_cycle(&f, 1, other_stream);
    uint64_t freed = fixture_malloc(&f, 4, other_stream);
    uint64_t kept = fixture_malloc(&f, 1, other_stream);
    other_block = fixture_malloc(&f, 2, other_stream);
    uint64_t kept_too = fixture_malloc(&f, 1, other_stream);
    fixture_work(&f, other_stream, freed, 4, true, &gate);
    fixture_free(&f, freed, other_stream);
    fixture_follow(&f, other_stream, own);
    meanwhile = free_other_block;
    n_before = n;
    uint64_t address;
    assert_int_equal(fixture_try_malloc(&f, 6, own, &address), VPMM_OK);
    n_before = 0;
    vpmm_heap_counts(f.heap, &counts);
    assert_int_equal(counts.rungs[VPMM_RUNG_REAP], 0);
    gate = true;
    (void)sim_drain(f.sim);
    fixture_free(&f, address, own);
    if (n_looks < n)
        free_other_block();
    fixture_free(&f, kept, other_stream);
    fixture_free(&f, kept_too, other_stream);
    fixture_teardown(&f);
    return n_looks;
}

static void test_a_free_beside_a_plan_is_no_shortage(void **state)
{
    CUstream const own[] = {NULL, CU_STREAM_LEGACY};
    (void)state;
    for (int i = 0; i < 2; i++) {
        unsigned n_looks_seen = 1;
        for (unsigned n = 1; n <= n_looks_seen; n++)
            n_looks_seen = request_beside_a_free(n, own[i]);
        assert_in_range(n_looks_seen, 8, 100);
    }
}

static uint64_t theirs;

/* As a program's thread that always allocates before it frees, and whose requests learn first of
 * what was waited for. */
static void renew(void)
{
    const struct vpmm_request request = {.bytes = 100 * f.page_bytes, .context = f.context};
    uint64_t next;
    enum vpmm_status waited;
    if (n_waits > 100)
        return;
    vpmm_heap_reap(f.heap);
    assert_int_equal(vpmm_heap_malloc(f.heap, &request, &next), VPMM_OK);
    fixture_work(&f, other_stream, theirs, 1, true, NULL);
    assert_int_equal(vpmm_heap_free(f.heap, theirs, NULL, &waited), VPMM_OK);
    theirs = next;
}

/* Bare CUDA would have waited for what was freed before the request, and for nothing later. Some of
 * that is waited for all the same, so that the pool grows less. */
static void test_cuda_malloc_does_not_wait_for_ever(void **state)
{
    struct fixture_params params;
    (void)state;
    fixture_params_cache(&params);
    params.heap.slack_bytes = 16 * MIB;
    params.heap.slack_percent = 0;
    params.sim.eager = false;
    params.sim.query_progress = 0;
    begin(&params);
    other_stream = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    theirs = fixture_malloc(&f, 100, NULL);
    uint64_t kept = fixture_malloc(&f, 1, NULL);
    uint64_t freed = fixture_malloc(&f, 100, NULL);
    fixture_work(&f, other_stream, freed, 1, true, NULL);
    fixture_free(&f, freed, NULL);
    meanwhile = renew;
    uint64_t address = fixture_malloc(&f, 150, NULL);
    meanwhile = NULL;
    assert_in_range(n_waits, 2, 32);
    fixture_free(&f, address, NULL);
    fixture_free(&f, theirs, NULL);
    fixture_free(&f, kept, NULL);
    fixture_teardown(&f);
}

static uint64_t freed_block;

static void *free_block(void *self)
{
    enum vpmm_status waited;
    (void)self;
    assert_int_equal(sim_ctx_set_current(f.sim, f.handle), CUDA_SUCCESS);
    assert_int_equal(vpmm_heap_free(f.heap, freed_block, NULL, &waited), VPMM_OK);
    return NULL;
}

/* Without a record of the context cudaFree waits itself. Bare CUDA would have had the cudaMalloc of
 * another thread wait with it. */
static void test_cuda_malloc_waits_for_a_free_that_waits(void **state)
{
    (void)state;
    struct fixture_params params;
    struct vpmm_heap_counts counts;
    pthread_t thread;
    fixture_params_cache(&params);
    params.heap.slack_bytes = 0;
    params.heap.slack_percent = 0;
    begin(&params);
    f.driver.event_record_context = NULL;
    synchronize = f.driver.context_synchronize;
    f.driver.context_synchronize = synchronize_held;
    freed_block = fixture_malloc(&f, 100, NULL);
    assert_int_equal(pthread_create(&thread, NULL, free_block, NULL), 0);
    while (!vpmm_atomic_load(&is_free_waiting))
        (void)sched_yield();
    uint64_t address;
    assert_int_equal(fixture_try_malloc(&f, 100, NULL, &address), VPMM_OK);
    vpmm_atomic_store(&is_malloc_over, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(address, freed_block);
    vpmm_heap_counts(f.heap, &counts);
    assert_int_equal(counts.host_waits, 1);
    assert_int_equal(fixture_totals(&f).held_pages, 100);
    fixture_free(&f, address, NULL);
    assert_int_equal(vpmm_atomic_load(&f.told[VPMM_WATCH_HOST_WAIT]), 3);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_free_beside_a_plan_is_no_shortage),
        cmocka_unit_test(test_cuda_malloc_does_not_wait_for_ever),
        cmocka_unit_test(test_cuda_malloc_waits_for_a_free_that_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
