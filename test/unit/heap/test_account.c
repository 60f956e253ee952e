/* SPDX-License-Identifier: MIT */
/* Live and pending together: what is freed leaves them when its work is known complete, not before,
 * and a wait that fails loses nothing. */
#define _POSIX_C_SOURCE 200809L
#include "fixture.h"

#include "heap/heap_parts.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void setup(struct fixture *f, bool is_cached)
{
    struct fixture_params params;
    if (is_cached)
        fixture_params_cache(&params);
    else
        fixture_params_default(&params);
    fixture_setup(f, &params);
}

static struct vpmm_heap_account account(struct fixture *f)
{
    struct vpmm_heap_account told;
    vpmm_heap_account(f->heap, &told);
    return told;
}

static void assert_account(struct fixture *f, uint64_t live, uint64_t pending, uint64_t ready)
{
    struct vpmm_heap_account now = account(f);
    assert_int_equal(now.totals.live_pages, live);
    assert_int_equal(now.pending_pages, pending);
    assert_int_equal(now.ready_pages, ready);
}

/* By cudaFree and by cudaFreeAsync, through front caches and beside them. */
static void test_freed_pages_are_pending_until_they_are_waited_for(void **state)
{
    (void)state;
    for (int is_cached = 0; is_cached < 2; is_cached++) {
        for (int is_async = 0; is_async < 2; is_async++) {
            struct fixture f;
            setup(&f, is_cached);
            volatile bool gate = false;
            CUstream stream = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
            uint64_t p = fixture_malloc(&f, 3, is_async ? stream : NULL);
            uint64_t q = fixture_malloc(&f, 4, is_async ? stream : NULL);
            assert_account(&f, 7, 0, 0);
            fixture_work(&f, stream, p, 3, true, &gate);
            fixture_free(&f, p, is_async ? stream : NULL);
            assert_account(&f, 4, 3, 0);
            vpmm_heap_reap(f.heap);
            assert_account(&f, 4, 3, 0);
            gate = true;
            assert_int_equal(vpmm_heap_synchronize(f.heap), VPMM_OK);
            assert_account(&f, 4, 0, 3);
            fixture_free(&f, q, is_async ? stream : NULL);
            fixture_teardown(&f);
        }
    }
}

/* What its own stream has again is live, and no more pending. */
static void test_pages_that_come_back_in_order_are_live(void **state)
{
    (void)state;
    for (int is_cached = 0; is_cached < 2; is_cached++) {
        struct fixture f;
        setup(&f, is_cached);
        volatile bool gate = false;
        CUstream stream = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        uint64_t p = fixture_malloc(&f, 4, stream);
        fixture_work(&f, stream, p, 4, true, &gate);
        fixture_free(&f, p, stream);
        assert_account(&f, 0, 4, 0);
        assert_int_equal(fixture_malloc(&f, 4, stream), p);
        assert_account(&f, 4, 0, 0);
        fixture_free(&f, p, stream);
        uint64_t q = fixture_malloc(&f, 3, stream);
        assert_account(&f, 3, 1, 0);
        gate = true;
        fixture_free(&f, q, stream);
        fixture_teardown(&f);
    }
}

enum {
    STREAMS = 100
};

