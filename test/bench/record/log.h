/* SPDX-License-Identifier: MIT */
/* What a recorded program did, kept in memory and written when it ends. All functions may be called
 * by any thread. Nothing is recorded without the environment variable RECORD, the path of the file
 * ("%p" is the process's number), nor in a child of fork. */
#ifndef VPMM_TEST_BENCH_RECORD_LOG_H
#define VPMM_TEST_BENCH_RECORD_LOG_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_NONE SIZE_MAX

/* Each call is one line, in the order of the calls; `kind` is s, a or p. */
void log_malloc(CUdeviceptr address, size_t bytes, CUstream stream, char kind);
/* To be called before the driver frees, so that the address is not given out earlier; the number of
 * the line, for log_drop() when the driver refused. */
size_t log_free(CUdeviceptr address, CUstream stream, char kind);
void log_record(CUevent event, CUstream stream);
void log_wait(CUstream stream, CUevent event);
void log_drop(size_t line);

/* Work on a stream that is not capturing: begun before it is queued and ended behind it. Its
 * duration on the device is asked when the program ends. */
struct log_work {
    CUstream stream;
    CUevent start; /* NULL where it cannot be timed */
    bool is_told;
};
struct log_work log_work_begin(CUstream stream);
void log_work_end(struct log_work work, CUresult result);

/* Whether what is queued there now is part of a graph. */
bool log_is_capturing(CUstream stream);

#endif
