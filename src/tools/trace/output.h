/* SPDX-License-Identifier: MIT */
/* A file that is written from its beginning to its end, compressed where its name ends in .gz, and
 * that takes its name only when it is complete. The first failure is remembered; what follows it
 * does nothing. */
#ifndef VPMM_TRACE_OUTPUT_H
#define VPMM_TRACE_OUTPUT_H

#include "trace/gz.h"
#include "trace/writer.h"

#include <stdbool.h>
#include <stddef.h>

struct vpmm_trace_output {
    gzFile file;
    int fd;    /* of a nameless one; else -1 */
    int error; /* an errno; 0: none */
    char path[VPMM_TRACE_PATH_ROOM], temporary[VPMM_TRACE_PATH_ROOM]; /* "": none */
};

/* "-" is standard output. False with errno. */
bool vpmm_trace_output_open(struct vpmm_trace_output *output, const char *path);
/* A temporary file without a name. False with errno. */
bool vpmm_trace_output_open_nameless(struct vpmm_trace_output *output);

void vpmm_trace_output_bytes(struct vpmm_trace_output *output, const void *bytes, size_t n_bytes);
/* At most 1023 characters. */
void vpmm_trace_output_format(struct vpmm_trace_output *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* All bytes of the file `fd`, from its beginning. */
void vpmm_trace_output_copy(struct vpmm_trace_output *output, int fd);
/* Writes out what is buffered. */
void vpmm_trace_output_flush(struct vpmm_trace_output *output);

/* Puts the file in place; false with errno, and then nothing is left of it. */
bool vpmm_trace_output_close(struct vpmm_trace_output *output);
/* Removes it. */
void vpmm_trace_output_abandon(struct vpmm_trace_output *output);

#endif
