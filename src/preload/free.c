/* SPDX-License-Identifier: MIT */
/* The wrappers that free. What is not a live block of ours is the original's to answer, with the
 * code that the program expects: for an address of ours that is no block (any more) the driver
 * refuses harmlessly. */
#include "preload/entry.h"
#include "preload/original.h"
#include "preload/stream.h"

/* Of the driver's refusals, those that depend on a capture come before any look at the address. */
static bool is_refused(struct vpmm_router *router, CUdeviceptr address, vpmm_stream_handle stream)
{
    struct vpmm_region_view view;
    int device;
    return vpmm_router_find(router, address, &view, &device) &&
           vpmm_capture_refuses(router, stream);
}

/* True when the block at `address` was ours and is free now. */
static bool serve(CUdeviceptr address, vpmm_stream_handle stream, CUresult *result_out)
{
    if (address == 0)
        return false;
    struct vpmm_router *router = vpmm_enter();
    if (!router)
        return false;
    enum vpmm_status status = VPMM_OK;
    bool is_served = !is_refused(router, address, stream) &&
                     vpmm_router_free(router, address, stream, &status) == VPMM_FREED;
    if (is_served)
        /* The wait that the program asked for met a device error: CUDA has its own code for it. */
        *result_out = status == VPMM_BROKEN ? VPMM_ORIGINAL(cuCtxSynchronize, ) : CUDA_SUCCESS;
    vpmm_leave();
    return is_served;
}

CUresult vpmm_wrap_cuMemFree_v2(CUdeviceptr address)
{
    CUresult result;
    if (serve(address, NULL, &result))
        return result;
    return VPMM_ORIGINAL(cuMemFree_v2, address);
}

CUresult vpmm_wrap_cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    CUresult result;
    if (serve(address, vpmm_stream_of(stream, VPMM_STREAM_LEGACY), &result))
        return result;
    return VPMM_ORIGINAL(cuMemFreeAsync, address, stream);
}

CUresult vpmm_wrap_cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream)
{
    CUresult result;
    if (serve(address, vpmm_stream_of(stream, VPMM_STREAM_PER_THREAD), &result))
        return result;
    return VPMM_ORIGINAL(cuMemFreeAsync_ptsz, address, stream);
}
