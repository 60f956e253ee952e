/* SPDX-License-Identifier: MIT */
/* Address space, physical memory and mappings of it. Must not give memory back while a handle or a
 * mapping still holds it. */
#define _GNU_SOURCE
#include "sim/sim_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define VMM_BYTES ((uint64_t)1 << 47)

static CUresult vmm_enter(struct sim *sim, const char *name)
{
    CUresult result = call_enter(sim, name);
    if (result == CUDA_SUCCESS && !sim->config.has_vmm)
        return CUDA_ERROR_NOT_SUPPORTED;
    return result;
}

static bool is_whole(const struct sim *sim, uint64_t bytes)
{
    return bytes != 0 && bytes % sim->config.granularity == 0;
}

bool device_charge(struct sim *sim, int device, uint64_t bytes)
{
    struct device *charged = &sim->devices[device];
    if (bytes > sim->config.device_bytes - charged->used)
        return false;
    charged->used += bytes;
    if (charged->used > charged->peak)
        charged->peak = charged->used;
    return true;
}

void device_refund(struct sim *sim, int device, uint64_t bytes)
{
    sim->devices[device].used -= bytes;
}

/* The first gap that fits, in address order; `index_out` is where the new one stands in the list.
 */
static bool gap_find(const struct sim *sim, uint64_t bytes, uint64_t alignment,
                     CUdeviceptr *address_out, size_t *index_out)
{
    CUdeviceptr at = SIM_ADDRESS_LOW;
    for (size_t i = 0;; i++) {
        at = (at + alignment - 1) & ~(alignment - 1);
        CUdeviceptr end =
            i < sim->n_reservations ? sim->reservations[i]->address : SIM_ADDRESS_LOW + VMM_BYTES;
        if (at <= end && end - at >= bytes) {
            *address_out = at;
            *index_out = i;
            return true;
        }
        if (i == sim->n_reservations)
            return false;
        at = end + sim->reservations[i]->bytes;
    }
}

static bool wish_fits(const struct sim *sim, CUdeviceptr wish, uint64_t bytes, size_t *index_out)
{
    if (wish < SIM_ADDRESS_LOW || wish % sim->config.granularity != 0 ||
        wish + bytes > SIM_ADDRESS_LOW + VMM_BYTES)
        return false;
    size_t i = 0;
    while (i < sim->n_reservations && sim->reservations[i]->address < wish)
        i++;
    if (i > 0 && sim->reservations[i - 1]->address + sim->reservations[i - 1]->bytes > wish)
        return false;
    *index_out = i;
    return i == sim->n_reservations || wish + bytes <= sim->reservations[i]->address;
}

