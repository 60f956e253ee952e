/* SPDX-License-Identifier: MIT */
/* Serves a replay by a heap of this library and its layer of small blocks, as the router does with
 * the default options. Must not end without the heap's audit, whose complaint fails the replay. */
#include "replay/allocator.h"

#include "base/bytes.h"
#include "order/order_program.h"
#include "small/small.h"

#include <stdio.h>
#include <stdlib.h>

#define ROOT_BYTES ((uint64_t)8 << 40)
/* Enough looks for fences that depend on each other. */
#define SETTLING_LOOKS 4

struct pool {
    struct vpmm_allocator base;
    struct vpmm_order *order;
    struct vpmm_heap *heap;
    struct vpmm_small *small;   /* NULL: pages are too large for it */
    vpmm_atomic32 has_blocking; /* a stream of the trace, beside legacy ones */
};

static struct pool *of(struct vpmm_allocator *allocator)
{
    return (struct pool *)(void *)allocator;
}

static enum vpmm_status resolve(struct vpmm_allocator *base, uint32_t number,
                                struct vpmm_stream *stream_out)
{
    enum vpmm_status status =
        vpmm_order_stream(of(base)->order, base->device->stream(base->device, number), stream_out);
    if (!status && stream_out->is_blocking)
        vpmm_atomic_store(&of(base)->has_blocking, 1);
    return status;
}

static bool is_part(const struct pool *pool, uint64_t bytes)
{
    uint64_t page_bytes = pool->base.page_bytes;
    return pool->small && (bytes < page_bytes || (vpmm_small_is_wide(bytes, page_bytes) &&
                                                  vpmm_heap_is_wasteful(pool->heap)));
}

static enum vpmm_status take(struct vpmm_allocator *base, uint64_t bytes, uint32_t number,
                             bool is_sync, uint64_t *address_out)
{
    struct pool *pool = of(base);
    struct vpmm_stream stream;
    struct vpmm_request request = {.bytes = bytes};
    enum vpmm_status status = is_sync ? vpmm_order_context(pool->order, NULL, &request.context)
                                      : resolve(base, number, &stream);
    if (!status && !is_sync) {
        request.stream = &stream;
        request.context = stream.context;
    }
    if (status)
        return status;
    /* The device cannot have as much. */
    if (bytes > base->device->total_bytes)
        return VPMM_NO_MEMORY;
    if (!is_part(pool, bytes))
        return vpmm_heap_malloc(pool->heap, &request, address_out);
    return vpmm_small_malloc_warm(pool->small, &request, address_out)
               ? VPMM_OK
               : vpmm_small_malloc(pool->small, &request, address_out);
}

/* INVALID: the block is no part of pages. */
static enum vpmm_status give_part(const struct pool *pool, uint64_t address,
                                  const struct vpmm_stream *stream, enum vpmm_status *wait_out)
{
    enum vpmm_status status =
        pool->small ? vpmm_small_free_warm(pool->small, address, stream) : VPMM_INVALID;
    return status == VPMM_NOT_READY ? vpmm_small_free(pool->small, address, stream, wait_out)
                                    : status;
}

static enum vpmm_status give(struct vpmm_allocator *base, uint64_t address, uint32_t number,
                             bool is_sync)
{
    struct vpmm_stream stream;
    enum vpmm_status wait = VPMM_OK;
    enum vpmm_status status = is_sync ? VPMM_OK : resolve(base, number, &stream);
    if (status)
        return status;
    const struct vpmm_stream *known = is_sync ? NULL : &stream;
    status = give_part(of(base), address, known, &wait);
    if (status == VPMM_INVALID)
        status = vpmm_heap_free(of(base)->heap, address, known, &wait);
    return status ? status : wait;
}

