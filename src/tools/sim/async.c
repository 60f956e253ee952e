/* SPDX-License-Identifier: MIT */
/* Stream-ordered allocations and frees. Must not hand a block to another stream earlier than CUDA's
 * pool would. */
#include "sim/sim_internal.h"

#include <stdlib.h>

/* In a capture the allocation is a node; its address is good at once, and the graph owns it. */
static CUresult alloc_captured(struct sim *sim, struct stream *stream, struct plain *plain)
{
    struct graph *graph = stream->capture->graph;
    struct work work = {.kind = WORK_ALLOC, .name = "cuMemAllocAsync"};
    CUresult result = capture_add(sim, stream, &work);
    if (result != CUDA_SUCCESS)
        return result;
    plain->graph = graph;
    graph->allocs =
        grow(graph->allocs, sizeof *graph->allocs, graph->n_allocs, &graph->allocs_room);
    graph->allocs[graph->n_allocs++] = plain;
    return CUDA_SUCCESS;
}

/* Memory calls on a stream that does not capture itself are refused like cuMemAlloc and cuMemFree.
 */
static CUresult memory_allowed(struct sim *sim, struct stream *stream, const char *name)
{
    TRY(capture_implicit(sim, stream, name));
    return stream->capture != NULL ? CUDA_SUCCESS : capture_unsafe(sim, name);
}

/* A block of just this size that another stream of this order freed: CUDA reuses it before its work
 * is over (measured: test/programs/reuse.c). */
static struct plain *reuse_ordered(struct sim *sim, struct stream *stream, struct pool *pool,
                                   uint64_t bytes)
{
    if (!sim->config.reuses_early || !pool->reuse_flags[0] || stream->capture != NULL)
        return NULL;
    for (struct op *op = sim->pending; op != NULL; op = op->next) {
        struct plain *plain = op->work.plain;
        if (plain == NULL || plain->pool != pool || plain->bytes != bytes || !plain->freed ||
            plain->parked || plain->graph != NULL || !stream_follows(sim, stream, op))
            continue;
        if (plain_revive(sim, plain) != CUDA_SUCCESS)
            return NULL;
        plain->id = ++sim->next_id;
        /* Work of other streams comes after the legacy stream's only where there is some. */
        if (stream->is_legacy) {
            struct work work = {.kind = WORK_MARK, .name = "cuMemAllocAsync"};
            if (stream_queue(sim, stream, &work, NULL) != CUDA_SUCCESS)
                abort();
        }
        return plain;
    }
    return NULL;
}

/* `pool` NULL: the current pool of the stream's device. */
static CUresult alloc_async(struct sim *sim, uint64_t bytes, struct pool *pool, CUstream handle,
                            CUdeviceptr *address_out)
{
    struct stream *stream;
    TRY(stream_serving(sim, handle, &stream));
    if (address_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes == 0) {
        *address_out = 0;
        return CUDA_SUCCESS;
    }
    TRY(memory_allowed(sim, stream, "cuMemAllocAsync"));
    if (stream->capture != NULL && stream->capture->broken)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (pool == NULL)
        pool = sim->devices[stream->context->device].pool;
    if (bytes > sim->config.device_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct plain *plain = reuse_ordered(sim, stream, pool, bytes);
    if (plain == NULL) {
        TRY(pool_take(sim, pool, bytes));
        plain = plain_add(sim, pool->device, bytes, bytes);
        plain->pool = pool;
        sim->n_async++;
    }
    CUresult result = CUDA_SUCCESS;
    if (stream->capture != NULL)
        result = alloc_captured(sim, stream, plain);
    else if (!returned_take(pool, stream, bytes))
        result = stream_touch(sim, stream, "cuMemAllocAsync");
    if (result == CUDA_SUCCESS)
        *address_out = plain->address;
    else
        plain_end(sim, plain);
    return result;
}

CUresult sim_mem_alloc_async(struct sim *sim, size_t bytes, CUstream stream,
                             CUdeviceptr *address_out)
{
    CUresult result = call_enter(sim, "cuMemAllocAsync");
    if (result == CUDA_SUCCESS)
        result = alloc_async(sim, bytes, NULL, stream, address_out);
    return call_leave_priced(sim, "cuMemAllocAsync", result, 1, bytes);
}

CUresult sim_mem_alloc_from_pool_async(struct sim *sim, size_t bytes, CUmemoryPool handle,
                                       CUstream stream, CUdeviceptr *address_out)
{
    struct pool *pool = NULL;
    CUresult result = call_enter(sim, "cuMemAllocFromPoolAsync");
    if (result == CUDA_SUCCESS)
        result = pool_of(sim, handle, &pool);
    if (result == CUDA_SUCCESS)
        result = alloc_async(sim, bytes, pool, stream, address_out);
    return call_leave_priced(sim, "cuMemAllocFromPoolAsync", result, 1, bytes);
}

static CUresult free_captured(struct sim *sim, struct stream *stream, struct plain *plain)
{
    if (plain->graph != stream->capture->graph)
        return CUDA_ERROR_INVALID_VALUE;
    struct work work = {.kind = WORK_ALLOC, .name = "cuMemFreeAsync"};
    TRY(capture_add(sim, stream, &work));
    plain_part(plain);
    plain->graph_frees = true;
    return CUDA_SUCCESS;
}

static CUresult free_async(struct sim *sim, CUdeviceptr address, CUstream handle)
{
    struct stream *stream;
    TRY(stream_serving(sim, handle, &stream));
    if (address == 0)
        return CUDA_SUCCESS;
    TRY(memory_allowed(sim, stream, "cuMemFreeAsync"));
    struct plain *plain = space_plain(sim, address);
    if (plain == NULL || plain->address != address || plain->freed || plain->n_opens > 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture != NULL)
        return free_captured(sim, stream, plain);
    struct work work = {.kind = WORK_FREE, .name = "cuMemFreeAsync", .plain = plain};
    struct op *op;
    TRY(stream_queue(sim, stream, &work, &op));
    if (plain->pool != NULL && plain->graph == NULL)
        returned_add(plain->pool, op, plain->bytes);
    op_drop(op);
    plain_part(plain);
    return CUDA_SUCCESS;
}

CUresult sim_mem_free_async(struct sim *sim, CUdeviceptr address, CUstream stream)
{
    CUresult result = call_enter(sim, "cuMemFreeAsync");
    if (result == CUDA_SUCCESS)
        result = free_async(sim, address, stream);
    return call_leave_priced(sim, "cuMemFreeAsync", result, 1, 0);
}
