/* SPDX-License-Identifier: MIT */
/* What the readers of single forms share. Each gives items in the order in which things took
 * effect; reader.c adds what follows from the items before. */
#ifndef VPMM_TRACE_INTERNAL_H
#define VPMM_TRACE_INTERNAL_H

#include "trace/input.h"
#include "trace/live.h"
#include "trace/reader.h"

/* The most bytes of one request, and the latest time and longest duration in nanoseconds: what this
 * library's own form can tell, too. */
#define VPMM_TRACE_AMOUNT_MOST (UINT64_MAX >> 4)

struct vpmm_trace_source {
    /* Reads from the beginning. False after vpmm_trace_damaged. */
    bool (*begin)(struct vpmm_trace_reader *reader);
    /* `entry`, `thread` and `moment_ns` of the next item. False at the end, and after
     * vpmm_trace_damaged. */
    bool (*next)(struct vpmm_trace_reader *reader, struct vpmm_trace_item *item_out);
    void (*finish)(struct vpmm_trace_reader *reader);
    bool is_strict; /* an address that is served twice, or freed twice, is damage */
};

extern const struct vpmm_trace_source vpmm_trace_source_native, vpmm_trace_source_csv,
    vpmm_trace_source_rmm;

#define VPMM_TRACE_DAMAGE_ROOM 256

struct vpmm_trace_reader {
    const struct vpmm_trace_source *source;
    struct vpmm_trace_input input;
    struct vpmm_trace_facts facts;
    struct vpmm_trace_header header; /* of the native form */
    struct vpmm_trace_merge *merge;  /* of the native form */
    uint64_t us, first_us, days;     /* of lines: the latest and the first time, and midnights */
    bool has_time;
    struct vpmm_live live;
    uint64_t live_bytes;
    uint64_t moment_ns;
    struct vpmm_trace_item held_back; /* follows a free that was made up */
    bool is_held_back, is_over;
    char name[160], damage[VPMM_TRACE_DAMAGE_ROOM];
};

/* Remembers what is wrong, unless something is already; returns false. The name of the file is put
 * before it. */
bool vpmm_trace_damaged(struct vpmm_trace_reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same for the line that was read last. */
bool vpmm_trace_line_damaged(struct vpmm_trace_reader *reader, const char *complaint);

/* Names of files and what is in them may hold anything; messages are one line of text. */
void vpmm_trace_make_printable(char *text);

/* Splits the line that was read last at its commas, at most `room` fields of it; how many there
 * are, room + 1 for more. */
unsigned vpmm_trace_fields(struct vpmm_trace_reader *reader, char **fields_out, unsigned room);
/* Whole numbers; with base 16 an 0x before it is accepted. */
bool vpmm_trace_number(const char *text, int base, uint64_t *number_out);

#endif
