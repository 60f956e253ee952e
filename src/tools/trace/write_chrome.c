/* SPDX-License-Identifier: MIT */
/* Trace events for Perfetto and chrome://tracing, as JSON: counters of each device, one
 * asynchronous slice for the life of each block, and the calls of each thread that took time. Must
 * not write a string without JSON's escapes. */
#include "trace/writer_internal.h"

#include "base/bytes.h"
#include "base/text.h"

#include <errno.h>
#include <stdlib.h>

#define DEVICES 256u

struct chrome {
    struct vpmm_live live;
    uint64_t n_blocks;
    struct device {
        uint64_t live_bytes, held_bytes;
    } devices[DEVICES];
};

static void put_string(struct vpmm_trace_output *output, const char *string)
{
    char escaped[VPMM_TEXT_ESCAPED_ROOM];
    while (*string) {
        string += vpmm_text_escape(string, escaped);
        vpmm_trace_output_format(output, "%s", escaped);
    }
}

static void begin(struct vpmm_trace_writer *writer)
{
    struct vpmm_trace_output *output = &writer->output;
    unsigned long long pid = writer->facts.pid;
    writer->state = calloc(1, sizeof(struct chrome));
    if (!writer->state) {
        output->error = ENOMEM;
        return;
    }
    vpmm_trace_output_format(output,
                             "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
                             "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%llu,\"tid\":0,"
                             "\"args\":{\"name\":\"",
                             pid);
    put_string(output, writer->program[0] ? writer->program : "trace");
    vpmm_trace_output_format(output, "\"}}");
}

/* What all events begin with; the caller ends the object. */
static void put_head(struct vpmm_trace_writer *writer, char phase, uint64_t ns, uint64_t thread)
{
    vpmm_trace_output_format(&writer->output,
                             ",\n{\"ph\":\"%c\",\"ts\":%llu.%03u,\"pid\":%llu,\"tid\":%llu", phase,
                             (unsigned long long)(ns / 1000), (unsigned)(ns % 1000),
                             (unsigned long long)writer->facts.pid, (unsigned long long)thread);
}

static void put_counter(struct vpmm_trace_writer *writer, const struct vpmm_trace_item *item,
                        const char *figure, uint64_t bytes)
{
    put_head(writer, 'C', item->moment_ns, 0);
    vpmm_trace_output_format(&writer->output,
                             ",\"name\":\"device %u: %s\",\"args\":{\"bytes\":%llu}}",
                             item->entry.device, figure, (unsigned long long)bytes);
}

static const char *call_text(const struct vpmm_trace_entry *entry)
{
    bool is_async = entry->flags & VPMM_TRACE_IS_ASYNC;
    switch ((enum vpmm_trace_kind)entry->kind) {
    case VPMM_TRACE_MALLOC:
        return is_async ? "cudaMallocAsync" : "cudaMalloc";
    case VPMM_TRACE_FREE:
        return is_async ? "cudaFreeAsync" : "cudaFree";
    case VPMM_TRACE_GROW:
        return "grow";
    case VPMM_TRACE_STITCH:
        return "stitch";
    case VPMM_TRACE_UNMAP:
        return "unmap";
    case VPMM_TRACE_RELEASE:
        return "release";
    case VPMM_TRACE_HOST_WAIT:
        return "wait on the host";
    case VPMM_TRACE_STREAM_WAIT:
        return "wait on the device";
    case VPMM_TRACE_WEIGHTS_LOAD:
        return "load weights";
    case VPMM_TRACE_WEIGHTS_EVICT:
        return "evict weights";
    case VPMM_TRACE_WEIGHTS_PASS:
        return "end of a pass";
    case VPMM_TRACE_NOTHING:
    case VPMM_TRACE_FIGURES:
    case VPMM_TRACE_THREAD:
    case VPMM_TRACE_KINDS:
    default:
        return "";
    }
}

