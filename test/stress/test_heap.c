/* SPDX-License-Identifier: MIT */
/* The whole heap under many threads at once, on an adversarial device that stops at any unordered
 * work on one page, unmap under work, broken capture or use of what is dead. */
#define _POSIX_C_SOURCE 200809L
#include "world.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#define WORKERS 8
#define ROUNDS 1200
#define LIMIT_S 4

static struct world world;

static bool is_late(time_t start)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec - start > LIMIT_S;
}

/* A slow machine is spared the rest once the test has seen what it is for. */
static bool may_end(time_t start)
{
    struct vpmm_heap_counts counts;
    if (!is_late(start))
        return false;
    vpmm_heap_counts(world.heap, &counts);
    return vpmm_atomic_load(&world.n_served) > 0 && counts.stitches > 0;
}

static time_t start_time(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* One of the streams that every thread may use, or the thread's own. */
static CUstream any_stream(CUstream own, uint32_t *dice)
{
    switch (roll(dice, 8)) {
    case 0:
        return CU_STREAM_LEGACY;
    case 1:
        return CU_STREAM_PER_THREAD;
    case 2:
    case 3:
    case 4:
        return world.shared[roll(dice, SHARED_STREAMS)];
    default:
        return own;
    }
}

static CUstream sometimes(CUstream stream, uint32_t *dice)
{
    return roll(dice, 3) ? stream : NULL;
}

/* Allocates, uses, hands on and frees what others allocated. */
static void *work(void *number)
{
    uint32_t dice = (uint32_t)(uintptr_t)number;
    time_t start = start_time();
    CUstream own;
    struct block block;
    assert_int_equal(sim_ctx_set_current(world.sim, world.handle), CUDA_SUCCESS);
    assert_int_equal(sim_stream_create(world.sim, CU_STREAM_NON_BLOCKING, 0, &own), CUDA_SUCCESS);
    for (int i = 0; i < ROUNDS && !may_end(start); i++) {
        CUstream stream = sometimes(any_stream(own, &dice), &dice);
        uint64_t pages = roll(&dice, 10) ? 1 + roll(&dice, 8) : 24 + roll(&dice, 24);
        if (world_malloc(&world, pages, stream, &block)) {
            world_use(&world, &block, stream ? stream : any_stream(own, &dice));
            if (!shelf_put(&world.shelf, &block))
                world_free(&world, &block, sometimes(any_stream(own, &dice), &dice));
        }
        if (roll(&dice, 8) && shelf_take(&world.shelf, roll(&dice, SHELF_MAX), &block)) {
            if (roll(&dice, 2))
                world_use(&world, &block, any_stream(own, &dice));
            world_free(&world, &block, sometimes(any_stream(own, &dice), &dice));
        }
        if (roll(&dice, 64) == 0)
            assert_int_equal(sim_stream_synchronize(world.sim, own), CUDA_SUCCESS);
    }
    assert_int_equal(sim_stream_destroy(world.sim, own), CUDA_SUCCESS);
    return NULL;
}

/* Contexts that come and go, with memory of both kinds in them. */
static void *churn(void *number)
{
    uint32_t dice = (uint32_t)(uintptr_t)number;
    while (!vpmm_atomic_load(&world.is_over)) {
        CUcontext handle;
        CUstream stream;
        struct vpmm_context *context;
        struct block kept, freed, orphan;
        assert_int_equal(sim_ctx_create(world.sim, 0, 0, &handle), CUDA_SUCCESS);
        assert_int_equal(sim_stream_create(world.sim, 0, 0, &stream), CUDA_SUCCESS);
        assert_int_equal(vpmm_order_context(world.order, NULL, &context), VPMM_OK);
        bool has_kept = world_malloc(&world, 1 + roll(&dice, 4), stream, &kept);
        bool has_freed = world_malloc(&world, 1 + roll(&dice, 4), stream, &freed);
        bool has_orphan = world_malloc(&world, 1 + roll(&dice, 4), NULL, &orphan);
        if (has_kept)
            world_use(&world, &kept, stream);
        if (has_orphan)
            world_use(&world, &orphan, CU_STREAM_PER_THREAD);
        if (has_freed) {
            world_use(&world, &freed, stream);
            world_free(&world, &freed, sometimes(stream, &dice));
        }
        struct vpmm_departure departure =
            vpmm_order_context_leaving(world.order, (vpmm_context_handle)handle, true);
        assert_int_equal(sim_ctx_destroy(world.sim, handle), CUDA_SUCCESS);
        vpmm_order_context_left(world.order, &departure, true);
        vpmm_heap_context_gone(world.heap, vpmm_context_id(context));
        assert_int_equal(sim_ctx_set_current(world.sim, world.handle), CUDA_SUCCESS);
        if (has_kept) {
            assert_int_equal(sim_event_create(world.sim, CU_EVENT_DISABLE_TIMING, &kept.event),
                             CUDA_SUCCESS);
            world_use(&world, &kept, world.shared[1]);
            world_free(&world, &kept, sometimes(world.shared[1], &dice));
        }
        (void)sched_yield();
    }
    return NULL;
}

/* Captures, during which nobody may record what would end them. */
static void *capture(void *unused)
{
    CUstream stream;
    (void)unused;
    assert_int_equal(sim_ctx_set_current(world.sim, world.handle), CUDA_SUCCESS);
    assert_int_equal(sim_stream_create(world.sim, CU_STREAM_NON_BLOCKING, 0, &stream),
                     CUDA_SUCCESS);
    while (!vpmm_atomic_load(&world.is_over)) {
        CUgraph graph;
        vpmm_stream_handle handle = (vpmm_stream_handle)stream;
        struct sim_kernel kernel = {.name = "captured"};
        struct vpmm_context *ticket = vpmm_order_capture_begin(world.order, handle);
        assert_int_equal(
            sim_stream_begin_capture(world.sim, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
        vpmm_order_capture_began(world.order, ticket, handle, true);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(sim_launch(world.sim, stream, &kernel), CUDA_SUCCESS);
            (void)sched_yield();
        }
        assert_int_equal(sim_stream_end_capture(world.sim, stream, &graph), CUDA_SUCCESS);
        vpmm_order_capture_recheck(world.order, handle);
        assert_int_equal(sim_graph_destroy(world.sim, graph), CUDA_SUCCESS);
        for (int i = 0; i < 20; i++)
            (void)sched_yield();
    }
    return NULL;
}

/* What looks without a lock, and what gives back; and the device gets on with its work. */
static void *look_and_give_back(void *number)
{
    uint32_t dice = (uint32_t)(uintptr_t)number;
    const struct vpmm_pool *pool = vpmm_heap_pool(world.heap);
    assert_int_equal(sim_ctx_set_current(world.sim, world.handle), CUDA_SUCCESS);
    for (uint32_t round = 0; !vpmm_atomic_load(&world.is_over); round++) {
        struct vpmm_region_view region;
        struct vpmm_fence_facts facts;
        uint64_t end = 0;
        uint64_t cursor = 0;
        while (vpmm_pool_next(pool, &cursor, &region)) {
            vpmm_order_facts(world.order, region.fence, &facts);
            (void)vpmm_heap_find(world.heap, region.address + PAGE_BYTES / 2, &region);
            end = region.address;
        }
        assert_int_not_equal(end, 0);
        if (round == 20)
            assert_int_equal(vpmm_heap_add_peer(world.heap, 1), VPMM_OK);
        if (roll(&dice, 8) == 0)
            (void)vpmm_heap_trim(world.heap, (1 + roll(&dice, 32)) * PAGE_BYTES);
        else if (roll(&dice, 4) == 0)
            vpmm_heap_reap(world.heap);
        for (int i = 0; i < 8; i++)
            (void)sim_step(world.sim);
    }
    return NULL;
}

static void run(uint64_t extent_pages_max, uint64_t seed)
{
    static void *(*const others[])(void *) = {churn, capture, look_and_give_back,
                                              look_and_give_back};
    enum {
        OTHERS = sizeof others / sizeof others[0]
    };
    pthread_t workers[WORKERS];
    pthread_t helpers[OTHERS];
    world_setup(&world, extent_pages_max, seed);
    for (uintptr_t i = 0; i < OTHERS; i++)
        assert_int_equal(pthread_create(&helpers[i], NULL, others[i], (void *)(i + 100)), 0);
    for (uintptr_t i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&workers[i], NULL, work, (void *)(i + seed * 1000)), 0);
    for (int i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_join(workers[i], NULL), 0);
    vpmm_atomic_store(&world.is_over, 1);
    for (int i = 0; i < OTHERS; i++)
        assert_int_equal(pthread_join(helpers[i], NULL), 0);
    struct vpmm_heap_counts counts;
    vpmm_heap_counts(world.heap, &counts);
    print_message("served %llu, refused %llu, stitches %llu, host waits %llu, stream waits %llu\n",
                  (unsigned long long)vpmm_atomic_load(&world.n_served),
                  (unsigned long long)vpmm_atomic_load(&world.n_refused),
                  (unsigned long long)counts.stitches, (unsigned long long)counts.host_waits,
                  (unsigned long long)counts.stream_waits);
    assert_true(vpmm_atomic_load(&world.n_served) > 0 && counts.stitches > 0);
    world_teardown(&world);
}

static void test_small_extents(void **state)
{
    (void)state;
    run(1, 1);
}

static void test_large_extents(void **state)
{
    (void)state;
    run(0, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_extents),
        cmocka_unit_test(test_large_extents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
