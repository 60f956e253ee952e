/* SPDX-License-Identifier: MIT */
/* Requests that are smaller than a page, and blocks that are parts of pages. Must not cost anything
 * where small requests pass through to CUDA. */
#include "route/router.h"

/* Whole pages are faster: blocks of a page and more share theirs only where that saves much. */
bool vpmm_router_is_part(const struct vpmm_router *router, int number, uint64_t bytes)
{
    const struct device *device = &router->devices[number];
    return bytes < device->whole_bytes ||
           (device->small && vpmm_small_is_wide(bytes, device->page_bytes) &&
            vpmm_heap_is_wasteful(vpmm_atomic_load(&device->heap)));
}

void vpmm_router_make_small(struct vpmm_router *router, int number, struct vpmm_heap *heap)
{
    struct device *device = &router->devices[number];
    const struct vpmm_small_params params = {
        .free_waits = router->config->free_sync != VPMM_FREE_SYNC_NEVER,
        .wide_waits = router->config->free_sync == VPMM_FREE_SYNC_ALWAYS,
    };
    if (device->whole_bytes == device->threshold_bytes)
        return;
    if (vpmm_small_create(&params, heap, router->order, router->memory, &device->small))
        device->small = NULL;
    else if (vpmm_atomic_load(&router->part_bytes_max) < device->page_bytes)
        vpmm_atomic_store(&router->part_bytes_max, device->page_bytes > VPMM_WIDE_BYTES_MAX
                                                       ? device->page_bytes
                                                       : VPMM_WIDE_BYTES_MAX);
}

struct vpmm_small *vpmm_router_find_small(struct vpmm_router *router, uint64_t address)
{
    uint32_t n = vpmm_atomic_load(&router->n_heaps);
    for (uint32_t i = 0; i < n; i++) {
        struct vpmm_small *small = router->smalls[i];
        if (small && vpmm_small_holds(small, address))
            return small;
    }
    return NULL;
}

void vpmm_router_end_context(struct vpmm_router *router, struct vpmm_heap *heap, uint64_t id)
{
    struct vpmm_small *small = router->devices[vpmm_heap_device(heap)].small;
    if (small)
        vpmm_small_context_gone(small, id);
    vpmm_heap_context_gone(heap, id);
}

/* CUDA's own memory pools count what is theirs, and have limits. Once a block of other processes'
 * was asked for, CUDA serves those that may be next: they share no pages with blocks of ours. */
static bool is_for_cuda(struct vpmm_router *router, const struct vpmm_request *request)
{
    return request->stream ? request->mempool->number != VPMM_MEMPOOL_DEFAULT
                           : vpmm_atomic_load(&router->exports_parts) != 0;
}

enum vpmm_status vpmm_router_malloc_part(struct vpmm_router *router, struct vpmm_heap *heap,
                                         const struct vpmm_request *request, uint64_t *address_out)
{
    struct vpmm_small *small = router->devices[vpmm_heap_device(heap)].small;
    if (!small || is_for_cuda(router, request))
        return request->bytes < vpmm_heap_page_bytes(heap)
                   ? VPMM_NOT_FOUND
                   : vpmm_heap_malloc(heap, request, address_out);
    return vpmm_small_malloc(small, request, address_out);
}

bool vpmm_router_malloc_part_warm(struct vpmm_router *router, const struct vpmm_request *request,
                                  int number, uint64_t *address_out)
{
    struct vpmm_small *small = router->devices[number].small;
    return small && !is_for_cuda(router, request) &&
           vpmm_small_malloc_warm(small, request, address_out);
}

uint64_t vpmm_router_parts_served(struct vpmm_router *router, bool is_async)
{
    uint64_t n = 0;
    uint32_t n_heaps = vpmm_atomic_load(&router->n_heaps);
    for (uint32_t i = 0; i < n_heaps; i++) {
        struct vpmm_small_figures figures = {0};
        if (router->smalls[i])
            vpmm_small_figures(router->smalls[i], &figures);
        n += is_async ? figures.warm_async_mallocs
                      : figures.warm_mallocs - figures.warm_async_mallocs;
    }
    return n;
}

struct vpmm_small *vpmm_router_small(struct vpmm_router *router, int device)
{
    return vpmm_router_heap(router, device) ? router->devices[device].small : NULL;
}

void vpmm_router_stream_gone(struct vpmm_router *router, vpmm_stream_handle handle)
{
    struct vpmm_stream stream;
    if (!vpmm_atomic_load(&router->n_plain_heaps) && vpmm_atomic_load(&router->n_heaps) &&
        !vpmm_order_stream(router->order, handle, &stream)) {
        struct vpmm_small *small = router->devices[vpmm_context_device(stream.context)].small;
        if (small)
            vpmm_small_stream_gone(small, &stream);
    }
    vpmm_order_stream_gone(router->order, handle);
}
