/* SPDX-License-Identifier: MIT */
/* The driver as a program of the model test calls it: bare, or with the library's wrappers in the
 * place of the names that it exports. */
#ifndef VPMM_TEST_MODEL_API_H
#define VPMM_TEST_MODEL_API_H

#define __CUDA_API_VERSION_INTERNAL
#include "sim/libcuda/control.h"

/* ONE(type's name, exported name); PAIR with both spellings of the default stream: [0] plain, [1]
 * per thread. */
#define API_LIST(ONE, PAIR)                                                                        \
    ONE(cuInit)                                                                                    \
    ONE(cuMemAlloc_v2)                                                                             \
    ONE(cuMemAllocPitch_v2)                                                                        \
    ONE(cuMemFree_v2)                                                                              \
    ONE(cuMemGetInfo_v2)                                                                           \
    ONE(cuMemCreate)                                                                               \
    ONE(cuMemHostAlloc)                                                                            \
    ONE(cuMemGetAddressRange_v2)                                                                   \
    ONE(cuMemPoolTrimTo)                                                                           \
    ONE(cuMemPoolCreate)                                                                           \
    ONE(cuMemPoolDestroy)                                                                          \
    ONE(cuMemPoolGetAttribute)                                                                     \
    ONE(cuMemPoolSetAttribute)                                                                     \
    ONE(cuMemPoolSetAccess)                                                                        \
    ONE(cuDeviceSetMemPool)                                                                        \
    ONE(cuDeviceGetDefaultMemPool)                                                                 \
    ONE(cuDevicePrimaryCtxRetain)                                                                  \
    ONE(cuDevicePrimaryCtxRelease_v2)                                                              \
    ONE(cuDevicePrimaryCtxReset_v2)                                                                \
    ONE(cuCtxCreate_v2)                                                                            \
    ONE(cuCtxDestroy_v2)                                                                           \
    ONE(cuCtxSetCurrent)                                                                           \
    ONE(cuCtxPushCurrent_v2)                                                                       \
    ONE(cuCtxPopCurrent_v2)                                                                        \
    ONE(cuCtxSynchronize)                                                                          \
    ONE(cuCtxEnablePeerAccess)                                                                     \
    ONE(cuStreamCreate)                                                                            \
    ONE(cuStreamDestroy_v2)                                                                        \
    ONE(cuEventCreate)                                                                             \
    ONE(cuEventDestroy_v2)                                                                         \
    ONE(cuEventSynchronize)                                                                        \
    ONE(cuEventQuery)                                                                              \
    ONE(cuThreadExchangeStreamCaptureMode)                                                         \
    ONE(cuGraphInstantiateWithFlags)                                                               \
    ONE(cuGraphDestroy)                                                                            \
    ONE(cuGraphExecDestroy)                                                                        \
    PAIR(cuMemAllocAsync, cuMemAllocAsync, cuMemAllocAsync_ptsz)                                   \
    PAIR(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz)           \
    PAIR(cuMemFreeAsync, cuMemFreeAsync, cuMemFreeAsync_ptsz)                                      \
    PAIR(cuMemcpyAsync, cuMemcpyAsync, cuMemcpyAsync_ptsz)                                         \
    PAIR(cuMemcpy, cuMemcpy, cuMemcpy_ptds)                                                        \
    PAIR(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz)                          \
    PAIR(cuMemcpy2D_v2, cuMemcpy2D_v2, cuMemcpy2D_v2_ptds)                                         \
    PAIR(cuMemsetD2D8Async, cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz)                             \
    PAIR(cuMemsetD2D32Async, cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz)                          \
    PAIR(cuMemsetD8Async, cuMemsetD8Async, cuMemsetD8Async_ptsz)                                   \
    PAIR(cuStreamSynchronize, cuStreamSynchronize, cuStreamSynchronize_ptsz)                       \
    PAIR(cuStreamQuery, cuStreamQuery, cuStreamQuery_ptsz)                                         \
    PAIR(cuStreamWaitEvent, cuStreamWaitEvent, cuStreamWaitEvent_ptsz)                             \
    PAIR(cuEventRecord, cuEventRecord, cuEventRecord_ptsz)                                         \
    PAIR(cuStreamWaitValue32_v2, cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz)              \
    PAIR(cuStreamWriteValue32_v2, cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz)           \
    PAIR(cuLaunchHostFunc, cuLaunchHostFunc, cuLaunchHostFunc_ptsz)                                \
    PAIR(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz)           \
    PAIR(cuStreamEndCapture, cuStreamEndCapture, cuStreamEndCapture_ptsz)                          \
    PAIR(cuGraphLaunch, cuGraphLaunch, cuGraphLaunch_ptsz)

#define SIM_LIST(ONE)                                                                              \
    ONE(vpmm_sim_launch)                                                                           \
    ONE(vpmm_sim_read)                                                                             \
    ONE(vpmm_sim_write)                                                                            \
    ONE(vpmm_sim_peek)                                                                             \
    ONE(vpmm_sim_step)                                                                             \
    ONE(vpmm_sim_drain)                                                                            \
    ONE(vpmm_sim_calls)                                                                            \
    ONE(vpmm_sim_live_counts)

#define API_MEMBER(name) __typeof__(name) *name;
#define API_MEMBERS(type, plain, per_thread) __typeof__(type) *type[2];
struct api {
    API_LIST(API_MEMBER, API_MEMBERS)
    SIM_LIST(API_MEMBER)
    CUresult (*cuCtxDetach)(CUcontext context); /* NULL: the driver has none */
    bool is_old;                                /* the driver is of before CUDA 12.5 */
};

/* Opens the driver at `driver`, and the library at `library` in front of it (NULL: bare, or what is
 * preloaded). Nothing of either is called. `is_simulated`: what only a simulated device has is
 * looked for too, and is NULL otherwise. False, with a message, where that fails. */
bool api_open(struct api *api_out, const char *driver, const char *library, bool is_simulated);

#endif
