/* SPDX-License-Identifier: MIT */
/* Serves a request from the right heap, or says why CUDA has to. A request whose heap is there must
 * not take the router's lock, which all threads share. */
#include "route/router.h"

enum vpmm_status vpmm_router_create(const struct vpmm_config *config,
                                    const struct vpmm_driver *driver,
                                    const struct vpmm_memory *memory,
                                    const struct vpmm_first_heap *first_heap,
                                    struct vpmm_router **router_out)
{
    struct vpmm_router *router = memory->map(memory->self, sizeof *router);
    if (!router)
        return VPMM_NO_METADATA;
    enum vpmm_status status = vpmm_order_create(driver, memory, &router->order);
    if (status) {
        memory->unmap(memory->self, router, sizeof *router);
        return status;
    }
    router->config = config;
    router->driver = driver;
    router->memory = memory;
    router->first_heap = *first_heap;
    router->weights_first = (struct vpmm_neighbours){router, vpmm_router_ask_weights_first};
    vpmm_atomic_store(&router->small_bytes, driver->event_record_context ? config->min_bytes : 0);
    vpmm_router_mempools_init(router);
    vpmm_lock_init(&router->lock, VPMM_RANK_ROUTE);
    vpmm_condition_init(&router->changed);
    *router_out = router;
    return VPMM_OK;
}

void vpmm_router_destroy(struct vpmm_router *router)
{
    if (!router)
        return;
    uint32_t n = vpmm_atomic_load(&router->n_heaps);
    for (uint32_t i = 0; i < n; i++)
        vpmm_heap_destroy(vpmm_atomic_load(&router->heaps[i]));
    for (int i = 0; i < VPMM_DEVICES_MAX; i++)
        vpmm_small_destroy(router->devices[i].small);
    vpmm_order_destroy(router->order);
    vpmm_condition_finish(&router->changed);
    vpmm_lock_finish(&router->lock);
    router->memory->unmap(router->memory->self, router, sizeof *router);
}

void vpmm_router_watch(struct vpmm_router *router, const struct vpmm_watch *watch)
{
    router->watch = watch;
}

void vpmm_router_neighbours(struct vpmm_router *router, const struct vpmm_neighbours *neighbours)
{
    router->neighbours = neighbours;
}

struct vpmm_order *vpmm_router_order(struct vpmm_router *router)
{
    return router->order;
}

/* ---- malloc ---- */

/* Who asks: the context, and the stream if there is one. */
struct caller {
    struct vpmm_context *context;
    struct vpmm_stream stream;
    struct vpmm_mempool *mempool;
};

static enum vpmm_status identify(struct vpmm_router *router,
                                 const struct vpmm_route_request *request, struct caller *caller)
{
    if (!request->is_async)
        return vpmm_order_context(router->order, NULL, &caller->context);
    enum vpmm_status status = vpmm_order_stream(router->order, request->stream, &caller->stream);
    if (!status)
        caller->context = caller->stream.context;
    return status;
}

/* The request's memory pool, named or current, on a device; NULL: none that we serve. */
static struct vpmm_mempool *mempool_of(const struct vpmm_route_request *request, int number,
                                       struct device *device)
{
    if (request->mempool)
        return request->pool_device == number ? request->mempool : NULL;
    return vpmm_atomic_load(&device->current);
}

bool vpmm_router_is_small(const struct vpmm_router *router, uint64_t bytes)
{
    return bytes < vpmm_atomic_load(&router->small_bytes);
}

/* Why a request is left to CUDA whose context, stream or device could not be asked about. */
static enum vpmm_route route_unasked(enum vpmm_status status)
{
    return status == VPMM_NOT_SUPPORTED ? VPMM_ROUTE_NO_VMM : VPMM_ROUTE_OTHER;
}

