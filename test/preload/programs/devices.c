/* SPDX-License-Identifier: MIT */
/* What a program sees that uses two devices, memory pools and contexts of its own. The first
 * argument names a scene; each call of interest prints one line, the same ones with and without the
 * library. Standard error tells which blocks are the pool's. */
#include <cuda.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1ul << 20)
#define BYTES (8 * MIB)
#define ID_OURS (1ull << 63)
#define N_DEVICES 2

static CUcontext contexts[N_DEVICES];
static CUstream streams[N_DEVICES];

static CUresult tell(const char *what, CUresult result)
{
    printf("%s %d\n", what, (int)result);
    return result;
}

static void must(CUresult result)
{
    if (result && tell("unexpected", result))
        exit(1);
}

static void current(int device)
{
    must(cuCtxSetCurrent(contexts[device]));
}

static void open_device(int device)
{
    must(cuDevicePrimaryCtxRetain(&contexts[device], device));
    current(device);
    must(cuStreamCreate(&streams[device], CU_STREAM_NON_BLOCKING));
}

/* Whose block it is. */
static CUdeviceptr whose(const char *what, CUresult result, CUdeviceptr address)
{
    unsigned long long id = 0;
    if (tell(what, result))
        return 0;
    must(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    fprintf(stderr, "%s %s\n", what, id >= ID_OURS ? "pool" : "driver");
    return address;
}

static CUdeviceptr block(void)
{
    CUdeviceptr address = 0;
    CUresult result = cuMemAlloc(&address, BYTES);
    return whose("malloc", result, address);
}

static CUdeviceptr async_block(CUstream stream)
{
    CUdeviceptr address = 0;
    CUresult result = cuMemAllocAsync(&address, BYTES, stream);
    return whose("async", result, address);
}

static void tell_byte(const char *what, CUdeviceptr address)
{
    unsigned char byte = 0;
    CUresult result = cuMemcpyDtoH(&byte, address + BYTES - 1, 1);
    printf("%s %d %d\n", what, (int)result, byte);
}

/* Every way to `there` from `here`, with either device current. */
static void copy(CUdeviceptr there, int there_device, CUdeviceptr here, int here_device)
{
    for (int device = 0; device < N_DEVICES; device++) {
        current(device);
        must(cuMemcpyPeer(there, contexts[there_device], here, contexts[here_device], BYTES));
        tell("copy", cuMemcpyDtoD(there, here, BYTES));
        tell("unified copy", cuMemcpy(there, here, BYTES));
        tell("async copy", cuMemcpyAsync(there, here, BYTES, streams[device]));
        tell("wait", cuStreamSynchronize(streams[device]));
        tell_byte("first", here);
        tell_byte("second", there);
    }
}

static void scene_peers(void)
{
    CUdeviceptr a = block(), later, b;
    must(cuMemsetD8(a, 7, BYTES));
    open_device(1);
    b = block();
    copy(b, 1, a, 0);
    current(0);
    later = block();
    must(cuMemsetD8(later, 9, BYTES));
    copy(b, 1, later, 0);
    current(1);
    tell("free with the other device current", cuMemFree(a));
    current(0);
    tell("free with the other device current", cuMemFree(b));
    tell("free on a stream of the other device", cuMemFreeAsync(later, streams[1]));
    tell("free again", cuMemFree(later));
    must(cuStreamSynchronize(streams[1]));
}

static void scene_strangers(void)
{
    open_device(1);
    current(0);
    CUdeviceptr a = block(), b;
    must(cuMemsetD8(a, 7, BYTES));
    CUdeviceptr served = async_block(streams[0]);
    current(1);
    b = block();
    copy(b, 1, a, 0);
    tell("free", cuMemFree(a));
    tell("free", cuMemFree(b));
    tell("free", cuMemFree(served));
}

static void scene_streams(void)
{
    CUdeviceptr a, b;
    open_device(1);
    current(0);
    a = async_block(streams[1]);
    b = async_block(streams[0]);
    CUdevice ordinal = -1;
    tell("ordinal", cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, a));
    printf("device %d\n", ordinal);
    tell("free of a", cuMemFreeAsync(a, streams[1]));
    tell("free of b", cuMemFree(b));
}

static CUmemoryPool new_pool(CUmemAllocationHandleType types)
{
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .handleTypes = types,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemoryPool pool;
    must(cuMemPoolCreate(&pool, &properties));
    return pool;
}

static void from_pool(const char *what, CUmemoryPool pool, CUstream stream)
{
    CUdeviceptr address = 0;
    CUresult result = cuMemAllocFromPoolAsync(&address, BYTES, pool, stream);
    if (whose(what, result, address))
        must(cuMemFreeAsync(address, stream));
}

