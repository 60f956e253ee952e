/* SPDX-License-Identifier: MIT */
/* Replays on a GPU: finds the driver, and makes streams, events and work of a known length. Must
 * not unload the driver, which has threads of its own. */
#define _GNU_SOURCE
#include "replay/device.h"

#include "driver/cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a replay needs of the driver besides the seam: X(exported name, type, required). */
#define GPU_LIST(X)                                                                                \
    X(cuInit, PFN_cuInit_v2000, true)                                                              \
    X(cuGetErrorName, PFN_cuGetErrorName_v6000, true)                                              \
    X(cuDeviceGetCount, PFN_cuDeviceGetCount_v2000, true)                                          \
    X(cuDeviceGetName, PFN_cuDeviceGetName_v2000, true)                                            \
    X(cuDeviceTotalMem_v2, PFN_cuDeviceTotalMem_v3020, true)                                       \
    X(cuDeviceGetDefaultMemPool, PFN_cuDeviceGetDefaultMemPool_v11020, true)                       \
    X(cuDevicePrimaryCtxRetain, PFN_cuDevicePrimaryCtxRetain_v7000, true)                          \
    X(cuDevicePrimaryCtxRelease_v2, PFN_cuDevicePrimaryCtxRelease_v11000, true)                    \
    X(cuCtxSetCurrent, PFN_cuCtxSetCurrent_v4000, true)                                            \
    X(cuCtxSynchronize, PFN_cuCtxSynchronize_v2000, true)                                          \
    X(cuStreamCreate, PFN_cuStreamCreate_v2000, true)                                              \
    X(cuStreamDestroy_v2, PFN_cuStreamDestroy_v4000, true)                                         \
    X(cuStreamWaitEvent, PFN_cuStreamWaitEvent_v3020, true)                                        \
    X(cuEventCreate, PFN_cuEventCreate_v2000, true)                                                \
    X(cuEventRecord, PFN_cuEventRecord_v2000, true)                                                \
    X(cuEventDestroy_v2, PFN_cuEventDestroy_v4000, true)                                           \
    X(cuMemAlloc_v2, PFN_cuMemAlloc_v3020, true)                                                   \
    X(cuMemFree_v2, PFN_cuMemFree_v3020, true)                                                     \
    X(cuMemAllocAsync, PFN_cuMemAllocAsync_v11020, true)                                           \
    X(cuMemFreeAsync, PFN_cuMemFreeAsync_v11020, true)                                             \
    X(cuMemPoolGetAttribute, PFN_cuMemPoolGetAttribute_v11020, true)                               \
    X(cuModuleLoadData, PFN_cuModuleLoadData_v2000, false)                                         \
    X(cuModuleUnload, PFN_cuModuleUnload_v2000, false)                                             \
    X(cuModuleGetFunction, PFN_cuModuleGetFunction_v2000, false)                                   \
    X(cuLaunchKernel, PFN_cuLaunchKernel_v4000, false)

#define GPU_MEMBER(name, type, required) type real_##name;
struct functions {
    GPU_LIST(GPU_MEMBER)
};
#undef GPU_MEMBER

struct gpu_device {
    struct vpmm_replay_device base;
    void *library;
    struct functions cu;
    struct vpmm_cuda cuda;
    struct vpmm_driver inner;
    int number;
    CUcontext context; /* NULL: not retained */
    CUmemoryPool pool; /* CUDA's default one */
    CUstream *streams;
    CUevent *events;
    uint32_t n_streams, n_events;
    CUmodule module; /* NULL: none */
    CUfunction spin;
};

/* Work of a known length: looks at the device's clock until it is over. The driver compiles it. */
static const char spin_source[] = ".version 6.0\n"
                                  ".target sm_50\n"
                                  ".address_size 64\n"
                                  ".visible .entry spin(.param .u64 duration)\n"
                                  "{\n"
                                  "  .reg .pred %over;\n"
                                  "  .reg .u64 %duration, %start, %now, %spent;\n"
                                  "  ld.param.u64 %duration, [duration];\n"
                                  "  mov.u64 %start, %globaltimer;\n"
                                  "again:\n"
                                  "  mov.u64 %now, %globaltimer;\n"
                                  "  sub.u64 %spent, %now, %start;\n"
                                  "  setp.lt.u64 %over, %spent, %duration;\n"
                                  "  @%over bra again;\n"
                                  "  ret;\n"
                                  "}\n";

