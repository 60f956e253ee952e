/* SPDX-License-Identifier: MIT */
/* One heap on one simulated machine, and a few words to write tests with. Teardown asserts that
 * nothing is left over. */
#ifndef VPMM_TEST_UNIT_HEAP_FIXTURE_H
#define VPMM_TEST_UNIT_HEAP_FIXTURE_H

#include "base/atomic.h"
#include "heap/heap.h"
#include "sim/engine.h"

#include <stdbool.h>
#include <stdint.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

struct fixture_params {
    struct vpmm_heap_params heap;
    struct sim_config sim;
};

struct fixture {
    struct sim *sim;
    struct vpmm_driver driver;
    struct vpmm_memory memory;        /* counts, and fails on cue; any thread */
    vpmm_atomic64 maps_until_failure; /* 0: never */
    vpmm_atomic64 maps_outstanding;
    struct vpmm_order *order;
    struct vpmm_heap *heap;
    struct vpmm_context *context;
    CUcontext handle;
    uint64_t page_bytes;
    struct vpmm_mempool *mempool; /* of later requests of streams; NULL: nobody asks about it */
    struct vpmm_watch watch;
    vpmm_atomic64 told_bytes[VPMM_WATCH_FREE + 1]; /* by kind */
    vpmm_atomic64 told[VPMM_WATCH_FREE + 1];
};

/* 1 GiB pages, one page an extent, 64 GiB, adversarial order, no bytes. */
void fixture_params_default(struct fixture_params *params);
/* The same with 16 MiB pages, of which front caches hold blocks of up to 64. */
void fixture_params_cache(struct fixture_params *params);
void fixture_setup(struct fixture *fixture, const struct fixture_params *params);
/* The same with the parameters that most tests use: the default ones; those for front caches; and
 * those with a device whose work is done as soon as nothing holds it back. */
void fixture_setup_default(struct fixture *fixture);
void fixture_setup_cache(struct fixture *fixture);
void fixture_setup_eager(struct fixture *fixture);
/* Drains the device, frees nothing by itself; asserts a clean audit, that what the heap told adds
 * up to what it counts, and that nothing is left over. */
void fixture_teardown(struct fixture *fixture);

CUstream fixture_stream(struct fixture *fixture, unsigned flags);
/* In pages; NULL stream: cudaMalloc or cudaFree. Assert success, and audit. */
uint64_t fixture_malloc(struct fixture *fixture, uint64_t pages, CUstream stream);
void fixture_free(struct fixture *fixture, uint64_t address, CUstream stream);
enum vpmm_status fixture_try_malloc(struct fixture *fixture, uint64_t pages, CUstream stream,
                                    uint64_t *address_out);
enum vpmm_status fixture_try_free(struct fixture *fixture, uint64_t address, CUstream stream);
void fixture_audit(struct fixture *fixture);
struct vpmm_pool_totals fixture_totals(struct fixture *fixture);
uint64_t fixture_device_free_bytes(struct fixture *fixture);
/* All that was freed has its event, and all work is complete. */
void fixture_finish(struct fixture *fixture);

/* A malloc and its free, as above. */
void fixture_cycle(struct fixture *fixture, uint64_t pages, CUstream stream);
/* Mallocs served from a front cache, and events recorded, until now. */
uint64_t fixture_hits(struct fixture *fixture);
uint64_t fixture_records(struct fixture *fixture);

/* Queues work on `stream` that writes (or only reads) pages at `address`; `gate` NULL, or the work
 * spins until *gate. */
void fixture_work(struct fixture *fixture, CUstream stream, uint64_t address, uint64_t pages,
                  bool writes, const volatile bool *gate);

/* The program's own event puts `later` after what `earlier` was given until now. */
void fixture_follow(struct fixture *fixture, CUstream earlier, CUstream later);

/* The map in the specification's notation without the hole at a root's end: "[4][-6][1][z3]".
 * Static buffer. */
const char *fixture_layout(struct fixture *fixture);

#endif
