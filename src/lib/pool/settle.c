/* SPDX-License-Identifier: MIT */
/* Merges what is complete by now, and lists what is pending. Must not take a fence for complete
 * unless the caller's view says so. */
#include "pool/pool_internal.h"

#include <limits.h>

/* How many fences that are not complete are met before the others are left for another time. */
struct bounds {
    /* Of one stream, whose fences complete in their order, give or take those that threads record
     * at the same time: behind so many, none is complete. */
    unsigned behind;
    unsigned others;  /* of those of no stream: from the oldest on, and again where it stopped */
    unsigned streams; /* so many are looked at, from where the last settling stopped */
};
static const struct bounds few = {2, 32, 32};
static const struct bounds no_bounds = {UINT_MAX, UINT_MAX, UINT_MAX};

/* What one settling works with. */
struct settling {
    struct vpmm_pool *pool;
    struct vpmm_waiting *waiting;
    const struct vpmm_fence_view *view;
    const struct bounds *bounds;
};

static void wait_no_more(struct vpmm_pool *pool, uint32_t number)
{
    struct vpmm_content content = vpmm_region_content(vpmm_region_record(pool, number));
    content.fence = VPMM_FENCE_NONE;
    vpmm_region_turn_merged(pool, number, &content, NULL);
}

/* The first of those that wait for the fences of `stream` from `fence` on, and of later streams. */
static uint32_t first_from(const struct vpmm_waiting *waiting, uint64_t stream, vpmm_fence fence)
{
    return vpmm_tree_first_from(&waiting->tree, (struct vpmm_tree_key){stream + 1, fence, 0});
}

/* Settles what waits for the fences of `stream` from `fence` on that are complete, until `most`
 * that are not have been met. Returns the fence to go on with; VPMM_FENCE_NONE at the end. */
static vpmm_fence settle_stream(const struct settling *settling, uint64_t stream, vpmm_fence fence,
                                unsigned most)
{
    const struct vpmm_pool *pool = settling->pool;
    bool is_complete = false;
    vpmm_fence asked = VPMM_FENCE_NONE;
    for (;;) {
        VPMM_STEP();
        uint32_t number = first_from(settling->waiting, stream, fence);
        const struct vpmm_region *region = vpmm_region_record(pool, number);
        if (!region || vpmm_region_stream(region) != stream)
            return VPMM_FENCE_NONE;
        fence = vpmm_region_fence(region);
        if (fence != asked) {
            is_complete = settling->view->ask(settling->view->self, fence) == VPMM_VERDICT_COMPLETE;
            asked = fence;
        }
        if (is_complete)
            wait_no_more(settling->pool, number);
        else if (fence++, --most == 0)
            return fence;
    }
}

/* The streams from `stream` on, up to the last or to the bound of all; returns the one to go on
 * with, 0 at the end. */
static uint64_t settle_streams(const struct settling *settling, uint64_t stream, unsigned *n)
{
    for (;;) {
        VPMM_STEP();
        uint32_t number = first_from(settling->waiting, stream, VPMM_FENCE_NONE);
        const struct vpmm_region *region = vpmm_region_record(settling->pool, number);
        if (!region || *n == settling->bounds->streams)
            return region ? stream : 0;
        stream = vpmm_region_stream(region);
        (void)settle_stream(settling, stream, VPMM_FENCE_NONE, settling->bounds->behind);
        stream++;
        ++*n;
    }
}

/* True if a bound has left some for another time. */
static bool settle(struct vpmm_pool *pool, struct vpmm_waiting *waiting,
                   const struct vpmm_fence_view *view, const struct bounds *bounds)
{
    struct settling settling = {pool, waiting, view, bounds};
    vpmm_index_admit(pool);
    vpmm_fence others = settle_stream(&settling, 0, VPMM_FENCE_NONE, bounds->others);
    if (others != VPMM_FENCE_NONE) {
        vpmm_fence from = waiting->next > others ? waiting->next : others;
        waiting->next = settle_stream(&settling, 0, from, bounds->others);
    }
    unsigned n = 0;
    uint64_t first = waiting->next_stream ? waiting->next_stream : 1;
    waiting->next_stream = settle_streams(&settling, first, &n);
    if (first > 1 && waiting->next_stream == 0)
        waiting->next_stream = settle_streams(&settling, 1, &n);
    return others != VPMM_FENCE_NONE || n == bounds->streams;
}

bool vpmm_pool_settle(struct vpmm_pool *pool, const struct vpmm_fence_view *view)
{
    return settle(pool, &pool->waiting_regions, view, &few);
}

void vpmm_pool_settle_all(struct vpmm_pool *pool, const struct vpmm_fence_view *view)
{
    (void)settle(pool, &pool->waiting_regions, view, &no_bounds);
    (void)settle(pool, &pool->waiting_zombies, view, &no_bounds);
}

void vpmm_zombies_settle(struct vpmm_pool *pool, const struct vpmm_fence_view *view)
{
    (void)settle(pool, &pool->waiting_zombies, view, &few);
}

/* Keeps the `*n` oldest fences met so far in order, each once. */
static void keep(vpmm_fence fence, vpmm_fence *fences, size_t *n, size_t room)
{
    size_t i = *n;
    while (i > 0 && fences[i - 1] > fence)
        i--;
    if (i == room || (i > 0 && fences[i - 1] == fence))
        return;
    *n += *n < room;
    for (size_t j = *n - 1; j > i; j--)
        fences[j] = fences[j - 1];
    fences[i] = fence;
}

size_t vpmm_pool_pending(struct vpmm_pool *pool, bool (*is_wanted)(void *self, vpmm_fence fence),
                         void *self, vpmm_fence *fences_out, size_t room)
{
    size_t n = 0;
    vpmm_index_admit(pool);
    uint32_t number = vpmm_index_first(&pool->waiting_regions.tree);
    while (number && room > 0) {
        VPMM_STEP();
        const struct vpmm_region *region = vpmm_region_record(pool, number);
        vpmm_fence fence = vpmm_region_fence(region);
        if (!is_wanted || is_wanted(self, fence))
            keep(fence, fences_out, &n, room);
        number = first_from(&pool->waiting_regions, vpmm_region_stream(region), fence + 1);
    }
    return n;
}
