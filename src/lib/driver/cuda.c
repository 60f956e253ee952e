/* SPDX-License-Identifier: MIT */
/* Makes the seam from the driver's functions, and translates CUDA's errors. Must not find or load
 * the driver itself: it is given a function that looks names up. */
#include "driver/cuda.h"

#include "base/lock.h"
#include "driver/cuda_internal.h"

#include <assert.h>
#include <string.h>

/* Errors that newer headers name and older ones do not. */
enum {
    ERROR_CONTAINED = 226,
    ERROR_TENSOR_MEMORY_LEAK = 721
};

const struct vpmm_cuda *vpmm_cuda_of(void *self)
{
    assert(vpmm_lock_none_held());
    return self;
}

enum vpmm_status vpmm_cuda_failure(CUresult result)
{
    switch ((int)result) {
    case CUDA_ERROR_NOT_READY:
        return VPMM_NOT_READY;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return VPMM_NO_MEMORY;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_INVALID_HANDLE:
        return VPMM_INVALID;
    /* cuInit has not been called: there cannot be a context either. */
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_INVALID_CONTEXT:
        return VPMM_NO_CONTEXT;
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        return VPMM_CONTEXT_GONE;
    case CUDA_ERROR_DEINITIALIZED:
        return VPMM_SHUT_DOWN;
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_TOO_MANY_PEERS:
        return VPMM_NOT_SUPPORTED;
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
    case CUDA_ERROR_CAPTURED_EVENT:
        return VPMM_CAPTURED;
    /* cuda.h: "To continue using CUDA, the process must be terminated and relaunched." */
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
        return VPMM_BROKEN;
    default:
        return VPMM_FAILED;
    }
}

enum vpmm_status vpmm_cuda_init(struct vpmm_cuda *cuda,
                                void *(*lookup)(void *self, const char *name), void *self,
                                struct vpmm_driver *driver_out)
{
    struct vpmm_cuda found = {0};
    void *address;
#define FIND(name, type, required)                                                                 \
    address = lookup(self, #name);                                                                 \
    if (!address && (required))                                                                    \
        return VPMM_NOT_SUPPORTED;                                                                 \
    memcpy(&found.real_##name, &address, sizeof address);
    VPMM_CUDA_LIST(FIND)
#undef FIND
    *cuda = found;
    memset(driver_out, 0, sizeof *driver_out);
    driver_out->self = cuda;
    vpmm_cuda_fill_memory(cuda, driver_out);
    vpmm_cuda_fill_order(cuda, driver_out);
    vpmm_cuda_fill_host(cuda, driver_out);
    return VPMM_OK;
}

enum vpmm_status vpmm_cuda_enter(const struct vpmm_cuda *cuda, vpmm_context_handle context)
{
    enum vpmm_status status = vpmm_cuda_status(cuda->real_cuCtxPushCurrent_v2((CUcontext)context));
    return status == VPMM_NO_CONTEXT ? VPMM_CONTEXT_GONE : status;
}

void vpmm_cuda_leave(const struct vpmm_cuda *cuda)
{
    CUcontext popped;
    (void)cuda->real_cuCtxPopCurrent_v2(&popped);
}
