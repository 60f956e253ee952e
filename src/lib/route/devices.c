/* SPDX-License-Identifier: MIT */
/* What is known of each device, and its heap, which the first request makes. Must not hold the
 * router's lock during a driver call. */
#include "route/router.h"

#include "base/bytes.h"
#include "base/layout.h"
#include "observe/log.h"

#define DEFAULT_SLACK_PERCENT 2

/* A pool that could not be made is tried again after so many requests, then after 16 times as many,
 * up to 16 million. Limits of a process rarely change, and each try makes and undoes a lot. */
#define RETRY_FIRST_BITS 4u
#define RETRY_MORE_BITS 4u
#define RETRY_BITS_MAX 24u

static uint64_t bit(int device)
{
    return (uint64_t)1 << device;
}

/* ---- facts ---- */

/* A page size that does not fit even 64 bits after rounding is larger than any device. */
static uint64_t page_bytes(uint64_t asked, uint64_t granularity_bytes)
{
    uint64_t page = granularity_bytes;
    if (asked && granularity_bytes && !vpmm_bytes_round_up(asked, granularity_bytes, &page))
        page = UINT64_MAX;
    return page;
}

static uint64_t limit_bytes(const struct vpmm_amount *limit, const struct vpmm_device_facts *facts)
{
    if (!limit->value)
        return UINT64_MAX;
    return limit->is_percent ? facts->total_bytes / 100 * limit->value : limit->value;
}

/* Lock. What no device wants is passed on before anything else is asked. */
static void note_threshold(struct vpmm_router *router, const struct device *device)
{
    uint64_t small_bytes = vpmm_atomic_load(&router->small_bytes);
    if (!small_bytes || device->threshold_bytes < small_bytes)
        vpmm_atomic_store(&router->small_bytes, device->threshold_bytes);
}

enum vpmm_status vpmm_router_learn(struct vpmm_router *router, int number)
{
    if (!vpmm_router_is_device(number))
        return VPMM_INVALID;
    struct device *device = &router->devices[number];
    if (vpmm_atomic_load(&device->is_known))
        return VPMM_OK;
    struct vpmm_device_facts facts;
    enum vpmm_status status = router->driver->device_facts(router->driver->self, number, &facts);
    if (status)
        return status;
    vpmm_lock_take(&router->lock);
    bool is_new = !vpmm_atomic_load(&device->is_known);
    if (is_new) {
        device->facts = facts;
        device->page_bytes = page_bytes(router->config->page_bytes, facts.granularity_bytes);
        uint64_t min_bytes = router->config->min_bytes;
        bool has_parts = min_bytes && router->driver->event_record_context;
        device->threshold_bytes =
            has_parts || min_bytes > device->page_bytes ? min_bytes : device->page_bytes;
        device->whole_bytes = device->threshold_bytes;
        if (device->threshold_bytes < device->page_bytes)
            device->whole_bytes = device->page_bytes;
        device->limit_bytes = limit_bytes(&router->config->limit, &facts);
        device->is_off = device->page_bytes > facts.total_bytes;
        note_threshold(router, device);
        vpmm_atomic_store(&device->is_known, 1);
    }
    vpmm_lock_give(&router->lock);
    if (is_new && !facts.has_vmm)
        vpmm_log(
            VPMM_LOG_IS_INFO,
            "device %d cannot map memory at addresses of our choice: everything passes through",
            number);
    return VPMM_OK;
}

/* ---- peers ---- */

/* Lets `peer` reach the memory of `owner`, whose heap may not exist yet. */
static void connect(struct vpmm_router *router, struct vpmm_heap *heap, int owner, int peer)
{
    bool is_possible = false;
    enum vpmm_status status =
        router->driver->peer_possible(router->driver->self, peer, owner, &is_possible);
    if (!status && is_possible && heap)
        status = vpmm_heap_add_peer(heap, peer);
    if (!status && is_possible)
        return;
    vpmm_atomic_store(&router->is_unconnected, 1);
    vpmm_log(
        VPMM_LOG_IS_INFO,
        "device %d cannot reach the pool of device %d (%s): cudaMalloc passes through from now on",
        peer, owner, status ? vpmm_status_text(status) : "the devices are not peers");
}

