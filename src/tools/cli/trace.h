/* SPDX-License-Identifier: MIT */
/* What the subcommands of `vpmm trace` share. Each returns the exit status. */
#ifndef VPMM_CLI_TRACE_H
#define VPMM_CLI_TRACE_H

#include "trace/reader.h"

/* `argv[0]` is "summary". */
int vpmm_cli_trace_summary(int argc, char **argv);

/* The value of --from, and of --device. 0, or the exit status after one line. */
int vpmm_cli_trace_from(const char *text, enum vpmm_trace_form *form_out);
int vpmm_cli_trace_device(const char *text, int *device_out);

#endif
