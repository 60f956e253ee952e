/* SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "trace.h"

#include "numbers.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS_MAX 6
#define SKIPPED (NUMBER_NONE - 1)

struct reader {
    struct trace trace;
    size_t ops_room;
    struct numbers live; /* by address: the allocation's number, SKIPPED, or NONE once freed */
    struct numbers streams, events;
    uint64_t least_bytes, us;
    const char *fields[FIELDS_MAX];
    size_t n_fields;
    const char *complaint;
};

static bool complain(struct reader *reader, const char *complaint)
{
    reader->complaint = complaint;
    return false;
}

static void *grown(void *array, size_t bytes)
{
    void *new = realloc(array, bytes);
    if (!new) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return new;
}

static bool read_number(struct reader *reader, size_t field, int base, uint64_t *number_out)
{
    const char *text = reader->fields[field];
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, base);
    if (!isxdigit((unsigned char)*text) || *end || errno)
        return complain(reader, base == 16 ? "expected a hexadecimal number" : "expected a number");
    *number_out = number;
    return true;
}

static uint32_t number_of(struct numbers *numbers, uint64_t key, uint32_t *n)
{
    uint32_t *number = numbers_at(numbers, key);
    if (*number == NUMBER_NONE)
        *number = (*n)++;
    return *number;
}

static bool read_stream(struct reader *reader, size_t field, uint32_t *stream_out)
{
    uint64_t handle;
    struct trace *trace = &reader->trace;
    if (!read_number(reader, field, 16, &handle))
        return false;
    uint32_t before = trace->n_streams;
    *stream_out = number_of(&reader->streams, handle, &trace->n_streams);
    if (trace->n_streams > before) {
        trace->streams = grown(trace->streams, trace->n_streams * sizeof *trace->streams);
        trace->streams[before] = handle;
    }
    return true;
}

static bool read_time(struct reader *reader, size_t field, struct trace_op *op)
{
    if (!read_number(reader, field, 10, &op->us))
        return false;
    if (op->us < reader->us)
        op->us = reader->us;
    reader->us = op->us;
    return true;
}

static void add(struct reader *reader, const struct trace_op *op)
{
    struct trace *trace = &reader->trace;
    if (trace->n_ops == reader->ops_room) {
        reader->ops_room = reader->ops_room ? 2 * reader->ops_room : 4096;
        trace->ops = grown(trace->ops, reader->ops_room * sizeof *trace->ops);
    }
    trace->ops[trace->n_ops++] = *op;
}

static bool read_kind(struct reader *reader, bool *is_sync_out)
{
    const char *kind = reader->fields[5];
    if (strlen(kind) != 1 || !strchr("sap", *kind))
        return complain(reader, "expected the kind s, a or p");
    *is_sync_out = *kind == 's';
    return true;
}

/* A,<address>,<bytes>,<stream>,<us>,<kind> */
static bool read_malloc(struct reader *reader)
{
    uint64_t address;
    struct trace_op op = {.kind = TRACE_MALLOC};
    if (!read_number(reader, 1, 16, &address) || !read_number(reader, 2, 10, &op.bytes) ||
        !read_stream(reader, 3, &op.stream) || !read_time(reader, 4, &op) ||
        !read_kind(reader, &op.is_sync))
        return false;
    if (op.bytes == 0)
        return complain(reader, "an allocation of 0 bytes");
    uint32_t *number = numbers_at(&reader->live, address);
    if (*number != NUMBER_NONE)
        return complain(reader, "the address is already allocated");
    if (op.bytes < reader->least_bytes) {
        *number = SKIPPED;
        reader->trace.n_skipped++;
        return true;
    }
    *number = op.object = reader->trace.n_allocations++;
    add(reader, &op);
    return true;
}

