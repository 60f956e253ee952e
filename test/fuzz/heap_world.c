/* SPDX-License-Identifier: MIT */
#include "heap_world.h"
#include "device_clock.h"

#include <string.h>

#define PAGE_BYTES 4096
#define CAPTURING_THREAD 2

/* ---- trouble ---- */

static const struct world_fault {
    const char *name;
    CUresult code;
} faults[] = {
    {"cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY},
    {"cuMemCreate", CUDA_ERROR_UNKNOWN},
    {"cuMemMap", CUDA_ERROR_OUT_OF_MEMORY},
    {"cuMemMap", CUDA_ERROR_INVALID_VALUE},
    {"cuMemSetAccess", CUDA_ERROR_OUT_OF_MEMORY},
    {"cuMemSetAccess", CUDA_ERROR_NOT_READY},
    {"cuMemUnmap", CUDA_ERROR_INVALID_VALUE},
    {"cuMemRelease", CUDA_ERROR_INVALID_VALUE},
    {"cuMemAddressReserve", CUDA_ERROR_OUT_OF_MEMORY},
    {"cuEventCreate", CUDA_ERROR_OUT_OF_MEMORY},
    {"cuEventRecord", CUDA_ERROR_INVALID_VALUE},
    {"cuCtxRecordEvent", CUDA_ERROR_UNKNOWN},
    {"cuEventQuery", CUDA_ERROR_UNKNOWN},
    {"cuStreamWaitEvent", CUDA_ERROR_INVALID_VALUE},
};
#define FAULTS (sizeof faults / sizeof faults[0])

void world_expect_trouble(struct world *world, uint64_t which, uint64_t nth, bool stays)
{
    world->fault = which < FAULTS ? &faults[which] : NULL;
    world->map_nth = which < FAULTS ? 0 : nth;
    world->fault_nth = nth;
    world->fault_stays = stays;
    world->was_disturbed = true;
}

/* Whether anything may go wrong until end_trouble. A new extent that a failed request cannot even
 * release again is lost: nobody has it any more. So a release fails only where memory is given
 * back. */
static bool begin_trouble(struct world *world, bool gives_back)
{
    struct fixture *fixture = &world->fixture;
    if (world->fault && !gives_back && strcmp(world->fault->name, "cuMemRelease") == 0)
        world->fault = NULL;
    if (world->fault)
        sim_fault_set(fixture->sim, world->fault->name, world->fault_nth, world->fault->code,
                      world->fault_stays);
    fixture->maps_until_failure = world->map_nth;
    world->was_map_refused |= world->fault && strcmp(world->fault->name, "cuMemMap") == 0;
    return world->fault || world->map_nth;
}

static void end_trouble(struct world *world)
{
    if (world->fault)
        sim_fault_clear(world->fixture.sim, world->fault->name);
    world->fixture.maps_until_failure = world->map_nth = 0;
    world->fault = NULL;
}

void world_give_back(struct world *world, uint64_t bytes)
{
    (void)begin_trouble(world, true);
    if (bytes)
        (void)vpmm_heap_trim(world->fixture.heap, bytes);
    else
        vpmm_heap_reap(world->fixture.heap);
    end_trouble(world);
}

void world_add_peer(struct world *world)
{
    bool may_fail = begin_trouble(world, false);
    world->has_peer = !vpmm_heap_add_peer(world->fixture.heap, 1);
    end_trouble(world);
    assert_true(world->has_peer || may_fail);
}

/* ---- contexts and streams ---- */

static void enter(struct world *world, enum world_context context)
{
    SAME(CUDA_SUCCESS, sim_ctx_set_current(world->fixture.sim, world->contexts[context]));
}

static void make_context(struct world *world, enum world_context context, int device)
{
    SAME(CUDA_SUCCESS, sim_ctx_create(world->fixture.sim, 0, device, &world->contexts[context]));
}

static void make_lanes(struct world *world, enum world_context context, size_t first, size_t n)
{
    const CUstream special[] = {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    enter(world, context);
    for (size_t i = 0; i < n; i++) {
        struct world_lane *lane = &world->lanes[first + i];
        lane->context = context;
        lane->stream = i < 2 ? fixture_stream(&world->fixture, i ? CU_STREAM_NON_BLOCKING : 0)
                             : special[i - 2];
    }
}

void world_setup(struct world *world, uint64_t extent_pages_max, bool is_relaxed, uint64_t seed)
{
    struct fixture_params params;
    memset(world, 0, sizeof *world);
    rules_forget();
    rules_params(&params);
    params.sim.n_devices = 2;
    params.sim.granularity = PAGE_BYTES;
    params.sim.device_bytes = WORLD_DEVICE_PAGES * PAGE_BYTES;
    params.sim.reuse_handles = seed & 1;
    params.sim.query_progress = 3;
    params.sim.seed = seed;
    params.heap.page_bytes = PAGE_BYTES;
    params.heap.root_bytes = 2 * params.sim.device_bytes;
    params.heap.extent_pages_max = extent_pages_max;
    params.heap.slack_bytes = 6 * PAGE_BYTES;
    fixture_setup(&world->fixture, &params);
    device_clock_start(world->fixture.sim);
    world->has_large_extents = extent_pages_max != 1;
    world->contexts[WORLD_MAIN] = world->fixture.handle;
    make_context(world, WORLD_SECOND, 0);
    make_context(world, WORLD_PEER, 1);
    make_lanes(world, WORLD_MAIN, 0, 4);
    make_lanes(world, WORLD_SECOND, 4, 3);
    make_lanes(world, WORLD_PEER, 7, 1);
    enter(world, WORLD_MAIN);
    world->capturing = fixture_stream(&world->fixture, CU_STREAM_NON_BLOCKING);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (is_relaxed)
        SAME(CUDA_SUCCESS, sim_thread_exchange_stream_capture_mode(world->fixture.sim, &mode));
}

void world_check(struct world *world)
{
    struct vpmm_pool_totals totals = fixture_totals(&world->fixture);
    struct sim_counts counts;
    fixture_audit(&world->fixture);
    sim_live_counts(world->fixture.sim, &counts);
    SAME(totals.mappings, counts.mappings);
    SAME(totals.extents, counts.handles);
    SAME(0, blocks_wrong());
}

void world_open(struct world *world)
{
    while (world->n_open_gates < world->n_gates)
        world->gates[world->n_open_gates++] = true;
}

/* ---- blocks ---- */

static struct vpmm_stream resolve(struct world *world, const struct world_lane *lane)
{
    struct vpmm_stream resolved;
    enter(world, lane->context);
    SAME(VPMM_OK,
         vpmm_order_stream(world->fixture.order, (vpmm_stream_handle)lane->stream, &resolved));
    return resolved;
}

static void drop_event(struct world *world, struct world_block *block)
{
    if (block->event)
        SAME(CUDA_SUCCESS, sim_event_destroy(world->fixture.sim, block->event));
    block->event = NULL;
}

/* The block's event behind everything on the lane now. */
static void mark(struct world *world, struct world_block *block, const struct world_lane *lane)
{
    struct sim *sim = world->fixture.sim;
    drop_event(world, block);
    enter(world, lane->context);
    SAME(CUDA_SUCCESS, sim_event_create(sim, CU_EVENT_DISABLE_TIMING, &block->event));
    SAME(CUDA_SUCCESS, sim_event_record(sim, block->event, lane->stream));
    block->event_context = lane->context;
}

static void follow(struct world *world, const struct world_block *block,
                   const struct world_lane *lane)
{
    enter(world, lane->context);
    if (block->event)
        SAME(CUDA_SUCCESS,
             sim_stream_wait_event(world->fixture.sim, lane->stream, block->event, 0));
}

static void await(struct world *world, struct world_block *block)
{
    world_open(world);
    if (block->event)
        SAME(CUDA_SUCCESS, sim_event_synchronize(world->fixture.sim, block->event));
    drop_event(world, block);
}

enum vpmm_status world_malloc(struct world *world, uint64_t pages, const struct world_lane *lane,
                              enum world_context context)
{
    struct fixture *fixture = &world->fixture;
    struct vpmm_stream resolved;
    struct vpmm_request request = {.bytes = pages * PAGE_BYTES};
    struct world_block new = {.block = {0, pages, ++world->last_pattern},
                              .context = lane ? lane->context : context,
                              .is_async = lane != NULL};
    if (lane) {
        resolved = resolve(world, lane);
        request.stream = &resolved;
        request.context = resolved.context;
    } else {
        enter(world, context);
        SAME(VPMM_OK, vpmm_order_context(fixture->order, NULL, &request.context));
    }
    (void)begin_trouble(world, false);
    enum vpmm_status status = vpmm_heap_malloc(fixture->heap, &request, &new.block.address);
    end_trouble(world);
    if (status)
        return status;
    for (size_t i = 0; i < world->n_blocks; i++)
        assert_false(pages_overlap(fixture, new.block.address, pages,
                                   world->blocks[i].block.address, world->blocks[i].block.pages));
    struct world_block *block = &world->blocks[world->n_blocks++];
    *block = new;
    if (lane)
        mark(world, block, lane);
    return VPMM_OK;
}

void world_use(struct world *world, struct world_block *block, const struct world_lane *lane,
               bool writes, bool is_gated)
{
    struct fixture *fixture = &world->fixture;
    if (lane->context == WORLD_PEER && !world->has_peer)
        return;
    is_gated = is_gated && world->n_gates < WORLD_GATES;
    follow(world, block, lane);
    if (block->is_written)
        block_check(fixture, lane->stream, &block->block);
    if (writes || is_gated || !block->is_written) {
        block->block.pattern = ++world->last_pattern;
        block_write(fixture, lane->stream, &block->block,
                    is_gated ? &world->gates[world->n_gates++] : NULL);
        block->is_written = true;
    }
    mark(world, block, lane);
    block->users |= 1u << lane->context;
}

void world_part(struct world *world, struct world_block *block, const struct world_lane *lane)
{
    if (lane) {
        follow(world, block, lane);
        return;
    }
    world_open(world);
    if (block->users & ~(1u << block->context))
        await(world, block);
    enter(world, block->context);
}

void world_free(struct world *world, size_t which, const struct world_lane *lane)
{
    struct fixture *fixture = &world->fixture;
    struct world_block *block = &world->blocks[which];
    struct vpmm_stream resolved;
    enum vpmm_status wait;
    world_part(world, block, lane);
    if (lane)
        resolved = resolve(world, lane);
    uint64_t address = block->block.address;
    (void)begin_trouble(world, false);
    SAME(VPMM_OK, vpmm_heap_free(fixture->heap, address, lane ? &resolved : NULL, &wait));
    end_trouble(world);
    SAME(VPMM_OK, wait);
    world->was_disturbed |= !lane && block->is_async;
    SAME(VPMM_NOT_FOUND, vpmm_heap_free(fixture->heap, address, NULL, &wait));
    drop_event(world, block);
    *block = world->blocks[--world->n_blocks];
}

/* ---- what comes and goes ---- */

/* No work of other contexts is under way on memory that dies with the second one, and what the
 * blocks' events of it stand for is about to be over. */
static void leave_second(struct world *world)
{
    world_open(world);
    for (size_t i = 0; i < world->n_blocks; i++) {
        struct world_block *block = &world->blocks[i];
        if (block->context == WORLD_SECOND || block->event_context == WORLD_SECOND)
            await(world, block);
    }
}

void world_replace_context(struct world *world, bool fails)
{
    struct fixture *fixture = &world->fixture;
    CUcontext handle = world->contexts[WORLD_SECOND];
    struct vpmm_context *context;
    SAME(VPMM_OK, vpmm_order_context(fixture->order, (vpmm_context_handle)handle, &context));
    leave_second(world);
    enter(world, WORLD_MAIN);
    struct vpmm_departure departure =
        vpmm_order_context_leaving(fixture->order, (vpmm_context_handle)handle, true);
    if (fails)
        sim_fault_set(fixture->sim, "cuCtxDestroy", 1, CUDA_ERROR_UNKNOWN, false);
    CUresult result = sim_ctx_destroy(fixture->sim, handle);
    sim_fault_clear(fixture->sim, "cuCtxDestroy");
    SAME(fails ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS, result);
    vpmm_order_context_left(fixture->order, &departure, !fails);
    if (fails)
        return;
    vpmm_heap_context_gone(fixture->heap, vpmm_context_id(context));
    for (size_t i = world->n_blocks; i-- > 0;)
        if (world->blocks[i].context == WORLD_SECOND && !world->blocks[i].is_async)
            world->blocks[i] = world->blocks[--world->n_blocks];
    make_context(world, WORLD_SECOND, 0);
    make_lanes(world, WORLD_SECOND, 4, 3);
}

/* Drained, one look learns of all that is complete, and the next one of what depends on it. */
static void drain(struct world *world)
{
    enter(world, WORLD_MAIN);
    for (int i = 0; i < 4; i++) {
        (void)sim_drain(world->fixture.sim);
        vpmm_heap_reap(world->fixture.heap);
    }
}

void world_settle(struct world *world)
{
    struct vpmm_pool_totals totals;
    if (world->is_capturing)
        return;
    world_open(world);
    drain(world);
    (void)vpmm_heap_trim(world->fixture.heap, UINT64_MAX);
    totals = fixture_totals(&world->fixture);
    SAME(0, totals.zombie_pages + totals.quarantined_pages + totals.busy_pages);
    world->was_disturbed = false;
    world->was_map_refused &= totals.held_pages > 0;
}

uint64_t world_device_free_pages(struct world *world)
{
    size_t free_bytes, total_bytes;
    enter(world, WORLD_MAIN);
    SAME(CUDA_SUCCESS, sim_mem_get_info(world->fixture.sim, &free_bytes, &total_bytes));
    return free_bytes / PAGE_BYTES;
}

void world_begin_capture(struct world *world, CUstreamCaptureMode mode)
{
    world->was_disturbed = true;
    sim_thread_act_as(world->fixture.sim, CAPTURING_THREAD);
    enter(world, WORLD_MAIN);
    gated_capture_begin(&world->fixture, world->capturing, mode);
    sim_thread_act_as(world->fixture.sim, 0);
    world->is_capturing = true;
}

void world_end_capture(struct world *world)
{
    struct sim_kernel kernel = {.name = "captured"};
    sim_thread_act_as(world->fixture.sim, CAPTURING_THREAD);
    SAME(CUDA_SUCCESS, sim_launch(world->fixture.sim, world->capturing, &kernel));
    gated_capture_end(&world->fixture, world->capturing);
    sim_thread_act_as(world->fixture.sim, 0);
    world->is_capturing = false;
}

void world_teardown(struct world *world)
{
    struct fixture *fixture = &world->fixture;
    struct vpmm_order_totals order_totals;
    if (world->is_capturing)
        world_end_capture(world);
    world_open(world);
    for (size_t i = 0; i < world->n_blocks; i++)
        world_use(world, &world->blocks[i], &world->lanes[i % 7], false, false);
    while (world->n_blocks)
        world_free(world, 0, world->n_blocks % 2 ? &world->lanes[world->n_blocks % 7] : NULL);
    drain(world);
    (void)vpmm_heap_trim(fixture->heap, UINT64_MAX);
    world_check(world);
    struct vpmm_pool_totals totals = fixture_totals(fixture);
    SAME(0, totals.live_pages + totals.zombie_pages + totals.quarantined_pages);
    SAME(0, totals.held_pages);
    vpmm_order_totals(fixture->order, &order_totals);
    SAME(0, order_totals.fences);
    fixture_teardown(fixture);
}
