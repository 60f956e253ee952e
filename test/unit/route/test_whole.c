/* SPDX-License-Identifier: MIT */
/* The router over the real heap, order and pool and a simulated machine of two devices: what a
 * program does in its life, with a clean audit after each step and nothing left over at the end. */
#include "route/route.h"

#include "sim/sim_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

static struct vpmm_config config;
static struct vpmm_driver driver;
static struct vpmm_router *router;
static struct sim *sim;
static CUcontext contexts[2];

static int set_up_machine(int driver_version, uint64_t device_bytes)
{
    char *const nothing[] = {NULL};
    struct vpmm_complaints complaints;
    struct sim_config machine;
    const struct vpmm_first_heap first_heap = {NULL, NULL, NULL};
    vpmm_config_read(&config, &complaints, nothing);
    sim_config_default(&machine);
    machine.n_devices = 2;
    machine.device_bytes = device_bytes;
    machine.driver_version = driver_version;
    machine.has_bytes = false;
    sim = sim_create(&machine);
    sim_table_fill(sim, &driver);
    return sim_ctx_create(sim, 0, 0, &contexts[0]) != CUDA_SUCCESS ||
           vpmm_router_create(&config, &driver, &vpmm_memory_system, &first_heap, &router);
}

static int set_up(void **state)
{
    (void)state;
    return set_up_machine(13000, 1024 * MIB);
}

static int set_up_old(void **state)
{
    (void)state;
    return set_up_machine(12040, 1024 * MIB);
}

static int set_up_large(void **state)
{
    (void)state;
    return set_up_machine(13000, 8192 * MIB);
}

static int tear_down(void **state)
{
    (void)state;
    struct sim_counts counts;
    (void)sim_drain(sim);
    vpmm_router_destroy(router);
    sim_live_counts(sim, &counts);
    assert_int_equal(counts.handles, 0);
    assert_int_equal(counts.reservations, 0);
    assert_int_equal(counts.mappings, 0);
    assert_int_equal(counts.events, 0);
    sim_destroy(sim);
    return 0;
}

static void audit(void)
{
    for (int device = 0; device < 2; device++) {
        struct vpmm_heap *heap = vpmm_router_heap(router, device);
        const char *broken = heap ? vpmm_heap_audit(heap) : NULL;
        if (broken)
            fail_msg("device %d: %s", device, broken);
    }
}

static enum vpmm_route allocate(uint64_t bytes, CUstream stream, uint64_t *address_out)
{
    const struct vpmm_route_request request = {
        .bytes = bytes, .is_async = stream != NULL, .stream = (vpmm_stream_handle)stream};
    enum vpmm_route route = vpmm_router_malloc(router, &request, address_out);
    audit();
    return route;
}

static enum vpmm_free_answer release(uint64_t address, CUstream stream)
{
    enum vpmm_status status = VPMM_OK;
    enum vpmm_free_answer answer =
        vpmm_router_free(router, address, (vpmm_stream_handle)stream, &status);
    assert_int_equal(status, VPMM_OK);
    audit();
    return answer;
}

static uint64_t live_bytes(int device)
{
    struct vpmm_pool_totals totals;
    vpmm_pool_totals(vpmm_heap_pool(vpmm_router_heap(router, device)), &totals);
    return totals.live_bytes;
}