/* A thread that gets the context while another one connects its device does the same: it must not
 * use the context before that is done. */
void vpmm_router_context_made(struct vpmm_router *router, int device)
{
    if (!vpmm_router_is_device(device))
        return;
    vpmm_lock_take(&router->lock);
    bool is_done = router->connected_devices & bit(device);
    uint64_t others = is_done ? 0 : router->seen_devices & ~bit(device);
    router->seen_devices |= bit(device);
    vpmm_lock_give(&router->lock);
    for (int other = 0; other < VPMM_DEVICES_MAX; other++) {
        if (!(others & bit(other)))
            continue;
        connect(router, vpmm_router_heap(router, device), device, other);
        connect(router, vpmm_router_heap(router, other), other, device);
    }
    vpmm_lock_take(&router->lock);
    router->connected_devices |= bit(device);
    vpmm_lock_give(&router->lock);
}

void vpmm_router_pool_access(struct vpmm_router *router, int device, int peer)
{
    if (!vpmm_router_is_device(device) || !vpmm_router_is_device(peer) || device == peer)
        return;
    vpmm_lock_take(&router->lock);
    router->devices[device].granted_peers |= bit(peer);
    vpmm_lock_give(&router->lock);
    struct vpmm_heap *heap = vpmm_router_heap(router, device);
    enum vpmm_status status = heap ? vpmm_heap_add_peer(heap, peer) : VPMM_OK;
    if (status)
        vpmm_log(VPMM_LOG_IS_WARNING, "device %d got no access to the pool of device %d: %s", peer,
                 device, vpmm_status_text(status));
}

/* ---- heaps ---- */

struct vpmm_heap *vpmm_router_heap(struct vpmm_router *router, int device)
{
    return vpmm_router_is_device(device) ? vpmm_atomic_load(&router->devices[device].heap) : NULL;
}

static uint64_t eager_pages(const struct vpmm_amount *pages, const struct device *device)
{
    uint64_t device_pages = device->facts.total_bytes / device->page_bytes;
    return pages->is_percent ? device_pages * pages->value / 100 : pages->value;
}

uint64_t vpmm_router_layout(void)
{
    uint64_t layout = vpmm_layout_mix(sizeof(struct vpmm_router), sizeof(struct device));
    layout = vpmm_layout_mix(layout, VPMM_ROUTE_COUNT);
    layout = vpmm_layout_mix(layout, vpmm_heap_layout());
    layout = vpmm_layout_mix(layout, vpmm_order_layout());
    layout = vpmm_layout_mix(layout, vpmm_small_layout());
    return vpmm_layout_mix(layout, vpmm_pool_layout());
}

static struct vpmm_heap_params heap_params(const struct vpmm_config *config, int number,
                                           const struct device *device)
{
    const struct vpmm_amount *slack = &config->slack;
    uint64_t slack_percent = slack->is_percent ? slack->value : 0;
    struct vpmm_heap_params params = {
        .device = number,
        .page_bytes = device->page_bytes,
        .root_bytes = config->va_bytes,
        .eager_pages = eager_pages(&config->pages, device),
        .extent_pages_max = config->extent_pages_max,
        .slack_bytes = slack->is_percent ? 0 : slack->value,
        .slack_percent = config->slack_is_default ? DEFAULT_SLACK_PERCENT : slack_percent,
        .spare_percent = config->spare_percent,
        .limit_bytes = config->limit.value ? device->limit_bytes : 0,
        .free_waits = config->free_sync == VPMM_FREE_SYNC_ALWAYS,
        .stream_waits = config->stream_waits,
        .exports_whole = config->ipc && config->ipc_refuses_shared && device->facts.can_export,
    };
    (void)vpmm_bytes_round_up(params.root_bytes, params.page_bytes, &params.root_bytes);
    return params;
}

