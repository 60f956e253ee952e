/* SPDX-License-Identifier: MIT */
/* Devices, their primary contexts, and green contexts. A release must not end a primary context
 * that somebody else has retained. */
#include "sim/sim_internal.h"

static CUresult device_enter(struct sim *sim, const char *name, CUdevice device)
{
    CUresult result = call_enter_query(sim, name);
    if (result == CUDA_SUCCESS && (device < 0 || device >= sim->config.n_devices))
        return CUDA_ERROR_INVALID_DEVICE;
    return result;
}

CUresult sim_device_get_count(struct sim *sim, int *count_out)
{
    CUresult result = call_enter_query(sim, "cuDeviceGetCount");
    if (result == CUDA_SUCCESS)
        *count_out = sim->config.n_devices;
    return call_leave(sim, "cuDeviceGetCount", result);
}

CUresult sim_device_total_mem(struct sim *sim, CUdevice device, size_t *bytes_out)
{
    CUresult result = device_enter(sim, "cuDeviceTotalMem", device);
    if (result == CUDA_SUCCESS)
        *bytes_out = sim->config.device_bytes;
    return call_leave(sim, "cuDeviceTotalMem", result);
}

static int attribute_of(const struct sim *sim, CUdevice_attribute attribute, CUdevice device)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        return sim->config.has_vmm;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
        return 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return 9;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
        return 512;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return 132;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        return 32;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return device + 1;
    default:
        return 0;
    }
}

CUresult sim_device_get_attribute(struct sim *sim, CUdevice_attribute attribute, CUdevice device,
                                  int *value_out)
{
    CUresult result = device_enter(sim, "cuDeviceGetAttribute", device);
    if (result == CUDA_SUCCESS &&
        (value_out == NULL || attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *value_out = attribute_of(sim, attribute, device);
    return call_leave(sim, "cuDeviceGetAttribute", result);
}

CUresult sim_device_can_access_peer(struct sim *sim, CUdevice device, CUdevice peer, int *can_out)
{
    CUresult result = device_enter(sim, "cuDeviceCanAccessPeer", device);
    if (result == CUDA_SUCCESS && (peer < 0 || peer >= sim->config.n_devices))
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS)
        *can_out = device != peer && sim->config.has_peers;
    return call_leave(sim, "cuDeviceCanAccessPeer", result);
}

static struct context *retain(struct sim *sim, CUdevice device)
{
    struct device *of = &sim->devices[device];
    if (of->primary == NULL) {
        of->primary = context_new(sim, device);
        of->primary->is_primary = true;
    }
    while (of->primary->ending)
        pthread_cond_wait(&sim->moved, &sim->lock);
    if (!of->primary->alive)
        context_start(sim, of->primary);
    of->primary->flags = of->primary_flags;
    of->primary->retained++;
    return of->primary;
}

static CUresult release(struct sim *sim, struct context *primary)
{
    if (primary == NULL || primary->retained == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    bool is_last = --primary->retained == 0 && primary->alive;
    return is_last ? context_end(sim, primary) : CUDA_SUCCESS;
}

CUresult sim_device_primary_ctx_retain(struct sim *sim, CUdevice device, CUcontext *context_out)
{
    CUresult result = device_enter(sim, "cuDevicePrimaryCtxRetain", device);
    if (result == CUDA_SUCCESS)
        *context_out = (CUcontext)(uintptr_t)retain(sim, device)->handle;
    return call_leave(sim, "cuDevicePrimaryCtxRetain", result);
}

CUresult sim_device_primary_ctx_release(struct sim *sim, CUdevice device)
{
    CUresult result = device_enter(sim, "cuDevicePrimaryCtxRelease", device);
    if (result == CUDA_SUCCESS)
        result = release(sim, sim->devices[device].primary);
    return call_leave(sim, "cuDevicePrimaryCtxRelease", result);
}

/* Ends the context, not what retained it: the next retain brings it to life with that count. */
CUresult sim_device_primary_ctx_reset(struct sim *sim, CUdevice device)
{
    CUresult result = device_enter(sim, "cuDevicePrimaryCtxReset", device);
    struct context *primary = result == CUDA_SUCCESS ? sim->devices[device].primary : NULL;
    if (primary != NULL && primary->alive)
        result = context_end(sim, primary);
    return call_leave(sim, "cuDevicePrimaryCtxReset", result);
}

CUresult sim_device_primary_ctx_set_flags(struct sim *sim, CUdevice device, unsigned flags)
{
    CUresult result = device_enter(sim, "cuDevicePrimaryCtxSetFlags", device);
    if (result == CUDA_SUCCESS) {
        sim->devices[device].primary_flags = flags;
        if (sim->devices[device].primary != NULL)
            sim->devices[device].primary->flags = flags;
    }
    return call_leave(sim, "cuDevicePrimaryCtxSetFlags", result);
}

CUresult sim_device_primary_ctx_get_state(struct sim *sim, CUdevice device, unsigned *flags_out,
                                          int *active_out)
{
    CUresult result = device_enter(sim, "cuDevicePrimaryCtxGetState", device);
    if (result == CUDA_SUCCESS) {
        const struct device *of = &sim->devices[device];
        *flags_out = of->primary_flags;
        *active_out = of->primary != NULL && of->primary->alive;
    }
    return call_leave(sim, "cuDevicePrimaryCtxGetState", result);
}

CUresult sim_green_ctx_create(struct sim *sim, CUdevice device, CUgreenCtx *green_out)
{
    CUresult result = device_enter(sim, "cuGreenCtxCreate", device);
    if (result == CUDA_SUCCESS) {
        struct context *primary = retain(sim, device);
        struct context *green = context_new(sim, device);
        green->parent = primary;
        green->alive = true;
        green->id = ++sim->next_id;
        green->green = object_add(sim, OBJECT_GREEN, green);
        *green_out = (CUgreenCtx)(uintptr_t)green->green;
    }
    return call_leave(sim, "cuGreenCtxCreate", result);
}

static CUresult green_enter(struct sim *sim, const char *name, CUgreenCtx handle,
                            struct context **green_out)
{
    CUresult result = call_enter_query(sim, name);
    if (result == CUDA_SUCCESS &&
        object_find(sim, OBJECT_GREEN, (uintptr_t)handle, green_out) != OBJECT_LIVE)
        return CUDA_ERROR_INVALID_HANDLE;
    return result;
}

/* Streams of it end with it, their queued work does not, unless it alone kept the primary context
 * alive. */
CUresult sim_green_ctx_destroy(struct sim *sim, CUgreenCtx handle)
{
    struct context *green = NULL;
    CUresult result = green_enter(sim, "cuGreenCtxDestroy", handle, &green);
    if (result == CUDA_SUCCESS) {
        for (struct stream *stream = sim->streams; stream != NULL; stream = stream->next)
            if (stream->green == green) {
                capture_abandon(sim, NULL, stream);
                stream_end(sim, stream);
            }
        green->alive = false;
        object_retire(sim, green->green);
        object_retire(sim, green->handle);
        result = release(sim, green->parent);
    }
    return call_leave(sim, "cuGreenCtxDestroy", result);
}

CUresult sim_ctx_from_green_ctx(struct sim *sim, CUgreenCtx handle, CUcontext *context_out)
{
    struct context *green = NULL;
    CUresult result = green_enter(sim, "cuCtxFromGreenCtx", handle, &green);
    if (result == CUDA_SUCCESS)
        *context_out = (CUcontext)(uintptr_t)green->handle;
    return call_leave(sim, "cuCtxFromGreenCtx", result);
}
