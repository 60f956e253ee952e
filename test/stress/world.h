/* SPDX-License-Identifier: MIT */
/* One heap on one small simulated device, and a correct program of many threads upon it. Blocks
 * pass from thread to thread through a shelf; each carries an event behind the last work that used
 * it, so that every use is ordered after the one before and any unordered work that the device
 * reports is the heap's fault. */
#ifndef VPMM_TEST_STRESS_WORLD_H
#define VPMM_TEST_STRESS_WORLD_H

#include "base/atomic.h"
#include "heap/heap.h"
#include "sim/engine.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SHELF_MAX 48
#define SHARED_STREAMS 4
#define PAGE_BYTES ((uint64_t)2 << 20)
#define DEVICE_PAGES 192

struct block {
    uint64_t address; /* 0: the place is empty */
    uint64_t pages;
    CUevent event; /* behind the last use */
};

struct world {
    struct sim *sim;
    struct vpmm_driver driver;
    struct vpmm_order *order;
    struct vpmm_heap *heap;
    CUcontext handle;
    struct vpmm_context *context;
    CUstream shared[SHARED_STREAMS];
    pthread_mutex_t shelf_lock;
    struct block shelf[SHELF_MAX];
    vpmm_atomic32 is_over;
    vpmm_atomic64 n_served, n_refused;
};

/* A thread's own dice. */
uint32_t roll(uint32_t *state, uint32_t n);

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

/* Puts the block there, or takes one; false when there is no room, or nothing. */
bool world_put(struct world *world, const struct block *block);
bool world_take(struct world *world, uint32_t from, struct block *block_out);

#endif
