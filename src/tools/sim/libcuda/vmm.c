/* SPDX-License-Identifier: MIT */
/* Virtual memory management. Must not keep anything between two calls: the machine does. */
#include "sim/libcuda/libcuda_machine.h"

static CUresult granularity(struct sim *sim, size_t *bytes_out, const CUmemAllocationProp *prop,
                            CUmemAllocationGranularity_flags option)
{
    if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
        option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_mem_get_allocation_granularity(sim, prop, bytes_out);
}

CALL(cuMemGetAllocationGranularity,
     (size_t * bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option),
     granularity(sim, bytes, prop, option))
CALL(cuMemAddressReserve,
     (CUdeviceptr * address, size_t bytes, size_t alignment, CUdeviceptr wish,
      unsigned long long flags),
     sim_mem_address_reserve(sim, bytes, alignment, wish, flags, address))
CALL(cuMemAddressFree, (CUdeviceptr address, size_t bytes),
     sim_mem_address_free(sim, address, bytes))
CALL(cuMemCreate,
     (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *prop,
      unsigned long long flags),
     sim_mem_create(sim, bytes, prop, flags, handle))
CALL(cuMemRelease, (CUmemGenericAllocationHandle handle), sim_mem_release(sim, handle))
CALL(cuMemMap,
     (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
      unsigned long long flags),
     sim_mem_map(sim, address, bytes, offset, handle, flags))
CALL(cuMemUnmap, (CUdeviceptr address, size_t bytes), sim_mem_unmap(sim, address, bytes))
CALL(cuMemSetAccess, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *accesses, size_t n),
     sim_mem_set_access(sim, address, bytes, accesses, n))
CALL(cuMemGetAccess,
     (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address),
     sim_mem_get_access(sim, address, location, flags))
CALL(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void *address),
     sim_mem_retain_allocation_handle(sim, simcuda_address(address), handle))
CALL(cuMemGetAllocationPropertiesFromHandle,
     (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle),
     sim_mem_get_allocation_properties(sim, handle, prop))
