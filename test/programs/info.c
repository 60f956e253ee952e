/* SPDX-License-Identifier: MIT */
/* What the device says of itself and of its free memory. */
#include "truth.h"

static size_t free_now(void)
{
    size_t free_bytes, total;
    MUST(cuMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

static void devices(void)
{
    CUdevice device = -7;
    CUuuid uuid;
    size_t total = 0;
    int n = 0;
    char name[64] = "";
    PART("devices");
    ANSWER(cuDeviceGetCount(&n));
    ASK(n >= 1);
    ANSWER(cuDeviceGet(&device, 0));
    VALUE(device);
    ANSWER(cuDeviceGet(&device, -1));
    ANSWER(cuDeviceGet(&device, 1000));
    ANSWER(cuDeviceGetName(name, sizeof(name), 0));
    ASK(name[0] != 0);
    ANSWER(cuDeviceTotalMem(&total, 0));
    ASK(total > ((size_t)1 << 30));
    ANSWER(cuDeviceGetUuid(&uuid, 0));
    ANSWER(cuDeviceGetUuid(&uuid, 1000));
    ANSWER(cuDeviceTotalMem(&total, 1000));
    ANSWER(cuDeviceCanAccessPeer(&n, 0, 0));
    VALUE(n);
}

#define ATTRIBUTE(name) attribute(#name, CU_DEVICE_ATTRIBUTE_##name)

static void attribute(const char *name, CUdevice_attribute which)
{
    int value = 99;
    CUresult result = cuDeviceGetAttribute(&value, which, 0);
    printf("%s: %s %d\n", name, truth_code(result), value);
}

static void attributes(void)
{
    int value;
    PART("attributes");
    ATTRIBUTE(UNIFIED_ADDRESSING);
    ATTRIBUTE(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    ATTRIBUTE(MEMORY_POOLS_SUPPORTED);
    ATTRIBUTE(CONCURRENT_KERNELS);
    ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR);
    ATTRIBUTE(COMPUTE_CAPABILITY_MINOR);
    ATTRIBUTE(CAN_MAP_HOST_MEMORY);
    ATTRIBUTE(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    ATTRIBUTE(INTEGRATED);
    ATTRIBUTE(WARP_SIZE);
    ANSWER(cuDeviceGetAttribute(&value, (CUdevice_attribute)100000, 0));
    ANSWER(cuDeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    ANSWER(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1000));
}

static void memory(size_t bytes)
{
    CUdeviceptr p;
    size_t before, during, after, total;
    printf("\n[free memory around %zu MiB]\n", bytes / MIB);
    MUST(cuMemAlloc(&p, bytes));
    MUST(cuMemFree(p));
    before = free_now();
    MUST(cuMemAlloc(&p, bytes));
    during = free_now();
    ASK(before - during >= bytes);
    ASK(before - during < bytes + 32 * MIB);
    MUST(cuMemFree(p));
    after = free_now();
    ASK(after == before);
    ANSWER(cuMemGetInfo(NULL, &total));
    ASK(total > before);
    ANSWER(cuMemGetInfo(&before, NULL));
    ANSWER(cuMemGetInfo(NULL, NULL));
}

/* A request for everything fails and takes nothing. */
static void too_much(void)
{
    CUdeviceptr p = 0x1234;
    size_t before = free_now(), total;
    PART("too much");
    MUST(cuDeviceTotalMem(&total, 0));
    ANSWER(cuMemAlloc(&p, total));
    ANSWER(cuMemAlloc(&p, total * 2));
    ANSWER(cuMemAllocAsync(&p, total, NULL));
    ASK(p == 0x1234);
    MUST(cuCtxSynchronize());
    ASK(free_now() + 64 * MIB >= before);
    ANSWER(cuMemAlloc(&p, 64 * MIB));
    ANSWER(cuMemFree(p));
}

int main(void)
{
    truth_start();
    devices();
    attributes();
    memory(64 * MIB);
    memory(512 * MIB);
    too_much();
    return 0;
}
