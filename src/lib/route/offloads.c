/* SPDX-License-Identifier: MIT */
/* Weights larger than their budget, beside the pools: what they hold counts against the limit of
 * their device. Must not let an object take what the limit has no room for. */
#include "route/router.h"

const struct vpmm_driver *vpmm_router_driver(const struct vpmm_router *router)
{
    return router->driver;
}

static struct vpmm_heap *heap_for_limit(struct vpmm_router *router, int device)
{
    struct vpmm_heap *heap = NULL;
    if (vpmm_router_learn(router, device) || vpmm_router_require_heap(router, device, &heap))
        return NULL;
    return heap;
}

static bool take(void *self, int device, uint64_t bytes)
{
    struct vpmm_router *router = self;
    uint64_t given_back;
    if (!router->config->limit.value)
        return true;
    struct vpmm_heap *heap = heap_for_limit(router, device);
    if (!heap)
        return false;
    if (vpmm_heap_set_aside(heap, bytes))
        return true;
    uint64_t held = vpmm_heap_held_bytes(heap);
    return vpmm_router_trim(router, heap, held > bytes ? held - bytes : 0, &given_back) &&
           vpmm_heap_set_aside(heap, bytes);
}

static void give(void *self, int device, uint64_t bytes)
{
    struct vpmm_router *router = self;
    struct vpmm_heap *heap = vpmm_router_heap(router, device);
    if (heap)
        vpmm_heap_set_back(heap, bytes);
}

static bool relieve(void *self, int device, uint64_t bytes)
{
    struct vpmm_router *router = self;
    struct vpmm_heap *heap = vpmm_router_heap(router, device);
    uint64_t held = heap ? vpmm_heap_held_bytes(heap) : 0;
    uint64_t given_back = 0;
    return heap && vpmm_router_trim(router, heap, held > bytes ? held - bytes : 0, &given_back) &&
           given_back > 0;
}

static enum vpmm_status drain(void *self, vpmm_context_handle handle)
{
    struct vpmm_router *router = self;
    struct vpmm_context *context;
    enum vpmm_status status = vpmm_order_context(router->order, handle, &context);
    if (!status)
        status = vpmm_order_drain_context(router->order, context);
    return status == VPMM_NOT_READY ? VPMM_CAPTURED : status;
}

/* A place with figures of 0, or VPMM_OFFLOADS_MAX. */
static uint32_t find_place(struct vpmm_router *router, int device)
{
    uint32_t i = 0;
    for (uint32_t nobody = 0; i < VPMM_OFFLOADS_MAX; i++, nobody = 0)
        if (vpmm_atomic_swap_if(&router->offloads[i].is_taken, &nobody, 1))
            break;
    if (i == VPMM_OFFLOADS_MAX)
        return i;
    struct vpmm_offload_figures *figures = &router->offloads[i].figures;
    vpmm_atomic_store(&router->offloads[i].is_shown, 0);
#define CLEAR(name) vpmm_atomic_store(&figures->name, 0);
    VPMM_OFFLOAD_FIGURES(CLEAR)
#undef CLEAR
    vpmm_atomic_store(&router->offloads[i].device, (uint32_t)device);
    return i;
}

enum vpmm_status vpmm_router_offload_create(struct vpmm_router *router,
                                            struct vpmm_offload_params *params,
                                            struct vpmm_offload **offload_out)
{
    uint32_t place = find_place(router, params->device);
    if (place == VPMM_OFFLOADS_MAX)
        return VPMM_NOT_SUPPORTED;
    struct offload_place *at = &router->offloads[place];
    params->ledger = (struct vpmm_offload_ledger){router, take, give, relieve, drain};
    params->watch = router->watch;
    params->figures = &at->figures;
    enum vpmm_status status =
        vpmm_offload_create(params, router->driver, &vpmm_memory_system, offload_out);
    vpmm_atomic_store(&at->is_shown, status == VPMM_OK);
    vpmm_atomic_store(&at->offload, status ? NULL : *offload_out);
    if (status)
        vpmm_atomic_store(&at->is_taken, 0);
    return status;
}

enum vpmm_status vpmm_router_offload_destroy(struct vpmm_router *router,
                                             struct vpmm_offload *offload)
{
    struct offload_place *at = router->offloads;
    while (vpmm_atomic_load(&at->offload) != offload)
        at++;
    vpmm_atomic_store(&at->offload, NULL);
    /* An addition, so that whoever counts itself later finds no object. */
    while (vpmm_atomic_add(&at->n_askers, 0))
        vpmm_offload_pause();
    enum vpmm_status status = vpmm_offload_destroy(offload);
    if (status)
        vpmm_atomic_store(&at->offload, offload);
    else
        vpmm_atomic_store(&at->is_taken, 0);
    return status;
}

bool vpmm_router_offload_yield(struct vpmm_router *router, int device, uint64_t bytes)
{
    uint64_t given = 0;
    for (uint32_t i = 0; i < VPMM_OFFLOADS_MAX && given < bytes; i++) {
        struct offload_place *at = &router->offloads[i];
        if (!vpmm_atomic_load(&at->offload) || (int)vpmm_atomic_load(&at->device) != device)
            continue;
        vpmm_atomic_add(&at->n_askers, 1);
        struct vpmm_offload *offload = vpmm_atomic_load(&at->offload);
        if (offload)
            given += vpmm_offload_yield(offload, bytes - given);
        vpmm_atomic_sub(&at->n_askers, 1);
    }
    return given > 0;
}

bool vpmm_router_ask_weights_first(void *self, int device, uint64_t bytes)
{
    struct vpmm_router *router = self;
    const struct vpmm_neighbours *others = router->neighbours;
    return vpmm_router_offload_yield(router, device, bytes) ||
           (others && others->ask(others->self, device, bytes));
}

bool vpmm_router_offload_stats(const struct vpmm_router *router, uint32_t place, int *device_out,
                               struct vpmm_offload_stats *stats_out)
{
    const struct offload_place *at = &router->offloads[place];
    if (place >= VPMM_OFFLOADS_MAX || !vpmm_atomic_load(&at->is_shown))
        return false;
    *device_out = (int)vpmm_atomic_load(&at->device);
    vpmm_offload_stats(&at->figures, stats_out);
    return true;
}

bool vpmm_router_offload_is_alive(const struct vpmm_router *router, uint32_t place)
{
    return place < VPMM_OFFLOADS_MAX && vpmm_atomic_load(&router->offloads[place].is_taken);
}

uint64_t vpmm_router_offload_bytes(const struct vpmm_router *router, int device)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < VPMM_OFFLOADS_MAX; i++) {
        const struct offload_place *at = &router->offloads[i];
        if (vpmm_atomic_load(&at->is_shown) && (int)vpmm_atomic_load(&at->device) == device)
            sum += vpmm_atomic_load(&at->figures.held_bytes);
    }
    return sum;
}
