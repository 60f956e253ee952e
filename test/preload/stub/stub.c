/* SPDX-License-Identifier: MIT */
/* A driver of CUDA 13.0 by name only, for tests of look-ups: every name that the driver exports,
 * each function that a preload may care about at an address of its own, and cuGetProcAddress
 * answering by version and flags from a table written from cudaTypedefs.h. It knows nothing about
 * memory. Environment: STUB_CALLS, a file that gets the name of each watched function called;
 * STUB_RESULT, "name=code", what one of them answers. STUB_FORM: 5 (default), 4 or 0, how many
 * arguments the newest cuGetProcAddress has (0: the driver has none). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef STUB_FORM
#    define STUB_FORM 5
#endif
#define ANSWER_NOT_FOUND 500
#define ANSWER_NOT_SUPPORTED 801
#define FLAG_PER_THREAD 2

/* X(exported name, name asked for, first version, is the per-thread spelling, writes an address).
 * The last two are no names of a driver: an ABI of some CUDA to come, and code that
 * cuGetProcAddress answers with although another name is exported for the same ABI. */
#define WATCHED(X)                                                                                 \
    X(cuMemAlloc_v2, "cuMemAlloc", 3020, 0, 1)                                                     \
    X(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, 0, 1)                                           \
    X(cuMemAlloc, "cuMemAlloc", 2000, 0, 0)                                                        \
    X(cuMemAllocManaged, "cuMemAllocManaged", 6000, 0, 1)                                          \
    X(cuMemCreate, "cuMemCreate", 10020, 0, 1)                                                     \
    X(cuMemAllocAsync, "cuMemAllocAsync", 11020, 0, 1)                                             \
    X(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, 1, 1)                                        \
    X(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, 0, 1)                             \
    X(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, 1, 1)                        \
    X(cuMemFree, "cuMemFree", 2000, 0, 0)                                                          \
    X(cuMemFree_v2, "cuMemFree", 3020, 0, 0)                                                       \
    X(cuMemFreeAsync, "cuMemFreeAsync", 11020, 0, 0)                                               \
    X(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, 1, 0)                                          \
    X(cuMemGetInfo, "cuMemGetInfo", 2000, 0, 0)                                                    \
    X(cuMemGetInfo_v2, "cuMemGetInfo", 3020, 0, 0)                                                 \
    X(cuMemGetAddressRange, "cuMemGetAddressRange", 2000, 0, 0)                                    \
    X(cuMemGetAddressRange_v2, "cuMemGetAddressRange", 3020, 0, 0)                                 \
    X(cuPointerGetAttribute, "cuPointerGetAttribute", 4000, 0, 0)                                  \
    X(cuPointerGetAttributes, "cuPointerGetAttributes", 7000, 0, 0)                                \
    X(cuPointerSetAttribute, "cuPointerSetAttribute", 6000, 0, 0)                                  \
    X(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, 0, 0)                     \
    X(cuMemGetAccess, "cuMemGetAccess", 10020, 0, 0)                                               \
    X(cuMemSetAccess, "cuMemSetAccess", 10020, 0, 0)                                               \
    X(cuMemUnmap, "cuMemUnmap", 10020, 0, 0)                                                       \
    X(cuDeviceSetMemPool, "cuDeviceSetMemPool", 11020, 0, 0)                                       \
    X(cuMemSetMemPool, "cuMemSetMemPool", 13000, 0, 0)                                             \
    X(cuMemPoolSetAccess, "cuMemPoolSetAccess", 11020, 0, 0)                                       \
    X(cuStreamDestroy, "cuStreamDestroy", 2000, 0, 0)                                              \
    X(cuStreamDestroy_v2, "cuStreamDestroy", 4000, 0, 0)                                           \
    X(cuStreamBeginCapture, "cuStreamBeginCapture", 10000, 0, 0)                                   \
    X(cuStreamBeginCapture_ptsz, "cuStreamBeginCapture", 10000, 1, 0)                              \
    X(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, 0, 0)                                \
    X(cuStreamBeginCapture_v2_ptsz, "cuStreamBeginCapture", 10010, 1, 0)                           \
    X(cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph", 12030, 0, 0)                     \
    X(cuStreamBeginCaptureToGraph_ptsz, "cuStreamBeginCaptureToGraph", 12030, 1, 0)                \
    X(cuStreamEndCapture, "cuStreamEndCapture", 10000, 0, 0)                                       \
    X(cuStreamEndCapture_ptsz, "cuStreamEndCapture", 10000, 1, 0)                                  \
    X(cuArrayCreate_v2, "cuArrayCreate", 3020, 0, 0)                                               \
    X(cuArray3DCreate_v2, "cuArray3DCreate", 3020, 0, 0)                                           \
    X(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000, 0, 0)                                \
    X(cuModuleLoad, "cuModuleLoad", 2000, 0, 0)                                                    \
    X(cuModuleLoadData, "cuModuleLoadData", 2000, 0, 0)                                            \
    X(cuModuleLoadDataEx, "cuModuleLoadDataEx", 2010, 0, 0)                                        \
    X(cuModuleLoadFatBinary, "cuModuleLoadFatBinary", 2000, 0, 0)                                  \
    X(cuLibraryLoadData, "cuLibraryLoadData", 12000, 0, 0)                                         \
    X(cuLibraryLoadFromFile, "cuLibraryLoadFromFile", 12000, 0, 0)                                 \
    X(cuModuleGetFunction, "cuModuleGetFunction", 2000, 0, 0)                                      \
    X(cuLibraryGetModule, "cuLibraryGetModule", 12000, 0, 0)                                       \
    X(cuLibraryGetGlobal, "cuLibraryGetGlobal", 12000, 0, 0)                                       \
    X(cuLibraryGetManaged, "cuLibraryGetManaged", 12000, 0, 0)                                     \
    X(cuKernelGetFunction, "cuKernelGetFunction", 12000, 0, 0)                                     \
    X(cuFuncLoad, "cuFuncLoad", 12040, 0, 0)                                                       \
    X(cuCtxSetLimit, "cuCtxSetLimit", 3010, 0, 0)                                                  \
    X(cuGreenCtxStreamCreate, "cuGreenCtxStreamCreate", 12050, 0, 0)                               \
    X(cuStreamCreate, "cuStreamCreate", 2000, 0, 0)                                                \
    X(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", 5050, 0, 0)                        \
    X(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, 0, 0)                     \
    X(cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", 12000, 0, 0)                   \
    X(cuGraphInstantiateWithParams_ptsz, "cuGraphInstantiateWithParams", 12000, 1, 0)              \
    X(cuGraphUpload, "cuGraphUpload", 11010, 0, 0)                                                 \
    X(cuGraphUpload_ptsz, "cuGraphUpload", 11010, 1, 0)                                            \
    X(cuGraphLaunch, "cuGraphLaunch", 10000, 0, 0)                                                 \
    X(cuGraphLaunch_ptsz, "cuGraphLaunch", 10000, 1, 0)                                            \
    X(cuArrayCreate, "cuArrayCreate", 2000, 0, 0)                                                  \
    X(cuArray3DCreate, "cuArray3DCreate", 2000, 0, 0)                                              \
    X(cuCtxCreate, "cuCtxCreate", 2000, 0, 0)                                                      \
    X(cuCtxCreate_v2, "cuCtxCreate", 3020, 0, 0)                                                   \
    X(cuCtxCreate_v3, "cuCtxCreate", 11040, 0, 0)                                                  \
    X(cuCtxCreate_v4, "cuCtxCreate", 12050, 0, 0)                                                  \
    X(cuCtxDestroy, "cuCtxDestroy", 2000, 0, 0)                                                    \
    X(cuCtxDestroy_v2, "cuCtxDestroy", 4000, 0, 0)                                                 \
    X(cuCtxDetach, "cuCtxDetach", 2000, 0, 0)                                                      \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, 0, 0)                            \
    X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000, 0, 0)                          \
    X(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, 0, 0)                      \
    X(cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000, 0, 0)                              \
    X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, 0, 0)                          \
    X(cuGreenCtxCreate, "cuGreenCtxCreate", 12040, 0, 0)                                           \
    X(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040, 0, 0)                                         \
    X(cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess", 4000, 0, 0)                                  \
    X(cuCtxDisablePeerAccess, "cuCtxDisablePeerAccess", 4000, 0, 0)                                \
    X(stub_cuMemAlloc_to_come, "cuMemAlloc", 14000, 0, 1)                                          \
    X(stub_cuMemGetInfo_twin, "cuMemGetInfo", 12000, 0, 0)

