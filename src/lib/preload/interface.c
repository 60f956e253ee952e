/* SPDX-License-Identifier: MIT */
/* The public interface (include/vpmm/vpmm.h), as a program that was linked to libvpmm_api.a finds
 * it in this library. Must not make anything: a program that asks before its first request is told
 * that there is no pool. */
#define _POSIX_C_SOURCE 200809L
#include "vpmm/vpmm.h"

#include "preload/api.h"
#include "preload/entry.h"
#include "report/report.h"

#include <string.h>
#include <unistd.h>

/* Enters as every wrapper does. VPMM_DONE: to be followed by vpmm_leave, if there is a router;
 * NULL: there is no pool yet. */
static enum vpmm_result enter(struct vpmm_router **router_out)
{
    bool passes;
    *router_out = vpmm_enter_made(&passes);
    if (*router_out)
        return VPMM_DONE;
    if (passes)
        return VPMM_NOT_ACTIVE;
    return vpmm_entry_is_inside() ? VPMM_BUSY : VPMM_DONE;
}

static int find_next(struct vpmm_router *router, int after)
{
    int device = after < 0 ? 0 : after;
    for (device += after >= 0; device < VPMM_DEVICES_MAX; device++)
        if (vpmm_router_heap(router, device))
            return device;
    return VPMM_EVERY_DEVICE;
}

static int next_device(int after)
{
    struct vpmm_router *router;
    if (enter(&router) || !router)
        return VPMM_EVERY_DEVICE;
    int device = after < VPMM_DEVICES_MAX ? find_next(router, after) : VPMM_EVERY_DEVICE;
    vpmm_leave();
    return device;
}

/* Both leave the size alone that figures begin with. False: not even that has room. */
static bool clear(void *figures, size_t room)
{
    if (room < sizeof room)
        return false;
    memset((char *)figures + sizeof room, 0, room - sizeof room);
    return true;
}

/* What cleared figures have room for. */
static void fill(void *figures, size_t room, const void *all, size_t size)
{
    size_t end = room < size ? room : size;
    memcpy((char *)figures + sizeof room, (const char *)all + sizeof room, end - sizeof room);
}

/* ---- figures ---- */

static void count_state(const struct vpmm_heap_account *account, uint64_t page_bytes,
                        struct vpmm_snapshot *all)
{
    const struct vpmm_pool_totals *totals = &account->totals;
    all->page_bytes = page_bytes;
    all->live_bytes = totals->live_pages * page_bytes;
    all->requested_bytes = totals->live_bytes;
    all->pending_bytes = account->pending_pages * page_bytes;
    all->outstanding_bytes = all->live_bytes + all->pending_bytes;
    all->reusable_bytes = totals->free_pages * page_bytes;
    all->ready_bytes = account->ready_pages * page_bytes;
    all->held_bytes = totals->held_pages * page_bytes;
    all->withheld_bytes = account->withheld_pages * page_bytes;
    all->lost_bytes = account->lost_pages * page_bytes;
    all->reserved_bytes = totals->root_pages * page_bytes;
    all->hole_bytes = totals->hole_pages * page_bytes;
    all->zombie_bytes = totals->zombie_pages * page_bytes;
    all->busy_bytes = totals->busy_pages * page_bytes;
    all->quarantined_bytes = totals->quarantined_pages * page_bytes;
    all->live_peak_bytes = totals->live_pages_peak * page_bytes;
    all->held_peak_bytes = totals->held_pages_peak * page_bytes;
    all->created_bytes = totals->created_pages * page_bytes;
    all->released_bytes = totals->released_pages * page_bytes;
    all->moved_bytes = totals->moved_pages * page_bytes;
    all->extents = totals->extents;
    all->mappings = totals->mappings;
}

static void count_served(const struct vpmm_heap_counts *counts, struct vpmm_snapshot *all)
{
    all->trimmed_bytes = counts->trimmed_bytes;
    all->decayed_bytes = counts->decayed_bytes;
    all->mallocs = counts->mallocs;
    all->frees = counts->frees;
    all->cache_hits = counts->cache_hits;
    all->habit_hits = counts->habit_hits;
    all->fits = counts->fits;
    all->revives = counts->revives;
    all->stitches = counts->stitches;
    all->grows = counts->grows;
    all->host_waits = counts->host_waits;
    all->stream_waits = counts->stream_waits;
    all->failures = counts->failures;
}

