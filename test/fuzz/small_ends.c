/* SPDX-License-Identifier: MIT */
/* What comes and goes in a world of small blocks: streams, contexts, other processes, and parts of
 * the limit. The library hears of each as the router tells it. */
#include "small_world.h"

#include "order/order_program.h"

#define MAIN_LANES 5

/* ---- streams ---- */

static CUstream make_stream(struct world *world, size_t i)
{
    return fixture_stream(&world->scene.f, i % 2 ? CU_STREAM_NON_BLOCKING : 0);
}

void world_make_lanes(struct world *world, enum world_context context)
{
    size_t first = context == WORLD_MAIN ? 0 : MAIN_LANES;
    size_t last = context == WORLD_MAIN ? MAIN_LANES - 1 : WORLD_LANES - 1;
    world_enter(world, context);
    for (size_t i = first; i <= last; i++)
        world->lanes[i] =
            (struct world_lane){i == last ? CU_STREAM_LEGACY : make_stream(world, i), context};
}

void world_replace_stream(struct world *world, struct world_lane *lane)
{
    struct fixture *fixture = &world->scene.f;
    if (lane->stream == CU_STREAM_LEGACY)
        return;
    struct vpmm_stream resolved = world_resolve(world, lane);
    vpmm_small_stream_gone(world->scene.small, &resolved);
    vpmm_order_stream_gone(fixture->order, (vpmm_stream_handle)lane->stream);
    SAME(CUDA_SUCCESS, sim_stream_destroy(fixture->sim, lane->stream));
    lane->stream = make_stream(world, (size_t)(lane - world->lanes));
}

void world_synchronize(struct world *world, const struct world_lane *lane, bool whole, bool asks)
{
    struct fixture *fixture = &world->scene.f;
    struct vpmm_proof proof;
    CUresult result;
    world_enter(world, lane->context);
    if (!asks)
        world_open(world);
    if (whole && !asks) {
        vpmm_order_prove_context(fixture->order, NULL, &proof);
        result = sim_ctx_synchronize(fixture->sim);
    } else {
        vpmm_order_prove_stream(fixture->order, (vpmm_stream_handle)lane->stream, &proof);
        result = asks ? sim_stream_query(fixture->sim, lane->stream)
                      : sim_stream_synchronize(fixture->sim, lane->stream);
    }
    if (!asks || result != CUDA_ERROR_NOT_READY)
        SAME(CUDA_SUCCESS, result);
    if (!result)
        vpmm_order_proven(fixture->order, &proof);
}

/* ---- contexts ---- */

/* What the blocks' events of the second context stand for is about to be over, and no work of
 * others is under way on blocks that die with it. */
static void leave_second(struct world *world)
{
    world_open(world);
    for (size_t i = 0; i < world->n_blocks; i++) {
        struct world_block *block = &world->blocks[i];
        if (block->context == WORLD_SECOND || block->event_context == WORLD_SECOND)
            world_await(world, block, false);
    }
}

/* Its blocks of cudaMalloc are gone. Those of streams live on, and no cudaFree waits for anything
 * of them. */
static void bury_second(struct world *world)
{
    for (size_t i = world->n_blocks; i-- > 0;) {
        struct world_block *block = &world->blocks[i];
        if (block->context != WORLD_SECOND)
            continue;
        if (block->is_async) {
            block->context = WORLD_MAIN;
            block->users = 1u << WORLD_MAIN | 1u << WORLD_SECOND;
        } else {
            *block = world->blocks[--world->n_blocks];
        }
    }
}

void world_replace_context(struct world *world, bool fails)
{
    struct fixture *fixture = &world->scene.f;
    CUcontext handle = world->contexts[WORLD_SECOND];
    struct vpmm_context *context;
    SAME(VPMM_OK, vpmm_order_context(fixture->order, (vpmm_context_handle)handle, &context));
    uint64_t id = vpmm_context_id(context);
    leave_second(world);
    world_enter(world, WORLD_MAIN);
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
    vpmm_small_context_gone(world->scene.small, id);
    vpmm_heap_context_gone(fixture->heap, id);
    bury_second(world);
    SAME(CUDA_SUCCESS, sim_ctx_create(fixture->sim, 0, 0, &world->contexts[WORLD_SECOND]));
    world_make_lanes(world, WORLD_SECOND);
}

/* ---- other processes ---- */

void world_export(struct world *world, const struct world_block *block, uint64_t n_leases)
{
    struct vpmm_heap *heap = world->scene.f.heap;
    struct vpmm_region_view view;
    uint64_t shared_bytes, start, end;
    if (block->is_async)
        return;
    SAME(VPMM_OK, vpmm_heap_find(heap, block->address, &view));
    if (vpmm_small_holds(world->scene.small, block->address)) {
        world->has_exported = true;
        vpmm_small_retire(world->scene.small, block->address);
    }
    if (vpmm_heap_export(heap, view.address, view.owner.id, &shared_bytes))
        return;
    for (; n_leases && world->n_leases < WORLD_LEASES; n_leases--) {
        SAME(VPMM_OK, vpmm_heap_lease(heap, view.address, view.owner.id, &start, &end));
        world->leases[world->n_leases].address = view.address;
        world->leases[world->n_leases++].owner_id = view.owner.id;
    }
}

void world_unlease(struct world *world, size_t which)
{
    vpmm_heap_unlease(world->scene.f.heap, world->leases[which].address,
                      world->leases[which].owner_id);
    world->leases[which] = world->leases[--world->n_leases];
}

/* ---- the limit ---- */

void world_set_aside(struct world *world, uint64_t bytes)
{
    struct vpmm_heap *heap = world->scene.f.heap;
    vpmm_heap_set_back(heap, world->aside_bytes);
    world->aside_bytes = bytes && vpmm_heap_set_aside(heap, bytes) ? bytes : 0;
}
