/* SPDX-License-Identifier: MIT */
/* Two devices by the driver API: every copy with either device's context current, before, with and
 * after peer access, and access given to a pool. With one device it says so and ends. */
#include "driver.h"

#define BYTES (8 * MIB + 24)

static CUcontext contexts[2];
static CUmemoryPool own_pool;

static void use(const char *what, int device)
{
    printf("device %d current: %s\n", device, what);
    MUST(cuCtxSetCurrent(contexts[device]));
}

static CUresult plain(CUdeviceptr *p)
{
    return cuMemAlloc(p, BYTES);
}

static CUresult ordered(CUdeviceptr *p)
{
    return cuMemAllocAsync(p, BYTES, CU_STREAM_LEGACY);
}

static CUresult from_own(CUdeviceptr *p)
{
    return cuMemAllocFromPoolAsync(p, BYTES, own_pool, CU_STREAM_LEGACY);
}

static void synchronize_both(void)
{
    CUcontext current;
    MUST(cuCtxGetCurrent(&current));
    for (int device = 0; device < 2; device++) {
        MUST(cuCtxSetCurrent(contexts[device]));
        ANSWER(cuCtxSynchronize());
    }
    MUST(cuCtxSetCurrent(current));
}

static void copies(CUdeviceptr here, CUdeviceptr there)
{
    char word[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int current = 0; current < 2; current++) {
        use("copies", current);
        ANSWER(cuMemcpy(there, here, BYTES));
        ANSWER(cuMemcpyDtoD(there, here, BYTES));
        ANSWER(cuMemcpyDtoD(here, there, BYTES));
        ANSWER(cuMemcpyDtoDAsync(there, here, BYTES, NULL));
        synchronize_both();
        ANSWER(cuMemcpyAsync(here, there, BYTES, NULL));
        ANSWER(cuMemcpyPeer(there, contexts[1], here, contexts[0], BYTES));
        ANSWER(cuMemcpyPeer(here, contexts[0], there, contexts[1], BYTES));
        ANSWER(cuMemcpyPeerAsync(there, contexts[1], here, contexts[0], BYTES, NULL));
        synchronize_both();
        ANSWER(cuMemcpyHtoD(here, word, 8));
        ANSWER(cuMemcpyDtoH(word, there, 8));
        ANSWER(cuMemcpyHtoD(there, word, 8));
        ANSWER(cuMemcpyDtoH(word, here, 8));
        synchronize_both();
        observe(here, here + 64);
        observe(there, there + 64);
    }
}

static void blocks(const char *name, CUresult (*make)(CUdeviceptr *), int times_free)
{
    CUdeviceptr here = 0, there = 0;
    PART(name);
    use("allocation", 0);
    ANSWER(make(&here));
    ANSWER(cuCtxSynchronize());
    use("allocation", 1);
    ANSWER(plain(&there));
    ANSWER(cuMemsetD8(there, 2, BYTES));
    ANSWER(cuCtxSynchronize());
    copies(here, there);
    use("free", 1);
    for (int i = 0; i < times_free; i++)
        ANSWER(cuMemFree(here));
    use("free", 0);
    for (int i = 0; i < times_free; i++)
        ANSWER(cuMemFree(there));
    synchronize_both();
}

static void peers(bool enabled)
{
    for (int device = 0; device < 2; device++) {
        use(enabled ? "enable" : "disable", device);
        for (int twice = 0; twice < 2; twice++)
            ANSWER(enabled ? cuCtxEnablePeerAccess(contexts[1 - device], 0)
                           : cuCtxDisablePeerAccess(contexts[1 - device]));
        ANSWER(cuCtxEnablePeerAccess(contexts[device], 0));
        ANSWER(cuCtxEnablePeerAccess(contexts[1 - device], 1));
    }
}

/* Access is given and taken with a block of the pool alive. */
static void pool_access(const char *name, CUmemoryPool pool, CUresult (*make)(CUdeviceptr *))
{
    static const CUmemAccess_flags modes[] = {CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                                              CU_MEM_ACCESS_FLAGS_PROT_NONE,
                                              CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    CUmemAccess_flags flags = 9;
    CUdeviceptr p = 0, q = 0;
    PART(name);
    use("allocation", 1);
    ANSWER(plain(&q));
    use("allocation", 0);
    ANSWER(make(&p));
    ANSWER(cuCtxSynchronize());
    for (size_t i = 0; i < COUNT(modes); i++) {
        CUmemAccessDesc access = {.location = location, .flags = modes[i]};
        ANSWER(cuMemPoolSetAccess(pool, &access, 1));
        ANSWER(cuMemPoolGetAccess(&flags, pool, &location));
        VALUE(flags);
        if (modes[i] == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            copies(p, q);
    }
    use("free", 1);
    ANSWER(cuMemFree(p));
    ANSWER(cuMemFree(q));
    synchronize_both();
}

int main(void)
{
    CUmemoryPool standard;
    int n_devices = 0, can = 0;
    truth_start();
    MUST(cuDeviceGetCount(&n_devices));
    if (n_devices < 2) {
        printf("one device\n");
        return 0;
    }
    for (int device = 0; device < 2; device++)
        MUST(cuDevicePrimaryCtxRetain(&contexts[device], device));
    own_pool = pool_make(0, 0);
    MUST(cuDeviceGetDefaultMemPool(&standard, 0));
    MUST(cuDeviceCanAccessPeer(&can, 0, 1));
    VALUE(can);
    blocks("cuMemAlloc", plain, 2);
    blocks("cuMemAllocAsync", ordered, 2);
    blocks("cuMemAllocFromPoolAsync", from_own, 2);
    if (can) {
        peers(true);
        blocks("cuMemAlloc, peers", plain, 1);
        blocks("cuMemAllocAsync, peers", ordered, 1);
        peers(false);
        blocks("cuMemAlloc, peers no more", plain, 1);
        pool_access("access to the default pool", standard, ordered);
        pool_access("access to an own pool", own_pool, from_own);
    }
    ANSWER(cuMemPoolDestroy(own_pool));
    return 0;
}
