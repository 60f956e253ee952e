/* SPDX-License-Identifier: MIT */
/* A heap on a simulated machine whose driver calls and metadata fail on cue, and a program that
 * uses it: the program's own calls never fail. What the heap refuses, bare CUDA would serve; here
 * that block is missing, and whatever is done with it is left out. Everything that must hold
 * whatever fails is asserted on the way. */
#ifndef VPMM_TEST_FAULT_RIG_H
#define VPMM_TEST_FAULT_RIG_H

#include "campaign.h"
#include "../unit/rules/blocks.h"

#define RIG_PAGE_BYTES ((uint64_t)8 << 10) /* as little content as it takes */
#define BLOCKS_MAX 32
#define NO_BLOCK (-1)

/* Calls whose failure leaves something that nobody can get rid of any more. */
enum stray {
    STRAY_HANDLE,
    STRAY_RESERVATION,
    STRAY_EVENT,
    STRAY_MODE, /* the thread's capture mode */
    STRAY_KINDS
};

struct rig {
    struct fixture f;
    const struct faults *faults;
    bool is_armed, is_inside, is_tight;
    bool does_wait;               /* cudaFree waits, and tells what the wait said */
    uint64_t uses[2], strikes[2]; /* of both aims */
    uint64_t strays[STRAY_KINDS];
    bool has_more_failed; /* than releases of handles */
    size_t stored_bytes;  /* of metadata, in this run's store */
    CUstream a, b, blocking;
    CUstream home; /* of the context that is current: who uses cudaMalloc's blocks first */
    struct {
        struct block block;
        CUstream last;                    /* the stream that used it last */
        CUcontext context;                /* that was current at its birth */
        bool is_live, is_async, is_blank; /* nobody has used it */
    } blocks[BLOCKS_MAX];
    int n_blocks;
    uint64_t given_up[BLOCKS_MAX];
    int n_given_up;
    struct vpmm_context *capturing; /* the ticket of the capture under way */
};

struct scene {
    const char *name;
    void (*params)(struct fixture_params *params); /* NULL: as they are */
    void (*act)(struct rig *rig);
    bool is_tight; /* pages that a fault keeps out of use may be missed */
};
/* Ended by one without a name. */
extern const struct scene scenes[];

/* A machine, a heap and three streams, nothing armed. */
void rig_setup(struct rig *rig, const struct scene *scene, const struct faults *faults);
/* The faults go away. Every block has its bytes; all of it is freed and given back; the heap serves
 * a round of requests as if nothing had happened; nothing is left over. */
void rig_finish(struct rig *rig);

/* In pages; `stream` NULL: cudaMalloc. Returns the block, written on `stream` (or at home), or
 * NO_BLOCK where a fault struck. */
int rig_malloc(struct rig *rig, uint64_t pages, CUstream stream);
/* The same, but nobody uses the block. */
int rig_malloc_blank(struct rig *rig, uint64_t pages, CUstream stream);
/* A request for more than can be had fails, whatever else does. */
void rig_refuse(struct rig *rig, uint64_t pages, CUstream stream);
/* Queues a check of its bytes, and frees it; `stream` NULL: cudaFree. */
void rig_free(struct rig *rig, int block, CUstream stream);
/* Queues new bytes on `stream`, after whatever used the block before. */
void rig_use(struct rig *rig, int block, CUstream stream);
void rig_reap(struct rig *rig);
void rig_trim(struct rig *rig, uint64_t bytes);
void rig_add_peer(struct rig *rig, int peer);
/* The capture must neither be refused nor broken, whatever fails. */
void rig_capture_begin(struct rig *rig, CUstream stream);
void rig_capture_end(struct rig *rig, CUstream stream);
/* The program waits for all its work. */
void rig_synchronize(struct rig *rig);

/* From here to `leave` driver calls are the library's. */
void rig_enter(struct rig *rig);
void rig_leave(struct rig *rig);
/* Strikes so far; and whether one came since there were `before`, or all fail from then on. */
uint64_t rig_strikes(const struct rig *rig);
bool rig_is_excused(const struct rig *rig, uint64_t before);

#endif
