/* SPDX-License-Identifier: MIT */
/* The seam over the real CUDA driver, and the one place that translates CUDA's errors. It is given
 * the driver's exported functions by name and holds nothing else: no state, no lock, no log. Newer
 * functions are used where they exist: the oldest driver that has all required ones is 11.3. */
#ifndef VPMM_DRIVER_CUDA_H
#define VPMM_DRIVER_CUDA_H

#include "base/status.h"
#include "driver/driver.h"

#include <cuda.h>
#include <cudaTypedefs.h>

/* X(exported name, type, required). The name is the exact symbol, the type the one that symbol has
 * (cuda.h renames some functions to newer ones of another signature). */
#define VPMM_CUDA_LIST(X)                                                                          \
    X(cuDeviceGetAttribute, PFN_cuDeviceGetAttribute_v2000, true)                                  \
    X(cuDeviceTotalMem_v2, PFN_cuDeviceTotalMem_v3020, true)                                       \
    X(cuDeviceCanAccessPeer, PFN_cuDeviceCanAccessPeer_v4000, true)                                \
    X(cuDeviceGetDefaultMemPool, PFN_cuDeviceGetDefaultMemPool_v11020, true)                       \
    X(cuMemPoolTrimTo, PFN_cuMemPoolTrimTo_v11020, true)                                           \
    X(cuCtxGetCurrent, PFN_cuCtxGetCurrent_v4000, true)                                            \
    X(cuCtxPushCurrent_v2, PFN_cuCtxPushCurrent_v4000, true)                                       \
    X(cuCtxPopCurrent_v2, PFN_cuCtxPopCurrent_v4000, true)                                         \
    X(cuCtxGetDevice, PFN_cuCtxGetDevice_v2000, true)                                              \
    X(cuCtxGetId, PFN_cuCtxGetId_v12000, false)                                                    \
    X(cuCtxSynchronize, PFN_cuCtxSynchronize_v2000, true)                                          \
    X(cuMemGetInfo_v2, PFN_cuMemGetInfo_v3020, true)                                               \
    X(cuMemGetAllocationGranularity, PFN_cuMemGetAllocationGranularity_v10020, true)               \
    X(cuMemAddressReserve, PFN_cuMemAddressReserve_v10020, true)                                   \
    X(cuMemAddressFree, PFN_cuMemAddressFree_v10020, true)                                         \
    X(cuMemCreate, PFN_cuMemCreate_v10020, true)                                                   \
    X(cuMemRelease, PFN_cuMemRelease_v10020, true)                                                 \
    X(cuMemMap, PFN_cuMemMap_v10020, true)                                                         \
    X(cuMemSetAccess, PFN_cuMemSetAccess_v10020, true)                                             \
    X(cuMemUnmap, PFN_cuMemUnmap_v10020, true)                                                     \
    X(cuMemExportToShareableHandle, PFN_cuMemExportToShareableHandle_v10020, false)                \
    X(cuMemImportFromShareableHandle, PFN_cuMemImportFromShareableHandle_v10020, false)            \
    X(cuMemGetAllocationPropertiesFromHandle, PFN_cuMemGetAllocationPropertiesFromHandle_v10020,   \
      false)                                                                                       \
    X(cuStreamGetCtx, PFN_cuStreamGetCtx_v9020, true)                                              \
    X(cuStreamGetCtx_v2, PFN_cuStreamGetCtx_v12050, false)                                         \
    X(cuStreamGetId, PFN_cuStreamGetId_v12000, false)                                              \
    X(cuStreamGetFlags, PFN_cuStreamGetFlags_v5050, true)                                          \
    X(cuStreamIsCapturing, PFN_cuStreamIsCapturing_v10000, true)                                   \
    X(cuStreamWaitEvent, PFN_cuStreamWaitEvent_v3020, true)                                        \
    X(cuEventCreate, PFN_cuEventCreate_v2000, true)                                                \
    X(cuEventDestroy_v2, PFN_cuEventDestroy_v4000, true)                                           \
    X(cuEventRecord, PFN_cuEventRecord_v2000, true)                                                \
    X(cuEventQuery, PFN_cuEventQuery_v2000, true)                                                  \
    X(cuEventElapsedTime, PFN_cuEventElapsedTime_v2000, false)                                     \
    X(cuEventSynchronize, PFN_cuEventSynchronize_v2000, true)                                      \
    X(cuCtxRecordEvent, PFN_cuCtxRecordEvent_v12050, false)                                        \
    X(cuThreadExchangeStreamCaptureMode, PFN_cuThreadExchangeStreamCaptureMode_v10010, true)       \
    X(cuStreamCreate, PFN_cuStreamCreate_v2000, false)                                             \
    X(cuStreamDestroy_v2, PFN_cuStreamDestroy_v4000, false)                                        \
    X(cuMemcpyHtoDAsync_v2, PFN_cuMemcpyHtoDAsync_v3020, false)                                    \
    X(cuMemHostRegister_v2, PFN_cuMemHostRegister_v6050, false)                                    \
    X(cuMemHostUnregister, PFN_cuMemHostUnregister_v4000, false)                                   \
    X(cuMemHostAlloc, PFN_cuMemHostAlloc_v2020, false)                                             \
    X(cuMemFreeHost, PFN_cuMemFreeHost_v2000, false)

/* The driver's own functions; an optional one that the driver lacks is NULL. The prefix keeps
 * cuda.h's renaming macros off the members. */
#define VPMM_CUDA_MEMBER(name, type, required) type real_##name;
struct vpmm_cuda {
    VPMM_CUDA_LIST(VPMM_CUDA_MEMBER)
};
#undef VPMM_CUDA_MEMBER

/* Fills `cuda` by asking `lookup(self, name)` for each exact exported name (NULL: the driver has
 * none), and makes `driver_out` the seam over it; `cuda` outlives the seam. NOT_SUPPORTED when a
 * required function is missing: then neither is touched. Makes no driver call. */
VPMM_MUST_CHECK enum vpmm_status vpmm_cuda_init(struct vpmm_cuda *cuda,
                                                void *(*lookup)(void *self, const char *name),
                                                void *self, struct vpmm_driver *driver_out);

/* Every operation of the seam begins here: a lock of ours held during a driver call could deadlock.
 */
const struct vpmm_cuda *vpmm_cuda_of(void *self);

/* What a result of the driver means to this library; the first is of results but success. */
enum vpmm_status vpmm_cuda_failure(CUresult result);

static inline enum vpmm_status vpmm_cuda_status(CUresult result)
{
    return result == CUDA_SUCCESS ? VPMM_OK : vpmm_cuda_failure(result);
}

#endif
