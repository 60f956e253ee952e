/* SPDX-License-Identifier: MIT */
/* Calls that bare CUDA refuses, about blocks and memory pools that the library serves. The first
 * argument names a scene; each call of interest prints one line, the same ones with and without the
 * library. */
#define _GNU_SOURCE
#include <cuda.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define BYTES (64 * MIB)

/* Newer headers have it no more. */
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context_out, unsigned flags, CUdevice device);
/* Of the simulated device. */
void vpmm_sim_device_break(CUdevice device, CUresult code);

static const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
static CUcontext primary;
static CUstream stream, other;
static CUdeviceptr plain;
static CUipcMemHandle handle;

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

static CUdeviceptr take(bool is_async, size_t bytes)
{
    CUdeviceptr address = 0;
    must(is_async ? cuMemAllocAsync(&address, bytes, stream) : cuMemAlloc(&address, bytes));
    must(cuMemsetD8Async(address, 1, bytes, stream));
    must(cuStreamSynchronize(stream));
    return address;
}

/* ---- blocks are no mappings ---- */

static void use_as_mapping(CUdeviceptr address, size_t bytes)
{
    CUmemAccessDesc access = {location, CU_MEM_ACCESS_FLAGS_PROT_NONE};
    unsigned long long flags = 77;
    tell("get", cuMemGetAccess(&flags, &location, address));
    printf("flags %llu\n", flags);
    tell("take", cuMemSetAccess(address, bytes, &access, 1));
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    tell("give", cuMemSetAccess(address, bytes, &access, 1));
    tell("unmap", cuMemUnmap(address, bytes));
}

/* What was done to a block is not there any more for its next owner. */
static void block(bool is_async, size_t bytes)
{
    size_t pages = (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    CUdeviceptr address = take(is_async, bytes);
    use_as_mapping(address, pages);
    use_as_mapping(address + bytes / 2, pages);
    must(is_async ? cuMemFreeAsync(address, stream) : cuMemFree(address));
    must(cuStreamSynchronize(stream));
    must(cuMemFree(take(!is_async, bytes)));
    must(cuMemFree(take(is_async, bytes)));
}

/* A program's own mapping is its own to change. */
static void mapping(void)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = location};
    const CUmemAccessDesc access = {location, CU_MEM_ACCESS_FLAGS_PROT_READ};
    CUmemGenericAllocationHandle memory;
    unsigned long long flags = 77;
    CUdeviceptr address = 0;
    must(cuMemAddressReserve(&address, BYTES, 0, 0, 0));
    must(cuMemCreate(&memory, BYTES, &properties, 0));
    must(cuMemMap(address, BYTES, 0, memory, 0));
    tell("own set", cuMemSetAccess(address, BYTES, &access, 1));
    tell("own get", cuMemGetAccess(&flags, &location, address));
    printf("own flags %llu\n", flags);
    tell("own unmap", cuMemUnmap(address, BYTES));
    must(cuMemRelease(memory));
    must(cuMemAddressFree(address, BYTES));
}

static void scene_mappings(void)
{
    const size_t sizes[] = {BYTES, 9 * MIB / 4, 4 * KIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        block(false, sizes[i]);
        block(true, sizes[i]);
    }
    mapping();
}

/* ---- attributes ---- */

static void attribute(const char *name, CUpointer_attribute wanted, unsigned value,
                      CUdeviceptr address)
{
    unsigned now = 77;
    CUresult result = cuPointerSetAttribute(&value, wanted, address);
    printf("%s to %u ", name, value);
    if (!tell("set", result) && value) {
        must(cuPointerGetAttribute(&now, wanted, address));
        printf("now %u\n", now);
    }
}

/* CUDA's context flag for what the attribute promises; the library's way to keep that. */
static void flag(const char *where)
{
    unsigned flags = 0;
    must(cuCtxGetFlags(&flags));
    if (getenv("TELL_FLAGS"))
        printf("%s flag %#x\n", where, flags & 0x80);
}

/* Set by a thread of a context of its own, and by one without any. */
static void scene_attributes(void)
{
    const size_t sizes[] = {BYTES, 9 * MIB / 4, 4 * KIB};
    CUcontext mine, popped;
    must(cuCtxCreate_v2(&mine, CU_CTX_SCHED_YIELD, 0));
    must(cuCtxPopCurrent(&popped));
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        CUdeviceptr address = take(i % 2, sizes[i / 2]);
        attribute("type", CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 1, address);
        attribute("nothing", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 0, address);
        if (!i) {
            flag("before,");
            must(cuCtxPushCurrent(mine));
        }
        attribute("sync", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 1, address + sizes[i / 2] / 2);
        if (!i) {
            flag("current,");
            must(cuCtxPopCurrent(&popped));
            flag("owner,");
        }
        tell("no value", cuPointerSetAttribute(NULL, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address));
        must(i % 2 ? cuMemFreeAsync(address, stream) : cuMemFree(address));
        must(cuStreamSynchronize(stream));
        attribute("freed", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 1, address);
    }
    must(cuCtxSetCurrent(NULL));
    attribute("without a context, sync", CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 1, plain);
}

