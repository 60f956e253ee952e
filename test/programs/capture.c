/* SPDX-License-Identifier: MIT */
/* Stream capture: which calls are refused in which mode and thread, which of them end the capture,
 * and what a captured allocation becomes. */
#include "truth.h"

#include <pthread.h>

#define BYTES (4 * MIB)

/* What the probes use; made anew for each. */
struct scene {
    CUstream captured, other;
    CUevent event, second;
    CUdeviceptr block, got, mapped;
    CUcontext context;
    /* Where answers go that nobody reads. */
    CUcontext of;
    CUgreenCtx green;
    CUdevice device;
    unsigned long long id;
    CUstreamCaptureStatus status;
};

typedef CUresult(CUDAAPI *record_context_function)(CUcontext, CUevent);
static record_context_function record_context;
typedef CUresult(CUDAAPI *both_contexts_function)(CUstream, CUcontext *, CUgreenCtx *);
static both_contexts_function both_contexts;

#define PROBE(name, call)                                                                          \
    static CUresult name(struct scene *s)                                                          \
    {                                                                                              \
        (void)s;                                                                                   \
        return (call);                                                                             \
    }

PROBE(event_query, cuEventQuery(s->event))
PROBE(event_sync, cuEventSynchronize(s->event))
PROBE(event_record_other, cuEventRecord(s->event, s->other))
PROBE(event_record_captured, cuEventRecord(s->second, s->captured))
PROBE(event_record_context, record_context(s->context, s->event))
PROBE(stream_query_other, cuStreamQuery(s->other))
PROBE(stream_query_captured, cuStreamQuery(s->captured))
PROBE(stream_sync_other, cuStreamSynchronize(s->other))
PROBE(stream_sync_captured, cuStreamSynchronize(s->captured))
PROBE(context_sync, cuCtxSynchronize())
PROBE(alloc, cuMemAlloc(&s->got, BYTES))
PROBE(free_block, cuMemFree(s->block))
PROBE(alloc_async_captured, cuMemAllocAsync(&s->got, BYTES, s->captured))
PROBE(alloc_async_other, cuMemAllocAsync(&s->got, BYTES, s->other))
PROBE(free_async_captured, cuMemFreeAsync(s->block, s->captured))
PROBE(free_async_other, cuMemFreeAsync(s->block, s->other))
PROBE(set_now, cuMemsetD8(s->block, 1, 64))
PROBE(set_other, cuMemsetD8Async(s->block, 1, 64, s->other))
PROBE(set_captured, cuMemsetD8Async(s->block, 1, 64, s->captured))
PROBE(set_legacy, cuMemsetD8Async(s->block, 1, 64, CU_STREAM_LEGACY))
static CUresult copy_now(struct scene *s)
{
    char c[16];
    return cuMemcpyDtoH(c, s->block, 16);
}

static CUresult address_range(struct scene *s)
{
    CUdeviceptr base;
    size_t bytes;
    return cuMemGetAddressRange(&base, &bytes, s->block);
}

static CUresult memory_info(struct scene *s)
{
    size_t free_bytes, total;
    (void)s;
    return cuMemGetInfo(&free_bytes, &total);
}

static CUresult legacy_capturing(struct scene *s)
{
    CUstreamCaptureStatus status;
    (void)s;
    return cuStreamIsCapturing(CU_STREAM_LEGACY, &status);
}

static CUresult stream_create(struct scene *s)
{
    CUstream fresh;
    (void)s;
    CUresult result = cuStreamCreate(&fresh, CU_STREAM_NON_BLOCKING);
    return result == CUDA_SUCCESS ? cuStreamDestroy(fresh) : result;
}

static CUresult physical(struct scene *s)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    (void)s;
    CUresult result = cuMemCreate(&handle, 2 * MIB, &prop, 0);
    return result == CUDA_SUCCESS ? cuMemRelease(handle) : result;
}

PROBE(id_captured, cuStreamGetId(s->captured, &s->id))
PROBE(id_other, cuStreamGetId(s->other, &s->id))
PROBE(id_null, cuStreamGetId(NULL, &s->id))
PROBE(id_legacy, cuStreamGetId(CU_STREAM_LEGACY, &s->id))
PROBE(context_captured, cuStreamGetCtx(s->captured, &s->of))
PROBE(context_other, cuStreamGetCtx(s->other, &s->of))
PROBE(context_legacy, cuStreamGetCtx(CU_STREAM_LEGACY, &s->of))
PROBE(both_captured, both_contexts(s->captured, &s->of, &s->green))
PROBE(both_other, both_contexts(s->other, &s->of, &s->green))
PROBE(both_legacy, both_contexts(CU_STREAM_LEGACY, &s->of, &s->green))
PROBE(capturing_captured, cuStreamIsCapturing(s->captured, &s->status))
PROBE(capturing_other, cuStreamIsCapturing(s->other, &s->status))
PROBE(record_null, cuEventRecord(s->event, NULL))
PROBE(record_legacy, cuEventRecord(s->event, CU_STREAM_LEGACY))
PROBE(free_mapped, cuMemFree(s->mapped))
PROBE(free_low, cuMemFree(0x10))
PROBE(free_async_mapped_captured, cuMemFreeAsync(s->mapped, s->captured))
PROBE(free_async_mapped_other, cuMemFreeAsync(s->mapped, s->other))
PROBE(free_async_mapped_legacy, cuMemFreeAsync(s->mapped, CU_STREAM_LEGACY))
PROBE(free_async_low_captured, cuMemFreeAsync(0x10, s->captured))
PROBE(free_async_low_other, cuMemFreeAsync(0x10, s->other))
PROBE(context_id, cuCtxGetId(s->context, &s->id))
PROBE(context_device, cuCtxGetDevice(&s->device))
PROBE(ordinal, cuPointerGetAttribute(&s->device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, s->block))

