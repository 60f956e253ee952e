/* SPDX-License-Identifier: MIT */
/* Blocks by their address: whose one is, and what becomes of a free of it. Must not take a lock to
 * find a block. */
#include "route/router.h"

/* The heap whose address space holds `address`, of the first `n`, or NULL. */
static VPMM_INLINE struct vpmm_heap *heap_among(struct vpmm_router *router, uint32_t n,
                                                uint64_t address)
{
    for (uint32_t i = 0; i < n; i++) {
        struct vpmm_heap *heap = vpmm_atomic_load(&router->heaps[i]);
        if (vpmm_heap_holds(heap, address))
            return heap;
    }
    return NULL;
}

static struct vpmm_heap *heap_of(struct vpmm_router *router, uint64_t address)
{
    return heap_among(router, vpmm_atomic_load(&router->n_heaps), address);
}

/* Bare CUDA refuses such a stream, too. */
static bool is_refusal(enum vpmm_status status)
{
    return status == VPMM_INVALID || status == VPMM_NO_CONTEXT || status == VPMM_CONTEXT_GONE ||
           status == VPMM_CAPTURED;
}

/* Of a stream about which the driver answered `status`, so that nobody knows whose work its frees
 * come after. Without memory for a record of its context the pages are lost. */
static bool free_on_unknown(struct vpmm_heap *heap, uint64_t address, enum vpmm_status status)
{
    return status == VPMM_NO_METADATA ? vpmm_heap_give_up(heap, address)
                                      : vpmm_heap_free_unknown(heap, address);
}

/* The same of a small block, or with what is known of the stream. INVALID: it is none. */
static enum vpmm_status free_part(struct vpmm_small *small, uint64_t address,
                                  const struct vpmm_stream *stream, enum vpmm_status status,
                                  enum vpmm_status *status_out)
{
    if (!status)
        return vpmm_small_free(small, address, stream, status_out);
    if (!vpmm_small_holds(small, address))
        return VPMM_INVALID;
    bool is_freed = status == VPMM_NO_METADATA ? vpmm_small_give_up(small, address)
                                               : vpmm_small_free_unknown(small, address);
    return is_freed ? VPMM_OK : VPMM_NOT_FOUND;
}

static enum vpmm_free_answer free_into_pool(struct vpmm_router *router, struct vpmm_heap *heap,
                                            uint64_t address, vpmm_stream_handle handle,
                                            bool may_doubt, enum vpmm_status *status_out)
{
    struct vpmm_stream stream;
    enum vpmm_status waited = VPMM_OK;
    enum vpmm_status status = handle ? vpmm_order_stream(router->order, handle, &stream) : VPMM_OK;
    if (is_refusal(status) || (handle && !status && stream.is_capturing))
        return VPMM_FREE_NOT_OURS;
    if (status && status != VPMM_NO_METADATA && may_doubt)
        return VPMM_FREE_IN_DOUBT;
    struct vpmm_small *small = router->devices[vpmm_heap_device(heap)].small;
    if (small) {
        enum vpmm_status freed =
            free_part(small, address, handle ? &stream : NULL, status, status_out);
        if (freed != VPMM_INVALID)
            return freed ? VPMM_FREE_NOT_OURS : VPMM_FREED;
    }
    if (status ? !free_on_unknown(heap, address, status)
               : vpmm_heap_free(heap, address, handle ? &stream : NULL, &waited) != VPMM_OK)
        return VPMM_FREE_NOT_OURS;
    *status_out = waited;
    return VPMM_FREED;
}

/* A thread that is cancelled in here would leave counts that others wait for. */
VPMM_NOINLINE static enum vpmm_free_answer free_slowly(struct vpmm_router *router,
                                                       struct vpmm_heap *heap, uint64_t address,
                                                       vpmm_stream_handle handle, bool may_doubt,
                                                       enum vpmm_status *status_out)
{
    bool could_be_cancelled = vpmm_cancel_hold();
    enum vpmm_free_answer answer =
        free_into_pool(router, heap, address, handle, may_doubt, status_out);
    vpmm_cancel_restore(could_be_cancelled);
    return answer;
}

