/* SPDX-License-Identifier: MIT */
/* Allocations and frees. */
#include "reference.h"

/* Of each device, blocks take at most so much. Above it the library may find too little where bare
 * CUDA finds enough, and refuses: with extents of several pages, live pages hold up those beside
 * them (seen at 60%, not at 50%). */
#define SHARE_PERCENT_OF_PAGES 72
#define SHARE_PERCENT_OF_EXTENTS 50
/* While freed memory is stuck behind a later step, it may also make a stream wait for that, or
 * refuse (seen at 60%, and at 72% with one page an extent; not at 35%). */
#define SHARE_PERCENT_WHILE_STUCK 35
#define SCRATCH_GRANULES 4

static uint64_t granules_of(const struct setting *setting, uint64_t bytes)
{
    uint64_t unit = bytes < setting->page_bytes ? GRANULE : setting->page_bytes;
    return (bytes + unit - 1) / unit * (unit / GRANULE);
}

static bool is_taken(const struct reference *reference, const struct block *block)
{
    if (block->state != BLOCK_FREED || !block->is_parked)
        return block->state == BLOCK_LIVE || block->state == BLOCK_ABSENT ||
               (block->state == BLOCK_FREED && !order_is_clear(reference, &block->fence));
    struct set fence = order_of_context(reference, block->fence_context);
    return capture_is_open(reference) || !order_is_clear(reference, &fence);
}

uint64_t reference_taken(const struct reference *reference, unsigned device)
{
    uint64_t granules = 0;
    for (unsigned i = 0; i < BLOCKS_MAX; i++) {
        const struct block *block = &reference->blocks[i];
        if (block->device == device && is_taken(reference, block))
            granules += granules_of(&reference->setting, block->bytes);
    }
    for (unsigned i = 0; i < GRAPHS_MAX; i++)
        for (unsigned j = 0; j < reference->graphs[i].n; j++)
            granules += reference->graphs[i].nodes[j].is_scratch ? SCRATCH_GRANULES : 0;
    return granules;
}

static uint64_t share_percent(const struct reference *reference)
{
    for (unsigned i = 0; i < BLOCKS_MAX; i++) {
        const struct block *block = &reference->blocks[i];
        if (block->state == BLOCK_FREED && is_taken(reference, block))
            return SHARE_PERCENT_WHILE_STUCK;
    }
    return reference->setting.extent_pages == 1 ? SHARE_PERCENT_OF_PAGES : SHARE_PERCENT_OF_EXTENTS;
}

static const char *malloc_make(struct reference *reference, const struct step *step)
{
    unsigned context = reference->threads[step->thread].context;
    if (step->a >= BLOCKS_MAX || reference->blocks[step->a].state != BLOCK_NEW)
        return "the block has been";
    if (context == CONTEXTS_MAX || step->n < 8)
        return "no context, or no bytes";
    if (capture_forbids(reference, step->thread))
        return "a capture forbids it";
    if (step->kind == STEP_MALLOC_ASYNC) {
        const char *why = stream_is_usable(reference, step);
        if (why)
            return why;
        context = reference->streams[step->b].context;
    }
    const struct setting *setting = &reference->setting;
    unsigned device = reference->contexts[context].device;
    if ((reference_taken(reference, device) + granules_of(setting, step->n)) * 100 >
        setting->device_pages * share_percent(reference))
        return "the device has too little left";
    struct block *block = &reference->blocks[step->a];
    *block = (struct block){.state = BLOCK_LIVE,
                            .is_async = step->kind == STEP_MALLOC_ASYNC,
                            .context = context,
                            .device = device,
                            .bytes = step->n};
    if (block->is_async) {
        /* No action on the stream: it orders nothing, also not on the legacy stream. */
        struct set before = order_own(reference, step->b);
        block->born = order_queue(reference, step->b, &before)->before;
    }
    return NULL;
}

/* What nobody ever used, anybody may free. */
static bool is_over(const struct block *block, const struct set *over)
{
    const struct set none = {{0}};
    return set_has_all(&none, &block->uses) ||
           (set_has_all(over, &block->uses) && set_has_all(over, &block->born));
}

/* malloc memory: all work of the owning context may still run, and bare CUDA waits for it.
 * malloc-async memory: all use is over. */
static const char *free_make(struct reference *reference, const struct step *step)
{
    struct block *block = &reference->blocks[step->a];
    unsigned current = reference->threads[step->thread].context;
    if (current == CONTEXTS_MAX)
        return "the thread has no context";
    unsigned owner = reference->contexts[block->context].is_alive ? block->context : current;
    struct set fence = order_of_context(reference, owner);
    struct set over = reference->done;
    if (!block->is_async) {
        if (!order_is_clear(reference, &fence))
            return "it would wait for ever";
        set_add(&over, &fence);
    }
    if (!is_over(block, &over))
        return "the block is in use";
    block->fence = fence;
    block->fence_context = owner;
    block->is_parked = capture_is_open(reference);
    block->state = BLOCK_FREED;
    return NULL;
}

static const char *free_async_make(struct reference *reference, const struct step *step)
{
    const char *why = stream_is_usable(reference, step);
    if (why)
        return why;
    struct block *block = &reference->blocks[step->a];
    struct set before = order_before(reference, step->b);
    if (!is_over(block, &before))
        return "the block is in use";
    /* CUDA's own pool, when the device is full, waits for its frees as long as they take. */
    if (block->bytes < reference->setting.page_bytes && !order_is_clear(reference, &before))
        return "the driver might wait for it for ever";
    block->fence = order_queue(reference, step->b, NULL)->before;
    block->fence_context = reference->streams[step->b].context;
    block->is_parked = false;
    block->state = BLOCK_FREED;
    return NULL;
}

const char *memory_make(struct reference *reference, const struct step *step)
{
    if (step->kind == STEP_MALLOC || step->kind == STEP_MALLOC_ASYNC)
        return malloc_make(reference, step);
    if (step->a >= BLOCKS_MAX || reference->blocks[step->a].state != BLOCK_LIVE)
        return "no such block";
    if (capture_forbids(reference, step->thread))
        return "a capture forbids it";
    return step->kind == STEP_FREE ? free_make(reference, step) : free_async_make(reference, step);
}

void reference_lose_block(struct reference *reference, unsigned block)
{
    reference->blocks[block].state = BLOCK_ABSENT;
}
