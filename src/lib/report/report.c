/* SPDX-License-Identifier: MIT */
/* Writes the dump of a router, of this process or of another one. Runs in a signal handler, so it
 * must not lock, allocate or call the driver. */
#define _GNU_SOURCE
#include "report/report_internal.h"

#include "base/layout.h"
#include "base/lock.h"
#include "base/text.h"
#include "observe/observe_dump.h"
#include "observe/log.h"
#include "vpmm/vpmm.h"

#include <poll.h>
#include <unistd.h>

const char vpmm_report_version[] = VPMM_VERSION;

uint64_t vpmm_report_layout(void)
{
    uint64_t layout = vpmm_router_layout();
    for (const char *c = vpmm_report_version; *c; c++)
        layout = vpmm_layout_mix(layout, (unsigned char)*c);
    return layout;
}

/* ---- dumps ---- */

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
#define STATES (sizeof states / sizeof states[0])

static const char *const fence_kinds[] = {
    [VPMM_FENCE_IS_COMPLETE] = "complete", [VPMM_FENCE_IS_STREAM] = "stream",
    [VPMM_FENCE_IS_CONTEXT] = "context",   [VPMM_FENCE_IS_PARKED] = "parked",
    [VPMM_FENCE_IS_OPEN] = "open",         [VPMM_FENCE_IS_JOINED] = "joined",
};
#define FENCE_KINDS (sizeof fence_kinds / sizeof fence_kinds[0])

unsigned vpmm_report_heaps(struct vpmm_router *router, int device,
                           struct vpmm_heap *heaps_out[VPMM_DEVICES_MAX])
{
    unsigned n = 0;
    for (int i = 0; i < VPMM_DEVICES_MAX; i++) {
        struct vpmm_heap *heap = vpmm_router_heap(router, i);
        if (heap && (device == i || device == VPMM_REPORT_ALL_DEVICES))
            heaps_out[n++] = heap;
    }
    return n;
}

bool vpmm_report_has_pool(struct vpmm_router *router, int device)
{
    struct vpmm_heap *heaps[VPMM_DEVICES_MAX];
    return router && vpmm_report_heaps(router, device, heaps) > 0;
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
    /* Another process's metadata may be damaged. */
    unsigned state = (unsigned)region.state < STATES ? region.state : VPMM_REGION_UNUSED;
    unsigned kind = (unsigned)facts.kind < FENCE_KINDS ? facts.kind : VPMM_FENCE_IS_PARKED;
    *row_out = (struct vpmm_dump_row){
        .mark = states[state].mark,
        .state = states[state].name,
        .address = region.address,
        .pages = region.pages,
        .requested_bytes = region.state == VPMM_REGION_LIVE ? region.owner.bytes : 0,
        .stream_id = region.owner.stream_id,
        .fence = is_complete ? 0 : region.fence,
        .fence_kind = fence_kinds[kind],
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
        .held_bytes = totals.held_pages * page_bytes,
        .reserved_bytes = totals.root_pages * page_bytes,
        .live_bytes = totals.live_pages * page_bytes,
        .reusable_bytes = totals.free_pages * page_bytes,
        .hole_bytes = totals.hole_pages * page_bytes,
        .zombie_bytes = totals.zombie_pages * page_bytes,
        .busy_bytes = totals.busy_pages * page_bytes,
        .quarantined_bytes = totals.quarantined_pages * page_bytes,
        .limit_bytes = vpmm_heap_limit_bytes(heap),
        .extents = totals.extents,
        .mappings = totals.mappings,
        .self = view,
        .next = next_row,
    };
}

unsigned vpmm_report_classes(const struct vpmm_small_class classes[VPMM_SMALL_CLASSES],
                             struct vpmm_class_row rows_out[VPMM_SMALL_CLASSES])
{
    unsigned n = 0;
    for (unsigned i = 0; i < VPMM_SMALL_CLASSES; i++) {
        const struct vpmm_small_class *class = &classes[i];
        if (class->pages == 0)
            continue;
        rows_out[n] = (struct vpmm_class_row){.name = vpmm_small_class_name(i),
                                              .pages = class->pages,
                                              .blocks = class->blocks,
                                              .requested_bytes = class->bytes,
                                              .free_bytes = class->free_bytes};
        for (unsigned j = 0; j < VPMM_SMALL_FILLS; j++)
            rows_out[n].pages_by_fill[j] = class->pages_by_fill[j];
        n++;
    }
    return n;
}

static unsigned show_classes(struct vpmm_router *router, int device,
                             struct vpmm_class_row rows_out[VPMM_SMALL_CLASSES])
{
    struct vpmm_small_class classes[VPMM_SMALL_CLASSES];
    const struct vpmm_small *small = vpmm_router_small(router, device);
    if (!small)
        return 0;
    vpmm_small_classes(small, classes);
    return vpmm_report_classes(classes, rows_out);
}

/* What a dump is gathered in. A handler may run on an alternate stack of 8 KiB, half of which the
 * signal's own frame may take: there is no room for it there. */
