/* SPDX-License-Identifier: MIT */
/* Gathers the figures of a router, and writes them as statistics. Runs while the process ends, so
 * it must not wait for a thread or call the driver. */
#define _GNU_SOURCE
#include "report/report_internal.h"

#include "observe/log.h"
#include "observe/observe_stats.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIGURES 34
#define FIGURES_SMALL 7
/* The last one is the audit's, which only the process itself can make. */
#define FIGURES_MAX (FIGURES + VPMM_RUNG_COUNT - 1 + FIGURES_SMALL + 1)
struct figures {
    struct vpmm_stats_row rows[FIGURES_MAX];
    unsigned n;
};

/* ---- figures ---- */

static uint64_t count_pending(const struct vpmm_pool *pool, const struct vpmm_order *order)
{
    struct vpmm_region_view region;
    uint64_t pages = 0;
    for (uint64_t cursor = 0; vpmm_pool_next(pool, &cursor, &region);) {
        bool is_pending = region.state == VPMM_REGION_FREE && region.fence &&
                          vpmm_order_ask(order, region.fence, 0) != VPMM_VERDICT_COMPLETE;
        pages += is_pending ? region.pages : 0;
    }
    return pages;
}

unsigned vpmm_report_devices(struct vpmm_router *router,
                             struct vpmm_report_device devices_out[VPMM_DEVICES_MAX])
{
    struct vpmm_heap *heaps[VPMM_DEVICES_MAX];
    unsigned n = vpmm_report_heaps(router, VPMM_REPORT_ALL_DEVICES, heaps);
    for (unsigned i = 0; i < n; i++) {
        const struct vpmm_pool *pool = vpmm_heap_pool(heaps[i]);
        struct vpmm_report_device *device = &devices_out[i];
        device->device = vpmm_heap_device(heaps[i]);
        device->page_bytes = vpmm_heap_page_bytes(heaps[i]);
        device->limit_bytes = vpmm_heap_limit_bytes(heaps[i]);
        /* What is live first: what is freed meanwhile may count twice, but is not missed. */
        vpmm_pool_totals(pool, &device->totals);
        device->pending_pages =
            device->totals.claimed_pages + count_pending(pool, vpmm_router_order(router));
        vpmm_heap_counts(heaps[i], &device->counts);
        const struct vpmm_small *small = vpmm_router_small(router, device->device);
        device->has_small = small != NULL;
        if (small) {
            vpmm_small_figures(small, &device->small);
            vpmm_small_classes(small, device->classes);
        }
        for (unsigned j = 0; !small && j < VPMM_SMALL_CLASSES; j++)
            device->classes[j] = (struct vpmm_small_class){.pages = 0};
    }
    return n;
}

void vpmm_report_requests(struct vpmm_router *router, struct vpmm_report_requests *requests_out)
{
    for (unsigned is_async = 0; is_async < 2; is_async++)
        vpmm_router_counts(router, is_async, requests_out->counts[is_async]);
}

/* ---- rows ---- */

static void add_row(struct figures *figures, struct vpmm_stats_row row)
{
    figures->rows[figures->n++] = row;
}

/* People get those that served anything. */
static void add_rungs(const struct vpmm_heap_counts *counts, bool is_json, struct figures *figures)
{
#define RUNG(NAME, name, text) {"rung_" #name, "rung " #name ": " text, 0, false, counts->mallocs},
    const struct vpmm_stats_row rows[] = {VPMM_RUNG_LIST(RUNG)};
#undef RUNG
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct vpmm_stats_row row = rows[i];
        row.value = counts->rungs[i + 1];
        if (row.value || is_json)
            add_row(figures, row);
    }
}

