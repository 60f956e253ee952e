/* SPDX-License-Identifier: MIT */
/* Reads a trace for a program in C++. */
#ifndef VPMM_TEST_BENCH_LOAD_H
#define VPMM_TEST_BENCH_LOAD_H

#include "replay/tape.h"

#define LOAD_MESSAGE_BYTES 256

/* The requests of `least_bytes` and more of the trace at `path`. False after a message, which has
 * LOAD_MESSAGE_BYTES. */
bool load_tape(const char *path, uint64_t least_bytes, struct vpmm_tape *tape_out,
               char *message_out);

#endif
