/* SPDX-License-Identifier: MIT */
/* The wrappers around the birth and death of contexts: the originals do the work, the router hears
 * of it before and after. The thread must not count as inside us during the original call, but only
 * while we tell the router. */
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

/* The program got the context. `is_new`: it may have the handle of one whose end nobody saw.
 * Otherwise it may have died since it was last heard of, and come to life again. */
static void handed_out(CUdevice device, CUcontext context, bool is_new)
{
    struct vpmm_router *router = vpmm_enter();
    if (!router)
        return;
    vpmm_router_context_handed_out(router, vpmm_context_of(context), is_new);
    vpmm_router_context_made(router, device);
    vpmm_leave();
}

#define CREATES(name, parameters, ...)                                                             \
    CUresult vpmm_wrap_##name parameters                                                           \
    {                                                                                              \
        CUresult result;                                                                           \
        TRY_ON(device, result, VPMM_ORIGINAL_AT(VPMM_API_##name, name##_fn, __VA_ARGS__));         \
        if (result == CUDA_SUCCESS && context_out)                                                 \
            handed_out(device, *context_out, true);                                                \
        return result;                                                                             \
    }

CREATES(cuCtxCreate, (CUcontext * context_out, VPMM_WORDS_1, CUdevice device), context_out,
        VPMM_ARGUMENTS_1, device)
CREATES(cuCtxCreate_v2, (CUcontext * context_out, VPMM_WORDS_1, CUdevice device), context_out,
        VPMM_ARGUMENTS_1, device)
CREATES(cuCtxCreate_v3, (CUcontext * context_out, VPMM_WORDS_3, CUdevice device), context_out,
        VPMM_ARGUMENTS_3, device)
CREATES(cuCtxCreate_v4, (CUcontext * context_out, VPMM_WORDS_2, CUdevice device), context_out,
        VPMM_ARGUMENTS_2, device)

/* The program holds a reference to the primary context. */
static void retained(CUdevice device, CUcontext primary)
{
    handed_out(device, primary, false);
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
        vpmm_order_context_leaving(vpmm_router_order(router), vpmm_context_of(context), is_ending);
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

/* The wrapper `name` of a call that waits for all work of the context that it destroys.
 * `is_destroyed`: of one that succeeded. */
#define DEPARTS(name, parameters, leaving, is_destroyed, ...)                                      \
    CUresult vpmm_wrap_##name parameters                                                           \
    {                                                                                              \
        struct vpmm_departure departure = leaving;                                                 \
        CUresult result;                                                                           \
        VPMM_UNDO_IF_CANCELLED(stays, &departure, {                                                \
            result = VPMM_ORIGINAL_AT(VPMM_API_##name, name##_fn, __VA_ARGS__);                    \
        });                                                                                        \
        left(&departure, result == CUDA_SUCCESS && (is_destroyed));                                \
        return result;                                                                             \
    }

static bool is_primary(CUcontext context)
{
    for (int device = 0; device < VPMM_DEVICES_MAX; device++)
        if (vpmm_entry_primary(device) == context)
            return true;
    return false;
}

/* The driver refuses to destroy a primary context. */
DEPARTS(cuCtxDestroy, (CUcontext context), leaves(context, !is_primary(context)), true, context)
DEPARTS(cuCtxDestroy_v2, (CUcontext context), leaves(context, !is_primary(context)), true, context)

/* The last cuCtxDetach leaves another context current, or none (measured). */
static bool is_not_current(CUcontext context)
{
    CUcontext current = context;
    return VPMM_ORIGINAL(cuCtxGetCurrent, &current) == CUDA_SUCCESS && current != context;
}

/* Gives up what cuCtxCreate or cuCtxAttach gave, and destroys the context with the last of it. */
DEPARTS(cuCtxDetach, (CUcontext context), leaves(context, false), is_not_current(context), context)

/* ---- the primary context ---- */

/* Whether a reference to the primary context of `device` was the last. Where that is active,
 * another thread may have brought it to life again: so its id is asked too. */
static bool was_last(const struct vpmm_departure *departure, CUdevice device)
{
    unsigned flags;
    int active = 1;
    return departure->context &&
           VPMM_ORIGINAL(cuDevicePrimaryCtxGetState, device, &flags, &active) == CUDA_SUCCESS &&
           !active;
}

DEPARTS(cuDevicePrimaryCtxReset, (CUdevice device), leaves(vpmm_entry_primary(device), true), true,
        device)
DEPARTS(cuDevicePrimaryCtxReset_v2, (CUdevice device), leaves(vpmm_entry_primary(device), true),
        true, device)

DEPARTS(cuDevicePrimaryCtxRelease, (CUdevice device), leaves(vpmm_entry_primary(device), false),
        was_last(&departure, device), device)
DEPARTS(cuDevicePrimaryCtxRelease_v2, (CUdevice device), leaves(vpmm_entry_primary(device), false),
        was_last(&departure, device), device)

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
    struct vpmm_departure departure = leaves(primary, false);
    CUresult result = VPMM_ORIGINAL(cuDevicePrimaryCtxRelease_v2, device);
    left(&departure, result == CUDA_SUCCESS && was_last(&departure, device));
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

/* It owns no memory, but a reference to the primary context. */
CUresult vpmm_wrap_cuGreenCtxDestroy(void *green)
{
    const int device = device_of_green(green);
    struct vpmm_departure departure = leaves(vpmm_entry_primary(device), false);
    CUresult result;
    VPMM_UNDO_IF_CANCELLED(stays, &departure,
                           { result = VPMM_ORIGINAL(cuGreenCtxDestroy, green); });
    left(&departure, result == CUDA_SUCCESS && was_last(&departure, device));
    return result;
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
