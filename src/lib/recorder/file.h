/* SPDX-License-Identifier: MIT */
/* The file under a recorder: no two processes record into one at the same time, and nothing is ever
 * done to a file that it is not. One thread at a time calls this. Private to this folder. */
#ifndef VPMM_TRACE_FILE_H
#define VPMM_TRACE_FILE_H

#include "base/status.h"
#include "recorder/recorder.h"

#include <stdbool.h>
#include <stdint.h>

/* An empty, locked file at `path`, which outlives it. What was there is replaced only if it is an
 * empty regular file or a trace, belongs to the user, and nobody is recording into it; a link in
 * the last component of the path is not followed. INVALID: `*why_out` says why not. */
VPMM_MUST_CHECK enum vpmm_status vpmm_trace_file_open(struct vpmm_trace_file *file,
                                                      const char *path, const char **why_out);

/* Gives the file so many zeros more from `begin` on, its end; both are multiples of 4,096. False:
 * there is no room for all of them (`errno` tells). */
bool vpmm_trace_file_extend(struct vpmm_trace_file *file, uint64_t begin, uint64_t bytes);

/* False: somebody else has made it shorter than that. */
bool vpmm_trace_file_has(struct vpmm_trace_file *file, uint64_t bytes);

/* Shows so many bytes of the file from `begin` on at `address`, in place of what is there; all are
 * multiples of a page. False: `errno` tells. */
bool vpmm_trace_file_map(struct vpmm_trace_file *file, void *address, uint64_t begin,
                         uint64_t bytes);

/* What an error number means here; static. */
const char *vpmm_trace_file_fault(int number);

/* Ends the file at `bytes`, as far as it is still there. */
void vpmm_trace_file_cut(struct vpmm_trace_file *file, uint64_t bytes);

/* Takes its name away, as far as it still has it, and closes it. */
void vpmm_trace_file_remove(struct vpmm_trace_file *file);

/* Closes the descriptor, unless it means something else by now. */
void vpmm_trace_file_close(struct vpmm_trace_file *file);

#endif