/* More fences than are looked at together, one of which cannot be waited for. */
static void test_failed_wait_is_made_up_for_by_the_next(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.device_bytes = 256 * GIB;
    fixture_setup(&f, &params);
    volatile bool gate = false;
    uint64_t p[STREAMS];
    CUstream streams[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        streams[i] = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        p[i] = fixture_malloc(&f, 1, streams[i]);
        fixture_work(&f, streams[i], p[i], 1, true, &gate);
    }
    for (int i = 0; i < STREAMS; i++)
        fixture_free(&f, p[i], streams[i]);
    assert_account(&f, 0, STREAMS, 0);
    gate = true;
    /* Nothing is learnt in passing: only a wait that succeeds makes any of it ready. */
    sim_fault_set(f.sim, "cuEventQuery", 1, CUDA_ERROR_UNKNOWN, true);
    sim_fault_set(f.sim, "cuEventSynchronize", 1, CUDA_ERROR_UNKNOWN, true);
    assert_int_equal(vpmm_heap_synchronize(f.heap), VPMM_FAILED);
    assert_account(&f, 0, STREAMS, 0);
    sim_fault_set(f.sim, "cuEventSynchronize", 70, CUDA_ERROR_UNKNOWN, false);
    assert_int_equal(vpmm_heap_synchronize(f.heap), VPMM_FAILED);
    assert_account(&f, 0, 1, STREAMS - 1);
    assert_int_equal(vpmm_heap_synchronize(f.heap), VPMM_OK);
    assert_account(&f, 0, 0, STREAMS);
    sim_fault_clear(f.sim, NULL);
    fixture_teardown(&f);
}

/* What is freed while a stream captures stays pending, the rest does not, and the capture goes on.
 */
static void test_capture_keeps_what_it_must(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, false);
    CUstream before = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream captured = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 2, before);
    uint64_t q = fixture_malloc(&f, 3, NULL);
    fixture_work(&f, before, p, 2, true, NULL);
    fixture_free(&f, p, before);
    struct vpmm_context *ticket = vpmm_order_capture_begin(f.order, (vpmm_stream_handle)captured);
    assert_int_equal(sim_stream_begin_capture(f.sim, captured, CU_STREAM_CAPTURE_MODE_GLOBAL),
                     CUDA_SUCCESS);
    vpmm_order_capture_began(f.order, ticket, (vpmm_stream_handle)captured, true);
    fixture_free(&f, q, NULL);
    assert_account(&f, 0, 5, 0);
    assert_int_equal(vpmm_heap_synchronize(f.heap), VPMM_CAPTURED);
    assert_account(&f, 0, 3, 2);
    CUgraph graph;
    assert_int_equal(sim_stream_end_capture(f.sim, captured, &graph), CUDA_SUCCESS);
    assert_non_null(graph);
    vpmm_order_capture_recheck(f.order, (vpmm_stream_handle)captured);
    assert_int_equal(vpmm_heap_synchronize(f.heap), VPMM_OK);
    assert_account(&f, 0, 0, 5);
    assert_int_equal(sim_graph_destroy(f.sim, graph), CUDA_SUCCESS);
    fixture_teardown(&f);
}

/* Lost and withheld pages stay pending. */
static void test_lost_and_withheld_pages_are_pending(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, false);
    uint64_t start, end;
    struct vpmm_region_view region;
    uint64_t p = fixture_malloc(&f, 2, NULL);
    assert_int_equal(vpmm_heap_find(f.heap, p, &region), VPMM_OK);
    uint64_t shared_bytes;
    assert_int_equal(vpmm_heap_export(f.heap, p, region.owner.id, &shared_bytes), VPMM_OK);
    assert_int_equal(vpmm_heap_lease(f.heap, p, region.owner.id, &start, &end), VPMM_OK);
    fixture_free(&f, p, NULL);
    assert_int_equal(vpmm_heap_synchronize(f.heap), VPMM_OK);
    assert_account(&f, 0, 2, 0);
    assert_int_equal(account(&f).withheld_pages, 2);
    vpmm_heap_unlease(f.heap, p, region.owner.id);
    assert_account(&f, 0, 2, 0);
    assert_int_equal(vpmm_heap_synchronize(f.heap), VPMM_OK);
    assert_account(&f, 0, 0, 0);
    assert_int_equal(fixture_totals(&f).held_pages, 0);
    fixture_teardown(&f);
}

/* ---- threads ---- */

enum {
    THREADS = 4,
    ROUNDS = 300,
    BLOCKS = 8
};

/* One thread's records wait for the second meeting, to which another one may come when it has
 * looked at fences so often. */
