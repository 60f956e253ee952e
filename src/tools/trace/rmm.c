/* SPDX-License-Identifier: MIT */
/* What RMM's logging_resource_adaptor writes: Thread,Time,Action,Pointer,Size,Stream. The time is
 * that of the day, to the microsecond. Must not trust a line: what is not of this form is called
 * damage. */
#include "trace/trace_internal.h"

#include <string.h>

#define FIELDS 6
#define DAY_US 86400000000u
/* A thread may write its line so long after it took the time, behind lines of other threads. */
#define LATE_US 60000000u

static bool begin(struct vpmm_trace_reader *reader)
{
    reader->us = reader->days = 0;
    reader->has_time = false;
    return vpmm_trace_input_lines(&reader->input) ||
           vpmm_trace_damaged(reader, "it cannot be read again");
}

/* So many digits, and what stands behind them. */
static bool read_digits(const char **text, unsigned n_digits, const char *ends,
                        uint64_t *number_out)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < n_digits; i++, (*text)++) {
        if (**text < '0' || **text > '9')
            return false;
        number = number * 10 + (uint64_t)(**text - '0');
    }
    *number_out = number;
    if (*ends == '\0')
        return **text == '\0';
    return **text && strchr(ends, *(*text)++);
}

/* 14:21:19.998533, as earlier versions wrote it 14:21:19:998533, or seconds since 1970. */
static bool read_clock(const char *text, uint64_t *us_out, bool *is_of_day_out)
{
    uint64_t hours = 0, minutes = 0, seconds, us;
    *is_of_day_out = strchr(text, ':') != NULL;
    if (*is_of_day_out && !(read_digits(&text, 2, ":", &hours) && hours < 24 &&
                            read_digits(&text, 2, ":", &minutes) && minutes < 60))
        return false;
    if (!read_digits(&text, *is_of_day_out ? 2 : 10, ".:", &seconds) ||
        !read_digits(&text, 6, "", &us) || (*is_of_day_out && seconds > 60))
        return false;
    *us_out = ((hours * 60 + minutes) * 60 + seconds) * 1000000 + us;
    return true;
}

/* Times count from the first line. The day turns where the clock falls by more than half of one. A
 * line of the evening that comes after midnight is late, and gets the time of the one before. */
static const char *read_time(struct vpmm_trace_reader *reader, const char *text,
                             struct vpmm_trace_item *item)
{
    uint64_t us;
    bool is_of_day;
    if (!read_clock(text, &us, &is_of_day))
        return "the time is not of the form 14:21:19.998533";
    if (!reader->has_time) {
        reader->has_time = true;
        reader->facts.start_unix_ns = is_of_day ? 0 : us * 1000;
        reader->first_us = reader->us = us;
    }
    us += is_of_day ? reader->days * DAY_US : 0;
    if (is_of_day && us + DAY_US / 2 < reader->us) {
        reader->days++;
        us += DAY_US;
    } else if (is_of_day && reader->days && us > reader->us + DAY_US - LATE_US) {
        us -= DAY_US;
    }
    if (us > reader->us)
        reader->us = us;
    if (reader->us - reader->first_us > VPMM_TRACE_AMOUNT_MOST / 1000)
        return "the time is too long after the first one";
    item->entry.ns = item->moment_ns = (reader->us - reader->first_us) * 1000;
    return NULL;
}

static const char *read_action(const char *action, struct vpmm_trace_entry *entry)
{
    entry->kind = VPMM_TRACE_MALLOC;
    if (strcmp(action, "free") == 0 || strcmp(action, "deallocate") == 0)
        entry->kind = VPMM_TRACE_FREE;
    else if (strcmp(action, "allocate failure") == 0)
        entry->flags |= VPMM_TRACE_IS_FAILED;
    else if (strcmp(action, "allocate") != 0)
        return "the action is none of allocate, allocate failure and free";
    return NULL;
}

/* Of old versions a NULL is "(nil)". */
static bool read_pointer(const char *text, uint64_t *address_out)
{
    return vpmm_trace_number(strcmp(text, "(nil)") == 0 ? "0" : text, 16, address_out);
}

static const char *read_line(struct vpmm_trace_reader *reader, struct vpmm_trace_item *item)
{
    char *fields[FIELDS];
    struct vpmm_trace_entry *entry = &item->entry;
    entry->flags = VPMM_TRACE_IS_ASYNC;
    if (vpmm_trace_fields(reader, fields, FIELDS) != FIELDS)
        return "it has not six fields";
    const char *complaint = read_action(fields[2], entry);
    if (complaint)
        return complaint;
    if (!vpmm_trace_number(fields[0], 10, &item->thread))
        return "the thread is not a number";
    if (!read_pointer(fields[3], &entry->address))
        return "the pointer is not a hexadecimal number";
    bool may_be_any = entry->flags & VPMM_TRACE_IS_FAILED;
    if (!vpmm_trace_number(fields[4], 10, &entry->bytes) ||
        (!may_be_any && entry->bytes > VPMM_TRACE_AMOUNT_MOST))
        return "the size is not a number of bytes";
    if (!read_pointer(fields[5], &entry->stream))
        return "the stream is not a number";
    return read_time(reader, fields[1], item);
}

/* No line, or the free of what a request for no bytes got. */
static bool is_nothing(const struct vpmm_trace_entry *entry)
{
    return entry->address == 0 && entry->kind != VPMM_TRACE_MALLOC;
}

static bool next(struct vpmm_trace_reader *reader, struct vpmm_trace_item *item_out)
{
    const char *line = reader->input.line, *complaint;
    do {
        *item_out = (struct vpmm_trace_item){0};
        if (!vpmm_trace_input_line(&reader->input, &complaint))
            return complaint && vpmm_trace_line_damaged(reader, complaint);
        bool is_head = !*line || strncmp(line, "Thread,", 7) == 0;
        complaint = is_head ? NULL : read_line(reader, item_out);
    } while (!complaint && is_nothing(&item_out->entry));
    return !complaint || vpmm_trace_line_damaged(reader, complaint);
}

const struct vpmm_trace_source vpmm_trace_source_rmm = {.begin = begin, .next = next};
