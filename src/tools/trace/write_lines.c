/* SPDX-License-Identifier: MIT */
/* The two forms that are lines: CSV, and RMM's log. Must not keep anything from one item to the
 * next. */
#include "trace/writer_internal.h"

#define NS_A_SECOND 1000000000u
#define SECONDS_A_DAY 86400u

/* ---- CSV ---- */

static void begin_csv(struct vpmm_trace_writer *writer)
{
    const struct vpmm_trace_facts *facts = &writer->facts;
    if (facts->pid)
        vpmm_trace_output_format(&writer->output, "# of %s, process %llu, begun at %llu\n",
                                 facts->program, (unsigned long long)facts->pid,
                                 (unsigned long long)(facts->start_unix_ns / NS_A_SECOND));
}

static void put_csv(struct vpmm_trace_writer *writer, const struct vpmm_trace_item *item)
{
    struct vpmm_trace_output *output = &writer->output;
    const struct vpmm_trace_entry *entry = &item->entry;
    unsigned long long address = entry->address, bytes = entry->bytes, stream = entry->stream,
                       us = item->moment_ns / 1000;
    char kind = entry->flags & VPMM_TRACE_IS_ASYNC ? 'a' : 's';
    switch ((int)entry->kind) {
    case VPMM_TRACE_MALLOC:
        vpmm_trace_output_format(output, "A,%llx,%llu,%llx,%llu,%c\n", address, bytes, stream, us,
                                 kind);
        return;
    case VPMM_TRACE_FREE:
        vpmm_trace_output_format(output, "F,%llx,,%llx,%llu,%c\n", address, stream, us, kind);
        return;
    case VPMM_TRACE_KERNEL:
        vpmm_trace_output_format(output, "K,%llx,%llu,%llu\n", stream, us, bytes / 1000);
        return;
    default:
        vpmm_trace_output_format(output, "%c,%llx,%llx,%llu\n",
                                 entry->kind == VPMM_TRACE_RECORD ? 'E' : 'W', address, stream, us);
    }
}

/* ---- RMM ---- */

static void begin_rmm(struct vpmm_trace_writer *writer)
{
    vpmm_trace_output_format(&writer->output, "Thread,Time,Action,Pointer,Size,Stream\n");
}

static void put_rmm(struct vpmm_trace_writer *writer, const struct vpmm_trace_item *item)
{
    const struct vpmm_trace_entry *entry = &item->entry;
    uint64_t ns = writer->facts.start_unix_ns + item->moment_ns;
    unsigned seconds = (unsigned)(ns / NS_A_SECOND % SECONDS_A_DAY);
    const char *action = entry->kind == VPMM_TRACE_FREE               ? "free"
                         : (entry->flags & VPMM_TRACE_IS_FAILED) != 0 ? "allocate failure"
                                                                      : "allocate";
    vpmm_trace_output_format(&writer->output, "%llu,%02u:%02u:%02u.%06u,%s,0x%llx,%llu,0x%llx\n",
                             (unsigned long long)item->thread, seconds / 3600, seconds / 60 % 60,
                             seconds % 60, (unsigned)(ns % NS_A_SECOND / 1000), action,
                             (unsigned long long)entry->address, (unsigned long long)entry->bytes,
                             (unsigned long long)entry->stream);
}

static void end(struct vpmm_trace_writer *writer)
{
    (void)writer;
}

const struct vpmm_trace_sink vpmm_trace_sink_csv = {
    .begin = begin_csv, .put = put_csv, .end = end, .takes_queued = true};
const struct vpmm_trace_sink vpmm_trace_sink_rmm = {
    .begin = begin_rmm, .put = put_rmm, .end = end, .takes_failed = true};
