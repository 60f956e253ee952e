/* SPDX-License-Identifier: MIT */
#include "small_world.h"
#include "device_clock.h"

#include "order/order_program.h"

#include <string.h>

/* ---- contexts and streams ---- */

void world_enter(struct world *world, enum world_context context)
{
    SAME(CUDA_SUCCESS, sim_ctx_set_current(world->scene.f.sim, world->contexts[context]));
}

struct vpmm_stream world_resolve(struct world *world, const struct world_lane *lane)
{
    struct vpmm_stream resolved;
    world_enter(world, lane->context);
    SAME(VPMM_OK,
         vpmm_order_stream(world->scene.f.order, (vpmm_stream_handle)lane->stream, &resolved));
    return resolved;
}

void world_params(struct fixture_params *params)
{
    fixture_params_default(params);
    params->sim.granularity = WORLD_PAGE_BYTES;
    params->sim.check_races = true;
    params->heap.page_bytes = WORLD_PAGE_BYTES;
}

void world_setup(struct world *world, const struct fixture_params *params,
                 const struct world_habits *habits)
{
    memset(world, 0, sizeof *world);
    world->habits = *habits;
    world->limit_pages = params->heap.limit_bytes / WORLD_PAGE_BYTES;
    world->scene.params = (struct vpmm_small_params){.free_waits = habits->free_waits,
                                                     .wide_waits = params->heap.free_waits};
    scene_setup_with(&world->scene, params);
    device_clock_start(world->scene.f.sim);
    vpmm_mempool_init(&world->mempool, VPMM_MEMPOOL_DEFAULT, 0);
    vpmm_atomic_store(&world->mempool.is_asked, habits->asks_mempool);
    world->contexts[WORLD_MAIN] = world->scene.f.handle;
    SAME(CUDA_SUCCESS, sim_ctx_create(world->scene.f.sim, 0, 0, &world->contexts[WORLD_SECOND]));
    world_make_lanes(world, WORLD_MAIN);
    world_make_lanes(world, WORLD_SECOND);
}

/* ---- what must hold after every step ---- */

/* `heap_bytes_out`: of the live blocks of whole pages. */
static void check_blocks(struct world *world, uint64_t *heap_bytes_out)
{
    struct vpmm_small_figures figures = scene_figures(&world->scene);
    uint64_t n = 0, bytes = 0;
    struct vpmm_region_view view;
    *heap_bytes_out = 0;
    for (size_t i = 0; i < world->n_blocks; i++) {
        const struct world_block *block = &world->blocks[i];
        bool is_small = vpmm_small_find(world->scene.small, block->address, &view);
        if (!is_small)
            SAME(VPMM_OK, vpmm_heap_find(world->scene.f.heap, block->address, &view));
        SAME(VPMM_REGION_LIVE, view.state);
        SAME(block->address, view.address);
        SAME(block->bytes, view.owner.bytes);
        n += is_small;
        bytes += is_small ? block->bytes : 0;
        *heap_bytes_out += is_small ? 0 : block->bytes;
    }
    SAME(n, figures.blocks);
    SAME(bytes, figures.bytes);
}

void world_check(struct world *world)
{
    struct vpmm_pool_totals totals = fixture_totals(&world->scene.f);
    struct sim_counts counts;
    uint64_t heap_bytes;
    scene_audit(&world->scene);
    sim_live_counts(world->scene.f.sim, &counts);
    SAME(totals.mappings, counts.mappings);
    SAME(totals.extents, counts.handles);
    check_blocks(world, &heap_bytes);
    SAME(heap_bytes + scene_figures(&world->scene).pages * WORLD_PAGE_BYTES, totals.live_bytes);
    if (world->limit_pages)
        assert_true(totals.held_pages * WORLD_PAGE_BYTES + world->aside_bytes <=
                    world->limit_pages * WORLD_PAGE_BYTES);
}

/* ---- the program's events ---- */

void world_open(struct world *world)
{
    while (world->n_open_gates < world->n_gates)
        world->gates[world->n_open_gates++] = true;
}

static void drop_event(struct world *world, struct world_block *block)
{
    if (!block->event)
        return;
    vpmm_order_event_gone(world->scene.f.order, (vpmm_event_handle)block->event);
    SAME(CUDA_SUCCESS, sim_event_destroy(world->scene.f.sim, block->event));
    block->event = NULL;
}

