/* SPDX-License-Identifier: MIT */
/* Bytes become a file of traces: text as it is, or this library's own form, sound or damaged. */
#ifndef VPMM_TEST_FUZZ_TRACE_INPUT_H
#define VPMM_TEST_FUZZ_TRACE_INPUT_H

#include "input.h"

#include "trace/reader.h"

/* A file that holds what the input says; the caller closes it. */
int trace_input_file(struct input *input, enum vpmm_trace_form *form_out);

#endif
