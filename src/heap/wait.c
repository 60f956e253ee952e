/* SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "heap/internal.h"

#include <time.h>

/* Between two polls: short against a wait that is noticed, long against what a poll costs others.
 */
#define PAUSE_NS 100000

uint64_t vpmm_now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void vpmm_pause(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
}

struct bound {
    struct vpmm_order *order;
    enum vpmm_wait weakest;
};

static bool is_within(void *self, vpmm_fence fence)
{
    const struct bound *bound = self;
    return vpmm_order_wait_kind(bound->order, fence) <= bound->weakest;
}

size_t vpmm_heap_pending(struct vpmm_heap *heap, enum vpmm_wait weakest, vpmm_fence *fences_out,
                         size_t room)
{
    struct bound bound = {heap->order, weakest};
    vpmm_lock_take(&heap->lock);
    size_t n = vpmm_pool_pending(heap->pool, is_within, &bound, fences_out, room);
    vpmm_lock_give(&heap->lock);
    return n;
}

enum vpmm_status vpmm_heap_wait_oldest(struct vpmm_heap *heap, unsigned *gathers_left)
{
    vpmm_fence fence;
    bool has_one = vpmm_heap_pending(heap, VPMM_WAIT_OWN_CALL, &fence, 1);
    if (!has_one && *gathers_left) {
        --*gathers_left;
        if (vpmm_cache_gather(heap, NULL))
            has_one = vpmm_heap_pending(heap, VPMM_WAIT_OWN_CALL, &fence, 1);
    }
    if (!has_one)
        return VPMM_NOT_FOUND;
    uint64_t begin_ns = vpmm_heap_now_ns(heap);
    enum vpmm_status status = vpmm_order_wait_host(heap->order, fence);
    vpmm_atomic_add(&heap->host_waits, 1);
    vpmm_heap_tell_wait(heap, NULL, begin_ns);
    vpmm_heap_settle_all(heap);
    return status;
}
