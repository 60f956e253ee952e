/* SPDX-License-Identifier: MIT */
/* Which of CUDA's memory pools are ours to serve, and what the program chose for them. Must not
 * give a number anew while a block has it. */
#include "route/router.h"

void vpmm_router_mempools_init(struct vpmm_router *router)
{
    vpmm_atomic_store(&router->end_mempools, VPMM_MEMPOOL_FIRST);
    for (int i = 0; i < VPMM_DEVICES_MAX; i++) {
        struct device *device = &router->devices[i];
        vpmm_mempool_init(&device->default_mempool, VPMM_MEMPOOL_DEFAULT, 0);
        vpmm_atomic_store(&device->current, &device->default_mempool);
    }
}

static int device_of(const struct made_mempool *made)
{
    return (int)vpmm_atomic_load(&made->device);
}

/* Lock. Whether the number may stand for another memory pool. */
static bool is_unused(struct vpmm_router *router, const struct made_mempool *made)
{
    struct vpmm_heap *heap = vpmm_router_heap(router, device_of(made));
    return !vpmm_atomic_load(&made->is_alive) &&
           (!heap || vpmm_pool_mempool_bytes(vpmm_heap_pool(heap), made->mempool.number) == 0);
}

/* Lock. 0: there is none. */
static uint32_t unused_number(struct vpmm_router *router)
{
    uint32_t end = vpmm_atomic_load(&router->end_mempools);
    for (uint32_t number = VPMM_MEMPOOL_FIRST; number < end; number++)
        if (is_unused(router, &router->mempools[number]))
            return number;
    return end < VPMM_MEMPOOLS ? end : 0;
}

void vpmm_router_mempool_made(struct vpmm_router *router, vpmm_mempool_handle handle, int device,
                              uint64_t limit_bytes)
{
    if (!vpmm_router_is_device(device))
        return;
    vpmm_lock_take(&router->lock);
    uint32_t number = unused_number(router);
    if (number) {
        struct made_mempool *made = &router->mempools[number];
        vpmm_atomic_store(&made->device, (uint32_t)device);
        vpmm_mempool_init(&made->mempool, number, limit_bytes);
        vpmm_atomic_store(&made->handle, handle);
        vpmm_atomic_store(&made->is_alive, 1);
        if (number == vpmm_atomic_load(&router->end_mempools))
            vpmm_atomic_store(&router->end_mempools, number + 1);
    }
    vpmm_lock_give(&router->lock);
}

static struct made_mempool *find_made(struct vpmm_router *router, vpmm_mempool_handle handle)
{
    uint32_t end = vpmm_atomic_load(&router->end_mempools);
    for (uint32_t number = VPMM_MEMPOOL_FIRST; number < end; number++) {
        struct made_mempool *made = &router->mempools[number];
        if (vpmm_atomic_load(&made->is_alive) && vpmm_atomic_load(&made->handle) == handle)
            return made;
    }
    return NULL;
}

void vpmm_router_mempool_default(struct vpmm_router *router, vpmm_mempool_handle handle, int device)
{
    if (vpmm_router_is_device(device))
        vpmm_atomic_store(&router->devices[device].default_handle, handle);
}

struct vpmm_mempool *vpmm_router_mempool(struct vpmm_router *router, vpmm_mempool_handle handle,
                                         int *device_out)
{
    if (!handle)
        return NULL;
    struct made_mempool *made = find_made(router, handle);
    if (made) {
        *device_out = device_of(made);
        return &made->mempool;
    }
    for (int i = 0; i < VPMM_DEVICES_MAX; i++)
        if (vpmm_atomic_load(&router->devices[i].default_handle) == handle) {
            *device_out = i;
            return &router->devices[i].default_mempool;
        }
    return NULL;
}

vpmm_mempool_handle vpmm_router_mempool_handle(struct vpmm_router *router, uint32_t number)
{
    return number < VPMM_MEMPOOLS ? vpmm_atomic_load(&router->mempools[number].handle) : NULL;
}

void vpmm_router_mempool_set(struct vpmm_router *router, int device, struct vpmm_mempool *mempool)
{
    if (vpmm_router_is_device(device))
        vpmm_atomic_store(&router->devices[device].current, mempool);
}

/* ---- what the program chose ---- */

static bool is_watched(const struct vpmm_mempool *mempool)
{
    return vpmm_atomic_load(&mempool->threshold_bytes) != UINT64_MAX ||
           vpmm_atomic_load(&mempool->is_cautious);
}