static void add_small(const struct vpmm_report_device *device, struct figures *figures)
{
    const struct vpmm_small_figures *small = &device->small;
    const struct vpmm_stats_row rows[FIGURES_SMALL] = {
        {"small_held_bytes", "small blocks: pages that they share",
         small->pages * device->page_bytes, true, 0},
        {"small_live_bytes", "small blocks: live, as requested", small->bytes, true,
         small->pages * device->page_bytes},
        {"small_blocks", "small blocks: live", small->blocks, false, 0},
        {"small_waiting", "small blocks: freed elsewhere, and waiting", small->waiting_blocks,
         false, 0},
        {"small_slabs", "small blocks: spans of pages", small->slabs, false, 0},
        {"small_mallocs", "small blocks: mallocs", small->mallocs, false, 0},
        {"small_frees", "small blocks: frees", small->frees, false, 0},
    };
    for (unsigned i = 0; i < FIGURES_SMALL; i++)
        add_row(figures, rows[i]);
}

static void fill_figures(const struct vpmm_report_device *device, bool is_json,
                         struct figures *figures)
{
    const struct vpmm_pool_totals *totals = &device->totals;
    const struct vpmm_heap_counts *counts = &device->counts;
    uint64_t page_bytes = device->page_bytes;
    *figures = (struct figures){
        .n = FIGURES,
        .rows = {
            {"page_bytes", "page size", page_bytes, true, 0},
            {"live_bytes", "live", totals->live_pages * page_bytes, true, 0},
            {"live_peak_bytes", "live peak", totals->live_pages_peak * page_bytes, true, 0},
            {"held_bytes", "held", totals->held_pages * page_bytes, true, 0},
            {"held_peak_bytes", "held peak", totals->held_pages_peak * page_bytes, true, 0},
            {"limit_bytes", "limit (0: none)", device->limit_bytes, true, 0},
            {"reusable_bytes", "reusable (free, now or later)", totals->free_pages * page_bytes,
             true, 0},
            {"pending_bytes", "pending (freed, and work not known complete)",
             device->pending_pages * page_bytes, true, 0},
            {"outstanding_bytes", "outstanding (live and pending)",
             (totals->live_pages + device->pending_pages) * page_bytes, true, 0},
            {"zombie_bytes", "zombies (old addresses)", totals->zombie_pages * page_bytes, true, 0},
            {"busy_bytes", "busy (changing)", totals->busy_pages * page_bytes, true, 0},
            {"quarantined_bytes", "quarantined (could not be unmapped)",
             totals->quarantined_pages * page_bytes, true, 0},
            {"hole_bytes", "holes (addresses without memory)", totals->hole_pages * page_bytes,
             true, 0},
            {"reserved_bytes", "reserved", totals->root_pages * page_bytes, true, 0},
            {"created_bytes", "created", totals->created_pages * page_bytes, true, 0},
            {"moved_bytes", "moved", totals->moved_pages * page_bytes, true, 0},
            {"released_bytes", "released", totals->released_pages * page_bytes, true, 0},
            {"trimmed_bytes", "trimmed (released on request)", counts->trimmed_bytes, true, 0},
            {"decayed_bytes", "decayed (released, not needed for a while)", counts->decayed_bytes,
             true, 0},
            {"mallocs", "mallocs", counts->mallocs, false, 0},
            {"frees", "frees", counts->frees, false, 0},
            {"cache_hits", "cache (served from the front cache)", counts->cache_hits, false,
             counts->mallocs},
            {"habit_hits", "habit (served where a round before was)", counts->habit_hits, false,
             counts->mallocs},
            {"fits", "fit (served where memory lay free)", counts->fits, false, counts->mallocs},
            {"revives", "revive (served at an old address)", counts->revives, false,
             counts->mallocs},
            {"stitches", "stitch (served by moving pages)", counts->stitches, false,
             counts->mallocs},
            {"grows", "grow (served by new pages alone)", counts->grows, false, counts->mallocs},
            {"host_waits", "waits on the host", counts->host_waits, false, 0},
            {"stream_waits", "waits on the device", counts->stream_waits, false, 0},
            {"failures", "failures (left to CUDA after all)", counts->failures, false, 0},
            {"extents", "extents", totals->extents, false, 0},
            {"mappings", "mappings", totals->mappings, false, 0},
            {"leased", "leased (open in other processes)", counts->leased_regions, false, 0},
            {"withheld_bytes", "withheld (freed, but open in another process)",
             counts->withheld_pages * page_bytes, true, 0},
        }};
    add_rungs(counts, is_json, figures);
    if (device->has_small)
        add_small(device, figures);
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

const char *vpmm_report_route_key(enum vpmm_route route)
{
    return route_keys[route];
}

static void fill_requests(const uint64_t counts[VPMM_ROUTE_COUNT],
                          struct vpmm_stats_row rows_out[VPMM_ROUTE_COUNT])
{
    uint64_t all = 0;
    for (int i = 0; i < VPMM_ROUTE_COUNT; i++)
        all += counts[i];
    for (int i = 0; i < VPMM_ROUTE_COUNT; i++)
        rows_out[i] = (struct vpmm_stats_row){route_keys[i], vpmm_route_text((enum vpmm_route)i),
                                              counts[i], false, all};
}

/* ---- statistics ---- */

/* More than the stack of a small thread has, which may be the one that ends the process. */
struct snapshot {
    struct vpmm_report_device devices[VPMM_DEVICES_MAX];
    uint64_t broken[VPMM_DEVICES_MAX]; /* invariants */
    unsigned n;
    struct vpmm_report_requests requests;
    struct figures figures[VPMM_DEVICES_MAX];
    struct vpmm_class_row classes[VPMM_DEVICES_MAX][VPMM_SMALL_CLASSES];
    struct vpmm_stats_group groups[VPMM_DEVICES_MAX];
    struct vpmm_report_weights weights;
    struct vpmm_replacement replacement;
};

/* NULL: there is no memory for it. */
static struct snapshot *make_snapshot(void)
{
    return vpmm_memory_system.map(vpmm_memory_system.self, sizeof(struct snapshot));
}

static struct snapshot *take_snapshot(struct vpmm_router *router)
{
    struct snapshot *snapshot = make_snapshot();
    if (!snapshot)
        return NULL;
    snapshot->n = vpmm_report_devices(router, snapshot->devices);
    vpmm_report_requests(router, &snapshot->requests);
    vpmm_report_weights(router, &snapshot->weights);
    return snapshot;
}

static void give_snapshot(struct snapshot *snapshot)
{
    vpmm_memory_system.unmap(vpmm_memory_system.self, snapshot, sizeof *snapshot);
}

static bool write_snapshot(int fd, bool is_json, const struct vpmm_report_process *process,
                           struct snapshot *snapshot, bool has_audit)
{
    struct vpmm_stats_row requests[2][VPMM_ROUTE_COUNT];
    for (unsigned i = 0; i < snapshot->n; i++) {
        struct figures *figures = &snapshot->figures[i];
        fill_figures(&snapshot->devices[i], is_json, figures);
        if (has_audit)
            add_row(figures, (struct vpmm_stats_row){"audit", "audit (broken invariants)",
                                                     snapshot->broken[i], false, 0});
        snapshot->groups[i] = (struct vpmm_stats_group){
            .device = snapshot->devices[i].device,
            .rows = figures->rows,
            .n_rows = figures->n,
            .classes = snapshot->classes[i],
            .n_classes = vpmm_report_classes(snapshot->devices[i].classes, snapshot->classes[i]),
        };
    }
    fill_requests(snapshot->requests.counts[0], requests[0]);
    fill_requests(snapshot->requests.counts[1], requests[1]);
    const struct vpmm_stats_group kinds[2] = {
        {"cudaMalloc", 0, requests[0], VPMM_ROUTE_COUNT, NULL, 0},
        {"cudaMallocAsync", 0, requests[1], VPMM_ROUTE_COUNT, NULL, 0},
    };
    const struct vpmm_stats stats = {
        .pid = process->pid,
        .program = process->program,
        .devices = snapshot->groups,
        .requests = kinds,
        .n_devices = snapshot->n,
        .n_requests = 2,
        .weights = snapshot->weights.groups,
        .n_weights = snapshot->weights.n,
    };
    return is_json ? vpmm_stats_json(fd, &stats) : vpmm_stats_table(fd, &stats);
}

void vpmm_report_stats_to(int fd, bool is_json, const struct vpmm_report_process *process,
                          struct vpmm_router *router)
{
    struct snapshot *snapshot = take_snapshot(router);
    if (!snapshot)
        return;
    (void)write_snapshot(fd, is_json, process, snapshot, false);
    give_snapshot(snapshot);
}

static void warn(const struct vpmm_config *config, const char *why)
{
    vpmm_log(VPMM_LOG_IS_WARNING,
             "VPMM_STATS: %s cannot be written: %s; the statistics are here:", config->stats_path,
             why);
}

/* Tables of several processes that end at once stand one behind the other. */
static const char *open_for_table(const char *path, const char *const *beginnings,
                                  struct vpmm_sink *sink_out)
{
    const char *why = vpmm_sink_open(path, beginnings, sink_out);
    if (why || vpmm_sink_lock(sink_out))
        return why;
    (void)vpmm_sink_close(sink_out);
    (void)vpmm_sink_open("", beginnings, sink_out);
    return "another process has locked it";
}

/* Of this process, to where `config` says; gives the snapshot back. */
static void write_at_exit(const struct vpmm_config *config, struct snapshot *snapshot)
{
    static const char *const beginnings[] = {"{\"vpmm_stats\": ", "vpmm[", NULL};
    const struct vpmm_report_process process = {(uint64_t)getpid(), program_invocation_short_name};
    struct vpmm_replacement *made = &snapshot->replacement;
    const char *path = config->stats_path, *why;
    made->name[0] = 0;
    if (config->stats_json)
        why = vpmm_sink_open_replacement(path, beginnings, made);
    else
        why = open_for_table(path, beginnings + 1, &made->sink);
    if (why)
        warn(config, why);
    bool is_whole = write_snapshot(made->sink.fd, config->stats_json, &process, snapshot, true);
    if (!is_whole)
        vpmm_sink_take_back(&made->sink);
    why = vpmm_sink_replace(made, is_whole);
    if (why) {
        warn(config, why);
        (void)write_snapshot(vpmm_log_descriptor(), config->stats_json, &process, snapshot, true);
    }
    give_snapshot(snapshot);
}

/* A shell that started the program ends after it, and must not write over its figures. */
static bool has_told(const char *path)
{
    struct stat facts;
    return *path && lstat(path, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size > 0;
}

static bool has_any(const struct vpmm_report_requests *requests)
{
    uint64_t all = 0;
    for (int i = 0; i < VPMM_ROUTE_COUNT; i++)
        all |= requests->counts[0][i] | requests->counts[1][i];
    return all != 0;
}

void vpmm_report_stats_of(const struct vpmm_config *config,
                          const struct vpmm_report_requests *requests)
{
    struct snapshot *snapshot = make_snapshot();
    if (!snapshot)
        return;
    snapshot->requests = *requests;
    if (has_any(requests) || !config->stats_json || !has_told(config->stats_path)) {
        write_at_exit(config, snapshot);
        return;
    }
    const struct vpmm_report_process process = {(uint64_t)getpid(), program_invocation_short_name};
    (void)write_snapshot(vpmm_log_descriptor(), false, &process, snapshot, false);
    give_snapshot(snapshot);
}

/* A free under way may make it look so once. */
static bool is_broken(struct vpmm_heap *heap)
{
    const char *broken = NULL;
    for (int i = 0; i < 2; i++)
        if (!vpmm_heap_try_audit(heap, &broken) || !broken)
            return false;
    return true;
}

void vpmm_report_stats(const struct vpmm_config *config, struct vpmm_router *router)
{
    struct snapshot *snapshot = take_snapshot(router);
    if (!snapshot)
        return;
    for (unsigned i = 0; i < snapshot->n; i++) {
        struct vpmm_heap *heap = vpmm_router_heap(router, snapshot->devices[i].device);
        snapshot->broken[i] = is_broken(heap);
        struct vpmm_small *small = vpmm_router_small(router, snapshot->devices[i].device);
        snapshot->broken[i] += small && vpmm_small_audit(small);
    }
    write_at_exit(config, snapshot);
}
