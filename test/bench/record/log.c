/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "log.h"

#include "preload/original.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TIMED_MOST 60000
#define PATH_BYTES 4096

struct line {
    char mark; /* 0: dropped */
    char kind;
    CUstream stream;
    uint64_t object; /* address, or event */
    uint64_t bytes, us;
    CUevent start, end; /* of timed work */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct line *lines;
static size_t n_lines, room, n_timed;
static struct timespec begun;
static CUcontext context;
static pid_t recorded_process; /* 0: nothing was recorded yet */

static uint64_t elapsed_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)((now.tv_sec - begun.tv_sec) * 1000000 + (now.tv_nsec - begun.tv_nsec) / 1000);
}

static uint64_t duration_us(const struct line *line)
{
    float ms;
    if (!line->start || VPMM_ORIGINAL(cuEventSynchronize, line->end) != CUDA_SUCCESS ||
        VPMM_ORIGINAL(cuEventElapsedTime, &ms, line->start, line->end) != CUDA_SUCCESS || ms < 0)
        return 0;
    return (uint64_t)(ms * 1000);
}

static void write_line(FILE *file, const struct line *line)
{
    unsigned long long object = line->object, stream = (uintptr_t)line->stream, us = line->us;
    switch (line->mark) {
    case 'A':
        fprintf(file, "A,%llx,%llu,%llx,%llu,%c\n", object, (unsigned long long)line->bytes, stream,
                us, line->kind);
        break;
    case 'F':
        fprintf(file, "F,%llx,,%llx,%llu,%c\n", object, stream, us, line->kind);
        break;
    case 'K':
        fprintf(file, "K,%llx,%llu,%llu\n", stream, us, (unsigned long long)duration_us(line));
        break;
    case 'E':
    case 'W':
        fprintf(file, "%c,%llx,%llx,%llu\n", line->mark, object, stream, us);
        break;
    default:
        break;
    }
}

/* The named file, its "%p" replaced; false when there is none to write. */
static bool file_name(char *name, size_t bytes)
{
    const char *pattern = getenv("RECORD");
    const char *mark = pattern ? strstr(pattern, "%p") : NULL;
    if (!pattern || !*pattern)
        return false;
    int n = mark ? snprintf(name, bytes, "%.*s%d%s", (int)(mark - pattern), pattern, (int)getpid(),
                            mark + 2)
                 : snprintf(name, bytes, "%s", pattern);
    return n > 0 && (size_t)n < bytes;
}

static void write_all(void)
{
    char name[PATH_BYTES];
    if (getpid() != recorded_process || !file_name(name, sizeof name))
        return;
    VPMM_ORIGINAL(cuCtxSetCurrent, context);
    FILE *file = fopen(name, "w");
    pthread_mutex_lock(&lock);
    for (size_t i = 0; file && i < n_lines; i++)
        write_line(file, &lines[i]);
    pthread_mutex_unlock(&lock);
    if (!file || fclose(file) != 0)
        fprintf(stderr, "record: %s cannot be written\n", name);
}

/* A program that gives up its context before it ends would take the events of timed work with it.
 */
static void keep_context(void)
{
    CUdevice device;
    CUcontext primary;
    VPMM_ORIGINAL(cuCtxGetCurrent, &context);
    if (VPMM_ORIGINAL(cuCtxGetDevice, &device) == CUDA_SUCCESS)
        VPMM_ORIGINAL(cuDevicePrimaryCtxRetain, &primary, device);
}

static bool begin(void)
{
    char name[PATH_BYTES];
    if (recorded_process == 0 && file_name(name, sizeof name)) {
        recorded_process = getpid();
        clock_gettime(CLOCK_MONOTONIC, &begun);
        keep_context();
        atexit(write_all);
    }
    return recorded_process == getpid();
}

static bool make_room(void)
{
    if (n_lines < room)
        return true;
    size_t wanted = room ? 2 * room : 65536;
    struct line *grown = realloc(lines, wanted * sizeof *lines);
    if (!grown)
        return false;
    lines = grown;
    room = wanted;
    return true;
}

static size_t add(struct line line)
{
    size_t number = LOG_NONE;
    pthread_mutex_lock(&lock);
    if (begin() && make_room()) {
        number = n_lines++;
        line.us = elapsed_us();
        lines[number] = line;
    }
    pthread_mutex_unlock(&lock);
    return number;
}

void log_malloc(CUdeviceptr address, size_t bytes, CUstream stream, char kind)
{
    add((struct line){
        .mark = 'A', .kind = kind, .object = address, .bytes = bytes, .stream = stream});
}

size_t log_free(CUdeviceptr address, CUstream stream, char kind)
{
    return add((struct line){.mark = 'F', .kind = kind, .object = address, .stream = stream});
}

void log_record(CUevent event, CUstream stream)
{
    add((struct line){.mark = 'E', .object = (uintptr_t)event, .stream = stream});
}

void log_wait(CUstream stream, CUevent event)
{
    add((struct line){.mark = 'W', .object = (uintptr_t)event, .stream = stream});
}

void log_drop(size_t line)
{
    pthread_mutex_lock(&lock);
    if (line != LOG_NONE)
        lines[line].mark = 0;
    pthread_mutex_unlock(&lock);
}

bool log_is_capturing(CUstream stream)
{
    CUstreamCaptureStatus status;
    return VPMM_ORIGINAL(cuStreamIsCapturing, stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* An event recorded there now, or NULL. */
static CUevent record_on(CUstream stream)
{
    CUevent event;
    if (VPMM_ORIGINAL(cuEventCreate, &event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        return NULL;
    if (VPMM_ORIGINAL(cuEventRecord, event, stream) == CUDA_SUCCESS)
        return event;
    VPMM_ORIGINAL(cuEventDestroy_v2, event);
    return NULL;
}

static bool may_time(void)
{
    pthread_mutex_lock(&lock);
    bool may = begin() && n_timed < TIMED_MOST;
    n_timed += may;
    pthread_mutex_unlock(&lock);
    return may;
}

struct log_work log_work_begin(CUstream stream)
{
    struct log_work work = {.stream = stream, .is_told = !log_is_capturing(stream)};
    if (work.is_told && may_time())
        work.start = record_on(stream);
    return work;
}

void log_work_end(struct log_work work, CUresult result)
{
    if (!work.is_told || result != CUDA_SUCCESS)
        return;
    CUevent end = work.start ? record_on(work.stream) : NULL;
    add((struct line){
        .mark = 'K', .stream = work.stream, .start = end ? work.start : NULL, .end = end});
}
