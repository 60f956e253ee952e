/* SPDX-License-Identifier: MIT */
/* The header of a trace file, mapped into this process. It does no input or output, and must not be
 * touched before the file has room for it. Private to this folder. */
#ifndef VPMM_RECORDER_HEADER_H
#define VPMM_RECORDER_HEADER_H

#include "recorder/format.h"

/* Of a trace that begins now; what it does not tell of is 0. */
void vpmm_trace_header_begin(struct vpmm_trace_header *header, uint64_t max_bytes,
                             const char *program);
/* Entries of weights follow. Any thread, any number of times. */
void vpmm_trace_header_raise(struct vpmm_trace_header *header);

#endif