static void record(const char *name)
{
    char line[128];
    const char *path = getenv("STUB_CALLS");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0644) : -1;
    int length = snprintf(line, sizeof line, "%s\n", name);
    if (fd < 0)
        return;
    if (write(fd, line, (size_t)length) != length)
        _exit(125);
    close(fd);
}

static int answer(const char *name)
{
    const char *set = getenv("STUB_RESULT");
    size_t length = strlen(name);
    return set && strncmp(set, name, length) == 0 && set[length] == '=' ? atoi(set + length + 1)
                                                                        : 0;
}

#define DEFINE(name, asked, version, is_per_thread, writes)                                        \
    int name(uint64_t *out, uint64_t a, uint64_t b, uint64_t c);                                   \
    int name(uint64_t *out, uint64_t a, uint64_t b, uint64_t c)                                    \
    {                                                                                              \
        (void)a, (void)b, (void)c;                                                                 \
        record(#name);                                                                             \
        int code = answer(#name);                                                                  \
        if ((writes) && code == 0 && out)                                                          \
            *out = 0x7f0000000000u;                                                                \
        return code;                                                                               \
    }
WATCHED(DEFINE)

int stub_other(void);
int stub_other(void)
{
    return ANSWER_NOT_SUPPORTED;
}
#define OTHER(name) int name(void) __attribute__((alias("stub_other")));
#include "names.def"

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    (void)flags;
    record("cuInit");
    return 0;
}

int cuDriverGetVersion(int *version_out);
int cuDriverGetVersion(int *version_out)
{
    *version_out = 13000;
    return 0;
}

int cuDeviceGetCount(int *n_out);
int cuDeviceGetCount(int *n_out)
{
    *n_out = 1;
    return 0;
}

int cuGetExportTable(const void **table_out, const void *id);
int cuGetExportTable(const void **table_out, const void *id)
{
    (void)id;
    *table_out = NULL;
    return ANSWER_NOT_SUPPORTED;
}

int cuGetErrorString(int code, const char **text_out);
int cuGetErrorString(int code, const char **text_out)
{
    (void)code;
    *text_out = "stub";
    return 0;
}

int cuGetErrorName(int code, const char **text_out);
int cuGetErrorName(int code, const char **text_out)
{
    return cuGetErrorString(code, text_out);
}

static int look_up(const char *symbol, void **function_out, int version, uint64_t flags)
    __attribute__((unused));

#if STUB_FORM >= 4
int cuGetProcAddress(const char *symbol, void **function_out, int version, uint64_t flags);
int cuGetProcAddress(const char *symbol, void **function_out, int version, uint64_t flags)
{
    return look_up(symbol, function_out, version, flags);
}
#endif
#if STUB_FORM >= 5
int cuGetProcAddress_v2(const char *symbol, void **function_out, int version, uint64_t flags,
                        int *status_out);
int cuGetProcAddress_v2(const char *symbol, void **function_out, int version, uint64_t flags,
                        int *status_out)
{
    int code = look_up(symbol, function_out, version, flags);
    if (status_out)
        *status_out = code == 0 ? 0 : 1;
    return code;
}
#endif

static const struct watched {
    const char *asked;
    int version, is_per_thread;
    int (*code)(uint64_t *, uint64_t, uint64_t, uint64_t);
} watched[] = {
#define ROW(name, asked, version, is_per_thread, writes) {asked, version, is_per_thread, name},
    WATCHED(ROW)};

static int is_other(const char *symbol)
{
    static const char *const names[] = {
#undef OTHER
#define OTHER(name) #name,
#include "names.def"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], symbol) == 0)
            return 1;
    }
    return 0;
}

/* The newest form not newer than `version`; among those of one version the spelling that `flags`
 * ask for. */
static void *find(const char *symbol, int version, int wants_per_thread)
{
    const struct watched *best = NULL;
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++) {
        const struct watched *row = &watched[i];
        if (strcmp(row->asked, symbol) != 0 || row->version > version)
            continue;
        if (row->is_per_thread && !wants_per_thread)
            continue;
        if (!best || row->version > best->version || row->is_per_thread > best->is_per_thread)
            best = row;
    }
    return best ? (void *)best->code : NULL;
}

