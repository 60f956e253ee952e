/* SPDX-License-Identifier: MIT */
/* Files in memory, and what a reader makes of them. */
#ifndef VPMM_TEST_UNIT_TRACE_FILES_H
#define VPMM_TEST_UNIT_TRACE_FILES_H

#include "trace/reader.h"

#include <stddef.h>

/* An empty one; the caller closes it. */
int file_make(void);
void file_write(int fd, uint64_t offset, const void *bytes, size_t n_bytes);
/* A file that holds `text`. */
int file_of_text(const char *text);

/* A reader of the file, which it closes; the file is a trace. */
struct vpmm_trace_reader *file_open(int fd, enum vpmm_trace_form form);
/* The next item, which there is. */
struct vpmm_trace_item file_next(struct vpmm_trace_reader *reader);
/* There is none; `damage` is what ended it (NULL: nothing), and begins with "file: ". */
void file_end(struct vpmm_trace_reader *reader, const char *damage);

/* The layout of this library's own form. */
void file_put_header(int fd, uint64_t n_chunks);
void file_put_chunk(int fd, uint32_t number, uint64_t thread,
                    const struct vpmm_trace_entry *entries, uint32_t n_entries);

#endif
