/* SPDX-License-Identifier: MIT */
/* Shows a router through src/lib/observe: the adapter between pools, fences and counters on one
 * side and rows on the other. No lock (but the audit's try), no allocation, no driver call, no
 * message (but for those about the files); any thread, also in a signal handler. But for the
 * statistics at exit all of it also reads the metadata of another process, mapped at the same
 * address: it writes nothing and goes nowhere else. */
#ifndef VPMM_REPORT_REPORT_H
#define VPMM_REPORT_REPORT_H

#include "config/config.h"
#include "route/route.h"

/* What a reader must have in common with the process whose metadata it reads: the version, and how
 * the metadata lies in memory. */
extern const char vpmm_report_version[];
uint64_t vpmm_report_layout(void);

struct vpmm_report_room;

/* What is known of where dumps go, and what they are gathered in; all zero at first. */
struct vpmm_report_dumps {
    bool is_bound_told;
    bool is_stuck;
    struct vpmm_report_room *room;
};
/* Before the first dump. False without memory. */
VPMM_MUST_CHECK bool vpmm_report_dumps_init(struct vpmm_report_dumps *dumps,
                                            const struct vpmm_memory *memory);
void vpmm_report_dumps_finish(struct vpmm_report_dumps *dumps, const struct vpmm_memory *memory);

/* Writes the region maps of all devices to where `config` says, unless that is a file that would
 * outgrow VPMM_DUMP_MAX: one message says so. What cannot be written to safely (internal.h) is left
 * alone, and the dump goes to standard error. A pipe or terminal that took nothing for some seconds
 * is not waited for again: later dumps are left out until it takes something. One thread at a time.
 */
void vpmm_report_dump(const struct vpmm_config *config, struct vpmm_router *router,
                      struct vpmm_report_dumps *dumps);

struct vpmm_report_requests;

/* Writes the statistics of the process to where `config` says, and audits every pool whose locks
 * can be had. A JSON file gets the place of the one before in one step; to another they are added.
 * Where that cannot be, a warning says so, and they go to standard error. */
void vpmm_report_stats(const struct vpmm_config *config, struct vpmm_router *router);
/* The same for a process that has no router: only what became of its requests. Where there were
 * none, a JSON file that is there stays, and standard error gets a line. */
void vpmm_report_stats_of(const struct vpmm_config *config,
                          const struct vpmm_report_requests *requests);

/* Whose metadata it is. */
struct vpmm_report_process {
    uint64_t pid;
    const char *program;
};

#define VPMM_REPORT_ALL_DEVICES (-1)

/* The same to `fd`: the map of one device or of all, which takes some 30 KiB of stack, and the
 * statistics. */
void vpmm_report_dump_to(int fd, enum vpmm_dump_format format, uint64_t pid, int device,
                         struct vpmm_router *router);
void vpmm_report_stats_to(int fd, bool is_json, const struct vpmm_report_process *process,
                          struct vpmm_router *router);

/* Whether that device, or any, has a pool; a router of NULL has none. */
bool vpmm_report_has_pool(struct vpmm_router *router, int device);
/* Whether there are, or were, weights larger than their budget. */
bool vpmm_report_has_weights(const struct vpmm_router *router);

/* The figures of one object of weights. */
struct vpmm_report_offload {
    int device;
    struct vpmm_offload_stats stats;
};
/* Those of all objects that live, at most VPMM_OFFLOADS_MAX; returns how many. */
unsigned vpmm_report_offloads(const struct vpmm_router *router,
                              struct vpmm_report_offload offloads_out[VPMM_OFFLOADS_MAX]);

/* The figures of one device. */
struct vpmm_report_device {
    int device;
    uint64_t page_bytes, limit_bytes; /* 0: no limit */
    uint64_t pending_pages;           /* freed, but the work of their last owners is not known
                                         complete */
    struct vpmm_pool_totals totals;
    struct vpmm_heap_counts counts;
    bool has_small; /* requests of less than a page share pages */
    struct vpmm_small_figures small;
    struct vpmm_small_class classes[VPMM_SMALL_CLASSES]; /* of no pages where has_small is false */
};
/* Those of all devices that have a pool, in ascending order; returns how many. A walk over all
 * regions and small blocks. */
unsigned vpmm_report_devices(struct vpmm_router *router,
                             struct vpmm_report_device devices_out[VPMM_DEVICES_MAX]);

/* The addresses of a device's pool, cut into so many cells of equal size: each gets the mark of
 * what takes most of it, '#' live, '+' free but pending, '-' free, 'z' zombie, '?' busy, '!'
 * quarantined,
 * '.' hole. The hole at the end of a root, which nothing has ever needed, is left out. */
#define VPMM_REPORT_CELLS_MAX 512u
void vpmm_report_bar(struct vpmm_router *router, int device, char *cells_out, unsigned n_cells);

/* Requests by answer, all devices, and what the answers are called: in programs, for people. */
struct vpmm_report_requests {
    uint64_t counts[2][VPMM_ROUTE_COUNT]; /* by is_async */
};
void vpmm_report_requests(struct vpmm_router *router, struct vpmm_report_requests *requests_out);
const char *vpmm_report_route_key(enum vpmm_route route);

#endif
