/* SPDX-License-Identifier: MIT */
/* For whoever has live regions of a heap and gives out parts of them: src/lib/small. The heap knows
 * such regions as it knows any other. What is special is that their owner frees them without being
 * in a free of the program, and that it can be asked for those that nobody uses.
 *
 * Any thread may call anything here, holding no lock of ours. */
#ifndef VPMM_HEAP_HEAP_PARTS_H
#define VPMM_HEAP_HEAP_PARTS_H

#include "heap/heap.h"

/* Who keeps live regions that nobody may be using. `give_back` frees those, and makes the fences of
 * what was freed into them recorded ones (driver). It is called with no lock held, by any thread,
 * also within a request for a region. */
struct vpmm_keeper {
    void *self;
    void (*give_back)(void *self);
    /* What the program has of them in the default memory pool; no lock, no driver. NULL: nothing.
     */
    uint64_t (*used_bytes)(void *self);
    /* How many pages of them it keeps for that memory pool; no lock, no driver. NULL: none. */
    uint64_t (*reserved_pages)(void *self);
    /* How many pages may become free once work is complete that parts of them were freed behind; no
     * driver. NULL: none. */
    uint64_t (*pending_pages)(void *self);
    /* The fence of such a part that a request of cudaMalloc in `context` (NULL: of a stream) may
     * wait for on the host, or VPMM_FENCE_NONE; no driver. NULL: there is none. */
    vpmm_fence (*oldest)(void *self, const struct vpmm_context *context);
};
/* Copied; before any other thread has the heap. */
void vpmm_heap_set_keeper(struct vpmm_heap *heap, const struct vpmm_keeper *keeper);
/* Has the keeper, if there is one, give back what nobody uses (driver). */
void vpmm_heap_ask_keeper(struct vpmm_heap *heap);

/* Frees the live region that starts exactly at `address` and has that owner.id (0: any): it is
 * reused when `fence` is complete, and all that its memory's last owner left pending. As long as
 * the fence is not complete, it is in order for that stream; 0: for none. NOT_FOUND: there is none
 * (driver). */
VPMM_MUST_CHECK enum vpmm_status vpmm_heap_free_fenced(struct vpmm_heap *heap, uint64_t address,
                                                       uint64_t owner_id, vpmm_fence fence,
                                                       uint64_t stream_id);

/* The fence of a free that is being made of memory of that owner: on `stream`, or (NULL) by
 * cudaFree, which does not wait here. Leaves the mark that a free leaves (driver). `wait_out`:
 * BROKEN or SHUT_DOWN where the driver told of it, OK otherwise. False: nobody can tell what reuse
 * must wait for. */
VPMM_MUST_CHECK bool vpmm_heap_fence_free(struct vpmm_heap *heap, const struct vpmm_owner *owner,
                                          const struct vpmm_stream *stream, vpmm_fence *fence_out,
                                          enum vpmm_status *wait_out);

/* Parts were given out of the default memory pool: its highest figures may be new ones. `is_sure`:
 * otherwise only where somebody has asked for them, and the keeper has no more pages than before.
 * No driver, no lock. */
void vpmm_heap_note_parts(const struct vpmm_heap *heap, struct vpmm_mempool *mempool, bool is_sure);

/* Whether little is left of the device or the limit, or has been. No lock, no driver. */
bool vpmm_heap_is_tight(const struct vpmm_heap *heap);

/* Whether the whole pages of live blocks hold much more than what was asked for: then blocks that
 * waste much of a page are better kept together. No lock, no driver. */
bool vpmm_heap_is_wasteful(const struct vpmm_heap *heap);

/* Sets `n` numbers aside for allocations; the first of them. */
uint64_t vpmm_heap_reserve_ids(struct vpmm_heap *heap, uint64_t n);
/* The id that a number makes, unique over all devices. */
uint64_t vpmm_heap_allocation_id(const struct vpmm_heap *heap, uint64_t number);

#endif
