/* SPDX-License-Identifier: MIT */
/* Lines as docs/FORMS.md has them: A, F, K, E, W. Must not trust a line: what is not as told there
 * is damage. */
#include "trace/trace_internal.h"

#include <string.h>

#define FIELDS 6
#define US_MOST (VPMM_TRACE_AMOUNT_MOST / 1000)

static bool begin(struct vpmm_trace_reader *reader)
{
    reader->us = 0;
    return vpmm_trace_input_lines(&reader->input) ||
           vpmm_trace_damaged(reader, "it cannot be read again");
}

/* Microseconds to nanoseconds; a time before the latest counts as the latest. */
static const char *read_time(struct vpmm_trace_reader *reader, const char *text,
                             struct vpmm_trace_item *item)
{
    uint64_t us;
    if (!vpmm_trace_number(text, 10, &us) || us > US_MOST)
        return "the time is not a number of microseconds";
    if (us > reader->us)
        reader->us = us;
    item->entry.ns = item->moment_ns = reader->us * 1000;
    return NULL;
}

static const char *read_stream(const char *text, struct vpmm_trace_item *item)
{
    return vpmm_trace_number(text, 16, &item->entry.stream)
               ? NULL
               : "the stream is not a hexadecimal number";
}

/* A,ADDRESS,BYTES,STREAM,US,KIND or F,ADDRESS,,STREAM,US,KIND */
static const char *read_request(struct vpmm_trace_reader *reader, char *const *fields,
                                struct vpmm_trace_item *item)
{
    struct vpmm_trace_entry *entry = &item->entry;
    entry->kind = *fields[0] == 'A' ? VPMM_TRACE_MALLOC : VPMM_TRACE_FREE;
    if (!vpmm_trace_number(fields[1], 16, &entry->address) || entry->address == 0)
        return "the address is not a hexadecimal number above 0";
    bool may_lack_bytes = entry->kind == VPMM_TRACE_FREE && !*fields[2];
    if (!may_lack_bytes &&
        (!vpmm_trace_number(fields[2], 10, &entry->bytes) || entry->bytes > VPMM_TRACE_AMOUNT_MOST))
        return "the size is not a number of bytes";
    if (strlen(fields[5]) != 1 || !strchr("sap", *fields[5]))
        return "the kind is none of s, a and p";
    entry->flags = *fields[5] == 's' ? 0 : VPMM_TRACE_IS_ASYNC;
    const char *complaint = read_stream(fields[3], item);
    return complaint ? complaint : read_time(reader, fields[4], item);
}

/* K,STREAM,US,DURATION_US */
static const char *read_kernel(struct vpmm_trace_reader *reader, char *const *fields,
                               struct vpmm_trace_item *item)
{
    struct vpmm_trace_entry *entry = &item->entry;
    uint64_t us;
    entry->kind = VPMM_TRACE_KERNEL;
    if (!vpmm_trace_number(fields[3], 10, &us) || us > US_MOST)
        return "the duration is not a number of microseconds";
    entry->bytes = us * 1000;
    entry->duration_ns = entry->bytes < UINT32_MAX ? (uint32_t)entry->bytes : UINT32_MAX;
    const char *complaint = read_stream(fields[1], item);
    return complaint ? complaint : read_time(reader, fields[2], item);
}

/* E,EVENT,STREAM,US or W,EVENT,STREAM,US */
static const char *read_event(struct vpmm_trace_reader *reader, char *const *fields,
                              struct vpmm_trace_item *item)
{
    struct vpmm_trace_entry *entry = &item->entry;
    entry->kind = *fields[0] == 'E' ? VPMM_TRACE_RECORD : VPMM_TRACE_FOLLOW;
    if (!vpmm_trace_number(fields[1], 16, &entry->address))
        return "the event is not a hexadecimal number";
    const char *complaint = read_stream(fields[2], item);
    return complaint ? complaint : read_time(reader, fields[3], item);
}

static const char *read_line(struct vpmm_trace_reader *reader, struct vpmm_trace_item *item)
{
    char *fields[FIELDS];
    unsigned n = vpmm_trace_fields(reader, fields, FIELDS);
    bool is_letter = fields[0][0] && !fields[0][1];
    if (!is_letter || !strchr("AFKEW", *fields[0]))
        return "it begins with none of A, F, K, E, W and #";
    if (strchr("AF", *fields[0]))
        return n == FIELDS ? read_request(reader, fields, item) : "it has not six fields";
    if (n != 4)
        return "it has not four fields";
    return *fields[0] == 'K' ? read_kernel(reader, fields, item) : read_event(reader, fields, item);
}

static bool next(struct vpmm_trace_reader *reader, struct vpmm_trace_item *item_out)
{
    const char *complaint;
    do {
        if (!vpmm_trace_input_line(&reader->input, &complaint))
            return complaint && vpmm_trace_line_damaged(reader, complaint);
    } while (!reader->input.line[0] || reader->input.line[0] == '#');
    *item_out = (struct vpmm_trace_item){0};
    complaint = read_line(reader, item_out);
    return !complaint || vpmm_trace_line_damaged(reader, complaint);
}

const struct vpmm_trace_source vpmm_trace_source_csv = {
    .begin = begin, .next = next, .is_strict = true};
