/* SPDX-License-Identifier: MIT */
/* Of the fakes what is about decay. */
#include "fakes.h"

#include "base/lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

uint32_t vpmm_order_captures(const struct vpmm_order *order)
{
    (void)order;
    return fakes.has_captures;
}

bool vpmm_heap_may_decay(const struct vpmm_heap *heap)
{
    return heap->is_large;
}

void vpmm_heap_decay_look(struct vpmm_heap *heap, bool may_record)
{
    assert_true(vpmm_lock_none_held());
    assert_true(fakes.is_relaxed);
    heap->n_decay_looks++;
    heap->n_recording_looks += may_record;
}

bool vpmm_heap_decay_slice(struct vpmm_heap *heap, uint64_t keep_bytes)
{
    assert_true(vpmm_lock_none_held());
    assert_true(fakes.is_relaxed);
    heap->n_decay_slices++;
    heap->decay_keep_bytes = keep_bytes;
    heap->slices_left -= heap->slices_left > 0;
    return heap->slices_left > 0;
}

bool vpmm_heap_set_aside(struct vpmm_heap *heap, uint64_t bytes)
{
    (void)heap;
    (void)bytes;
    return true;
}

void vpmm_heap_set_back(struct vpmm_heap *heap, uint64_t bytes)
{
    (void)heap;
    (void)bytes;
}