/* F,<address>,,<stream>,<us>,<kind> */
static bool read_free(struct reader *reader)
{
    uint64_t address;
    struct trace_op op = {.kind = TRACE_FREE};
    if (!read_number(reader, 1, 16, &address) || !read_stream(reader, 3, &op.stream) ||
        !read_time(reader, 4, &op) || !read_kind(reader, &op.is_sync))
        return false;
    if (*reader->fields[2])
        return complain(reader, "the size of a free must be empty");
    uint32_t *number = numbers_at(&reader->live, address);
    op.object = *number;
    *number = NUMBER_NONE;
    if (op.object == NUMBER_NONE)
        return complain(reader, "the address is not allocated");
    if (op.object != SKIPPED)
        add(reader, &op);
    return true;
}

/* K,<stream>,<us>,<duration_us> */
static bool read_kernel(struct reader *reader)
{
    struct trace_op op = {.kind = TRACE_KERNEL};
    if (!read_stream(reader, 1, &op.stream) || !read_time(reader, 2, &op) ||
        !read_number(reader, 3, 10, &op.duration_us))
        return false;
    add(reader, &op);
    return true;
}

/* E,<event>,<stream>,<us> and W,<event>,<stream>,<us> */
static bool read_event(struct reader *reader)
{
    uint64_t event;
    struct trace_op op = {.kind = *reader->fields[0] == 'E' ? TRACE_RECORD : TRACE_WAIT};
    if (!read_number(reader, 1, 16, &event) || !read_stream(reader, 2, &op.stream) ||
        !read_time(reader, 3, &op))
        return false;
    op.object = number_of(&reader->events, event, &reader->trace.n_events);
    add(reader, &op);
    return true;
}

static const struct line_form {
    char mark;
    size_t n_fields;
    bool (*read)(struct reader *reader);
} forms[] = {
    {'A', 6, read_malloc}, {'F', 6, read_free},  {'K', 4, read_kernel},
    {'E', 4, read_event},  {'W', 4, read_event},
};

static bool split(struct reader *reader, char *line)
{
    reader->n_fields = 0;
    for (char *field = line; field; reader->n_fields++) {
        char *comma = strchr(field, ',');
        if (reader->n_fields == FIELDS_MAX)
            return complain(reader, "too many fields");
        reader->fields[reader->n_fields] = field;
        if (comma)
            *comma++ = 0;
        field = comma;
    }
    return true;
}

static bool read_line(struct reader *reader, char *line)
{
    line[strcspn(line, "\r\n")] = 0;
    if (*line == 0 || *line == '#')
        return true;
    if (!split(reader, line))
        return false;
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (strlen(reader->fields[0]) == 1 && *reader->fields[0] == forms[i].mark)
            return reader->n_fields == forms[i].n_fields
                       ? forms[i].read(reader)
                       : complain(reader, "wrong number of fields");
    return complain(reader, "expected a line that begins with A, F, K, E or W");
}

bool trace_read(FILE *file, const char *name, uint64_t least_bytes, struct trace *trace_out)
{
    struct reader reader;
    char *line = NULL;
    size_t room = 0;
    uint64_t n_lines = 0;
    bool is_good = true;
    memset(&reader, 0, sizeof reader);
    reader.least_bytes = least_bytes;
    while (is_good && getline(&line, &room, file) > 0) {
        n_lines++;
        is_good = read_line(&reader, line);
    }
    if (is_good && ferror(file))
        is_good = complain(&reader, "cannot be read");
    if (!is_good)
        fprintf(stderr, "%s:%llu: %s\n", name, (unsigned long long)n_lines, reader.complaint);
    free(line);
    numbers_finish(&reader.live);
    numbers_finish(&reader.streams);
    numbers_finish(&reader.events);
    if (is_good)
        *trace_out = reader.trace;
    else
        trace_finish(&reader.trace);
    return is_good;
}

void trace_finish(struct trace *trace)
{
    free(trace->ops);
    free(trace->streams);
    memset(trace, 0, sizeof *trace);
}
