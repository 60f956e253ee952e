/* SPDX-License-Identifier: MIT */
/* A program being executed, in a process of its own: the reference goes along step by step and says
 * what every block must hold; each step is made by its own thread while the others stand still. */
#ifndef VPMM_TEST_MODEL_EXECUTE_H
#define VPMM_TEST_MODEL_EXECUTE_H

#include "api.h"
#include "reference.h"

#include <pthread.h>
#include <semaphore.h>

#define ANSWERS_MAX (STEPS_MAX * 4)
#define NOT_MADE UINT16_MAX

/* What a run leaves behind, in memory that it shares with its parent. */
struct outcome {
    uint16_t answers[ANSWERS_MAX]; /* of each step and of those at the end; NOT_MADE: not valid */
    size_t n;                      /* of steps over, which is the number of the one under way */
    /* figures of a run under the library */
    uint64_t operations, mallocs, served, served_while_stuck, refused, moved, created, unmapped,
        host_waits, stream_waits, captures, launches;
};

/* A kernel's order. `number`: of the step that launched it. */
struct job {
    const struct api *api;
    unsigned number, block;
    CUdeviceptr address;
    uint64_t bytes;
    struct content expected, written;
    bool is_node; /* of a graph: any stamp of the block is expected, and the next one written */
    bool writes;
};

struct run;

struct worker {
    struct run *run;
    pthread_t thread;
    sem_t go;
    bool ends;
};

/* What a step found, of what it changes. */
struct scene {
    struct block block, from;
    struct set done;
    bool is_captured; /* its stream */
    unsigned landing, device;
};

struct run {
    const struct api *api;
    const struct program *program;
    const struct outcome *bare; /* NULL: this is the bare run */
    struct outcome *outcome;
    struct reference reference;
    size_t number; /* of the step under way */
    const struct step *step;
    struct scene before;
    CUresult answer;
    CUdeviceptr addresses[BLOCKS_MAX];
    CUcontext contexts[CONTEXTS_MAX];
    CUstream streams[STREAMS_MAX];
    CUevent events[EVENTS_MAX];
    CUgraphExec graphs[GRAPHS_MAX];
    CUdeviceptr extras[BLOCKS_MAX]; /* what bare CUDA would not have given; freed at the end */
    unsigned n_extras;
    uint32_t *flags;
    unsigned char *landings;
    struct content landed[LANDINGS_MAX];
    unsigned landed_blocks[LANDINGS_MAX];
    struct worker workers[THREADS_MAX];
    sem_t made;
};

/* Executes the program; returns when all of it was as it must be, and ends the process with a line
 * on stderr otherwise. */
void execute(const struct api *api, const struct program *program, const struct outcome *bare,
             struct outcome *outcome);

/* Makes the step under way, on the calling thread. act.c */
CUresult act(struct run *run);

/* Ends the process: `what` is the kind of failure. */
__attribute__((noreturn, format(printf, 3, 4))) void fail(size_t number, const char *what,
                                                          const char *format, ...);

/* ---- pattern.c ---- */

CUresult pattern_launch(struct run *run, CUstream stream, struct job job);
/* Fills and compares memory of the host. The first offset that differs, or UINT64_MAX. */
void pattern_write(unsigned char *bytes, uint64_t n, const struct content *content);
uint64_t pattern_differs(const unsigned char *bytes, const struct content *content);
/* Compares what the device holds at this moment. */
void pattern_peek(struct run *run, unsigned block);

/* ---- clock.c ---- */

/* From now on the process's clock only moves when it is read or slept on, and whoever sleeps lets
 * the device get on meanwhile. */
void clock_be_virtual(const struct api *api, uint64_t seed);

#endif
