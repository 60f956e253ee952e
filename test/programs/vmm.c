/* SPDX-License-Identifier: MIT */
/* The program's own virtual memory management: legal and illegal, aliases, what a release leaves.
 */
#include "truth.h"

static CUmemAllocationProp props_of(CUdevice device)
{
    CUmemAllocationProp prop;
    memset(&prop, 0, sizeof(prop));
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    return prop;
}

static CUmemAccessDesc access_of(CUdevice device, CUmemAccess_flags flags)
{
    CUmemAccessDesc access;
    memset(&access, 0, sizeof(access));
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = flags;
    return access;
}

static void arguments(CUdevice device)
{
    CUmemAllocationProp prop = props_of(device);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr va = 0;
    size_t granularity = 0;
    PART("arguments");
    ANSWER(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    VALUE(granularity);
    ANSWER(
        cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    VALUE(granularity);
    ANSWER(cuMemAddressReserve(&va, 0, 0, 0, 0));
    ANSWER(cuMemAddressReserve(&va, 1000, 0, 0, 0));
    ANSWER(cuMemAddressReserve(&va, 4 * MIB, 3, 0, 0));
    ANSWER(cuMemAddressReserve(&va, (size_t)100 << 40, 0, 0, 0));
    ANSWER(cuMemCreate(&handle, 0, &prop, 0));
    ANSWER(cuMemCreate(&handle, 1000, &prop, 0));
    ANSWER(cuMemCreate(&handle, 3 * MIB, &prop, 0));
    ANSWER(cuMemCreate(&handle, 2 * MIB, NULL, 0));
    ANSWER(cuMemCreate(&handle, 2 * MIB, &prop, 1));
    ANSWER(cuMemCreate(&handle, (size_t)1 << 44, &prop, 0));
    prop.location.id = 1000;
    ANSWER(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    ANSWER(cuMemAddressReserve(&va, 8 * MIB, 8 * MIB, 0, 0));
    ASK(va % (8 * MIB) == 0);
    ANSWER(cuMemAddressFree(va + 2 * MIB, 2 * MIB));
    ANSWER(cuMemAddressFree(va, 4 * MIB));
    ANSWER(cuMemAddressFree(va, 8 * MIB));
}

static void mapping(CUdevice device)
{
    CUmemAllocationProp prop = props_of(device), back;
    CUmemAccessDesc full = access_of(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemGenericAllocationHandle h, k, retained = 0;
    CUdeviceptr va, base = 0;
    size_t bytes = 0;
    unsigned long long flags = 99;
    PART("mapping");
    MUST(cuMemAddressReserve(&va, 16 * MIB, 0, 0, 0));
    MUST(cuMemCreate(&h, 4 * MIB, &prop, 0));
    MUST(cuMemCreate(&k, 2 * MIB, &prop, 0));
    ANSWER(cuMemMap(va, 2 * MIB, 0, h, 0));
    ANSWER(cuMemMap(va, 2 * MIB, 2 * MIB, h, 0));
    ANSWER(cuMemMap(va, 6 * MIB, 0, h, 0));
    ANSWER(cuMemMap(va + MIB, 4 * MIB, 0, h, 0));
    ANSWER(cuMemMap(va, 4 * MIB, 0, h, 0));
    ANSWER(cuMemMap(va, 4 * MIB, 0, h, 0));
    ANSWER(cuMemMap(va + 2 * MIB, 2 * MIB, 0, k, 0));
    ANSWER(cuMemMap(va + 4 * MIB, 2 * MIB, 0, k, 0));
    ANSWER(cuMemsetD8(va, 1, 16));
    ANSWER(cuMemSetAccess(va, 2 * MIB, &full, 1));
    ANSWER(cuMemSetAccess(va, 8 * MIB, &full, 1));
    ANSWER(cuMemSetAccess(va, 6 * MIB, &full, 1));
    ANSWER(cuMemsetD8(va, 1, 6 * MIB));
    ANSWER(cuMemGetAccess(&flags, &full.location, va));
    VALUE(flags);
    ANSWER(cuMemGetAccess(&flags, &full.location, va + 8 * MIB));
    ANSWER(cuMemGetAddressRange(&base, &bytes, va + 5 * MIB));
    VALUE(base - va);
    VALUE(bytes);
    ANSWER(cuMemFree(va));
    ANSWER(cuMemFreeAsync(va, NULL));
    ANSWER(cuMemRetainAllocationHandle(&retained, (void *)(uintptr_t)(va + 3 * MIB)));
    ASK(retained == h);
    ANSWER(cuMemGetAllocationPropertiesFromHandle(&back, h));
    VALUE(back.location.id);
    ANSWER(cuMemRelease(retained));
    ANSWER(cuMemUnmap(va, 2 * MIB));
    ANSWER(cuMemUnmap(va + 2 * MIB, 4 * MIB));
    ANSWER(cuMemAddressFree(va, 16 * MIB));
    ANSWER(cuMemRelease(h));
    truth_ask("a released handle keeps its bytes", truth_holds(va, 4 * MIB, 1));
    ANSWER(cuMemUnmap(va, 6 * MIB));
    ANSWER(cuMemUnmap(va, 6 * MIB));
    ANSWER(cuMemsetD8(va, 1, 16));
    ANSWER(cuMemRelease(k));
    ANSWER(cuMemAddressFree(va, 16 * MIB));
    ANSWER(cuMemAddressFree(va, 16 * MIB));
}

static void alias(CUdevice device)
{
    CUmemAllocationProp prop = props_of(device);
    CUmemAccessDesc full = access_of(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemGenericAllocationHandle h;
    CUdeviceptr va;
    PART("two addresses of one handle");
    MUST(cuMemAddressReserve(&va, 8 * MIB, 0, 0, 0));
    MUST(cuMemCreate(&h, 4 * MIB, &prop, 0));
    ANSWER(cuMemMap(va, 4 * MIB, 0, h, 0));
    ANSWER(cuMemMap(va + 4 * MIB, 4 * MIB, 0, h, 0));
    ANSWER(cuMemSetAccess(va, 8 * MIB, &full, 1));
    ANSWER(cuMemsetD8(va, 0x51, 4 * MIB));
    truth_ask("the alias shows it", truth_holds(va + 4 * MIB, 4 * MIB, 0x51));
    ANSWER(cuMemUnmap(va, 4 * MIB));
    ANSWER(cuMemsetD8(va + 4 * MIB, 0x52, 2 * MIB));
    ANSWER(cuMemMap(va, 4 * MIB, 0, h, 0));
    ANSWER(cuMemSetAccess(va, 4 * MIB, &full, 1));
    truth_ask("mapped again it shows the new bytes", truth_holds(va, 2 * MIB, 0x52));
    truth_ask("and the old ones", truth_holds(va + 2 * MIB, 2 * MIB, 0x51));
    ANSWER(cuMemUnmap(va, 8 * MIB));
    ANSWER(cuMemRelease(h));
    ANSWER(cuMemAddressFree(va, 8 * MIB));
}

static void attributes(CUdevice device)
{
    CUmemAllocationProp prop = props_of(device);
    CUmemAccessDesc full = access_of(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemGenericAllocationHandle h;
    CUdeviceptr va, start = 0;
    size_t bytes = 0;
    unsigned capable = 99;
    CUcontext owner = (CUcontext)1;
    PART("attributes of mapped memory");
    MUST(cuMemAddressReserve(&va, 16 * MIB, 0, 0, 0));
    MUST(cuMemCreate(&h, 4 * MIB, &prop, 0));
    MUST(cuMemMap(va + 4 * MIB, 4 * MIB, 0, h, 0));
    MUST(cuMemSetAccess(va + 4 * MIB, 4 * MIB, &full, 1));
    ANSWER(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, va + 5 * MIB));
    VALUE(start - va);
    ANSWER(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, va + 5 * MIB));
    VALUE(bytes);
    ANSWER(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, va + 5 * MIB));
    ASK(owner == NULL);
    ANSWER(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                 va + 5 * MIB));
    VALUE(capable);
    MUST(cuMemUnmap(va + 4 * MIB, 4 * MIB));
    MUST(cuMemRelease(h));
    MUST(cuMemAddressFree(va, 16 * MIB));
}

int main(void)
{
    CUdevice device = truth_start();
    arguments(device);
    mapping(device);
    alias(device);
    attributes(device);
    return 0;
}
