/* SPDX-License-Identifier: MIT */
/* A correct CUDA program of many threads, as pieces: two devices, blocks of every kind and
 * spelling, kernels that write and check patterns, captures, contexts that come and go. It calls
 * the driver's exported names, so whichever library stands first answers. Whatever a correct
 * program would not see ends the process with a line that names the call. */
#ifndef VPMM_TEST_STRESS_PROGRAM_H
#define VPMM_TEST_STRESS_PROGRAM_H

#include "shelf.h"
#include "sim/libcuda/control.h"

#include <stdatomic.h>

#define DEVICES 2
#define SHARED_STREAMS 4
#define RECENT_MAX 64

/* The spellings that cuda.h hides behind macros. */
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context_out, unsigned flags, CUdevice device);
CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr *address_out, size_t bytes, CUstream stream);
CUresult CUDAAPI cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address_out, size_t bytes,
                                              CUmemoryPool pool, CUstream stream);
CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream);
CUresult CUDAAPI cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode);
CUresult CUDAAPI cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph_out);

struct place {
    CUcontext context; /* the device's primary one */
    CUmemoryPool default_pool, own_pool;
    CUmemoryPool shared_pool;        /* that other processes may have, too: the driver serves it */
    CUstream shared[SHARED_STREAMS]; /* the first is a blocking one */
};

struct program {
    unsigned seed;
    int rounds; /* of each worker */
    struct place places[DEVICES];
    struct shelf shelf;
    _Atomic(CUdeviceptr) recent[RECENT_MAX]; /* blocks of others, perhaps freed by now */
    atomic_ullong n_calls, n_served, n_refused, n_checked, n_values;
    atomic_ullong n_captures, n_broken_captures, n_contexts;
    atomic_bool is_over;
};
extern struct program program;

/* What one thread has for itself. */
struct actor {
    uint32_t dice;
    int device; /* whose context is current */
    CUstream own[DEVICES];
    unsigned long long n_calls;
};

/* Ends the process with a line that names `what`, the code and the seed of the thread's dice. */
__attribute__((noreturn)) void give_up(const struct actor *actor, const char *what, long long code,
                                       const char *file, int line);
/* A driver call that counts, and one that must also succeed. */
#define TRY(actor, call) ((actor)->n_calls++, (call))
#define EXPECT(actor, call, code)                                                                  \
    do {                                                                                           \
        CUresult result_ = TRY(actor, call);                                                       \
        if (result_ != (code))                                                                     \
            give_up(actor, #call, (long long)result_, __FILE__, __LINE__);                         \
    } while (0)
#define MUST(actor, call) EXPECT(actor, call, CUDA_SUCCESS)
#define HOLDS(actor, what)                                                                         \
    do {                                                                                           \
        if (!(what))                                                                               \
            give_up(actor, #what, 0, __FILE__, __LINE__);                                          \
    } while (0)

/* cuInit and both devices' contexts, which reach each other; device 0 is current. Misuse other than
 * the end of a capture stops the process. */
void program_start(struct actor *actor);
/* All threads have ended: frees everything and checks that nothing is left. */
void program_finish(struct actor *actor);

/* A thread begins and ends: its own streams, its calls. */
void actor_begin(struct actor *actor, uint32_t dice);
void actor_end(struct actor *actor);
void actor_go_to(struct actor *actor, int device);
/* A stream of the current device: own, shared, legacy, or the thread's own default stream. */
CUstream any_stream(struct actor *actor);

/* ---- blocks (block.c) ---- */

/* A block of `bytes` for `stream` (NULL: by cuMemAlloc) through any spelling that means it; false
 * where the device is full. Nothing has used it yet. */
bool block_make(struct actor *actor, uint64_t bytes, CUstream stream, struct block *block_out);
/* Checks on `stream` what the last use left, and writes something new. */
void block_use(struct actor *actor, struct block *block, CUstream stream);
/* Asserts what the driver answers about a block that this thread alone knows. */
void block_ask(struct actor *actor, const struct block *block);
/* `stream` NULL: by cuMemFree. */
void block_free(struct actor *actor, struct block *block, CUstream stream);
/* Asks about a block of somebody else that may be freed at any moment. */
void ask_about_others(struct actor *actor);

/* ---- what else goes on (scenes.c) ---- */

/* One capture from begin to end, with a graph that writes to a block; or one that this thread
 * ends by a call that is not allowed. */
void capture_once(struct actor *actor);
/* A context with memory of both kinds that is destroyed with all of it. */
void context_once(struct actor *actor);

#endif
