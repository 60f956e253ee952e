/* SPDX-License-Identifier: MIT */
/* Unmaps ranges, and gives devices access to mappings and memory pools. Must not unmap a part of a
 * mapping or change its access, because the driver refuses that. */
#include "sim/sim_internal.h"

/* Whether [address, address + bytes) is one run of whole mappings of one reservation; counts them.
 */
static CUresult range_check(struct sim *sim, const char *name, CUdeviceptr address, uint64_t bytes,
                            uint64_t *n_out)
{
    const struct reservation *reservation = space_reservation(sim, address);
    CUdeviceptr at = address;
    uint64_t n = 0;
    if (reservation == NULL || bytes == 0 ||
        bytes > reservation->address + reservation->bytes - address)
        return CUDA_ERROR_INVALID_VALUE;
    while (at < address + bytes) {
        const struct mapping *mapping = space_mapping(sim, at);
        if (mapping == NULL || mapping->address != at || mapping->bytes > address + bytes - at) {
            misuse(sim, SIM_UNMAP_PART, "%s(%#llx, %llu): at %#llx there is %s", name,
                   (unsigned long long)address, (unsigned long long)bytes, (unsigned long long)at,
                   mapping == NULL ? "no mapping" : "part of a mapping");
            return CUDA_ERROR_INVALID_VALUE;
        }
        at += mapping->bytes;
        n++;
    }
    *n_out = n;
    return CUDA_SUCCESS;
}

/* Whether a range lies in one reservation and holds no mapping. */
static bool is_empty(struct sim *sim, CUdeviceptr address, uint64_t bytes)
{
    const struct reservation *reservation = space_reservation(sim, address);
    if (reservation == NULL || bytes == 0 ||
        bytes > reservation->address + reservation->bytes - address)
        return false;
    for (CUdeviceptr at = address; at < address + bytes; at += sim->config.granularity)
        if (space_mapping(sim, at) != NULL)
            return false;
    return true;
}

static CUresult unmap(struct sim *sim, CUdeviceptr address, uint64_t bytes, uint64_t *n_out)
{
    CUresult result = range_check(sim, "cuMemUnmap", address, bytes, n_out);
    if (result != CUDA_SUCCESS)
        return is_empty(sim, address, bytes) ? CUDA_SUCCESS : result;
    const struct op *user = op_using(sim, address, bytes);
    if (user != NULL)
        misuse(sim, SIM_UNMAP_IN_USE, "cuMemUnmap(%#llx, %llu) while queued work (%s) uses it",
               (unsigned long long)address, (unsigned long long)bytes, user->work.name);
    while (bytes > 0) {
        struct mapping *mapping = space_mapping(sim, address);
        address += mapping->bytes;
        bytes -= mapping->bytes;
        mapping_end(sim, mapping);
    }
    return CUDA_SUCCESS;
}

CUresult sim_mem_unmap(struct sim *sim, CUdeviceptr address, size_t bytes)
{
    uint64_t n = 0;
    CUresult result = call_enter(sim, "cuMemUnmap");
    if (result == CUDA_SUCCESS)
        result = unmap(sim, address, bytes, &n);
    return call_leave_priced(sim, "cuMemUnmap", result, n, bytes);
}

