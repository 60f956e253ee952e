/* SPDX-License-Identifier: MIT */
/* Puts the program's calls, and what the heaps do, into the trace. Must not change a call's result,
 * and must not wait for a lock when the process ends. */
#define _GNU_SOURCE
#include "preload/tracing.h"

#include "observe/log.h"
#include "preload/entry.h"
#include "preload/original.h"
#include "report/report.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#define FIGURES_NS 1000000

/* How long a thread waits for the one that opens the trace. */
#define NAPS 1000
#define NAP_NS 1000000

enum state {
    UNOPENED,
    OPENING,
    OPEN,
    NONE,
};

#define REASON(number, name, text)                                                                 \
    _Static_assert((number) == VPMM_ROUTE_##name, "a trace says " #name " with another number");
VPMM_TRACE_REASONS(REASON)
#undef REASON
#define NAME(number, name, text) REASON_##name,
enum {
    VPMM_TRACE_REASONS(NAME) N_REASONS
};
#undef NAME
_Static_assert(VPMM_ROUTE_COUNT == N_REASONS + 1, "a trace knows other reasons");

static const uint8_t paths[] = {
    [VPMM_WAY_CACHE] = VPMM_TRACE_BY_CACHE,   [VPMM_WAY_HABIT] = VPMM_TRACE_BY_HABIT,
    [VPMM_WAY_FIT] = VPMM_TRACE_BY_FIT,       [VPMM_WAY_REVIVE] = VPMM_TRACE_BY_REVIVE,
    [VPMM_WAY_STITCH] = VPMM_TRACE_BY_STITCH, [VPMM_WAY_GROW] = VPMM_TRACE_BY_GROW,
};

#define RUNG(NAME, name, text)                                                                     \
    _Static_assert((int)VPMM_TRACE_AT_##NAME == (int)VPMM_RUNG_##NAME,                             \
                   "a trace knows the rung " #name " by another number");
VPMM_RUNG_LIST(RUNG)
#undef RUNG

static const uint8_t kinds[] = {
    [VPMM_WATCH_GROW] = VPMM_TRACE_GROW,
    [VPMM_WATCH_STITCH] = VPMM_TRACE_STITCH,
    [VPMM_WATCH_UNMAP] = VPMM_TRACE_UNMAP,
    [VPMM_WATCH_RELEASE] = VPMM_TRACE_RELEASE,
    [VPMM_WATCH_HOST_WAIT] = VPMM_TRACE_HOST_WAIT,
    [VPMM_WATCH_STREAM_WAIT] = VPMM_TRACE_STREAM_WAIT,
    [VPMM_WATCH_FREE] = VPMM_TRACE_FREE,
    [VPMM_WATCH_WEIGHTS_LOAD] = VPMM_TRACE_WEIGHTS_LOAD,
    [VPMM_WATCH_WEIGHTS_EVICT] = VPMM_TRACE_WEIGHTS_EVICT,
    [VPMM_WATCH_WEIGHTS_PASS] = VPMM_TRACE_WEIGHTS_PASS,
};

static bool is_open(struct vpmm_tracing *tracing)
{
    return vpmm_atomic_load(&tracing->state) == OPEN;
}

static uint64_t now_ns(const struct vpmm_tracing *tracing)
{
    return vpmm_recorder_now_ns(&tracing->recorder);
}

static void write(struct vpmm_tracing *tracing, const struct vpmm_trace_entry *entry)
{
    vpmm_recorder_write(&tracing->recorder, vpmm_entry_writer(), entry);
}

/* Another processor's clock may be a little behind. */
static uint32_t duration_between(uint64_t begin_ns, uint64_t end_ns)
{
    uint64_t duration_ns = end_ns > begin_ns ? end_ns - begin_ns : 0;
    return duration_ns < UINT32_MAX ? (uint32_t)duration_ns : UINT32_MAX;
}

static uint8_t device_number(int device)
{
    return device < 0 ? VPMM_TRACE_DEVICE_UNKNOWN : (uint8_t)device;
}

/* ---- heaps ---- */

static void write_figures(struct vpmm_tracing *tracing, int device, uint64_t ns,
                          const struct vpmm_pool_totals *totals, uint64_t pending_pages)
{
    uint64_t page_bytes = vpmm_heap_page_bytes(vpmm_router_heap(tracing->router, device));
    write(tracing, &(struct vpmm_trace_entry){
                       .ns = ns,
                       .kind = VPMM_TRACE_FIGURES,
                       .device = device_number(device),
                       .address = totals->held_pages * page_bytes,
                       .bytes = totals->live_pages * page_bytes,
                       .stream = pending_pages * page_bytes,
                   });
}

/* Of the moment when they were taken: what they contain was told before. */
static void tell_figures_in_turn(struct vpmm_tracing *tracing, int device, uint64_t ns)
{
    vpmm_atomic64 *due_ns = &tracing->due_ns[device];
    uint64_t due = vpmm_atomic_load(due_ns);
    struct vpmm_heap *heap = vpmm_router_heap(tracing->router, device);
    struct vpmm_heap_account account;
    if (!heap || ns < due || !vpmm_atomic_swap_if(due_ns, &due, ns + FIGURES_NS))
        return;
    vpmm_heap_account(heap, &account);
    write_figures(tracing, device, now_ns(tracing), &account.totals, account.pending_pages);
}

/* Without a lock: whoever holds one may never run again. And without much of a stack, which may be
 * any thread's. */
static void tell_last_figures(struct vpmm_tracing *tracing)
{
    const size_t bytes = VPMM_DEVICES_MAX * sizeof(struct vpmm_report_device);
    struct vpmm_report_device *devices = vpmm_memory_system.map(vpmm_memory_system.self, bytes);
    unsigned n = devices ? vpmm_report_devices(tracing->router, devices) : 0;
    for (unsigned i = 0; i < n; i++)
        write_figures(tracing, devices[i].device, now_ns(tracing), &devices[i].totals,
                      devices[i].pending_pages);
    if (devices)
        vpmm_memory_system.unmap(vpmm_memory_system.self, devices, bytes);
}

static uint64_t watch_now_ns(void *self)
{
    struct vpmm_tracing *tracing = self;
    return is_open(tracing) ? now_ns(tracing) : 0;
}

static void watch_tell(void *self, const struct vpmm_watch_event *event)
{
    struct vpmm_tracing *tracing = self;
    if (!is_open(tracing))
        return;
    write(tracing, &(struct vpmm_trace_entry){
                       .ns = event->begin_ns,
                       .duration_ns = duration_between(event->begin_ns, now_ns(tracing)),
                       .kind = kinds[event->kind],
                       .path = event->kind == VPMM_WATCH_FREE ? VPMM_TRACE_BY_POOL : 0,
                       .device = device_number(event->device),
                       .address = event->address,
                       .bytes = event->bytes,
                       .stream = event->stream_id,
                   });
}

const struct vpmm_watch *vpmm_tracing_watch(struct vpmm_tracing *tracing,
                                            struct vpmm_router *router)
{
    tracing->router = router;
    tracing->watch = (struct vpmm_watch){tracing, watch_now_ns, watch_tell};
    return &tracing->watch;
}

/* ---- the trace ---- */

/* A thread that is cancelled meanwhile would keep all others waiting. */
static void open_uncancelled(struct vpmm_tracing *tracing, const struct vpmm_config *config)
{
    const char *why;
    int cancelling;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    enum vpmm_status status =
        vpmm_recorder_open(&tracing->recorder, config->trace_path, config->trace_max_bytes,
                           program_invocation_short_name, &why);
    vpmm_atomic_store(&tracing->state, status ? NONE : OPEN);
    if (status)
        vpmm_log(VPMM_LOG_IS_WARNING, "no trace: %s: %s", config->trace_path, why);
    (void)pthread_setcancelstate(cancelling, &cancelling);
}

enum vpmm_status vpmm_tracing_open(struct vpmm_tracing *tracing, const struct vpmm_config *config)
{
    uint32_t state = UNOPENED;
    if (vpmm_atomic_swap_if(&tracing->state, &state, OPENING))
        open_uncancelled(tracing, config);
    for (int i = 0; i < NAPS && vpmm_atomic_load(&tracing->state) == OPENING; i++)
        (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    state = vpmm_atomic_load(&tracing->state);
    if (state == OPENING)
        return VPMM_NOT_READY;
    return state == OPEN ? VPMM_OK : VPMM_INVALID;
}

void vpmm_tracing_end(struct vpmm_tracing *tracing)
{
    if (!is_open(tracing))
        return;
    tell_last_figures(tracing);
    /* What threads that still run record from now on has no place, and is not missed. */
    uint64_t dropped = vpmm_recorder_dropped(&tracing->recorder);
    vpmm_recorder_end(&tracing->recorder);
    if (vpmm_recorder_is_cut(&tracing->recorder)) {
        vpmm_log(VPMM_LOG_IS_WARNING, "another program has cut the trace %s: it is not complete",
                 tracing->recorder.file.path);
        return;
    }
    if (dropped)
        vpmm_log(VPMM_LOG_IS_WARNING, "%llu entries found no room in the trace %s",
                 (unsigned long long)dropped, tracing->recorder.file.path);
}

void vpmm_tracing_forget(struct vpmm_tracing *tracing)
{
    if (vpmm_atomic_exchange(&tracing->state, NONE) == OPEN)
        vpmm_recorder_forget(&tracing->recorder);
}

/* ---- calls ---- */

/* All but the time. */
static bool prepare(struct vpmm_call *call)
{
    struct vpmm_tracing *tracing = vpmm_entry_tracing();
    *call = (struct vpmm_call){.tracing = tracing, .device = -1, .route = VPMM_ROUTE_OTHER};
    return tracing != NULL;
}

bool vpmm_call_begin(struct vpmm_call *call)
{
    if (!prepare(call))
        return false;
    call->begin_ns = now_ns(call->tracing);
    return true;
}

bool vpmm_call_begin_free(struct vpmm_call *call, CUdeviceptr address)
{
    if (!prepare(call))
        return false;
    call->bytes = vpmm_router_live_bytes(call->tracing->router, address, &call->device);
    call->begin_ns = now_ns(call->tracing);
    return true;
}

/* Of a call with a stream. The pool has just asked what that is; what it left alone is asked about
 * now, as far as no capture can notice. */
static const struct vpmm_stream *stream_of(const struct vpmm_call *call,
                                           struct vpmm_stream *stream_out)
{
    struct vpmm_order *order = vpmm_router_order(call->tracing->router);
    const struct vpmm_stream *known =
        call->route == VPMM_ROUTE_POOL ? vpmm_order_remembered(order, call->stream) : NULL;
    if (known)
        return known;
    return !vpmm_order_captures(order) && !vpmm_order_stream(order, call->stream, stream_out)
               ? stream_out
               : NULL;
}

/* What `entry`, of a request, can tell of where it was made. */
static void identify(const struct vpmm_call *call, struct vpmm_trace_entry *entry)
{
    struct vpmm_region_view region;
    struct vpmm_stream asked;
    const struct vpmm_stream *stream = call->stream ? stream_of(call, &asked) : NULL;
    CUdevice device;
    if (stream) {
        entry->stream = stream->id;
        entry->device = device_number(vpmm_context_device(stream->context));
    } else if (vpmm_router_find(call->tracing->router, entry->address, &region, &device) ||
               VPMM_ORIGINAL(cuCtxGetDevice, &device) == CUDA_SUCCESS) {
        entry->device = device_number(device);
    }
}

static struct vpmm_trace_entry entry_of(const struct vpmm_call *call, CUresult result)
{
    uint8_t is_async = call->stream ? VPMM_TRACE_IS_ASYNC : 0;
    uint8_t is_failed = result != CUDA_SUCCESS ? VPMM_TRACE_IS_FAILED : 0;
    return (struct vpmm_trace_entry){
        .ns = call->begin_ns,
        .duration_ns = duration_between(call->begin_ns, now_ns(call->tracing)),
        .flags = is_async | is_failed,
        .device = device_number(call->device),
    };
}

static void record(const struct vpmm_call *call, const struct vpmm_trace_entry *entry)
{
    write(call->tracing, entry);
    if (entry->device != VPMM_TRACE_DEVICE_UNKNOWN)
        tell_figures_in_turn(call->tracing, entry->device, entry->ns);
}

static bool is_pooled(const struct vpmm_call *call, CUresult result)
{
    return call->route == VPMM_ROUTE_POOL && result == CUDA_SUCCESS;
}

CUresult vpmm_call_end(const struct vpmm_call *call, const CUdeviceptr *address, uint64_t bytes,
                       CUresult result)
{
    struct vpmm_trace_entry entry = entry_of(call, result);
    if (!vpmm_enter())
        return result;
    /* Requests are ordered by their end. */
    if (entry.duration_ns == UINT32_MAX)
        entry.ns = now_ns(call->tracing) - UINT32_MAX;
    entry.kind = VPMM_TRACE_MALLOC;
    entry.bytes = bytes;
    entry.address = result == CUDA_SUCCESS ? *address : 0;
    entry.path = (uint8_t)(VPMM_TRACE_BY_CUDA + call->route);
    if (is_pooled(call, result)) {
        entry.path = paths[call->served.way];
        entry.flags |= (uint8_t)(call->served.rung << VPMM_TRACE_RUNG_SHIFT);
    }
    identify(call, &entry);
    record(call, &entry);
    vpmm_leave();
    return result;
}

CUresult vpmm_call_end_free(const struct vpmm_call *call, CUdeviceptr address, CUresult result)
{
    struct vpmm_stream asked;
    struct vpmm_trace_entry entry = entry_of(call, result);
    if (!vpmm_enter())
        return result;
    const struct vpmm_stream *stream = call->stream ? stream_of(call, &asked) : NULL;
    entry.kind = VPMM_TRACE_FREE;
    entry.address = address;
    entry.bytes = call->bytes;
    entry.path = is_pooled(call, result) ? VPMM_TRACE_BY_POOL : VPMM_TRACE_BY_CUDA;
    entry.stream = stream ? stream->id : 0;
    record(call, &entry);
    vpmm_leave();
    return result;
}
