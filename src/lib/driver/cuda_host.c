/* SPDX-License-Identifier: MIT */
/* The operations of the seam on streams of our own, copies and host memory. Must not wait for a
 * copy: whoever queues one orders it by events. */
#include "driver/cuda_internal.h"

/* Names that headers before CUDA 12.2 lack. */
enum {
    ATTRIBUTE_HOST_NUMA_ID = 134,
    ATTRIBUTE_HOST_NUMA_VMM = 141,
    LOCATION_HOST_NUMA = 3
};

static enum vpmm_status stream_create(void *self, vpmm_context_handle context,
                                      vpmm_stream_handle *stream_out)
{
    const struct vpmm_cuda *cuda = vpmm_cuda_of(self);
    CUstream stream = NULL;
    enum vpmm_status status;
    VPMM_CUDA_IN(status, cuda, context, cuda->real_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (!status)
        *stream_out = (vpmm_stream_handle)stream;
    return status;
}

static enum vpmm_status stream_destroy(void *self, vpmm_stream_handle stream)
{
    return vpmm_cuda_status(vpmm_cuda_of(self)->real_cuStreamDestroy_v2((CUstream)stream));
}

static enum vpmm_status event_create_timed(void *self, vpmm_context_handle context,
                                           vpmm_event_handle *event_out)
{
    return vpmm_cuda_event_create(vpmm_cuda_of(self), context, CU_EVENT_DEFAULT, event_out);
}

static enum vpmm_status event_elapsed(void *self, vpmm_event_handle begin, vpmm_event_handle end,
                                      uint64_t *ns_out)
{
    float ms = 0;
    enum vpmm_status status = vpmm_cuda_status(
        vpmm_cuda_of(self)->real_cuEventElapsedTime(&ms, (CUevent)begin, (CUevent)end));
    if (!status)
        *ns_out = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    return status;
}

static enum vpmm_status copy_in(void *self, vpmm_context_handle context, uint64_t address,
                                const void *from, uint64_t bytes, vpmm_stream_handle stream)
{
    const struct vpmm_cuda *cuda = vpmm_cuda_of(self);
    enum vpmm_status status;
    VPMM_CUDA_IN(status, cuda, context,
                 cuda->real_cuMemcpyHtoDAsync_v2(address, from, bytes, (CUstream)stream));
    return status;
}

static int attribute(const struct vpmm_cuda *cuda, int number, int device, int missing)
{
    int value = missing;
    CUresult result =
        cuda->real_cuDeviceGetAttribute(&value, (CUdevice_attribute)number, (CUdevice)device);
    return result == CUDA_SUCCESS ? value : missing;
}

static enum vpmm_status host_register(void *self, vpmm_context_handle context, void *memory,
                                      uint64_t bytes, bool is_read_only)
{
    const struct vpmm_cuda *cuda = vpmm_cuda_of(self);
    unsigned flags = CU_MEMHOSTREGISTER_PORTABLE;
    CUdevice device = 0;
    enum vpmm_status status = vpmm_cuda_enter(cuda, context);
    if (status)
        return status;
    if (is_read_only) {
        flags |= CU_MEMHOSTREGISTER_READ_ONLY;
        status = vpmm_cuda_status(cuda->real_cuCtxGetDevice(&device));
        if (!status &&
            !attribute(cuda, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, (int)device, 0))
            status = VPMM_NOT_SUPPORTED;
    }
    if (!status)
        status = vpmm_cuda_status(cuda->real_cuMemHostRegister_v2(memory, bytes, flags));
    vpmm_cuda_leave(cuda);
    return status;
}

static enum vpmm_status host_unregister(void *self, vpmm_context_handle context, void *memory)
{
    const struct vpmm_cuda *cuda = vpmm_cuda_of(self);
    enum vpmm_status status;
    VPMM_CUDA_IN(status, cuda, context, cuda->real_cuMemHostUnregister(memory));
    return status;
}

static enum vpmm_status host_alloc(void *self, vpmm_context_handle context, uint64_t bytes,
                                   void **memory_out)
{
    const struct vpmm_cuda *cuda = vpmm_cuda_of(self);
    void *memory = NULL;
    enum vpmm_status status;
    VPMM_CUDA_IN(status, cuda, context,
                 cuda->real_cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE));
    if (!status)
        *memory_out = memory;
    return status;
}

static enum vpmm_status host_free(void *self, vpmm_context_handle context, void *memory)
{
    const struct vpmm_cuda *cuda = vpmm_cuda_of(self);
    enum vpmm_status status;
    VPMM_CUDA_IN(status, cuda, context, cuda->real_cuMemFreeHost(memory));
    return status;
}

static enum vpmm_status extent_create_host(void *self, int device, uint64_t bytes,
                                           vpmm_extent_handle *extent_out)
{
    const struct vpmm_cuda *cuda = vpmm_cuda_of(self);
    CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = (CUmemLocationType)LOCATION_HOST_NUMA}};
    CUmemGenericAllocationHandle handle = 0;
    properties.location.id = attribute(cuda, ATTRIBUTE_HOST_NUMA_ID, device, -1);
    if (!attribute(cuda, ATTRIBUTE_HOST_NUMA_VMM, device, 0) || properties.location.id < 0)
        return VPMM_NOT_SUPPORTED;
    enum vpmm_status status =
        vpmm_cuda_status(cuda->real_cuMemCreate(&handle, bytes, &properties, 0));
    if (!status)
        *extent_out = handle;
    return status;
}

void vpmm_cuda_fill_host(const struct vpmm_cuda *cuda, struct vpmm_driver *driver)
{
    if (cuda->real_cuStreamCreate && cuda->real_cuStreamDestroy_v2) {
        driver->stream_create = stream_create;
        driver->stream_destroy = stream_destroy;
    }
    if (cuda->real_cuEventElapsedTime) {
        driver->event_create_timed = event_create_timed;
        driver->event_elapsed = event_elapsed;
    }
    driver->copy_in = cuda->real_cuMemcpyHtoDAsync_v2 ? copy_in : NULL;
    if (cuda->real_cuMemHostRegister_v2 && cuda->real_cuMemHostUnregister) {
        driver->host_register = host_register;
        driver->host_unregister = host_unregister;
    }
    if (cuda->real_cuMemHostAlloc && cuda->real_cuMemFreeHost) {
        driver->host_alloc = host_alloc;
        driver->host_free = host_free;
    }
    driver->extent_create_host = extent_create_host;
}
