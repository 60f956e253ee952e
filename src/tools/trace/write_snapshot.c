/* SPDX-License-Identifier: MIT */
/* PyTorch's memory snapshot: a pickle of dictionaries, lists, numbers and words (protocol 2). Each
 * block is a segment, mapped with its malloc and gone with its free. A list must not be written in
 * pieces, so each device's events wait in a nameless file of their own. */
#include "trace/writer_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 256u
#define BATCH 1000u

#define WORDS(X)                                                                                   \
    X(action)                                                                                      \
    X(addr)                                                                                        \
    X(size)                                                                                        \
    X(stream)                                                                                      \
    X(time_us)                                                                                     \
    X(frames)                                                                                      \
    X(alloc)                                                                                       \
    X(free_requested)                                                                              \
    X(free_completed)                                                                              \
    X(segment_alloc)                                                                               \
    X(segment_free)                                                                                \
    X(oom)                                                                                         \
    X(device_free)                                                                                 \
    X(device)                                                                                      \
    X(address)                                                                                     \
    X(total_size)                                                                                  \
    X(allocated_size)                                                                              \
    X(active_size)                                                                                 \
    X(requested_size)                                                                              \
    X(segment_type)                                                                                \
    X(large)                                                                                       \
    X(segment_pool_id)                                                                             \
    X(is_expandable)                                                                               \
    X(blocks)                                                                                      \
    X(state)                                                                                       \
    X(active_allocated)
#define NUMBER(word) W_##word,
#define TEXT(word) #word,
enum word {
    WORDS(NUMBER) N_WORDS
};
static const char *const words[] = {WORDS(TEXT)};

struct snapshot {
    struct vpmm_live live;
    struct vpmm_trace_output *parts[DEVICES]; /* events of each device; NULL: none yet */
    uint32_t n_open[DEVICES];                 /* events since a part's last mark */
};

/* ---- pickle ---- */

static void op(struct vpmm_trace_output *output, char code)
{
    vpmm_trace_output_bytes(output, &code, 1);
}

static void text(struct vpmm_trace_output *output, const char *string)
{
    uint32_t length = (uint32_t)strlen(string);
    const unsigned char head[] = {'X', length & 0xff, length >> 8 & 0xff, 0, 0};
    vpmm_trace_output_bytes(output, head, sizeof head);
    vpmm_trace_output_bytes(output, string, length);
}

/* One that begin_snapshot has put into the memo. */
static void word(struct vpmm_trace_output *output, enum word number)
{
    const unsigned char code[] = {'h', (unsigned char)number};
    vpmm_trace_output_bytes(output, code, sizeof code);
}

static void number(struct vpmm_trace_output *output, uint64_t value)
{
    unsigned char code[11] = {'K', (unsigned char)value};
    size_t length = 2;
    if (value > 0xff) {
        size_t n = 0;
        for (; n < sizeof value && value >> (8 * n); n++)
            code[2 + n] = (unsigned char)(value >> (8 * n));
        if (code[1 + n] & 0x80)
            code[2 + n++] = 0;
        code[0] = 0x8a;
        code[1] = (unsigned char)n;
        length = 2 + n;
    }
    vpmm_trace_output_bytes(output, code, length);
}

/* memory_viz takes a number of more than 63 bits for one that it cannot compare, and draws nothing;
 * a program may ask in vain for any size. */
static void size_item(struct vpmm_trace_output *output, uint64_t bytes)
{
    word(output, W_size);
    number(output, bytes < INT64_MAX ? bytes : INT64_MAX);
}

static void number_item(struct vpmm_trace_output *output, enum word key, uint64_t value)
{
    word(output, key);
    number(output, value);
}

static void word_item(struct vpmm_trace_output *output, enum word key, enum word value)
{
    word(output, key);
    word(output, value);
}

static void empty_frames(struct vpmm_trace_output *output)
{
    word(output, W_frames);
    op(output, ']');
}

/* ---- events ---- */

/* One that is not known is the first. */
static uint8_t device_of(const struct vpmm_trace_entry *entry)
{
    return entry->device == VPMM_TRACE_DEVICE_UNKNOWN ? 0 : entry->device;
}

static struct vpmm_trace_output *part_of(struct vpmm_trace_writer *writer, uint8_t device)
{
    struct snapshot *snapshot = writer->state;
    if (!snapshot->parts[device]) {
        struct vpmm_trace_output *part = malloc(sizeof *part);
        if (!part || !vpmm_trace_output_open_nameless(part)) {
            writer->output.error = part ? errno : ENOMEM;
            free(part);
            return NULL;
        }
        snapshot->parts[device] = part;
    }
    return snapshot->parts[device];
}

static void put_event(struct vpmm_trace_writer *writer, const struct vpmm_trace_item *item,
                      enum word action)
{
    struct snapshot *snapshot = writer->state;
    uint8_t device = device_of(&item->entry);
    struct vpmm_trace_output *part = part_of(writer, device);
    if (!part)
        return;
    if (snapshot->n_open[device]++ % BATCH == 0) {
        if (snapshot->n_open[device] > 1)
            op(part, 'e');
        op(part, '(');
    }
    op(part, '}');
    op(part, '(');
    word_item(part, W_action, action);
    number_item(part, action == W_oom ? W_device_free : W_addr, item->entry.address);
    size_item(part, item->entry.bytes);
    number_item(part, W_stream, item->entry.stream);
    number_item(part, W_time_us, (writer->facts.start_unix_ns + item->moment_ns) / 1000);
    empty_frames(part);
    op(part, 'u');
    if (part->error)
        writer->output.error = part->error;
}