/* Of whole pages. `stream` NULL where none is known. */
static VPMM_INLINE enum vpmm_free_answer free_pages(struct vpmm_router *router,
                                                    struct vpmm_heap *heap, uint64_t address,
                                                    vpmm_stream_handle handle,
                                                    const struct vpmm_stream *stream,
                                                    enum vpmm_status *status_out)
{
    if (stream && vpmm_heap_free_cached(heap, address, stream, status_out))
        return VPMM_FREED;
    return free_slowly(router, heap, address, handle, true, status_out);
}

/* A block of that layer, the `i`th, which could not free it at once. */
VPMM_NOINLINE static enum vpmm_free_answer free_part_slowly(struct vpmm_router *router, uint32_t i,
                                                            uint64_t address,
                                                            vpmm_stream_handle handle,
                                                            const struct vpmm_stream *stream,
                                                            enum vpmm_status *status_out)
{
    if (!stream)
        return free_slowly(router, vpmm_atomic_load(&router->heaps[i]), address, handle, true,
                           status_out);
    enum vpmm_status status = vpmm_small_free(router->smalls[i], address, stream, status_out);
    return status ? VPMM_FREE_NOT_OURS : VPMM_FREED;
}

/* Where small blocks are served. A slab knows its addresses, so the heap is looked for last. */
VPMM_NOINLINE static enum vpmm_free_answer free_beside_parts(struct vpmm_router *router,
                                                             uint64_t address,
                                                             vpmm_stream_handle handle,
                                                             enum vpmm_status *status_out)
{
    uint32_t n = vpmm_atomic_load(&router->n_heaps);
    const struct vpmm_stream *stream = handle ? vpmm_order_recall(router->order, handle) : NULL;
    for (uint32_t i = 0; i < n && (stream || !handle); i++) {
        struct vpmm_small *small = router->smalls[i];
        enum vpmm_status status =
            small ? vpmm_small_free_warm(small, address, stream) : VPMM_INVALID;
        if (status != VPMM_INVALID)
            return status ? free_part_slowly(router, i, address, handle, stream, status_out)
                          : VPMM_FREED;
    }
    struct vpmm_heap *heap = heap_among(router, n, address);
    return heap ? free_pages(router, heap, address, handle, stream, status_out)
                : VPMM_FREE_NOT_OURS;
}

enum vpmm_free_answer vpmm_router_free(struct vpmm_router *router, uint64_t address,
                                       vpmm_stream_handle handle, enum vpmm_status *status_out)
{
    uint32_t n = vpmm_atomic_load(&router->n_plain_heaps);
    struct vpmm_heap *heap = heap_among(router, n, address);
    if (!heap)
        return n ? VPMM_FREE_NOT_OURS : free_beside_parts(router, address, handle, status_out);
    const struct vpmm_stream *stream = handle ? vpmm_order_recall(router->order, handle) : NULL;
    return free_pages(router, heap, address, handle, stream, status_out);
}

enum vpmm_free_answer vpmm_router_free_anyhow(struct vpmm_router *router, uint64_t address,
                                              vpmm_stream_handle handle,
                                              enum vpmm_status *status_out)
{
    struct vpmm_heap *heap = heap_of(router, address);
    return heap ? free_slowly(router, heap, address, handle, false, status_out)
                : VPMM_FREE_NOT_OURS;
}

bool vpmm_router_find(struct vpmm_router *router, uint64_t address,
                      struct vpmm_region_view *view_out, int *device_out)
{
    struct vpmm_region_view view;
    struct vpmm_heap *heap = heap_of(router, address);
    const struct vpmm_small *small = heap ? vpmm_router_small_of(router, address) : NULL;
    bool is_part = small && vpmm_small_find(small, address, &view);
    if (!heap || (!is_part && vpmm_heap_find(heap, address, &view) != VPMM_OK))
        return false;
    *view_out = view;
    *device_out = vpmm_heap_device(heap);
    return true;
}

uint64_t vpmm_router_live_bytes(struct vpmm_router *router, uint64_t address, int *device_out)
{
    struct vpmm_heap *heap = heap_of(router, address);
    const struct vpmm_small *small = heap ? vpmm_router_small_of(router, address) : NULL;
    struct vpmm_region_view view;
    *device_out = heap ? vpmm_heap_device(heap) : -1;
    if (small && vpmm_small_find(small, address, &view))
        return view.state == VPMM_REGION_LIVE && view.address == address ? view.owner.bytes : 0;
    return heap ? vpmm_heap_live_bytes(heap, address) : 0;
}
