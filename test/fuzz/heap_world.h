/* SPDX-License-Identifier: MIT */
/* A correct program of one thread on one heap: streams of two contexts of the heap's device and of
 * one of another device, and blocks whose every use is ordered after the one before by an event. So
 * whatever the strict device or a kernel that checks bytes reports is the heap's fault. */
#ifndef VPMM_TEST_FUZZ_HEAP_WORLD_H
#define VPMM_TEST_FUZZ_HEAP_WORLD_H

#include "../unit/rules/blocks.h"

#define WORLD_LANES 8
#define WORLD_BLOCKS 20
#define WORLD_GATES 64
#define WORLD_DEVICE_PAGES 48

enum world_context {
    WORLD_MAIN,
    WORLD_SECOND, /* comes and goes */
    WORLD_PEER,   /* on the other device */
    WORLD_CONTEXTS
};

struct world_lane {
    CUstream stream;
    enum world_context context;
};

struct world_block {
    struct block block;
    enum world_context context; /* that allocated it */
    bool is_async, is_written;
    CUevent event; /* behind its last use; NULL: that is over */
    enum world_context event_context;
    unsigned users; /* a mask of contexts */
};

struct world_fault;

struct world {
    struct fixture fixture;
    CUcontext contexts[WORLD_CONTEXTS];
    struct world_lane lanes[WORLD_LANES];
    CUstream capturing;
    bool is_capturing, has_peer;
    bool has_large_extents; /* of more than one page */
    /* Something was made to fail, a capture begun, or memory of cudaMallocAsync freed with
     * cudaFree, which nobody may wait for: until all is settled, a request that fits may be
     * refused. After a refused map, until the heap holds nothing: that memory moves no more. */
    bool was_disturbed, was_map_refused;
    /* What the next call of the heap runs into. */
    const struct world_fault *fault;
    uint64_t fault_nth, map_nth;
    bool fault_stays;
    struct world_block blocks[WORLD_BLOCKS];
    size_t n_blocks;
    volatile bool gates[WORLD_GATES];
    size_t n_gates, n_open_gates;
    uint64_t last_pattern;
};

void world_setup(struct world *world, uint64_t extent_pages_max, bool is_relaxed, uint64_t seed);
/* Opens all gates, checks and frees all blocks, and asserts that nothing is left over. */
void world_teardown(struct world *world);
/* Books and bytes are right so far. */
void world_check(struct world *world);

/* `lane` NULL: cudaMalloc in the context; it adds the block. */
enum vpmm_status world_malloc(struct world *world, uint64_t pages, const struct world_lane *lane,
                              enum world_context context);
/* A kernel that checks the block, and one that writes it; `is_gated`: the writing one spins until
 * world_open. Nothing where the lane's device does not reach the heap's. */
void world_use(struct world *world, struct world_block *block, const struct world_lane *lane,
               bool writes, bool is_gated);
/* What must be before its free: the freeing lane after the last use; or, for cudaFree (NULL), no
 * use that bare cudaFree would not wait for, and none that waits for this thread. */
void world_part(struct world *world, struct world_block *block, const struct world_lane *lane);
/* Frees, and forgets it. */
void world_free(struct world *world, size_t which, const struct world_lane *lane);
/* What the next of the calls above, and of the two below, runs into: the use number `nth` of the
 * driver call that `which` names, and all later ones if it `stays`; or of metadata. */
void world_expect_trouble(struct world *world, uint64_t which, uint64_t nth, bool stays);
void world_give_back(struct world *world, uint64_t bytes);
void world_add_peer(struct world *world);
/* Lets all spinning kernels go on. */
void world_open(struct world *world);
/* Nothing is under way any more, and the heap knows. Not during a capture. */
void world_settle(struct world *world);
/* Of the heap's device, which the heap does not hold. */
uint64_t world_device_free_pages(struct world *world);

/* The second context dies with its streams and its cudaMalloc memory, and another one comes;
 * `fails`: its destruction is refused, and it goes on. */
void world_replace_context(struct world *world, bool fails);
/* A capture in a thread of its own. */
void world_begin_capture(struct world *world, CUstreamCaptureMode mode);
void world_end_capture(struct world *world);

#endif
