/* SPDX-License-Identifier: MIT */
#include "world.h"

#include "sim/sim_table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

void world_setup(struct world *world, uint64_t extent_pages_max, uint64_t seed)
{
    struct sim_config config;
    memset(world, 0, sizeof *world);
    sim_config_default(&config);
    config.n_devices = 2;
    config.device_bytes = DEVICE_PAGES * PAGE_BYTES;
    config.has_bytes = false;
    config.eager = false;
    config.check_races = true;
    config.reuse_handles = true;
    config.query_progress = 3;
    config.seed = seed;
    world->sim = sim_create(&config);
    assert_non_null(world->sim);
    sim_table_fill(world->sim, &world->driver);
    assert_int_equal(pthread_mutex_init(&world->shelf.lock, NULL), 0);
    assert_int_equal(sim_ctx_create(world->sim, 0, 0, &world->handle), CUDA_SUCCESS);
    assert_int_equal(vpmm_order_create(&world->driver, &vpmm_memory_system, &world->order),
                     VPMM_OK);
    assert_int_equal(vpmm_order_context(world->order, NULL, &world->context), VPMM_OK);
    struct vpmm_heap_params params = {.root_bytes = 4 * DEVICE_PAGES * PAGE_BYTES,
                                      .eager_pages = 8,
                                      .extent_pages_max = extent_pages_max,
                                      .slack_bytes = 16 * PAGE_BYTES,
                                      .slack_percent = 2};
    assert_int_equal(
        vpmm_heap_create(&params, &world->driver, world->order, &vpmm_memory_system, &world->heap),
        VPMM_OK);
    for (int i = 0; i < SHARED_STREAMS; i++)
        assert_int_equal(
            sim_stream_create(world->sim, i ? CU_STREAM_NON_BLOCKING : 0, 0, &world->shared[i]),
            CUDA_SUCCESS);
}

void world_teardown(struct world *world)
{
    struct block block;
    struct sim_counts counts;
    struct vpmm_pool_totals totals;
    while (shelf_take(&world->shelf, 0, &block))
        world_free(world, &block, NULL);
    for (int i = 0; i < 4; i++) {
        (void)sim_drain(world->sim);
        vpmm_heap_reap(world->heap);
    }
    const char *broken = vpmm_heap_audit(world->heap);
    if (broken)
        fail_msg("audit: %s", broken);
    vpmm_pool_totals(vpmm_heap_pool(world->heap), &totals);
    assert_int_equal(totals.live_pages + totals.busy_pages + totals.zombie_pages, 0);
    assert_int_equal(vpmm_heap_releasable_bytes(world->heap), totals.held_pages * PAGE_BYTES);
    struct vpmm_order_totals order_totals;
    vpmm_order_totals(world->order, &order_totals);
    assert_int_equal(order_totals.fences, 0);
    assert_false(vpmm_order_captures(world->order));
    vpmm_heap_destroy(world->heap);
    vpmm_order_destroy(world->order);
    sim_live_counts(world->sim, &counts);
    assert_int_equal(counts.handles + counts.handles_held + counts.mappings, 0);
    assert_int_equal(counts.reservations + counts.events, 0);
    sim_destroy(world->sim);
    assert_int_equal(pthread_mutex_destroy(&world->shelf.lock), 0);
}

/* ---- blocks ---- */

static struct vpmm_stream known(struct world *world, CUstream stream)
{
    struct vpmm_stream resolved;
    assert_int_equal(vpmm_order_stream(world->order, (vpmm_stream_handle)stream, &resolved),
                     VPMM_OK);
    return resolved;
}

bool world_malloc(struct world *world, uint64_t pages, CUstream stream, struct block *block_out)
{
    struct vpmm_stream resolved;
    struct vpmm_request request = {.bytes = pages * PAGE_BYTES};
    if (stream) {
        resolved = known(world, stream);
        request.stream = &resolved;
        request.context = resolved.context;
    } else {
        assert_int_equal(vpmm_order_context(world->order, NULL, &request.context), VPMM_OK);
    }
    struct block block = {.bytes = pages * PAGE_BYTES};
    enum vpmm_status status = vpmm_heap_malloc(world->heap, &request, &block.address);
    vpmm_atomic_add(status ? &world->n_refused : &world->n_served, 1);
    if (status) {
        assert_int_equal(status, VPMM_NO_MEMORY);
        return false;
    }
    assert_int_equal(sim_event_create(world->sim, CU_EVENT_DISABLE_TIMING, &block.event),
                     CUDA_SUCCESS);
    if (stream)
        assert_int_equal(sim_event_record(world->sim, block.event, stream), CUDA_SUCCESS);
    *block_out = block;
    return true;
}

void world_use(struct world *world, struct block *block, CUstream stream)
{
    struct sim_range range = {block->address, block->bytes, true};
    struct sim_kernel kernel = {.name = "use", .ranges = &range, .n_ranges = 1};
    assert_int_equal(sim_stream_wait_event(world->sim, stream, block->event, 0), CUDA_SUCCESS);
    assert_int_equal(sim_launch(world->sim, stream, &kernel), CUDA_SUCCESS);
    assert_int_equal(sim_event_record(world->sim, block->event, stream), CUDA_SUCCESS);
}

void world_free(struct world *world, struct block *block, CUstream stream)
{
    struct vpmm_stream resolved;
    enum vpmm_status waited;
    if (stream) {
        assert_int_equal(sim_stream_wait_event(world->sim, stream, block->event, 0), CUDA_SUCCESS);
        resolved = known(world, stream);
    }
    assert_int_equal(
        vpmm_heap_free(world->heap, block->address, stream ? &resolved : NULL, &waited), VPMM_OK);
    assert_int_equal(waited, VPMM_OK);
    assert_int_equal(sim_event_destroy(world->sim, block->event), CUDA_SUCCESS);
    block->address = 0;
}