/* Asks the policy. POOL: `caller` is set and its device is known. */
static enum vpmm_route decide(struct vpmm_router *router, const struct vpmm_route_request *request,
                              struct caller *caller)
{
    struct vpmm_route_question question = {
        .bytes = request->bytes,
        .is_async = request->is_async,
        .names_explicit_pool = request->names_explicit_pool,
        .peers_possible = !vpmm_atomic_load(&router->is_unconnected),
        .emulates_ipc = router->config->ipc,
        .threshold_bytes = vpmm_atomic_load(&router->small_bytes),
    };
    if (question.bytes < question.threshold_bytes)
        return vpmm_route_decide(&question);
    enum vpmm_status status = identify(router, request, caller);
    question.has_context = status != VPMM_NO_CONTEXT;
    question.is_capturing = status == VPMM_CAPTURED || caller->stream.is_capturing;
    if (!status) {
        int number = vpmm_context_device(caller->context);
        status = vpmm_router_learn(router, number);
        if (status)
            return route_unasked(status);
        struct device *device = &router->devices[number];
        caller->mempool = mempool_of(request, number, device);
        question.threshold_bytes = device->threshold_bytes;
        question.device_bytes = device->facts.total_bytes;
        question.limit_bytes = device->limit_bytes;
        question.has_vmm = device->facts.has_vmm;
        question.is_disabled = device->is_off;
        question.names_our_pool = caller->mempool != NULL;
    }
    bool is_understood = !status || status == VPMM_NO_CONTEXT || status == VPMM_CAPTURED;
    return is_understood ? vpmm_route_decide(&question) : route_unasked(status);
}

struct vpmm_heap *vpmm_router_current_heap(struct vpmm_router *router)
{
    struct vpmm_context *context;
    if (!vpmm_atomic_load(&router->n_heaps) ||
        vpmm_order_context(router->order, NULL, &context) != VPMM_OK)
        return NULL;
    return vpmm_router_heap(router, vpmm_context_device(context));
}

static enum vpmm_route route_of_status(enum vpmm_status status)
{
    switch (status) {
    case VPMM_OK:
        return VPMM_ROUTE_POOL;
    case VPMM_NO_MEMORY:
        return VPMM_ROUTE_FULL;
    case VPMM_LIMITED:
        return VPMM_ROUTE_LIMITED;
    case VPMM_CAPTURED:
        return VPMM_ROUTE_CAPTURING;
    case VPMM_NOT_SUPPORTED:
        return VPMM_ROUTE_NO_VMM;
    default:
        return VPMM_ROUTE_OTHER;
    }
}

/* What contexts owned that are gone becomes free: those whose end was announced, and those of which
 * something else told. */
static void bury_gone(struct vpmm_router *router)
{
    uint32_t n = vpmm_atomic_load(&router->n_heaps);
    uint64_t id;
    while ((id = vpmm_order_next_gone(router->order)) != 0)
        for (uint32_t i = 0; i < n; i++)
            vpmm_router_end_context(router, vpmm_atomic_load(&router->heaps[i]), id);
}

/* cudaMalloc memory for a context that ended meanwhile ended with it. */
static void end_with(struct vpmm_router *router, struct vpmm_heap *heap,
                     const struct vpmm_request *request)
{
    if (!request->stream && vpmm_context_is_gone(request->context))
        vpmm_router_end_context(router, heap, vpmm_context_id(request->context));
}

VPMM_NOINLINE static enum vpmm_route
serve(struct vpmm_router *router, const struct vpmm_route_request *request, uint64_t *address_out)
{
    struct caller caller = {0};
    struct vpmm_heap *heap;
    bury_gone(router);
    enum vpmm_route route = decide(router, request, &caller);
    if (route == VPMM_ROUTE_LIMITED)
        vpmm_router_tell_limited(router, vpmm_context_device(caller.context), request);
    if (route != VPMM_ROUTE_POOL)
        return route;
    enum vpmm_status status =
        vpmm_router_require_heap(router, vpmm_context_device(caller.context), &heap);
    if (status)
        return route_unasked(status);
    const struct vpmm_request wanted = {request->bytes,
                                        caller.context,
                                        request->is_async ? &caller.stream : NULL,
                                        request->is_async ? caller.mempool : NULL,
                                        request->served_out,
                                        false,
                                        request->was_asked};
    if (wanted.mempool && !vpmm_heap_mempool_has_room(heap, wanted.mempool, request->bytes))
        return VPMM_ROUTE_POOL_LIMIT;
    bool is_part = vpmm_router_is_part(router, vpmm_heap_device(heap), request->bytes);
    status = is_part ? vpmm_router_malloc_part(router, heap, &wanted, address_out)
                     : vpmm_heap_malloc(heap, &wanted, address_out);
    if (is_part && status == VPMM_NOT_FOUND)
        return VPMM_ROUTE_SMALL;
    end_with(router, heap, &wanted);
    vpmm_router_note_held(router, heap);
    route = route_of_status(status);
    if (route == VPMM_ROUTE_FULL)
        vpmm_router_tell_full(router, heap, request);
    else if (route == VPMM_ROUTE_LIMITED)
        vpmm_router_tell_limited(router, vpmm_heap_device(heap), request);
    else if (status == VPMM_FAILED || status == VPMM_NO_METADATA)
        vpmm_router_tell_failure(heap, request, status);
    return route;
}

