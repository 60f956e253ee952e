/* SPDX-License-Identifier: MIT */
/* What a trace comes to: figures gathered item by item in memory that does not grow with the trace
 * but for the blocks that are live. Two passes: the first finds the peak, the second what was live
 * at it. Bytes and nanoseconds throughout. One thread. */
#ifndef VPMM_CLI_SUMMARY_H
#define VPMM_CLI_SUMMARY_H

#include "trace/live.h"
#include "trace/reader.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define VPMM_SUMMARY_SIZES 64
#define VPMM_SUMMARY_LIVES 10 /* below 1 us, 10 us, ... 100 s, and more */
#define VPMM_SUMMARY_PATHS 64
#define VPMM_SUMMARY_SLOWEST 10
#define VPMM_SUMMARY_GROUPS 10
#define VPMM_SUMMARY_SPANS 64
#define VPMM_SUMMARY_DEVICES 256
#define VPMM_SUMMARY_TIMES 512 /* places of a histogram of durations */

struct vpmm_summary_count {
    uint64_t n, bytes;
};

/* Durations, to an eighth of each. */
struct vpmm_summary_times {
    uint64_t n, total_ns, max_ns;
    uint64_t places[VPMM_SUMMARY_TIMES];
};

struct vpmm_summary_path {
    struct vpmm_summary_count count;
    struct vpmm_summary_times times;
};

/* The most at one time, and when that was. */
struct vpmm_summary_peak {
    uint64_t bytes, n_blocks, at_ns;
    uint64_t item; /* how many items came before */
};

struct vpmm_summary_device {
    bool is_used, has_held;
    uint64_t live_bytes, pool_bytes; /* of all blocks, and of those that the pool serves */
    uint64_t held_bytes, n_live;
    struct vpmm_summary_peak live, held;
};

/* The most in one part of the time. */
struct vpmm_summary_span {
    uint64_t live_bytes, held_bytes, unused_bytes; /* held by the pool and not live */
    bool is_set;
};

struct vpmm_summary_call {
    struct vpmm_trace_entry entry;
    uint64_t thread;
};

/* Blocks that have a size, a stream or a thread in common. */
struct vpmm_summary_group {
    uint64_t key, n, bytes;
};

struct vpmm_summary_blocks {
    struct vpmm_summary_count all;
    unsigned n_sizes, n_streams, n_threads; /* those below: the ones with the most bytes */
    uint64_t all_sizes, all_streams, all_threads;
    struct vpmm_summary_group sizes[VPMM_SUMMARY_GROUPS], streams[VPMM_SUMMARY_GROUPS],
        threads[VPMM_SUMMARY_GROUPS];
};

struct vpmm_summary {
    int device; /* -1: all of them */
    uint64_t n_items, n_mallocs, n_frees, n_failed, n_kernels, n_events;
    uint64_t n_made_up, n_unknown; /* frees that are missing; of blocks from before */
    uint64_t first_ns, last_ns;
    bool has_items, has_durations, has_paths, has_threads;
    struct vpmm_summary_device all, devices[VPMM_SUMMARY_DEVICES];
    struct vpmm_summary_count sizes[VPMM_SUMMARY_SIZES], lives[VPMM_SUMMARY_LIVES];
    struct vpmm_summary_path paths[VPMM_SUMMARY_PATHS];
    struct vpmm_summary_times mallocs, frees, host_waits, stream_waits;
    struct vpmm_summary_count
        pool[VPMM_TRACE_KINDS]; /* grow, stitch, unmap, release; of weights, too */
    struct vpmm_summary_call slowest[VPMM_SUMMARY_SLOWEST];
    unsigned n_slowest;
    struct vpmm_summary_span spans[VPMM_SUMMARY_SPANS];
    uint64_t span_ns;
    uint64_t unused_bytes; /* held by the pool and not live, outside of requests */
    struct vpmm_live live;
    struct vpmm_summary_blocks at_peak, at_end;
};

/* An empty one; the caller frees it with vpmm_summary_destroy. NULL: no memory. */
struct vpmm_summary *vpmm_summary_create(int device);
void vpmm_summary_destroy(struct vpmm_summary *summary);

/* The first pass. False where there is no memory. */
bool vpmm_summary_add(struct vpmm_summary *summary, const struct vpmm_trace_item *item);
/* After it: what is live at the end. False where there is no memory. */
bool vpmm_summary_end(struct vpmm_summary *summary);

/* What is live, by size, stream and thread. False where there is no memory. */
bool vpmm_summary_group(const struct vpmm_live *live, struct vpmm_summary_blocks *blocks_out);

/* The duration that so many of a thousand do not exceed; 0 where there are none. */
uint64_t vpmm_summary_quantile(const struct vpmm_summary_times *times, unsigned of_a_thousand);

/* Parts of the time that the spans cover. */
unsigned vpmm_summary_n_spans(const struct vpmm_summary *summary);

/* "cache", "cuda: smaller than the threshold", ... */
const char *vpmm_summary_path_text(unsigned path, char room[static 64]);
/* "cudaMalloc", ...: what the program called. */
const char *vpmm_summary_call_text(const struct vpmm_trace_entry *entry);

void vpmm_summary_print(const struct vpmm_summary *summary, const struct vpmm_trace_facts *facts,
                        const char *name);
/* One JSON object (docs/FORMS.md). */
void vpmm_summary_print_json(const struct vpmm_summary *summary,
                             const struct vpmm_trace_facts *facts, const char *name);

#endif