static CUresult trim(struct scene *s)
{
    CUmemoryPool pool;
    (void)s;
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    return cuMemPoolTrimTo(pool, 0);
}

static CUresult push_pop(struct scene *s)
{
    CUresult result = cuCtxPushCurrent(s->context);
    return result == CUDA_SUCCESS ? cuCtxPopCurrent(&s->of) : result;
}

static CUresult event_create(struct scene *s)
{
    CUevent fresh;
    (void)s;
    CUresult result = cuEventCreate(&fresh, CU_EVENT_DISABLE_TIMING);
    return result == CUDA_SUCCESS ? cuEventDestroy(fresh) : result;
}

struct probe {
    const char *name;
    CUresult (*run)(struct scene *);
};

static const struct probe probes[] = {
    {"cuEventQuery", event_query},
    {"cuEventSynchronize", event_sync},
    {"cuEventRecord on another stream", event_record_other},
    {"cuEventRecord on the captured stream", event_record_captured},
    {"cuCtxRecordEvent", event_record_context},
    {"cuStreamQuery of another stream", stream_query_other},
    {"cuStreamQuery of the captured stream", stream_query_captured},
    {"cuStreamSynchronize of another stream", stream_sync_other},
    {"cuStreamSynchronize of the captured stream", stream_sync_captured},
    {"cuCtxSynchronize", context_sync},
    {"cuMemAlloc", alloc},
    {"cuMemFree", free_block},
    {"cuMemAllocAsync on the captured stream", alloc_async_captured},
    {"cuMemAllocAsync on another stream", alloc_async_other},
    {"cuMemFreeAsync on the captured stream", free_async_captured},
    {"cuMemFreeAsync on another stream", free_async_other},
    {"cuMemsetD8", set_now},
    {"cuMemsetD8Async on another stream", set_other},
    {"cuMemsetD8Async on the captured stream", set_captured},
    {"cuMemsetD8Async on the legacy stream", set_legacy},
    {"cuMemcpyDtoH", copy_now},
    {"cuMemGetAddressRange", address_range},
    {"cuMemGetInfo", memory_info},
    {"cuStreamIsCapturing of the legacy stream", legacy_capturing},
    {"cuStreamCreate", stream_create},
    {"cuMemCreate", physical},
};

/* What asks about streams, pools, foreign addresses and contexts. */
static const struct probe questions[] = {
    {"cuStreamGetId of the captured stream", id_captured},
    {"cuStreamGetId of another stream", id_other},
    {"cuStreamGetId of NULL", id_null},
    {"cuStreamGetId of the legacy stream", id_legacy},
    {"cuStreamGetCtx of the captured stream", context_captured},
    {"cuStreamGetCtx of another stream", context_other},
    {"cuStreamGetCtx of the legacy stream", context_legacy},
    {"cuStreamGetCtx_v2 of the captured stream", both_captured},
    {"cuStreamGetCtx_v2 of another stream", both_other},
    {"cuStreamGetCtx_v2 of the legacy stream", both_legacy},
    {"cuStreamIsCapturing of the captured stream", capturing_captured},
    {"cuStreamIsCapturing of another stream", capturing_other},
    {"cuEventRecord on NULL", record_null},
    {"cuEventRecord on the legacy stream", record_legacy},
    {"cuMemPoolTrimTo", trim},
    {"cuMemFree of a mapped address", free_mapped},
    {"cuMemFree(0x10)", free_low},
    {"cuMemFreeAsync of a mapped address on the captured stream", free_async_mapped_captured},
    {"cuMemFreeAsync of a mapped address on another stream", free_async_mapped_other},
    {"cuMemFreeAsync of a mapped address on the legacy stream", free_async_mapped_legacy},
    {"cuMemFreeAsync(0x10) on the captured stream", free_async_low_captured},
    {"cuMemFreeAsync(0x10) on another stream", free_async_low_other},
    {"cuCtxGetId", context_id},
    {"cuCtxGetDevice", context_device},
    {"cuCtxPushCurrent and cuCtxPopCurrent", push_pop},
    {"cuEventCreate and cuEventDestroy", event_create},
    {"cuPointerGetAttribute", ordinal},
};