static struct {
    enum vpmm_status (*record)(void *self, vpmm_event_handle event, vpmm_context_handle context);
    enum vpmm_status (*relax)(void *self, int *mode_out);
    pthread_barrier_t meeting;
    pthread_t thread;
    unsigned n_looks, n_looks_most;
} held;
static _Thread_local bool is_held;

static enum vpmm_status record_held(void *self, vpmm_event_handle event,
                                    vpmm_context_handle context)
{
    if (is_held) {
        (void)pthread_barrier_wait(&held.meeting);
        (void)pthread_barrier_wait(&held.meeting);
    }
    return held.record(self, event, context);
}

static void let_go(void)
{
    (void)pthread_barrier_wait(&held.meeting);
    assert_int_equal(pthread_join(held.thread, NULL), 0);
}

static enum vpmm_status relax_held(void *self, int *mode_out)
{
    if (!is_held && ++held.n_looks == held.n_looks_most)
        let_go();
    return held.relax(self, mode_out);
}

static void *gather_held(void *self)
{
    struct fixture *f = self;
    (void)sim_ctx_set_current(f->sim, f->handle);
    is_held = true;
    vpmm_heap_reap(f->heap);
    return NULL;
}

/* A thread has taken what lies in a cache, and has not recorded its fence yet: for long, or until
 * it has been looked for some times. */
static void test_what_another_thread_is_closing_is_waited_for(void **state)
{
    (void)state;
    for (unsigned n_looks_most = 0; n_looks_most <= 50; n_looks_most += 50) {
        struct fixture f;
        setup(&f, true);
        CUstream stream = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        uint64_t p[4];
        for (int i = 0; i < 4; i++)
            p[i] = fixture_malloc(&f, 1, stream);
        for (int i = 0; i < 4; i++)
            fixture_free(&f, p[i], stream);
        held.record = f.driver.event_record_context;
        held.relax = f.driver.capture_relax;
        held.n_looks = 0;
        held.n_looks_most = n_looks_most;
        f.driver.event_record_context = record_held;
        f.driver.capture_relax = relax_held;
        assert_int_equal(pthread_barrier_init(&held.meeting, NULL, 2), 0);
        assert_int_equal(pthread_create(&held.thread, NULL, gather_held, &f), 0);
        (void)pthread_barrier_wait(&held.meeting);
        if (n_looks_most == 0) {
            assert_int_equal(vpmm_heap_synchronize(f.heap), VPMM_NOT_READY);
            assert_in_range(account(&f).pending_pages, 1, 4);
            let_go();
        }
        assert_int_equal(vpmm_heap_synchronize(f.heap), VPMM_OK);
        assert_account(&f, 0, 0, 4);
        assert_true(held.n_looks >= n_looks_most);
        (void)pthread_barrier_destroy(&held.meeting);
        fixture_teardown(&f);
    }
}

struct worker {
    struct fixture *f;
    CUstream stream;
    uint64_t pages;
};

static vpmm_atomic32 n_working;

/* Its stream stands still, so whatever it frees stays pending unless it has it again. */
static void *work(void *self)
{
    const struct worker *worker = self;
    struct fixture *f = worker->f;
    struct vpmm_stream stream;
    enum vpmm_status wait;
    (void)sim_ctx_set_current(f->sim, f->handle);
    if (vpmm_order_stream(f->order, (vpmm_stream_handle)worker->stream, &stream))
        abort();
    struct vpmm_request request = {
        .bytes = worker->pages * f->page_bytes, .context = f->context, .stream = &stream};
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p[BLOCKS];
        bool has_habit;
        for (int i = 0; i < BLOCKS; i++)
            if (!(vpmm_heap_malloc_cached(f->heap, &request, &p[i], &has_habit) ||
                  vpmm_heap_malloc(f->heap, &request, &p[i]) == VPMM_OK))
                abort();
        for (int i = 0; i < BLOCKS; i++)
            if (vpmm_heap_free(f->heap, p[i], &stream, &wait))
                abort();
    }
    vpmm_atomic_sub(&n_working, 1);
    return NULL;
}

