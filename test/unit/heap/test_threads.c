/* SPDX-License-Identifier: MIT */
/* What another thread does between two steps of one call. */
#include "fixture.h"

#include "base/atomic.h"
#include "heap/heap_internal.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define ROUNDS 20000

static vpmm_atomic32 is_over;

static struct vpmm_context *another_context(struct fixture *f)
{
    CUcontext handle;
    struct vpmm_context *context;
    assert_int_equal(sim_ctx_create(f->sim, 0, 0, &handle), CUDA_SUCCESS);
    assert_int_equal(vpmm_order_context(f->order, NULL, &context), VPMM_OK);
    return context;
}

struct funeral {
    struct vpmm_heap *heap;
    uint64_t context_id;
};

static void *bury(void *argument)
{
    const struct funeral *funeral = argument;
    while (!vpmm_atomic_load(&is_over))
        vpmm_heap_context_gone(funeral->heap, funeral->context_id);
    return NULL;
}

/* The end of one context never frees another's block, although blocks of both come and go at one
 * address. */
static void test_context_gone_while_an_address_changes_hands(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.eager = true;
    fixture_setup(&f, &params);
    struct vpmm_context *dead = another_context(&f);
    struct vpmm_request mortal = {.bytes = GIB, .context = dead};
    struct vpmm_request other = {.bytes = GIB, .context = f.context};
    struct funeral funeral = {f.heap, vpmm_context_id(dead)};
    pthread_t thread;
    vpmm_atomic_store(&is_over, 0);
    assert_int_equal(pthread_create(&thread, NULL, bury, &funeral), 0);
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t p, q;
        enum vpmm_status wait;
        assert_int_equal(vpmm_heap_malloc(f.heap, &mortal, &p), VPMM_OK);
        enum vpmm_status status = vpmm_heap_free(f.heap, p, NULL, &wait);
        assert_true(status == VPMM_OK || status == VPMM_NOT_FOUND);
        assert_int_equal(vpmm_heap_malloc(f.heap, &other, &q), VPMM_OK);
        assert_int_equal(vpmm_heap_free(f.heap, q, NULL, &wait), VPMM_OK);
    }
    vpmm_atomic_store(&is_over, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    fixture_teardown(&f);
}

static struct {
    struct fixture *fixture;
    uint64_t freed, taken;
} merger;

/* While the first root is made accessible, two regions of the second become one. */
static void merge_meanwhile(void *self, const char *name)
{
    (void)self;
    struct fixture *f = merger.fixture;
    enum vpmm_status wait;
    if (!f || merger.taken || strcmp(name, "cuMemSetAccess") != 0)
        return;
    struct vpmm_request request = {.bytes = 2 * f->page_bytes, .context = f->context};
    assert_int_equal(vpmm_heap_free(f->heap, merger.freed, NULL, &wait), VPMM_OK);
    assert_int_equal(vpmm_heap_malloc(f->heap, &request, &merger.taken), VPMM_OK);
}

/* A second device gets access to everything mapped, however regions split and merge meanwhile. */
static void test_add_peer_while_regions_merge(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.n_devices = 2;
    params.sim.eager = true;
    params.sim.device_bytes = 64 * MIB;
    params.sim.before_call = merge_meanwhile;
    params.heap.page_bytes = 2 * MIB;
    params.heap.root_bytes = 4 * MIB;
    fixture_setup(&f, &params);
    uint64_t first_root = fixture_malloc(&f, 2, NULL);
    uint64_t p = fixture_malloc(&f, 1, NULL);
    merger.freed = fixture_malloc(&f, 1, NULL);
    assert_int_equal(merger.freed, p + f.page_bytes);
    fixture_free(&f, p, NULL);
    vpmm_heap_reap(f.heap);
    merger.taken = 0;
    merger.fixture = &f;
    assert_int_equal(vpmm_heap_add_peer(f.heap, 1), VPMM_OK);
    merger.fixture = NULL;
    assert_int_equal(merger.taken, p);
    for (uint64_t page = 0; page < 2; page++) {
        char byte;
        assert_true(sim_peek(f.sim, 1, first_root + page * f.page_bytes, &byte, 1));
        assert_true(sim_peek(f.sim, 1, p + page * f.page_bytes, &byte, 1));
    }
    fixture_free(&f, first_root, NULL);
    fixture_free(&f, p, NULL);
    fixture_teardown(&f);
}

static struct {
    struct fixture *fixture;
    volatile bool gate;
    unsigned n_exchanges;
} learner;

uint64_t __wrap_vpmm_now_ms(void);
void __wrap_vpmm_pause(void);

static vpmm_atomic64 clock_ms;
/* What a pause takes; on a busy host much more than it asks for. */
static uint64_t pause_ms = 1;
/* Called in each pause; NULL: nothing. */
static void (*in_pause)(void);

/* The heap's patience is a number of polls, however long a busy machine takes for them. */
uint64_t __wrap_vpmm_now_ms(void)
{
    return 1 + vpmm_atomic_load(&clock_ms);
}

void __wrap_vpmm_pause(void)
{
    vpmm_atomic_add(&clock_ms, pause_ms);
    if (in_pause)
        in_pause();
    (void)sched_yield();
}

/* The capture mode is exchanged before each poll, and back after it. */
#define AFTER_A_POLL 40

