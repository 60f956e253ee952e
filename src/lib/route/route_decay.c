/* SPDX-License-Identifier: MIT */
/* Decay over all heaps of the process: when it becomes worth a thread, and one step of it. Must not
 * record an event while anything captures. */
#include "route/router.h"

void vpmm_router_note_held(struct vpmm_router *router, const struct vpmm_heap *heap)
{
    if (vpmm_atomic_load(&router->may_decay) || !vpmm_heap_may_decay(heap) ||
        vpmm_atomic_exchange(&router->may_decay, 1))
        return;
    if (router->first_heap.call_large)
        router->first_heap.call_large(router->first_heap.self);
}

/* A capture under way is left alone: unmapping ends none in a relaxed thread, but a record on its
 * context would. */
bool vpmm_router_decay(struct vpmm_router *router, bool is_look)
{
    const struct vpmm_driver *driver = router->driver;
    uint32_t n = vpmm_atomic_load(&router->n_heaps);
    bool has_more = false;
    int mode;
    if (driver->capture_relax(driver->self, &mode))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct vpmm_heap *heap = vpmm_atomic_load(&router->heaps[i]);
        if (is_look)
            vpmm_heap_decay_look(heap, !vpmm_order_captures(router->order));
        has_more |= vpmm_heap_decay_slice(heap, vpmm_router_kept_bytes(router, heap));
    }
    driver->capture_restore(driver->self, mode);
    return has_more;
}
