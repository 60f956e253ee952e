/* SPDX-License-Identifier: MIT */
/* Tells in the log why the pool did not serve a request. Must not change what becomes of the
 * request. */
#include "base/bytes.h"
#include "observe/log.h"
#include "route/router.h"

#define BYTES_TEXT 24

static const char *kind_of(const struct vpmm_route_request *request)
{
    return request->is_async ? "cudaMallocAsync" : "cudaMalloc";
}

static uint64_t largest_free_pages(const struct vpmm_pool *pool)
{
    struct vpmm_region_view view;
    uint64_t largest = 0, run = 0;
    for (uint64_t cursor = 0; vpmm_pool_next(pool, &cursor, &view);) {
        run = view.state == VPMM_REGION_FREE ? run + view.pages : 0;
        largest = run > largest ? run : largest;
    }
    return largest;
}

void vpmm_router_tell_full(struct vpmm_router *router, struct vpmm_heap *heap,
                           const struct vpmm_route_request *request)
{
    struct vpmm_pool_totals totals;
    /* It walks all regions, and a program on a full device may ask again and again. */
    if (!vpmm_log_says(VPMM_LOG_IS_WARNING))
        return;
    vpmm_pool_totals(vpmm_heap_pool(heap), &totals);
    uint64_t page = vpmm_heap_page_bytes(heap);
    uint64_t device_free = 0, device_total;
    char asked[BYTES_TEXT], live[BYTES_TEXT], held[BYTES_TEXT], run[BYTES_TEXT],
        pending[BYTES_TEXT], left[BYTES_TEXT] = "unknown";
    /* The driver tells of the current context's device only. */
    bool is_current = vpmm_router_current_heap(router) == heap;
    (void)vpmm_bytes_print(request->bytes, asked, sizeof asked);
    (void)vpmm_bytes_print(totals.live_pages * page, live, sizeof live);
    (void)vpmm_bytes_print(totals.held_pages * page, held, sizeof held);
    (void)vpmm_bytes_print(largest_free_pages(vpmm_heap_pool(heap)) * page, run, sizeof run);
    (void)vpmm_bytes_print(totals.zombie_pages * page, pending, sizeof pending);
    if (is_current &&
        !router->driver->memory_info(router->driver->self, &device_free, &device_total))
        (void)vpmm_bytes_print(device_free, left, sizeof left);
    vpmm_log(
        VPMM_LOG_IS_WARNING,
        "device %d has no room for %s of %s: live %s, held %s, largest free run %s, waiting to "
        "be unmapped %s, free on the device %s; finished work was reaped, free memory given "
        "back and waited for as far as is safe; asking CUDA instead",
        vpmm_heap_device(heap), asked, kind_of(request), live, held, run, pending, left);
}

void vpmm_router_tell_failure(struct vpmm_heap *heap, const struct vpmm_route_request *request,
                              enum vpmm_status status)
{
    char asked[BYTES_TEXT];
    (void)vpmm_bytes_print(request->bytes, asked, sizeof asked);
    vpmm_log(VPMM_LOG_IS_WARNING, "device %d cannot serve %s of %s: %s; asking CUDA instead",
             vpmm_heap_device(heap), asked, kind_of(request), vpmm_status_text(status));
}

void vpmm_router_tell_limited(struct vpmm_router *router, int device,
                              const struct vpmm_route_request *request)
{
    struct vpmm_pool_totals totals = {0};
    const struct vpmm_heap *heap = vpmm_router_heap(router, device);
    uint64_t page = heap ? vpmm_heap_page_bytes(heap) : 0;
    char asked[BYTES_TEXT], live[BYTES_TEXT], held[BYTES_TEXT], limit[BYTES_TEXT];
    if (heap)
        vpmm_pool_totals(vpmm_heap_pool(heap), &totals);
    (void)vpmm_bytes_print(request->bytes, asked, sizeof asked);
    (void)vpmm_bytes_print(totals.live_pages * page, live, sizeof live);
    (void)vpmm_bytes_print(totals.held_pages * page, held, sizeof held);
    (void)vpmm_bytes_print(router->devices[device].limit_bytes, limit, sizeof limit);
    vpmm_log(
        VPMM_LOG_IS_WARNING,
        "device %d refuses %s of %s: VPMM_LIMIT allows %s, live %s, held %s; finished work was "
        "reaped and waited for as far as is safe",
        device, kind_of(request), asked, limit, live, held);
}
