/* SPDX-License-Identifier: MIT */
/* The wrappers that allocate: unpack, ask the router, or go on to the original. Whatever the
 * original refuses for lack of memory is tried once more after the pool gave back what nobody uses.
 */
#include "preload/entry.h"
#include "preload/original.h"
#include "preload/stream.h"

/* An original call that allocates, tried again when the pool could make room for it. */
#define TRY_TWICE(result, route, call)                                                             \
    do {                                                                                           \
        (result) = (call);                                                                         \
        if ((result) == CUDA_ERROR_OUT_OF_MEMORY && (route) != VPMM_ROUTE_LARGE && relieve())      \
            (result) = (call);                                                                     \
    } while (0)

static bool relieve(void)
{
    struct vpmm_router *router = vpmm_enter();
    if (!router)
        return false;
    bool has_room = vpmm_router_relieve(router);
    vpmm_leave();
    return has_room;
}

/* Serves `request` from the pool, or says why the original must. `named` is the memory pool that
 * the call names. */
static enum vpmm_route serve(struct vpmm_route_request request, CUmemoryPool named,
                             CUdeviceptr *address_out)
{
    struct vpmm_router *router = address_out && request.bytes ? vpmm_enter() : NULL;
    if (!router)
        return VPMM_ROUTE_OTHER;
    if (named) {
        request.pool_device = vpmm_entry_device_of_pool(named);
        request.names_default_pool = request.pool_device >= 0;
        request.names_explicit_pool = !request.names_default_pool;
    }
    uint64_t address;
    request.is_refused = vpmm_capture_refuses(router, request.stream);
    enum vpmm_route route = vpmm_router_malloc(router, &request, &address);
    if (route == VPMM_ROUTE_POOL)
        *address_out = address;
    vpmm_leave();
    return route;
}

static enum vpmm_route serve_async(CUdeviceptr *address_out, size_t bytes, CUmemoryPool named,
                                   CUstream stream, vpmm_stream_handle null_stream)
{
    struct vpmm_route_request request = {
        .bytes = bytes, .is_async = true, .stream = vpmm_stream_of(stream, null_stream)};
    return serve(request, named, address_out);
}

CUresult vpmm_wrap_cuMemAlloc_v2(CUdeviceptr *address_out, size_t bytes)
{
    enum vpmm_route route = serve((struct vpmm_route_request){.bytes = bytes}, NULL, address_out);
    if (route == VPMM_ROUTE_POOL)
        return CUDA_SUCCESS;
    CUresult result;
    TRY_TWICE(result, route, VPMM_ORIGINAL(cuMemAlloc_v2, address_out, bytes));
    return result;
}

CUresult vpmm_wrap_cuMemAllocPitch_v2(CUdeviceptr *address_out, size_t *pitch_out,
                                      size_t width_bytes, size_t height, unsigned element_bytes)
{
    CUresult result;
    TRY_TWICE(result, VPMM_ROUTE_OTHER,
              VPMM_ORIGINAL(cuMemAllocPitch_v2, address_out, pitch_out, width_bytes, height,
                            element_bytes));
    return result;
}

CUresult vpmm_wrap_cuMemCreate(CUmemGenericAllocationHandle *handle_out, size_t bytes,
                               const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUresult result;
    TRY_TWICE(result, VPMM_ROUTE_OTHER,
              VPMM_ORIGINAL(cuMemCreate, handle_out, bytes, properties, flags));
    return result;
}

CUresult vpmm_wrap_cuMemAllocAsync(CUdeviceptr *address_out, size_t bytes, CUstream stream)
{
    enum vpmm_route route = serve_async(address_out, bytes, NULL, stream, VPMM_STREAM_LEGACY);
    if (route == VPMM_ROUTE_POOL)
        return CUDA_SUCCESS;
    CUresult result;
    TRY_TWICE(result, route, VPMM_ORIGINAL(cuMemAllocAsync, address_out, bytes, stream));
    return result;
}

CUresult vpmm_wrap_cuMemAllocAsync_ptsz(CUdeviceptr *address_out, size_t bytes, CUstream stream)
{
    enum vpmm_route route = serve_async(address_out, bytes, NULL, stream, VPMM_STREAM_PER_THREAD);
    if (route == VPMM_ROUTE_POOL)
        return CUDA_SUCCESS;
    CUresult result;
    TRY_TWICE(result, route, VPMM_ORIGINAL(cuMemAllocAsync_ptsz, address_out, bytes, stream));
    return result;
}

CUresult vpmm_wrap_cuMemAllocFromPoolAsync(CUdeviceptr *address_out, size_t bytes,
                                           CUmemoryPool pool, CUstream stream)
{
    enum vpmm_route route =
        pool ? serve_async(address_out, bytes, pool, stream, VPMM_STREAM_LEGACY) : VPMM_ROUTE_OTHER;
    if (route == VPMM_ROUTE_POOL)
        return CUDA_SUCCESS;
    CUresult result;
    TRY_TWICE(result, route,
              VPMM_ORIGINAL(cuMemAllocFromPoolAsync, address_out, bytes, pool, stream));
    return result;
}

CUresult vpmm_wrap_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address_out, size_t bytes,
                                                CUmemoryPool pool, CUstream stream)
{
    enum vpmm_route route =
        pool ? serve_async(address_out, bytes, pool, stream, VPMM_STREAM_PER_THREAD)
             : VPMM_ROUTE_OTHER;
    if (route == VPMM_ROUTE_POOL)
        return CUDA_SUCCESS;
    CUresult result;
    TRY_TWICE(result, route,
              VPMM_ORIGINAL(cuMemAllocFromPoolAsync_ptsz, address_out, bytes, pool, stream));
    return result;
}