static enum vpmm_status record(struct vpmm_allocator *base, uint32_t event, uint32_t stream)
{
    struct vpmm_replay_device *device = base->device;
    struct vpmm_order *order = of(base)->order;
    vpmm_event_handle handle = device->event(device, event);
    struct vpmm_event_points points;
    if (!vpmm_order_learns(order))
        return device->record(device, event, stream);
    vpmm_order_event_recording(order, handle, device->stream(device, stream), &points);
    enum vpmm_status status = device->record(device, event, stream);
    vpmm_order_event_recorded(order, handle, &points, status == VPMM_OK);
    return status;
}

static enum vpmm_status follow(struct vpmm_allocator *base, uint32_t event, uint32_t stream)
{
    struct vpmm_replay_device *device = base->device;
    struct vpmm_order *order = of(base)->order;
    vpmm_event_handle handle = device->event(device, event);
    struct vpmm_event_points points;
    if (!vpmm_order_has_pending(order))
        return device->follow(device, event, stream);
    vpmm_order_event_waiting(order, handle, &points);
    enum vpmm_status status = device->follow(device, event, stream);
    if (!status)
        vpmm_order_event_waited(order, handle, device->stream(device, stream), &points);
    return status;
}

static uint64_t held_bytes(struct vpmm_allocator *base)
{
    return vpmm_heap_held_bytes(of(base)->heap);
}

static void counts(const struct vpmm_allocator *base, struct vpmm_replay_counts *counts_out)
{
    const struct pool *pool = (const struct pool *)(const void *)base;
    struct vpmm_small_figures figures = {.mallocs = 0};
    if (pool->small)
        vpmm_small_figures(pool->small, &figures);
    vpmm_heap_counts(pool->heap, &counts_out->pool);
    counts_out->parts = figures.mallocs;
}

static uint64_t owed_ns(struct vpmm_allocator *base)
{
    struct vpmm_region_view region;
    uint64_t cursor = 0;
    uint64_t ns = 0;
    while (vpmm_pool_next(vpmm_heap_pool(of(base)->heap), &cursor, &region))
        if (region.state == VPMM_REGION_ZOMBIE)
            ns += vpmm_priced_unmap_ns(&base->device->priced, region.address,
                                       region.pages * base->page_bytes);
    return ns;
}

static void discard(struct pool *pool)
{
    vpmm_heap_destroy(pool->heap);
    vpmm_small_destroy(pool->small);
    if (pool->order)
        vpmm_order_destroy(pool->order);
    free(pool);
}

static const char *close_pool(struct vpmm_allocator *base)
{
    struct pool *pool = of(base);
    struct vpmm_pool_totals totals;
    for (int i = 0; i < SETTLING_LOOKS; i++) {
        vpmm_heap_ask_keeper(pool->heap);
        vpmm_heap_reap(pool->heap);
    }
    (void)vpmm_heap_trim(pool->heap, UINT64_MAX);
    const char *broken = pool->small ? vpmm_small_audit(pool->small) : NULL;
    if (!broken)
        broken = vpmm_heap_audit(pool->heap);
    vpmm_pool_totals(vpmm_heap_pool(pool->heap), &totals);
    if (!broken && (totals.held_pages || totals.live_pages))
        broken = "memory is still held after all was freed";
    discard(pool);
    return broken;
}

static struct vpmm_heap_params params_of(const struct vpmm_replay_device *device,
                                         const struct vpmm_replay_options *options,
                                         uint64_t granularity_bytes)
{
    struct vpmm_heap_params params = {
        .page_bytes = granularity_bytes,
        .extent_pages_max = options->extent_pages_max,
        .slack_bytes = options->slack_bytes,
        .slack_percent = options->slack_percent,
        .spare_percent = options->spare_percent,
        .limit_bytes = options->limit_bytes,
    };
    params.device = options->gpu == VPMM_REPLAY_SIMULATED ? 0 : options->gpu;
    if (options->limit_percent)
        params.limit_bytes = device->total_bytes / 100 * options->limit_percent;
    if (options->page_bytes &&
        !vpmm_bytes_round_up(options->page_bytes, granularity_bytes, &params.page_bytes))
        params.page_bytes = UINT64_MAX;
    params.root_bytes = ROOT_BYTES;
    (void)vpmm_bytes_round_up(ROOT_BYTES, params.page_bytes, &params.root_bytes);
    return params;
}

