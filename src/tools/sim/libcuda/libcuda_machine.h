/* SPDX-License-Identifier: MIT */
/* A fake libcuda.so.1: the exported names of the CUDA driver upon the simulated machine, for
 * ordinary driver-API programs and for tests of the preload. Every file here only unpacks a call;
 * sim/engine.h knows the rules. One machine a process, made by cuInit from the environment; a child
 * of a process that made one has no driver (CUDA_ERROR_NOT_INITIALIZED). control.h is the door for
 * tests.
 *
 * | variable               | default | meaning                                                    |
 * |------------------------|---------|------------------------------------------------------------|
 * | VPMM_SIM_DEVICES       | 1       | devices; 0: cuInit answers CUDA_ERROR_NO_DEVICE            |
 * | VPMM_SIM_BYTES         | 16G     | what programs can allocate on each device (K, M, G, T)     |
 * | VPMM_SIM_GRANULARITY   | 2M      | of physical memory                                         |
 * | VPMM_SIM_VERSION       | 13000   | the driver's version; calls that are newer are not found   |
 * | VPMM_SIM_SEED          | 1       | chooses among the orders that CUDA allows                  |
 * | VPMM_SIM_DATA          | 1       | 0: memory without content                                  |
 * | VPMM_SIM_EAGER         | 1       | 0: work waits until a call needs it, or vpmm_sim_step()    |
 * | VPMM_SIM_HOST_THREAD   | 1       | 0: host functions run where the queue advances             |
 * | VPMM_SIM_VMM           | 1       | 0: a device without virtual memory management              |
 * | VPMM_SIM_PEERS         | 1       | 0: no device reaches another                               |
 * | VPMM_SIM_REUSE_HANDLES | 0       | 1: a new stream, event or context gets a freed handle      |
 * | VPMM_SIM_RACES         | 0       | 1: stop at unordered work on the same page                 |
 * | VPMM_SIM_HANG_MS       | 20000   | a wait without progress for so long stops; 0: never        |
 * | VPMM_SIM_STRICT        | 0       | 0: wrong use is answered as CUDA does, unless it would     |
 * |                        |         | corrupt or hang; 1: breaking a capture or freeing memory   |
 * |                        |         | in use stops the program too; 2: every misuse does         |
 * | VPMM_SIM_FAULT         | none    | NAME:NTH:CODE[:forever]: a call that fails; NAME * is any  |
 * | VPMM_SIM_STUBS         | 0       | 1: cuGetProcAddress finds a failing stub for other names   |
 * | VPMM_SIM_LOOKUPS       | none    | a file that gets NAME VERSION FLAGS STATUS a look-up       |
 * A value that makes no sense ends the process with a message. */
#ifndef VPMM_SIM_LIBCUDA_MACHINE_H
#define VPMM_SIM_LIBCUDA_MACHINE_H

/* With this, cuda.h declares every exported spelling under its own name instead of renaming them.
 */
#define __CUDA_API_VERSION_INTERNAL
#include "sim/engine.h"

#ifndef SIMCUDA_VERSION
#    define SIMCUDA_VERSION 13000
#endif

/* What a driver takes of a device for itself: the totals that programs see are so much more than
 * they can allocate. */
#define SIMCUDA_OWN_BYTES ((size_t)64 << 20)

/* The machine; NULL before cuInit and in a forked child. */
struct sim *simcuda_machine(void);
/* cuInit. */
CUresult simcuda_start(void);
/* What the environment asks for; readable before cuInit. */
int simcuda_version(void);
bool simcuda_stubs(void);
const char *simcuda_lookups_file(void);

/* One exported call: `sim` is the machine in the expression that answers it. */
#define CALL(name, parameters, ...)                                                                \
    CUresult CUDAAPI name parameters;                                                              \
    CUresult CUDAAPI name parameters                                                               \
    {                                                                                              \
        struct sim *sim = simcuda_machine();                                                       \
        if (!sim)                                                                                  \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        return __VA_ARGS__;                                                                        \
    }

#define CALL_PER_THREAD(name, parameters, ...)                                                     \
    CUresult CUDAAPI name parameters;                                                              \
    CUresult CUDAAPI name parameters                                                               \
    {                                                                                              \
        struct sim *sim = simcuda_machine();                                                       \
        if (!sim)                                                                                  \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        if (!stream)                                                                               \
            stream = CU_STREAM_PER_THREAD;                                                         \
        return __VA_ARGS__;                                                                        \
    }

/* A call with a parameter `stream`, and its _ptsz spelling, in which NULL is the thread's own
 * stream. */
#define STREAM_CALL(name, parameters, ...)                                                         \
    CALL(name, parameters, __VA_ARGS__)                                                            \
    CALL_PER_THREAD(name##_ptsz, parameters, __VA_ARGS__)

/* A synchronous call, and its _ptds spelling; the expression uses `stream`. */
#define SYNCHRONOUS_CALL(name, parameters, ...)                                                    \
    SYNCHRONOUS_ON(name, parameters, NULL, __VA_ARGS__)                                            \
    SYNCHRONOUS_ON(name##_ptds, parameters, CU_STREAM_PER_THREAD, __VA_ARGS__)

#define SYNCHRONOUS_ON(name, parameters, the_stream, ...)                                          \
    CUresult CUDAAPI name parameters;                                                              \
    CUresult CUDAAPI name parameters                                                               \
    {                                                                                              \
        struct sim *sim = simcuda_machine();                                                       \
        CUstream stream = the_stream;                                                              \
        if (!sim)                                                                                  \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        return __VA_ARGS__;                                                                        \
    }

/* Host and device addresses are one space. */
static inline CUdeviceptr simcuda_address(const void *host)
{
    return (CUdeviceptr)(uintptr_t)host;
}

#endif