/* Lock. */
static void count_watched(struct vpmm_router *router)
{
    uint32_t n = 0;
    for (int i = 0; i < VPMM_DEVICES_MAX; i++)
        n += is_watched(&router->devices[i].default_mempool);
    for (uint32_t i = VPMM_MEMPOOL_FIRST; i < vpmm_atomic_load(&router->end_mempools); i++)
        n += vpmm_atomic_load(&router->mempools[i].is_alive) &&
             is_watched(&router->mempools[i].mempool);
    vpmm_atomic_store(&router->n_watched, n);
}

uint32_t vpmm_router_mempool_gone(struct vpmm_router *router, vpmm_mempool_handle handle)
{
    vpmm_lock_take(&router->lock);
    struct made_mempool *made = find_made(router, handle);
    uint32_t number = made ? made->mempool.number : 0;
    if (made) {
        vpmm_atomic_store(&made->is_alive, 0);
        for (int i = 0; i < VPMM_DEVICES_MAX; i++)
            if (vpmm_atomic_load(&router->devices[i].current) == &made->mempool)
                vpmm_router_mempool_set(router, i, &router->devices[i].default_mempool);
        count_watched(router);
    }
    vpmm_lock_give(&router->lock);
    return number;
}

void vpmm_router_mempool_stays(struct vpmm_router *router, uint32_t number,
                               vpmm_mempool_handle handle)
{
    struct made_mempool *made = &router->mempools[number];
    vpmm_lock_take(&router->lock);
    if (number && vpmm_atomic_load(&made->handle) == handle)
        vpmm_atomic_store(&made->is_alive, 1);
    count_watched(router);
    vpmm_lock_give(&router->lock);
}

void vpmm_router_mempool_keep(struct vpmm_router *router, struct vpmm_mempool *mempool,
                              uint64_t bytes)
{
    vpmm_lock_take(&router->lock);
    vpmm_atomic_store(&mempool->threshold_bytes, bytes);
    vpmm_atomic_store(&mempool->has_threshold, 1);
    count_watched(router);
    vpmm_lock_give(&router->lock);
}

void vpmm_router_mempool_choose(struct vpmm_router *router, vpmm_atomic32 *member, bool is_set)
{
    vpmm_lock_take(&router->lock);
    vpmm_atomic_store(member, is_set);
    count_watched(router);
    vpmm_lock_give(&router->lock);
}

uint64_t vpmm_router_kept_bytes(struct vpmm_router *router, struct vpmm_heap *heap)
{
    int device = vpmm_heap_device(heap);
    uint32_t end = vpmm_atomic_load(&router->end_mempools);
    uint64_t bytes = vpmm_heap_mempool_kept_bytes(heap, &router->devices[device].default_mempool);
    for (uint32_t i = VPMM_MEMPOOL_FIRST; i < end; i++) {
        const struct made_mempool *made = &router->mempools[i];
        if (vpmm_atomic_load(&made->is_alive) && device_of(made) == device)
            bytes += vpmm_heap_mempool_kept_bytes(heap, &made->mempool);
    }
    return bytes;
}

static void synchronise(struct vpmm_heap *heap, struct vpmm_mempool *mempool)
{
    uint64_t threshold_bytes = vpmm_atomic_load(&mempool->threshold_bytes);
    if (threshold_bytes != UINT64_MAX && vpmm_atomic_load(&mempool->was_used))
        vpmm_heap_mempool_trim(heap, mempool, threshold_bytes, false);
    if (vpmm_atomic_load(&mempool->is_cautious))
        vpmm_heap_reap(heap);
}

void vpmm_router_synchronised(struct vpmm_router *router)
{
    if (!vpmm_atomic_load(&router->n_watched))
        return;
    uint32_t end = vpmm_atomic_load(&router->end_mempools);
    for (uint32_t i = VPMM_MEMPOOL_FIRST; i < end; i++) {
        struct made_mempool *made = &router->mempools[i];
        struct vpmm_heap *heap = vpmm_router_heap(router, device_of(made));
        if (heap && vpmm_atomic_load(&made->is_alive))
            synchronise(heap, &made->mempool);
    }
    uint32_t n_heaps = vpmm_atomic_load(&router->n_heaps);
    for (uint32_t i = 0; i < n_heaps; i++) {
        struct vpmm_heap *heap = vpmm_atomic_load(&router->heaps[i]);
        synchronise(heap, &router->devices[vpmm_heap_device(heap)].default_mempool);
    }
}
