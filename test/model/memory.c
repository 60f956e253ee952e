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

uint64_t reference_granules(const struct setting *setting, uint64_t bytes)
{
    bool is_passed = bytes < setting->page_bytes && !setting->serves_small;
    uint64_t unit = is_passed ? GRANULE : setting->page_bytes;
    return (bytes + unit - 1) / unit * (unit / GRANULE);
}

static bool is_taken(const struct reference *reference, const struct block *block)
{
    if (block->state != BLOCK_FREED || !block->is_parked)
        return block->state == BLOCK_LIVE || block->state == BLOCK_ABSENT ||
               block->state == BLOCK_COMING ||
               (block->state == BLOCK_FREED && !order_is_clear(reference, &block->fence));
    struct set fence = order_of_context(reference, block->fence_context);
    /* An old driver's waits until somebody waits for its context. */
    return reference->setting.is_old || capture_is_open(reference) ||
           !order_is_clear(reference, &fence);
}

static uint64_t scratch_granules(const struct graph *graph)
{
    uint64_t granules = 0;
    for (unsigned i = 0; i < graph->n; i++)
        granules += graph->nodes[i].is_scratch ? SCRATCH_GRANULES : 0;
    return granules;
}

static uint64_t sum_of(const struct reference *reference, unsigned device,
                       bool (*counts)(const struct reference *, const struct block *))
{
    uint64_t granules = 0;
    for (unsigned i = 0; i < BLOCKS_MAX; i++) {
        const struct block *block = &reference->blocks[i];
        if (block->device == device && counts(reference, block))
            granules += reference_granules(&reference->setting, block->bytes);
    }
    return granules;
}

uint64_t reference_taken(const struct reference *reference, unsigned device)
{
    uint64_t granules = sum_of(reference, device, is_taken);
    for (unsigned i = 0; i < GRAPHS_MAX; i++)
        granules += scratch_granules(&reference->graphs[i]) +
                    scratch_granules(&reference->captures[i].graph);
    return granules;
}

static bool is_live(const struct reference *reference, const struct block *block)
{
    (void)reference;
    return block->state == BLOCK_LIVE || block->state == BLOCK_COMING;
}

uint64_t reference_live(const struct reference *reference, unsigned device)
{
    return sum_of(reference, device, is_live);
}

static bool is_late(const struct reference *reference, const struct block *block)
{
    if (block->state != BLOCK_FREED || is_taken(reference, block))
        return false;
    if (block->freed_on != NOBODY)
        return !order_is_clear(reference, &reference->streams[block->freed_on].tail);
    struct set all = order_of_context(reference, block->fence_context);
    return !order_is_clear(reference, &all);
}

uint64_t reference_late(const struct reference *reference, unsigned device)
{
    return sum_of(reference, device, is_late);
}

static bool has_passed(const struct reference *reference, const struct block *block)
{
    (void)reference;
    return block->state == BLOCK_FREED && block->may_pass;
}

uint64_t reference_passed(const struct reference *reference, unsigned device)
{
    return sum_of(reference, device, has_passed);
}

static bool may_share(const struct reference *reference, const struct block *block)
{
    return reference->setting.serves_small && block->bytes % reference->setting.page_bytes;
}

static bool shares_and_lives(const struct reference *reference, const struct block *block)
{
    return may_share(reference, block) && is_live(reference, block);
}

static bool shared_and_freed(const struct reference *reference, const struct block *block)
{
    return may_share(reference, block) && block->state == BLOCK_FREED &&
           !is_taken(reference, block);
}

static bool freed_while_capturing(const struct reference *reference, const struct block *block)
{
    return shared_and_freed(reference, block) && !block->is_settled;
}

/* A slab may have as much room again as its blocks take, and one that is emptied while a stream
 * captures may wait for the end of the captures. */
uint64_t reference_shared(const struct reference *reference, unsigned device)
{
    uint64_t live = sum_of(reference, device, shares_and_lives);
    if (live)
        return live + sum_of(reference, device, shared_and_freed);
    return capture_is_open(reference) ? sum_of(reference, device, freed_while_capturing) : 0;
}

