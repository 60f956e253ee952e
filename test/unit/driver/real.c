/* SPDX-License-Identifier: MIT */
#include "real.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

struct real real;

uintptr_t real_current(void)
{
    return real.depth ? real.stack[real.depth - 1] : 0;
}

static CUresult answer(void)
{
    CUresult result = real.next;
    real.next = CUDA_SUCCESS;
    real.asked_in = real_current();
    return result;
}

static CUresult push_current(CUcontext context)
{
    if (real.push)
        return real.push;
    real.stack[real.depth++] = (uintptr_t)context;
    if (real.depth > real.deepest)
        real.deepest = real.depth;
    return CUDA_SUCCESS;
}

static CUresult pop_current(CUcontext *context)
{
    *context = (CUcontext)real.stack[--real.depth];
    return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *context)
{
    *context = (CUcontext)real_current();
    return answer();
}

static CUresult get_device(CUdevice *device)
{
    *device = (CUdevice)real_current() * 10;
    return answer();
}

static CUresult synchronize(void)
{
    return answer();
}

static CUresult get_id(CUcontext context, unsigned long long *id)
{
    *id = 1000 + (uintptr_t)context;
    return answer();
}

static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    *value =
        (attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
        (attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED &&
         real.has_fd) ||
        ((int)attribute == 136 && real.has_decompression) ||
        (attribute == CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED && real.has_host) ||
        (attribute == CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED &&
         real.has_host) ||
        (attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED && real.has_rdma);
    return CUDA_SUCCESS;
}

static CUresult total_mem(size_t *bytes, CUdevice device)
{
    *bytes = (size_t)(device + 1) << 30;
    return answer();
}

static CUresult can_access_peer(int *can, CUdevice device, CUdevice peer)
{
    *can = device + peer == 3;
    return answer();
}

static CUresult default_pool(CUmemoryPool *pool, CUdevice device)
{
    (void)device;
    *pool = (CUmemoryPool)(uintptr_t)77;
    return CUDA_SUCCESS;
}

static CUresult trim(CUmemoryPool pool, size_t kept)
{
    real.kept = (uintptr_t)pool == 77 ? kept : 1;
    return answer();
}

static CUresult mem_get_info(size_t *free_bytes, size_t *total_bytes)
{
    *free_bytes = 5;
    *total_bytes = 7;
    return answer();
}

static CUresult granularity(size_t *bytes, const CUmemAllocationProp *properties,
                            CUmemAllocationGranularity_flags option)
{
    *bytes =
        option == CU_MEM_ALLOC_GRANULARITY_MINIMUM && properties->location.id >= 0 ? 2u << 20 : 0;
    return answer();
}

static CUresult address_reserve(CUdeviceptr *address, size_t bytes, size_t alignment,
                                CUdeviceptr wanted, unsigned long long flags)
{
    *address = bytes + alignment + wanted + flags;
    return answer();
}

static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes,
                       const CUmemAllocationProp *properties, unsigned long long flags)
{
    (void)flags;
    real.n_creates++;
    real.properties = *properties;
    *handle = bytes;
    if (real.is_picky && properties->allocFlags.usage)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (real.is_strict &&
        (properties->requestedHandleTypes || properties->allocFlags.gpuDirectRDMACapable))
        return CUDA_ERROR_NOT_PERMITTED;
    return answer();
}

static CUresult on_range(CUdeviceptr address, size_t bytes)
{
    return address && bytes ? answer() : CUDA_ERROR_INVALID_VALUE;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    real.n_releases++;
    return handle ? answer() : CUDA_ERROR_INVALID_VALUE;
}

static CUresult export_handle(void *shareable, CUmemGenericAllocationHandle handle,
                              CUmemAllocationHandleType type, unsigned long long flags)
{
    int descriptor = (int)handle;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(shareable, &descriptor, sizeof descriptor);
    return answer();
}

static CUresult import_handle(CUmemGenericAllocationHandle *handle, void *shareable,
                              CUmemAllocationHandleType type)
{
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = (uintptr_t)shareable;
    return answer();
}

static CUresult properties_of(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)
{
    *properties = (CUmemAllocationProp){.location = {.id = 3}};
    return handle == real.unknown ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    return address && bytes && !offset && handle && !flags ? answer() : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                           size_t n)
{
    memcpy(real.access, access, n * sizeof *access);
    real.n_access = n;
    return on_range(address, bytes);
}

