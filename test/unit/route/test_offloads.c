/* SPDX-License-Identifier: MIT */
/* Weights larger than their budget beside the pool of their device: what they hold counts against
 * VPMM_LIMIT, and a request that lacks memory is given theirs. Real router, heap and objects on a
 * simulated device of 64 MiB. */
#include "route/route.h"

#include "sim/sim_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)
#define GROUPS 12u
#define GROUP_BYTES (4 * MIB)

static struct vpmm_config config;
static struct vpmm_driver driver;
static struct vpmm_router *router;
static struct sim *sim;
static CUcontext context;
static CUstream stream;

static void set_up_with(char *limit)
{
    char *const variables[] = {limit, NULL};
    struct vpmm_complaints complaints;
    struct sim_config machine;
    const struct vpmm_first_heap first_heap = {NULL, NULL, NULL};
    vpmm_config_read(&config, &complaints, variables);
    sim_config_default(&machine);
    machine.device_bytes = 64 * MIB;
    machine.has_bytes = false;
    sim = sim_create(&machine);
    sim_table_fill(sim, &driver);
    assert_int_equal(sim_ctx_create(sim, 0, 0, &context), CUDA_SUCCESS);
    assert_int_equal(sim_stream_create(sim, CU_STREAM_NON_BLOCKING, 0, &stream), CUDA_SUCCESS);
    assert_int_equal(
        vpmm_router_create(&config, &driver, &vpmm_memory_system, &first_heap, &router), VPMM_OK);
}

static int set_up(void **state)
{
    (void)state;
    set_up_with(NULL);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    struct sim_counts counts;
    (void)sim_drain(sim);
    vpmm_router_destroy(router);
    sim_live_counts(sim, &counts);
    assert_int_equal(counts.handles, 0);
    assert_int_equal(counts.mappings, 0);
    assert_int_equal(counts.used_bytes[0], 0);
    sim_destroy(sim);
    return 0;
}

static enum vpmm_route allocate(uint64_t bytes, uint64_t *address_out)
{
    const struct vpmm_route_request request = {
        .bytes = bytes, .is_async = true, .stream = (vpmm_stream_handle)stream};
    enum vpmm_route route = vpmm_router_malloc(router, &request, address_out);
    struct vpmm_heap *heap = vpmm_router_heap(router, 0);
    const char *broken = heap ? vpmm_heap_audit(heap) : NULL;
    if (broken)
        fail_msg("%s", broken);
    return route;
}

static void release(uint64_t address)
{
    enum vpmm_status status = VPMM_OK;
    assert_int_equal(vpmm_router_free(router, address, (vpmm_stream_handle)stream, &status),
                     VPMM_FREED);
    assert_int_equal(status, VPMM_OK);
}

static enum vpmm_status make(uint64_t budget_bytes, struct vpmm_offload **made_out)
{
    struct vpmm_offload_params params = {.context = (vpmm_context_handle)(void *)context,
                                         .budget_bytes = budget_bytes,
                                         .root_bytes = 1024 * MIB};
    return vpmm_router_offload_create(router, &params, made_out);
}

static enum vpmm_status fill_and_seal(struct vpmm_offload *made)
{
    uint32_t order[GROUPS];
    for (uint32_t i = 0; i < GROUPS; i++) {
        const struct vpmm_offload_weight weight = {"weight", VPMM_OFFLOAD_STREAMED, i, GROUP_BYTES};
        uint64_t address;
        uint32_t number;
        void *host;
        order[i] = i;
        assert_int_equal(vpmm_offload_add(made, &weight, &address, &number), VPMM_OK);
        assert_int_equal(vpmm_offload_host(made, number, &host), VPMM_OK);
        memset(host, 1, GROUP_BYTES);
    }
    assert_int_equal(vpmm_offload_order(made, order, GROUPS), VPMM_OK);
    return vpmm_offload_seal(made, NULL);
}

static void pass(struct vpmm_offload *made)
{
    vpmm_stream_handle handle = (vpmm_stream_handle)stream;
    assert_int_equal(vpmm_offload_begin(made, handle), VPMM_OK);
    for (uint32_t i = 0; i < GROUPS; i++) {
        assert_int_equal(vpmm_offload_use(made, i, handle), VPMM_OK);
        assert_int_equal(vpmm_offload_done(made, i, handle), VPMM_OK);
    }
    assert_int_equal(vpmm_offload_end(made, handle), VPMM_OK);
}

static int set_up_limited(void **state)
{
    (void)state;
    char limit[] = "VPMM_LIMIT=40M";
    set_up_with(limit);
    return 0;
}

static void what_is_held_counts_against_the_limit(void **state)
{
    (void)state;
    struct vpmm_offload *made;
    uint64_t p;
    assert_int_equal(make(24 * MIB, &made), VPMM_OK);
    assert_int_equal(fill_and_seal(made), VPMM_OK);
    assert_int_equal(vpmm_router_offload_bytes(router, 0), 24 * MIB);
    assert_int_equal(vpmm_router_offload_bytes(router, 1), 0);
    assert_int_equal(allocate(18 * MIB, &p), VPMM_ROUTE_LIMITED);
    assert_int_equal(allocate(16 * MIB, &p), VPMM_ROUTE_POOL);
    release(p);
    assert_int_equal(vpmm_router_offload_destroy(router, made), VPMM_OK);
    assert_int_equal(allocate(40 * MIB, &p), VPMM_ROUTE_POOL);
    release(p);
}

