/* SPDX-License-Identifier: MIT */
/* The bytes of a file that is read, whatever it is: a regular file is read in place, anything else
 * is copied to a temporary file that has no name; what gzip compressed is decompressed on the way.
 * Nothing is mapped, so a file that is cut off meanwhile is a short read. */
#ifndef VPMM_TRACE_INPUT_H
#define VPMM_TRACE_INPUT_H

#include "base/status.h"
#include "trace/gz.h"
#include "trace/reader.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VPMM_TRACE_LINE_ROOM 4096
#define VPMM_TRACE_ERROR_ROOM 96

struct vpmm_trace_input {
    int fd; /* a regular file */
    uint64_t bytes;
    gzFile text; /* the same file as text; open while lines are read */
    uint64_t line_number;
    char line[VPMM_TRACE_LINE_ROOM]; /* the last one, without its end */
    char error_text[VPMM_TRACE_ERROR_ROOM];
};

/* strerror, for any thread. */
const char *vpmm_trace_error_text(int error, char room[static VPMM_TRACE_ERROR_ROOM]);

/* An empty temporary file that is gone when it is closed, in TMPDIR, or in /tmp where that is not
 * to be written. -1 with errno. */
int vpmm_trace_input_nameless(void);
/* As vpmm_trace_settle; `fd` stays the caller's. NOT_FOUND with errno where it cannot be read. */
VPMM_MUST_CHECK enum vpmm_status vpmm_trace_input_open(struct vpmm_trace_input *input, int fd,
                                                       enum vpmm_trace_form form);
void vpmm_trace_input_close(struct vpmm_trace_input *input);

/* The first bytes, decompressed; how many there are. Where there are none `complaint_out` is NULL,
 * or says why they cannot be read. */
size_t vpmm_trace_input_peek(struct vpmm_trace_input *input, void *bytes_out, size_t room,
                             const char **complaint_out);
/* Makes the decompressed bytes the file, where they are compressed. False with errno. */
bool vpmm_trace_input_inflate(struct vpmm_trace_input *input);

/* Exactly so many bytes from `offset`, or as many as there are; false with errno where reading
 * fails. */
bool vpmm_trace_input_read(const struct vpmm_trace_input *input, uint64_t offset, void *bytes_out,
                           size_t n_bytes, size_t *n_read_out);

/* Lines, from the first. False with errno. */
bool vpmm_trace_input_lines(struct vpmm_trace_input *input);
/* The next line into `line`. False at the end; then `complaint_out` is NULL, or says what is wrong
 * with line `line_number`. */
bool vpmm_trace_input_line(struct vpmm_trace_input *input, const char **complaint_out);
/* Bytes of the file that were read for the lines so far. */
uint64_t vpmm_trace_input_at(const struct vpmm_trace_input *input);

#endif
