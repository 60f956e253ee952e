/* SPDX-License-Identifier: MIT */
/* Copies and fills in every spelling. Must not touch the memory itself: the machine does, in its
 * turn. */
#include "sim/libcuda/libcuda_machine.h"

static CUresult copy(struct sim *sim, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                     CUstream stream, bool wait)
{
    return wait ? sim_memcpy(sim, to, from, bytes, stream)
                : sim_memcpy_async(sim, to, from, bytes, stream);
}

/* The address of one end of a copy of rows; false where it is an array. */
static bool end_of(CUmemorytype type, const void *host, CUdeviceptr device,
                   CUdeviceptr *address_out)
{
    *address_out = type == CU_MEMORYTYPE_HOST ? simcuda_address(host) : device;
    return type != CU_MEMORYTYPE_ARRAY;
}

/* One call: all rows are queued before it waits. */
static CUresult copy_2d(struct sim *sim, const CUDA_MEMCPY2D *c, CUstream stream, bool wait)
{
    CUdeviceptr to, from;
    CUresult result = CUDA_SUCCESS;
    if (!c || !end_of(c->dstMemoryType, c->dstHost, c->dstDevice, &to) ||
        !end_of(c->srcMemoryType, c->srcHost, c->srcDevice, &from))
        return CUDA_ERROR_INVALID_VALUE;
    to += c->dstXInBytes + c->dstY * c->dstPitch;
    from += c->srcXInBytes + c->srcY * c->srcPitch;
    for (size_t y = 0; y < c->Height && result == CUDA_SUCCESS; y++)
        result = copy(sim, to + y * c->dstPitch, from + y * c->srcPitch, c->WidthInBytes, stream,
                      wait && y + 1 == c->Height);
    return result;
}

static CUresult copy_3d(struct sim *sim, const CUDA_MEMCPY3D *c, CUstream stream, bool wait)
{
    CUresult result = CUDA_SUCCESS;
    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t z = 0; z < c->Depth && result == CUDA_SUCCESS; z++) {
        CUDA_MEMCPY2D plane = {.srcXInBytes = c->srcXInBytes,
                               .srcY = c->srcY + (c->srcZ + z) * c->srcHeight,
                               .srcMemoryType = c->srcMemoryType,
                               .srcHost = c->srcHost,
                               .srcDevice = c->srcDevice,
                               .srcPitch = c->srcPitch,
                               .dstXInBytes = c->dstXInBytes,
                               .dstY = c->dstY + (c->dstZ + z) * c->dstHeight,
                               .dstMemoryType = c->dstMemoryType,
                               .dstHost = c->dstHost,
                               .dstDevice = c->dstDevice,
                               .dstPitch = c->dstPitch,
                               .WidthInBytes = c->WidthInBytes,
                               .Height = c->Height};
        result = copy_2d(sim, &plane, stream, wait);
    }
    return result;
}

static CUresult fill_2d(struct sim *sim, CUdeviceptr to, size_t pitch, unsigned value,
                        unsigned width, size_t columns, size_t rows, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t y = 0; y < rows && result == CUDA_SUCCESS; y++)
        result = sim_memset(sim, to + y * pitch, value, width, columns, stream);
    return result;
}

SYNCHRONOUS_CALL(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t n),
                 copy(sim, to, from, n, stream, true))
SYNCHRONOUS_CALL(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t n),
                 copy(sim, to, simcuda_address(from), n, stream, true))
SYNCHRONOUS_CALL(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t n),
                 copy(sim, simcuda_address(to), from, n, stream, true))
SYNCHRONOUS_CALL(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t n),
                 copy(sim, to, from, n, stream, true))
STREAM_CALL(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream),
            copy(sim, to, from, n, stream, false))
STREAM_CALL(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t n, CUstream stream),
            copy(sim, to, simcuda_address(from), n, stream, false))
STREAM_CALL(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t n, CUstream stream),
            copy(sim, simcuda_address(to), from, n, stream, false))
STREAM_CALL(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream),
            copy(sim, to, from, n, stream, false))
SYNCHRONOUS_CALL(cuMemcpyPeer,
                 (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                  size_t n),
                 sim_memcpy_peer(sim, to, to_context, from, from_context, n, stream, true))
STREAM_CALL(cuMemcpyPeerAsync,
            (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
             size_t n, CUstream stream),
            sim_memcpy_peer(sim, to, to_context, from, from_context, n, stream, false))
SYNCHRONOUS_CALL(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *c), copy_2d(sim, c, stream, true))
SYNCHRONOUS_CALL(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *c), copy_2d(sim, c, stream, true))
STREAM_CALL(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *c, CUstream stream),
            copy_2d(sim, c, stream, false))
SYNCHRONOUS_CALL(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *c), copy_3d(sim, c, stream, true))
STREAM_CALL(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *c, CUstream stream),
            copy_3d(sim, c, stream, false))

#define FILL_CALLS(bits, type)                                                                     \
    SYNCHRONOUS_CALL(cuMemsetD##bits##_v2, (CUdeviceptr to, type value, size_t n),                 \
                     sim_memset(sim, to, value, bits / 8, n, stream))                              \
    STREAM_CALL(cuMemsetD##bits##Async, (CUdeviceptr to, type value, size_t n, CUstream stream),   \
                sim_memset(sim, to, value, bits / 8, n, stream))                                   \
    SYNCHRONOUS_CALL(cuMemsetD2D##bits##_v2,                                                       \
                     (CUdeviceptr to, size_t pitch, type value, size_t columns, size_t rows),      \
                     fill_2d(sim, to, pitch, value, bits / 8, columns, rows, stream))              \
    STREAM_CALL(                                                                                   \
        cuMemsetD2D##bits##Async,                                                                  \
        (CUdeviceptr to, size_t pitch, type value, size_t columns, size_t rows, CUstream stream),  \
        fill_2d(sim, to, pitch, value, bits / 8, columns, rows, stream))
FILL_CALLS(8, unsigned char)
FILL_CALLS(16, unsigned short)
FILL_CALLS(32, unsigned)
