/* SPDX-License-Identifier: MIT */
/* The layout of a trace file, which docs/TRACE.md tells too. Everything is little-endian, naturally
 * aligned and never moves: the recorder maps the file and writes in place, so that what was
 * recorded is in it whatever becomes of the process.
 *
 *     file   = header, then chunks one after the other
 *     chunk  = chunk header, then as many entries as it says; written by one thread at a time
 *
 * Entries are put in order by the moment at which they took effect: ns, but of a request ns +
 * duration_ns. Then no block is given out again before it was freed, whatever the threads. Those of
 * one thread stand in that order, chunk after chunk, but what happened inside of a free may stand
 * before it.
 */
#ifndef VPMM_TRACE_FORMAT_H
#define VPMM_TRACE_FORMAT_H

#include <stdint.h>

#define VPMM_TRACE_MAGIC "VPMMTRC\n"
/* Version 1 had no shared chunks, and no entries of kind THREAD; version 2 none of weights. A trace
 * becomes one of version 3 when its first entry of weights is written. */
#define VPMM_TRACE_VERSION 3u
#define VPMM_TRACE_VERSION_PLAIN 2u
#define VPMM_TRACE_VERSION_LEAST 1u
#define VPMM_TRACE_HEADER_BYTES 4096u
/* Room for 408 entries. What a thread that ended left of its last one, another thread may go on
 * with. */
#define VPMM_TRACE_CHUNK_BYTES 16384u
#define VPMM_TRACE_CHUNK_MAGIC 0x4b4e4843u /* "CHNK" */

struct vpmm_trace_header {
    char magic[8];
    uint32_t version, header_bytes, chunk_bytes, entry_bytes;
    uint64_t pid;
    uint64_t start_unix_ns; /* the moment from which entries count */
    uint64_t max_bytes;     /* VPMM_TRACE_MAX; 0: none */
    uint64_t n_chunks;      /* given to threads so far; one without its magic is empty */
    uint64_t dropped;       /* entries that found no room */
    uint32_t is_ended;      /* the process came to its end; 0: it runs, or was killed */
    uint32_t reserved;
    char program[64];      /* its short name; terminated */
    char vpmm_version[32]; /* terminated */
};

struct vpmm_trace_chunk {
    uint32_t magic;
    uint32_t n_entries; /* whole ones; grows as they are written */
    uint64_t thread;    /* its id in the system; of entries before the first of kind THREAD */
    uint32_t is_shared; /* there may be entries of kind THREAD */
    uint32_t reserved_word;
    uint64_t reserved[5];
};

enum vpmm_trace_kind {
    VPMM_TRACE_NOTHING, /* not an entry */
    VPMM_TRACE_MALLOC,  /* a request was answered */
    VPMM_TRACE_FREE,
    VPMM_TRACE_GROW,   /* `bytes` of new memory were mapped at `address` */
    VPMM_TRACE_STITCH, /* `bytes` were moved to `address`; where they were is a zombie now */
    VPMM_TRACE_UNMAP,  /* `bytes` at `address` are mapped no more: a zombie, or memory given back */
    VPMM_TRACE_RELEASE,      /* `bytes` went back to the device; an unmap tells where */
    VPMM_TRACE_HOST_WAIT,    /* a thread waited for work of the device */
    VPMM_TRACE_STREAM_WAIT,  /* `stream` was made to wait for work of another */
    VPMM_TRACE_FIGURES,      /* of `device`: `address` holds the bytes held, `bytes` those live, and
                                `stream` those pending; at most one a millisecond */
    VPMM_TRACE_THREAD,       /* what follows in the chunk is of thread `address` */
    VPMM_TRACE_WEIGHTS_LOAD, /* copies of `bytes` of weights to `address` were queued */
    VPMM_TRACE_WEIGHTS_EVICT, /* the `bytes` of weights at `address` are there no more */
    VPMM_TRACE_WEIGHTS_PASS,  /* pass `address` of weights ended; `bytes` were queued in it */
    VPMM_TRACE_KINDS
};

