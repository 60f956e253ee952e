/* SPDX-License-Identifier: MIT */
/* How the commands open a trace: as trace/reader.h does, and a PyTorch snapshot by the importer,
 * which is written in Python and runs in a process of its own. */
#ifndef VPMM_CLI_TRACES_H
#define VPMM_CLI_TRACES_H

#include "trace/reader.h"

/* "-" is standard input. 0, or the exit status after one line that `command` says. */
int vpmm_cli_trace_open(const char *command, const char *path, enum vpmm_trace_form form,
                        struct vpmm_trace_reader **reader_out);

/* The next item of `reader`, and a bar that shows how far it is. */
struct vpmm_progress;
bool vpmm_cli_trace_next(struct vpmm_trace_reader *reader, struct vpmm_progress *progress,
                         struct vpmm_trace_item *item_out);

/* 0, or the exit status after one line that `command` says about damage. */
int vpmm_cli_trace_check(const char *command, const struct vpmm_trace_reader *reader);

#endif
