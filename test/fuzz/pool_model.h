/* SPDX-License-Identifier: MIT */
/* The naive model beside a pool: which blocks there are, and for each page of each extent the
 * number of the block that last wrote it. A page given out twice, or a live region that moved,
 * shows as a block that finds another number. */
#ifndef VPMM_TEST_FUZZ_POOL_MODEL_H
#define VPMM_TEST_FUZZ_POOL_MODEL_H

#include "../unit/pool/world.h"

#define BLOCKS_MAX 24
#define EXTENTS_MAX 4096
#define EXTENT_PAGES_MAX 64
#define ROOTS_MAX 12
#define ROOT_PAGES 48

struct block {
    uint64_t page, pages, number;
    bool is_claimed;
};

extern struct world world;
extern struct block blocks[BLOCKS_MAX];
extern size_t n_blocks;
extern uint64_t n_roots;

/* A pool that may have `mappings_max` mappings. */
void model_init(uint64_t extent_pages_max, uint64_t mappings_max);
/* How metadata fails from now on: mostly, and for 0, not at all. */
void model_set_trouble(uint64_t trouble);
/* One root more, if metadata allows it and there are not too many. */
void model_add_root(void);
/* A step is carried out. */
void model_step(struct vpmm_step *step);
/* The live region at `address` is a new block, which follows all last owners of its pages. */
void model_add_block(uint64_t address, uint64_t pages, uint64_t stream, uint64_t number);
/* A request at that page; it may get a new block. */
void model_serve_at(uint64_t page, uint64_t pages, uint64_t stream, uint64_t number);
/* The claimed block is about to be free with `fence`. */
void model_drop_block(size_t which, vpmm_fence fence);

/* A stream's work completes in its order. */
void model_complete(vpmm_fence last);

/* The driver refused for good to map the extent of that step: from now on a step that moves it is
 * wrong. */
void model_fix(const struct vpmm_step *step);

/* What the world's present stream could build `pages` pages on. */
struct prospect {
    uint64_t run;      /* longest run that is usable as it lies */
    uint64_t hole;     /* largest hole */
    uint64_t reach;    /* longest run of usable pages, if any, and the hole behind them */
    uint64_t movable;  /* of all usable extents */
    uint64_t largest;  /* of one of them */
    uint64_t snug;     /* the most that some of them fill without exceeding the request */
    uint64_t mappings; /* that exist */
    uint64_t extra;    /* may be created for the sake of fewer extents */
};
struct prospect model_prospect(uint64_t pages);
/* Metadata that could not be had so far: mappings and joins. */
uint64_t model_failures(void);

/* All books agree: the pool's own, the page table, the blocks, the totals. */
void model_check(void);
/* After a settle: the pending fences are those of free regions, each once, and none is complete. */
void model_check_pending(void);

#endif
