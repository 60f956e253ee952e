/* SPDX-License-Identifier: MIT */
/* What every truth program shares: printing of answers by name, and a gate that holds a stream
 * until the host lets it go.
 *
 * A truth program prints all that an ordinary program can observe of one part of the driver API,
 * and never an address, a time or an id, so that its output on a bare GPU can be compared line by
 * line with its output elsewhere. A call whose failure would make the rest meaningless goes through
 * MUST, which ends the program. */
#ifndef TRUTH_H
#define TRUTH_H

#include <cuda.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Exported by every driver, but declared only by the headers of some releases. */
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context_out, unsigned flags, CUdevice device);

static inline const char *truth_code(CUresult result)
{
    const char *name = NULL;
    return cuGetErrorName(result, &name) == CUDA_SUCCESS && name ? name : "no such code";
}

/* Prints "WHAT: the name of the code". */
static inline void truth_answer(const char *what, CUresult result)
{
    printf("%s: %s\n", what, truth_code(result));
    fflush(stdout);
}

/* Prints "WHAT = value". */
static inline void truth_value(const char *what, long long value)
{
    printf("%s = %lld\n", what, value);
    fflush(stdout);
}

/* Prints "WHAT? yes" or "WHAT? no". */
static inline void truth_ask(const char *what, bool yes)
{
    printf("%s? %s\n", what, yes ? "yes" : "no");
    fflush(stdout);
}

static inline void truth_must(const char *call, int line, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return;
    printf("line %d: %s: %s\n", line, call, truth_code(result));
    exit(1);
}

#define ANSWER(call) truth_answer(#call, (call))
#define ASK(condition) truth_ask(#condition, (condition))
#define VALUE(expression) truth_value(#expression, (long long)(expression))
#define MUST(call) truth_must(#call, __LINE__, (call))
#define PART(name) printf("\n[%s]\n", (name))

/* Makes the primary context of device 0 current. */
static inline CUdevice truth_start(void)
{
    CUdevice device;
    CUcontext context;
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuCtxSetCurrent(context));
    return device;
}

/* Holds streams by a wait for a word of pinned memory: no kernel, no host thread. */
struct gate {
    volatile uint32_t *word;
    CUdeviceptr address;
    uint32_t turn;
};

static inline void gate_init(struct gate *gate)
{
    void *host;
    MUST(cuMemHostAlloc(&host, sizeof(uint32_t), CU_MEMHOSTALLOC_PORTABLE));
    MUST(cuMemHostGetDevicePointer(&gate->address, host, 0));
    gate->word = host;
    *gate->word = 0;
    gate->turn = 0;
}

/* What is queued on `stream` from now on waits for the opening of this turn. */
static inline void gate_close(struct gate *gate, CUstream stream)
{
    MUST(cuStreamWaitValue32(stream, gate->address, gate->turn + 1, CU_STREAM_WAIT_VALUE_GEQ));
}

static inline void gate_open(struct gate *gate)
{
    gate->turn++;
    __atomic_store_n(gate->word, gate->turn, __ATOMIC_SEQ_CST);
}

/* Whether every byte of a device block is `byte`; waits for the device's legacy stream. */
static inline bool truth_holds(CUdeviceptr block, size_t bytes, unsigned char byte)
{
    unsigned char *copy = malloc(bytes);
    bool same = copy != NULL;
    if (same)
        MUST(cuMemcpyDtoH(copy, block, bytes));
    for (size_t i = 0; same && i < bytes; i++)
        same = copy[i] == byte;
    free(copy);
    return same;
}

static inline long long truth_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* A stream that nothing holds is ready soon; one that is held is not until the gate opens. */
static inline const char *truth_state(CUstream stream)
{
    long long end_ms = truth_now_ms() + 10;
    CUresult result;
    do
        result = cuStreamQuery(stream);
    while (result == CUDA_ERROR_NOT_READY && truth_now_ms() < end_ms);
    return result == CUDA_SUCCESS           ? "free"
           : result == CUDA_ERROR_NOT_READY ? "held"
                                            : truth_code(result);
}

#endif