/* Shows the heap to everybody once every device that was seen until then can reach it: a device
 * seen later finds it. */
static void publish(struct vpmm_router *router, int number, struct vpmm_heap *heap)
{
    struct device *device = &router->devices[number];
    uint64_t done = bit(number);
    vpmm_lock_take(&router->lock);
    for (;;) {
        uint64_t missing = (router->seen_devices | device->granted_peers) & ~done;
        if (!missing)
            break;
        vpmm_lock_give(&router->lock);
        for (int peer = 0; peer < VPMM_DEVICES_MAX; peer++)
            if (missing & bit(peer))
                connect(router, heap, number, peer);
        done |= missing;
        vpmm_lock_take(&router->lock);
    }
    uint32_t n = vpmm_atomic_load(&router->n_heaps);
    router->smalls[n] = device->small;
    vpmm_atomic_store(&router->heaps[n], heap);
    vpmm_atomic_store(&router->n_heaps, n + 1);
    bool is_plain = n == 0 || vpmm_atomic_load(&router->n_plain_heaps);
    vpmm_atomic_store(&router->n_plain_heaps, is_plain && !device->small ? n + 1 : 0);
    vpmm_atomic_store(&device->heap, heap);
    vpmm_lock_give(&router->lock);
    if (n == 0 && router->first_heap.call)
        router->first_heap.call(router->first_heap.self);
}

static enum vpmm_status make_heap(struct vpmm_router *router, int number)
{
    const struct device *device = &router->devices[number];
    const struct vpmm_config *config = router->config;
    struct vpmm_heap_params params = heap_params(config, number, device);
    struct vpmm_heap *heap;
    params.watch = router->watch;
    params.neighbours = &router->weights_first;
    vpmm_router_context_made(router, number);
    enum vpmm_status status =
        vpmm_heap_create(&params, router->driver, router->order, router->memory, &heap);
    if (status) {
        vpmm_log(device->n_refusals ? VPMM_LOG_IS_INFO : VPMM_LOG_IS_WARNING,
                 "no pool for device %d: %s; CUDA serves its requests meanwhile", number,
                 vpmm_status_text(status));
        return status;
    }
    vpmm_router_make_small(router, number, heap);
    publish(router, number, heap);
    if (config->page_bytes && config->page_bytes != device->page_bytes)
        vpmm_log(
            VPMM_LOG_IS_WARNING,
            "VPMM_PAGE_SIZE=%llu is no multiple of the granularity of device %d, %llu; using %llu",
            (unsigned long long)config->page_bytes, number,
            (unsigned long long)device->facts.granularity_bytes,
            (unsigned long long)device->page_bytes);
    return VPMM_OK;
}

/* True when it is now the caller's to make the heap; otherwise it exists, or `*status_out` says why
 * it does not. */
static bool begin_making(struct vpmm_router *router, struct device *device,
                         enum vpmm_status *status_out)
{
    vpmm_lock_take(&router->lock);
    while (device->is_making)
        vpmm_condition_wait(&router->changed, &router->lock);
    bool is_wanted = !vpmm_atomic_load(&device->heap) && !device->is_hopeless;
    bool is_ours = is_wanted && device->n_to_skip == 0;
    if (is_wanted && !is_ours)
        device->n_to_skip--;
    device->is_making = is_ours;
    *status_out = device->last_refusal;
    vpmm_lock_give(&router->lock);
    return is_ours;
}

static void end_making(struct vpmm_router *router, struct device *device, enum vpmm_status status)
{
    vpmm_lock_take(&router->lock);
    device->is_making = false;
    device->is_hopeless = status == VPMM_NOT_SUPPORTED;
    device->last_refusal = status;
    if (status) {
        unsigned bits = RETRY_FIRST_BITS + device->n_refusals * RETRY_MORE_BITS;
        device->n_to_skip = (uint64_t)1 << (bits < RETRY_BITS_MAX ? bits : RETRY_BITS_MAX);
        device->n_refusals += bits < RETRY_BITS_MAX;
    }
    vpmm_condition_broadcast(&router->changed);
    vpmm_lock_give(&router->lock);
}