void reference_settle(struct reference *reference)
{
    for (unsigned i = 0; i < BLOCKS_MAX; i++) {
        struct block *block = &reference->blocks[i];
        block->is_settled = block->state == BLOCK_FREED && !is_taken(reference, block);
    }
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

static bool has_room(const struct reference *reference, unsigned device, uint64_t bytes)
{
    const struct setting *setting = &reference->setting;
    return setting->is_full ||
           (reference_taken(reference, device) + reference_granules(setting, bytes)) * 100 <=
               setting->device_pages * share_percent(reference);
}

/* cudaMalloc waits beside a cudaFree of its own context that another thread waits in. */
static bool waits_beside_a_free(const struct reference *reference, unsigned context)
{
    for (unsigned i = 0; i < THREADS_MAX; i++)
        if (reference->threads[i].is_away && reference->threads[i].is_freeing &&
            reference->threads[i].freed_context == context)
            return true;
    return false;
}

static const char *check_malloc(const struct reference *reference, const struct step *step,
                                unsigned block, unsigned *context_out)
{
    unsigned context = reference->threads[step->thread].context;
    if (block >= BLOCKS_MAX || reference->blocks[block].state != BLOCK_NEW)
        return "the block has been";
    if (context == CONTEXTS_MAX || step->n < 8 || (step->kind == STEP_MALLOC_PITCH && !step->c))
        return "no context, or no bytes";
    if (capture_forbids(reference, step->thread))
        return "a capture forbids it";
    if (step_is_malloc_async(step->kind)) {
        const char *why = stream_is_usable(reference, step);
        if (why)
            return why;
        context = reference->streams[step->b].context;
    } else if (waits_beside_a_free(reference, context)) {
        return "it would wait beside a free";
    }
    *context_out = context;
    return has_room(reference, reference->contexts[context].device, step_bytes(step))
               ? NULL
               : "the device has too little left";
}

static bool is_pool_of(const struct reference *reference, unsigned number, unsigned context)
{
    return number < POOLS_MAX && reference->pools[number].is_alive &&
           reference->pools[number].device == reference->contexts[context].device;
}

/* Whether it is of a pool that the program made. */
static bool is_pooled(const struct reference *reference, const struct step *step, unsigned device)
{
    return step->kind == STEP_MALLOC_POOL ||
           (step->kind == STEP_MALLOC_ASYNC && reference->current_pools[device] != POOLS_MAX);
}

static const char *malloc_make(struct reference *reference, const struct step *step)
{
    unsigned context;
    const char *why = check_malloc(reference, step, step->a, &context);
    if (why)
        return why;
    if (step->kind == STEP_MALLOC_POOL && !is_pool_of(reference, step->c, context))
        return "no such pool on the device";
    struct block *block = &reference->blocks[step->a];
    unsigned device = reference->contexts[context].device;
    *block = (struct block){.state = BLOCK_LIVE,
                            .is_async = step_is_malloc_async(step->kind),
                            .is_pooled = is_pooled(reference, step, device),
                            .may_pass = step->kind == STEP_MALLOC_PITCH ||
                                        step->n < reference->setting.page_bytes,
                            .context = context,
                            .device = device,
                            .bytes = step_bytes(step)};
    if (block->is_async) {
        /* It comes after the legacy stream's work where CUDA's pool has to look for memory: neither
         * on the legacy stream itself, nor where it is refused, nor where it takes what the stream
         * freed or what nobody had yet. */
        struct set own = order_own(reference, step->b);
        struct set before = order_before(reference, step->b);
        struct operation *operation = order_queue(reference, step->b, &own);
        operation->is_unsure =
            !reference->streams[step->b].is_legacy && !set_has_all(&own, &before);
        block->born = operation->before;
    }
    return NULL;
}

/* Its allocation, too: before that, other work may use the memory. */
static bool is_over(const struct block *block, const struct set *over)
{
    return set_has_all(over, &block->uses) && set_has_all(over, &block->born);
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
        if (!host_may_wait(reference, step->thread, &fence))
            return "it would wait for ever";
        set_add(&over, &fence);
    }
    if (!is_over(block, &over))
        return "the block is in use";
    if (!block->is_async) {
        host_wait(reference, step->thread, &fence);
        reference->threads[step->thread].is_freeing = true;
        reference->threads[step->thread].freed_context = owner;
        /* The library's cudaFree waits only where it is asked to, and not beside a capture. */
        reference->threads[step->thread].proves =
            reference->setting.free_waits && !capture_is_open(reference);
    }
    block->fence = fence;
    block->fence_context = owner;
    block->freed_on = NOBODY;
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
    block->freed_on = step->b;
    block->is_parked = false;
    block->state = BLOCK_FREED;
    return NULL;
}