static const struct way {
    const char *name;
    CUstreamCaptureMode mode, thread_mode;
    unsigned stream_flags;
    bool elsewhere;
} ways[] = {
    {"global", CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_NON_BLOCKING,
     false},
    {"thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL,
     CU_STREAM_NON_BLOCKING, false},
    {"relaxed", CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL,
     CU_STREAM_NON_BLOCKING, false},
    {"global, thread relaxed", CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED,
     CU_STREAM_NON_BLOCKING, false},
    {"global, another thread", CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL,
     CU_STREAM_NON_BLOCKING, true},
    {"thread-local, another thread", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
     CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_NON_BLOCKING, true},
    {"global, another thread, relaxed", CU_STREAM_CAPTURE_MODE_GLOBAL,
     CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_NON_BLOCKING, true},
    {"global, blocking stream", CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL,
     CU_STREAM_DEFAULT, false},
    {"relaxed, blocking stream", CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL,
     CU_STREAM_DEFAULT, false},
};

struct attempt {
    const struct probe *probe;
    struct scene *scene;
    CUstreamCaptureMode thread_mode;
    CUresult result;
};

static void *attempt_run(void *argument)
{
    struct attempt *attempt = argument;
    CUstreamCaptureMode mode = attempt->thread_mode;
    MUST(cuCtxSetCurrent(attempt->scene->context));
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    attempt->result = attempt->probe->run(attempt->scene);
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    return NULL;
}

/* A mapped page that stays for all probes. */
static CUdeviceptr mapped_page(void)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemAccessDesc access = {.location = prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    MUST(cuMemCreate(&handle, 2 * MIB, &prop, 0));
    MUST(cuMemAddressReserve(&address, 2 * MIB, 0, 0, 0));
    MUST(cuMemMap(address, 2 * MIB, 0, handle, 0));
    MUST(cuMemSetAccess(address, 2 * MIB, &access, 1));
    MUST(cuMemRelease(handle));
    return address;
}

static void scene_init(struct scene *s, unsigned flags, CUdeviceptr mapped)
{
    memset(s, 0, sizeof(*s));
    s->mapped = mapped;
    MUST(cuCtxGetCurrent(&s->context));
    MUST(cuStreamCreate(&s->captured, flags));
    MUST(cuStreamCreate(&s->other, CU_STREAM_NON_BLOCKING));
    MUST(cuEventCreate(&s->event, CU_EVENT_DISABLE_TIMING));
    MUST(cuEventCreate(&s->second, CU_EVENT_DISABLE_TIMING));
    MUST(cuMemAlloc(&s->block, BYTES));
    MUST(cuEventRecord(s->event, s->other));
    MUST(cuCtxSynchronize());
}

static void try(const struct way *way, const struct probe *probe, CUdeviceptr mapped)
{
    struct scene s;
    struct attempt attempt = {probe, &s, way->thread_mode, CUDA_SUCCESS};
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = NULL;
    size_t n_nodes = 0;
    pthread_t thread;
    scene_init(&s, way->stream_flags, mapped);
    MUST(cuStreamBeginCapture(s.captured, way->mode));
    if (!way->elsewhere) {
        attempt_run(&attempt);
    } else {
        pthread_create(&thread, NULL, attempt_run, &attempt);
        pthread_join(thread, NULL);
    }
    CUresult asked = cuStreamIsCapturing(s.captured, &status);
    CUresult ended = cuStreamEndCapture(s.captured, &graph);
    if (graph) {
        MUST(cuGraphGetNodes(graph, NULL, &n_nodes));
        MUST(cuGraphDestroy(graph));
    }
    printf("%s: %s; then %s, %s; end: %s, %zu nodes\n", probe->name, truth_code(attempt.result),
           truth_code(asked),
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE        ? "active"
           : status == CU_STREAM_CAPTURE_STATUS_INVALIDATED ? "invalidated"
                                                            : "none",
           truth_code(ended), n_nodes);
    fflush(stdout);
    MUST(cuCtxSynchronize());
    cuMemFree(s.block);
    if (s.got && probe->run != alloc_async_captured)
        cuMemFree(s.got);
    MUST(cuEventDestroy(s.event));
    MUST(cuEventDestroy(s.second));
    MUST(cuStreamDestroy(s.captured));
    MUST(cuStreamDestroy(s.other));
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

int main(void)
{
    CUdriverProcAddressQueryResult status;
    truth_start();
    MUST(cuGetProcAddress("cuCtxRecordEvent", (void **)&record_context, 12050, 0, &status));
    MUST(cuGetProcAddress("cuStreamGetCtx", (void **)&both_contexts, 12050, 0, &status));
    for (size_t w = 0; w < COUNT(ways); w++) {
        PART(ways[w].name);
        for (size_t p = 0; p < COUNT(probes); p++)
            try(&ways[w], &probes[p], 0);
    }
    CUdeviceptr mapped = mapped_page();
    for (size_t w = 0; w < COUNT(ways); w++) {
        printf("\n[%s: questions and foreign addresses]\n", ways[w].name);
        for (size_t p = 0; p < COUNT(questions); p++)
            try(&ways[w], &questions[p], mapped);
    }
    MUST(cuMemUnmap(mapped, 2 * MIB));
    MUST(cuMemAddressFree(mapped, 2 * MIB));
    return 0;
}
