/* SPDX-License-Identifier: MIT */
/* Of the fakes what is about CUDA's memory pools. */
#include "fakes.h"

#include "base/lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

void vpmm_mempool_init(struct vpmm_mempool *mempool, uint32_t number, uint64_t limit_bytes)
{
    mempool->number = number;
    mempool->limit_bytes = limit_bytes;
    vpmm_atomic_store(&mempool->threshold_bytes, UINT64_MAX);
    vpmm_atomic_store(&mempool->has_threshold, 0);
    vpmm_atomic_store(&mempool->is_cautious, 0);
}

bool vpmm_heap_mempool_has_room(struct vpmm_heap *heap, const struct vpmm_mempool *mempool,
                                uint64_t bytes)
{
    (void)heap;
    return !mempool->limit_bytes || bytes <= mempool->limit_bytes;
}

void vpmm_heap_mempool_trim(struct vpmm_heap *heap, struct vpmm_mempool *mempool,
                            uint64_t keep_bytes, bool keeps_all)
{
    assert_true(vpmm_lock_none_held());
    assert_false(keeps_all);
    heap->n_mempool_trims++;
    heap->trimmed_mempool = mempool->number;
    heap->kept_bytes = keep_bytes;
}

uint64_t vpmm_pool_mempool_bytes(const struct vpmm_pool *pool, uint32_t mempool)
{
    return ((const struct vpmm_heap *)pool)->mempool_live == mempool ? 4096 : 0;
}

enum vpmm_status vpmm_heap_synchronize(struct vpmm_heap *heap)
{
    assert_true(vpmm_lock_none_held());
    assert_true(fakes.is_relaxed);
    heap->n_synchronizations++;
    return VPMM_FAILED;
}

uint64_t vpmm_heap_mempool_kept_bytes(const struct vpmm_heap *heap,
                                      const struct vpmm_mempool *mempool)
{
    bool is_default = mempool->number == VPMM_MEMPOOL_DEFAULT;
    if (!vpmm_atomic_load(&mempool->has_threshold))
        return 0;
    return is_default ? heap->kept_by_default : heap->kept_by_made;
}

void vpmm_heap_mempool_figures(struct vpmm_heap *heap, struct vpmm_mempool *mempool,
                               struct vpmm_mempool_figures *figures_out)
{
    (void)heap, (void)mempool, (void)figures_out;
    abort();
}
