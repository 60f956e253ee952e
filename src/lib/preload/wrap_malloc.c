/* SPDX-License-Identifier: MIT */
/* The wrappers that allocate: unpack, ask the router, or go on to the original. Whatever the
 * original refuses for lack of memory is tried again after the pool gave back what nobody uses, or
 * soon will not use any more. Must not try again after any other refusal. */
#include "preload/entry.h"
#include "preload/original.h"
#include "preload/pitch.h"
#include "preload/relief.h"
#include "preload/wrap_stream.h"

/* What became of a request before the original function was asked. */
struct answer {
    bool is_final; /* the program gets `result`: served by the pool, or refused by the driver */
    CUresult result;
    enum vpmm_route route;
    bool is_hopeless;          /* more than the device has */
    vpmm_stream_handle stream; /* of the request; NULL: cudaMalloc */
    struct vpmm_relief relief;
};

/* On the device that the request was for, whatever device is current. */
static bool relieve(struct answer *answer)
{
    struct vpmm_stream stream;
    struct vpmm_router *router = answer->is_hopeless ? NULL : vpmm_enter();
    if (!router)
        return false;
    struct vpmm_relief *relief = &answer->relief;
    bool has_room =
        !answer->stream
            ? vpmm_router_relieve(router, VPMM_DEVICE_OF_CONTEXT, relief)
            : !vpmm_order_stream(vpmm_router_order(router), answer->stream, &stream) &&
                  vpmm_router_relieve(router, vpmm_context_device(stream.context), relief);
    vpmm_leave();
    return has_room;
}

/* `named` is the memory pool that the call names. */
static void route(struct vpmm_router *router, struct vpmm_route_request *request,
                  CUmemoryPool named, CUdeviceptr *address_out, struct answer *answer)
{
    uint64_t address;
    if (!vpmm_router_is_small(router, request->bytes)) {
        answer->result = vpmm_capture_refusal(router, request->stream);
        answer->is_final = answer->result != CUDA_SUCCESS;
        answer->route = VPMM_ROUTE_CAPTURING;
        if (answer->is_final) {
            vpmm_router_refused(router, request->is_async, VPMM_ROUTE_CAPTURING);
            return;
        }
        answer->route = VPMM_ROUTE_OTHER;
        /* Whoever names a stream hears of it when that is asked for its id. */
        if (!request->stream && vpmm_context_is_broken()) {
            vpmm_router_refused(router, request->is_async, VPMM_ROUTE_OTHER);
            return;
        }
        request->mempool = named ? vpmm_entry_mempool(router, named, &request->pool_device) : NULL;
        request->names_explicit_pool = named && !request->mempool;
    }
    enum vpmm_route answered = vpmm_router_malloc(router, request, &address);
    answer->route = answered;
    answer->is_hopeless = answered == VPMM_ROUTE_LARGE;
    /* What the pool itself found no room for has waited already. */
    answer->relief.may_poll = answered != VPMM_ROUTE_FULL;
    answer->relief.may_wait = answered != VPMM_ROUTE_FULL && !request->is_async;
    bool is_refused = answered == VPMM_ROUTE_LIMITED || answered == VPMM_ROUTE_POOL_LIMIT;
    answer->is_final = answered == VPMM_ROUTE_POOL || is_refused;
    if (answered == VPMM_ROUTE_POOL)
        *address_out = address;
    else if (is_refused)
        answer->result = CUDA_ERROR_OUT_OF_MEMORY;
}

/* `call` NULL: it is not recorded. */
static VPMM_INLINE struct answer serve(struct vpmm_call *call, struct vpmm_route_request request,
                                       CUmemoryPool named, CUdeviceptr *address_out)
{
    struct answer answer = {.result = CUDA_SUCCESS,
                            .route = VPMM_ROUTE_OTHER,
                            .stream = request.stream,
                            .relief = {.bytes = request.bytes}};
    struct vpmm_router *router = address_out && request.bytes ? vpmm_enter_served() : NULL;
    if (router) {
        request.served_out = vpmm_call_served(call);
        route(router, &request, named, address_out, &answer);
        vpmm_leave();
    } else if (address_out && request.bytes) {
        vpmm_entry_passed(request.is_async);
    }
    vpmm_call_route(call, answer.route, request.stream);
    return answer;
}

/* The shortest way there is. A capture keeps the router from knowing the stream. */
static VPMM_INLINE enum vpmm_status serve_warm(struct vpmm_call *call, CUdeviceptr *address_out,
                                               size_t bytes, vpmm_stream_handle stream)
{
    struct vpmm_router *router = address_out ? vpmm_enter_served() : NULL;
    uint64_t address;
    if (!router)
        return VPMM_NOT_READY;
    enum vpmm_status status =
        vpmm_router_malloc_warm(router, bytes, stream, vpmm_call_served(call), &address);
    vpmm_leave();
    if (!status) {
        *address_out = address;
        vpmm_call_route(call, VPMM_ROUTE_POOL, stream);
    }
    return status;
}