static void look(const struct vpmm_router *router, struct vpmm_heap *heap,
                 struct vpmm_snapshot *snapshot)
{
    struct vpmm_snapshot all = {0};
    struct vpmm_heap_account account;
    struct vpmm_heap_counts counts;
    vpmm_heap_account(heap, &account);
    vpmm_heap_counts(heap, &counts);
    count_state(&account, vpmm_heap_page_bytes(heap), &all);
    count_served(&counts, &all);
    all.limit_bytes = vpmm_heap_limit_bytes(heap);
    all.weights_bytes = vpmm_router_offload_bytes(router, vpmm_heap_device(heap));
    all.held_bytes += all.weights_bytes;
    fill(snapshot, snapshot->size_bytes, &all, sizeof all);
}

static enum vpmm_result take_snapshot(int device, struct vpmm_snapshot *snapshot)
{
    struct vpmm_router *router;
    if (!snapshot || !clear(snapshot, snapshot->size_bytes))
        return VPMM_WRONG;
    enum vpmm_result result = enter(&router);
    if (result || !router)
        return result ? result : VPMM_NO_POOL;
    struct vpmm_heap *heap = vpmm_router_heap(router, device);
    if (heap)
        look(router, heap, snapshot);
    vpmm_leave();
    return heap ? VPMM_DONE : VPMM_NO_POOL;
}

static void count_routes(struct vpmm_router *router, bool is_async, struct vpmm_requests *all)
{
    uint64_t counts[VPMM_ROUTE_COUNT];
    vpmm_router_counts(router, is_async, counts);
    *all = (struct vpmm_requests){
        .pool = counts[VPMM_ROUTE_POOL],
        .small = counts[VPMM_ROUTE_SMALL],
        .large = counts[VPMM_ROUTE_LARGE],
        .capturing = counts[VPMM_ROUTE_CAPTURING],
        .no_context = counts[VPMM_ROUTE_NO_CONTEXT],
        .no_vmm = counts[VPMM_ROUTE_NO_VMM],
        .explicit_pool = counts[VPMM_ROUTE_EXPLICIT_POOL],
        .other_pool = counts[VPMM_ROUTE_OTHER_POOL],
        .pool_limit = counts[VPMM_ROUTE_POOL_LIMIT],
        .no_peer = counts[VPMM_ROUTE_NO_PEER],
        .no_ipc = counts[VPMM_ROUTE_NO_IPC],
        .disabled = counts[VPMM_ROUTE_DISABLED],
        .limited = counts[VPMM_ROUTE_LIMITED],
        .full = counts[VPMM_ROUTE_FULL],
        .other = counts[VPMM_ROUTE_OTHER],
    };
}

static enum vpmm_result count_requests(enum vpmm_request_kind kind, struct vpmm_requests *requests)
{
    struct vpmm_router *router;
    struct vpmm_requests all;
    if (!requests || !clear(requests, requests->size_bytes) ||
        (kind != VPMM_OF_MALLOC && kind != VPMM_OF_MALLOC_ASYNC))
        return VPMM_WRONG;
    enum vpmm_result result = enter(&router);
    if (result || !router)
        return result;
    count_routes(router, kind == VPMM_OF_MALLOC_ASYNC, &all);
    fill(requests, requests->size_bytes, &all, sizeof all);
    vpmm_leave();
    return VPMM_DONE;
}

/* ---- requests ---- */

/* The worse of two: a failure, then what is busy. */
static enum vpmm_result worse(enum vpmm_result a, enum vpmm_result b)
{
    return a > b ? a : b;
}

static enum vpmm_result trim_heap(struct vpmm_router *router, struct vpmm_heap *heap,
                                  uint64_t keep_bytes, uint64_t *sum)
{
    uint64_t given_back;
    if (!vpmm_router_trim(router, heap, keep_bytes, &given_back))
        return VPMM_DRIVER_FAILED;
    *sum += given_back;
    return VPMM_DONE;
}

