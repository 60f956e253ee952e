/* SPDX-License-Identifier: MIT */
/* A recorded trace of memory requests, read from text lines (test/traces/README.md has the format)
 * into an array that can be replayed without any look-up. A trace owns its operations; one thread
 * at a time. */
#ifndef VPMM_TEST_BENCH_TRACE_H
#define VPMM_TEST_BENCH_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum trace_kind {
    TRACE_MALLOC,
    TRACE_FREE,
    TRACE_KERNEL,
    TRACE_RECORD, /* an event on a stream */
    TRACE_WAIT,   /* a stream for an event */
};

struct trace_op {
    enum trace_kind kind;
    bool is_sync;         /* cudaMalloc or cudaFree; else their stream-ordered forms */
    uint32_t stream;      /* its number, from 0 in the order of appearance */
    uint32_t object;      /* number of the allocation, or of the event */
    uint64_t us;          /* since the recorded program began; never less than the line before */
    uint64_t bytes;       /* of a malloc */
    uint64_t duration_us; /* of a kernel */
};

struct trace {
    struct trace_op *ops;
    size_t n_ops;
    uint64_t *streams; /* the recorded handle of each stream; 0: the default one */
    uint32_t n_streams, n_allocations, n_events;
    uint64_t n_skipped; /* mallocs below the least size, left out together with their frees */
};

/* Reads all of `file`; `name` is for messages. False after one line on stderr where a line is
 * malformed, an address is allocated while it is live, or freed while it is not. */
bool trace_read(FILE *file, const char *name, uint64_t least_bytes, struct trace *trace_out);
void trace_finish(struct trace *trace);

#endif