static void put(struct vpmm_trace_writer *writer, const struct vpmm_trace_item *item)
{
    struct snapshot *snapshot = writer->state;
    const struct vpmm_trace_entry *entry = &item->entry;
    if (entry->kind == VPMM_TRACE_FREE) {
        struct vpmm_live_block block;
        if (!item->is_known)
            return;
        vpmm_live_take(&snapshot->live, entry->address, &block);
        put_event(writer, item, W_free_requested);
        put_event(writer, item, W_free_completed);
        put_event(writer, item, W_segment_free);
        return;
    }
    if (!item->is_known) {
        /* A request for no bytes gets no address either, but did not fail. */
        if (entry->flags & VPMM_TRACE_IS_FAILED)
            put_event(writer, item, W_oom);
        return;
    }
    const struct vpmm_live_block block = {.address = entry->address,
                                          .bytes = entry->bytes,
                                          .stream = entry->stream,
                                          .device = device_of(entry)};
    if (!vpmm_live_put(&snapshot->live, &block)) {
        writer->output.error = ENOMEM;
        return;
    }
    put_event(writer, item, W_segment_alloc);
    put_event(writer, item, W_alloc);
}

/* ---- the whole ---- */

/* The words come first, as the segments, which the real ones replace at the end: whatever follows
 * fetches them from the memo. */
static void begin(struct vpmm_trace_writer *writer)
{
    struct vpmm_trace_output *output = &writer->output;
    writer->state = calloc(1, sizeof(struct snapshot));
    if (!writer->state) {
        output->error = ENOMEM;
        return;
    }
    vpmm_trace_output_bytes(output, "\x80\x02}(", 4);
    text(output, "segments");
    op(output, ']');
    op(output, '(');
    for (unsigned i = 0; i < N_WORDS; i++) {
        const unsigned char put_memo[] = {'q', (unsigned char)i};
        text(output, words[i]);
        vpmm_trace_output_bytes(output, put_memo, sizeof put_memo);
    }
    op(output, 'e');
}

static void end_traces(struct vpmm_trace_writer *writer)
{
    struct snapshot *snapshot = writer->state;
    struct vpmm_trace_output *output = &writer->output;
    unsigned n_devices = DEVICES;
    while (n_devices > 1 && !snapshot->parts[n_devices - 1])
        n_devices--;
    text(output, "device_traces");
    op(output, ']');
    op(output, '(');
    for (unsigned i = 0; i < n_devices; i++) {
        struct vpmm_trace_output *part = snapshot->parts[i];
        op(output, ']');
        if (!part)
            continue;
        op(part, 'e');
        vpmm_trace_output_flush(part);
        if (part->error)
            output->error = part->error;
        vpmm_trace_output_copy(output, part->fd);
    }
    op(output, 'e');
}

static void put_segment(struct vpmm_trace_output *output, const struct vpmm_live_block *block)
{
    op(output, '}');
    op(output, '(');
    number_item(output, W_device, block->device);
    number_item(output, W_address, block->address);
    number_item(output, W_total_size, block->bytes);
    number_item(output, W_allocated_size, block->bytes);
    number_item(output, W_active_size, block->bytes);
    number_item(output, W_requested_size, block->bytes);
    number_item(output, W_stream, block->stream);
    word_item(output, W_segment_type, W_large);
    word(output, W_segment_pool_id);
    vpmm_trace_output_bytes(output, "K\0K\0\x86", 5);
    word(output, W_is_expandable);
    op(output, (char)0x89);
    empty_frames(output);
    word(output, W_blocks);
    vpmm_trace_output_bytes(output, "]}(", 3);
    number_item(output, W_address, block->address);
    number_item(output, W_size, block->bytes);
    number_item(output, W_requested_size, block->bytes);
    word_item(output, W_state, W_active_allocated);
    empty_frames(output);
    vpmm_trace_output_bytes(output, "uau", 3);
}

static int compare_blocks(const void *left, const void *right)
{
    const struct vpmm_live_block *a = left, *b = right;
    return a->address < b->address ? -1 : a->address > b->address;
}

/* The blocks that are live at the end, in ascending order: the table is of no use after that. */
static void end_segments(struct vpmm_trace_writer *writer)
{
    struct snapshot *snapshot = writer->state;
    struct vpmm_live *live = &snapshot->live;
    struct vpmm_trace_output *output = &writer->output;
    text(output, "segments");
    op(output, ']');
    if (live->room)
        qsort(live->blocks, live->room, sizeof *live->blocks, compare_blocks);
    for (size_t i = 0; i < live->room; i++) {
        if (live->blocks[i].address) {
            put_segment(output, &live->blocks[i]);
            op(output, 'a');
        }
    }
}

static void end(struct vpmm_trace_writer *writer)
{
    struct vpmm_trace_output *output = &writer->output;
    end_traces(writer);
    text(output, "allocator_settings");
    op(output, '}');
    end_segments(writer);
    vpmm_trace_output_bytes(output, "u.", 2);
}

static void finish(struct vpmm_trace_writer *writer)
{
    struct snapshot *snapshot = writer->state;
    if (!snapshot)
        return;
    for (unsigned i = 0; i < DEVICES; i++) {
        if (snapshot->parts[i])
            vpmm_trace_output_abandon(snapshot->parts[i]);
        free(snapshot->parts[i]);
    }
    vpmm_live_finish(&snapshot->live);
    free(snapshot);
}

const struct vpmm_trace_sink vpmm_trace_sink_snapshot = {
    .begin = begin, .put = put, .end = end, .finish = finish, .takes_failed = true};