/* Captures, and what another thread or process may still end, are no failures. What is lost
 * stays pending for ever, and says nothing of this try. */
static enum vpmm_result reap_heap(struct vpmm_router *router, struct vpmm_heap *heap,
                                  uint64_t nothing, uint64_t *sum)
{
    struct vpmm_heap_account account;
    (void)nothing;
    enum vpmm_status status = vpmm_router_reap(router, heap);
    vpmm_heap_account(heap, &account);
    *sum += account.pending_pages * vpmm_heap_page_bytes(heap);
    if (account.pending_pages == account.lost_pages)
        return VPMM_DONE;
    if (status && status != VPMM_CAPTURED && status != VPMM_NOT_READY)
        return VPMM_DRIVER_FAILED;
    return status || account.withheld_pages ? VPMM_BUSY : VPMM_DONE;
}

static enum vpmm_result for_each_heap(int device, uint64_t argument, uint64_t *sum_out,
                                      enum vpmm_result (*act)(struct vpmm_router *,
                                                              struct vpmm_heap *, uint64_t,
                                                              uint64_t *))
{
    struct vpmm_router *router;
    uint64_t sum = 0;
    enum vpmm_result result = enter(&router);
    if (sum_out)
        *sum_out = 0;
    if (result || !router)
        return result ? result : VPMM_NO_POOL;
    int number = device == VPMM_EVERY_DEVICE ? find_next(router, -1) : device;
    struct vpmm_heap *heap = vpmm_router_heap(router, number);
    result = heap ? VPMM_DONE : VPMM_NO_POOL;
    while (heap) {
        result = worse(result, act(router, heap, argument, &sum));
        number = device == VPMM_EVERY_DEVICE ? find_next(router, number) : -1;
        heap = vpmm_router_heap(router, number);
    }
    vpmm_leave();
    if (sum_out)
        *sum_out = sum;
    return result;
}

static enum vpmm_result trim(int device, uint64_t keep_bytes, uint64_t *given_back_out)
{
    return for_each_heap(device, keep_bytes, given_back_out, trim_heap);
}

static enum vpmm_result reap(int device, uint64_t *pending_bytes_out)
{
    return for_each_heap(device, 0, pending_bytes_out, reap_heap);
}

static enum vpmm_result dump(int fd, enum vpmm_form form)
{
    struct vpmm_router *router;
    if (fd < 0 || (form != VPMM_AS_TEXT && form != VPMM_AS_JSON))
        return VPMM_WRONG;
    enum vpmm_result result = enter(&router);
    if (result || !router)
        return result ? result : VPMM_NO_POOL;
    vpmm_report_dump_to(fd, form == VPMM_AS_JSON ? VPMM_DUMP_JSON : VPMM_DUMP_TEXT,
                        (uint64_t)getpid(), VPMM_REPORT_ALL_DEVICES, router);
    vpmm_leave();
    return VPMM_DONE;
}

VPMM_EXPORT vpmm_interface_fn vpmm_interface_1;

const struct vpmm_interface *vpmm_interface_1(void)
{
    static const struct vpmm_interface interface = {
        .size_bytes = sizeof interface,
        .version = VPMM_VERSION,
        .next_device = next_device,
        .snapshot_take = take_snapshot,
        .requests_count = count_requests,
        .trim = trim,
        .reap = reap,
        .dump = dump,
        .weights_make = vpmm_weights_make,
        .weights_destroy = vpmm_weights_destroy,
        .weights_add = vpmm_weights_add,
        .weights_host = vpmm_weights_host,
        .weights_read = vpmm_weights_read,
        .weights_from = vpmm_weights_from,
        .weights_open = vpmm_weights_open,
        .weights_tensor = vpmm_weights_tensor,
        .weights_order = vpmm_weights_order,
        .weights_seal = vpmm_weights_seal,
        .weights_begin = vpmm_weights_begin,
        .weights_use = vpmm_weights_use,
        .weights_done = vpmm_weights_done,
        .weights_end = vpmm_weights_end,
        .weights_cancel = vpmm_weights_cancel,
        .weights_budget = vpmm_weights_budget,
        .weights_thaw = vpmm_weights_thaw,
        .weights_stats = vpmm_weights_stats,
    };
    return &interface;
}
