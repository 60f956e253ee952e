/* SPDX-License-Identifier: MIT */
/* The wrappers around the birth and death of contexts: the originals do the work, the router hears
 * of it before and after. The thread must not count as inside us during the original call, but only
 * while we tell the router. */
#include "preload/cancel.h"
#include "preload/entry.h"
#include "preload/original.h"
#include "preload/relief.h"

/* A context takes memory of its device, whatever device is current. */
#define TRY_ON(device, result, call)                                                               \
    do {                                                                                           \
        struct vpmm_relief relief = {.may_poll = true};                                            \
        VPMM_TRY_RELIEVED(result, vpmm_relieve_device(device, &relief), call);                     \
    } while (0)

static void made(CUdevice device)
{
    struct vpmm_router *router = vpmm_enter();
    if (!router)
        return;
    vpmm_router_context_made(router, device);
    vpmm_leave();
}

/* A new context may have the handle of one whose end nobody saw. */
static CUresult created(CUdevice device, const CUcontext *context_out, CUresult result)
{
    struct vpmm_router *router = result == CUDA_SUCCESS && context_out ? vpmm_enter() : NULL;
    if (!router)
        return result;
    vpmm_router_context_handed_out(router, vpmm_context_of(*context_out), true);
    vpmm_leave();
    made(device);
    return result;
}

CUresult vpmm_wrap_cuCtxCreate(CUcontext *context_out, unsigned flags, CUdevice device)
{
    CUresult result;
    TRY_ON(device, result, VPMM_ORIGINAL(cuCtxCreate, context_out, flags, device));
    return created(device, context_out, result);
}

CUresult vpmm_wrap_cuCtxCreate_v2(CUcontext *context_out, unsigned flags, CUdevice device)
{
    CUresult result;
    TRY_ON(device, result, VPMM_ORIGINAL(cuCtxCreate_v2, context_out, flags, device));
    return created(device, context_out, result);
}

CUresult vpmm_wrap_cuCtxCreate_v3(CUcontext *context_out, void *affinities, int n, unsigned flags,
                                  CUdevice device)
{
    CUresult result;
    TRY_ON(device, result,
           VPMM_ORIGINAL(cuCtxCreate_v3, context_out, affinities, n, flags, device));
    return created(device, context_out, result);
}

CUresult vpmm_wrap_cuCtxCreate_v4(CUcontext *context_out, void *params, unsigned flags,
                                  CUdevice device)
{
    CUresult result;
    TRY_ON(device, result, VPMM_ORIGINAL(cuCtxCreate_v4, context_out, params, flags, device));
    return created(device, context_out, result);
}

/* The program holds a reference to the primary context. It may have died since it was last heard
 * of, and come to life again. */
static void retained(CUdevice device, CUcontext primary)
{
    struct vpmm_router *router = vpmm_enter();
    if (!router)
        return;
    vpmm_router_context_handed_out(router, vpmm_context_of(primary), false);
    vpmm_leave();
    made(device);
    vpmm_entry_set_primary(device, primary);
}

CUresult vpmm_wrap_cuDevicePrimaryCtxRetain(CUcontext *context_out, CUdevice device)
{
    CUresult result;
    TRY_ON(device, result, VPMM_ORIGINAL(cuDevicePrimaryCtxRetain, context_out, device));
    if (result == CUDA_SUCCESS && context_out)
        retained(device, *context_out);
    return result;
}

/* ---- death ---- */

static struct vpmm_departure leaves(CUcontext context, bool is_ending)
{
    struct vpmm_router *router = context ? vpmm_enter() : NULL;
    if (!router)
        return (struct vpmm_departure){NULL, false};
    struct vpmm_departure departure =
        vpmm_router_context_leaving(router, vpmm_context_of(context), is_ending);
    vpmm_leave();
    return departure;
}

/* `destroyed`: the context surely is; otherwise the driver is asked. */
static void left(const struct vpmm_departure *departure, bool destroyed)
{
    struct vpmm_router *router = departure->context ? vpmm_enter() : NULL;
    if (!router)
        return;
    struct vpmm_ipc *ipc = vpmm_entry_ipc();
    if (vpmm_router_context_left(router, departure, destroyed) && ipc)
        vpmm_ipc_context_gone(ipc, vpmm_context_id(departure->context));
    vpmm_leave();
}

/* Of a thread that ends in the call: others wait for what becomes of the context. */
static void stays(void *departure)
{
    left(departure, false);
}

/* A call that waits for all work of the context that it destroys. */
#define DEPART(departure, result, call) VPMM_UNDO_IF_CANCELLED(stays, departure, (result) = (call);)

static bool is_primary(CUcontext context)
{
    for (int device = 0; device < VPMM_DEVICES_MAX; device++)
        if (vpmm_entry_primary(device) == context)
            return true;
    return false;
}

/* The driver refuses to destroy a primary context. */
CUresult vpmm_wrap_cuCtxDestroy(CUcontext context)
{
    struct vpmm_departure departure = leaves(context, !is_primary(context));
    CUresult result;
    DEPART(&departure, result, VPMM_ORIGINAL(cuCtxDestroy, context));
    left(&departure, result == CUDA_SUCCESS);
    return result;
}

CUresult vpmm_wrap_cuCtxDestroy_v2(CUcontext context)
{
    struct vpmm_departure departure = leaves(context, !is_primary(context));
    CUresult result;
    DEPART(&departure, result, VPMM_ORIGINAL(cuCtxDestroy_v2, context));
    left(&departure, result == CUDA_SUCCESS);
    return result;
}

