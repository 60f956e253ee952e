/* SPDX-License-Identifier: MIT */
/* Blocks with content on one heap: kernels of the simulated device write a pattern into them and
 * check it, and the device reports every pair of accesses that nothing orders. Uses the heap's
 * fixture; owns the patterns; knows nothing of the pool's inside. */
#ifndef VPMM_TEST_UNIT_RULES_BLOCKS_H
#define VPMM_TEST_UNIT_RULES_BLOCKS_H

#include "heap/heap.h"
#include "sim/engine.h"
#include "../heap/fixture.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SAME(expected, actual) assert_int_equal((actual), (expected))

/* Pages of 2 MiB with bytes, 256 MiB of device, extents of one page, races reported, slack of
 * half the device, and a hang after 5 s. */
void rules_params(struct fixture_params *params);
/* Sets the counts of kernels and differences back. */
void rules_forget(void);
/* The fixture with just these, and nothing counted yet. */
void rules_setup(struct fixture *fixture);

struct block {
    uint64_t address, pages, pattern;
};

/* Queues a kernel that writes the pattern all over the block; it spins until *gate (NULL: does
 * not). */
void block_write(struct fixture *fixture, CUstream stream, const struct block *block,
                 const volatile bool *gate);
/* Queues a kernel that checks it; what differs is counted in blocks_wrong. */
void block_check(struct fixture *fixture, CUstream stream, const struct block *block);
/* What a host thread sees of the block now; true when it is the pattern. */
bool block_is_intact(struct fixture *fixture, const struct block *block);
/* Words that kernels found different, and kernels that looked, since rules_forget. */
uint64_t blocks_wrong(void);
uint64_t blocks_checked(void);

/* All that a failed request must leave as it was. */
struct picture {
    char layout[4096];
    struct vpmm_pool_totals totals;
    struct sim_counts counts;
};
void picture_take(struct fixture *fixture, struct picture *picture_out);
/* Asserts that nothing but counters of the past differs. */
void picture_compare(struct fixture *fixture, const struct picture *before);

/* One call of the driver's table that stops before it takes effect, until it is let go. */
struct stop {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_armed, is_reached, is_open;
};
extern struct stop the_stop;
/* The next event record (of a stream, or of a context) stops. */
void stop_arm(struct fixture *fixture);
void stop_await(void);
void stop_open(void);

/* A free in a thread of its own. */
struct freeing {
    struct fixture *fixture;
    uint64_t address;
    CUstream stream; /* NULL: cudaFree */
    enum vpmm_status status;
    pthread_t thread;
};
void freeing_start(struct freeing *freeing, struct fixture *fixture, uint64_t address,
                   CUstream stream);
void freeing_end(struct freeing *freeing);

uint64_t heap_count_host_waits(struct fixture *fixture);
uint64_t heap_count_stream_waits(struct fixture *fixture);
/* Whether the two spans of pages overlap. */
bool pages_overlap(const struct fixture *fixture, uint64_t a, uint64_t a_pages, uint64_t b,
                   uint64_t b_pages);
/* Takes the stream's own frees and its next ones through a capture that the heap knows of. */
void gated_capture_begin(struct fixture *fixture, CUstream stream, CUstreamCaptureMode mode);
void gated_capture_end(struct fixture *fixture, CUstream stream);

#endif