/* ---- inside a host function ---- */

static CUmemoryPool pool;

static void CUDA_CB use_pools(void *none)
{
    CUdeviceptr opened;
    (void)none;
    tell("pool destroy", cuMemPoolDestroy(pool));
    tell("ipc get", cuIpcGetMemHandle(&handle, plain));
    tell("ipc open", cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

static bool is_of_pool(CUdeviceptr address)
{
    CUmemoryPool owner = NULL;
    must(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    return owner == pool;
}

/* The pool that was not destroyed is the device's, as before. */
static void scene_pools(void)
{
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = location};
    cuuint64_t used = 0;
    must(cuMemPoolCreate(&pool, &properties));
    must(cuDeviceSetMemPool(0, pool));
    must(cuIpcGetMemHandle(&handle, plain));
    must(cuLaunchHostFunc(stream, use_pools, NULL));
    must(cuStreamSynchronize(stream));
    CUdeviceptr address = take(true, BYTES);
    printf("of the pool %d\n", is_of_pool(address));
    must(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    printf("used %llu\n", (unsigned long long)used);
    must(cuMemFreeAsync(address, stream));
    must(cuStreamSynchronize(stream));
    tell("later pool destroy", cuMemPoolDestroy(pool));
}

static void CUDA_CB destroy_stream(void *none)
{
    (void)none;
    tell("stream destroy", cuStreamDestroy(other));
}

/* The capture goes on, and a free does not end it. */
static void scene_capture(void)
{
    CUgraph graph = NULL;
    CUdeviceptr address = take(false, BYTES);
    must(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    must(cuLaunchHostFunc(stream, destroy_stream, NULL));
    must(cuStreamSynchronize(stream));
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    must(cuThreadExchangeStreamCaptureMode(&mode));
    tell("free", cuMemFree(address));
    tell("end", cuStreamEndCapture(other, &graph));
    printf("graph %d\n", graph != NULL);
}

/* ---- without a context that serves ---- */

static CUcontext second;
static pthread_barrier_t barrier;

static void ask(const char *where)
{
    CUdeviceptr base = 0, opened = 0;
    size_t bytes = 0;
    printf("%s\n", where);
    tell("range", cuMemGetAddressRange(&base, &bytes, plain));
    tell("ipc get", cuIpcGetMemHandle(&handle, plain));
    tell("ipc open", cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

static void *ask_after_the_end(void *none)
{
    CUdeviceptr address = 0;
    must(cuCtxSetCurrent(second));
    must(cuMemAlloc(&address, BYTES));
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&barrier);
    ask("destroyed by another thread");
    must(cuCtxSetCurrent(NULL));
    ask("none");
    return none;
}

static void scene_contexts(void)
{
    pthread_t thread;
    must(cuIpcGetMemHandle(&handle, plain));
    must(cuCtxCreate_v2(&second, 0, 0));
    must(cuCtxSetCurrent(primary));
    if (pthread_barrier_init(&barrier, NULL, 2) ||
        pthread_create(&thread, NULL, ask_after_the_end, NULL))
        exit(1);
    (void)pthread_barrier_wait(&barrier);
    must(cuCtxDestroy(second));
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_join(thread, NULL);
    ask("alive");
    vpmm_sim_device_break(0, CUDA_ERROR_ILLEGAL_ADDRESS);
    ask("broken");
}

int main(int n, char **arguments)
{
    static const struct {
        const char *name;
        void (*play)(void);
    } scenes[] = {
        {"mappings", scene_mappings}, {"attributes", scene_attributes}, {"pools", scene_pools},
        {"capture", scene_capture},   {"contexts", scene_contexts},
    };
    must(cuInit(0));
    must(cuDevicePrimaryCtxRetain(&primary, 0));
    must(cuCtxSetCurrent(primary));
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    must(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    must(cuMemAlloc(&plain, BYTES));
    for (size_t i = 0; n > 1 && i < sizeof scenes / sizeof *scenes; i++)
        if (strcmp(arguments[1], scenes[i].name) == 0)
            scenes[i].play();
    return 0;
}
