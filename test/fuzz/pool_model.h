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

void model_init(uint64_t extent_pages_max);
/* One root more, if metadata allows it and there are not too many. */
void model_add_root(void);
/* A step is carried out. */
void model_step(struct vpmm_step *step);
/* The live region at `address` is a new block, which follows all last owners of its pages. */
void model_add_block(uint64_t address, uint64_t pages, uint64_t stream, uint64_t number);
/* The claimed block is about to be free with `fence`. */
void model_drop_block(size_t which, vpmm_fence fence);

/* The longest run of pages that the world's present stream could have without a step. */
uint64_t model_largest_usable(void);

/* All books agree: the pool's own, the page table, the blocks, the totals. */
void model_check(void);
/* After a settle: the pending fences are those of free regions, each once, and none is complete. */
void model_check_pending(void);

#endif