/* `warm` is what serve_warm answered; NOT_READY where it was not asked. */
static struct answer serve_async(struct vpmm_call *call, CUdeviceptr *address_out, size_t bytes,
                                 CUmemoryPool named, vpmm_stream_handle stream,
                                 enum vpmm_status warm)
{
    struct vpmm_route_request request = {
        .bytes = bytes, .is_async = true, .stream = stream, .was_asked = warm == VPMM_NOT_FOUND};
    return serve(call, request, named, address_out);
}

/* The wrapper `name`: `body`, which is given `call`, is recorded where there is a trace, as a
 * request for `asked` bytes. */
#define ALLOCATES(name, parameters, asked, body, ...)                                              \
    VPMM_NOINLINE static CUresult name##_recorded parameters                                       \
    {                                                                                              \
        struct vpmm_call begun, *call = vpmm_call_begin(&begun) ? &begun : NULL;                   \
        CUresult result = body;                                                                    \
        return call ? vpmm_call_end(call, address_out, asked, result) : result;                    \
    }                                                                                              \
    CUresult vpmm_wrap_##name parameters                                                           \
    {                                                                                              \
        struct vpmm_call *const call = NULL;                                                       \
        return vpmm_is_recorded() ? name##_recorded(__VA_ARGS__) : body;                           \
    }

/* The same of a cudaMalloc that shares a page with others. */
static VPMM_INLINE bool serve_part(struct vpmm_call *call, CUdeviceptr *address_out, size_t bytes)
{
    struct vpmm_router *router = address_out && bytes ? vpmm_enter_served() : NULL;
    uint64_t address;
    if (!router)
        return false;
    bool is_served = vpmm_router_may_be_part(router, bytes) &&
                     !vpmm_order_captures(vpmm_router_order(router)) && !vpmm_context_is_broken() &&
                     vpmm_router_malloc_part_sync(router, bytes, &address);
    vpmm_leave();
    if (is_served) {
        *address_out = address;
        vpmm_call_route(call, VPMM_ROUTE_POOL, NULL);
    }
    return is_served;
}

static VPMM_INLINE CUresult allocate(struct vpmm_call *call, CUdeviceptr *address_out, size_t bytes)
{
    if (serve_part(call, address_out, bytes))
        return CUDA_SUCCESS;
    struct answer answer =
        serve(call, (struct vpmm_route_request){.bytes = bytes}, NULL, address_out);
    if (answer.is_final)
        return answer.result;
    CUresult result;
    VPMM_TRY_RELIEVED(result, relieve(&answer), VPMM_ORIGINAL(cuMemAlloc_v2, address_out, bytes));
    return result;
}

ALLOCATES(cuMemAlloc_v2, (CUdeviceptr * address_out, size_t bytes), bytes,
          allocate(call, address_out, bytes), address_out, bytes)

/* The bytes of such rows where the pool may serve them, and their pitch; 0: the original has to. */
static size_t pitched_bytes(size_t width_bytes, size_t height, unsigned element_bytes,
                            size_t *pitch_out)
{
    size_t bytes;
    *pitch_out =
        width_bytes && height ? vpmm_pitch_of(vpmm_entry_pitches(), width_bytes, element_bytes) : 0;
    return __builtin_mul_overflow(*pitch_out, height, &bytes) ? 0 : bytes;
}

static struct answer serve_rows(struct vpmm_call *call, CUdeviceptr *address_out, size_t *pitch_out,
                                size_t width_bytes, size_t height, unsigned element_bytes)
{
    struct answer answer = {.route = VPMM_ROUTE_OTHER,
                            .relief = {.may_wait = true, .may_poll = true}};
    answer.is_hopeless = __builtin_mul_overflow(width_bytes, height, &answer.relief.bytes);
    bool is_request = address_out && pitch_out && width_bytes && height;
    struct vpmm_router *router = is_request ? vpmm_enter() : NULL;
    size_t pitch = 0, bytes = 0;
    if (router) {
        bytes = pitched_bytes(width_bytes, height, element_bytes, &pitch);
        if (!bytes)
            vpmm_router_refused(router, false, VPMM_ROUTE_OTHER);
        vpmm_leave();
    } else if (is_request) {
        vpmm_entry_passed(false);
    }
    if (!bytes)
        return answer;
    answer = serve(call, (struct vpmm_route_request){.bytes = bytes}, NULL, address_out);
    if (answer.is_final && answer.result == CUDA_SUCCESS)
        *pitch_out = pitch;
    return answer;
}