struct vpmm_report_room {
    struct vpmm_heap *heaps[VPMM_DEVICES_MAX];
    struct view views[VPMM_DEVICES_MAX];
    struct vpmm_dump_device devices[VPMM_DEVICES_MAX];
    struct vpmm_class_row classes[VPMM_DEVICES_MAX][VPMM_SMALL_CLASSES];
    struct vpmm_dump_weights weights[VPMM_OFFLOADS_MAX];
};

bool vpmm_report_dumps_init(struct vpmm_report_dumps *dumps, const struct vpmm_memory *memory)
{
    dumps->room = memory->map(memory->self, sizeof *dumps->room);
    return dumps->room != NULL;
}

void vpmm_report_dumps_finish(struct vpmm_report_dumps *dumps, const struct vpmm_memory *memory)
{
    if (dumps->room)
        memory->unmap(memory->self, dumps->room, sizeof *dumps->room);
}

static uint64_t write_dump(int fd, enum vpmm_dump_format format, uint64_t pid, int device,
                           struct vpmm_router *router, struct vpmm_report_room *room)
{
    unsigned n = vpmm_report_heaps(router, device, room->heaps);
    for (unsigned i = 0; i < n; i++) {
        struct vpmm_dump_device *shown = &room->devices[i];
        room->views[i] = (struct view){vpmm_heap_pool(room->heaps[i]), vpmm_router_order(router)};
        *shown = show_heap(room->heaps[i], &room->views[i]);
        shown->classes = room->classes[i];
        shown->n_classes = show_classes(router, shown->device, room->classes[i]);
    }
    unsigned n_weights = vpmm_report_dump_weights(router, device, room->weights, VPMM_OFFLOADS_MAX);
    const struct vpmm_dump dump = {room->devices, n, room->weights, n_weights};
    return format == VPMM_DUMP_JSON ? vpmm_dump_json(fd, pid, &dump) : vpmm_dump_text(fd, &dump);
}

void vpmm_report_dump_to(int fd, enum vpmm_dump_format format, uint64_t pid, int device,
                         struct vpmm_router *router)
{
    struct vpmm_report_room room;
    (void)write_dump(fd, format, pid, device, router, &room);
}

/* Once a process. In a handler, so with nothing that formats or allocates. */
static void tell_bound(const struct vpmm_config *config)
{
    char message[512];
    struct vpmm_text text;
    vpmm_text_init(&text, message, sizeof message, VPMM_TEXT_CUT);
    vpmm_text_string(&text,
                     "VPMM_DUMP_MAX: no further dump is written: the file would be larger than ");
    vpmm_text_bytes(&text, config->dump_max_bytes);
    vpmm_text_string(&text, ": ");
    vpmm_text_string(&text, config->dump_path);
    vpmm_log_plain(VPMM_LOG_IS_WARNING, message);
}

static bool takes_something(int fd)
{
    struct pollfd one = {.fd = fd, .events = POLLOUT};
    return poll(&one, 1, 0) > 0;
}

/* Whole dumps or none: the file stays readable for programs. */
static bool is_beyond_bound(const struct vpmm_config *config, struct vpmm_router *router,
                            struct vpmm_report_room *room, const struct vpmm_sink *sink)
{
    uint64_t max_bytes = config->dump_max_bytes;
    return sink->is_file &&
           (sink->bytes >= max_bytes ||
            write_dump(VPMM_TEXT_COUNTED, config->dump_format, (uint64_t)getpid(),
                       VPMM_REPORT_ALL_DEVICES, router, room) > max_bytes - sink->bytes);
}

void vpmm_report_dump(const struct vpmm_config *config, struct vpmm_router *router,
                      struct vpmm_report_dumps *dumps)
{
    static const char *const beginnings[] = {"vpmm device ", "vpmm: no device has a pool yet\n",
                                             "{\"vpmm_dump\": ", NULL};
    struct vpmm_sink sink;
    bool could_be_cancelled = vpmm_cancel_hold();
    /* A signal handler has no place for a message: the dump itself is on standard error then. */
    (void)vpmm_sink_open(config->dump_path, beginnings, &sink);
    if (!vpmm_sink_lock(&sink)) {
        (void)vpmm_sink_close(&sink);
        (void)vpmm_sink_open("", beginnings, &sink);
    }
    if (is_beyond_bound(config, router, dumps->room, &sink)) {
        if (!dumps->is_bound_told)
            tell_bound(config);
        dumps->is_bound_told = true;
    } else if (!dumps->is_stuck || takes_something(sink.fd)) {
        bool is_whole = write_dump(sink.fd, config->dump_format, (uint64_t)getpid(),
                                   VPMM_REPORT_ALL_DEVICES, router, dumps->room) > 0;
        dumps->is_stuck = !is_whole && !sink.is_file;
        if (!is_whole)
            vpmm_sink_take_back(&sink);
    }
    (void)vpmm_sink_close(&sink);
    vpmm_cancel_restore(could_be_cancelled);
}
