/* SPDX-License-Identifier: MIT */
/* Memory: plain, stream-ordered, pools, host, what is known of an address, and the calls for
 * sharing it. Must not keep anything between two calls: the machine does. */
#include "sim/libcuda/libcuda_machine.h"

#include <string.h>

static CUresult device_pointer(struct sim *sim, CUdeviceptr *address_out, const void *host)
{
    if (!address_out)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_pointer_get_attribute(sim, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                     simcuda_address(host), address_out);
}

static size_t attribute_bytes(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return sizeof(CUDA_POINTER_ATTRIBUTE_P2P_TOKENS);
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return 8;
    default:
        return 4;
    }
}

/* A failed request leaves a null address. */
static CUresult alloc(struct sim *sim, CUdeviceptr *address_out, size_t bytes)
{
    if (address_out)
        *address_out = 0;
    return sim_mem_alloc(sim, bytes, address_out);
}

static CUresult alloc_async(struct sim *sim, CUdeviceptr *address_out, size_t bytes,
                            CUstream stream)
{
    if (address_out)
        *address_out = 0;
    return sim_mem_alloc_async(sim, bytes, stream, address_out);
}

static CUresult alloc_from_pool(struct sim *sim, CUdeviceptr *address_out, size_t bytes,
                                CUmemoryPool pool, CUstream stream)
{
    if (address_out)
        *address_out = 0;
    return sim_mem_alloc_from_pool_async(sim, bytes, pool, stream, address_out);
}

static CUresult memory_info(struct sim *sim, size_t *free_out, size_t *total_out)
{
    CUresult result = sim_mem_get_info(sim, free_out, total_out);
    if (result == CUDA_SUCCESS && total_out)
        *total_out += SIMCUDA_OWN_BYTES;
    return result;
}

/* A question that wants no answer is not looked at. */
static CUresult range_of(struct sim *sim, CUdeviceptr *base_out, size_t *bytes_out,
                         CUdeviceptr address)
{
    CUdevice device;
    if (!base_out && !bytes_out)
        return sim_ctx_get_device(sim, &device);
    return sim_mem_get_address_range(sim, address, base_out, bytes_out);
}

/* The plural form does not fail where an attribute does not apply, as for an address that is not
 * CUDA's: it then answers a default, and leaves a range as it was. */
static CUresult attributes(struct sim *sim, unsigned n, const CUpointer_attribute *names,
                           void **values, CUdeviceptr address)
{
    if (!names || !values || !n)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < n; i++) {
        CUresult result = sim_pointer_get_attribute(sim, names[i], address, values[i]);
        if (result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_DEINITIALIZED)
            return result;
        if (result == CUDA_SUCCESS)
            continue;
        if (names[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)values[i] = CU_DEVICE_INVALID;
        else if (names[i] != CU_POINTER_ATTRIBUTE_RANGE_SIZE &&
                 names[i] != CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
            memset(values[i], 0, attribute_bytes(names[i]));
    }
    return CUDA_SUCCESS;
}

CALL(cuMemGetInfo_v2, (size_t * free_bytes, size_t *total), memory_info(sim, free_bytes, total))
CALL(cuMemAlloc_v2, (CUdeviceptr * address, size_t bytes), alloc(sim, address, bytes))
CALL(cuMemAllocPitch_v2,
     (CUdeviceptr * address, size_t *pitch, size_t width, size_t height, unsigned element),
     sim_mem_alloc_pitch(sim, width, height, element, pitch, address))
CALL(cuMemFree_v2, (CUdeviceptr address), sim_mem_free(sim, address))
STREAM_CALL(cuMemAllocAsync, (CUdeviceptr * address, size_t bytes, CUstream stream),
            alloc_async(sim, address, bytes, stream))
STREAM_CALL(cuMemAllocFromPoolAsync,
            (CUdeviceptr * address, size_t bytes, CUmemoryPool pool, CUstream stream),
            alloc_from_pool(sim, address, bytes, pool, stream))
STREAM_CALL(cuMemFreeAsync, (CUdeviceptr address, CUstream stream),
            sim_mem_free_async(sim, address, stream))

CALL(cuMemPoolCreate, (CUmemoryPool * pool, const CUmemPoolProps *props),
     sim_mem_pool_create(sim, props, pool))
CALL(cuMemPoolDestroy, (CUmemoryPool pool), sim_mem_pool_destroy(sim, pool))
CALL(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value),
     sim_mem_pool_get_attribute(sim, pool, attribute, value))
CALL(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value),
     sim_mem_pool_set_attribute(sim, pool, attribute, value))
CALL(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep), sim_mem_pool_trim_to(sim, pool, keep))
CALL(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *accesses, size_t n),
     sim_mem_pool_set_access(sim, pool, accesses, n))