static VPMM_INLINE CUresult allocate_rows(struct vpmm_call *call, CUdeviceptr *address_out,
                                          size_t *pitch_out, size_t width_bytes, size_t height,
                                          unsigned element_bytes)
{
    struct answer answer =
        serve_rows(call, address_out, pitch_out, width_bytes, height, element_bytes);
    if (answer.is_final)
        return answer.result;
    CUresult result;
    VPMM_TRY_RELIEVED(result, relieve(&answer),
                      VPMM_ORIGINAL(cuMemAllocPitch_v2, address_out, pitch_out, width_bytes, height,
                                    element_bytes));
    if (result == CUDA_SUCCESS && vpmm_enter()) {
        vpmm_pitch_seen(vpmm_entry_pitches(), width_bytes, element_bytes, *pitch_out);
        vpmm_leave();
    }
    return result;
}

ALLOCATES(cuMemAllocPitch_v2,
          (CUdeviceptr * address_out, size_t *pitch_out, size_t width_bytes, size_t height,
           unsigned element_bytes),
          (result == CUDA_SUCCESS ? *pitch_out : width_bytes) * height,
          allocate_rows(call, address_out, pitch_out, width_bytes, height, element_bytes),
          address_out, pitch_out, width_bytes, height, element_bytes)

CUresult vpmm_wrap_cuMemCreate(CUmemGenericAllocationHandle *handle_out, size_t bytes,
                               const CUmemAllocationProp *properties, unsigned long long flags)
{
    bool is_device = properties && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    struct vpmm_relief relief = {.bytes = bytes, .may_poll = true};
    CUresult result;
    VPMM_TRY_RELIEVED(result, is_device && vpmm_relieve_device(properties->location.id, &relief),
                      VPMM_ORIGINAL(cuMemCreate, handle_out, bytes, properties, flags));
    return result;
}

static VPMM_INLINE CUresult allocate_async(struct vpmm_call *call, enum vpmm_api api,
                                           vpmm_stream_handle null_stream, CUdeviceptr *address_out,
                                           size_t bytes, CUstream stream)
{
    vpmm_stream_handle handle = vpmm_stream_of(stream, null_stream);
    enum vpmm_status warm = serve_warm(call, address_out, bytes, handle);
    if (!warm)
        return CUDA_SUCCESS;
    struct answer answer = serve_async(call, address_out, bytes, NULL, handle, warm);
    if (answer.is_final)
        return answer.result;
    CUresult result;
    VPMM_TRY_RELIEVED(result, relieve(&answer),
                      VPMM_ORIGINAL_AT(api, cuMemAllocAsync_fn, address_out, bytes, stream));
    return result;
}

ALLOCATES(cuMemAllocAsync, (CUdeviceptr * address_out, size_t bytes, CUstream stream), bytes,
          allocate_async(call, VPMM_API_cuMemAllocAsync, VPMM_STREAM_LEGACY, address_out, bytes,
                         stream),
          address_out, bytes, stream)
ALLOCATES(cuMemAllocAsync_ptsz, (CUdeviceptr * address_out, size_t bytes, CUstream stream), bytes,
          allocate_async(call, VPMM_API_cuMemAllocAsync_ptsz, VPMM_STREAM_PER_THREAD, address_out,
                         bytes, stream),
          address_out, bytes, stream)

/* Without a pool the call is the driver's to refuse. */
static VPMM_INLINE CUresult allocate_from(struct vpmm_call *call, enum vpmm_api api,
                                          vpmm_stream_handle null_stream, CUdeviceptr *address_out,
                                          size_t bytes, CUmemoryPool pool, CUstream stream)
{
    struct answer answer = serve_async(call, pool ? address_out : NULL, bytes, pool,
                                       vpmm_stream_of(stream, null_stream), VPMM_NOT_READY);
    if (answer.is_final)
        return answer.result;
    CUresult result;
    VPMM_TRY_RELIEVED(
        result, relieve(&answer),
        VPMM_ORIGINAL_AT(api, cuMemAllocFromPoolAsync_fn, address_out, bytes, pool, stream));
    return result;
}

ALLOCATES(cuMemAllocFromPoolAsync,
          (CUdeviceptr * address_out, size_t bytes, CUmemoryPool pool, CUstream stream), bytes,
          allocate_from(call, VPMM_API_cuMemAllocFromPoolAsync, VPMM_STREAM_LEGACY, address_out,
                        bytes, pool, stream),
          address_out, bytes, pool, stream)
ALLOCATES(cuMemAllocFromPoolAsync_ptsz,
          (CUdeviceptr * address_out, size_t bytes, CUmemoryPool pool, CUstream stream), bytes,
          allocate_from(call, VPMM_API_cuMemAllocFromPoolAsync_ptsz, VPMM_STREAM_PER_THREAD,
                        address_out, bytes, pool, stream),
          address_out, bytes, pool, stream)