/* INVALID, with a message. A limit below a page would become 0, which stands for no limit. */
static enum vpmm_status check_sizes(const struct vpmm_heap_params *params,
                                    const struct vpmm_replay_device *device,
                                    char message_out[static VPMM_REPLAY_MESSAGE_BYTES])
{
    char page[24], limit[24];
    (void)vpmm_bytes_print(params->page_bytes, page, sizeof page);
    (void)vpmm_bytes_print(params->limit_bytes, limit, sizeof limit);
    if (params->page_bytes > device->total_bytes)
        (void)snprintf(message_out, VPMM_REPLAY_MESSAGE_BYTES,
                       "no pool on %s: a page is larger than the device", device->name);
    else if (params->limit_bytes && params->limit_bytes < params->page_bytes)
        (void)snprintf(message_out, VPMM_REPLAY_MESSAGE_BYTES,
                       "no pool on %s: a limit of %s is less than a page, which has %s",
                       device->name, limit, page);
    return message_out[0] ? VPMM_INVALID : VPMM_OK;
}

static enum vpmm_status make(struct pool *pool, const struct vpmm_replay_options *options,
                             char message_out[static VPMM_REPLAY_MESSAGE_BYTES])
{
    struct vpmm_replay_device *device = pool->base.device;
    struct vpmm_device_facts facts;
    int number = options->gpu == VPMM_REPLAY_SIMULATED ? 0 : options->gpu;
    enum vpmm_status status = device->driver.device_facts(device->driver.self, number, &facts);
    if (!status && !facts.has_vmm)
        status = VPMM_NOT_SUPPORTED;
    if (status)
        return status;
    struct vpmm_heap_params params = params_of(device, options, facts.granularity_bytes);
    status = check_sizes(&params, device, message_out);
    if (!status)
        status = vpmm_order_create(&device->driver, &vpmm_memory_system, &pool->order);
    if (!status) {
        vpmm_order_watch_streams(pool->order, &pool->has_blocking);
        status = vpmm_heap_create(&params, &device->driver, pool->order, &vpmm_memory_system,
                                  &pool->heap);
    }
    if (status)
        return status;
    const struct vpmm_small_params small = {.free_waits = true};
    status = vpmm_small_create(&small, pool->heap, pool->order, &vpmm_memory_system, &pool->small);
    if (status && status != VPMM_NOT_SUPPORTED)
        return status;
    pool->base.page_bytes = vpmm_heap_page_bytes(pool->heap);
    pool->base.limit_bytes = vpmm_heap_limit_bytes(pool->heap);
    return VPMM_OK;
}

struct vpmm_allocator *vpmm_allocator_pool(struct vpmm_replay_device *device,
                                           const struct vpmm_replay_options *options,
                                           char message_out[static VPMM_REPLAY_MESSAGE_BYTES])
{
    struct pool *pool = calloc(1, sizeof *pool);
    enum vpmm_status status = VPMM_NO_METADATA;
    message_out[0] = '\0';
    if (pool) {
        pool->base = (struct vpmm_allocator){
            .device = device,
            .take = take,
            .give = give,
            .record = record,
            .follow = follow,
            .held_bytes = held_bytes,
            .counts = counts,
            .owed_ns = owed_ns,
            .close = close_pool,
        };
        status = make(pool, options, message_out);
    }
    if (!status)
        return &pool->base;
    if (!message_out[0])
        (void)snprintf(message_out, VPMM_REPLAY_MESSAGE_BYTES, "no pool on %s: %s", device->name,
                       vpmm_status_text(status));
    if (pool)
        discard(pool);
    return NULL;
}
