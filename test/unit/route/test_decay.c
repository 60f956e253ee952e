/* SPDX-License-Identifier: MIT */
/* Decay over all heaps: when it begins, and what one step asks of each heap. */
#include "fixture.h"

static char names[2];

static struct vpmm_mempool *mempool_of(int i)
{
    int device;
    return vpmm_router_mempool(fixture.router, (vpmm_mempool_handle)(void *)&names[i], &device);
}

static void the_first_large_heap_is_told_of_once(void **state)
{
    (void)state;
    (void)sync_malloc(4 * MIB);
    assert_int_equal(fixture.n_large_heaps, 0);
    fakes.heaps[0].is_large = true;
    (void)sync_malloc(4 * MIB);
    assert_int_equal(fixture.n_large_heaps, 1);
    fakes.heaps[1].is_large = true;
    (void)sync_malloc(4 * MIB);
    (void)async_malloc(4 * MIB, 1);
    assert_int_equal(fixture.n_large_heaps, 1);
}

static void a_look_ends_a_slot_of_every_heap(void **state)
{
    (void)state;
    assert_false(vpmm_router_decay(fixture.router, true));
    (void)sync_malloc(4 * MIB);
    (void)async_malloc(4 * MIB, 1);
    assert_false(vpmm_router_decay(fixture.router, true));
    assert_false(fakes.is_relaxed);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fakes.heaps[i].n_decay_looks, 1);
        assert_int_equal(fakes.heaps[i].n_recording_looks, 1);
        assert_int_equal(fakes.heaps[i].n_decay_slices, 1);
    }
}

static void slices_follow_as_long_as_any_heap_has_more(void **state)
{
    (void)state;
    (void)sync_malloc(4 * MIB);
    (void)async_malloc(4 * MIB, 1);
    fakes.heaps[0].slices_left = 3;
    fakes.heaps[1].slices_left = 2;
    assert_true(vpmm_router_decay(fixture.router, true));
    assert_true(vpmm_router_decay(fixture.router, false));
    assert_false(vpmm_router_decay(fixture.router, false));
    assert_int_equal(fakes.heaps[0].n_decay_looks, 1);
    assert_int_equal(fakes.heaps[0].n_decay_slices, 3);
    assert_int_equal(fakes.heaps[1].n_decay_slices, 3);
}

static void a_capture_is_left_alone(void **state)
{
    (void)state;
    (void)sync_malloc(4 * MIB);
    fakes.has_captures = true;
    assert_false(vpmm_router_decay(fixture.router, true));
    assert_int_equal(fakes.heaps[0].n_decay_looks, 1);
    assert_int_equal(fakes.heaps[0].n_recording_looks, 0);
    fakes.relax_status = VPMM_SHUT_DOWN;
    assert_false(vpmm_router_decay(fixture.router, true));
    assert_int_equal(fakes.heaps[0].n_decay_looks, 1);
}

static void what_memory_pools_are_told_to_keep_stays(void **state)
{
    (void)state;
    (void)sync_malloc(4 * MIB);
    (void)async_malloc(4 * MIB, 1);
    vpmm_router_mempool_made(fixture.router, (vpmm_mempool_handle)(void *)&names[0], 0, 0);
    vpmm_router_mempool_default(fixture.router, (vpmm_mempool_handle)(void *)&names[1], 0);
    for (int i = 0; i < 2; i++) {
        fakes.heaps[i].kept_by_default = 3 * GIB;
        fakes.heaps[i].kept_by_made = GIB;
    }
    (void)vpmm_router_decay(fixture.router, true);
    assert_int_equal(fakes.heaps[0].decay_keep_bytes, 0);
    vpmm_router_mempool_choose(fixture.router, &mempool_of(0)->is_cautious, true);
    (void)vpmm_router_decay(fixture.router, true);
    assert_int_equal(fakes.heaps[0].decay_keep_bytes, 0);
    vpmm_router_mempool_keep(fixture.router, mempool_of(0), UINT64_MAX);
    (void)vpmm_router_decay(fixture.router, true);
    assert_int_equal(fakes.heaps[0].decay_keep_bytes, GIB);
    assert_int_equal(fakes.heaps[1].decay_keep_bytes, 0);
    vpmm_router_mempool_keep(fixture.router, mempool_of(1), 5);
    (void)vpmm_router_decay(fixture.router, true);
    assert_int_equal(fakes.heaps[0].decay_keep_bytes, 4 * GIB);
    assert_int_equal(fakes.heaps[1].decay_keep_bytes, 0);
    vpmm_router_mempool_gone(fixture.router, (vpmm_mempool_handle)(void *)&names[0]);
    (void)vpmm_router_decay(fixture.router, false);
    assert_int_equal(fakes.heaps[0].decay_keep_bytes, 3 * GIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(the_first_large_heap_is_told_of_once),
        FIXTURE_TEST(a_look_ends_a_slot_of_every_heap),
        FIXTURE_TEST(slices_follow_as_long_as_any_heap_has_more),
        FIXTURE_TEST(a_capture_is_left_alone),
        FIXTURE_TEST(what_memory_pools_are_told_to_keep_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
