/* SPDX-License-Identifier: MIT */
/* The recorder's wrappers: each calls the driver's own function and tells the log what it did. A
 * stream of the per-thread spellings is named as the plain ones would name it. */
#include "log.h"

#include "preload/wrap_lookup.h"
#include "preload/original.h"

void vpmm_lookup_begins(void)
{
}

static CUstream per_thread(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

static CUstream plain(CUstream stream)
{
    return stream;
}

CUresult vpmm_wrap_cuMemAlloc_v2(CUdeviceptr *address_out, size_t bytes)
{
    CUresult result = VPMM_ORIGINAL(cuMemAlloc_v2, address_out, bytes);
    if (result == CUDA_SUCCESS)
        log_malloc(*address_out, bytes, NULL, 's');
    return result;
}

CUresult vpmm_wrap_cuMemFree_v2(CUdeviceptr address)
{
    size_t line = address ? log_free(address, NULL, 's') : LOG_NONE;
    CUresult result = VPMM_ORIGINAL(cuMemFree_v2, address);
    if (result != CUDA_SUCCESS)
        log_drop(line);
    return result;
}

#define MALLOC_ASYNC(name, named)                                                                  \
    CUresult vpmm_wrap_##name(CUdeviceptr *address_out, size_t bytes, CUstream stream)             \
    {                                                                                              \
        bool is_told = !log_is_capturing(named(stream));                                           \
        CUresult result = VPMM_ORIGINAL(name, address_out, bytes, stream);                         \
        if (result == CUDA_SUCCESS && is_told)                                                     \
            log_malloc(*address_out, bytes, named(stream), 'a');                                   \
        return result;                                                                             \
    }

MALLOC_ASYNC(cuMemAllocAsync, plain)
MALLOC_ASYNC(cuMemAllocAsync_ptsz, per_thread)

#define MALLOC_FROM_POOL(name, named)                                                              \
    CUresult vpmm_wrap_##name(CUdeviceptr *address_out, size_t bytes, CUmemoryPool pool,           \
                              CUstream stream)                                                     \
    {                                                                                              \
        bool is_told = !log_is_capturing(named(stream));                                           \
        CUresult result = VPMM_ORIGINAL(name, address_out, bytes, pool, stream);                   \
        if (result == CUDA_SUCCESS && is_told)                                                     \
            log_malloc(*address_out, bytes, named(stream), 'p');                                   \
        return result;                                                                             \
    }

MALLOC_FROM_POOL(cuMemAllocFromPoolAsync, plain)
MALLOC_FROM_POOL(cuMemAllocFromPoolAsync_ptsz, per_thread)

#define FREE_ASYNC(name, named)                                                                    \
    CUresult vpmm_wrap_##name(CUdeviceptr address, CUstream stream)                                \
    {                                                                                              \
        size_t line = log_is_capturing(named(stream)) || !address                                  \
                          ? LOG_NONE                                                               \
                          : log_free(address, named(stream), 'a');                                 \
        CUresult result = VPMM_ORIGINAL(name, address, stream);                                    \
        if (result != CUDA_SUCCESS)                                                                \
            log_drop(line);                                                                        \
        return result;                                                                             \
    }

FREE_ASYNC(cuMemFreeAsync, plain)
FREE_ASYNC(cuMemFreeAsync_ptsz, per_thread)

/* What a call does to the order of streams, told when it succeeded outside of a capture. */
#define ORDER(name, named, told, parameters, ...)                                                  \
    CUresult vpmm_wrap_##name parameters                                                           \
    {                                                                                              \
        bool is_told = !log_is_capturing(named(stream));                                           \
        CUresult result = VPMM_ORIGINAL(name, __VA_ARGS__);                                        \
        if (result == CUDA_SUCCESS && is_told)                                                     \
            told;                                                                                  \
        return result;                                                                             \
    }

ORDER(cuEventRecord, plain, log_record(event, stream), (CUevent event, CUstream stream), event,
      stream)
ORDER(cuEventRecord_ptsz, per_thread, log_record(event, per_thread(stream)),
      (CUevent event, CUstream stream), event, stream)
ORDER(cuEventRecordWithFlags, plain, log_record(event, stream),
      (CUevent event, CUstream stream, unsigned flags), event, stream, flags)
ORDER(cuEventRecordWithFlags_ptsz, per_thread, log_record(event, per_thread(stream)),
      (CUevent event, CUstream stream, unsigned flags), event, stream, flags)
ORDER(cuStreamWaitEvent, plain, log_wait(stream, event),
      (CUstream stream, CUevent event, unsigned flags), stream, event, flags)
ORDER(cuStreamWaitEvent_ptsz, per_thread, log_wait(per_thread(stream), event),
      (CUstream stream, CUevent event, unsigned flags), stream, event, flags)

/* Work on the stream that `where` names. */
#define WORK(name, where, parameters, ...)                                                         \
    CUresult vpmm_wrap_##name parameters                                                           \
    {                                                                                              \
        struct log_work work = log_work_begin(where);                                              \
        CUresult result = VPMM_ORIGINAL(name, __VA_ARGS__);                                        \
        log_work_end(work, result);                                                                \
        return result;                                                                             \
    }
#define WORKS(name, parameters, ...)                                                               \
    WORK(name, stream, parameters, __VA_ARGS__)                                                    \
    WORK(name##_ptsz, per_thread(stream), parameters, __VA_ARGS__)

WORKS(cuLaunchKernel,
      (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
       unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
       void **parameters, void **extra),
      function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters,
      extra)
WORK(cuLaunchKernelEx, config->hStream,
     (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra), config,
     function, parameters, extra)
WORK(cuLaunchKernelEx_ptsz, per_thread(config->hStream),
     (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra), config,
     function, parameters, extra)
WORKS(cuGraphLaunch, (CUgraphExec graph, CUstream stream), graph, stream)
WORKS(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), to,
      from, bytes, stream)
WORKS(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream), to, from,
      bytes, stream)
WORKS(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), to,
      from, bytes, stream)
WORKS(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), to, from,
      bytes, stream)
