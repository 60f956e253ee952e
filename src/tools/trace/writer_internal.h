/* SPDX-License-Identifier: MIT */
/* What the writers of single forms share. */
#ifndef VPMM_TRACE_WRITER_INTERNAL_H
#define VPMM_TRACE_WRITER_INTERNAL_H

#include "trace/live.h"
#include "trace/output.h"
#include "trace/writer.h"

struct vpmm_trace_sink {
    /* The three of them tell failures by `output.error`, an errno. */
    void (*begin)(struct vpmm_trace_writer *writer);
    void (*put)(struct vpmm_trace_writer *writer, const struct vpmm_trace_item *item);
    void (*end)(struct vpmm_trace_writer *writer);
    /* Frees what `state` holds; also without an end, and where begin failed. */
    void (*finish)(struct vpmm_trace_writer *writer);
    bool takes_queued, takes_failed, takes_pool;
    bool takes_unknown; /* frees of what was not live, and such as failed */
};

extern const struct vpmm_trace_sink vpmm_trace_sink_native, vpmm_trace_sink_csv,
    vpmm_trace_sink_rmm, vpmm_trace_sink_snapshot, vpmm_trace_sink_chrome;

struct vpmm_trace_writer {
    const struct vpmm_trace_sink *sink;
    struct vpmm_trace_output output;
    struct vpmm_trace_facts facts;
    char program[64];
    struct vpmm_trace_left_out left_out;
    void *state; /* the form's own */
    char name[160];
};

/* Whether the item makes a block live, or is the free of one that was. */
static inline bool vpmm_trace_is_request(const struct vpmm_trace_item *item)
{
    return item->entry.kind == VPMM_TRACE_MALLOC || item->entry.kind == VPMM_TRACE_FREE;
}

#endif