static CUresult descriptions_check(const struct sim *sim, const CUmemAccessDesc *accesses, size_t n)
{
    if (accesses == NULL || n == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++) {
        if (accesses[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            return CUDA_ERROR_NOT_SUPPORTED;
        if (accesses[i].location.id < 0 || accesses[i].location.id >= sim->config.n_devices)
            return CUDA_ERROR_INVALID_DEVICE;
    }
    return CUDA_SUCCESS;
}

static void masks_set(unsigned *readers, unsigned *writers, const CUmemAccessDesc *access)
{
    unsigned device = 1u << access->location.id;
    *readers &= ~device;
    *writers &= ~device;
    if ((access->flags & CU_MEM_ACCESS_FLAGS_PROT_READ) != 0)
        *readers |= device;
    if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        *writers |= device;
}

static bool peers_allow(const struct sim *sim, const struct mapping *mapping,
                        const CUmemAccessDesc *accesses, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (accesses[i].location.id != mapping->handle->device && !sim->config.has_peers)
            return mapping->handle->is_host;
    return true;
}

static CUresult set_access(struct sim *sim, CUdeviceptr address, uint64_t bytes,
                           const CUmemAccessDesc *accesses, size_t n, uint64_t *n_handles_out)
{
    uint64_t n_new = 0;
    TRY(descriptions_check(sim, accesses, n));
    TRY(range_check(sim, "cuMemSetAccess", address, bytes, n_handles_out));
    for (CUdeviceptr at = address; at < address + bytes;) {
        const struct mapping *mapping = space_mapping(sim, at);
        if (!peers_allow(sim, mapping, accesses, n))
            return CUDA_ERROR_INVALID_DEVICE;
        if ((mapping->readers | mapping->writers) == 0)
            n_new++;
        at += mapping->bytes;
    }
    if (sim->n_accessible + n_new > sim->config.mappings_max)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (CUdeviceptr at = address; at < address + bytes;) {
        struct mapping *mapping = space_mapping(sim, at);
        bool had = (mapping->readers | mapping->writers) != 0;
        for (size_t i = 0; i < n; i++)
            masks_set(&mapping->readers, &mapping->writers, &accesses[i]);
        bool has = (mapping->readers | mapping->writers) != 0;
        sim->n_accessible += (uint64_t)has - (uint64_t)had;
        at += mapping->bytes;
    }
    return CUDA_SUCCESS;
}

CUresult sim_mem_set_access(struct sim *sim, CUdeviceptr address, size_t bytes,
                            const CUmemAccessDesc *accesses, size_t n)
{
    uint64_t n_handles = 0;
    CUresult result = call_enter(sim, "cuMemSetAccess");
    if (result == CUDA_SUCCESS)
        result = set_access(sim, address, bytes, accesses, n, &n_handles);
    return call_leave_priced(sim, "cuMemSetAccess", result, n_handles, bytes);
}

static CUmemAccess_flags mask_flags(unsigned readers, unsigned writers, int device)
{
    if ((writers & 1u << device) != 0)
        return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return (readers & 1u << device) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                         : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

static bool is_device(const struct sim *sim, const CUmemLocation *location)
{
    return location != NULL && location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id >= 0 &&
           location->id < sim->config.n_devices;
}

/* Memory that the program did not map itself has no flags (measured on driver 580). */
static CUresult get_access(struct sim *sim, CUdeviceptr address, const CUmemLocation *location,
                           unsigned long long *flags_out)
{
    const struct mapping *mapping = space_mapping(sim, address);
    const struct plain *plain = space_plain(sim, address);
    if (flags_out == NULL || location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_device(sim, location))
        return CUDA_ERROR_INVALID_DEVICE;
    if (mapping == NULL && (plain == NULL || plain->freed))
        return CUDA_ERROR_INVALID_VALUE;
    *flags_out = mapping == NULL ? CU_MEM_ACCESS_FLAGS_PROT_NONE
                                 : mask_flags(mapping->readers, mapping->writers, location->id);
    return CUDA_SUCCESS;
}

CUresult sim_mem_get_access(struct sim *sim, CUdeviceptr address, const CUmemLocation *location,
                            unsigned long long *flags_out)
{
    CUresult result = call_enter(sim, "cuMemGetAccess");
    if (result == CUDA_SUCCESS)
        result = get_access(sim, address, location, flags_out);
    return call_leave(sim, "cuMemGetAccess", result);
}

CUresult sim_mem_pool_set_access(struct sim *sim, CUmemoryPool handle,
                                 const CUmemAccessDesc *accesses, size_t n)
{
    struct pool *pool = NULL;
    CUresult result = call_enter(sim, "cuMemPoolSetAccess");
    if (result == CUDA_SUCCESS)
        result = pool_of(sim, handle, &pool);
    if (result == CUDA_SUCCESS)
        result = descriptions_check(sim, accesses, n);
    for (size_t i = 0; result == CUDA_SUCCESS && i < n; i++) {
        bool own = accesses[i].location.id == pool->device;
        bool keeps_own = accesses[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (own ? !keeps_own : !sim->config.has_peers)
            result = CUDA_ERROR_INVALID_DEVICE;
        else
            masks_set(&pool->readers, &pool->writers, &accesses[i]);
    }
    return call_leave(sim, "cuMemPoolSetAccess", result);
}

CUresult sim_mem_pool_get_access(struct sim *sim, CUmemoryPool handle,
                                 const CUmemLocation *location, CUmemAccess_flags *flags_out)
{
    struct pool *pool = NULL;
    CUresult result = call_enter(sim, "cuMemPoolGetAccess");
    if (result == CUDA_SUCCESS)
        result = pool_of(sim, handle, &pool);
    if (result == CUDA_SUCCESS && !is_device(sim, location))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *flags_out = mask_flags(pool->readers, pool->writers, location->id);
    return call_leave(sim, "cuMemPoolGetAccess", result);
}
