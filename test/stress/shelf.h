/* SPDX-License-Identifier: MIT */
/* Blocks that pass from thread to thread. Each carries an event behind the last work that used it,
 * so that every use can be ordered after the one before: unordered work that the device reports is
 * then not the program's fault. */
#ifndef VPMM_TEST_STRESS_SHELF_H
#define VPMM_TEST_STRESS_SHELF_H

#include <cuda.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SHELF_MAX 48
#define PAGE_BYTES ((uint64_t)2 << 20)

struct block {
    uint64_t address; /* 0: the place is empty */
    uint64_t bytes;
    CUevent event;     /* behind the last use */
    CUcontext context; /* that owns the memory */
    CUcontext user;    /* of the last use */
    uint64_t value;    /* that the last use wrote; 0: none */
    int device;
    bool is_async; /* of cudaMallocAsync */
};

struct shelf {
    pthread_mutex_t lock;
    struct block places[SHELF_MAX];
};

/* A thread's own dice: a number below `n`. */
uint32_t roll(uint32_t *state, uint32_t n);

/* Puts the block on the shelf, or takes one, looking from place `from` on; false when there is no
 * room, or nothing. Any thread. */
bool shelf_put(struct shelf *shelf, const struct block *block);
bool shelf_take(struct shelf *shelf, uint32_t from, struct block *block_out);

#endif
