/* SPDX-License-Identifier: MIT */
/* The wrappers that free. What is not a live block of ours is the original's to answer, with the
 * code that the program expects: for an address of ours that is no block (any more) the driver
 * refuses harmlessly. */
#include "preload/entry.h"
#include "preload/original.h"
#include "preload/stream.h"

/* Of the driver's refusals, those that depend on a capture come before any look at the address. A
 * device that is broken, or a driver that is gone, has its own code: the original tells it. */
static bool release(struct vpmm_router *router, CUdeviceptr address, vpmm_stream_handle stream,
                    CUresult *result_out)
{
    struct vpmm_region_view view;
    int device;
    enum vpmm_status status = VPMM_OK;
    *result_out = CUDA_SUCCESS;
    if (vpmm_order_has_captures(vpmm_router_order(router))) {
        if (!vpmm_router_find(router, address, &view, &device) || view.state != VPMM_REGION_LIVE)
            return false;
        *result_out = vpmm_capture_refusal(router, stream);
        if (*result_out != CUDA_SUCCESS)
            return true;
    }
    return vpmm_router_free(router, address, stream, &status) == VPMM_FREED &&
           status != VPMM_BROKEN && status != VPMM_SHUT_DOWN;
}

/* True when `*result_out` is the program's answer; false when the original has to give it. */
static bool serve(CUdeviceptr address, vpmm_stream_handle stream, CUresult *result_out)
{
    struct vpmm_router *router = address ? vpmm_enter() : NULL;
    if (!router)
        return false;
    bool is_served = release(router, address, stream, result_out);
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
