/* SPDX-License-Identifier: MIT */
#include "act.h"

#include "sim/libcuda/control.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define END_BYTES 4096

/* Stands for a block that could not be had: on the device, where nothing is. */
#define NOWHERE (SIM_ADDRESS_LOW + ((CUdeviceptr)200 << 40))

/* What an ordinary program reaches through cuGetProcAddress. */
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address_out, size_t bytes, CUstream stream);
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address_out, size_t bytes, CUmemoryPool pool,
                                      CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream);
CUresult cuMemsetD8Async_ptsz(CUdeviceptr address, unsigned char byte, size_t n, CUstream stream);

struct transcript *transcript;

void complain(const char *format, ...)
{
    va_list arguments;
    if (transcript->complaint[0])
        return;
    va_start(arguments, format);
    (void)vsnprintf(transcript->complaint, sizeof transcript->complaint, format, arguments);
    va_end(arguments);
}

void enter_device(int device, int line)
{
    CUcontext context = NULL;
    step_begin();
    step_end(cuDevicePrimaryCtxRetain(&context, device), line);
    step_begin();
    step_end(cuCtxSetCurrent(context), line);
}

static CUresult fill(enum kind kind, CUdeviceptr address, unsigned char pattern, CUstream stream)
{
    return kind == ASYNC_PER_THREAD || kind == FROM_POOL_PER_THREAD
               ? cuMemsetD8Async_ptsz(address, pattern, END_BYTES, stream)
               : cuMemsetD8Async(address, pattern, END_BYTES, stream);
}

static CUresult allocate(enum kind kind, CUdeviceptr *address_out, size_t bytes, CUstream stream)
{
    CUmemoryPool pool = NULL;
    CUresult result = CUDA_SUCCESS;
    if (kind == FROM_POOL || kind == FROM_POOL_PER_THREAD)
        result = cuDeviceGetMemPool(&pool, 0);
    if (result != CUDA_SUCCESS)
        return result;
    switch (kind) {
    case PLAIN:
        return cuMemAlloc(address_out, bytes);
    case ASYNC:
        return cuMemAllocAsync(address_out, bytes, stream);
    case ASYNC_PER_THREAD:
        return cuMemAllocAsync_ptsz(address_out, bytes, stream);
    case FROM_POOL:
        return cuMemAllocFromPoolAsync(address_out, bytes, pool, stream);
    case FROM_POOL_PER_THREAD:
        return cuMemAllocFromPoolAsync_ptsz(address_out, bytes, pool, stream);
    }
    return CUDA_ERROR_UNKNOWN;
}

struct block make(enum kind kind, size_t mib, CUstream stream, int line)
{
    static unsigned char pattern;
    struct block block = {.bytes = mib * MIB, .pattern = ++pattern};
    step_begin();
    CUresult result = allocate(kind, &block.address, block.bytes, stream);
    step_end(result, line);
    step_is_silent();
    if (result != CUDA_SUCCESS)
        block.address = NOWHERE;
    step_begin();
    step_end(fill(kind, block.address, block.pattern, stream), line);
    step_begin();
    step_end(fill(kind, block.address + block.bytes - END_BYTES, block.pattern, stream), line);
    return block;
}

static void check_end(const struct block *block, CUdeviceptr address, int line)
{
    unsigned char bytes[END_BYTES];
    step_begin();
    CUresult result = cuMemcpyDtoH(bytes, address, sizeof bytes);
    step_end(result, line);
    for (size_t i = 0; result == CUDA_SUCCESS && i < sizeof bytes; i++)
        if (bytes[i] != block->pattern)
            complain("line %d: a byte is %d instead of %d", line, bytes[i], block->pattern);
}

void check(const struct block *block, int line)
{
    check_end(block, block->address, line);
    check_end(block, block->address + block->bytes - END_BYTES, line);
}

void drop(enum kind kind, const struct block *block, CUstream stream, int line)
{
    step_begin();
    CUresult result = kind == PLAIN ? cuMemFree(block->address)
                      : kind == ASYNC_PER_THREAD || kind == FROM_POOL_PER_THREAD
                          ? cuMemFreeAsync_ptsz(block->address, stream)
                          : cuMemFreeAsync(block->address, stream);
    step_end(result, line);
}