static void blocks_of_both_kinds_are_served_found_and_freed_once(void **state)
{
    (void)state;
    CUstream stream;
    uint64_t first, second;
    struct vpmm_region_view view;
    int device;
    assert_int_equal(sim_stream_create(sim, CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
    assert_int_equal(allocate(6 * MIB - 13, NULL, &first), VPMM_ROUTE_POOL);
    assert_int_equal(allocate(8 * MIB, stream, &second), VPMM_ROUTE_POOL);
    assert_true(vpmm_router_find(router, first + 4 * MIB, &view, &device));
    assert_int_equal(view.address, first);
    assert_int_equal(view.owner.bytes, 6 * MIB - 13);
    assert_int_equal(vpmm_router_live_bytes(router, first, &device), 6 * MIB - 13);
    assert_int_equal(vpmm_router_live_bytes(router, first + 4 * MIB, &device), 0);
    assert_int_equal(release(first + 2 * MIB, NULL), VPMM_FREE_NOT_OURS);
    assert_int_equal(release(first, stream), VPMM_FREED);
    assert_int_equal(release(first, NULL), VPMM_FREE_NOT_OURS);
    assert_true(vpmm_router_find(router, first, &view, &device));
    assert_int_equal(view.state, VPMM_REGION_FREE);
    assert_int_equal(vpmm_router_live_bytes(router, first, &device), 0);
    assert_int_equal(device, 0);
    assert_int_equal(release(second, NULL), VPMM_FREED);
    assert_int_equal(live_bytes(0), 0);
}

/* A request is counted once, whether its stream is remembered or has to be looked at. */
static void a_request_that_the_front_cache_serves_is_counted_once(void **state)
{
    (void)state;
    CUstream stream;
    uint64_t address;
    uint64_t counts[VPMM_ROUTE_COUNT];
    int device;
    vpmm_mempool_handle handle = (vpmm_mempool_handle)(void *)&stream;
    vpmm_router_mempool_default(router, handle, 0);
    struct vpmm_mempool *mempool = vpmm_router_mempool(router, handle, &device);
    assert_non_null(mempool);
    assert_int_equal(sim_stream_create(sim, CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
    for (int i = 0; i < 6; i++) {
        const struct vpmm_route_request request = {.bytes = 4 * MIB,
                                                   .is_async = true,
                                                   .stream = (vpmm_stream_handle)stream,
                                                   .mempool = i % 2 == 1 ? mempool : NULL};
        assert_int_equal(vpmm_router_malloc(router, &request, &address), VPMM_ROUTE_POOL);
        assert_int_equal(release(address, stream), VPMM_FREED);
    }
    vpmm_router_counts(router, true, counts);
    assert_int_equal(counts[VPMM_ROUTE_POOL], 6);
}

static void a_capturing_stream_neither_allocates_nor_frees(void **state)
{
    (void)state;
    CUstream stream;
    CUgraph graph;
    uint64_t block, other;
    assert_int_equal(sim_stream_create(sim, CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
    assert_int_equal(allocate(4 * MIB, NULL, &block), VPMM_ROUTE_POOL);
    assert_int_equal(sim_stream_begin_capture(sim, stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                     CUDA_SUCCESS);
    assert_int_equal(allocate(4 * MIB, stream, &other), VPMM_ROUTE_CAPTURING);
    assert_int_equal(release(block, stream), VPMM_FREE_NOT_OURS);
    assert_int_equal(sim_stream_end_capture(sim, stream, &graph), CUDA_SUCCESS);
    assert_int_equal(sim_graph_destroy(sim, graph), CUDA_SUCCESS);
    assert_int_equal(release(block, stream), VPMM_FREED);
}

/* A context cannot be recorded while anything captures, so what was freed before is told of before.
 */
static void what_was_freed_before_a_capture_is_had_during_it(void **state)
{
    (void)state;
    enum {
        BLOCKS = 40
    };
    CUstream stream, other, captured;
    CUgraph graph;
    uint64_t blocks[BLOCKS], large;
    assert_int_equal(sim_stream_create(sim, CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
    assert_int_equal(sim_stream_create(sim, CU_STREAM_NON_BLOCKING, 0, &other), CUDA_SUCCESS);
    assert_int_equal(sim_stream_create(sim, CU_STREAM_NON_BLOCKING, 0, &captured), CUDA_SUCCESS);
    for (int i = 0; i < BLOCKS; i++)
        assert_int_equal(allocate(14 * MIB, stream, &blocks[i]), VPMM_ROUTE_POOL);
    for (int i = 0; i < BLOCKS; i++)
        assert_int_equal(release(blocks[i], stream), VPMM_FREED);
    struct vpmm_context *ticket = vpmm_router_capture_begin(router, (vpmm_stream_handle)captured);
    assert_int_equal(sim_stream_begin_capture(sim, captured, CU_STREAM_CAPTURE_MODE_RELAXED),
                     CUDA_SUCCESS);
    struct vpmm_order *order = vpmm_router_order(router);
    vpmm_order_capture_began(order, ticket, (vpmm_stream_handle)captured, true);
    assert_int_equal(allocate(800 * MIB, other, &large), VPMM_ROUTE_POOL);
    assert_int_equal(sim_stream_end_capture(sim, captured, &graph), CUDA_SUCCESS);
    vpmm_order_capture_ended(order, (vpmm_stream_handle)captured);
    assert_int_equal(sim_graph_destroy(sim, graph), CUDA_SUCCESS);
    assert_int_equal(release(large, other), VPMM_FREED);
}

static void a_full_device_passes_on_and_relief_gives_memory_back(void **state)
{
    (void)state;
    uint64_t block, other;
    struct vpmm_relief relief = {.bytes = 600 * MIB};
    assert_int_equal(allocate(600 * MIB, NULL, &block), VPMM_ROUTE_POOL);
    assert_int_equal(allocate(600 * MIB, NULL, &other), VPMM_ROUTE_FULL);
    assert_false(vpmm_router_relieve(router, VPMM_DEVICE_OF_CONTEXT, &relief));
    assert_int_equal(release(block, NULL), VPMM_FREED);
    assert_int_equal(vpmm_router_reusable_bytes(router), 600 * MIB);
    assert_true(vpmm_router_relieve(router, VPMM_DEVICE_OF_CONTEXT, &relief));
    audit();
    assert_int_equal(vpmm_router_reusable_bytes(router), 0);
    assert_int_equal(allocate(1025 * MIB, NULL, &other), VPMM_ROUTE_LARGE);
}

static void a_destroyed_context_takes_its_cudamalloc_memory_along(void **state)
{
    (void)state;
    CUstream stream;
    CUcontext other;
    uint64_t kept, lost;
    assert_int_equal(sim_stream_create(sim, CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
    assert_int_equal(sim_ctx_create(sim, 0, 0, &other), CUDA_SUCCESS);
    assert_int_equal(allocate(4 * MIB, NULL, &lost), VPMM_ROUTE_POOL);
    assert_int_equal(allocate(6 * MIB, stream, &kept), VPMM_ROUTE_POOL);
    struct vpmm_departure departure =
        vpmm_order_context_leaving(vpmm_router_order(router), (vpmm_context_handle)other, true);
    assert_int_equal(sim_ctx_destroy(sim, other), CUDA_SUCCESS);
    vpmm_router_context_left(router, &departure, true);
    audit();
    assert_int_equal(live_bytes(0), 6 * MIB);
    assert_int_equal(sim_ctx_set_current(sim, contexts[0]), CUDA_SUCCESS);
    assert_int_equal(release(lost, NULL), VPMM_FREE_NOT_OURS);
    assert_int_equal(release(kept, NULL), VPMM_FREED);
}

static void a_second_device_is_served_reached_and_freed_across(void **state)
{
    (void)state;
    CUstream stream;
    uint64_t near, far;
    assert_int_equal(allocate(4 * MIB, NULL, &near), VPMM_ROUTE_POOL);
    assert_int_equal(sim_ctx_create(sim, 0, 1, &contexts[1]), CUDA_SUCCESS);
    vpmm_router_context_made(router, 1);
    assert_int_equal(sim_stream_create(sim, CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
    assert_int_equal(allocate(4 * MIB, NULL, &far), VPMM_ROUTE_POOL);
    assert_int_equal(vpmm_heap_device(vpmm_router_heap(router, 1)), 1);
    for (int device = 0; device < 2; device++) {
        const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
        unsigned long long flags[2];
        assert_int_equal(sim_mem_get_access(sim, near, &location, &flags[0]), CUDA_SUCCESS);
        assert_int_equal(sim_mem_get_access(sim, far, &location, &flags[1]), CUDA_SUCCESS);
        assert_int_equal(flags[0], CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        assert_int_equal(flags[1], CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    assert_int_equal(release(near, stream), VPMM_FREED);
    assert_int_equal(release(far, NULL), VPMM_FREED);
    assert_int_equal(live_bytes(0) + live_bytes(1), 0);
}

static void expect_small_is_cudas(uint64_t page_bytes)
{
    CUstream stream;
    uint64_t address;
    assert_int_equal(sim_stream_create(sim, CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(allocate(4096, NULL, &address), VPMM_ROUTE_SMALL);
        assert_int_equal(allocate(page_bytes - 1, stream, &address), VPMM_ROUTE_SMALL);
        assert_int_equal(allocate(page_bytes, stream, &address), VPMM_ROUTE_POOL);
        assert_int_equal(release(address, stream), VPMM_FREED);
    }
    assert_null(vpmm_router_small(router, 0));
}

static void a_driver_that_records_no_context_serves_no_small_request(void **state)
{
    (void)state;
    config.min_bytes = 1;
    expect_small_is_cudas(2 * MIB);
    assert_true(vpmm_router_is_small(router, 2 * MIB - 1));
}

static void pages_too_large_for_a_layer_serve_no_small_request(void **state)
{
    (void)state;
    config.min_bytes = 1;
    config.page_bytes = 3072 * MIB;
    expect_small_is_cudas(3072 * MIB);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(blocks_of_both_kinds_are_served_found_and_freed_once),
        TEST(a_request_that_the_front_cache_serves_is_counted_once),
        TEST(a_capturing_stream_neither_allocates_nor_frees),
        TEST(what_was_freed_before_a_capture_is_had_during_it),
        TEST(a_full_device_passes_on_and_relief_gives_memory_back),
        TEST(a_destroyed_context_takes_its_cudamalloc_memory_along),
        TEST(a_second_device_is_served_reached_and_freed_across),
        cmocka_unit_test_setup_teardown(a_driver_that_records_no_context_serves_no_small_request,
                                        set_up_old, tear_down),
        cmocka_unit_test_setup_teardown(pages_too_large_for_a_layer_serve_no_small_request,
                                        set_up_large, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
