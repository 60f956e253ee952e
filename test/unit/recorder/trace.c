/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* A thread that was kept waiting for room so many naps drops what it has: here it naps so long that
 * no machine is too slow. */
#define NAP_FACTOR 60

/* In place of the system's. */
int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    struct timespec pause = *wanted;
    pause.tv_nsec *= NAP_FACTOR;
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, left);
    return errno ? -1 : 0;
}

static char root[] = "/tmp/vpmm-recorder-XXXXXX";

int trace_begin(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *found, int kind, struct FTW *place)
{
    (void)found;
    (void)kind;
    (void)place;
    return remove(path);
}

int trace_end(void **state)
{
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *trace_path(const char *name)
{
    static char path[128];
    char folder[64];
    (void)snprintf(folder, sizeof folder, "%s/XXXXXX", root);
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

void trace_open(struct vpmm_recorder *recorder, const char *path, uint64_t max_bytes)
{
    const char *why = NULL;
    memset(recorder, 0, sizeof *recorder);
    if (vpmm_recorder_open(recorder, path, max_bytes, "test", &why))
        fail_msg("%s: %s", path, why);
}

void trace_write(struct vpmm_recorder *recorder, struct vpmm_recorder_writer *own, unsigned writer,
                 uint64_t number)
{
    const struct vpmm_trace_entry entry = {
        .ns = vpmm_recorder_now_ns(recorder),
        .kind = VPMM_TRACE_MALLOC,
        .device = (uint8_t)writer,
        .address = number,
        .bytes = ~number,
        .stream = number * 3,
    };
    vpmm_recorder_write(recorder, own, &entry);
}

static void look_at(struct trace *trace, const struct vpmm_trace_entry *entry)
{
    assert_int_equal(entry->kind, VPMM_TRACE_MALLOC);
    assert_in_range(entry->device, 0, WRITERS_MAX - 1);
    assert_int_equal(entry->bytes, ~entry->address);
    assert_int_equal(entry->stream, entry->address * 3);
    trace->is_whole[entry->device] &= entry->address == trace->n_of[entry->device];
    trace->n_of[entry->device]++;
    trace->n_entries++;
}

static void look_at_chunk(struct trace *trace, uint64_t number)
{
    size_t at = VPMM_TRACE_HEADER_BYTES + (size_t)number * VPMM_TRACE_CHUNK_BYTES;
    assert_true(at + VPMM_TRACE_CHUNK_BYTES <= trace->n_bytes);
    const struct vpmm_trace_chunk *chunk = (const void *)(trace->bytes + at);
    const struct vpmm_trace_entry *entries = (const void *)(chunk + 1);
    if (chunk->magic != VPMM_TRACE_CHUNK_MAGIC) {
        assert_int_equal(chunk->magic, 0);
        assert_int_equal(chunk->n_entries, 0);
        return;
    }
    assert_in_range(chunk->n_entries, 0, 408);
    assert_true(chunk->thread > 0);
    for (uint32_t i = 0; i < chunk->n_entries; i++) {
        if (entries[i].kind != VPMM_TRACE_THREAD)
            look_at(trace, &entries[i]);
        else
            assert_true(chunk->is_shared && entries[i].address > 0);
    }
}

void trace_read(struct trace *trace, const char *path)
{
    struct stat found;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &found), 0);
    memset(trace, 0, sizeof *trace);
    memset(trace->is_whole, true, sizeof trace->is_whole);
    trace->n_bytes = (size_t)found.st_size;
    trace->bytes = malloc(trace->n_bytes);
    assert_non_null(trace->bytes);
    assert_int_equal(read(fd, trace->bytes, trace->n_bytes), found.st_size);
    (void)close(fd);
    assert_in_range(trace->n_bytes, VPMM_TRACE_HEADER_BYTES, SIZE_MAX);
    trace->header = (const void *)trace->bytes;
    assert_memory_equal(trace->header->magic, VPMM_TRACE_MAGIC, 8);
    for (uint64_t i = 0; i < trace->header->n_chunks; i++)
        look_at_chunk(trace, i);
}

void trace_forget(struct trace *trace)
{
    free(trace->bytes);
}