/* While no work completes, the sum never falls: a page that a free takes from the one is in the
 * other at once, whichever way the free goes. Blocks of the caches' size, and larger ones. */
static void test_no_free_under_way_is_missed(void **state)
{
    (void)state;
    for (uint64_t pages = 1; pages <= 80; pages += 79) {
        struct fixture f;
        struct fixture_params params;
        fixture_params_cache(&params);
        params.heap.extent_pages_max = 0;
        params.sim.device_bytes = 64 * GIB;
        fixture_setup(&f, &params);
        volatile bool gate = false;
        pthread_t threads[THREADS];
        struct worker workers[THREADS];
        uint64_t holds[THREADS];
        for (int i = 0; i < THREADS; i++) {
            workers[i] = (struct worker){&f, fixture_stream(&f, CU_STREAM_NON_BLOCKING), pages};
            holds[i] = fixture_malloc(&f, 1, workers[i].stream);
            fixture_work(&f, workers[i].stream, holds[i], 1, true, &gate);
            /* Nobody needs more than it has freed itself. */
            uint64_t p[BLOCKS];
            for (int j = 0; j < BLOCKS; j++)
                p[j] = fixture_malloc(&f, pages, workers[i].stream);
            for (int j = 0; j < BLOCKS; j++)
                fixture_free(&f, p[j], workers[i].stream);
        }
        uint64_t all = THREADS + THREADS * BLOCKS * pages;
        assert_int_equal(account(&f).totals.live_pages + account(&f).pending_pages, all);
        vpmm_atomic_store(&n_working, THREADS);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        while (vpmm_atomic_load(&n_working)) {
            struct vpmm_heap_account now;
            vpmm_heap_account(f.heap, &now);
            assert_true(now.totals.live_pages + now.pending_pages >= all);
        }
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        gate = true;
        for (int i = 0; i < THREADS; i++)
            fixture_free(&f, holds[i], workers[i].stream);
        assert_int_equal(vpmm_heap_synchronize(f.heap), VPMM_OK);
        assert_int_equal(account(&f).pending_pages, 0);
        struct vpmm_heap_counts counts;
        vpmm_heap_counts(f.heap, &counts);
        assert_int_equal(counts.stitches, 0);
        fixture_teardown(&f);
    }
}

/* Pages of 1 GiB, each of which a byte is asked of. A second stream ends that. */
static void test_whole_pages_waste_with_one_stream_alone(void **state)
{
    (void)state;
    struct fixture f;
    struct vpmm_stream known;
    struct vpmm_request request = {.bytes = 1, .stream = &known};
    uint64_t p[2];
    fixture_setup_default(&f);
    request.context = f.context;
    for (int i = 0; i < 2; i++) {
        CUstream stream = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        assert_int_equal(vpmm_order_stream(f.order, (vpmm_stream_handle)stream, &known), VPMM_OK);
        assert_int_equal(vpmm_heap_malloc(f.heap, &request, &p[i]), VPMM_OK);
        assert_true(vpmm_heap_is_wasteful(f.heap) == (i == 0));
    }
    fixture_free(&f, p[0], NULL);
    fixture_free(&f, p[1], NULL);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freed_pages_are_pending_until_they_are_waited_for),
        cmocka_unit_test(test_pages_that_come_back_in_order_are_live),
        cmocka_unit_test(test_failed_wait_is_made_up_for_by_the_next),
        cmocka_unit_test(test_capture_keeps_what_it_must),
        cmocka_unit_test(test_lost_and_withheld_pages_are_pending),
        cmocka_unit_test(test_what_another_thread_is_closing_is_waited_for),
        cmocka_unit_test(test_no_free_under_way_is_missed),
        cmocka_unit_test(test_whole_pages_waste_with_one_stream_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
