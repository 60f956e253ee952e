/* SPDX-License-Identifier: MIT */
/* Fills in the header of a trace. Must not write the magic before all the rest is there. */
#define _GNU_SOURCE
#include "recorder/header.h"

#include "base/atomic.h"
#include "vpmm/vpmm.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t unix_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void copy_name(char *name_out, size_t room, const char *name)
{
    size_t n = strnlen(name, room - 1);
    memcpy(name_out, name, n);
    name_out[n] = 0;
}

void vpmm_trace_header_begin(struct vpmm_trace_header *header, uint64_t max_bytes,
                             const char *program)
{
    *header = (struct vpmm_trace_header){
        .version = VPMM_TRACE_VERSION_PLAIN,
        .header_bytes = VPMM_TRACE_HEADER_BYTES,
        .chunk_bytes = VPMM_TRACE_CHUNK_BYTES,
        .entry_bytes = sizeof(struct vpmm_trace_entry),
        .pid = (uint64_t)getpid(),
        .start_unix_ns = unix_ns(),
        .max_bytes = max_bytes,
    };
    copy_name(header->program, sizeof header->program, program);
    copy_name(header->vpmm_version, sizeof header->vpmm_version, VPMM_VERSION);
    memcpy(header->magic, VPMM_TRACE_MAGIC, sizeof header->magic);
}

void vpmm_trace_header_raise(struct vpmm_trace_header *header)
{
    vpmm_atomic_store((vpmm_atomic32 *)&header->version, VPMM_TRACE_VERSION);
}
