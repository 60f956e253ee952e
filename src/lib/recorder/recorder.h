/* SPDX-License-Identifier: MIT */
/* Writes the trace of this process (format.h) into a mapped file: what was recorded is in it even
 * if the process is killed. No malloc, no stdio, no message; a full disk, a limit on the size of
 * files or VPMM_TRACE_MAX ends the recording, and what finds no room is counted. Any thread may
 * record, with locks held or not; a signal handler that interrupts a thread that does may not. */
#ifndef VPMM_TRACE_RECORDER_H
#define VPMM_TRACE_RECORDER_H

#include "base/atomic.h"
#include "base/status.h"
#include "recorder/format.h"

#include <stdbool.h>

/* One regular file, known by its number: the program may close or reuse any descriptor. */
struct vpmm_trace_file {
    const char *path;
    uint64_t device, number; /* which file it is */
    int fd;                  /* keeps it locked; -1: none */
};

/* A look at a counter of the processor and at the clock, and how long it took. */
struct vpmm_trace_moment {
    uint64_t ticks, ns, gap_ticks;
};

struct vpmm_trace_clock {
    bool has_ticks;
    vpmm_atomic32 state;
    struct vpmm_trace_moment first, base; /* when time was 0; when the rate became known */
    uint64_t rate;                        /* nanoseconds in 2 to the 32 ticks */
};

/* Of more threads than this at one time, some leave the rest of a chunk unused. */
#define VPMM_TRACE_PLACES 1024u

struct vpmm_trace_places {
    vpmm_atomic64 words[VPMM_TRACE_PLACES]; /* a thread and the chunk that it wrote last, or 0 */
    vpmm_atomic32 n, hand;                  /* words in use; where the next look begins */
};

/* All zero before it is opened; stays where it is. */
struct vpmm_recorder {
    struct vpmm_trace_file file;      /* of whoever makes room */
    struct vpmm_trace_header *header; /* the file, with addresses for what may become of it */
    uint64_t mapped_bytes;
    struct vpmm_trace_clock clock;
    uint64_t chunks_max;             /* that fit into the mapping and VPMM_TRACE_MAX */
    _Alignas(64) vpmm_atomic64 next; /* chunk to be given out */
    vpmm_atomic64 n_ready;           /* chunks that the file has room for */
    vpmm_atomic32 is_full;           /* that is all of them */
    vpmm_atomic32 is_making_room;    /* a thread is */
    vpmm_atomic32 is_cut;            /* somebody else made the file shorter */
    struct vpmm_trace_places places;
};

/* What a thread writes into, one for each; all zero at first and in a forked child. */
struct vpmm_recorder_writer {
    struct vpmm_trace_chunk *chunk; /* NULL: none yet */
    uint32_t n;                     /* entries in it */
    uint32_t thread;                /* 0: not asked for yet */
    uint32_t place;                 /* among those of the recorder; VPMM_TRACE_PLACES: none */
};

/* Begins a new trace at `path`, which outlives the recorder, in place of what was there. INVALID:
 * `*why_out`, a static text, says why that cannot be. `max_bytes` 0: no limit. */
VPMM_MUST_CHECK enum vpmm_status vpmm_recorder_open(struct vpmm_recorder *recorder,
                                                    const char *path, uint64_t max_bytes,
                                                    const char *program, const char **why_out);

/* Time since the trace began. */
uint64_t vpmm_recorder_now_ns(const struct vpmm_recorder *recorder);

/* Adds `entry`, or counts it as dropped. */
void vpmm_recorder_write(struct vpmm_recorder *recorder, struct vpmm_recorder_writer *writer,
                         const struct vpmm_trace_entry *entry);

/* The process ends: cuts the file to what was used. Others may still be recording; what finds no
 * room any more is counted. */
void vpmm_recorder_end(struct vpmm_recorder *recorder);

/* Entries that found no room so far. */
uint64_t vpmm_recorder_dropped(const struct vpmm_recorder *recorder);

/* In the handler of SIGBUS: whether the store at `address` went into a part of the file that
 * somebody else has cut off or that the disk has no room for. Then there is other memory there now,
 * what is written to it is lost, and recording ends: the file is not touched again. */
bool vpmm_recorder_absorb(struct vpmm_recorder *recorder, const void *address);
/* Whether that has happened. */
bool vpmm_recorder_is_cut(const struct vpmm_recorder *recorder);

/* In a forked child: the file is the parent's. Nothing may be recorded here any more. */
void vpmm_recorder_forget(struct vpmm_recorder *recorder);

#endif
