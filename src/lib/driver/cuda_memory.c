/* SPDX-License-Identifier: MIT */
/* The operations of the seam on devices, address space and extents. Must not remember anything from
 * one call to the next. */
#include "driver/cuda_internal.h"

#include <fcntl.h>
#include <string.h>

static bool has(const struct vpmm_cuda *cuda, CUdevice_attribute attribute, int device)
{
    int value = 0;
    return cuda->real_cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value;
}

/* As in cuda.h of CUDA 12.8. */
#define MEM_DECOMPRESS_ALGORITHM_MASK ((CUdevice_attribute)136)
#define CREATE_USAGE_HW_DECOMPRESS 0x2

/* What an extent is good for cannot be added later, so every one is good for all that memory of
 * cudaMalloc is: to be exported, registered with a network card, and decompressed into by the
 * device's engine. */
static CUmemAllocationProp extent_properties(const struct vpmm_cuda *cuda, int device)
{
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    properties.location.id = device;
    if (has(cuda, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device))
        properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    if (has(cuda, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device))
        properties.allocFlags.gpuDirectRDMACapable = 1;
    if (has(cuda, MEM_DECOMPRESS_ALGORITHM_MASK, device))
        properties.allocFlags.usage = CREATE_USAGE_HW_DECOMPRESS;
    return properties;
}

