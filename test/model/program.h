/* SPDX-License-Identifier: MIT */
/* A program of the model test: a list of steps at the level of the CUDA driver API, each made by
 * one of its threads, and what it runs under. Steps name their objects by numbers that they choose,
 * so a step may be taken out and the others still mean the same. */
#ifndef VPMM_TEST_MODEL_PROGRAM_H
#define VPMM_TEST_MODEL_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define THREADS_MAX 8
#define CONTEXTS_MAX 8 /* 0 and 1 are the primary ones of devices 0 and 1 */
#define DEVICES 2
#define EVENTS_MAX 64
#define BLOCKS_MAX 512
#define FLAGS_MAX 128
#define GRAPHS_MAX 16
#define POOLS_MAX 8
#define STEPS_MAX 1024
#define PITCH_UNIT 512u
#define GRANULE ((uint64_t)64 << 10)

/* Streams by number: each context's legacy one, each thread's own one in each context, and those
 * that the program makes. */
#define STREAM_OWN 8u
#define STREAM_MADE 80u
#define STREAMS_MAX 128u

/* Kind, text, and the names of the operands a, b, c and n. A step on a stream has a spelling too:
 * bit 0 calls the _ptsz name, bit 1 names a default stream by its constant instead of NULL. */
#define STEP_LIST(X)                                                                               \
    X(MALLOC, "malloc", "block", NULL, NULL, "bytes")                                              \
    X(MALLOC_ASYNC, "malloc-async", "block", "stream", NULL, "bytes")                              \
    X(MALLOC_POOL, "malloc-pool", "block", "stream", "pool", "bytes")                              \
    X(MALLOC_PITCH, "malloc-pitch", "block", NULL, "height", "width")                              \
    X(FREE, "free", "block", NULL, NULL, NULL)                                                     \
    X(EXCHANGE, "exchange", "block", NULL, "for", "bytes")                                         \
    X(FREE_ASYNC, "free-async", "block", "stream", NULL, NULL)                                     \
    X(FREE_WRONG, "free-wrong", "block", "stream", NULL, "way")                                    \
    X(WRITE, "write", "block", "stream", NULL, NULL)                                               \
    X(CHECK, "check", "block", "stream", NULL, NULL)                                               \
    X(COPY, "copy", "to", "stream", "from", NULL)                                                  \
    X(COPY_NOW, "copy-now", "to", "stream", "from", NULL)                                          \
    X(FILL, "fill", "block", "stream", NULL, "byte")                                               \
    X(TO_HOST, "to-host", "block", "stream", NULL, NULL)                                           \
    X(FROM_HOST, "from-host", "block", "stream", NULL, NULL)                                       \
    X(RECORD, "record", "event", "stream", NULL, NULL)                                             \
    X(WAIT, "wait", "event", "stream", NULL, NULL)                                                 \
    X(WAIT_FLAG, "wait-flag", "flag", "stream", NULL, NULL)                                        \
    X(WRITE_FLAG, "write-flag", "flag", "stream", NULL, NULL)                                      \
    X(CALL_FLAG, "call-flag", "flag", "stream", NULL, NULL)                                        \
    X(HOST_FLAG, "host-flag", "flag", NULL, NULL, NULL)                                            \
    X(SYNC_STREAM, "sync-stream", NULL, "stream", NULL, NULL)                                      \
    X(SYNC_EVENT, "sync-event", "event", NULL, NULL, NULL)                                         \
    X(SYNC_CONTEXT, "sync-context", NULL, NULL, NULL, NULL)                                        \
    X(QUERY_STREAM, "query-stream", NULL, "stream", NULL, "settled")                               \
    X(QUERY_EVENT, "query-event", "event", NULL, NULL, "settled")                                  \
    X(LOOK, "look", NULL, NULL, NULL, NULL)                                                        \
    X(QUERY_BLOCK, "query-block", "block", NULL, NULL, NULL)                                       \
    X(CAPTURE_MODE, "capture-mode", NULL, NULL, NULL, "mode")                                      \
    X(CAPTURE_BEGIN, "capture-begin", NULL, "stream", NULL, "mode")                                \
    X(CAPTURE_END, "capture-end", "graph", "stream", NULL, NULL)                                   \
    X(SCRATCH, "scratch", NULL, "stream", NULL, "bytes")                                           \
    X(LAUNCH, "launch", "graph", "stream", NULL, NULL)                                             \
    X(GRAPH_DESTROY, "graph-destroy", "graph", NULL, NULL, NULL)                                   \
    X(STREAM_CREATE, "stream-create", NULL, "stream", NULL, "flags")                               \
    X(STREAM_DESTROY, "stream-destroy", NULL, "stream", NULL, NULL)                                \
    X(EVENT_CREATE, "event-create", "event", NULL, NULL, NULL)                                     \
    X(EVENT_DESTROY, "event-destroy", "event", NULL, NULL, NULL)                                   \
    X(CONTEXT_CREATE, "context-create", "context", "device", NULL, NULL)                           \
    X(CONTEXT_DESTROY, "context-destroy", "context", NULL, NULL, NULL)                             \
    X(CONTEXT_DETACH, "context-detach", "context", NULL, NULL, NULL)                               \
    X(CONTEXT_SET, "context-set", "context", NULL, NULL, NULL)                                     \
    X(PRIMARY_RETAIN, "primary-retain", "device", NULL, NULL, NULL)                                \
    X(PRIMARY_RELEASE, "primary-release", "device", NULL, NULL, NULL)                              \
    X(PRIMARY_RESET, "primary-reset", "device", NULL, NULL, NULL)                                  \
    X(PEER, "peer", "context", NULL, NULL, NULL)                                                   \
    X(THREAD_START, "thread-start", "number", NULL, NULL, NULL)                                    \
    X(THREAD_END, "thread-end", "number", NULL, NULL, NULL)                                        \
    X(POOL_CREATE, "pool-create", "pool", "device", NULL, "threshold")                             \
    X(POOL_DESTROY, "pool-destroy", "pool", NULL, NULL, NULL)                                      \
    X(POOL_TRIM, "pool-trim", "pool", NULL, NULL, "bytes")                                         \
    X(POOL_USE, "pool-use", "pool", "device", NULL, NULL)                                          \
    X(POOL_USED, "pool-used", "pool", "device", NULL, NULL)                                        \
    X(INFO, "info", NULL, NULL, NULL, NULL)                                                        \
    X(TRIM, "trim", NULL, NULL, NULL, NULL)                                                        \
    X(PROGRESS, "progress", NULL, NULL, NULL, "operations")