CALL(cuMemPoolGetAccess, (CUmemAccess_flags * flags, CUmemoryPool pool, CUmemLocation *location),
     sim_mem_pool_get_access(sim, pool, location, flags))
CALL(cuDeviceGetDefaultMemPool, (CUmemoryPool * pool, CUdevice device),
     sim_device_get_default_mem_pool(sim, device, pool))
CALL(cuDeviceGetMemPool, (CUmemoryPool * pool, CUdevice device),
     sim_device_get_mem_pool(sim, device, pool))
CALL(cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool),
     sim_device_set_mem_pool(sim, device, pool))

CALL(cuMemAllocHost_v2, (void **memory, size_t bytes), sim_mem_host_alloc(sim, bytes, 0, memory))
CALL(cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags),
     sim_mem_host_alloc(sim, bytes, flags, memory))
CALL(cuMemFreeHost, (void *memory), sim_mem_free_host(sim, memory))
CALL(cuMemHostRegister, (void *memory, size_t bytes, unsigned flags),
     sim_mem_host_register(sim, memory, bytes, flags))
CALL(cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags),
     sim_mem_host_register(sim, memory, bytes, flags))
CALL(cuMemHostUnregister, (void *memory), sim_mem_host_unregister(sim, memory))
CALL(cuMemHostGetDevicePointer_v2, (CUdeviceptr * address, void *memory, unsigned flags),
     flags ? CUDA_ERROR_INVALID_VALUE : device_pointer(sim, address, memory))

CALL(cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t *bytes, CUdeviceptr address),
     range_of(sim, base, bytes, address))
CALL(cuPointerGetAttribute, (void *value, CUpointer_attribute attribute, CUdeviceptr address),
     value ? sim_pointer_get_attribute(sim, attribute, address, value) : CUDA_ERROR_INVALID_VALUE)
CALL(cuPointerGetAttributes,
     (unsigned n, CUpointer_attribute *names, void **values, CUdeviceptr address),
     attributes(sim, n, names, values, address))
CALL(cuPointerSetAttribute, (const void *value, CUpointer_attribute attribute, CUdeviceptr address),
     value ? sim_pointer_set_attribute(sim, attribute, address, value) : CUDA_ERROR_INVALID_VALUE)

static CUresult export_handle(struct sim *sim, void *shareable, CUmemGenericAllocationHandle handle,
                              CUmemAllocationHandleType type, unsigned long long flags)
{
    if (!shareable || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_mem_export(sim, handle, shareable);
}

static CUresult import_handle(struct sim *sim, CUmemGenericAllocationHandle *handle,
                              void *shareable, CUmemAllocationHandleType type)
{
    if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_mem_import(sim, (int)(intptr_t)shareable, handle);
}

CALL(cuMemExportToShareableHandle,
     (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
      unsigned long long flags),
     export_handle(sim, shareable, handle, type, flags))
CALL(cuMemImportFromShareableHandle,
     (CUmemGenericAllocationHandle * handle, void *shareable, CUmemAllocationHandleType type),
     import_handle(sim, handle, shareable, type))
CALL(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr address),
     sim_ipc_get_mem_handle(sim, address, handle))
CALL(cuIpcOpenMemHandle, (CUdeviceptr * address, CUipcMemHandle handle, unsigned flags),
     sim_ipc_open_mem_handle(sim, &handle, flags, address))
CALL(cuIpcOpenMemHandle_v2, (CUdeviceptr * address, CUipcMemHandle handle, unsigned flags),
     sim_ipc_open_mem_handle(sim, &handle, flags, address))
CALL(cuIpcCloseMemHandle, (CUdeviceptr address), sim_ipc_close_mem_handle(sim, address))

/* A device without managed memory, shared events and shared memory pools. */
#define WITHOUT(name, parameters) CALL(name, parameters, ((void)sim, CUDA_ERROR_NOT_SUPPORTED))
#pragma GCC diagnostic ignored "-Wunused-parameter"
WITHOUT(cuMemAllocManaged, (CUdeviceptr * address, size_t bytes, unsigned flags))
WITHOUT(cuIpcGetEventHandle, (CUipcEventHandle * handle, CUevent event))
WITHOUT(cuIpcOpenEventHandle, (CUevent * event, CUipcEventHandle handle))
WITHOUT(cuMemGetHandleForAddressRange, (void *handle, CUdeviceptr address, size_t bytes,
                                        CUmemRangeHandleType type, unsigned long long flags))
WITHOUT(cuMemPoolExportToShareableHandle,
        (void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type,
         unsigned long long flags))
WITHOUT(cuMemPoolExportPointer, (CUmemPoolPtrExportData * data, CUdeviceptr address))
