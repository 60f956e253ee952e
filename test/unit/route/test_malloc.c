/* SPDX-License-Identifier: MIT */
/* The router and one request: which heap gets it, what it is told, and what becomes of the answer.
 */
#include "fixture.h"

#include <string.h>

static void the_current_context_names_the_device_of_cudamalloc(void **state)
{
    (void)state;
    fakes.current = 1;
    assert_int_equal(sync_malloc(5 * MIB), VPMM_ROUTE_POOL);
    assert_null(vpmm_router_heap(fixture.router, 0));
    assert_ptr_equal(vpmm_router_heap(fixture.router, 1), &fakes.heaps[1]);
    assert_int_equal(fakes.heaps[1].request.bytes, 5 * MIB);
    assert_ptr_equal(fakes.heaps[1].request.context, &fakes.contexts[1]);
    assert_null(fakes.heaps[1].request.stream);
}

static void the_stream_names_the_device_of_cudamallocasync(void **state)
{
    (void)state;
    fakes.current = 1;
    assert_int_equal(async_malloc(5 * MIB, 2), VPMM_ROUTE_POOL);
    assert_null(vpmm_router_heap(fixture.router, 1));
    assert_ptr_equal(fakes.heaps[2].request.context, &fakes.contexts[2]);
    assert_int_equal(fakes.heaps[2].stream.id, 12);
}

static void a_heap_is_made_once_and_only_for_a_large_request(void **state)
{
    (void)state;
    assert_int_equal(sync_malloc(FAKE_GRANULARITY - 1), VPMM_ROUTE_SMALL);
    assert_int_equal(sync_malloc(0), VPMM_ROUTE_SMALL);
    assert_int_equal(sync_malloc(FAKE_DEVICE_BYTES + 1), VPMM_ROUTE_LARGE);
    assert_int_equal(fakes.n_creates, 0);
    assert_int_equal(fixture.n_first_heaps, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(sync_malloc(FAKE_GRANULARITY), VPMM_ROUTE_POOL);
    assert_int_equal(async_malloc(FAKE_DEVICE_BYTES, 0), VPMM_ROUTE_POOL);
    assert_int_equal(fakes.n_creates, 1);
    assert_int_equal(fakes.n_facts, 1);
    assert_int_equal(fixture.n_first_heaps, 1);
    assert_int_equal(async_malloc(4 * MIB, 1), VPMM_ROUTE_POOL);
    assert_int_equal(fakes.n_creates, 2);
    assert_int_equal(fixture.n_first_heaps, 1);
}

/* Requests that go to CUDA until a heap has been tried so often. */
static unsigned pass_on_until_created(unsigned n_creates)
{
    unsigned n = 0;
    for (; fakes.n_creates < n_creates; n++)
        assert_int_not_equal(sync_malloc(4 * MIB), VPMM_ROUTE_POOL);
    return n;
}

static void a_heap_that_failed_is_tried_ever_more_rarely(void **state)
{
    (void)state;
    fakes.create_status = VPMM_NO_MEMORY;
    assert_int_equal(pass_on_until_created(1), 1);
    assert_int_equal(pass_on_until_created(2), 16 + 1);
    assert_int_equal(pass_on_until_created(3), 256 + 1);
    assert_int_equal(pass_on_until_created(4), 4096 + 1);
    fakes.create_status = VPMM_OK;
    assert_int_equal(pass_on_until_created(4), 0);
    assert_int_equal(async_malloc(4 * MIB, 1), VPMM_ROUTE_POOL);
}

static void a_heap_that_failed_is_tried_again_unless_it_is_hopeless(void **state)
{
    (void)state;
    fakes.create_status = VPMM_NO_MEMORY;
    pass_on_until_created(1);
    fakes.create_status = VPMM_NOT_SUPPORTED;
    pass_on_until_created(2);
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_NO_VMM);
    fakes.create_status = VPMM_OK;
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_NO_VMM);
    assert_int_equal(fakes.n_creates, 2);
    assert_int_equal(async_malloc(4 * MIB, 1), VPMM_ROUTE_POOL);
    assert_int_equal(fixture.n_first_heaps, 1);
}

