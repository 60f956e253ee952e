/* SPDX-License-Identifier: MIT */
/* The wrappers around the birth and death of contexts: the originals do the work, the router hears
 * of it before and after. The thread counts as inside us only while we tell it, never during the
 * original call. */
#include "preload/entry.h"
#include "preload/original.h"
#include "preload/relief.h"

/* A context takes memory of its device, whatever device is current. */
#define TRY_ON(device, result, call)                                                               \
    do {                                                                                           \
        struct vpmm_relief relief = {.may_poll = true};                                            \
        VPMM_TRY_RELIEVED(result, vpmm_relieve_device(device, &relief), call);                     \
    } while (0)

static CUresult made(CUdevice device, CUresult result)
{
    struct vpmm_router *router = result == CUDA_SUCCESS ? vpmm_enter() : NULL;
    if (!router)
        return result;
    vpmm_router_context_made(router, device);
    vpmm_leave();
    return result;
}

CUresult vpmm_wrap_cuCtxCreate(CUcontext *context_out, unsigned flags, CUdevice device)
{
    CUresult result;
    TRY_ON(device, result, VPMM_ORIGINAL(cuCtxCreate, context_out, flags, device));
    return made(device, result);
}

CUresult vpmm_wrap_cuCtxCreate_v2(CUcontext *context_out, unsigned flags, CUdevice device)
{
    CUresult result;
    TRY_ON(device, result, VPMM_ORIGINAL(cuCtxCreate_v2, context_out, flags, device));
    return made(device, result);
}

CUresult vpmm_wrap_cuCtxCreate_v3(CUcontext *context_out, void *affinities, int n, unsigned flags,
                                  CUdevice device)
{
    CUresult result;
    TRY_ON(device, result,
           VPMM_ORIGINAL(cuCtxCreate_v3, context_out, affinities, n, flags, device));
    return made(device, result);
}

CUresult vpmm_wrap_cuCtxCreate_v4(CUcontext *context_out, void *params, unsigned flags,
                                  CUdevice device)
{
    CUresult result;
    TRY_ON(device, result, VPMM_ORIGINAL(cuCtxCreate_v4, context_out, params, flags, device));
    return made(device, result);
}

CUresult vpmm_wrap_cuDevicePrimaryCtxRetain(CUcontext *context_out, CUdevice device)
{
    CUresult result;
    TRY_ON(device, result, VPMM_ORIGINAL(cuDevicePrimaryCtxRetain, context_out, device));
    (void)made(device, result);
    if (result == CUDA_SUCCESS && context_out)
        vpmm_entry_set_primary(device, *context_out);
    return result;
}

/* ---- death ---- */

static void leaves(CUcontext context)
{
    struct vpmm_router *router = context ? vpmm_enter() : NULL;
    if (!router)
        return;
    vpmm_router_context_leaving(router, vpmm_context_of(context));
    vpmm_leave();
}

static CUresult left(CUcontext context, bool destroyed, CUresult result)
{
    struct vpmm_router *router = context ? vpmm_enter() : NULL;
    if (!router)
        return result;
    struct vpmm_ipc *ipc = vpmm_entry_ipc();
    vpmm_router_context_left(router, vpmm_context_of(context), destroyed);
    if (ipc && destroyed)
        vpmm_ipc_context_gone(ipc, vpmm_context_of(context));
    vpmm_leave();
    return result;
}

CUresult vpmm_wrap_cuCtxDestroy(CUcontext context)
{
    leaves(context);
    CUresult result = VPMM_ORIGINAL(cuCtxDestroy, context);
    return left(context, result == CUDA_SUCCESS, result);
}

CUresult vpmm_wrap_cuCtxDestroy_v2(CUcontext context)
{
    leaves(context);
    CUresult result = VPMM_ORIGINAL(cuCtxDestroy_v2, context);
    return left(context, result == CUDA_SUCCESS, result);
}

CUresult vpmm_wrap_cuDevicePrimaryCtxReset(CUdevice device)
{
    CUcontext primary = vpmm_entry_primary(device);
    leaves(primary);
    CUresult result = VPMM_ORIGINAL(cuDevicePrimaryCtxReset, device);
    return left(primary, result == CUDA_SUCCESS, result);
}

CUresult vpmm_wrap_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CUcontext primary = vpmm_entry_primary(device);
    leaves(primary);
    CUresult result = VPMM_ORIGINAL(cuDevicePrimaryCtxReset_v2, device);
    return left(primary, result == CUDA_SUCCESS, result);
}

/* A reference to the primary context was given up: whether it was the last one, the driver knows.
 */
static CUresult released(CUdevice device, CUcontext primary, CUresult result)
{
    unsigned flags;
    int is_active = 1;
    bool destroyed =
        result == CUDA_SUCCESS && primary &&
        VPMM_ORIGINAL(cuDevicePrimaryCtxGetState, device, &flags, &is_active) == CUDA_SUCCESS &&
        !is_active;
    return left(primary, destroyed, result);
}

CUresult vpmm_wrap_cuDevicePrimaryCtxRelease(CUdevice device)
{
    CUcontext primary = vpmm_entry_primary(device);
    leaves(primary);
    return released(device, primary, VPMM_ORIGINAL(cuDevicePrimaryCtxRelease, device));
}

CUresult vpmm_wrap_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUcontext primary = vpmm_entry_primary(device);
    leaves(primary);
    return released(device, primary, VPMM_ORIGINAL(cuDevicePrimaryCtxRelease_v2, device));
}

/* The device of `context`, or -1. Not asked of src/order, which would remember a green context as
 * one of its own kind. */
static int device_of(CUcontext context)
{
    CUdevice device = -1;
    CUcontext popped;
    if (VPMM_ORIGINAL(cuCtxPushCurrent_v2, context) != CUDA_SUCCESS)
        return -1;
    if (VPMM_ORIGINAL(cuCtxGetDevice, &device) != CUDA_SUCCESS)
        device = -1;
    (void)VPMM_ORIGINAL(cuCtxPopCurrent_v2, &popped);
    return device;
}

/* A green context owns no memory; its death gives up a reference to the primary context it was cut
 * from. */
CUresult vpmm_wrap_cuGreenCtxDestroy(void *green)
{
    CUcontext context;
    int device = -1;
    if (green && VPMM_ORIGINAL(cuCtxFromGreenCtx, &context, green) == CUDA_SUCCESS)
        device = device_of(context);
    CUcontext primary = vpmm_entry_primary(device);
    leaves(primary);
    return released(device, primary, VPMM_ORIGINAL(cuGreenCtxDestroy, green));
}

/* ---- peers ---- */

/* Whoever names a peer has a context there, whatever way it came to be. Access is given to all such
 * devices at once and is never taken back: a program cannot tell until it does what bare CUDA would
 * fault on. */
static CUresult peer_named(CUcontext peer, CUresult result)
{
    int device = result == CUDA_SUCCESS ? device_of(peer) : -1;
    return device >= 0 ? made(device, result) : result;
}

CUresult vpmm_wrap_cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    return peer_named(peer, VPMM_ORIGINAL(cuCtxEnablePeerAccess, peer, flags));
}

CUresult vpmm_wrap_cuCtxDisablePeerAccess(CUcontext peer)
{
    return peer_named(peer, VPMM_ORIGINAL(cuCtxDisablePeerAccess, peer));
}
