/* SPDX-License-Identifier: MIT */
/* Contexts: created, primary, green, current; their events and peers. Must not keep anything
 * between two calls: the machine does. */
#include "sim/libcuda/libcuda_machine.h"

#include <string.h>

/* Checks that the thread has a context, and answers a setting that the simulated device does not
 * have. */
static CUresult setting(struct sim *sim, size_t bytes, void *value_out)
{
    CUdevice device;
    CUresult result = sim_ctx_get_device(sim, &device);
    if (result == CUDA_SUCCESS && value_out)
        memset(value_out, 0, bytes);
    return result;
}

static CUresult priorities(struct sim *sim, int *least_out, int *greatest_out)
{
    CUresult result = setting(sim, sizeof(int), least_out);
    if (result == CUDA_SUCCESS && greatest_out)
        *greatest_out = -5;
    return result;
}

static CUresult api_version(struct sim *sim, unsigned *version_out)
{
    CUresult result = setting(sim, sizeof(unsigned), version_out);
    if (result == CUDA_SUCCESS)
        *version_out = 3020;
    return result;
}

#define PART_LEAST 8u /* multiprocessors */

static CUresult all_of(struct sim *sim, CUdevice device, CUdevResource *resource_out,
                       CUdevResourceType type)
{
    int n = 0;
    if (!resource_out || type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result =
        sim_device_get_attribute(sim, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device, &n);
    if (result == CUDA_SUCCESS) {
        memset(resource_out, 0, sizeof *resource_out);
        resource_out->type = type;
        resource_out->sm.smCount = (unsigned)n;
    }
    return result;
}

/* One part alone, which is all that anybody asks for. */
static CUresult part_of(CUdevResource *part_out, unsigned *n, const CUdevResource *whole,
                        unsigned least)
{
    unsigned count = (least + PART_LEAST - 1) / PART_LEAST * PART_LEAST;
    if (!n || *n != 1 || !whole || !part_out || !count || count > whole->sm.smCount)
        return CUDA_ERROR_INVALID_VALUE;
    *part_out = *whole;
    part_out->sm.smCount = count;
    return CUDA_SUCCESS;
}

/* Nobody reads it. */
static CUresult describe(CUdevResourceDesc *description_out, const CUdevResource *parts, unsigned n)
{
    static char description;
    if (!description_out || !parts || n != 1)
        return CUDA_ERROR_INVALID_VALUE;
    *description_out = (CUdevResourceDesc)(void *)&description;
    return CUDA_SUCCESS;
}

CALL(cuCtxCreate_v2, (CUcontext * context, unsigned flags, CUdevice device),
     sim_ctx_create(sim, flags, device, context))
CALL(cuCtxCreate_v3,
     (CUcontext * context, CUexecAffinityParam *affinities, int n, unsigned flags, CUdevice device),
     affinities || n ? CUDA_ERROR_NOT_SUPPORTED : sim_ctx_create(sim, flags, device, context))
#if CUDA_VERSION >= 12050
CALL(cuCtxCreate_v4,
     (CUcontext * context, CUctxCreateParams *params, unsigned flags, CUdevice device),
     params ? CUDA_ERROR_NOT_SUPPORTED : sim_ctx_create(sim, flags, device, context))
#endif
CALL(cuCtxDestroy, (CUcontext context), sim_ctx_destroy(sim, context))
CALL(cuCtxDestroy_v2, (CUcontext context), sim_ctx_destroy(sim, context))
CALL(cuCtxAttach, (CUcontext * context, unsigned flags), sim_ctx_attach(sim, flags, context))
CALL(cuCtxDetach, (CUcontext context), sim_ctx_detach(sim, context))
CALL(cuCtxPushCurrent, (CUcontext context), sim_ctx_push_current(sim, context))
CALL(cuCtxPushCurrent_v2, (CUcontext context), sim_ctx_push_current(sim, context))
CALL(cuCtxPopCurrent, (CUcontext * context), sim_ctx_pop_current(sim, context))
CALL(cuCtxPopCurrent_v2, (CUcontext * context), sim_ctx_pop_current(sim, context))
CALL(cuCtxSetCurrent, (CUcontext context), sim_ctx_set_current(sim, context))
CALL(cuCtxGetCurrent, (CUcontext * context), sim_ctx_get_current(sim, context))
CALL(cuCtxGetDevice, (CUdevice * device), sim_ctx_get_device(sim, device))
CALL(cuCtxGetDevice_v2, (CUdevice * device, CUcontext context),
     context ? sim_ctx_device_of(sim, context, device) : sim_ctx_get_device(sim, device))
CALL(cuCtxGetId, (CUcontext context, unsigned long long *id), sim_ctx_get_id(sim, context, id))
CALL(cuCtxGetFlags, (unsigned *flags), sim_ctx_get_flags(sim, flags))
CALL(cuCtxSetFlags, (unsigned flags), sim_ctx_set_flags(sim, flags))
CALL(cuCtxSynchronize, (void), sim_ctx_synchronize(sim))
CALL(cuCtxSynchronize_v2, (CUcontext context),
     context ? sim_ctx_synchronize_of(sim, context) : sim_ctx_synchronize(sim))
CALL(cuCtxRecordEvent, (CUcontext context, CUevent event),
     sim_ctx_record_event(sim, context, event))
CALL(cuCtxWaitEvent, (CUcontext context, CUevent event), sim_ctx_wait_event(sim, context, event))
CALL(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags),
     sim_ctx_enable_peer_access(sim, peer, flags))