static void no_context_and_captures_pass_through(void **state)
{
    (void)state;
    fakes.current = -1;
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_NO_CONTEXT);
    fakes.stream_status = VPMM_NO_CONTEXT;
    assert_int_equal(async_malloc(4 * MIB, 0), VPMM_ROUTE_NO_CONTEXT);
    fakes.stream_status = VPMM_CAPTURED;
    assert_int_equal(async_malloc(4 * MIB, 0), VPMM_ROUTE_CAPTURING);
    fakes.stream_status = VPMM_OK;
    fakes.is_capturing = true;
    assert_int_equal(async_malloc(4 * MIB, 0), VPMM_ROUTE_CAPTURING);
    fakes.current = 0;
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_POOL);
    fakes.context_status = VPMM_CAPTURED;
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_CAPTURING);
}

static void whatever_else_fails_passes_through(void **state)
{
    (void)state;
    static const enum vpmm_status others[] = {VPMM_CONTEXT_GONE, VPMM_NO_METADATA, VPMM_BROKEN,
                                              VPMM_SHUT_DOWN,    VPMM_INVALID,     VPMM_FAILED};
    for (unsigned i = 0; i < sizeof others / sizeof others[0]; i++) {
        fakes.context_status = fakes.stream_status = others[i];
        assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_OTHER);
        assert_int_equal(async_malloc(4 * MIB, 0), VPMM_ROUTE_OTHER);
        fakes.context_status = fakes.stream_status = VPMM_OK;
        fakes.facts_status = others[i];
        assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_OTHER);
        fakes.facts_status = VPMM_OK;
    }
    fakes.context_status = fakes.stream_status = VPMM_NOT_SUPPORTED;
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_NO_VMM);
    assert_int_equal(async_malloc(4 * MIB, 0), VPMM_ROUTE_NO_VMM);
    fakes.context_status = fakes.stream_status = VPMM_OK;
    assert_int_equal(fakes.n_creates, 0);
    fakes.contexts[0].device = VPMM_DEVICES_MAX;
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_OTHER);
}

static void what_the_heap_answers_is_a_reason(void **state)
{
    (void)state;
    static const struct {
        enum vpmm_status status;
        enum vpmm_route route;
    } answers[] = {
        {VPMM_NO_MEMORY, VPMM_ROUTE_FULL},
        {VPMM_LIMITED, VPMM_ROUTE_LIMITED},
        {VPMM_NO_METADATA, VPMM_ROUTE_OTHER},
        {VPMM_INVALID, VPMM_ROUTE_OTHER},
        {VPMM_BROKEN, VPMM_ROUTE_OTHER},
        {VPMM_SHUT_DOWN, VPMM_ROUTE_OTHER},
        {VPMM_CAPTURED, VPMM_ROUTE_CAPTURING},
        {VPMM_NOT_SUPPORTED, VPMM_ROUTE_NO_VMM},
        {VPMM_OK, VPMM_ROUTE_POOL},
    };
    for (unsigned i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        fakes.heaps[0].malloc_status = answers[i].status;
        assert_int_equal(sync_malloc(4 * MIB), answers[i].route);
    }
}

static void small_requests_ask_nobody_once_a_device_is_known(void **state)
{
    (void)state;
    fakes.facts[1].granularity_bytes = 4 * FAKE_GRANULARITY;
    assert_false(vpmm_router_is_small(fixture.router, 1));
    fakes.current = 1;
    assert_int_equal(sync_malloc(FAKE_GRANULARITY), VPMM_ROUTE_SMALL);
    assert_true(vpmm_router_is_small(fixture.router, 4 * FAKE_GRANULARITY - 1));
    fakes.current = 0;
    assert_int_equal(sync_malloc(4 * FAKE_GRANULARITY), VPMM_ROUTE_POOL);
    assert_int_equal(sync_malloc(FAKE_GRANULARITY), VPMM_ROUTE_POOL);
    assert_true(vpmm_router_is_small(fixture.router, FAKE_GRANULARITY - 1));
    assert_false(vpmm_router_is_small(fixture.router, FAKE_GRANULARITY));
    fakes.context_status = fakes.stream_status = VPMM_BROKEN;
    assert_int_equal(sync_malloc(FAKE_GRANULARITY - 1), VPMM_ROUTE_SMALL);
    assert_int_equal(async_malloc(FAKE_GRANULARITY - 1, 0), VPMM_ROUTE_SMALL);
    assert_int_equal(sync_malloc(FAKE_GRANULARITY), VPMM_ROUTE_OTHER);
}