/* Another thread learns of the completion, just after the waiting one has polled in vain. */
static void learn_first(void *self, const char *name)
{
    (void)self;
    if (!learner.fixture || strcmp(name, "cuThreadExchangeStreamCaptureMode") != 0 ||
        ++learner.n_exchanges != AFTER_A_POLL)
        return;
    learner.gate = true;
    (void)sim_drain(learner.fixture->sim);
    vpmm_heap_reap(learner.fixture->heap);
}

/* What another thread settles while a request polls is not lost on the request. */
static void test_poll_does_not_miss_what_others_learn(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    fixture_params_default(&params);
    params.sim.before_call = learn_first;
    fixture_setup(&f, &params);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 40, a);
    learner.gate = false;
    learner.n_exchanges = 0;
    fixture_work(&f, a, p, 40, true, &learner.gate);
    fixture_free(&f, p, a);
    learner.fixture = &f;
    uint64_t q = fixture_malloc(&f, 60, NULL);
    learner.fixture = NULL;
    assert_in_range(learner.n_exchanges, AFTER_A_POLL, 1000000);
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

static struct {
    struct fixture *fixture;
    volatile bool gate;
    unsigned n_left;
} slow_work;

static void work_on(void)
{
    if (slow_work.n_left && !--slow_work.n_left) {
        slow_work.gate = true;
        (void)sim_drain(slow_work.fixture->sim);
    }
}

/* On a busy host the first pause is longer than the heap's patience. The request looks often enough
 * all the same to meet work that ends soon. */
static void test_a_busy_host_does_not_shorten_the_patience(void **state)
{
    (void)state;
    struct fixture f;
    fixture_setup_default(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, 40, a);
    slow_work.fixture = &f;
    slow_work.gate = false;
    slow_work.n_left = 50;
    fixture_work(&f, a, p, 40, true, &slow_work.gate);
    fixture_free(&f, p, a);
    in_pause = work_on;
    pause_ms = 1000;
    uint64_t q = fixture_malloc(&f, 60, NULL);
    in_pause = NULL;
    pause_ms = 1;
    assert_int_equal(slow_work.n_left, 0);
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

/* ---- streams that rob one another ---- */

#define TURNS 100

/* Streams that take and free a block in turn, twice of one size and twice of the other; what was
 * held at most, in pages. */
static uint64_t held_by_turns(uint64_t slack_pages, uint64_t slack_percent, unsigned n_streams,
                              const uint64_t pages[2], uint64_t *n_hits_out)
{
    struct fixture f;
    struct fixture_params params;
    CUstream streams[4];
    fixture_params_cache(&params);
    params.sim.eager = true;
    params.heap.spare_percent = 0;
    params.heap.slack_bytes = slack_pages * (16 * MIB);
    params.heap.slack_percent = slack_percent;
    fixture_setup(&f, &params);
    assert_int_equal(f.page_bytes, 16 * MIB);
    for (unsigned i = 0; i < n_streams; i++)
        streams[i] = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < TURNS * n_streams; i++)
        fixture_cycle(&f, pages[i / n_streams / 2 % 2], streams[i % n_streams]);
    uint64_t held = fixture_totals(&f).held_pages;
    *n_hits_out = fixture_hits(&f);
    fixture_teardown(&f);
    return held;
}

static void test_streams_that_rob_one_another_get_a_block_each(void **state)
{
    (void)state;
    uint64_t n_hits;
    assert_int_equal(held_by_turns(16, 0, 2, (uint64_t[]){4, 4}, &n_hits), 8);
    assert_in_range(n_hits, TURNS, 2 * TURNS);
    assert_int_equal(held_by_turns(16, 0, 4, (uint64_t[]){4, 4}, &n_hits), 16);
    assert_in_range(n_hits, 2 * TURNS, 4 * TURNS);
}

static void test_no_block_is_made_beyond_what_may_be_spared(void **state)
{
    (void)state;
    uint64_t n_hits;
    assert_int_equal(held_by_turns(3, 0, 2, (uint64_t[]){4, 4}, &n_hits), 4);
    assert_int_equal(held_by_turns(4, 0, 4, (uint64_t[]){4, 4}, &n_hits), 8);
    assert_int_equal(held_by_turns(0, 50, 2, (uint64_t[]){4, 4}, &n_hits), 4);
    assert_int_equal(held_by_turns(0, 100, 2, (uint64_t[]){4, 4}, &n_hits), 8);
}

/* A stream whose sizes change is not helped by a block of the last one. */
static void test_only_a_block_of_one_size_again_and_again_counts(void **state)
{
    (void)state;
    uint64_t n_hits;
    assert_int_equal(held_by_turns(16, 0, 2, (uint64_t[]){4, 3}, &n_hits), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context_gone_while_an_address_changes_hands),
        cmocka_unit_test(test_add_peer_while_regions_merge),
        cmocka_unit_test(test_poll_does_not_miss_what_others_learn),
        cmocka_unit_test(test_a_busy_host_does_not_shorten_the_patience),
        cmocka_unit_test(test_streams_that_rob_one_another_get_a_block_each),
        cmocka_unit_test(test_no_block_is_made_beyond_what_may_be_spared),
        cmocka_unit_test(test_only_a_block_of_one_size_again_and_again_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
