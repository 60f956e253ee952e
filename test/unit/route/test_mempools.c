/* SPDX-License-Identifier: MIT */
/* CUDA's memory pools: which are ours to serve, under which number, and what a synchronisation
 * makes of what the program chose for them. */
#include "fixture.h"

static char names[VPMM_MEMPOOLS + 2];

static vpmm_mempool_handle handle_of(int i)
{
    return (vpmm_mempool_handle)(void *)&names[i];
}

static struct vpmm_mempool *find(int i)
{
    int device;
    return vpmm_router_mempool(fixture.router, handle_of(i), &device);
}

static enum vpmm_route from_pool(struct vpmm_mempool *mempool, int device, int stream)
{
    const struct vpmm_route_request request = {.bytes = 4 * MIB,
                                               .is_async = true,
                                               .stream = fake_stream(stream),
                                               .mempool = mempool,
                                               .pool_device = device};
    uint64_t address;
    return vpmm_router_malloc(fixture.router, &request, &address);
}

static enum vpmm_route from_foreign_pool(void)
{
    const struct vpmm_route_request request = {
        .bytes = 4 * MIB, .is_async = true, .stream = fake_stream(0), .names_explicit_pool = true};
    uint64_t address;
    return vpmm_router_malloc(fixture.router, &request, &address);
}

static uint32_t served_from(void)
{
    return fakes.heaps[0].request.mempool->number;
}

static void a_pool_serves_the_streams_of_its_device(void **state)
{
    (void)state;
    assert_null(find(0));
    assert_null(vpmm_router_mempool(fixture.router, NULL, &(int){0}));
    vpmm_router_mempool_made(fixture.router, handle_of(0), 0, 0);
    vpmm_router_mempool_default(fixture.router, handle_of(1), 0);
    assert_int_equal(from_pool(find(0), 0, 0), VPMM_ROUTE_POOL);
    assert_int_equal(served_from(), VPMM_MEMPOOL_FIRST);
    assert_int_equal(from_pool(find(1), 0, 0), VPMM_ROUTE_POOL);
    assert_int_equal(served_from(), VPMM_MEMPOOL_DEFAULT);
    assert_int_equal(from_pool(find(0), 0, 1), VPMM_ROUTE_OTHER_POOL);
    assert_int_equal(from_foreign_pool(), VPMM_ROUTE_EXPLICIT_POOL);
}

static void the_current_pool_serves_who_names_none(void **state)
{
    (void)state;
    vpmm_router_mempool_made(fixture.router, handle_of(0), 0, 0);
    vpmm_router_mempool_default(fixture.router, handle_of(1), 0);
    assert_int_equal(from_pool(NULL, 0, 0), VPMM_ROUTE_POOL);
    assert_int_equal(served_from(), VPMM_MEMPOOL_DEFAULT);
    vpmm_router_mempool_set(fixture.router, 0, find(0));
    assert_int_equal(from_pool(NULL, 0, 0), VPMM_ROUTE_POOL);
    assert_int_equal(served_from(), VPMM_MEMPOOL_FIRST);
    assert_int_equal(from_pool(find(1), 0, 0), VPMM_ROUTE_POOL);
    assert_int_equal(served_from(), VPMM_MEMPOOL_DEFAULT);
    vpmm_router_mempool_set(fixture.router, 0, NULL);
    assert_int_equal(from_pool(NULL, 0, 0), VPMM_ROUTE_OTHER_POOL);
    assert_int_equal(from_pool(NULL, 0, 1), VPMM_ROUTE_POOL);
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_POOL);
    assert_null(fakes.heaps[0].request.mempool);
    vpmm_router_mempool_set(fixture.router, -1, NULL);
    vpmm_router_mempool_set(fixture.router, VPMM_DEVICES_MAX, NULL);
}

static void a_limit_is_the_answer(void **state)
{
    (void)state;
    vpmm_router_mempool_made(fixture.router, handle_of(0), 0, 4 * MIB);
    vpmm_router_mempool_made(fixture.router, handle_of(1), 0, 4 * MIB - 1);
    assert_int_equal(from_pool(find(0), 0, 0), VPMM_ROUTE_POOL);
    assert_int_equal(from_pool(find(1), 0, 0), VPMM_ROUTE_POOL_LIMIT);
}

static void a_number_is_given_anew_once_no_block_has_it(void **state)
{
    (void)state;
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_POOL);
    vpmm_router_mempool_made(fixture.router, handle_of(0), 0, 0);
    fakes.heaps[0].mempool_live = VPMM_MEMPOOL_FIRST;
    vpmm_router_mempool_gone(fixture.router, handle_of(0));
    assert_null(find(0));
    assert_ptr_equal(vpmm_router_mempool_handle(fixture.router, VPMM_MEMPOOL_FIRST), handle_of(0));
    vpmm_router_mempool_made(fixture.router, handle_of(1), 0, 0);
    assert_int_equal(find(1)->number, VPMM_MEMPOOL_FIRST + 1);
    fakes.heaps[0].mempool_live = 0;
    vpmm_router_mempool_made(fixture.router, handle_of(2), 0, 0);
    assert_int_equal(find(2)->number, VPMM_MEMPOOL_FIRST);
    vpmm_router_mempool_gone(fixture.router, handle_of(0));
    assert_non_null(find(2));
}