static void put_call(struct vpmm_trace_writer *writer, const struct vpmm_trace_item *item)
{
    const struct vpmm_trace_entry *entry = &item->entry;
    put_head(writer, 'X', entry->ns, item->thread);
    vpmm_trace_output_format(&writer->output,
                             ",\"name\":\"%s\",\"cat\":\"call\",\"dur\":%u.%03u,\"args\":{"
                             "\"bytes\":%llu,\"address\":\"0x%llx\",\"device\":%u,\"stream\":%llu,"
                             "\"path\":%u,\"rung\":%u,\"failed\":%s}}",
                             call_text(entry), entry->duration_ns / 1000, entry->duration_ns % 1000,
                             (unsigned long long)entry->bytes, (unsigned long long)entry->address,
                             entry->device, (unsigned long long)entry->stream, entry->path,
                             (unsigned)entry->flags >> VPMM_TRACE_RUNG_SHIFT,
                             entry->flags & VPMM_TRACE_IS_FAILED ? "true" : "false");
}

/* The beginning ('b') or the end ('e') of a block's life: the two find each other by the number. */
static void put_life(struct vpmm_trace_writer *writer, const struct vpmm_trace_item *item,
                     char phase, uint64_t block)
{
    char size[24];
    vpmm_bytes_print(item->entry.bytes, size, sizeof size);
    put_head(writer, phase, item->moment_ns, item->thread);
    vpmm_trace_output_format(&writer->output,
                             ",\"name\":\"%s\",\"cat\":\"block\",\"id\":\"0x%llx\",\"args\":{"
                             "\"bytes\":%llu,\"address\":\"0x%llx\",\"stream\":%llu}}",
                             size, (unsigned long long)block, (unsigned long long)item->entry.bytes,
                             (unsigned long long)item->entry.address,
                             (unsigned long long)item->entry.stream);
}

static void put_known(struct vpmm_trace_writer *writer, const struct vpmm_trace_item *item)
{
    struct chrome *chrome = writer->state;
    const struct vpmm_trace_entry *entry = &item->entry;
    struct device *device = &chrome->devices[entry->device];
    if (entry->kind == VPMM_TRACE_MALLOC) {
        const struct vpmm_live_block block = {.address = entry->address,
                                              .bytes = entry->bytes,
                                              .device = entry->device,
                                              .number = ++chrome->n_blocks};
        if (!vpmm_live_put(&chrome->live, &block))
            writer->output.error = ENOMEM;
        device->live_bytes += entry->bytes;
        put_life(writer, item, 'b', block.number);
    } else {
        struct vpmm_live_block block;
        if (!vpmm_live_take(&chrome->live, entry->address, &block))
            return;
        device = &chrome->devices[block.device];
        device->live_bytes -= block.bytes;
        put_life(writer, item, 'e', block.number);
    }
    put_counter(writer, item, "live", device->live_bytes);
}

static void put(struct vpmm_trace_writer *writer, const struct vpmm_trace_item *item)
{
    struct chrome *chrome = writer->state;
    const struct vpmm_trace_entry *entry = &item->entry;
    struct device *device = &chrome->devices[entry->device];
    if (entry->kind == VPMM_TRACE_FIGURES) {
        device->held_bytes = entry->address;
        put_counter(writer, item, "held", entry->address);
        put_counter(writer, item, "pending", entry->stream);
        return;
    }
    if (entry->duration_ns && !item->is_made_up)
        put_call(writer, item);
    if (vpmm_trace_is_request(item) && item->is_known)
        put_known(writer, item);
    if (entry->kind == VPMM_TRACE_GROW)
        device->held_bytes += entry->bytes;
    if (entry->kind == VPMM_TRACE_RELEASE)
        device->held_bytes -= entry->bytes < device->held_bytes ? entry->bytes : device->held_bytes;
    if (entry->kind == VPMM_TRACE_GROW || entry->kind == VPMM_TRACE_RELEASE)
        put_counter(writer, item, "held", device->held_bytes);
}

static void end(struct vpmm_trace_writer *writer)
{
    vpmm_trace_output_format(&writer->output, "\n]}\n");
}

static void finish(struct vpmm_trace_writer *writer)
{
    struct chrome *chrome = writer->state;
    if (chrome)
        vpmm_live_finish(&chrome->live);
    free(chrome);
}

const struct vpmm_trace_sink vpmm_trace_sink_chrome = {.begin = begin,
                                                       .put = put,
                                                       .end = end,
                                                       .finish = finish,
                                                       .takes_failed = true,
                                                       .takes_pool = true};
