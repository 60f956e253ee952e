/* SPDX-License-Identifier: MIT */
/* The 32-bit spellings from before CUDA 3.2: their names exist, so that a look-up for an old
 * version finds another address than a look-up for a newer one. They must not serve anybody. */
#include "sim/libcuda/libcuda_machine.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

#define ANCIENT(name, parameters) CALL(name, parameters, ((void)sim, CUDA_ERROR_NOT_SUPPORTED))

ANCIENT(cuDeviceTotalMem, (unsigned *bytes, CUdevice device))
ANCIENT(cuCtxCreate, (CUcontext * context, unsigned flags, CUdevice device))
ANCIENT(cuMemGetInfo, (unsigned *free_bytes, unsigned *total))
ANCIENT(cuMemAlloc, (CUdeviceptr_v1 * address, unsigned bytes))
ANCIENT(cuMemAllocPitch, (CUdeviceptr_v1 * address, unsigned *pitch, unsigned width,
                          unsigned height, unsigned element))
ANCIENT(cuMemFree, (CUdeviceptr_v1 address))
ANCIENT(cuMemGetAddressRange, (CUdeviceptr_v1 * base, unsigned *bytes, CUdeviceptr_v1 address))
ANCIENT(cuMemAllocHost, (void **memory, unsigned bytes))
ANCIENT(cuMemHostGetDevicePointer, (CUdeviceptr_v1 * address, void *memory, unsigned flags))
ANCIENT(cuMemcpyHtoD, (CUdeviceptr_v1 to, const void *from, unsigned n))
ANCIENT(cuMemcpyDtoH, (void *to, CUdeviceptr_v1 from, unsigned n))
ANCIENT(cuMemcpyDtoD, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned n))
ANCIENT(cuMemcpyHtoDAsync, (CUdeviceptr_v1 to, const void *from, unsigned n, CUstream stream))
ANCIENT(cuMemcpyDtoHAsync, (void *to, CUdeviceptr_v1 from, unsigned n, CUstream stream))
ANCIENT(cuMemcpyDtoDAsync, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned n, CUstream stream))
ANCIENT(cuMemsetD8, (CUdeviceptr_v1 to, unsigned char value, unsigned n))
ANCIENT(cuMemsetD16, (CUdeviceptr_v1 to, unsigned short value, unsigned n))
ANCIENT(cuMemsetD32, (CUdeviceptr_v1 to, unsigned value, unsigned n))
