/* SPDX-License-Identifier: MIT */
/* VPMM_STREAM_WAITS: streams wait on the device for one another's frees before the pool holds more
 * than is live and the slack. */
#include "fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define PAGES 4
/* The default slack, in pages. */
#define SLACK_PAGES 16
#define ROUNDS 20

static void start(struct fixture *f, bool waits)
{
    struct fixture_params params;
    fixture_params_cache(&params);
    params.heap.stream_waits = waits;
    fixture_setup(f, &params);
    assert_int_equal(params.heap.slack_bytes, SLACK_PAGES * f->page_bytes);
}

static uint64_t n_waits(struct fixture *f)
{
    struct vpmm_heap_counts counts;
    vpmm_heap_counts(f->heap, &counts);
    return counts.stream_waits;
}

/* Each round a new stream takes a block, is held, and frees it. */
static void go_round(struct fixture *f, const volatile bool *gate, bool frees_async)
{
    for (int i = 0; i < ROUNDS; i++) {
        CUstream stream = fixture_stream(f, CU_STREAM_NON_BLOCKING);
        uint64_t p = fixture_malloc(f, PAGES, stream);
        fixture_work(f, stream, p, PAGES, true, gate);
        fixture_free(f, p, frees_async ? stream : NULL);
    }
}

static void test_no_stream_waits_without_the_option(void **state)
{
    (void)state;
    struct fixture f;
    volatile bool gate = false;
    start(&f, false);
    go_round(&f, &gate, true);
    assert_int_equal(fixture_totals(&f).held_pages, ROUNDS * PAGES);
    assert_int_equal(n_waits(&f), 0);
    gate = true;
    fixture_teardown(&f);
}

static void test_streams_wait_once_the_slack_is_used_up(void **state)
{
    (void)state;
    struct fixture f;
    volatile bool gate = false;
    start(&f, true);
    go_round(&f, &gate, true);
    assert_int_equal(fixture_totals(&f).held_pages, SLACK_PAGES);
    assert_int_equal(n_waits(&f), ROUNDS - SLACK_PAGES / PAGES);
    gate = true;
    fixture_teardown(&f);
}

/* What stands for a cudaFree covers work that was queued after it, in the whole context. */
static void test_no_stream_waits_for_a_cudafree(void **state)
{
    (void)state;
    struct fixture f;
    volatile bool gate = false;
    start(&f, true);
    go_round(&f, &gate, false);
    assert_int_equal(fixture_totals(&f).held_pages, ROUNDS * PAGES);
    assert_int_equal(n_waits(&f), 0);
    gate = true;
    fixture_teardown(&f);
}

/* Its wait would put the blocking streams in an order that the program did not make. */
static void test_the_legacy_stream_does_not_wait(void **state)
{
    (void)state;
    struct fixture f;
    volatile bool gate = false;
    start(&f, true);
    go_round(&f, &gate, true);
    uint64_t n_before = n_waits(&f);
    uint64_t p = fixture_malloc(&f, PAGES, CU_STREAM_LEGACY);
    assert_int_equal(n_waits(&f), n_before);
    assert_int_equal(fixture_totals(&f).held_pages, SLACK_PAGES + PAGES);
    fixture_free(&f, p, CU_STREAM_LEGACY);
    gate = true;
    fixture_teardown(&f);
}

/* A request larger than the slack waits for what there is, and gets new memory for the rest. */
static void test_a_large_request_is_served(void **state)
{
    (void)state;
    struct fixture f;
    volatile bool gate = false;
    start(&f, true);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    uint64_t p = fixture_malloc(&f, SLACK_PAGES, a);
    fixture_work(&f, a, p, SLACK_PAGES, true, &gate);
    fixture_free(&f, p, a);
    uint64_t q = fixture_malloc(&f, SLACK_PAGES + PAGES, b);
    fixture_work(&f, b, q, SLACK_PAGES + PAGES, true, NULL);
    assert_int_equal(n_waits(&f), 1);
    assert_int_equal(fixture_totals(&f).held_pages, SLACK_PAGES + PAGES);
    fixture_free(&f, q, b);
    gate = true;
    fixture_teardown(&f);
}

#define MANY 40
#define OTHERS 20

static struct {
    struct fixture *fixture;
    uint64_t block;
} other;

static void *free_other(void *unused)
{
    enum vpmm_status wait;
    (void)unused;
    assert_int_equal(vpmm_heap_free(other.fixture->heap, other.block, NULL, &wait), VPMM_OK);
    return NULL;
}

/* Some of what it lacks another thread's cudaFree left pending, which it cannot wait for. So it is
 * refused, and has its stream wait for each of the others once. */
static void test_a_stream_waits_once_for_each(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    volatile bool gate = false;
    pthread_t thread;
    uint64_t blocks[MANY], address;
    CUstream streams[MANY];
    fixture_params_cache(&params);
    params.heap.stream_waits = true;
    params.heap.limit_bytes = (MANY + OTHERS) * 16 * MIB;
    fixture_setup(&f, &params);
    for (int i = 0; i < MANY; i++) {
        streams[i] = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        blocks[i] = fixture_malloc(&f, 1, streams[i]);
    }
    other.fixture = &f;
    other.block = fixture_malloc(&f, OTHERS, NULL);
    for (int i = 0; i < MANY; i++) {
        fixture_work(&f, streams[i], blocks[i], 1, true, &gate);
        fixture_free(&f, blocks[i], streams[i]);
    }
    assert_int_equal(pthread_create(&thread, NULL, free_other, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    vpmm_stream_handle handle = (vpmm_stream_handle)fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct vpmm_stream stream;
    assert_int_equal(vpmm_order_stream(f.order, handle, &stream), VPMM_OK);
    const struct vpmm_request request = {
        .bytes = (MANY + OTHERS) * f.page_bytes, .context = f.context, .stream = &stream};
    assert_int_not_equal(vpmm_heap_malloc(f.heap, &request, &address), VPMM_OK);
    assert_int_equal(n_waits(&f), MANY);
    gate = true;
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_stream_waits_without_the_option),
        cmocka_unit_test(test_streams_wait_once_the_slack_is_used_up),
        cmocka_unit_test(test_no_stream_waits_for_a_cudafree),
        cmocka_unit_test(test_the_legacy_stream_does_not_wait),
        cmocka_unit_test(test_a_large_request_is_served),
        cmocka_unit_test(test_a_stream_waits_once_for_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
