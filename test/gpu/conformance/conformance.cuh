/* SPDX-License-Identifier: MIT */
/* How the conformance programs of the runtime API speak: every call as a line of its text, its
 * answer, and what the last error is before, at and after it is taken. The same lines must come
 * out of every run, so that an address or a time never stands in one. */
#ifndef VPMM_TEST_CONFORMANCE_CUH
#define VPMM_TEST_CONFORMANCE_CUH

#include "../programs/common.cuh"
#include "observe.h"

#include <cstring>
#include <vector>

/* Below a page, one byte below, a page, not a whole number of pages, and many. */
constexpr size_t SIZES[] = {100, 2 * MIB - 1, 2 * MIB, 5 * MIB + 13, 64 * MIB};

inline const char *code(cudaError_t status)
{
    return cudaGetErrorName(status);
}

/* Prints the call's text, its answer, and the last error as peeked at, taken, and then left. */
#define CALL(call) told(#call, (call))
inline cudaError_t told(const char *what, cudaError_t status)
{
    cudaError_t peeked = cudaPeekAtLastError(), last = cudaGetLastError();
    cudaError_t left = cudaPeekAtLastError();
    printf("%s: %s, peek %s, last %s, left %s\n", what, code(status), code(peeked), code(last),
           code(left));
    return status;
}

/* Prints "WHAT = value", and "WHAT? yes" or "no". */
#define VALUE(expression) printf("%s = %lld\n", #expression, static_cast<long long>(expression))
#define ASK(condition) printf("%s? %s\n", #condition, (condition) ? "yes" : "no")

inline void section(const char *name)
{
    printf("\n[%s]\n", name);
}

inline void section(const char *name, size_t bytes)
{
    printf("\n[%s, %zu bytes]\n", name, bytes);
}

/* A driver function by its name, as the runtime finds it. */
template <typename Function> Function driver(const char *name)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    MUST(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
    if (result != cudaDriverEntryPointSuccess) {
        printf("%s: no such driver function\n", name);
        _Exit(1);
    }
    return reinterpret_cast<Function>(found);
}
#define DRIVER(name) driver<decltype(&name)>(#name)

inline const observer &driver_observer()
{
    static const observer o = {
        DRIVER(cuGetErrorName),
        DRIVER(cuPointerGetAttribute),
        driver<decltype(observer::range)>("cuMemGetAddressRange"),
        DRIVER(cuMemRetainAllocationHandle),
        DRIVER(cuCtxGetCurrent),
        DRIVER(cuDeviceGetDefaultMemPool),
    };
    return o;
}

inline const char *memory_type(cudaMemoryType type)
{
    switch (type) {
    case cudaMemoryTypeUnregistered:
        return "unregistered";
    case cudaMemoryTypeHost:
        return "host";
    case cudaMemoryTypeDevice:
        return "device";
    case cudaMemoryTypeManaged:
        return "managed";
    default:
        return "unknown";
    }
}

/* What the runtime says of an address in a block, or of any other address. */
inline void runtime_attributes(const void *block, const void *address)
{
    cudaPointerAttributes a = {};
    if (CALL(cudaPointerGetAttributes(&a, address)) != cudaSuccess) {
        return;
    }
    auto place = [block](const void *p) {
        return p == nullptr ? -1LL
                            : static_cast<long long>(static_cast<const char *>(p) -
                                                     static_cast<const char *>(block));
    };
    bool is_known = a.type != cudaMemoryTypeUnregistered;
    printf("%s memory of device %d, device pointer at %lld, host pointer at %lld\n",
           memory_type(a.type), a.device, is_known ? place(a.devicePointer) : -1,
           is_known ? place(a.hostPointer) : -1);
}

/* Everything that both APIs say of an address. */
inline void observe(const void *block, const void *address)
{
    runtime_attributes(block, address);
    observe_pointer(&driver_observer(), reinterpret_cast<CUdeviceptr>(block),
                    reinterpret_cast<CUdeviceptr>(address));
}

/* Whether every byte is `byte`; leaves no error behind. */
inline bool holds(const void *p, size_t bytes, int byte)
{
    std::vector<unsigned char> copy(bytes);
    if (cudaMemcpy(copy.data(), p, bytes, cudaMemcpyDefault) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    for (unsigned char c : copy) {
        if (c != byte) {
            return false;
        }
    }
    return true;
}

inline char *at(void *p, size_t offset)
{
    return static_cast<char *>(p) + offset;
}

inline cudaMemPool_t pool_make(int device = 0)
{
    cudaMemPool_t pool;
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = device;
    MUST(cudaMemPoolCreate(&pool, &props));
    return pool;
}

#endif
