/* SPDX-License-Identifier: MIT */
/* Stands in for src/lib/heap/lease.c: no block is leased. */
#include "heap/heap.h"

#include <stdlib.h>

enum vpmm_status vpmm_heap_lease(struct vpmm_heap *heap, uint64_t address, uint64_t owner_id,
                                 uint64_t *start_out, uint64_t *end_out)
{
    (void)heap, (void)address, (void)owner_id, (void)start_out, (void)end_out;
    abort();
}

void vpmm_heap_unlease(struct vpmm_heap *heap, uint64_t address, uint64_t owner_id)
{
    (void)heap, (void)address, (void)owner_id;
    abort();
}

size_t vpmm_heap_leased_extents(struct vpmm_heap *heap, uint64_t address, uint64_t from,
                                struct vpmm_shown_extent *extents_out, size_t room)
{
    (void)heap, (void)address, (void)from, (void)extents_out, (void)room;
    abort();
}