static int look_up(const char *symbol, void **function_out, int version, uint64_t flags)
{
    static const struct {
        const char *name;
        void *code;
    } plain[] = {
        {"", (void *)stub_other},
        {"cuInit", (void *)cuInit},
        {"cuDriverGetVersion", (void *)cuDriverGetVersion},
        {"cuDeviceGetCount", (void *)cuDeviceGetCount},
        {"cuGetExportTable", (void *)cuGetExportTable},
        {"cuGetErrorString", (void *)cuGetErrorString},
        {"cuGetErrorName", (void *)cuGetErrorName},
    };
    void *found = find(symbol, version, (flags & FLAG_PER_THREAD) != 0);
    for (size_t i = 0; !found && i < sizeof plain / sizeof *plain; i++) {
        if (strcmp(plain[i].name, symbol) == 0)
            found = plain[i].code;
    }
#if STUB_FORM >= 4
    if (strcmp(symbol, "cuGetProcAddress") == 0)
        found = (void *)cuGetProcAddress;
#endif
#if STUB_FORM >= 5
    if (strcmp(symbol, "cuGetProcAddress") == 0 && version >= 12000)
        found = (void *)cuGetProcAddress_v2;
#endif
    if (!found && is_other(symbol))
        found = (void *)stub_other;
    *function_out = found;
    return found ? 0 : ANSWER_NOT_FOUND;
}
