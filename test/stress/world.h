/* SPDX-License-Identifier: MIT */
/* One heap on one small simulated device, and a correct program of many threads upon it. */
#ifndef VPMM_TEST_STRESS_WORLD_H
#define VPMM_TEST_STRESS_WORLD_H

#include "base/atomic.h"
#include "heap/heap.h"
#include "shelf.h"
#include "sim/engine.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SHARED_STREAMS 4
#define DEVICE_PAGES 192

struct world {
    struct sim *sim;
    struct vpmm_driver driver;
    struct vpmm_order *order;
    struct vpmm_heap *heap;
    CUcontext handle;
    struct vpmm_context *context;
    CUstream shared[SHARED_STREAMS];
    struct shelf shelf;
    vpmm_atomic32 is_over;
    vpmm_atomic64 n_served, n_refused;
};

void world_setup(struct world *world, uint64_t extent_pages_max, uint64_t seed);
/* All threads have ended: frees everything and asserts that nothing is left over. */
void world_teardown(struct world *world);

/* A block for `stream` (NULL: cudaMalloc) in the calling thread's current context; false where the
 * device is full. */
bool world_malloc(struct world *world, uint64_t pages, CUstream stream, struct block *block_out);
/* Work on `stream` that writes all of the block, after its last use. */
void world_use(struct world *world, struct block *block, CUstream stream);
/* `stream` NULL: cudaFree. */
void world_free(struct world *world, struct block *block, CUstream stream);

#endif