static enum vpmm_status device_facts(void *self, int device, struct vpmm_device_facts *facts_out)
{
    const struct vpmm_cuda *cuda = vpmm_cuda_of(self);
    size_t total = 0;
    enum vpmm_status status = vpmm_cuda_status(cuda->real_cuDeviceTotalMem_v2(&total, device));
    if (status)
        return status;
    struct vpmm_device_facts facts = {.total_bytes = total};
    facts.has_vmm = has(cuda, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
    if (facts.has_vmm) {
        CUmemAllocationProp properties = extent_properties(cuda, device);
        size_t granularity = 0;
        status = vpmm_cuda_status(cuda->real_cuMemGetAllocationGranularity(
            &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        if (status)
            return status;
        facts.granularity_bytes = granularity;
        facts.can_export = properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
    }
    *facts_out = facts;
    return VPMM_OK;
}

static enum vpmm_status memory_info(void *self, uint64_t *free_out, uint64_t *total_out)
{
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    enum vpmm_status status =
        vpmm_cuda_status(vpmm_cuda_of(self)->real_cuMemGetInfo_v2(&free_bytes, &total_bytes));
    if (status)
        return status;
    *free_out = free_bytes;
    *total_out = total_bytes;
    return VPMM_OK;
}

static enum vpmm_status peer_possible(void *self, int device, int peer, bool *possible_out)
{
    int possible = device == peer;
    if (!possible) {
        enum vpmm_status status = vpmm_cuda_status(
            vpmm_cuda_of(self)->real_cuDeviceCanAccessPeer(&possible, device, peer));
        if (status)
            return status;
    }
    *possible_out = possible != 0;
    return VPMM_OK;
}

static enum vpmm_status default_pool_trim(void *self, int device)
{
    CUmemoryPool pool = NULL;
    enum vpmm_status status =
        vpmm_cuda_status(vpmm_cuda_of(self)->real_cuDeviceGetDefaultMemPool(&pool, device));
    return status ? status : vpmm_cuda_status(vpmm_cuda_of(self)->real_cuMemPoolTrimTo(pool, 0));
}

static enum vpmm_status address_reserve(void *self, uint64_t bytes, uint64_t *address_out)
{
    CUdeviceptr address = 0;
    enum vpmm_status status =
        vpmm_cuda_status(vpmm_cuda_of(self)->real_cuMemAddressReserve(&address, bytes, 0, 0, 0));
    if (!status)
        *address_out = address;
    return status;
}

static enum vpmm_status address_free(void *self, uint64_t address, uint64_t bytes)
{
    return vpmm_cuda_status(vpmm_cuda_of(self)->real_cuMemAddressFree(address, bytes));
}

static enum vpmm_status extent_create(void *self, int device, uint64_t bytes,
                                      vpmm_extent_handle *extent_out)
{
    const struct vpmm_cuda *cuda = vpmm_cuda_of(self);
    CUmemAllocationProp properties = extent_properties(cuda, device);
    CUmemGenericAllocationHandle handle = 0;
    enum vpmm_status status =
        vpmm_cuda_status(cuda->real_cuMemCreate(&handle, bytes, &properties, 0));
    /* Some systems announce such memory and then refuse it. What fewest programs need goes first.
     */
    if (status && status != VPMM_NO_MEMORY && properties.allocFlags.usage) {
        properties.allocFlags.usage = 0;
        status = vpmm_cuda_status(cuda->real_cuMemCreate(&handle, bytes, &properties, 0));
    }
    if (status && status != VPMM_NO_MEMORY &&
        (properties.requestedHandleTypes || properties.allocFlags.gpuDirectRDMACapable)) {
        properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
        properties.allocFlags.gpuDirectRDMACapable = 0;
        status = vpmm_cuda_status(cuda->real_cuMemCreate(&handle, bytes, &properties, 0));
    }
    if (!status)
        *extent_out = handle;
    return status;
}

static enum vpmm_status extent_release(void *self, vpmm_extent_handle extent)
{
    return vpmm_cuda_status(vpmm_cuda_of(self)->real_cuMemRelease(extent));
}

static enum vpmm_status map(void *self, uint64_t address, uint64_t bytes, vpmm_extent_handle extent)
{
    return vpmm_cuda_status(vpmm_cuda_of(self)->real_cuMemMap(address, bytes, 0, extent, 0));
}

static enum vpmm_status set_access(void *self, uint64_t address, uint64_t bytes, const int *devices,
                                   int n_devices)
{
    CUmemAccessDesc access[VPMM_DEVICES_MAX];
    if (n_devices < 1 || n_devices > VPMM_DEVICES_MAX)
        return VPMM_INVALID;
    for (int i = 0; i < n_devices; i++)
        access[i] =
            (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = devices[i]},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return vpmm_cuda_status(
        vpmm_cuda_of(self)->real_cuMemSetAccess(address, bytes, access, (size_t)n_devices));
}

static enum vpmm_status unmap(void *self, uint64_t address, uint64_t bytes)
{
    return vpmm_cuda_status(vpmm_cuda_of(self)->real_cuMemUnmap(address, bytes));
}

static enum vpmm_status extent_export(void *self, vpmm_extent_handle extent, int *descriptor_out)
{
    int descriptor = -1;
    enum vpmm_status status =
        vpmm_cuda_status(vpmm_cuda_of(self)->real_cuMemExportToShareableHandle(
            &descriptor, extent, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    if (status)
        return status;
    (void)fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    *descriptor_out = descriptor;
    return VPMM_OK;
}

static enum vpmm_status extent_import(void *self, int descriptor, vpmm_extent_handle *extent_out,
                                      int *device_out)
{
    const struct vpmm_cuda *cuda = vpmm_cuda_of(self);
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties;
    /* The driver wants the number in the place of a pointer. */
    void *number = NULL;
    memcpy(&number, &descriptor, sizeof descriptor);
    enum vpmm_status status = vpmm_cuda_status(cuda->real_cuMemImportFromShareableHandle(
        &handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    if (status)
        return status;
    status =
        vpmm_cuda_status(cuda->real_cuMemGetAllocationPropertiesFromHandle(&properties, handle));
    if (status) {
        (void)cuda->real_cuMemRelease(handle);
        return status;
    }
    *extent_out = handle;
    *device_out = properties.location.id;
    return VPMM_OK;
}

void vpmm_cuda_fill_memory(const struct vpmm_cuda *cuda, struct vpmm_driver *driver)
{
    if (cuda->real_cuMemExportToShareableHandle && cuda->real_cuMemImportFromShareableHandle &&
        cuda->real_cuMemGetAllocationPropertiesFromHandle) {
        driver->extent_export = extent_export;
        driver->extent_import = extent_import;
    }
    driver->device_facts = device_facts;
    driver->memory_info = memory_info;
    driver->peer_possible = peer_possible;
    driver->default_pool_trim = default_pool_trim;
    driver->address_reserve = address_reserve;
    driver->address_free = address_free;
    driver->extent_create = extent_create;
    driver->extent_release = extent_release;
    driver->map = map;
    driver->set_access = set_access;
    driver->unmap = unmap;
}