static CUresult reserve(struct sim *sim, uint64_t bytes, uint64_t alignment, CUdeviceptr wish,
                        CUdeviceptr *address_out)
{
    uint64_t granularity = sim->config.granularity;
    size_t index = 0;
    CUdeviceptr address = wish;
    if (!is_whole(sim, bytes) || (alignment & (alignment - 1)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > sim->config.va_largest_bytes || bytes > sim->config.va_bytes - sim->reserved_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (alignment < granularity)
        alignment = granularity;
    if (!wish_fits(sim, wish, bytes, &index) && !gap_find(sim, bytes, alignment, &address, &index))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct reservation *reservation = allocate(sizeof *reservation);
    size_t table = bytes / granularity * sizeof *reservation->entries;
    reservation->entries = mmap(NULL, table, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reservation->entries == MAP_FAILED) {
        free(reservation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    reservation->address = address;
    reservation->bytes = bytes;
    sim->reservations = grow(sim->reservations, sizeof *sim->reservations, sim->n_reservations,
                             &sim->reservations_room);
    memmove(&sim->reservations[index + 1], &sim->reservations[index],
            (sim->n_reservations - index) * sizeof *sim->reservations);
    sim->reservations[index] = reservation;
    sim->n_reservations++;
    sim->reserved_bytes += bytes;
    *address_out = address;
    return CUDA_SUCCESS;
}

CUresult sim_mem_address_reserve(struct sim *sim, size_t bytes, size_t alignment, CUdeviceptr wish,
                                 uint64_t flags, CUdeviceptr *address_out)
{
    CUresult result = vmm_enter(sim, "cuMemAddressReserve");
    if (result == CUDA_SUCCESS)
        result = flags != 0 || address_out == NULL
                     ? CUDA_ERROR_INVALID_VALUE
                     : reserve(sim, bytes, alignment, wish, address_out);
    return call_leave_priced(sim, "cuMemAddressReserve", result, 0, bytes);
}

static void reservation_finish(struct sim *sim, struct reservation *reservation)
{
    munmap(reservation->entries,
           reservation->bytes / sim->config.granularity * sizeof *reservation->entries);
    free(reservation);
}

static CUresult address_free(struct sim *sim, CUdeviceptr address, uint64_t bytes)
{
    struct reservation *reservation = space_reservation(sim, address);
    if (reservation == NULL || reservation->address != address || reservation->bytes != bytes) {
        misuse(sim, SIM_DOUBLE_RELEASE, "cuMemAddressFree(%#llx, %llu) is no whole reservation",
               (unsigned long long)address, (unsigned long long)bytes);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (reservation->n_mappings != 0) {
        misuse(sim, SIM_FREE_IN_USE, "cuMemAddressFree(%#llx) with %llu mappings",
               (unsigned long long)address, (unsigned long long)reservation->n_mappings);
        return CUDA_ERROR_INVALID_VALUE;
    }
    size_t index = 0;
    while (sim->reservations[index] != reservation)
        index++;
    sim->n_reservations--;
    memmove(&sim->reservations[index], &sim->reservations[index + 1],
            (sim->n_reservations - index) * sizeof *sim->reservations);
    sim->reserved_bytes -= bytes;
    reservation_finish(sim, reservation);
    return CUDA_SUCCESS;
}

CUresult sim_mem_address_free(struct sim *sim, CUdeviceptr address, size_t bytes)
{
    CUresult result = vmm_enter(sim, "cuMemAddressFree");
    if (result == CUDA_SUCCESS)
        result = address_free(sim, address, bytes);
    return call_leave_priced(sim, "cuMemAddressFree", result, 0, bytes);
}

static CUresult prop_check(const struct sim *sim, const CUmemAllocationProp *prop)
{
    if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return prop->location.id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
    if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (prop->location.id < 0 || prop->location.id >= sim->config.n_devices)
        return CUDA_ERROR_INVALID_DEVICE;
    return CUDA_SUCCESS;
}

static CUresult create(struct sim *sim, uint64_t bytes, const CUmemAllocationProp *prop,
                       CUmemGenericAllocationHandle *handle_out)
{
    TRY(prop_check(sim, prop));
    if (!is_whole(sim, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    bool is_host = prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
    if (!is_host && !device_charge(sim, prop->location.id, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct handle *handle = allocate(sizeof *handle);
    handle->is_host = is_host;
    handle->device = prop->location.id;
    handle->prop = *prop;
    handle->held = 1;
    handle->store.bytes = bytes;
    handle->value = object_add(sim, OBJECT_HANDLE, handle);
    sim->n_handles++;
    *handle_out = handle->value;
    return CUDA_SUCCESS;
}

CUresult sim_mem_create(struct sim *sim, size_t bytes, const CUmemAllocationProp *prop,
                        uint64_t flags, CUmemGenericAllocationHandle *handle_out)
{
    CUresult result = vmm_enter(sim, "cuMemCreate");
    if (result == CUDA_SUCCESS)
        result = flags != 0 || handle_out == NULL ? CUDA_ERROR_INVALID_VALUE
                                                  : create(sim, bytes, prop, handle_out);
    return call_leave_priced(sim, "cuMemCreate", result, 1, bytes);
}

static void handle_end_if_unused(struct sim *sim, struct handle *handle)
{
    if (handle->held != 0 || handle->n_mapped != 0)
        return;
    if (!handle->is_imported && !handle->is_host)
        device_refund(sim, handle->device, handle->store.bytes);
    store_finish(&handle->store);
    sim->n_handles--;
    free(handle);
}

static CUresult handle_of(struct sim *sim, CUmemGenericAllocationHandle value, const char *name,
                          struct handle **handle_out)
{
    if (object_find(sim, OBJECT_HANDLE, value, handle_out) == OBJECT_LIVE)
        return CUDA_SUCCESS;
    misuse(sim, SIM_DOUBLE_RELEASE, "%s of the handle %#llx, which is not live", name,
           (unsigned long long)value);
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult release(struct sim *sim, CUmemGenericAllocationHandle value)
{
    struct handle *handle;
    TRY(handle_of(sim, value, "cuMemRelease", &handle));
    if (--handle->held == 0) {
        object_retire(sim, value);
        handle_end_if_unused(sim, handle);
    }
    return CUDA_SUCCESS;
}

CUresult sim_mem_release(struct sim *sim, CUmemGenericAllocationHandle handle)
{
    CUresult result = vmm_enter(sim, "cuMemRelease");
    if (result == CUDA_SUCCESS)
        result = release(sim, handle);
    return call_leave_priced(sim, "cuMemRelease", result, 1, 0);
}

/* A handle whose value was released gets a new one while its memory lives on in a mapping. */
static CUresult retain(struct sim *sim, CUdeviceptr address,
                       CUmemGenericAllocationHandle *handle_out)
{
    const struct mapping *mapping = space_mapping(sim, address);
    if (mapping == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct handle *handle = mapping->handle;
    if (handle->held++ == 0)
        handle->value = object_add(sim, OBJECT_HANDLE, handle);
    *handle_out = handle->value;
    return CUDA_SUCCESS;
}

CUresult sim_mem_retain_allocation_handle(struct sim *sim, CUdeviceptr address,
                                          CUmemGenericAllocationHandle *handle_out)
{
    CUresult result = vmm_enter(sim, "cuMemRetainAllocationHandle");
    if (result == CUDA_SUCCESS)
        result = retain(sim, address, handle_out);
    return call_leave(sim, "cuMemRetainAllocationHandle", result);
}

CUresult sim_mem_get_allocation_properties(struct sim *sim, CUmemGenericAllocationHandle value,
                                           CUmemAllocationProp *prop_out)
{
    struct handle *handle = NULL;
    CUresult result = vmm_enter(sim, "cuMemGetAllocationPropertiesFromHandle");
    if (result == CUDA_SUCCESS)
        result = handle_of(sim, value, "cuMemGetAllocationPropertiesFromHandle", &handle);
    if (result == CUDA_SUCCESS)
        *prop_out = handle->prop;
    return call_leave(sim, "cuMemGetAllocationPropertiesFromHandle", result);
}

CUresult sim_mem_get_allocation_granularity(struct sim *sim, const CUmemAllocationProp *prop,
                                            size_t *bytes_out)
{
    CUresult result = vmm_enter(sim, "cuMemGetAllocationGranularity");
    if (result == CUDA_SUCCESS)
        result = prop_check(sim, prop);
    if (result == CUDA_SUCCESS)
        *bytes_out = sim->config.granularity;
    return call_leave(sim, "cuMemGetAllocationGranularity", result);
}

static void mapping_place(const struct sim *sim, struct reservation *reservation,
                          CUdeviceptr address, uint64_t bytes, struct mapping *mapping)
{
    uint64_t first = (address - reservation->address) / sim->config.granularity;
    uint64_t n = bytes / sim->config.granularity;
    for (uint64_t i = first; i < first + n; i++)
        reservation->entries[i] = mapping;
}

static CUresult map(struct sim *sim, CUdeviceptr address, uint64_t bytes, uint64_t offset,
                    CUmemGenericAllocationHandle value)
{
    struct handle *handle;
    TRY(handle_of(sim, value, "cuMemMap", &handle));
    struct reservation *reservation = space_reservation(sim, address);
    uint64_t granularity = sim->config.granularity;
    if (reservation == NULL || address % granularity != 0 || !is_whole(sim, bytes) ||
        bytes > reservation->address + reservation->bytes - address)
        return CUDA_ERROR_INVALID_VALUE;
    if (offset != 0 || bytes != handle->store.bytes)
        return CUDA_ERROR_NOT_SUPPORTED;
    uint64_t first = (address - reservation->address) / granularity;
    for (uint64_t i = first; i < first + bytes / granularity; i++)
        if (reservation->entries[i] != NULL) {
            misuse(sim, SIM_MAP_OVER, "cuMemMap(%#llx, %llu) over the mapping at %#llx",
                   (unsigned long long)address, (unsigned long long)bytes,
                   (unsigned long long)reservation->entries[i]->address);
            return CUDA_ERROR_INVALID_VALUE;
        }
    struct mapping *mapping = allocate(sizeof *mapping);
    *mapping = (struct mapping){.address = address, .bytes = bytes, .handle = handle};
    mapping_place(sim, reservation, address, bytes, mapping);
    handle->n_mapped++;
    reservation->n_mappings++;
    sim->n_mappings++;
    return CUDA_SUCCESS;
}

CUresult sim_mem_map(struct sim *sim, CUdeviceptr address, size_t bytes, size_t offset,
                     CUmemGenericAllocationHandle handle, uint64_t flags)
{
    CUresult result = vmm_enter(sim, "cuMemMap");
    if (result == CUDA_SUCCESS)
        result = flags != 0 ? CUDA_ERROR_INVALID_VALUE : map(sim, address, bytes, offset, handle);
    return call_leave_priced(sim, "cuMemMap", result, 1, bytes);
}

void mapping_end(struct sim *sim, struct mapping *mapping)
{
    struct reservation *reservation = space_reservation(sim, mapping->address);
    mapping_place(sim, reservation, mapping->address, mapping->bytes, NULL);
    reservation->n_mappings--;
    sim->n_mappings--;
    if ((mapping->readers | mapping->writers) != 0)
        sim->n_accessible--;
    mapping->handle->n_mapped--;
    handle_end_if_unused(sim, mapping->handle);
    free(mapping);
}

void memory_finish(struct sim *sim)
{
    for (size_t i = 0; i < sim->n_reservations; i++) {
        struct reservation *reservation = sim->reservations[i];
        uint64_t n = reservation->bytes / sim->config.granularity;
        for (uint64_t j = 0; j < n && reservation->n_mappings != 0; j++)
            if (reservation->entries[j] != NULL)
                mapping_end(sim, reservation->entries[j]);
        reservation_finish(sim, reservation);
    }
    free(sim->reservations);
    for (uint32_t i = 1; i < sim->registry.n; i++) {
        const struct slot *slot = &sim->registry.slots[i];
        if (slot->live && slot->kind == OBJECT_HANDLE) {
            struct handle *handle = slot->object;
            handle->held = 0;
            handle_end_if_unused(sim, handle);
        }
    }
}