/* What the pool holds free makes room, and what is live does not. */
static void the_pool_makes_room_under_the_limit(void **state)
{
    (void)state;
    struct vpmm_offload *made;
    uint64_t p;
    assert_int_equal(allocate(30 * MIB, &p), VPMM_ROUTE_POOL);
    assert_int_equal(make(24 * MIB, &made), VPMM_OK);
    assert_int_equal(fill_and_seal(made), VPMM_LIMITED);
    release(p);
    assert_int_equal(sim_ctx_synchronize(sim), CUDA_SUCCESS);
    assert_int_equal(vpmm_offload_seal(made, NULL), VPMM_OK);
    assert_int_equal(vpmm_router_offload_bytes(router, 0), 24 * MIB);
    assert_int_equal(vpmm_router_offload_destroy(router, made), VPMM_OK);
}

static void a_request_that_lacks_memory_is_given_theirs(void **state)
{
    (void)state;
    struct vpmm_offload *made;
    struct vpmm_offload_stats stats;
    uint64_t p;
    int device;
    assert_int_equal(make(40 * MIB, &made), VPMM_OK);
    assert_int_equal(fill_and_seal(made), VPMM_OK);
    for (int i = 0; i < 3; i++)
        pass(made);
    assert_int_equal(vpmm_router_offload_bytes(router, 0), 40 * MIB);
    assert_false(vpmm_router_offload_yield(router, 1, 2 * MIB));
    assert_int_equal(allocate(36 * MIB, &p), VPMM_ROUTE_POOL);
    assert_true(vpmm_router_offload_bytes(router, 0) <= 28 * MIB);
    assert_true(vpmm_router_offload_stats(router, 0, &device, &stats));
    assert_int_equal(device, 0);
    assert_int_equal(stats.yields, 1);
    pass(made);
    release(p);
    assert_true(vpmm_router_offload_is_alive(router, 0));
    assert_int_equal(vpmm_router_offload_destroy(router, made), VPMM_OK);
    assert_false(vpmm_router_offload_is_alive(router, 0));
    assert_int_equal(vpmm_router_offload_bytes(router, 0), 0);
}

/* The pool's free memory serves the seal of an object where the device has none left. */
static void an_object_is_given_what_the_pool_has_free(void **state)
{
    (void)state;
    struct vpmm_offload *made;
    uint64_t p;
    assert_int_equal(allocate(60 * MIB, &p), VPMM_ROUTE_POOL);
    release(p);
    assert_int_equal(sim_ctx_synchronize(sim), CUDA_SUCCESS);
    assert_int_equal(make(24 * MIB, &made), VPMM_OK);
    assert_int_equal(fill_and_seal(made), VPMM_OK);
    pass(made);
    assert_int_equal(vpmm_router_offload_destroy(router, made), VPMM_OK);
}

static void there_are_so_many_places(void **state)
{
    (void)state;
    struct vpmm_offload *made[VPMM_OFFLOADS_MAX + 1];
    for (uint32_t i = 0; i < VPMM_OFFLOADS_MAX; i++)
        assert_int_equal(make(8 * MIB, &made[i]), VPMM_OK);
    assert_int_equal(make(8 * MIB, &made[VPMM_OFFLOADS_MAX]), VPMM_NOT_SUPPORTED);
    assert_int_equal(vpmm_router_offload_destroy(router, made[3]), VPMM_OK);
    assert_int_equal(make(7, &made[3]), VPMM_OK);
    for (uint32_t i = 0; i < VPMM_OFFLOADS_MAX; i++)
        assert_int_equal(vpmm_router_offload_destroy(router, made[i]), VPMM_OK);
}

static void one_that_cannot_be_made_keeps_no_place_and_one_that_cannot_end_its_own(void **state)
{
    (void)state;
    struct vpmm_offload *made;
    CUgraph graph;
    struct vpmm_offload_params params = {
        .context = (vpmm_context_handle)(void *)context, .budget_bytes = 8 * MIB, .chunk_bytes = 5};
    assert_int_equal(vpmm_router_offload_create(router, &params, &made), VPMM_INVALID);
    assert_false(vpmm_router_offload_is_alive(router, 0));
    assert_int_equal(make(16 * MIB, &made), VPMM_OK);
    assert_int_equal(fill_and_seal(made), VPMM_OK);
    pass(made);
    struct vpmm_order *order = vpmm_router_order(router);
    struct vpmm_context *ticket = vpmm_order_capture_begin(order, (vpmm_stream_handle)stream);
    assert_int_equal(sim_stream_begin_capture(sim, stream, CU_STREAM_CAPTURE_MODE_RELAXED),
                     CUDA_SUCCESS);
    vpmm_order_capture_began(order, ticket, (vpmm_stream_handle)stream, true);
    assert_int_equal(vpmm_router_offload_destroy(router, made), VPMM_CAPTURED);
    assert_true(vpmm_router_offload_is_alive(router, 0));
    assert_true(vpmm_router_offload_bytes(router, 0) > 0);
    assert_int_equal(sim_stream_end_capture(sim, stream, &graph), CUDA_SUCCESS);
    vpmm_order_capture_ended(order, (vpmm_stream_handle)stream);
    assert_int_equal(sim_graph_destroy(sim, graph), CUDA_SUCCESS);
    assert_int_equal(vpmm_router_offload_destroy(router, made), VPMM_OK);
    assert_false(vpmm_router_offload_is_alive(router, 0));
    struct vpmm_offload_stats stats;
    int device;
    assert_false(vpmm_router_offload_stats(router, 5, &device, &stats));
    assert_false(vpmm_router_offload_is_alive(router, VPMM_OFFLOADS_MAX));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_held_counts_against_the_limit, set_up_limited,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_pool_makes_room_under_the_limit, set_up_limited,
                                        tear_down),
        TEST(a_request_that_lacks_memory_is_given_theirs),
        TEST(an_object_is_given_what_the_pool_has_free),
        TEST(there_are_so_many_places),
        TEST(one_that_cannot_be_made_keeps_no_place_and_one_that_cannot_end_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
