/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "preload/report.h"

#include "observe/dump.h"
#include "observe/stats.h"

#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

struct view {
    const struct vpmm_pool *pool;
    const struct vpmm_order *order;
};

static const struct {
    char mark;
    const char *name;
} states[] = {
    [VPMM_REGION_UNUSED] = {'?', "unused"},
    [VPMM_REGION_HOLE] = {'*', "hole"},
    [VPMM_REGION_FREE] = {'-', "free"},
    [VPMM_REGION_LIVE] = {0, "live"},
    [VPMM_REGION_ZOMBIE] = {'z', "zombie"},
    [VPMM_REGION_BUSY] = {'?', "busy"},
    [VPMM_REGION_QUARANTINED] = {'!', "quarantined"},
};

static const char *const fence_kinds[] = {
    [VPMM_FENCE_IS_COMPLETE] = "complete", [VPMM_FENCE_IS_STREAM] = "stream",
    [VPMM_FENCE_IS_CONTEXT] = "context",   [VPMM_FENCE_IS_PARKED] = "parked",
    [VPMM_FENCE_IS_OPEN] = "open",         [VPMM_FENCE_IS_JOINED] = "joined",
};

static unsigned find_heaps(struct vpmm_router *router,
                           struct vpmm_heap *heaps_out[VPMM_DEVICES_MAX])
{
    unsigned n = 0;
    for (int device = 0; device < VPMM_DEVICES_MAX; device++) {
        struct vpmm_heap *heap = vpmm_router_heap(router, device);
        if (heap)
            heaps_out[n++] = heap;
    }
    return n;
}

static bool next_row(const void *self, uint64_t *cursor, struct vpmm_dump_row *row_out)
{
    const struct view *view = self;
    struct vpmm_region_view region;
    struct vpmm_fence_facts facts;
    if (!vpmm_pool_next(view->pool, cursor, &region))
        return false;
    vpmm_order_facts(view->order, region.fence, &facts);
    bool is_complete = facts.kind == VPMM_FENCE_IS_COMPLETE;
    *row_out = (struct vpmm_dump_row){
        .mark = states[region.state].mark,
        .state = states[region.state].name,
        .address = region.address,
        .pages = region.pages,
        .bytes = region.state == VPMM_REGION_LIVE ? region.owner.bytes : 0,
        .stream_id = region.owner.stream_id,
        .fence = is_complete ? 0 : region.fence,
        .fence_kind = fence_kinds[facts.kind],
    };
    return true;
}

static struct vpmm_dump_device show_heap(struct vpmm_heap *heap, const struct view *view)
{
    struct vpmm_pool_totals totals;
    uint64_t page_bytes = vpmm_heap_page_bytes(heap);
    vpmm_pool_totals(view->pool, &totals);
    return (struct vpmm_dump_device){
        .device = vpmm_heap_device(heap),
        .page_bytes = page_bytes,
        .mapped = totals.held_pages * page_bytes,
        .reserved = totals.root_pages * page_bytes,
        .live = totals.live_pages * page_bytes,
        .reusable = totals.free_pages * page_bytes,
        .holes = totals.hole_pages * page_bytes,
        .pending_unmap = totals.zombie_pages * page_bytes,
        .busy = totals.busy_pages * page_bytes,
        .quarantined = totals.quarantined_pages * page_bytes,
        .limit = vpmm_heap_limit_bytes(heap),
        .extents = totals.extents,
        .mappings = totals.mappings,
        .self = view,
        .next = next_row,
    };
}

/* Standard error for an empty path, also when the file cannot be opened. */
static int open_report(const char *path)
{
    int fd = -1;
    if (path[0])
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
    return fd >= 0 ? fd : STDERR_FILENO;
}

static void close_report(int fd)
{
    if (fd != STDERR_FILENO)
        (void)close(fd);
}

void vpmm_report_dump(const struct vpmm_config *config, struct vpmm_router *router)
{
    struct vpmm_heap *heaps[VPMM_DEVICES_MAX];
    unsigned n = find_heaps(router, heaps);
    /* The handler may run on an alternate stack of a few KiB: no more of it than this process has
     * devices. */
    /* cppcheck-suppress allocaCalled ; see above */
    struct vpmm_dump_device *devices = alloca((n + 1) * sizeof *devices);
    /* cppcheck-suppress allocaCalled ; see above */
    struct view *views = alloca((n + 1) * sizeof *views);
    for (unsigned i = 0; i < n; i++) {
        views[i] = (struct view){vpmm_heap_pool(heaps[i]), vpmm_router_order(router)};
        devices[i] = show_heap(heaps[i], &views[i]);
    }
    int fd = open_report(config->dump_path);
    if (config->dump_format == VPMM_DUMP_JSON)
        vpmm_dump_json(fd, devices, n);
    else
        vpmm_dump_text(fd, devices, n);
    close_report(fd);
}

#define FIGURES 26
struct figures {
    struct vpmm_stats_row rows[FIGURES];
};

static uint64_t count_broken_invariants(struct vpmm_heap *heap)
{
    const char *broken;
    return vpmm_heap_try_audit(heap, &broken) && broken;
}