#define STEP_ENUM(kind, text, a, b, c, n) STEP_##kind,
enum step_kind {
    STEP_LIST(STEP_ENUM) STEP_KINDS
};
#undef STEP_ENUM

/* Operand b is the stream wherever a step has one. */
struct step {
    enum step_kind kind;
    unsigned thread, spelling;
    unsigned a, b, c;
    uint64_t n;
};

/* What is wrong with a free: its address lies inside a live block, was freed before, or is an
 * ordinary block's and the stream captures; and whether it is asynchronous. */
enum wrong_free {
    WRONG_INSIDE,
    WRONG_INSIDE_ASYNC,
    WRONG_AGAIN,
    WRONG_AGAIN_ASYNC,
    WRONG_CAPTURED,
    WRONG_FREES
};

/* What a program runs under: the simulated machine and the library's options. */
struct setting {
    uint64_t seed;         /* of the simulated device's choices */
    uint64_t device_pages; /* the size of each device, in granules */
    uint64_t page_bytes, extent_pages /* 0: auto */, slack_bytes, eager_pages, root_bytes;
    bool free_waits;
    bool serves_small; /* requests of less than a page share pages of the library's */
    bool is_full;      /* requests may take all of the device, and be refused */
    bool is_plain;     /* no kernels: a graph writes the same each time */
    bool captures_nothing;
    bool is_old; /* the driver cannot record a context; no text says so */
};

struct program {
    struct setting setting;
    struct step steps[STEPS_MAX];
    size_t n;
};

const char *step_name(enum step_kind kind);
bool step_has_stream(enum step_kind kind);
/* Whether it makes block `a` of `n` bytes, or of `c` rows of `n` bytes. */
bool step_is_malloc(enum step_kind kind);
/* Whether it is on a stream and is then freed in that order. */
bool step_is_malloc_async(enum step_kind kind);
/* Bytes of the block that it makes. */
uint64_t step_bytes(const struct step *step);
void step_print(FILE *file, const struct step *step);
void program_print(FILE *file, const struct program *program);
/* False, with a message on stderr, where the text is no program. */
bool program_read(FILE *file, struct program *program_out);

/* ---- chance ---- */

struct chance {
    uint64_t state;
};
void chance_start(struct chance *chance, uint64_t seed);
uint64_t chance_below(struct chance *chance, uint64_t n);

/* ---- generate.c ---- */

struct taste {
    uint64_t steps_max;
    int extents;   /* VPMM_EXTENT of every program, -1: each draws its own */
    bool detaches; /* the driver has cuCtxDetach */
    bool is_old;   /* the driver cannot record a context, so small requests pass through */
    bool is_small; /* of every program: small requests are served; else of three in four */
    const struct setting
        *setting; /* of every program, on a real device; NULL: each draws its own */
};

/* Draws the program number `seed`, which is correct. */
void program_generate(struct program *program_out, uint64_t seed, const struct taste *taste);

#endif