/* Decided as `serve` would, from what is known already. `named` NULL: the device's current one.
 * NOT_FOUND: of a request that only has to be served from elsewhere. */
static VPMM_INLINE enum vpmm_status serve_warm(struct vpmm_router *router, uint64_t bytes,
                                               vpmm_stream_handle handle,
                                               struct vpmm_mempool *named, int pool_device,
                                               struct vpmm_served *served_out,
                                               uint64_t *address_out)
{
    const struct vpmm_stream *stream = vpmm_order_recall(router->order, handle);
    if (!stream)
        return VPMM_NOT_READY;
    int number = vpmm_context_device(stream->context);
    struct device *device = &router->devices[number];
    struct vpmm_heap *heap = vpmm_atomic_load(&device->heap);
    struct vpmm_mempool *mempool = named ? named : vpmm_atomic_load(&device->current);
    if (!heap || !mempool || mempool->limit_bytes || (named && pool_device != number))
        return VPMM_NOT_READY;
    const struct vpmm_request wanted = {.bytes = bytes,
                                        .context = stream->context,
                                        .stream = stream,
                                        .mempool = mempool,
                                        .served_out = served_out};
    if (bytes < device->whole_bytes || vpmm_router_is_part(router, number, bytes))
        return !named && bytes >= device->threshold_bytes &&
                       vpmm_router_malloc_part_warm(router, &wanted, number, address_out)
                   ? VPMM_OK
                   : VPMM_NOT_READY;
    bool has_habit;
    if (vpmm_heap_malloc_cached(heap, &wanted, address_out, &has_habit))
        return VPMM_OK;
    if (!has_habit)
        return VPMM_NOT_FOUND;
    bool could_be_cancelled = vpmm_cancel_hold();
    bool is_served = vpmm_heap_malloc_by_habit(heap, &wanted, address_out);
    vpmm_cancel_restore(could_be_cancelled);
    if (is_served)
        vpmm_atomic_add(&router->counts[true][VPMM_ROUTE_POOL], 1);
    return is_served ? VPMM_OK : VPMM_NOT_FOUND;
}

bool vpmm_router_may_be_part(const struct vpmm_router *router, uint64_t bytes)
{
    return bytes <= vpmm_atomic_load(&router->part_bytes_max) &&
           !vpmm_router_is_small(router, bytes);
}

bool vpmm_router_malloc_part_sync(struct vpmm_router *router, uint64_t bytes, uint64_t *address_out)
{
    struct vpmm_context *context;
    if (vpmm_atomic_load(&router->is_unconnected) || !router->config->ipc ||
        vpmm_order_context(router->order, NULL, &context) != VPMM_OK)
        return false;
    bury_gone(router);
    int number = vpmm_context_device(context);
    const struct device *device = &router->devices[number];
    struct vpmm_heap *heap = vpmm_atomic_load(&device->heap);
    const struct vpmm_request wanted = {.bytes = bytes, .context = context};
    if (!heap || !vpmm_router_is_part(router, number, bytes) || bytes < device->threshold_bytes ||
        !vpmm_router_malloc_part_warm(router, &wanted, number, address_out))
        return false;
    end_with(router, heap, &wanted);
    return true;
}