static void a_device_without_vmm_passes_through(void **state)
{
    (void)state;
    fakes.facts[0] = (struct vpmm_device_facts){.total_bytes = FAKE_DEVICE_BYTES};
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_NO_VMM);
    assert_int_equal(fakes.n_creates, 0);
}

static void answers_are_counted_by_kind(void **state)
{
    (void)state;
    uint64_t counts[VPMM_ROUTE_COUNT];
    (void)sync_malloc(1);
    (void)sync_malloc(4 * MIB);
    (void)sync_malloc(4 * MIB);
    (void)async_malloc(2, 0);
    (void)async_malloc(3, 0);
    fakes.heaps[0].malloc_status = VPMM_NO_MEMORY;
    (void)async_malloc(4 * MIB, 0);
    vpmm_router_counts(fixture.router, false, counts);
    for (int i = 0; i < VPMM_ROUTE_COUNT; i++)
        assert_int_equal(counts[i], i == VPMM_ROUTE_SMALL ? 1 : i == VPMM_ROUTE_POOL ? 2 : 0);
    vpmm_router_counts(fixture.router, true, counts);
    for (int i = 0; i < VPMM_ROUTE_COUNT; i++)
        assert_int_equal(counts[i], i == VPMM_ROUTE_SMALL ? 2 : i == VPMM_ROUTE_FULL ? 1 : 0);
}

