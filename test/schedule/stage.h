/* SPDX-License-Identifier: MIT */
/* What several cases stand on: a pool under a lock of its own, or a whole heap over the device. */
#ifndef VPMM_TEST_SCHEDULE_STAGE_H
#define VPMM_TEST_SCHEDULE_STAGE_H

#include "base/lock.h"
#include "device.h"
#include "heap/heap.h"

/* ---- a pool alone: no fences, no driver ---- */

struct stage_pool {
    struct vpmm_pool *pool;
    struct vpmm_lock lock;
    struct vpmm_fence_view view;
    uint64_t last_id;
    uint64_t last_extent;
};

/* A root of `pages`, of which the first `mapped` are free. */
struct stage_pool *stage_pool(uint64_t pages, uint64_t mapped);
uint64_t stage_address(uint64_t page);
/* The page of a new live region of `pages`, which must fit; its id in `id_out` if not NULL. The
 * owner's bytes are pages * DEVICE_PAGE_BYTES - 1. */
uint64_t stage_take(struct stage_pool *stage, uint64_t pages, uint64_t *id_out);
/* Claims and frees the region at `page`; false where another was faster. */
bool stage_free(struct stage_pool *stage, uint64_t page, struct vpmm_region_view *view_out);
void stage_pool_check(struct stage_pool *stage);

/* What an order counts for statistics are counters: see schedule_counters. */
void stage_count_order(const struct vpmm_order *order);
/* After all work: every fence is complete, and nothing is left but the one that each living context
 * keeps to park. */
void stage_expect_no_fences(struct vpmm_order *order);

/* ---- a heap over an order over the device ---- */

struct stage_heap {
    struct gpu *device;
    struct vpmm_order *order;
    struct vpmm_context *context;
    struct vpmm_heap *heap;
    struct vpmm_stream streams[DEVICE_STREAMS]; /* that stage_know looked up */
    uint64_t owners[DEVICE_PAGES]; /* by page: 1 + the thread whose block it is; 0: nobody's */
    /* By page: how much work each stream had when the page was freed there. Whoever else gets the
     * page finds that done. */
    uint64_t marks[DEVICE_PAGES][DEVICE_STREAMS];
    uint64_t n_mallocs, n_frees; /* that succeeded */
};

struct stage_heap *stage_heap(uint64_t device_pages, uint64_t eager_pages);
/* For `prepare`: what the stream is needs not be asked from now on. */
void stage_know(struct stage_heap *stage, int stream);
/* cudaMalloc (stream 0) or cudaMallocAsync; 0 where it fails. Nobody else may own the pages. */
uint64_t stage_malloc(struct stage_heap *stage, uint64_t pages, int stream);
/* cudaMallocAsync from the stream's front cache alone; 0 where that has none. */
uint64_t stage_malloc_cached(struct stage_heap *stage, uint64_t pages, int stream);
/* cudaFree (stream 0) or cudaFreeAsync. */
enum vpmm_status stage_heap_free(struct stage_heap *stage, uint64_t address, uint64_t pages,
                                 int stream);
struct vpmm_pool_totals stage_totals(const struct stage_heap *stage);
/* Nobody may have a free page by its fence before the work that it stands for is done. */
void stage_expect_fences(const struct stage_heap *stage);
/* Audits; counts are those of the calls that succeeded; then everything can be given back, and no
 * fence is left. */
void stage_heap_check(struct stage_heap *stage);

#endif