static void count_heap(struct vpmm_heap *heap, struct figures *figures)
{
    struct vpmm_pool_totals totals;
    struct vpmm_heap_counts counts;
    uint64_t page_bytes = vpmm_heap_page_bytes(heap);
    vpmm_pool_totals(vpmm_heap_pool(heap), &totals);
    vpmm_heap_counts(heap, &counts);
    *figures = (struct figures){{
        {"page_bytes", "page size", page_bytes, true},
        {"live_bytes", "live", totals.live_pages * page_bytes, true},
        {"live_peak_bytes", "most ever live", totals.live_pages_peak * page_bytes, true},
        {"held_bytes", "held", totals.held_pages * page_bytes, true},
        {"held_peak_bytes", "most ever held", totals.held_pages_peak * page_bytes, true},
        {"limit_bytes", "may be held (0: no limit)", vpmm_heap_limit_bytes(heap), true},
        {"reserved_bytes", "reserved", totals.root_pages * page_bytes, true},
        {"created_bytes", "created", totals.created_pages * page_bytes, true},
        {"moved_bytes", "moved", totals.moved_pages * page_bytes, true},
        {"released_bytes", "released", totals.released_pages * page_bytes, true},
        {"trimmed_bytes", "given back on request", counts.trimmed_bytes, true},
        {"mallocs", "allocations", counts.mallocs, false},
        {"frees", "frees", counts.frees, false},
        {"cache_hits", "served from the front cache", counts.cache_hits, false},
        {"habit_hits", "served where a round before was", counts.habit_hits, false},
        {"fits", "served without a driver call", counts.fits, false},
        {"revives", "served at an old address", counts.revives, false},
        {"stitches", "served by moving pages", counts.stitches, false},
        {"grows", "served by new pages only", counts.grows, false},
        {"host_waits", "waits on the host", counts.host_waits, false},
        {"stream_waits", "waits on the device", counts.stream_waits, false},
        {"failures", "not served", counts.failures, false},
        {"extents", "extents", totals.extents, false},
        {"leased", "open in other processes", counts.leased_regions, false},
        {"withheld_bytes", "freed, but open in another process", counts.withheld_pages * page_bytes,
         true},
        {"audit", "broken invariants", count_broken_invariants(heap), false},
    }};
}

static const char *const route_keys[VPMM_ROUTE_COUNT] = {
    [VPMM_ROUTE_POOL] = "pool",
    [VPMM_ROUTE_SMALL] = "small",
    [VPMM_ROUTE_LARGE] = "large",
    [VPMM_ROUTE_CAPTURING] = "capturing",
    [VPMM_ROUTE_NO_CONTEXT] = "no_context",
    [VPMM_ROUTE_NO_VMM] = "no_vmm",
    [VPMM_ROUTE_EXPLICIT_POOL] = "explicit_pool",
    [VPMM_ROUTE_OTHER_POOL] = "other_pool",
    [VPMM_ROUTE_POOL_LIMIT] = "pool_limit",
    [VPMM_ROUTE_NO_PEER] = "no_peer",
    [VPMM_ROUTE_NO_IPC] = "no_ipc",
    [VPMM_ROUTE_DISABLED] = "disabled",
    [VPMM_ROUTE_LIMITED] = "limited",
    [VPMM_ROUTE_FULL] = "full",
    [VPMM_ROUTE_OTHER] = "other",
};

static void count_requests(struct vpmm_router *router, bool is_async,
                           struct vpmm_stats_row rows_out[VPMM_ROUTE_COUNT])
{
    uint64_t counts[VPMM_ROUTE_COUNT];
    vpmm_router_counts(router, is_async, counts);
    for (int i = 0; i < VPMM_ROUTE_COUNT; i++) {
        rows_out[i] = (struct vpmm_stats_row){route_keys[i], vpmm_route_text((enum vpmm_route)i),
                                              counts[i], false};
    }
}

void vpmm_report_stats(const struct vpmm_config *config, struct vpmm_router *router)
{
    struct figures figures[VPMM_DEVICES_MAX];
    struct vpmm_stats_group devices[VPMM_DEVICES_MAX];
    struct vpmm_stats_row requests[2][VPMM_ROUTE_COUNT];
    struct vpmm_heap *heaps[VPMM_DEVICES_MAX];
    unsigned n = find_heaps(router, heaps);
    for (unsigned i = 0; i < n; i++) {
        count_heap(heaps[i], &figures[i]);
        devices[i] =
            (struct vpmm_stats_group){NULL, vpmm_heap_device(heaps[i]), figures[i].rows, FIGURES};
    }
    count_requests(router, false, requests[0]);
    count_requests(router, true, requests[1]);
    const struct vpmm_stats_group kinds[2] = {
        {"cudaMalloc", 0, requests[0], VPMM_ROUTE_COUNT},
        {"cudaMallocAsync", 0, requests[1], VPMM_ROUTE_COUNT},
    };
    const struct vpmm_stats stats = {program_invocation_short_name, devices, kinds, n, 2};
    int fd = open_report(config->stats_path);
    if (config->stats_json)
        vpmm_stats_json(fd, &stats);
    else
        vpmm_stats_table(fd, &stats);
    close_report(fd);
}
