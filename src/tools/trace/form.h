/* SPDX-License-Identifier: MIT */
/* How a file tells by its first bytes which form it has. Private to this folder. */
#ifndef VPMM_TRACE_FORM_H
#define VPMM_TRACE_FORM_H

#include "trace/reader.h"

#include <stdbool.h>
#include <stddef.h>

/* Of the first bytes, decompressed, and a terminator. */
#define VPMM_TRACE_HEAD_ROOM 64

/* UNKNOWN: none that is read. */
enum vpmm_trace_form vpmm_trace_form_found(const char *head, size_t n);
/* False: whoever reads it as `form` (UNKNOWN: as what it tells itself) refuses it by these bytes,
 * whatever follows them. */
bool vpmm_trace_form_may_be(enum vpmm_trace_form form, const char *head, size_t n);

#endif
