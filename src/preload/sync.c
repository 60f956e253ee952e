/* SPDX-License-Identifier: MIT */
/* The wrappers of calls with which a program waits for work: at these points CUDA's memory pools
 * give back what they hold beyond a threshold that the program set. */
#include "preload/entry.h"
#include "preload/original.h"

static CUresult synchronised(CUresult result)
{
    struct vpmm_router *router = result == CUDA_SUCCESS ? vpmm_enter() : NULL;
    if (!router)
        return result;
    vpmm_router_synchronised(router);
    vpmm_leave();
    return result;
}

CUresult vpmm_wrap_cuCtxSynchronize(void)
{
    vpmm_code *original = vpmm_original_at(VPMM_API_cuCtxSynchronize);
    return original ? synchronised(((cuCtxSynchronize_fn *)original)())
                    : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult vpmm_wrap_cuCtxSynchronize_v2(CUcontext context)
{
    return synchronised(VPMM_ORIGINAL(cuCtxSynchronize_v2, context));
}

CUresult vpmm_wrap_cuStreamSynchronize(CUstream stream)
{
    return synchronised(VPMM_ORIGINAL(cuStreamSynchronize, stream));
}

CUresult vpmm_wrap_cuStreamSynchronize_ptsz(CUstream stream)
{
    return synchronised(VPMM_ORIGINAL(cuStreamSynchronize_ptsz, stream));
}

CUresult vpmm_wrap_cuEventSynchronize(CUevent event)
{
    return synchronised(VPMM_ORIGINAL(cuEventSynchronize, event));
}