enum vpmm_status vpmm_router_malloc_warm(struct vpmm_router *router, uint64_t bytes,
                                         vpmm_stream_handle stream, struct vpmm_served *served_out,
                                         uint64_t *address_out)
{
    return vpmm_router_is_small(router, bytes)
               ? VPMM_NOT_READY
               : serve_warm(router, bytes, stream, NULL, 0, served_out, address_out);
}

enum vpmm_route vpmm_router_malloc(struct vpmm_router *router,
                                   const struct vpmm_route_request *request, uint64_t *address_out)
{
    struct vpmm_route_request asked = *request;
    bool may_be_warm = request->mempool && !vpmm_router_is_small(router, request->bytes);
    enum vpmm_status warm =
        may_be_warm ? serve_warm(router, request->bytes, request->stream, request->mempool,
                                 request->pool_device, request->served_out, address_out)
                    : VPMM_NOT_READY;
    if (!warm)
        return VPMM_ROUTE_POOL;
    asked.was_asked |= warm == VPMM_NOT_FOUND;
    /* A thread that is cancelled in there would leave counts that others wait for. */
    bool could_be_cancelled = vpmm_cancel_hold();
    enum vpmm_route route = serve(router, &asked, address_out);
    vpmm_cancel_restore(could_be_cancelled);
    vpmm_atomic_add(&router->counts[request->is_async][route], 1);
    return route;
}

void vpmm_router_refused(struct vpmm_router *router, bool is_async, enum vpmm_route reason)
{
    vpmm_atomic_add(&router->counts[is_async][reason], 1);
}

/* ---- memory that may go back ---- */

bool vpmm_router_relieve(struct vpmm_router *router, int device, struct vpmm_relief *relief)
{
    struct vpmm_heap *heap = device == VPMM_DEVICE_OF_CONTEXT ? vpmm_router_current_heap(router)
                                                              : vpmm_router_heap(router, device);
    bool could_be_cancelled = vpmm_cancel_hold();
    bool has_room = heap && vpmm_heap_relieve(heap, relief);
    if (heap && !has_room && relief->bytes)
        has_room = vpmm_router_offload_yield(router, vpmm_heap_device(heap), relief->bytes);
    vpmm_cancel_restore(could_be_cancelled);
    return has_room;
}

uint64_t vpmm_router_reusable_bytes(struct vpmm_router *router)
{
    struct vpmm_heap *heap = vpmm_router_current_heap(router);
    if (!heap)
        return 0;
    vpmm_heap_reap(heap);
    return vpmm_heap_releasable_bytes(heap);
}

bool vpmm_router_limit(struct vpmm_router *router, uint64_t *limit_out, uint64_t *left_out)
{
    struct vpmm_context *context;
    if (!router->config->limit.value ||
        vpmm_order_context(router->order, NULL, &context) != VPMM_OK ||
        vpmm_router_learn(router, vpmm_context_device(context)) != VPMM_OK)
        return false;
    const struct device *device = &router->devices[vpmm_context_device(context)];
    const struct vpmm_heap *heap = vpmm_atomic_load(&device->heap);
    if (!device->facts.has_vmm || device->is_off)
        return false;
    uint64_t held = heap ? vpmm_heap_held_bytes(heap) : 0;
    held += vpmm_router_offload_bytes(router, vpmm_context_device(context));
    *limit_out = device->limit_bytes;
    *left_out = held < device->limit_bytes ? device->limit_bytes - held : 0;
    return true;
}

/* ---- contexts that go ---- */

void vpmm_router_context_handed_out(struct vpmm_router *router, vpmm_context_handle handle,
                                    bool is_new)
{
    vpmm_order_context_made(router->order, handle, is_new);
    bury_gone(router);
}

bool vpmm_router_context_left(struct vpmm_router *router, const struct vpmm_departure *departure,
                              bool destroyed)
{
    const struct vpmm_context *context = departure->context;
    if (!context)
        return false;
    if (!destroyed)
        destroyed = !vpmm_order_context_lives(router->order, context);
    vpmm_order_context_left(router->order, departure, destroyed);
    bury_gone(router);
    return destroyed;
}