static CUresult stream_get_ctx(CUstream stream, CUcontext *context)
{
    *context = (CUcontext)(uintptr_t)50;
    return stream ? answer() : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult stream_get_ctx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green)
{
    *context = (CUcontext)(uintptr_t)60;
    *green = (CUgreenCtx)(uintptr_t)61;
    real.n_context_questions++;
    return stream ? answer() : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult stream_get_id(CUstream stream, unsigned long long *id)
{
    real.n_id_questions++;
    *id = 1000 + (uintptr_t)stream;
    return answer();
}

static CUresult stream_get_flags(CUstream stream, unsigned *flags)
{
    (void)stream;
    *flags = real.stream_flags;
    return answer();
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = real.capture;
    return real.capture_result;
}

static CUresult wait_event(CUstream stream, CUevent event, unsigned flags)
{
    return stream && event && !flags ? answer() : CUDA_ERROR_INVALID_VALUE;
}

static CUresult event_create(CUevent *event, unsigned flags)
{
    real.event_flags = flags;
    *event = (CUevent)(uintptr_t)9;
    return answer();
}

static CUresult on_event(CUevent event)
{
    return (uintptr_t)event == 9 ? answer() : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult event_elapsed_time(float *ms, CUevent begin, CUevent end)
{
    *ms = 2.5F;
    return on_event(begin) ? CUDA_ERROR_INVALID_HANDLE : on_event(end);
}

static CUresult event_record(CUevent event, CUstream stream)
{
    return stream ? on_event(event) : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult ctx_record_event(CUcontext context, CUevent event)
{
    return (uintptr_t)context == 3 ? on_event(event) : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult exchange_mode(CUstreamCaptureMode *mode)
{
    CUresult result = answer();
    if (result)
        return result;
    CUstreamCaptureMode old = real.mode;
    real.mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *stream, unsigned flags)
{
    *stream = (CUstream)(uintptr_t)(flags == CU_STREAM_NON_BLOCKING ? 21 : 0);
    return answer();
}

static CUresult stream_destroy(CUstream stream)
{
    return (uintptr_t)stream == 21 ? answer() : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult copy_in(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return to && from && bytes && stream ? answer() : CUDA_ERROR_INVALID_VALUE;
}

static CUresult host_register(void *memory, size_t bytes, unsigned flags)
{
    real.host_flags = flags;
    return memory && bytes ? answer() : CUDA_ERROR_INVALID_VALUE;
}

static CUresult on_host(void *memory)
{
    return memory ? answer() : CUDA_ERROR_INVALID_VALUE;
}

static CUresult host_alloc(void **memory, size_t bytes, unsigned flags)
{
    real.host_flags = flags;
    *memory = &real;
    return bytes ? answer() : CUDA_ERROR_INVALID_VALUE;
}

/* Assignments instead of casts: a function of another type than the driver's does not compile. */
static const struct vpmm_cuda functions = {
    .real_cuDeviceGetAttribute = get_attribute,
    .real_cuDeviceTotalMem_v2 = total_mem,
    .real_cuDeviceCanAccessPeer = can_access_peer,
    .real_cuDeviceGetDefaultMemPool = default_pool,
    .real_cuMemPoolTrimTo = trim,
    .real_cuCtxGetCurrent = get_current,
    .real_cuCtxPushCurrent_v2 = push_current,
    .real_cuCtxPopCurrent_v2 = pop_current,
    .real_cuCtxGetDevice = get_device,
    .real_cuCtxGetId = get_id,
    .real_cuCtxSynchronize = synchronize,
    .real_cuMemGetInfo_v2 = mem_get_info,
    .real_cuMemGetAllocationGranularity = granularity,
    .real_cuMemAddressReserve = address_reserve,
    .real_cuMemAddressFree = on_range,
    .real_cuMemCreate = create,
    .real_cuMemRelease = release,
    .real_cuMemExportToShareableHandle = export_handle,
    .real_cuMemImportFromShareableHandle = import_handle,
    .real_cuMemGetAllocationPropertiesFromHandle = properties_of,
    .real_cuMemMap = map,
    .real_cuMemSetAccess = set_access,
    .real_cuMemUnmap = on_range,
    .real_cuStreamGetCtx = stream_get_ctx,
    .real_cuStreamGetCtx_v2 = stream_get_ctx_v2,
    .real_cuStreamGetId = stream_get_id,
    .real_cuStreamGetFlags = stream_get_flags,
    .real_cuStreamIsCapturing = is_capturing,
    .real_cuStreamWaitEvent = wait_event,
    .real_cuEventCreate = event_create,
    .real_cuEventDestroy_v2 = on_event,
    .real_cuEventRecord = event_record,
    .real_cuEventQuery = on_event,
    .real_cuEventSynchronize = on_event,
    .real_cuEventElapsedTime = event_elapsed_time,
    .real_cuCtxRecordEvent = ctx_record_event,
    .real_cuThreadExchangeStreamCaptureMode = exchange_mode,
    .real_cuStreamCreate = stream_create,
    .real_cuStreamDestroy_v2 = stream_destroy,
    .real_cuMemcpyHtoDAsync_v2 = copy_in,
    .real_cuMemHostRegister_v2 = host_register,
    .real_cuMemHostUnregister = on_host,
    .real_cuMemHostAlloc = host_alloc,
    .real_cuMemFreeHost = on_host,
};

#define NAME(name, type, required) {#name, required, offsetof(struct vpmm_cuda, real_##name)},
const struct real_name real_names[] = {VPMM_CUDA_LIST(NAME)};
const size_t real_n_names = sizeof real_names / sizeof *real_names;

void *real_lookup(void *self, const char *name)
{
    void *address = NULL;
    assert_ptr_equal(self, &real);
    if (real.missing && strcmp(real.missing, name) == 0)
        return NULL;
    for (size_t i = 0; i < real_n_names; i++)
        if (strcmp(real_names[i].name, name) == 0)
            memcpy(&address, (const char *)&functions + real_names[i].offset, sizeof address);
    return address;
}