/* The block's event behind everything on the lane now. */
static void mark(struct world *world, struct world_block *block, const struct world_lane *lane)
{
    struct fixture *fixture = &world->scene.f;
    struct vpmm_event_points points;
    drop_event(world, block);
    world_enter(world, lane->context);
    SAME(CUDA_SUCCESS, sim_event_create(fixture->sim, CU_EVENT_DISABLE_TIMING, &block->event));
    if (world->habits.tells_events)
        vpmm_order_event_recording(fixture->order, (vpmm_event_handle)block->event,
                                   (vpmm_stream_handle)lane->stream, &points);
    SAME(CUDA_SUCCESS, sim_event_record(fixture->sim, block->event, lane->stream));
    if (world->habits.tells_events)
        vpmm_order_event_recorded(fixture->order, (vpmm_event_handle)block->event, &points, true);
    block->event_context = lane->context;
}

static void follow(struct world *world, const struct world_block *block,
                   const struct world_lane *lane)
{
    struct fixture *fixture = &world->scene.f;
    struct vpmm_event_points points;
    world_enter(world, lane->context);
    if (!block->event)
        return;
    if (world->habits.tells_events)
        vpmm_order_event_waiting(fixture->order, (vpmm_event_handle)block->event, &points);
    SAME(CUDA_SUCCESS, sim_stream_wait_event(fixture->sim, lane->stream, block->event, 0));
    if (world->habits.tells_events)
        vpmm_order_event_waited(fixture->order, (vpmm_event_handle)block->event,
                                (vpmm_stream_handle)lane->stream, &points);
}

void world_await(struct world *world, struct world_block *block, bool proves)
{
    struct fixture *fixture = &world->scene.f;
    struct vpmm_proof proof;
    world_open(world);
    if (!block->event)
        return;
    if (proves)
        vpmm_order_prove_event(fixture->order, (vpmm_event_handle)block->event, &proof);
    SAME(CUDA_SUCCESS, sim_event_synchronize(fixture->sim, block->event));
    if (proves)
        vpmm_order_proven(fixture->order, &proof);
    drop_event(world, block);
}

/* ---- blocks ---- */

static bool begin_trouble(struct world *world)
{
    world->scene.f.maps_until_failure = world->map_nth;
    world->was_disturbed |= world->map_nth != 0;
    return world->map_nth != 0;
}

static void end_trouble(struct world *world)
{
    world->scene.f.maps_until_failure = world->map_nth = 0;
}

/* As the router has it. */
static bool is_part(const struct world *world, uint64_t bytes)
{
    return bytes < WORLD_PAGE_BYTES ||
           (world->habits.has_wide && vpmm_small_is_wide(bytes, WORLD_PAGE_BYTES));
}

static enum vpmm_status malloc_whole(struct world *world, struct vpmm_request *request,
                                     bool is_warm, uint64_t *address_out)
{
    struct vpmm_heap *heap = world->scene.f.heap;
    if (is_warm && request->stream) {
        bool has_habit;
        if (vpmm_heap_malloc_cached(heap, request, address_out, &has_habit) ||
            (has_habit && vpmm_heap_malloc_by_habit(heap, request, address_out)))
            return VPMM_OK;
        request->was_asked = true;
    }
    return vpmm_heap_malloc(heap, request, address_out);
}

static enum vpmm_status serve(struct world *world, struct vpmm_request *request, bool is_warm,
                              uint64_t *address_out)
{
    bool is_for_cuda = !request->stream && world->has_exported;
    if (!is_part(world, request->bytes) || (is_for_cuda && request->bytes >= WORLD_PAGE_BYTES))
        return malloc_whole(world, request, is_warm, address_out);
    if (is_for_cuda)
        return VPMM_NO_MEMORY;
    if (is_warm && vpmm_small_malloc_warm(world->scene.small, request, address_out))
        return VPMM_OK;
    return vpmm_small_malloc(world->scene.small, request, address_out);
}

