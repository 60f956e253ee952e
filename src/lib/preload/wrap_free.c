/* SPDX-License-Identifier: MIT */
/* The wrappers that free. What is not a live block of ours is the original's to answer, with the
 * code that the program expects: for an address of ours that is no block (any more) the driver
 * refuses harmlessly. Must not refuse such a free itself. */
#include "preload/entry.h"
#include "preload/original.h"
#include "preload/wrap_stream.h"

/* What the original answers to such a call, whatever the block: it is asked about no allocation, so
 * CUDA_SUCCESS stands for a refusal of the address alone. */
static CUresult ask_original(vpmm_stream_handle stream)
{
    CUresult result =
        stream ? VPMM_ORIGINAL(cuMemFreeAsync, VPMM_NO_ALLOCATION, (CUstream)(void *)stream)
               : VPMM_ORIGINAL(cuMemFree_v2, VPMM_NO_ALLOCATION);
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
}

VPMM_NOINLINE static bool is_live(struct vpmm_router *router, CUdeviceptr address)
{
    struct vpmm_region_view view;
    int device;
    return vpmm_router_find(router, address, &view, &device) && view.state == VPMM_REGION_LIVE;
}

/* A device that is broken, or a driver that is gone, has its own code, and so may have whatever the
 * library does not know: the original tells it. */
VPMM_NOINLINE static bool release_asking(struct vpmm_router *router, CUdeviceptr address,
                                         vpmm_stream_handle stream, enum vpmm_free_answer answer,
                                         enum vpmm_status status, CUresult *result_out)
{
    if (answer == VPMM_FREE_IN_DOUBT) {
        *result_out = ask_original(stream);
        if (*result_out != CUDA_SUCCESS)
            return true;
        answer = vpmm_router_free_anyhow(router, address, stream, &status);
    }
    if (answer == VPMM_FREED && (status == VPMM_BROKEN || status == VPMM_SHUT_DOWN))
        *result_out = ask_original(stream);
    return answer == VPMM_FREED;
}

/* Of the driver's refusals, those that depend on a capture come before any look at the address. */
static VPMM_INLINE bool release(struct vpmm_router *router, CUdeviceptr address,
                                vpmm_stream_handle stream, CUresult *result_out)
{
    enum vpmm_status status = VPMM_OK;
    *result_out = CUDA_SUCCESS;
    if (vpmm_order_captures(vpmm_router_order(router))) {
        if (!is_live(router, address))
            return false;
        *result_out = vpmm_capture_refusal(router, stream);
        if (*result_out != CUDA_SUCCESS)
            return true;
    }
    enum vpmm_free_answer answer = vpmm_router_free(router, address, stream, &status);
    return (answer == VPMM_FREED && !status) ||
           release_asking(router, address, stream, answer, status, result_out);
}

/* True when `*result_out` is the program's answer; false when the original has to give it. `call`
 * NULL: it is not recorded. */
static bool serve(struct vpmm_call *call, CUdeviceptr address, vpmm_stream_handle stream,
                  CUresult *result_out)
{
    struct vpmm_router *router = address ? vpmm_enter_served() : NULL;
    bool is_served = false;
    if (router) {
        is_served = release(router, address, stream, result_out);
        vpmm_leave();
    }
    vpmm_call_route(call, is_served ? VPMM_ROUTE_POOL : VPMM_ROUTE_OTHER, stream);
    return is_served;
}

static VPMM_INLINE CUresult release_sync(struct vpmm_call *call, CUdeviceptr address)
{
    CUresult result;
    if (serve(call, address, NULL, &result))
        return result;
    return VPMM_ORIGINAL(cuMemFree_v2, address);
}

static VPMM_INLINE CUresult release_async(struct vpmm_call *call, enum vpmm_api api,
                                          vpmm_stream_handle null_stream, CUdeviceptr address,
                                          CUstream stream)
{
    CUresult result;
    if (serve(call, address, vpmm_stream_of(stream, null_stream), &result))
        return result;
    return VPMM_ORIGINAL_AT(api, cuMemFreeAsync_fn, address, stream);
}

/* The wrapper `name`: `body`, which is given `call`, is recorded where there is a trace. */
#define FREES(name, parameters, body, ...)                                                         \
    VPMM_NOINLINE static CUresult name##_recorded parameters                                       \
    {                                                                                              \
        struct vpmm_call begun, *call = vpmm_call_begin_free(&begun, address) ? &begun : NULL;     \
        CUresult result = body;                                                                    \
        return call ? vpmm_call_end_free(call, address, result) : result;                          \
    }                                                                                              \
    CUresult vpmm_wrap_##name parameters                                                           \
    {                                                                                              \
        struct vpmm_call *const call = NULL;                                                       \
        return vpmm_is_recorded() ? name##_recorded(__VA_ARGS__) : body;                           \
    }

FREES(cuMemFree_v2, (CUdeviceptr address), release_sync(call, address), address)
FREES(cuMemFreeAsync, (CUdeviceptr address, CUstream stream),
      release_async(call, VPMM_API_cuMemFreeAsync, VPMM_STREAM_LEGACY, address, stream), address,
      stream)
FREES(cuMemFreeAsync_ptsz, (CUdeviceptr address, CUstream stream),
      release_async(call, VPMM_API_cuMemFreeAsync_ptsz, VPMM_STREAM_PER_THREAD, address, stream),
      address, stream)
