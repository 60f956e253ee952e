/* SPDX-License-Identifier: MIT */
/* This library's own form, which is written at several places at a time: to a nameless file, that
 * is copied when all is there. Must not write to the named file before that. */
#define _GNU_SOURCE
#include "trace/input.h"
#include "trace/writer_internal.h"
#include "vpmm/vpmm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Threads write into one of so many sequences of chunks; those of one, by their numbers, share it.
 */
#define LANES 256u
#define PORTION 64u
#define CHUNK_ENTRIES                                                                              \
    ((VPMM_TRACE_CHUNK_BYTES - sizeof(struct vpmm_trace_chunk)) / sizeof(struct vpmm_trace_entry))

struct lane {
    uint64_t thread;   /* whose the next entry is without another word */
    uint64_t begun_by; /* who began the chunk */
    uint64_t chunk;
    uint32_t n_entries; /* of the chunk, those of the portion with them; 0: there is none */
    uint32_t n_portion;
    bool is_shared;
    struct vpmm_trace_entry portion[PORTION];
};

struct native {
    int fd;
    uint64_t n_chunks;
    uint64_t moment_ns, thread; /* of the item before */
    bool has_weights;
    struct lane lanes[LANES];
};

static void begin(struct vpmm_trace_writer *writer)
{
    struct native *native = calloc(1, sizeof *native);
    if (!native) {
        writer->output.error = ENOMEM;
        return;
    }
    writer->state = native;
    native->fd = vpmm_trace_input_nameless();
    if (native->fd < 0)
        writer->output.error = errno;
}

static void write_at(struct vpmm_trace_writer *writer, uint64_t offset, const void *bytes,
                     size_t n_bytes)
{
    const struct native *native = writer->state;
    for (size_t n_done = 0; n_done < n_bytes && !writer->output.error;) {
        ssize_t n = pwrite(native->fd, (const char *)bytes + n_done, n_bytes - n_done,
                           (off_t)(offset + n_done));
        if (n < 0 && errno != EINTR)
            writer->output.error = errno;
        if (n > 0)
            n_done += (size_t)n;
    }
}

static void flush_lane(struct vpmm_trace_writer *writer, struct lane *lane)
{
    uint64_t offset = VPMM_TRACE_HEADER_BYTES + lane->chunk * VPMM_TRACE_CHUNK_BYTES;
    const struct vpmm_trace_chunk chunk = {.magic = VPMM_TRACE_CHUNK_MAGIC,
                                           .n_entries = lane->n_entries,
                                           .thread = lane->begun_by,
                                           .is_shared = lane->is_shared};
    if (lane->n_portion == 0)
        return;
    write_at(writer, offset, &chunk, sizeof chunk);
    write_at(writer,
             offset + sizeof chunk +
                 (lane->n_entries - lane->n_portion) * sizeof(struct vpmm_trace_entry),
             lane->portion, lane->n_portion * sizeof(struct vpmm_trace_entry));
    lane->n_portion = 0;
}

static void add(struct vpmm_trace_writer *writer, struct lane *lane,
                const struct vpmm_trace_entry *entry)
{
    lane->portion[lane->n_portion++] = *entry;
    lane->n_entries++;
    if (lane->n_portion == PORTION)
        flush_lane(writer, lane);
}

/* The lane of `thread`, where there is room for an entry of it. */
static struct lane *lane_for(struct vpmm_trace_writer *writer, uint64_t thread)
{
    struct native *native = writer->state;
    struct lane *lane = &native->lanes[(thread ^ thread >> 8) % LANES];
    bool is_another = thread != lane->thread;
    if (lane->n_entries == 0 || lane->n_entries + is_another >= CHUNK_ENTRIES) {
        flush_lane(writer, lane);
        lane->chunk = native->n_chunks++;
        lane->n_entries = 0;
        lane->is_shared = false;
        lane->begun_by = thread;
    } else if (is_another) {
        lane->is_shared = true;
        add(writer, lane,
            &(struct vpmm_trace_entry){
                .ns = native->moment_ns, .kind = VPMM_TRACE_THREAD, .address = thread});
    }
    lane->thread = thread;
    return lane;
}

/* Whoever reads it merges the threads by time, and what is of one time by their numbers: an item is
 * a nanosecond later where that would put it before the last one. */
static struct vpmm_trace_entry in_order(struct native *native, const struct vpmm_trace_item *item)
{
    struct vpmm_trace_entry entry = item->entry;
    uint64_t moment_ns = item->moment_ns > native->moment_ns ? item->moment_ns : native->moment_ns;
    if (moment_ns == native->moment_ns && item->thread < native->thread)
        moment_ns++;
    native->moment_ns = moment_ns;
    native->thread = item->thread;
    entry.ns = entry.kind == VPMM_TRACE_MALLOC ? moment_ns - entry.duration_ns : moment_ns;
    return entry;
}

static void put(struct vpmm_trace_writer *writer, const struct vpmm_trace_item *item)
{
    struct native *native = writer->state;
    /* Whoever reads it makes it up again. */
    if (item->is_made_up)
        return;
    const struct vpmm_trace_entry entry = in_order(native, item);
    native->has_weights |= entry.kind > VPMM_TRACE_THREAD;
    add(writer, lane_for(writer, item->thread), &entry);
}

static void end(struct vpmm_trace_writer *writer)
{
    struct native *native = writer->state;
    const struct vpmm_trace_facts *facts = &writer->facts;
    struct vpmm_trace_header header = {.magic = VPMM_TRACE_MAGIC,
                                       .version = native->has_weights ? VPMM_TRACE_VERSION
                                                                      : VPMM_TRACE_VERSION_PLAIN,
                                       .header_bytes = VPMM_TRACE_HEADER_BYTES,
                                       .chunk_bytes = VPMM_TRACE_CHUNK_BYTES,
                                       .entry_bytes = sizeof(struct vpmm_trace_entry),
                                       .pid = facts->pid,
                                       .start_unix_ns = facts->start_unix_ns,
                                       .n_chunks = native->n_chunks,
                                       .dropped = facts->dropped,
                                       .is_ended = facts->is_ended,
                                       .vpmm_version = VPMM_VERSION};
    memcpy(header.program, writer->program, sizeof header.program);
    for (unsigned i = 0; i < LANES; i++)
        flush_lane(writer, &native->lanes[i]);
    write_at(writer, 0, &header, sizeof header);
    if (!writer->output.error && native->n_chunks == 0 &&
        ftruncate(native->fd, VPMM_TRACE_HEADER_BYTES) != 0)
        writer->output.error = errno;
    vpmm_trace_output_copy(&writer->output, native->fd);
}

static void finish(struct vpmm_trace_writer *writer)
{
    struct native *native = writer->state;
    if (!native)
        return;
    if (native->fd >= 0)
        close(native->fd);
    free(native);
}

const struct vpmm_trace_sink vpmm_trace_sink_native = {.begin = begin,
                                                       .put = put,
                                                       .end = end,
                                                       .finish = finish,
                                                       .takes_failed = true,
                                                       .takes_pool = true,
                                                       .takes_unknown = true};