static void scene_pools(void)
{
    CUmemoryPool standard, other, shared;
    must(cuDeviceGetDefaultMemPool(&standard, 0));
    other = new_pool(CU_MEM_HANDLE_TYPE_NONE);
    from_pool("explicit", other, streams[0]);
    shared = new_pool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    from_pool("for other processes", shared, streams[0]);
    from_pool("default", standard, streams[0]);
    tell("set", cuDeviceSetMemPool(0, other));
    (void)async_block(streams[0]);
    from_pool("default", standard, streams[0]);
    (void)block();
    tell("set one for others", cuDeviceSetMemPool(0, shared));
    (void)async_block(streams[0]);
    tell("destroy it", cuMemPoolDestroy(shared));
    (void)async_block(streams[0]);
    tell("set", cuDeviceSetMemPool(0, other));
    tell("destroy it", cuMemPoolDestroy(other));
    (void)async_block(streams[0]);
    tell("set back", cuDeviceSetMemPool(0, standard));
    (void)async_block(streams[0]);
    open_device(1);
    from_pool("default of another device", standard, streams[1]);
}

/* cudaMallocAsync memory of device 0 is device 1's after cuMemPoolSetAccess alone. */
static void reach_from_second(CUmemoryPool pool, CUdeviceptr a)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    must(cuStreamSynchronize(streams[0]));
    tell("access", cuMemPoolSetAccess(pool, &access, 1));
    open_device(1);
    tell("write", cuMemsetD8Async(a, 5, BYTES, streams[1]));
    must(cuStreamSynchronize(streams[1]));
    tell_byte("read", a);
    tell("free", cuMemFreeAsync(a, streams[1]));
}

static void scene_pool_access(void)
{
    CUmemoryPool standard;
    CUdeviceptr a = async_block(streams[0]);
    must(cuDeviceGetDefaultMemPool(&standard, 0));
    reach_from_second(standard, a);
}

static void scene_own_pool_access(void)
{
    CUmemoryPool pool = new_pool(CU_MEM_HANDLE_TYPE_NONE);
    must(cuDeviceSetMemPool(0, pool));
    reach_from_second(pool, async_block(streams[0]));
}

static void leave_free_memory(void)
{
    CUdeviceptr address = 0;
    current(0);
    must(cuMemAlloc(&address, 120 * MIB));
    must(cuMemFree(address));
    must(cuCtxSynchronize());
    current(1);
}

/* Device 0 has room only once the pool gives back what nobody uses; device 1 is current. */
static void scene_room(void)
{
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address = 0;
    CUmemoryPool pool = new_pool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    open_device(1);
    leave_free_memory();
    if (!tell("create", cuMemCreate(&handle, 200 * MIB, &properties, 0)))
        must(cuMemRelease(handle));
    leave_free_memory();
    (void)tell("explicit", cuMemAllocFromPoolAsync(&address, 200 * MIB, pool, streams[0]));
}

static void scene_destroyed_context(void)
{
    CUcontext own;
    CUdeviceptr gone, kept, again;
    must(cuCtxCreate(&own, NULL, 0, 0));
    gone = block();
    kept = async_block(NULL);
    must(cuStreamSynchronize(NULL));
    tell("destroy", cuCtxDestroy(own));
    current(0);
    tell("free of cudaMalloc memory", cuMemFree(gone));
    tell_byte("cudaMallocAsync memory", kept);
    tell("free of cudaMallocAsync memory", cuMemFree(kept));
    again = block();
    tell("free", cuMemFree(again));
}

static void scene_released_context(void)
{
    CUdeviceptr gone = block(), kept = async_block(NULL);
    CUcontext same;
    must(cuStreamSynchronize(NULL));
    must(cuDevicePrimaryCtxRetain(&same, 0));
    tell("release", cuDevicePrimaryCtxRelease(0));
    tell_byte("still there", gone);
    tell("release", cuDevicePrimaryCtxRelease(0));
    open_device(0);
    tell("free of cudaMalloc memory", cuMemFree(gone));
    tell("free of cudaMallocAsync memory", cuMemFree(kept));
    tell("free", cuMemFree(block()));
}

static void scene_green_context(void)
{
    CUgreenCtx green;
    CUcontext context;
    CUstream stream;
    must(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    must(cuCtxFromGreenCtx(&context, green));
    must(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    CUdeviceptr a = async_block(stream);
    must(cuCtxSetCurrent(context));
    CUdeviceptr b = block();
    tell("free", cuMemFreeAsync(a, stream));
    must(cuStreamSynchronize(stream));
    must(cuStreamDestroy(stream));
    current(0);
    tell("destroy", cuGreenCtxDestroy(green));
    tell_byte("cudaMalloc memory", b);
    tell("free", cuMemFree(b));
    tell("free", cuMemFree(async_block(streams[0])));
}

#define SCENE(name)                                                                                \
    {                                                                                              \
#        name, scene_##name                                                                        \
    }
static const struct {
    const char *name;
    void (*run)(void);
} scenes[] = {
    SCENE(room),
    SCENE(peers),
    SCENE(strangers),
    SCENE(green_context),
    SCENE(streams),
    SCENE(pools),
    SCENE(pool_access),
    SCENE(own_pool_access),
    SCENE(destroyed_context),
    SCENE(released_context),
};

int main(int n, char **arguments)
{
    must(cuInit(0));
    open_device(0);
    for (size_t i = 0; n > 1 && i < sizeof scenes / sizeof *scenes; i++)
        if (strcmp(arguments[1], scenes[i].name) == 0)
            scenes[i].run();
    return 0;
}