/* How a request was served; of a free POOL or CUDA. */
enum vpmm_trace_path {
    VPMM_TRACE_BY_NOBODY,
    VPMM_TRACE_BY_CACHE,  /* the stream's front cache */
    VPMM_TRACE_BY_HABIT,  /* where it was served a round before */
    VPMM_TRACE_BY_FIT,    /* as it lay free */
    VPMM_TRACE_BY_REVIVE, /* at an old address */
    VPMM_TRACE_BY_STITCH, /* by moving extents */
    VPMM_TRACE_BY_GROW,   /* by new memory only */
    VPMM_TRACE_BY_POOL,   /* by the pool, it is not known how */
    /* By nobody or CUDA's own function; of a request 32 + n, n being the reason below. */
    VPMM_TRACE_BY_CUDA = 32,
};

/* Why a request was not served by the pool: number, name. */
#define VPMM_TRACE_REASONS(X)                                                                      \
    X(1, SMALL, "smaller than the threshold")                                                      \
    X(2, LARGE, "larger than the device")                                                          \
    X(3, CAPTURING, "the stream is capturing")                                                     \
    X(4, NO_CONTEXT, "no current context")                                                         \
    X(5, NO_VMM, "the driver or the device cannot do it")                                          \
    X(6, EXPLICIT_POOL, "another memory pool was named")                                           \
    X(7, OTHER_POOL, "the device's current memory pool was changed")                               \
    X(8, POOL_LIMIT, "the memory pool's limit")                                                    \
    X(9, NO_PEER, "two devices of the process cannot reach each other")                            \
    X(10, NO_IPC, "VPMM_IPC=0 leaves cudaMalloc to CUDA")                                          \
    X(11, DISABLED, "disabled")                                                                    \
    X(12, LIMITED, "more than VPMM_LIMIT allows")                                                  \
    X(13, FULL, "out of memory")                                                                   \
    X(14, OTHER, "for another reason")

enum vpmm_trace_flag {
    VPMM_TRACE_IS_ASYNC = 1,  /* the stream-ordered form */
    VPMM_TRACE_IS_FAILED = 2, /* the program got an error; of a request `address` is 0 */
};

/* Of a request that climbed the ladder, the rung that served it stands in the flags' higher bits.
 */
#define VPMM_TRACE_RUNG_SHIFT 3
enum vpmm_trace_rung {
    VPMM_TRACE_AT_NONE,
    VPMM_TRACE_AT_HABIT,
    VPMM_TRACE_AT_SPARE,
    VPMM_TRACE_AT_FOLLOW,
    VPMM_TRACE_AT_SETTLE,
    VPMM_TRACE_AT_GATHER,
    VPMM_TRACE_AT_ASK,
    VPMM_TRACE_AT_EARLY_WAIT,
    VPMM_TRACE_AT_SLACK,
    VPMM_TRACE_AT_FREE_WAIT,
    VPMM_TRACE_AT_CREATE,
    VPMM_TRACE_AT_REAP,
    VPMM_TRACE_AT_HOST_WAIT,
    VPMM_TRACE_AT_DEVICE_WAIT,
    VPMM_TRACE_AT_POLL,
    VPMM_TRACE_AT_NEIGHBOUR,
    VPMM_TRACE_AT_SPOT,
};

#define VPMM_TRACE_DEVICE_UNKNOWN 255u

struct vpmm_trace_entry {
    uint64_t ns;          /* of the beginning, since start_unix_ns */
    uint32_t duration_ns; /* UINT32_MAX: that or more; ns of a malloc is then so much
                             before its end */
    uint8_t kind, path, device, flags;
    uint64_t address;
    uint64_t bytes; /* as asked for; of a free, 0 where the size is not known */
    uint64_t
        stream; /* its number, which no other one of the process ever has; 0: none, or not known */
};

#endif