bool memory_finish(struct reference *reference, const struct step *step)
{
    if (waits_beside_a_free(reference, reference->threads[step->thread].context))
        return false;
    reference->blocks[step->c].state = BLOCK_LIVE;
    return true;
}

/* A cudaFree and then a cudaMalloc, which nothing comes between. */
static const char *exchange_make(struct reference *reference, const struct step *step)
{
    unsigned context;
    const char *why = check_malloc(reference, step, step->c, &context);
    if (!why && (step->a == step->c || reference->blocks[step->a].is_async))
        why = "not a block of cudaMalloc";
    if (!why)
        why = free_make(reference, step);
    if (why)
        return why;
    reference->blocks[step->c] = (struct block){.state = BLOCK_COMING,
                                                .context = context,
                                                .device = reference->contexts[context].device,
                                                .bytes = step->n};
    reference->threads[step->thread].then = *step;
    return NULL;
}

/* A graph's own memory may lie where a freed block lay. */
static bool has_graphs(const struct reference *reference)
{
    for (unsigned i = 0; i < GRAPHS_MAX; i++)
        if (reference->graphs[i].is_alive || reference->captures[i].is_open)
            return true;
    return false;
}

/* A free that CUDA refuses, with nothing changed. */
static const char *wrong_make(const struct reference *reference, const struct step *step)
{
    if (step->a >= BLOCKS_MAX || step->n >= WRONG_FREES)
        return "no such block, or no such way";
    bool is_captured = step->n == WRONG_CAPTURED;
    bool is_async = step->n == WRONG_INSIDE_ASYNC || step->n == WRONG_AGAIN_ASYNC;
    bool is_again = step->n == WRONG_AGAIN || step->n == WRONG_AGAIN_ASYNC;
    const char *why = NULL;
    if (is_captured)
        why = stream_is_known(reference, step);
    else if (is_async)
        why = stream_is_usable(reference, step);
    if (why)
        return why;
    if (reference->threads[step->thread].context == CONTEXTS_MAX ||
        (!is_captured && capture_forbids(reference, step->thread)))
        return "no context, or a capture forbids it";
    if (is_captured && reference->streams[step->b].capture == NOBODY)
        return "the stream does not capture";
    if (is_again && has_graphs(reference))
        return "the address may be a graph's";
    return reference->blocks[step->a].state == (is_again ? BLOCK_FREED : BLOCK_LIVE)
               ? NULL
               : "no such block";
}

const char *memory_make(struct reference *reference, const struct step *step)
{
    if (step_is_malloc(step->kind))
        return malloc_make(reference, step);
    if (step->kind == STEP_FREE_WRONG)
        return wrong_make(reference, step);
    if (step->a >= BLOCKS_MAX || reference->blocks[step->a].state != BLOCK_LIVE)
        return "no such block";
    if (capture_forbids(reference, step->thread))
        return "a capture forbids it";
    if (step->kind == STEP_EXCHANGE)
        return exchange_make(reference, step);
    return step->kind == STEP_FREE ? free_make(reference, step) : free_async_make(reference, step);
}

void reference_lose(struct reference *reference, const struct step *step)
{
    if (step->kind == STEP_SCRATCH)
        capture_lose_node(reference, step->b);
    else
        reference->blocks[step->kind == STEP_EXCHANGE ? step->c : step->a].state = BLOCK_ABSENT;
}