static void what_is_not_destroyed_stays(void **state)
{
    (void)state;
    vpmm_router_mempool_made(fixture.router, handle_of(0), 0, 5 * MIB);
    struct vpmm_mempool *mempool = find(0);
    uint32_t number = vpmm_router_mempool_gone(fixture.router, handle_of(0));
    assert_int_equal(number, mempool->number);
    assert_null(find(0));
    vpmm_router_mempool_stays(fixture.router, number, handle_of(0));
    assert_ptr_equal(find(0), mempool);
    assert_int_equal(find(0)->limit_bytes, 5 * MIB);
    assert_int_equal(vpmm_router_mempool_gone(fixture.router, handle_of(0)), number);
    vpmm_router_mempool_made(fixture.router, handle_of(1), 0, 0);
    vpmm_router_mempool_stays(fixture.router, number, handle_of(0));
    assert_null(find(0));
    assert_int_equal(vpmm_router_mempool_gone(fixture.router, handle_of(0)), 0);
}

static void more_pools_than_numbers_are_not_ours(void **state)
{
    (void)state;
    int i = 0;
    for (; i < (int)(VPMM_MEMPOOLS - VPMM_MEMPOOL_FIRST); i++)
        vpmm_router_mempool_made(fixture.router, handle_of(i), 0, 0);
    assert_non_null(find(i - 1));
    vpmm_router_mempool_made(fixture.router, handle_of(i), 0, 0);
    assert_null(find(i));
    vpmm_router_mempool_gone(fixture.router, handle_of(0));
    vpmm_router_mempool_made(fixture.router, handle_of(i), -1, 0);
    assert_null(find(i));
    vpmm_router_mempool_made(fixture.router, handle_of(i), 0, 0);
    assert_non_null(find(i));
}

static void a_synchronisation_trims_to_the_threshold(void **state)
{
    (void)state;
    vpmm_router_mempool_made(fixture.router, handle_of(0), 0, 0);
    struct vpmm_mempool *mempool = find(0);
    vpmm_router_mempool_keep(fixture.router, mempool, 5 * MIB);
    vpmm_router_synchronised(fixture.router);
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_POOL);
    vpmm_router_synchronised(fixture.router);
    assert_int_equal(fakes.heaps[0].n_mempool_trims, 0);
    vpmm_atomic_store(&mempool->was_used, 1);
    vpmm_router_synchronised(fixture.router);
    assert_int_equal(fakes.heaps[0].n_mempool_trims, 1);
    assert_int_equal(fakes.heaps[0].trimmed_mempool, mempool->number);
    assert_int_equal(fakes.heaps[0].kept_bytes, 5 * MIB);
    vpmm_router_mempool_keep(fixture.router, mempool, UINT64_MAX);
    vpmm_router_synchronised(fixture.router);
    assert_int_equal(fakes.heaps[0].n_mempool_trims, 1);
    vpmm_router_mempool_keep(fixture.router, mempool, 0);
    vpmm_router_mempool_gone(fixture.router, handle_of(0));
    vpmm_router_synchronised(fixture.router);
    assert_int_equal(fakes.heaps[0].n_mempool_trims, 1);
}

static void a_cautious_pool_learns_from_a_synchronisation_alone(void **state)
{
    (void)state;
    vpmm_router_mempool_default(fixture.router, handle_of(0), 0);
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_POOL);
    vpmm_router_mempool_choose(fixture.router, &find(0)->waits_never, true);
    vpmm_router_synchronised(fixture.router);
    assert_false(fakes.heaps[0].is_reaped);
    vpmm_router_mempool_choose(fixture.router, &find(0)->is_cautious, true);
    vpmm_router_synchronised(fixture.router);
    assert_true(fakes.heaps[0].is_reaped);
    assert_int_equal(fakes.heaps[0].n_mempool_trims, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_pool_serves_the_streams_of_its_device),
        FIXTURE_TEST(the_current_pool_serves_who_names_none),
        FIXTURE_TEST(a_limit_is_the_answer),
        FIXTURE_TEST(a_number_is_given_anew_once_no_block_has_it),
        FIXTURE_TEST(what_is_not_destroyed_stays),
        FIXTURE_TEST(more_pools_than_numbers_are_not_ours),
        FIXTURE_TEST(a_synchronisation_trims_to_the_threshold),
        FIXTURE_TEST(a_cautious_pool_learns_from_a_synchronisation_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
