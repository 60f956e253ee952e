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
    uint64_t seen[ANSWERS_MAX];    /* what else the program saw in that step */
    bool passed[ANSWERS_MAX];      /* an allocation that CUDA served */
    size_t n;                      /* of steps over, which is the number of the one under way */
    /* figures of a run under the library */
    uint64_t operations, mallocs, served, served_while_stuck, refused, moved, created, unmapped,
        host_waits, stream_waits, captures, launches;
};

struct run;

/* What a step found, of what it changes. */
struct scene {
    struct block block, from;
    struct set done;
    bool is_captured; /* its stream */
    bool is_over;     /* a query: all that it asks for was waited for before */
    bool is_new;      /* a context that it makes or retains was not there */
    unsigned landing, device;
};

/* A step that is being made. */
struct turn {
    struct run *run;
    const struct step *step;
    struct scene before;
    size_t number;
};

/* A thread of the program other than the first. One thread runs at a time: it hands over where it
 * rests, and that is where its step is made, or inside a call that waits for a later step. */
struct worker {
    struct turn turn;
    pthread_t thread;
    sem_t go, rests;
    bool ends;
    bool is_acting; /* its step is not made yet, */
    bool is_due;    /* and must be without another step */
    bool is_running;
    struct step step;
    CUresult answer;
};

struct run {
    const struct api *api;
    const struct program *program;
    const struct outcome *bare; /* NULL: this is the bare run */
    struct outcome *outcome;
    struct reference reference;
    size_t number;  /* of the step under way */
    uint64_t scale; /* bytes of the device for one of the program */
    CUdeviceptr addresses[BLOCKS_MAX];
    CUcontext contexts[CONTEXTS_MAX];
    CUstream streams[STREAMS_MAX];
    CUevent events[EVENTS_MAX];
    CUgraphExec graphs[GRAPHS_MAX];
    CUmemoryPool pools[POOLS_MAX];
    CUdeviceptr extras[BLOCKS_MAX]; /* what bare CUDA would not have given; freed at the end */
    unsigned n_extras;
    uint32_t *flags;
    void *landings; /* what has been copied to the host: the device's part alone knows */
    struct worker workers[THREADS_MAX];
};

/* Executes the program; returns when all of it was as it must be, and ends the process with a line
 * on stderr otherwise. `scale`: bytes of the device for one of the program. */
void execute(const struct api *api, const struct program *program, const struct outcome *bare,
             struct outcome *outcome, uint64_t scale);

/* ---- act.c ---- */

/* Makes the step, on the calling thread. */
CUresult act(struct turn *turn);
/* The same of a step upon a memory pool, and of a free that is refused (act_memory.c). */
CUresult act_on_pool(struct turn *turn);
CUresult free_wrongly(struct turn *turn);
/* Bytes of the device for the program's. */
uint64_t turn_scaled(const struct turn *turn, uint64_t bytes);
/* At the end, what bare CUDA would not have given. */
void free_extras(struct run *run);
/* The step's stream as the program names it, and as what has one spelling only names it. */
CUstream turn_stream(const struct turn *turn);
CUstream turn_stream_itself(const struct turn *turn);
/* The function in the step's spelling, and the one that has no two. */
#define ON(name) (turn->run->api->name[turn->step->spelling & 1])
#define OF(name) (turn->run->api->name)

/* What the step saw; ends the process if a bare run saw something else. */
void note_seen(struct turn *turn, uint64_t seen);

/* Ends the process: `what` is the kind of failure. */
__attribute__((noreturn, format(printf, 3, 4))) void fail(size_t number, const char *what,
                                                          const char *format, ...);

/* ---- the device's part: kernels.c for the simulated one, plain.c for any ---- */

/* Whether the primary context of device 0 is still retained from the program before. */
bool device_holds_primary(void);
/* A context has just come to life. */
void device_meet(struct run *run, CUcontext context);
/* Before the first step: the host memory that a program needs, and time. */
void device_start(struct run *run);
/* After the last one: all is freed and complete, nothing may be missing, and nothing be left. */
void device_end(struct run *run);
/* Steps that touch a block's bytes, and the bytes of a graph's own memory. */
CUresult device_use(struct turn *turn);
CUresult device_copy(struct turn *turn);
CUresult device_fill(struct turn *turn);
CUresult device_to_host(struct turn *turn);
CUresult device_from_host(struct turn *turn);
CUresult device_write_scratch(struct turn *turn, CUdeviceptr address);
/* The answer once nothing goes on any more but by a later step. */
CUresult device_ask_settled(struct turn *turn, CUresult (*ask)(struct turn *));
/* What has arrived in the host's memory by then, a bit a copy. */
uint64_t device_look(struct run *run);
void device_get_on(struct run *run, uint64_t n_operations);
/* What has been waited for must be there. */
void device_check_known(struct run *run);
/* The block is about to be freed by cudaFree. */
void device_check_freed(struct turn *turn);
/* How many allocations reached the driver; 0 where nobody counts. */
uint64_t device_mallocs(const struct run *run);

/* ---- turns.c ---- */

/* Calls wait in earnest: a call is away after so long. Otherwise one thread runs at a time. */
void turns_be_real(unsigned patience_ms);
void turns_start_thread(struct run *run, unsigned number);
void turns_end_thread(struct run *run, unsigned number);
/* Lets the step be made by its thread. False: it is inside a call that a later step lets return. */
bool turns_make(struct turn *turn, CUresult *answer_out);
/* Goes on with a call that must return now; `number` of the thread. */
CUresult turns_finish(struct run *run, unsigned number);
/* Where the calling thread can do nothing: lets others get on that are inside a call. False: it has
 * waited so often that it waits for ever. */
bool turns_rest(void);
/* Whether the calling thread waits for a later step, and its time stands still. */
bool turns_stand_still(void);

/* ---- clock.c ---- */

/* From now on the process's clock only moves when it is read or slept on, and whoever sleeps lets
 * the device get on meanwhile. */
void clock_be_virtual(const struct api *api, uint64_t seed);

#endif