static struct gpu_device *of(struct vpmm_replay_device *device)
{
    return (struct gpu_device *)(void *)device;
}

/* ---- finding the driver ---- */

static void *find(void *library, const char *name)
{
    return dlsym(library, name);
}

static bool find_functions(struct functions *cu, void *library)
{
    void *address;
#define FIND(name, type, required)                                                                 \
    address = find(library, #name);                                                                \
    if (!address && (required))                                                                    \
        return false;                                                                              \
    memcpy(&cu->real_##name, &address, sizeof address);
    GPU_LIST(FIND)
#undef FIND
    return true;
}

/* Whether what stands for CUDA's allocation functions is this library. */
static bool is_preloaded(const struct functions *cu)
{
    Dl_info info;
    void *address;
    memcpy(&address, &cu->real_cuMemAlloc_v2, sizeof address);
    return dladdr(address, &info) != 0 && info.dli_fname && strstr(info.dli_fname, "libvpmm");
}

static bool say(char *message_out, const char *what)
{
    (void)snprintf(message_out, VPMM_REPLAY_MESSAGE_BYTES, "%s", what);
    return false;
}

/* True for success. */
static bool is_fine(const struct functions *cu, CUresult result, const char *call,
                    char *message_out)
{
    const char *name = NULL;
    if (result == CUDA_SUCCESS)
        return true;
    if (cu->real_cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
        name = "an unknown error";
    (void)snprintf(message_out, VPMM_REPLAY_MESSAGE_BYTES, "%s answers %s", call, name);
    return false;
}

/* The driver stays loaded: it has threads, and work for the end of the process. */
static bool load(void **library_out, struct functions *cu, int *count_out, char *message_out)
{
    *count_out = 0;
    *library_out = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!*library_out)
        return say(message_out, "there is no CUDA driver (libcuda.so.1)");
    if (!find_functions(cu, *library_out))
        return say(message_out, "the CUDA driver is older than 11.3");
    if (!is_fine(cu, cu->real_cuInit(0), "cuInit", message_out) ||
        !is_fine(cu, cu->real_cuDeviceGetCount(count_out), "cuDeviceGetCount", message_out))
        return false;
    return *count_out > 0 || say(message_out, "the CUDA driver knows no GPU");
}

int vpmm_replay_gpus(char message_out[static VPMM_REPLAY_MESSAGE_BYTES])
{
    struct functions cu = {0};
    void *library;
    int count;
    (void)load(&library, &cu, &count, message_out);
    return count;
}

/* ---- operations ---- */

static void close_device(struct vpmm_replay_device *base)
{
    struct gpu_device *device = of(base);
    const struct functions *cu = &device->cu;
    for (uint32_t i = 0; device->events && i < device->n_events; i++)
        if (device->events[i])
            (void)cu->real_cuEventDestroy_v2(device->events[i]);
    for (uint32_t i = 0; device->streams && i < device->n_streams; i++)
        if (device->streams[i] > CU_STREAM_PER_THREAD)
            (void)cu->real_cuStreamDestroy_v2(device->streams[i]);
    if (device->module)
        (void)cu->real_cuModuleUnload(device->module);
    if (device->context) {
        (void)cu->real_cuCtxSetCurrent(NULL);
        (void)cu->real_cuDevicePrimaryCtxRelease_v2(device->number);
    }
    vpmm_priced_finish(&base->priced);
    free(device->streams);
    free(device->events);
    free(device);
}

static vpmm_stream_handle stream(struct vpmm_replay_device *base, uint32_t number)
{
    return (vpmm_stream_handle)(void *)of(base)->streams[number];
}

static void begin(struct vpmm_replay_device *base, uint64_t tape_ns)
{
    (void)base;
    (void)tape_ns;
}

static enum vpmm_status work(struct vpmm_replay_device *base, uint32_t number, uint64_t duration_ns)
{
    struct gpu_device *device = of(base);
    void *parameters[] = {&duration_ns};
    if (!base->has_work)
        return VPMM_OK;
    return vpmm_cuda_status(device->cu.real_cuLaunchKernel(
        device->spin, 1, 1, 1, 1, 1, 1, 0, device->streams[number], parameters, NULL));
}

static vpmm_event_handle event_handle(struct vpmm_replay_device *base, uint32_t number)
{
    return (vpmm_event_handle)(void *)of(base)->events[number];
}

static enum vpmm_status record(struct vpmm_replay_device *base, uint32_t event, uint32_t number)
{
    struct gpu_device *device = of(base);
    return vpmm_cuda_status(
        device->cu.real_cuEventRecord(device->events[event], device->streams[number]));
}

static enum vpmm_status follow(struct vpmm_replay_device *base, uint32_t event, uint32_t number)
{
    struct gpu_device *device = of(base);
    return vpmm_cuda_status(
        device->cu.real_cuStreamWaitEvent(device->streams[number], device->events[event], 0));
}

static enum vpmm_status drain(struct vpmm_replay_device *base)
{
    return vpmm_cuda_status(of(base)->cu.real_cuCtxSynchronize());
}

static uint64_t waited_ns(const struct vpmm_replay_device *base)
{
    return base->priced.tally.ns[VPMM_PRICE_HOST_WAIT];
}

static enum vpmm_status allocate(struct vpmm_replay_device *base, uint64_t bytes, uint32_t number,
                                 bool is_sync, uint64_t *address_out)
{
    struct gpu_device *device = of(base);
    CUdeviceptr address;
    uint64_t start_ns = vpmm_priced_clock_ns();
    CUresult result =
        is_sync ? device->cu.real_cuMemAlloc_v2(&address, bytes)
                : device->cu.real_cuMemAllocAsync(&address, bytes, device->streams[number]);
    vpmm_priced_note(&base->priced, VPMM_PRICE_ALLOCATE, start_ns);
    if (result == CUDA_SUCCESS)
        *address_out = address;
    return vpmm_cuda_status(result);
}

static enum vpmm_status release(struct vpmm_replay_device *base, uint64_t address, uint32_t number,
                                bool is_sync)
{
    struct gpu_device *device = of(base);
    uint64_t start_ns = vpmm_priced_clock_ns();
    CUresult result = is_sync ? device->cu.real_cuMemFree_v2(address)
                              : device->cu.real_cuMemFreeAsync(address, device->streams[number]);
    vpmm_priced_note(&base->priced, VPMM_PRICE_FREE, start_ns);
    return vpmm_cuda_status(result);
}

static uint64_t reserved_bytes(const struct vpmm_replay_device *base)
{
    const struct gpu_device *device = (const struct gpu_device *)(const void *)base;
    cuuint64_t bytes = 0;
    if (device->cu.real_cuMemPoolGetAttribute(device->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                              &bytes) != CUDA_SUCCESS)
        return 0;
    return bytes;
}

/* ---- opening ---- */

static bool make_stream(struct gpu_device *device, uint64_t name, CUstream *stream_out,
                        char *message_out)
{
    if (name == 0 || name == (uintptr_t)CU_STREAM_LEGACY)
        *stream_out = CU_STREAM_LEGACY;
    else if (name == (uintptr_t)CU_STREAM_PER_THREAD)
        *stream_out = CU_STREAM_PER_THREAD;
    else
        return is_fine(&device->cu,
                       device->cu.real_cuStreamCreate(stream_out, CU_STREAM_NON_BLOCKING),
                       "cuStreamCreate", message_out);
    return true;
}

/* Streams, events and the kernel. */
static bool furnish(struct gpu_device *device, const struct vpmm_tape *tape, char *message_out)
{
    const struct functions *cu = &device->cu;
    device->streams = calloc((size_t)tape->n_streams + 1, sizeof *device->streams);
    device->events = calloc((size_t)tape->n_events + 1, sizeof(CUevent));
    if (!device->streams || !device->events)
        return say(message_out, vpmm_status_text(VPMM_NO_METADATA));
    device->n_streams = tape->n_streams;
    device->n_events = tape->n_events;
    for (uint32_t i = 0; i < tape->n_streams; i++)
        if (!make_stream(device, tape->streams[i], &device->streams[i], message_out))
            return false;
    for (uint32_t i = 0; i < tape->n_events; i++)
        if (!is_fine(cu, cu->real_cuEventCreate(&device->events[i], CU_EVENT_DISABLE_TIMING),
                     "cuEventCreate", message_out))
            return false;
    bool has_module = tape->n_works && cu->real_cuModuleLoadData && cu->real_cuModuleUnload &&
                      cu->real_cuModuleGetFunction && cu->real_cuLaunchKernel &&
                      cu->real_cuModuleLoadData(&device->module, spin_source) == CUDA_SUCCESS;
    device->base.has_work =
        has_module &&
        cu->real_cuModuleGetFunction(&device->spin, device->module, "spin") == CUDA_SUCCESS;
    return true;
}

static bool enter(struct gpu_device *device, char *message_out)
{
    const struct functions *cu = &device->cu;
    struct vpmm_replay_device *base = &device->base;
    char name[sizeof base->name - 16] = "";
    size_t total_bytes = 0;
    if (!is_fine(cu, cu->real_cuDevicePrimaryCtxRetain(&device->context, device->number),
                 "cuDevicePrimaryCtxRetain", message_out) ||
        !is_fine(cu, cu->real_cuCtxSetCurrent(device->context), "cuCtxSetCurrent", message_out) ||
        !is_fine(cu, cu->real_cuDeviceTotalMem_v2(&total_bytes, device->number), "cuDeviceTotalMem",
                 message_out) ||
        !is_fine(cu, cu->real_cuDeviceGetDefaultMemPool(&device->pool, device->number),
                 "cuDeviceGetDefaultMemPool", message_out))
        return false;
    (void)cu->real_cuDeviceGetName(name, sizeof name - 1, device->number);
    (void)snprintf(base->name, sizeof base->name, "GPU %d, %s", device->number, name);
    base->total_bytes = total_bytes;
    base->is_preloaded = is_preloaded(cu);
    return true;
}

static bool open_device(struct gpu_device *device, const struct vpmm_tape *tape, char *message_out)
{
    int count;
    if (!load(&device->library, &device->cu, &count, message_out))
        return false;
    if (device->number >= count) {
        (void)snprintf(message_out, VPMM_REPLAY_MESSAGE_BYTES, "there is no GPU %d, but 0 to %d",
                       device->number, count - 1);
        return false;
    }
    if (vpmm_cuda_init(&device->cuda, find, device->library, &device->inner) != VPMM_OK)
        return say(message_out, "the CUDA driver is older than 11.3");
    if (!enter(device, message_out) || !furnish(device, tape, message_out))
        return false;
    vpmm_priced_fill(&device->base.priced, &device->inner, 0, &device->base.driver);
    return true;
}

struct vpmm_replay_device *
vpmm_replay_device_gpu(const struct vpmm_tape *tape, int number,
                       char message_out[static VPMM_REPLAY_MESSAGE_BYTES])
{
    struct gpu_device *device = calloc(1, sizeof *device);
    if (!device) {
        (void)say(message_out, vpmm_status_text(VPMM_NO_METADATA));
        return NULL;
    }
    struct vpmm_replay_device *base = &device->base;
    device->number = number;
    base->close = close_device;
    base->stream = stream;
    base->begin = begin;
    base->go_to = begin;
    base->work = work;
    base->event = event_handle;
    base->record = record;
    base->follow = follow;
    base->drain = drain;
    base->waited_ns = waited_ns;
    base->allocate = allocate;
    base->free = release;
    base->reserved_bytes = reserved_bytes;
    if (open_device(device, tape, message_out))
        return base;
    close_device(base);
    return NULL;
}
