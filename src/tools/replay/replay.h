/* SPDX-License-Identifier: MIT */
/* Replays a trace through CUDA's own allocation functions or through this library's pool, on a GPU,
 * or through the pool on the simulated device, where every driver call has a price: what a program
 * would have paid, and how much memory would have been held. One thread. */
#ifndef VPMM_REPLAY_REPLAY_H
#define VPMM_REPLAY_REPLAY_H

#include "heap/heap.h"
#include "replay/priced.h"
#include "replay/tape.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VPMM_REPLAY_MESSAGE_BYTES 256

enum vpmm_replay_through {
    VPMM_REPLAY_POOL,
    VPMM_REPLAY_MALLOC,
    VPMM_REPLAY_MALLOC_ASYNC,
    VPMM_REPLAY_THROUGHS
};

#define VPMM_REPLAY_SIMULATED (-1)

/* Told of each operation before it is replayed, and of each limit that is tried. */
struct vpmm_replay_watcher {
    void (*step)(void *self, uint64_t n_done, uint64_t n_all); /* of all passes of one replay */
    void (*tell)(void *self, uint64_t limit_bytes, bool completes);
    void *self;
};

struct vpmm_replay_options {
    enum vpmm_replay_through through; /* on the simulated device the pool */
    int gpu;                          /* its number, or VPMM_REPLAY_SIMULATED */
    unsigned passes;       /* through the trace, each from nothing live to nothing live */
    uint64_t device_bytes; /* of the simulated device */
    uint64_t lag_ns; /* from each free to the end of work that is queued before it; simulated */
    /* Of the pool, as in struct vpmm_heap_params. */
    uint64_t page_bytes, extent_pages_max, slack_bytes, slack_percent, spare_percent;
    uint64_t limit_bytes, limit_percent;       /* of the device; 0 both: none */
    const struct vpmm_replay_watcher *watcher; /* NULL: nobody */
};

/* How the pool served; CUDA's own functions: all 0. */
struct vpmm_replay_counts {
    struct vpmm_heap_counts pool;
    uint64_t parts; /* mallocs that got a part of pages which the pool had served before */
};

/* What the mallocs and frees of one pass cost. On the simulated device all but own_ns and the
 * nanoseconds of one call are the same in every run. */
struct vpmm_replay_pass {
    uint64_t calls, refused;        /* mallocs and frees; mallocs without memory */
    uint64_t refused_largest_bytes; /* the largest of those */
    uint64_t live_peak_bytes, held_peak_bytes;
    uint64_t total_ns;       /* of the next two */
    uint64_t driver_ns;      /* modelled; on a GPU measured */
    uint64_t own_ns;         /* measured: everything but the driver's calls */
    uint64_t waited_ns;      /* on the host: simulated, in the trace's time; on a GPU measured */
    uint64_t last_malloc_ns; /* driver and own, as the next three of one call */
    uint64_t p50_ns, p99_ns, max_ns;
    uint64_t owed_ns; /* for the unmaps of the zombies that there are at the end; modelled */
    struct vpmm_replay_counts counts;
    struct vpmm_priced_tally tally;
};

/* The most that was live and held from some moment to the next point. */
struct vpmm_replay_point {
    uint64_t ns; /* since the first operation of the tape */
    uint64_t live_bytes, held_bytes;
};

struct vpmm_replay_result {
    char device[128];
    uint64_t device_bytes, page_bytes, limit_bytes; /* page: of the pool; limit 0: none */
    bool has_work;     /* the work of the trace was queued; false: it was left out */
    bool is_preloaded; /* this library served what was asked of CUDA's own functions */
    unsigned n_passes;
    struct vpmm_replay_pass *passes;
    struct vpmm_replay_point *points; /* of the first pass, some thousand at most */
    size_t n_points;
};

/* How many GPUs there are; the first message says why there is none. */
int vpmm_replay_gpus(char message_out[static VPMM_REPLAY_MESSAGE_BYTES]);

/* Fills in the options' defaults: once through the pool on the simulated device, as it is without
 * options. */
void vpmm_replay_options_init(struct vpmm_replay_options *options_out);

/* On failure `message_out` says in one line why, and nothing is to be finished. Requests for which
 * there is no memory are no failure. */
VPMM_MUST_CHECK bool vpmm_replay_run(const struct vpmm_tape *tape,
                                     const struct vpmm_replay_options *options,
                                     struct vpmm_replay_result *result_out,
                                     char message_out[static VPMM_REPLAY_MESSAGE_BYTES]);
void vpmm_replay_result_finish(struct vpmm_replay_result *result);

/* Of all passes. */
uint64_t vpmm_replay_live_peak(const struct vpmm_replay_result *result);
uint64_t vpmm_replay_held_peak(const struct vpmm_replay_result *result);

/* A limit of whole pages with which every pass completes, and with a page less does not, found on
 * the simulated device with the options of the pool. False: it does not complete without a limit
 * either, or cannot be replayed; `message_out` says why. */
VPMM_MUST_CHECK bool vpmm_replay_find_limit(const struct vpmm_tape *tape,
                                            const struct vpmm_replay_options *options,
                                            uint64_t *limit_out,
                                            char message_out[static VPMM_REPLAY_MESSAGE_BYTES]);

#endif
