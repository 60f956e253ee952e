/* SPDX-License-Identifier: MIT */
/* How the conformance programs of the driver API speak: as the truth programs do, with every size
 * and, of an address, everything that can be asked. A call that a driver lacks is left out. */
#ifndef VPMM_TEST_CONFORMANCE_DRIVER_H
#define VPMM_TEST_CONFORMANCE_DRIVER_H

#include "../../programs/truth.h"
#include "observe.h"

#include <dlfcn.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Below a page, one byte below, a page, not a whole number of pages, and many. */
static const size_t sizes[] = {100, 2 * MIB - 1, 2 * MIB, 5 * MIB + 13, 64 * MIB};

static inline void part(const char *name, size_t bytes)
{
    printf("\n[%s, %zu bytes]\n", name, bytes);
}

static const struct observer observer = {
    .error_name = cuGetErrorName,
    .attribute = cuPointerGetAttribute,
    .range = cuMemGetAddressRange,
    .retain = cuMemRetainAllocationHandle,
    .current = cuCtxGetCurrent,
    .standard_pool = cuDeviceGetDefaultMemPool,
};

static inline void observe(CUdeviceptr block, CUdeviceptr address)
{
    observe_pointer(&observer, block, address);
}

static inline CUmemoryPool pool_make(int device, size_t most_bytes)
{
    CUmemoryPool pool;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                            .maxSize = most_bytes};
    MUST(cuMemPoolCreate(&pool, &props));
    return pool;
}

#endif