static void out_of_memory_is_one_line_with_all_figures(void **state)
{
    (void)state;
    fakes.heaps[0].malloc_status = VPMM_NO_MEMORY;
    const char *text = said_by_malloc(40 * MIB);
    static const char *const parts[] = {"40 MiB of cudaMalloc", "live 200 MiB",
                                        "held 600 MiB",         "largest free run 12 MiB",
                                        "unmapped 14 MiB",      "free on the device 3 MiB"};
    for (unsigned i = 0; i < sizeof parts / sizeof parts[0]; i++)
        assert_non_null(strstr(text, parts[i]));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void a_refusal_that_nobody_reads_of_walks_no_regions(void **state)
{
    (void)state;
    fakes.heaps[0].malloc_status = VPMM_NO_MEMORY;
    (void)sync_malloc(40 * MIB);
    assert_int_equal(fakes.n_looks, 0);
    (void)said_by_malloc(40 * MIB);
    assert_true(fakes.n_looks > 0);
}

/* ---- what a stream's front cache serves ---- */

static enum vpmm_route request_again(const struct vpmm_route_request *request)
{
    uint64_t address = 0;
    fakes.heaps[1].request.bytes = 0;
    return routed(request, &address);
}

/* Stream 1 has freed a block of heap 1. */
static void free_into_the_cache(void)
{
    enum vpmm_status status;
    fakes.caches = true;
    if (!vpmm_router_heap(fixture.router, 1))
        (void)async_malloc(4 * MIB, 1);
    assert_int_equal(vpmm_router_free(fixture.router, fakes.heaps[1].base, fake_stream(1), &status),
                     VPMM_FREED);
    assert_int_equal(fakes.heaps[1].cached_of, 11);
}

static void a_request_is_served_from_the_cache_of_its_stream(void **state)
{
    (void)state;
    const struct vpmm_route_request request = {
        .bytes = 4 * MIB, .is_async = true, .stream = fake_stream(1)};
    uint64_t counts[VPMM_ROUTE_COUNT];
    free_into_the_cache();
    assert_int_equal(request_again(&request), VPMM_ROUTE_POOL);
    assert_int_equal(fakes.heaps[1].request.bytes, 0);
    assert_int_equal(fakes.heaps[1].cache_hits, 1);
    vpmm_router_counts(fixture.router, true, counts);
    assert_int_equal(counts[VPMM_ROUTE_POOL], 2);
    vpmm_router_counts(fixture.router, false, counts);
    assert_int_equal(counts[VPMM_ROUTE_POOL], 0);
    assert_int_equal(request_again(&request), VPMM_ROUTE_POOL);
    assert_int_equal(fakes.heaps[1].request.bytes, 4 * MIB);
    assert_int_equal(fakes.heaps[1].cache_hits, 1);
}

static void a_request_is_served_by_its_habit_at_once(void **state)
{
    (void)state;
    const struct vpmm_route_request request = {
        .bytes = 4 * MIB, .is_async = true, .stream = fake_stream(1)};
    uint64_t counts[VPMM_ROUTE_COUNT];
    fakes.caches = true;
    (void)async_malloc(4 * MIB, 1);
    fakes.heaps[1].habit_of = 11;
    assert_int_equal(request_again(&request), VPMM_ROUTE_POOL);
    assert_int_equal(fakes.heaps[1].request.bytes, 0);
    vpmm_router_counts(fixture.router, true, counts);
    assert_int_equal(counts[VPMM_ROUTE_POOL], 2);
    fakes.heaps[1].habit_of = 0;
    assert_int_equal(request_again(&request), VPMM_ROUTE_POOL);
    assert_int_equal(fakes.heaps[1].request.bytes, 4 * MIB);
}

/* As without a cache. */
static void what_is_not_the_pools_is_not_served_from_the_cache(void **state)
{
    (void)state;
    struct vpmm_mempool of_another_device = {0};
    const struct {
        struct vpmm_route_request request;
        enum vpmm_route route;
    } rows[] = {
        {{.bytes = FAKE_GRANULARITY - 1, .is_async = true, .stream = fake_stream(1)},
         VPMM_ROUTE_SMALL},
        {{.bytes = 4 * MIB,
          .is_async = true,
          .names_explicit_pool = true,
          .stream = fake_stream(1)},
         VPMM_ROUTE_EXPLICIT_POOL},
        {{.bytes = 4 * MIB,
          .is_async = true,
          .mempool = &of_another_device,
          .pool_device = 0,
          .stream = fake_stream(1)},
         VPMM_ROUTE_OTHER_POOL},
        {{.bytes = 4 * MIB}, VPMM_ROUTE_POOL},
        {{.bytes = 4 * MIB, .is_async = true, .stream = fake_stream(2)}, VPMM_ROUTE_POOL},
    };
    free_into_the_cache();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(request_again(&rows[i].request), rows[i].route);
        assert_int_equal(fakes.heaps[1].cached_of, 11);
    }
    int device;
    vpmm_mempool_handle handle = (vpmm_mempool_handle)(void *)&of_another_device;
    const struct vpmm_route_request request = {
        .bytes = 4 * MIB, .is_async = true, .stream = fake_stream(1)};
    vpmm_router_mempool_set(fixture.router, 1, NULL);
    assert_int_equal(request_again(&request), VPMM_ROUTE_OTHER_POOL);
    vpmm_router_mempool_default(fixture.router, handle, 1);
    vpmm_router_mempool_set(fixture.router, 1,
                            vpmm_router_mempool(fixture.router, handle, &device));
    assert_int_equal(request_again(&request), VPMM_ROUTE_POOL);
    assert_int_equal(fakes.heaps[1].cache_hits, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(the_current_context_names_the_device_of_cudamalloc),
        FIXTURE_TEST(the_stream_names_the_device_of_cudamallocasync),
        FIXTURE_TEST(a_heap_is_made_once_and_only_for_a_large_request),
        FIXTURE_TEST(a_heap_that_failed_is_tried_again_unless_it_is_hopeless),
        FIXTURE_TEST(a_heap_that_failed_is_tried_ever_more_rarely),
        FIXTURE_TEST(no_context_and_captures_pass_through),
        FIXTURE_TEST(whatever_else_fails_passes_through),
        FIXTURE_TEST(what_the_heap_answers_is_a_reason),
        FIXTURE_TEST(small_requests_ask_nobody_once_a_device_is_known),
        FIXTURE_TEST(a_device_without_vmm_passes_through),
        FIXTURE_TEST(answers_are_counted_by_kind),
        FIXTURE_TEST(a_refusal_that_nobody_reads_of_walks_no_regions),
        FIXTURE_TEST(out_of_memory_is_one_line_with_all_figures),
        FIXTURE_TEST(a_request_is_served_from_the_cache_of_its_stream),
        FIXTURE_TEST(a_request_is_served_by_its_habit_at_once),
        FIXTURE_TEST(what_is_not_the_pools_is_not_served_from_the_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
