/* SPDX-License-Identifier: MIT */
/* cuGetProcAddress in both forms, by name, version and flags; cuGetExportTable, which has nothing
 * to give. Must not find what is newer than the simulated driver. */
#define _GNU_SOURCE
#include "sim/libcuda/libcuda_machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* CUDA 7.0 brought the per-thread default stream. */
#define PER_THREAD_SINCE 7000

typedef void (*function)(void);

struct symbol {
    const char *name;
    int version;
    function plain, per_thread; /* per_thread NULL: the same as plain */
};

static const struct symbol symbols[] = {
#define SYMBOL(name, version, spelling) {#name, version, (function)(spelling), NULL},
#define SYMBOL_PAIR(name, version, spelling, per_thread)                                           \
    {#name, version, (function)(spelling), (function)(per_thread)},
#include "sim/libcuda/symbols.def"
#undef SYMBOL
#undef SYMBOL_PAIR
};

static CUresult stub(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static void note(const char *name, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult status)
{
    char line[192];
    int n = snprintf(line, sizeof(line), "%s %d %llu %d\n", *name ? name : "\"\"", version,
                     (unsigned long long)flags, (int)status);
    int file = open(simcuda_lookups_file(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        return;
    if (n > 0 && write(file, line, (size_t)n) != n)
        fprintf(stderr, "simulated driver: cannot write to %s\n", simcuda_lookups_file());
    close(file);
}

static CUdriverProcAddressQueryResult find(const char *name, int version, cuuint64_t flags,
                                           function *found_out)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const struct symbol *best = NULL;
    *found_out = NULL;
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        if (strcmp(symbols[i].name, name) != 0 || symbols[i].version > simcuda_version())
            continue;
        status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        if (symbols[i].version <= version)
            best = &symbols[i];
    }
    if (best) {
        bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0 &&
                          version >= PER_THREAD_SINCE && best->per_thread;
        *found_out = per_thread ? best->per_thread : best->plain;
    } else if (simcuda_stubs() && strncmp(name, "cu", 2) == 0) {
        *found_out = (function)stub;
    }
    return *found_out ? CU_GET_PROC_ADDRESS_SUCCESS : status;
}

/* A name that is not found is a success with a null function. */
CUresult CUDAAPI cuGetProcAddress_v2(const char *name, void **function_out, int version,
                                     cuuint64_t flags, CUdriverProcAddressQueryResult *status_out)
{
    function found;
    if (!name || !function_out || version > simcuda_version() ||
        flags > (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
        return CUDA_ERROR_INVALID_VALUE;
    CUdriverProcAddressQueryResult status = find(name, version, flags, &found);
    memcpy(function_out, &found, sizeof(found));
    if (status_out)
        *status_out = status;
    if (simcuda_lookups_file())
        note(name, version, flags, status);
    return CUDA_SUCCESS;
}

/* The form of CUDA 11.3, without a status: a name that is not found is an error. */
CUresult CUDAAPI cuGetProcAddress(const char *name, void **function_out, int version,
                                  cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    CUresult result = cuGetProcAddress_v2(name, function_out, version, flags, &status);
    if (result == CUDA_SUCCESS && status != CU_GET_PROC_ADDRESS_SUCCESS)
        return CUDA_ERROR_NOT_FOUND;
    return result;
}

CUresult CUDAAPI cuGetExportTable(const void **table_out, const CUuuid *id)
{
    if (!table_out || !id)
        return CUDA_ERROR_INVALID_VALUE;
    *table_out = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
