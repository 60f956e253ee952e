/* SPDX-License-Identifier: MIT */
/* Answers what is known of an address. Must not know more of an address than CUDA tells. */
#include "sim/sim_internal.h"

#include <string.h>

/* What is known of one device address. */
struct found {
    const struct plain *plain;
    const struct mapping *mapping;
    const struct reservation *reservation;
    uint64_t granularity;
};

static bool find(struct sim *sim, CUdeviceptr address, struct found *found_out)
{
    *found_out = (struct found){
        .plain = space_plain(sim, address),
        .mapping = space_mapping(sim, address),
        .reservation = space_reservation(sim, address),
        .granularity = sim->config.granularity,
    };
    if (found_out->plain != NULL && found_out->plain->freed)
        found_out->plain = NULL;
    return found_out->plain != NULL || found_out->mapping != NULL;
}

/* An allocation, a mapping or a pinned range, and where it starts. */
static bool find_range(struct sim *sim, CUdeviceptr address, CUdeviceptr *base_out,
                       size_t *bytes_out)
{
    struct found found;
    const struct host_range *pinned = host_range_of(sim, address);
    if (pinned != NULL) {
        *base_out = pinned->address;
        *bytes_out = pinned->bytes;
    } else if (find(sim, address, &found)) {
        *base_out = found.plain != NULL ? found.plain->address : found.mapping->address;
        *bytes_out = found.plain != NULL ? found.plain->bytes : found.mapping->bytes;
    } else {
        return false;
    }
    return true;
}

CUresult sim_mem_get_address_range(struct sim *sim, CUdeviceptr address, CUdeviceptr *base_out,
                                   size_t *bytes_out)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    struct context *context;
    CUresult result = call_enter(sim, "cuMemGetAddressRange");
    if (result == CUDA_SUCCESS)
        result = context_now(sim, &context);
    if (result == CUDA_SUCCESS && !find_range(sim, address, &base, &bytes))
        result = CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS && base_out != NULL)
        *base_out = base;
    if (result == CUDA_SUCCESS && bytes_out != NULL)
        *bytes_out = bytes;
    return call_leave(sim, "cuMemGetAddressRange", result);
}

static void put_int(void *value_out, int value)
{
    memcpy(value_out, &value, sizeof value);
}

static void put_word(void *value_out, uint64_t value)
{
    memcpy(value_out, &value, sizeof value);
}

/* The attributes that are an int; false for the others. */
static bool int_attribute(const struct found *found, CUpointer_attribute attribute, int *value_out)
{
    const struct plain *plain = found->plain;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *value_out = CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *value_out = plain != NULL && plain->sync_memops;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *value_out = 0;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *value_out = plain == NULL || plain->pool == NULL;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *value_out = plain != NULL ? plain->device : found->mapping->handle->device;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *value_out = plain != NULL && plain->pool == NULL && plain->n_opens == 0;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *value_out = 1;
        return true;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *value_out = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        return true;
    default:
        return false;
    }
}

/* Those that are 64 bits wide. */
static bool word_attribute(const struct found *found, CUpointer_attribute attribute,
                           CUdeviceptr address, uint64_t *value_out)
{
    const struct plain *plain = found->plain;
    const struct mapping *mapping = found->mapping;
    bool is_plain = plain != NULL;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *value_out = is_plain && plain->context != NULL ? plain->context->handle : 0;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *value_out = address;
        return true;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *value_out = is_plain ? plain->id : mapping->handle->value;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *value_out = is_plain ? plain->address : found->reservation->address;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *value_out = is_plain ? plain->bytes : found->reservation->bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *value_out = is_plain ? 0 : (uint64_t)mapping->handle->prop.requestedHandleTypes;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *value_out = is_plain && plain->pool != NULL ? plain->pool->handle : 0;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *value_out = is_plain ? plain->bytes + -plain->bytes % found->granularity : mapping->bytes;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *value_out = is_plain ? plain->address : mapping->address;
        return true;
    default:
        return false;
    }
}

static CUresult attribute(const struct found *found, CUpointer_attribute attribute,
                          CUdeviceptr address, void *value_out)
{
    int value;
    uint64_t word;
    if (int_attribute(found, attribute, &value))
        put_int(value_out, value);
    else if (word_attribute(found, attribute, address, &word))
        put_word(value_out, word);
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* Pinned host memory is known as such; any other host address is not. */
static CUresult host_attribute(struct sim *sim, CUpointer_attribute attribute, CUdeviceptr address,
                               void *value_out)
{
    if (!host_is_pinned(sim, address, 1))
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        put_int(value_out, CU_MEMORYTYPE_HOST);
    else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
             attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER)
        put_word(value_out, address);
    else if (attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED)
        put_int(value_out, 0);
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult sim_pointer_get_attribute(struct sim *sim, CUpointer_attribute wanted, CUdeviceptr address,
                                   void *value_out)
{
    struct found found;
    CUresult result = call_enter(sim, "cuPointerGetAttribute");
    if (result == CUDA_SUCCESS && value_out == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && !space_is_device(address))
        result = host_attribute(sim, wanted, address, value_out);
    else if (result == CUDA_SUCCESS)
        result = find(sim, address, &found) ? attribute(&found, wanted, address, value_out)
                                            : CUDA_ERROR_INVALID_VALUE;
    return call_leave(sim, "cuPointerGetAttribute", result);
}

CUresult sim_pointer_set_attribute(struct sim *sim, CUpointer_attribute wanted, CUdeviceptr address,
                                   const void *value)
{
    struct plain *plain;
    CUresult result = call_enter(sim, "cuPointerSetAttribute");
    plain = space_plain(sim, address);
    if (result == CUDA_SUCCESS && value != NULL && plain == NULL &&
        space_mapping(sim, address) != NULL)
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (result == CUDA_SUCCESS && (value == NULL || wanted != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
                                   plain == NULL || plain->freed))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        plain->sync_memops = *(const unsigned *)value != 0;
    return call_leave(sim, "cuPointerSetAttribute", result);
}