/* The last cuCtxDetach leaves another context current, or none (measured). */
static bool is_not_current(CUcontext context)
{
    CUcontext current = context;
    return VPMM_ORIGINAL(cuCtxGetCurrent, &current) == CUDA_SUCCESS && current != context;
}

/* Gives up what cuCtxCreate or cuCtxAttach gave, and destroys the context with the last of it. */
CUresult vpmm_wrap_cuCtxDetach(CUcontext context)
{
    struct vpmm_departure departure = leaves(context, false);
    CUresult result;
    DEPART(&departure, result, VPMM_ORIGINAL(cuCtxDetach, context));
    left(&departure, result == CUDA_SUCCESS && is_not_current(context));
    return result;
}

/* ---- the primary context ---- */

static bool is_active(CUdevice device)
{
    unsigned flags;
    int active = 1;
    CUresult result = VPMM_ORIGINAL(cuDevicePrimaryCtxGetState, device, &flags, &active);
    return result != CUDA_SUCCESS || active;
}

CUresult vpmm_wrap_cuDevicePrimaryCtxReset(CUdevice device)
{
    struct vpmm_departure departure = leaves(vpmm_entry_primary(device), true);
    CUresult result;
    DEPART(&departure, result, VPMM_ORIGINAL(cuDevicePrimaryCtxReset, device));
    left(&departure, result == CUDA_SUCCESS);
    return result;
}

CUresult vpmm_wrap_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    struct vpmm_departure departure = leaves(vpmm_entry_primary(device), true);
    CUresult result;
    DEPART(&departure, result, VPMM_ORIGINAL(cuDevicePrimaryCtxReset_v2, device));
    left(&departure, result == CUDA_SUCCESS);
    return result;
}

/* Around a call that gives up a reference to the primary context of `device`. Where that is active
 * afterwards, another thread may have brought it to life again: so its id is asked too. */
static struct vpmm_departure reference_leaves(CUdevice device)
{
    return leaves(vpmm_entry_primary(device), false);
}

static CUresult reference_left(CUdevice device, const struct vpmm_departure *departure,
                               CUresult result)
{
    if (departure->context)
        left(departure, result == CUDA_SUCCESS && !is_active(device));
    return result;
}

CUresult vpmm_wrap_cuDevicePrimaryCtxRelease(CUdevice device)
{
    struct vpmm_departure departure = reference_leaves(device);
    CUresult result;
    DEPART(&departure, result, VPMM_ORIGINAL(cuDevicePrimaryCtxRelease, device));
    return reference_left(device, &departure, result);
}

CUresult vpmm_wrap_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    struct vpmm_departure departure = reference_leaves(device);
    CUresult result;
    DEPART(&departure, result, VPMM_ORIGINAL(cuDevicePrimaryCtxRelease_v2, device));
    return reference_left(device, &departure, result);
}

/* The device of `context`, or -1. Not asked of src/lib/order, which would remember a green context
 * as one of its own kind. */
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

/* A green context holds a reference to the primary one. A program may never retain that itself, so
 * its handle is learnt by a reference of our own. */
static void learn_primary(CUdevice device)
{
    CUcontext primary;
    if (!vpmm_enter())
        return;
    vpmm_leave();
    if (VPMM_ORIGINAL(cuDevicePrimaryCtxRetain, &primary, device) != CUDA_SUCCESS)
        return;
    retained(device, primary);
    struct vpmm_departure departure = reference_leaves(device);
    (void)reference_left(device, &departure, VPMM_ORIGINAL(cuDevicePrimaryCtxRelease_v2, device));
}

CUresult vpmm_wrap_cuGreenCtxCreate(void **green_out, void *description, CUdevice device,
                                    unsigned flags)
{
    CUresult result;
    TRY_ON(device, result, VPMM_ORIGINAL(cuGreenCtxCreate, green_out, description, device, flags));
    if (result == CUDA_SUCCESS)
        learn_primary(device);
    return result;
}

static int device_of_green(void *green)
{
    CUcontext context;
    bool is_known = green && VPMM_ORIGINAL(cuCtxFromGreenCtx, &context, green) == CUDA_SUCCESS;
    return is_known ? device_of(context) : -1;
}

/* It owns no memory. */
CUresult vpmm_wrap_cuGreenCtxDestroy(void *green)
{
    const int device = device_of_green(green);
    struct vpmm_departure departure = reference_leaves(device);
    CUresult result;
    DEPART(&departure, result, VPMM_ORIGINAL(cuGreenCtxDestroy, green));
    return reference_left(device, &departure, result);
}

/* ---- peers ---- */

/* Whoever names a peer has a context there, whatever way it came to be. Access is given to all such
 * devices at once and is never taken back: a program cannot tell until it does what bare CUDA would
 * fault on. */
static CUresult peer_named(CUcontext peer, CUresult result)
{
    int device = result == CUDA_SUCCESS ? device_of(peer) : -1;
    if (device >= 0)
        made(device);
    return result;
}

CUresult vpmm_wrap_cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
    return peer_named(peer, VPMM_ORIGINAL(cuCtxEnablePeerAccess, peer, flags));
}

CUresult vpmm_wrap_cuCtxDisablePeerAccess(CUcontext peer)
{
    return peer_named(peer, VPMM_ORIGINAL(cuCtxDisablePeerAccess, peer));
}
