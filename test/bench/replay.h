/* SPDX-License-Identifier: MIT */
/* Replays a trace through a heap on the simulated device, with every driver call priced: what a
 * program would have paid and how much memory would have been held, without a GPU. One thread. Ends
 * the program when the heap or the device does not do what it must. */
#ifndef VPMM_TEST_BENCH_REPLAY_H
#define VPMM_TEST_BENCH_REPLAY_H

#include "heap/heap.h"
#include "priced.h"
#include "timeline.h"
#include "trace.h"

#include <stdbool.h>
#include <stdint.h>

struct replay_options {
    uint64_t extent_pages_max; /* 0: the policy's own choice */
    uint64_t slack_bytes, slack_percent, spare_percent;
    uint64_t device_bytes;
    uint64_t lag_us; /* from each free to the end of the work queued before it */
};

struct replay {
    const struct trace *trace;
    struct replay_options options;
    struct sim *sim;
    struct vpmm_driver inner, driver;
    struct priced priced;
    struct timeline timeline;
    struct vpmm_order *order;
    struct vpmm_heap *heap;
    uint64_t page_bytes;
    struct replay_block {
        uint64_t address; /* 0: not live */
        uint64_t bytes;
        uint32_t stream;
        bool is_sync;
    } * blocks;                       /* by the trace's numbers */
    uint64_t *modelled_ns, *whole_ns; /* of each call of a pass */
};

/* What the mallocs and frees of one pass cost. Modelled figures are the same in every run. */
struct replay_pass {
    uint64_t calls, refused; /* mallocs and frees; mallocs without memory */
    uint64_t live_peak_bytes, held_peak_bytes;
    uint64_t driver_ns;      /* modelled */
    uint64_t own_ns;         /* measured here: everything but the driver's calls */
    uint64_t waited_us;      /* on the host, in the trace's time */
    uint64_t last_malloc_ns; /* driver and own */
    uint64_t owed_ns;        /* for the unmaps of the zombies that there are at the end */
    struct vpmm_heap_counts counts;
    struct priced_tally tally;
    struct replay_quantiles {
        uint64_t p50_ns, p99_ns, max_ns;
    } modelled, whole; /* of one call; whole: with its own time */
};

void replay_setup(struct replay *replay, const struct trace *trace,
                  const struct replay_options *options);
/* One pass through the trace; what is then still live is freed, uncounted. */
void replay_run(struct replay *replay, struct replay_pass *pass_out);
/* Gives everything back to the device. False after one line on stderr where anything is left. */
bool replay_teardown(struct replay *replay);

#endif