struct world_block *world_malloc(struct world *world, uint64_t bytes, const struct world_lane *lane,
                                 enum world_context context, bool is_warm)
{
    struct vpmm_stream resolved;
    struct vpmm_request request = {.bytes = bytes};
    struct world_block new = {
        .bytes = bytes, .context = lane ? lane->context : context, .is_async = lane != NULL};
    if (lane) {
        resolved = world_resolve(world, lane);
        request.stream = &resolved;
        request.context = resolved.context;
        request.mempool = &world->mempool;
    } else {
        world_enter(world, context);
        SAME(VPMM_OK, vpmm_order_context(world->scene.f.order, NULL, &request.context));
    }
    bool has_trouble = begin_trouble(world);
    enum vpmm_status status = serve(world, &request, is_warm, &new.address);
    end_trouble(world);
    if (status && !has_trouble && status != VPMM_NO_MEMORY &&
        (status != VPMM_LIMITED || !world->limit_pages))
        fail_msg("status %d for %d bytes", status, (int)bytes);
    if (status)
        return NULL;
    for (size_t i = 0; i < world->n_blocks; i++)
        assert_false(new.address < world->blocks[i].address + world->blocks[i].bytes &&
                     world->blocks[i].address < new.address + bytes);
    struct world_block *block = &world->blocks[world->n_blocks++];
    *block = new;
    if (lane)
        mark(world, block, lane);
    return block;
}

void world_use(struct world *world, struct world_block *block, const struct world_lane *lane,
               bool is_gated)
{
    const volatile bool *gate = NULL;
    if (is_gated && world->n_gates < WORLD_GATES)
        gate = &world->gates[world->n_gates++];
    follow(world, block, lane);
    scene_work(&world->scene, lane->stream, block->address, block->bytes, gate);
    mark(world, block, lane);
    block->users |= 1u << lane->context;
}

/* In the order in which the router asks. */
static enum vpmm_status free_block(struct world *world, uint64_t address,
                                   const struct vpmm_stream *stream, bool is_warm,
                                   enum vpmm_status *wait_out)
{
    struct scene *scene = &world->scene;
    *wait_out = VPMM_OK;
    if (vpmm_small_holds(scene->small, address)) {
        if (is_warm && !vpmm_small_free_warm(scene->small, address, stream))
            return VPMM_OK;
        return vpmm_small_free(scene->small, address, stream, wait_out);
    }
    if (is_warm && stream && vpmm_heap_free_cached(scene->f.heap, address, stream, wait_out))
        return VPMM_OK;
    return vpmm_heap_free(scene->f.heap, address, stream, wait_out);
}

void world_free(struct world *world, size_t which, const struct world_lane *lane,
                enum world_context context, bool is_warm)
{
    struct world_block *block = &world->blocks[which];
    struct vpmm_stream resolved;
    enum vpmm_status wait;
    if (lane) {
        follow(world, block, lane);
        resolved = world_resolve(world, lane);
    } else {
        world_open(world);
        if (block->users & ~(1u << block->context))
            world_await(world, block, false);
        world_enter(world, context);
    }
    (void)begin_trouble(world);
    SAME(VPMM_OK, free_block(world, block->address, lane ? &resolved : NULL, is_warm, &wait));
    end_trouble(world);
    SAME(VPMM_OK, wait);
    assert_int_not_equal(VPMM_OK, vpmm_small_free(world->scene.small, block->address, NULL, &wait));
    drop_event(world, block);
    *block = world->blocks[--world->n_blocks];
}

/* ---- the end ---- */

/* Drained, one look learns of all that is complete, and the next one of what depends on it. */
static void drain(struct world *world)
{
    world_enter(world, WORLD_MAIN);
    for (int i = 0; i < 4; i++) {
        (void)sim_drain(world->scene.f.sim);
        vpmm_heap_reap(world->scene.f.heap);
    }
    (void)vpmm_heap_trim(world->scene.f.heap, UINT64_MAX);
}

void world_teardown(struct world *world)
{
    struct vpmm_order_totals order_totals;
    world_open(world);
    world_set_aside(world, 0);
    while (world->n_leases)
        world_unlease(world, 0);
    while (world->n_blocks) {
        world_await(world, &world->blocks[0], false);
        world_free(world, 0, NULL, world->blocks[0].context, false);
    }
    drain(world);
    world_check(world);
    struct vpmm_small_figures figures = scene_figures(&world->scene);
    struct vpmm_pool_totals totals = fixture_totals(&world->scene.f);
    SAME(0, figures.waiting_blocks + figures.slabs);
    SAME(0, totals.live_pages + totals.zombie_pages + totals.held_pages);
    if (!world->was_disturbed)
        SAME(0, totals.busy_pages);
    vpmm_order_totals(world->scene.f.order, &order_totals);
    SAME(0, order_totals.fences);
    scene_abandon(&world->scene);
}