CALL(cuCtxDisablePeerAccess, (CUcontext peer), sim_ctx_disable_peer_access(sim, peer))
CALL(cuCtxGetApiVersion, (CUcontext context, unsigned *version),
     context || !version ? CUDA_ERROR_INVALID_VALUE : api_version(sim, version))
CALL(cuCtxGetLimit, (size_t * value, CUlimit limit),
     limit < CU_LIMIT_MAX && value ? setting(sim, sizeof(size_t), value)
                                   : CUDA_ERROR_UNSUPPORTED_LIMIT)
CALL(cuCtxSetLimit, (CUlimit limit, size_t value),
     limit < CU_LIMIT_MAX && value < SIZE_MAX ? setting(sim, 0, NULL)
                                              : CUDA_ERROR_UNSUPPORTED_LIMIT)
CALL(cuCtxGetStreamPriorityRange, (int *least, int *greatest), priorities(sim, least, greatest))

CALL(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device),
     sim_device_primary_ctx_retain(sim, device, context))
CALL(cuDevicePrimaryCtxRelease, (CUdevice device), sim_device_primary_ctx_release(sim, device))
CALL(cuDevicePrimaryCtxRelease_v2, (CUdevice device), sim_device_primary_ctx_release(sim, device))
CALL(cuDevicePrimaryCtxReset, (CUdevice device), sim_device_primary_ctx_reset(sim, device))
CALL(cuDevicePrimaryCtxReset_v2, (CUdevice device), sim_device_primary_ctx_reset(sim, device))
CALL(cuDevicePrimaryCtxSetFlags, (CUdevice device, unsigned flags),
     sim_device_primary_ctx_set_flags(sim, device, flags))
CALL(cuDevicePrimaryCtxSetFlags_v2, (CUdevice device, unsigned flags),
     sim_device_primary_ctx_set_flags(sim, device, flags))
CALL(cuDevicePrimaryCtxGetState, (CUdevice device, unsigned *flags, int *active),
     sim_device_primary_ctx_get_state(sim, device, flags, active))

CALL(cuDeviceGetDevResource, (CUdevice device, CUdevResource *resource, CUdevResourceType type),
     all_of(sim, device, resource, type))
CALL(cuDevSmResourceSplitByCount,
     (CUdevResource * parts, unsigned *n, const CUdevResource *whole, CUdevResource *rest,
      unsigned flags, unsigned least),
     rest || flags ? CUDA_ERROR_NOT_SUPPORTED : ((void)sim, part_of(parts, n, whole, least)))
CALL(cuDevResourceGenerateDesc, (CUdevResourceDesc * description, CUdevResource *parts, unsigned n),
     ((void)sim, describe(description, parts, n)))
/* The device is not really divided: the descriptor is not read. */
CALL(cuGreenCtxCreate,
     (CUgreenCtx * green, CUdevResourceDesc descriptor, CUdevice device, unsigned flags),
     flags &CU_GREEN_CTX_DEFAULT_STREAM || !descriptor ? sim_green_ctx_create(sim, device, green)
                                                       : CUDA_ERROR_INVALID_VALUE)
CALL(cuGreenCtxDestroy, (CUgreenCtx green), sim_green_ctx_destroy(sim, green))
CALL(cuCtxFromGreenCtx, (CUcontext * context, CUgreenCtx green),
     sim_ctx_from_green_ctx(sim, green, context))
CALL(cuGreenCtxStreamCreate, (CUstream * stream, CUgreenCtx green, unsigned flags, int priority),
     sim_green_ctx_stream_create(sim, green, flags, priority, stream))