enum vpmm_status vpmm_router_require_heap(struct vpmm_router *router, int number,
                                          struct vpmm_heap **heap_out)
{
    struct device *device = &router->devices[number];
    enum vpmm_status status = VPMM_OK;
    if (!vpmm_atomic_load(&device->heap) && begin_making(router, device, &status)) {
        status = make_heap(router, number);
        end_making(router, device, status);
    }
    struct vpmm_heap *heap = vpmm_atomic_load(&device->heap);
    if (heap)
        *heap_out = heap;
    else if (!status)
        status = VPMM_NOT_SUPPORTED;
    return heap ? VPMM_OK : status;
}

/* ---- idle memory ---- */

static uint64_t count_requests(const struct vpmm_heap *heap)
{
    struct vpmm_heap_counts counts;
    vpmm_heap_counts(heap, &counts);
    return counts.mallocs + counts.frees + counts.failures;
}

bool vpmm_router_trim(struct vpmm_router *router, struct vpmm_heap *heap, uint64_t keep_bytes,
                      uint64_t *given_back_out)
{
    const struct vpmm_driver *driver = router->driver;
    int mode;
    if (driver->capture_relax(driver->self, &mode))
        return false;
    *given_back_out = vpmm_heap_trim_to(heap, keep_bytes);
    driver->capture_restore(driver->self, mode);
    return true;
}

enum vpmm_status vpmm_router_reap(struct vpmm_router *router, struct vpmm_heap *heap)
{
    const struct vpmm_driver *driver = router->driver;
    int mode;
    enum vpmm_status status = driver->capture_relax(driver->self, &mode);
    if (status)
        return status;
    status = vpmm_heap_synchronize(heap);
    driver->capture_restore(driver->self, mode);
    return status;
}

void vpmm_router_give_back(struct vpmm_router *router, struct vpmm_quiet *quiet)
{
    uint32_t n = vpmm_atomic_load(&router->n_heaps);
    uint64_t given_back;
    for (uint32_t i = 0; i < n; i++) {
        struct vpmm_heap *heap = vpmm_atomic_load(&router->heaps[i]);
        uint64_t requests = count_requests(heap);
        quiet->looks[i] = quiet->requests[i] == requests ? quiet->looks[i] + 1 : 0;
        quiet->requests[i] = requests;
        if (quiet->looks[i] == quiet->looks_min) {
            quiet->looks[i] = 0;
            (void)vpmm_router_trim(router, heap, 0, &given_back);
        }
    }
}

/* While anything captures, nobody else could close what the front caches hold open. */
struct vpmm_context *vpmm_router_capture_begin(struct vpmm_router *router,
                                               vpmm_stream_handle handle)
{
    uint32_t n = vpmm_atomic_load(&router->n_heaps);
    for (uint32_t i = 0; i < n; i++)
        vpmm_heap_gather(vpmm_atomic_load(&router->heaps[i]));
    return vpmm_order_capture_begin(router->order, handle);
}

void vpmm_router_counts(struct vpmm_router *router, bool is_async,
                        uint64_t counts_out[VPMM_ROUTE_COUNT])
{
    for (unsigned i = 0; i < VPMM_ROUTE_COUNT; i++)
        counts_out[i] = vpmm_atomic_load(&router->counts[is_async][i]);
    uint32_t n = vpmm_atomic_load(&router->n_heaps);
    for (uint32_t i = 0; is_async && i < n; i++) {
        struct vpmm_heap_counts counts;
        vpmm_heap_counts(vpmm_atomic_load(&router->heaps[i]), &counts);
        counts_out[VPMM_ROUTE_POOL] += counts.direct_hits;
    }
    counts_out[VPMM_ROUTE_POOL] += vpmm_router_parts_served(router, is_async);
}
