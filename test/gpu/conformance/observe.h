/* SPDX-License-Identifier: MIT */
/* What programs of both APIs print of an address: every pointer attribute and the range, never an
 * address itself but where it lies relative to the block. For C11 and C++17. */
#ifndef VPMM_TEST_CONFORMANCE_OBSERVE_H
#define VPMM_TEST_CONFORMANCE_OBSERVE_H

#include <cuda.h>

#include <stdint.h>
#include <stdio.h>

/* The driver's functions, however the program came by them. */
struct observer {
    CUresult(CUDAAPI *error_name)(CUresult, const char **);
    CUresult(CUDAAPI *attribute)(void *, CUpointer_attribute, CUdeviceptr);
    CUresult(CUDAAPI *range)(CUdeviceptr *, size_t *, CUdeviceptr);
    CUresult(CUDAAPI *retain)(CUmemGenericAllocationHandle *, void *);
    CUresult(CUDAAPI *current)(CUcontext *);
    CUresult(CUDAAPI *standard_pool)(CUmemoryPool *, CUdevice);
};

static inline const char *observe_code(const struct observer *o, CUresult result)
{
    const char *name = NULL;
    return o->error_name(result, &name) == CUDA_SUCCESS && name ? name : "no such code";
}

/* Attributes whose value says the same in every run. */
static const struct observed_number {
    const char *name;
    CUpointer_attribute attribute;
} observed_numbers[] = {
    {"MEMORY_TYPE", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
    {"SYNC_MEMOPS", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS},
    {"IS_MANAGED", CU_POINTER_ATTRIBUTE_IS_MANAGED},
    {"DEVICE_ORDINAL", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
    {"IS_LEGACY_CUDA_IPC_CAPABLE", CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE},
    {"RANGE_SIZE", CU_POINTER_ATTRIBUTE_RANGE_SIZE},
    {"MAPPED", CU_POINTER_ATTRIBUTE_MAPPED},
    {"ALLOWED_HANDLE_TYPES", CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES},
    {"IS_GPU_DIRECT_RDMA_CAPABLE", CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE},
    {"ACCESS_FLAGS", CU_POINTER_ATTRIBUTE_ACCESS_FLAGS},
    {"MAPPING_SIZE", CU_POINTER_ATTRIBUTE_MAPPING_SIZE},
};

/* Attributes that are addresses. */
static const struct observed_number observed_places[] = {
    {"DEVICE_POINTER", CU_POINTER_ATTRIBUTE_DEVICE_POINTER},
    {"HOST_POINTER", CU_POINTER_ATTRIBUTE_HOST_POINTER},
    {"RANGE_START_ADDR", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR},
    {"MAPPING_BASE_ADDR", CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR},
};

/* Attributes that are unique: only whether there is one, and whether `block` has the same. */
static const struct observed_number observed_ids[] = {
    {"BUFFER_ID", CU_POINTER_ATTRIBUTE_BUFFER_ID},
    {"MEMORY_BLOCK_ID", CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID},
};

#define OBSERVED(table) (sizeof(table) / sizeof((table)[0]))

static inline void observe_place(uint64_t value, CUdeviceptr block)
{
    int64_t offset = (int64_t)(value - block);
    if (!value)
        printf(" null");
    else if (offset > -((int64_t)1 << 20) && offset < (int64_t)1 << 34)
        printf(" at %lld", (long long)offset);
    else
        printf(" elsewhere");
}

/* The address range, by its start relative to `block` and its size. */
static inline void observe_range(const struct observer *o, CUdeviceptr block, CUdeviceptr address)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    CUresult result = o->range(&base, &bytes, address);
    printf("range: %s", observe_code(o, result));
    if (result == CUDA_SUCCESS) {
        observe_place(base, block);
        printf(", %zu bytes", bytes);
    }
    printf("\n");
}

static inline void observe_owners(const struct observer *o, CUdeviceptr address)
{
    CUcontext current = NULL, owner = NULL;
    CUmemoryPool pool = NULL, standard = NULL;
    CUmemGenericAllocationHandle handle;
    o->current(&current);
    o->standard_pool(&standard, 0);
    CUresult result = o->attribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address);
    printf("CONTEXT: %s, %s\n", observe_code(o, result),
           !owner             ? "none"
           : owner == current ? "the current one"
                              : "another one");
    result = o->attribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address);
    printf("MEMPOOL_HANDLE: %s, %s\n", observe_code(o, result),
           !pool              ? "none"
           : pool == standard ? "the default one"
                              : "another one");
    printf("cuMemRetainAllocationHandle: %s\n",
           observe_code(o, o->retain(&handle, (void *)(uintptr_t)address)));
}

/* Everything the driver says of `address`, which lies in, or is, the block that starts at `block`.
 */
static inline void observe_pointer(const struct observer *o, CUdeviceptr block, CUdeviceptr address)
{
    observe_range(o, block, address);
    observe_owners(o, address);
    for (size_t i = 0; i < OBSERVED(observed_numbers); i++) {
        uint64_t value = 0;
        CUresult result = o->attribute(&value, observed_numbers[i].attribute, address);
        printf("%s: %s %llu\n", observed_numbers[i].name, observe_code(o, result),
               (unsigned long long)value);
    }
    for (size_t i = 0; i < OBSERVED(observed_places); i++) {
        uint64_t value = 0;
        CUresult result = o->attribute(&value, observed_places[i].attribute, address);
        printf("%s: %s", observed_places[i].name, observe_code(o, result));
        observe_place(value, block);
        printf("\n");
    }
    for (size_t i = 0; i < OBSERVED(observed_ids); i++) {
        uint64_t value = 0, of_block = 0;
        CUresult result = o->attribute(&value, observed_ids[i].attribute, address);
        o->attribute(&of_block, observed_ids[i].attribute, block);
        printf("%s: %s, %s, %s\n", observed_ids[i].name, observe_code(o, result),
               value ? "some" : "none", value == of_block ? "the block's" : "its own");
    }
}

#endif
