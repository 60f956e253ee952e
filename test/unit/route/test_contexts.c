/* SPDX-License-Identifier: MIT */
/* The router and the contexts of the program: who can reach whose memory, and what goes with a
 * context. */
#include "fixture.h"

#include <string.h>

static void one_device_has_no_peers(void **state)
{
    (void)state;
    vpmm_router_context_made(fixture.router, 0);
    vpmm_router_context_made(fixture.router, 0);
    vpmm_router_context_made(fixture.router, -1);
    vpmm_router_context_made(fixture.router, VPMM_DEVICES_MAX);
    (void)sync_malloc(4 * MIB);
    assert_int_equal(fakes.heaps[0].peers, 0);
}

static void devices_reach_heaps_made_before_and_after_them(void **state)
{
    (void)state;
    (void)sync_malloc(4 * MIB);
    vpmm_router_context_made(fixture.router, 2);
    assert_int_equal(fakes.heaps[0].peers, 1 << 2);
    (void)async_malloc(4 * MIB, 2);
    assert_int_equal(fakes.heaps[2].peers, 1 << 0);
    vpmm_router_context_made(fixture.router, 1);
    assert_int_equal(fakes.heaps[0].peers, 1 << 2 | 1 << 1);
    assert_int_equal(fakes.heaps[2].peers, 1 << 0 | 1 << 1);
    (void)async_malloc(4 * MIB, 1);
    assert_int_equal(fakes.heaps[1].peers, 1 << 0 | 1 << 2);
}

/* A context comes while a heap is being made. */
static void second_context(void)
{
    fakes.creating = NULL;
    vpmm_router_context_made(fixture.router, 1);
}

static void a_device_seen_while_a_heap_is_made_reaches_it(void **state)
{
    (void)state;
    fakes.creating = second_context;
    (void)sync_malloc(4 * MIB);
    assert_int_equal(fakes.heaps[0].peers, 1 << 1);
}

/* Another thread gets the context while the first one is still giving its device access. */
static void same_context(void)
{
    fakes.connecting = NULL;
    vpmm_router_context_made(fixture.router, 1);
    assert_int_equal(fakes.n_connections, 1);
}

static void nobody_goes_on_with_a_context_before_its_device_reaches_all(void **state)
{
    (void)state;
    (void)sync_malloc(4 * MIB);
    fakes.connecting = same_context;
    vpmm_router_context_made(fixture.router, 1);
    assert_int_equal(fakes.n_connections, 2);
    vpmm_router_context_made(fixture.router, 1);
    assert_int_equal(fakes.n_connections, 2);
}

static void cudamalloc_passes_through_where_two_devices_cannot_reach_each_other(void **state)
{
    (void)state;
    fakes.can_reach[1][0] = false;
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_POOL);
    vpmm_router_context_made(fixture.router, 2);
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_POOL);
    vpmm_router_context_made(fixture.router, 1);
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_NO_PEER);
    assert_int_equal(async_malloc(4 * MIB, 0), VPMM_ROUTE_POOL);
    assert_int_equal(fakes.heaps[0].peers, 1 << 2);
    assert_int_equal(async_malloc(4 * MIB, 1), VPMM_ROUTE_POOL);
    assert_int_equal(fakes.heaps[1].peers, 1 << 0 | 1 << 2);
}

static void cudamalloc_passes_through_when_access_could_not_be_given(void **state)
{
    (void)state;
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_POOL);
    fakes.add_peer_status = VPMM_NO_MEMORY;
    vpmm_router_context_made(fixture.router, 1);
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_NO_PEER);
}

static void a_destroyed_context_is_told_to_the_order_before_the_heaps(void **state)
{
    (void)state;
    (void)sync_malloc(4 * MIB);
    (void)async_malloc(4 * MIB, 1);
    struct vpmm_departure departure =
        vpmm_order_context_leaving(vpmm_router_order(fixture.router), fake_context(1), true);
    assert_string_equal(fakes.told, "ending 11; ");
    assert_true(vpmm_router_context_left(fixture.router, &departure, true));
    assert_string_equal(fakes.told, "ending 11; left 1; heap 0; gone 11; heap 1; gone 11; ");
}

static void a_context_that_stays_loses_nothing(void **state)
{
    (void)state;
    (void)sync_malloc(4 * MIB);
    struct vpmm_departure departure =
        vpmm_order_context_leaving(vpmm_router_order(fixture.router), fake_context(0), false);
    assert_false(vpmm_router_context_left(fixture.router, &departure, false));
    assert_string_equal(fakes.told, "leaving 10; lives 10; left 0; ");
    departure.context = NULL;
    assert_false(vpmm_router_context_left(fixture.router, &departure, true));
    assert_string_equal(fakes.told, "leaving 10; lives 10; left 0; ");
}

static void the_driver_is_asked_whether_a_reference_was_the_last_one(void **state)
{
    (void)state;
    (void)sync_malloc(4 * MIB);
    fakes.is_dead = true;
    struct vpmm_departure departure =
        vpmm_order_context_leaving(vpmm_router_order(fixture.router), fake_context(0), false);
    assert_true(vpmm_router_context_left(fixture.router, &departure, false));
    assert_string_equal(fakes.told, "leaving 10; lives 10; left 1; heap 0; gone 10; ");
}

static void a_context_whose_handle_is_handed_out_again_is_gone(void **state)
{
    (void)state;
    (void)sync_malloc(4 * MIB);
    vpmm_router_context_handed_out(fixture.router, fake_context(0), false);
    assert_string_equal(fakes.told, "");
    vpmm_router_context_handed_out(fixture.router, fake_context(0), true);
    assert_string_equal(fakes.told, "heap 0; gone 10; ");
}

static void a_context_whose_end_nobody_announced_is_told_with_the_next_request(void **state)
{
    (void)state;
    (void)sync_malloc(4 * MIB);
    vpmm_atomic_store(&fakes.gone_id, 12);
    (void)sync_malloc(4 * MIB);
    assert_string_equal(fakes.told, "heap 0; gone 12; ");
}

static void memory_for_a_context_that_ends_meanwhile_ends_with_it(void **state)
{
    (void)state;
    fakes.contexts[0].is_gone = true;
    (void)async_malloc(4 * MIB, 0);
    assert_string_equal(fakes.told, "");
    (void)sync_malloc(4 * MIB);
    assert_string_equal(fakes.told, "heap 0; gone 10; ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(one_device_has_no_peers),
        FIXTURE_TEST(devices_reach_heaps_made_before_and_after_them),
        FIXTURE_TEST(a_device_seen_while_a_heap_is_made_reaches_it),
        FIXTURE_TEST(nobody_goes_on_with_a_context_before_its_device_reaches_all),
        FIXTURE_TEST(cudamalloc_passes_through_where_two_devices_cannot_reach_each_other),
        FIXTURE_TEST(cudamalloc_passes_through_when_access_could_not_be_given),
        FIXTURE_TEST(a_destroyed_context_is_told_to_the_order_before_the_heaps),
        FIXTURE_TEST(a_context_that_stays_loses_nothing),
        FIXTURE_TEST(the_driver_is_asked_whether_a_reference_was_the_last_one),
        FIXTURE_TEST(a_context_whose_handle_is_handed_out_again_is_gone),
        FIXTURE_TEST(a_context_whose_end_nobody_announced_is_told_with_the_next_request),
        FIXTURE_TEST(memory_for_a_context_that_ends_meanwhile_ends_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
