/* SPDX-License-Identifier: MIT */
/* Pinned host memory. Must not free it while copies of the current context may still use it. */
#define _GNU_SOURCE
#include "sim/sim_internal.h"

#include <stdlib.h>

static struct host_range **range_find(struct sim *sim, uintptr_t address)
{
    struct host_range **at = &sim->host_ranges;
    while (*at != NULL && (address < (*at)->address || address - (*at)->address >= (*at)->bytes))
        at = &(*at)->next;
    return at;
}

const struct host_range *host_range_of(struct sim *sim, uintptr_t address)
{
    return *range_find(sim, address);
}

bool host_is_pinned(struct sim *sim, uintptr_t address, size_t bytes)
{
    const struct host_range *range = *range_find(sim, address);
    return range != NULL && bytes <= range->address + range->bytes - address;
}

static void range_add(struct sim *sim, uintptr_t address, size_t bytes, bool allocated)
{
    struct host_range *range = allocate(sizeof *range);
    *range = (struct host_range){address, bytes, allocated, sim->host_ranges};
    sim->host_ranges = range;
}

static CUresult range_remove(struct sim *sim, void *memory, bool allocated)
{
    struct host_range **at = range_find(sim, (uintptr_t)memory);
    struct host_range *range = *at;
    if (range == NULL || range->address != (uintptr_t)memory || range->allocated != allocated)
        return allocated ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    *at = range->next;
    if (allocated)
        free(memory);
    free(range);
    return CUDA_SUCCESS;
}

CUresult sim_mem_host_alloc(struct sim *sim, size_t bytes, unsigned flags, void **memory_out)
{
    struct context *context;
    CUresult result = call_enter(sim, "cuMemHostAlloc");
    if (result == CUDA_SUCCESS)
        result = context_now(sim, &context);
    if (result == CUDA_SUCCESS && (flags > 7 || memory_out == NULL || bytes == 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        void *memory = NULL;
        if (posix_memalign(&memory, 4096, bytes) != 0) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            range_add(sim, (uintptr_t)memory, bytes, true);
            *memory_out = memory;
        }
    }
    return call_leave_priced(sim, "cuMemHostAlloc", result, 0, bytes);
}

/* Copies may still use the memory: waits for the current context, as the driver does. */
CUresult sim_mem_free_host(struct sim *sim, void *memory)
{
    struct context *context;
    CUresult result = call_enter(sim, "cuMemFreeHost");
    if (result == CUDA_SUCCESS)
        result = context_now(sim, &context);
    if (result == CUDA_SUCCESS)
        result = op_wait_context(sim, context);
    if (result == CUDA_SUCCESS)
        result = range_remove(sim, memory, true);
    return call_leave(sim, "cuMemFreeHost", result);
}

CUresult sim_mem_host_register(struct sim *sim, void *memory, size_t bytes, unsigned flags)
{
    CUresult result = call_enter(sim, "cuMemHostRegister");
    if (result == CUDA_SUCCESS && (memory == NULL || bytes == 0 || flags > 15))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && *range_find(sim, (uintptr_t)memory) != NULL)
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (result == CUDA_SUCCESS)
        range_add(sim, (uintptr_t)memory, bytes, false);
    return call_leave(sim, "cuMemHostRegister", result);
}

CUresult sim_mem_host_unregister(struct sim *sim, void *memory)
{
    CUresult result = call_enter(sim, "cuMemHostUnregister");
    if (result == CUDA_SUCCESS)
        result = range_remove(sim, memory, false);
    return call_leave(sim, "cuMemHostUnregister", result);
}
