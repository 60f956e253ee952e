/* SPDX-License-Identifier: MIT */
/* A correct program of one thread on one heap with its layer of small blocks: streams of two
 * contexts, one of which comes and goes, and blocks of every size, whose every use is ordered after
 * the one before by an event. So whatever the device reports is the library's fault. What is live
 * and what the library counts is compared after every step. */
#ifndef VPMM_TEST_FUZZ_SMALL_WORLD_H
#define VPMM_TEST_FUZZ_SMALL_WORLD_H

#include "../unit/small/scene.h"

#define WORLD_PAGE_BYTES (64 * KIB)
#define WORLD_LANES 8
#define WORLD_BLOCKS 64
#define WORLD_GATES 512
#define WORLD_LEASES 32

enum world_context {
    WORLD_MAIN,
    WORLD_SECOND, /* comes and goes */
    WORLD_CONTEXTS
};

/* Of each context: blocking and non-blocking streams, and the legacy one. */
struct world_lane {
    CUstream stream;
    enum world_context context;
};

struct world_block {
    uint64_t address, bytes;
    enum world_context context; /* that allocated it */
    bool is_async;
    CUevent event; /* behind its last use; NULL: that is over */
    enum world_context event_context;
    unsigned users; /* a mask of contexts */
};

/* What the whole program does alike. */
struct world_habits {
    bool free_waits;   /* VPMM_FREE_SYNC for blocks of less than a page */
    bool tells_events; /* the order hears of the program's events */
    bool has_wide;     /* blocks of a page and more may share pages */
    bool asks_mempool; /* the memory pool's figures are exact */
};

struct world {
    struct scene scene;
    struct world_habits habits;
    struct vpmm_mempool mempool;
    uint64_t limit_pages, aside_bytes;
    CUcontext contexts[WORLD_CONTEXTS];
    struct world_lane lanes[WORLD_LANES];
    struct world_block blocks[WORLD_BLOCKS];
    size_t n_blocks;
    volatile bool gates[WORLD_GATES];
    size_t n_gates, n_open_gates;
    struct {
        uint64_t address, owner_id;
    } leases[WORLD_LEASES];
    size_t n_leases;
    bool has_exported;  /* small blocks of cudaMalloc are CUDA's from then on */
    uint64_t map_nth;   /* of metadata, in the next malloc or free, fails; 0: none does */
    bool was_disturbed; /* one did */
};

/* Pages of 64 KiB on a small device that reports races; the rest is the caller's to choose. */
void world_params(struct fixture_params *params);
void world_setup(struct world *world, const struct fixture_params *params,
                 const struct world_habits *habits);
/* Opens all gates, frees all blocks, and asserts that nothing is left over. */
void world_teardown(struct world *world);
/* Every invariant holds, and the library counts what is live. */
void world_check(struct world *world);

/* `lane` NULL: cudaMalloc in the context. `is_warm`: the ways that need no lock come first. The
 * block, or NULL where it is refused. */
struct world_block *world_malloc(struct world *world, uint64_t bytes, const struct world_lane *lane,
                                 enum world_context context, bool is_warm);
/* Work that writes the block; `is_gated`: it spins until world_open. */
void world_use(struct world *world, struct world_block *block, const struct world_lane *lane,
               bool is_gated);
/* Frees, and forgets it. `lane` NULL: cudaFree, with that context current, after no use that bare
 * cudaFree would not wait for. */
void world_free(struct world *world, size_t which, const struct world_lane *lane,
                enum world_context context, bool is_warm);
/* The host waits for the block's last use; `proves`: the order hears of it. */
void world_await(struct world *world, struct world_block *block, bool proves);
/* Lets all spinning work go on. */
void world_open(struct world *world);
void world_enter(struct world *world, enum world_context context);
/* The lane's stream, as the order has it; its context is current from then on. */
struct vpmm_stream world_resolve(struct world *world, const struct world_lane *lane);

/* ---- small_ends.c: what comes and goes ---- */

/* The streams of a context. */
void world_make_lanes(struct world *world, enum world_context context);
/* The host waits for the lane, or for its whole context; or (`asks`) only asks about the lane. */
void world_synchronize(struct world *world, const struct world_lane *lane, bool whole, bool asks);
/* The stream is destroyed, whatever it has to do, and another one comes. Not the legacy one. */
void world_replace_stream(struct world *world, struct world_lane *lane);
/* The second context dies with its streams and its cudaMalloc memory, and another one comes;
 * `fails`: its destruction is refused, and it goes on. */
void world_replace_context(struct world *world, bool fails);
/* Another process is to open the block, so many times. Nothing for a block of a stream. */
void world_export(struct world *world, const struct world_block *block, uint64_t n_leases);
void world_unlease(struct world *world, size_t which);
/* So much of the limit goes elsewhere, or (0) comes back. */
void world_set_aside(struct world *world, uint64_t bytes);

#endif
