/* SPDX-License-Identifier: MIT */
/* Bytes become a program on a heap with its layer of small blocks: requests and frees of every kind
 * and size, work that is held up, streams and contexts that end, other processes, limits, trims and
 * metadata that cannot be had. The device is adversarial and reports work that nothing orders, and
 * the audit runs after every step. Where the bytes end, the program goes on by dice that all of
 * them have cast: so a few bytes are a seed. */
#include "input.h"
#include "small_world.h"

static struct world world;
static struct input input;
static uint64_t dice;

/* What the program does alike throughout. */
static bool has_gates;
static uint64_t context_life;       /* the second context ends at one of so many chances */
static uint64_t n_sizes;            /* so many kinds of sizes occur, small ones first */
static uint64_t n_advances;         /* the device does fewer pieces of work at a time */
static uint64_t n_mallocs, n_frees; /* so many of the decisions, beside others[] */

/* ---- decisions ---- */

/* FNV-1a. */
static uint64_t hash(const uint8_t *data, size_t bytes)
{
    uint64_t mixed = 0xcbf29ce484222325;
    for (size_t i = 0; i < bytes; i++)
        mixed = (mixed ^ data[i]) * 0x100000001b3;
    return mixed;
}

/* Vigna's xorshift64*. */
static uint64_t throw_dice(void)
{
    dice ^= dice >> 12;
    dice ^= dice << 25;
    dice ^= dice >> 27;
    return dice * 0x2545f4914f6cdd1d >> 56;
}

static uint64_t next_byte(void)
{
    return input_is_over(&input) ? throw_dice() : input_byte(&input);
}

/* A number below `limit`, which is at most 65536. */
static uint64_t below(uint64_t limit)
{
    uint64_t number = next_byte();
    if (limit > 256)
        number = number << 8 | next_byte();
    return number % limit;
}

static bool one_in(uint64_t n)
{
    return below(n) == 0;
}

static struct world_lane *some_lane(void)
{
    return &world.lanes[below(WORLD_LANES)];
}

static enum world_context some_context(void)
{
    return one_in(2) ? WORLD_SECOND : WORLD_MAIN;
}

static uint64_t some_bytes(void)
{
    uint64_t pages;
    switch (below(n_sizes)) {
    case 0:
        return 1 + below(4000);
    case 1:
        return 1 + below(WORLD_PAGE_BYTES - 1);
    case 2:
        pages = 1 + below(6);
        return pages * WORLD_PAGE_BYTES + 1 + below(WORLD_PAGE_BYTES - 1);
    case 3:
        return WORLD_PAGE_BYTES * (1 + below(4));
    default:
        return WORLD_PAGE_BYTES * (1 + below(14));
    }
}

/* ---- operations ---- */

static void use(struct world_block *block, const struct world_lane *lane)
{
    world_use(&world, block, lane, has_gates && one_in(6));
}

static void op_malloc(void)
{
    const struct world_lane *lane = one_in(3) ? NULL : some_lane();
    enum world_context context = some_context();
    uint64_t bytes = some_bytes();
    bool is_warm = !one_in(3);
    if (world.n_blocks == WORLD_BLOCKS)
        return;
    struct world_block *block = world_malloc(&world, bytes, lane, context, is_warm);
    if (block)
        use(block, lane && !one_in(3) ? lane : some_lane());
}

static void op_free(void)
{
    size_t which = below(WORLD_BLOCKS);
    const struct world_lane *lane = one_in(3) ? NULL : some_lane();
    enum world_context context = some_context();
    bool is_warm = !one_in(3);
    if (world.n_blocks)
        world_free(&world, which % world.n_blocks, lane, context, is_warm);
}

static void op_use(void)
{
    size_t which = below(WORLD_BLOCKS);
    const struct world_lane *lane = some_lane();
    if (world.n_blocks)
        use(&world.blocks[which % world.n_blocks], lane);
}

static void op_await(void)
{
    size_t which = below(WORLD_BLOCKS);
    bool proves = one_in(2);
    if (world.n_blocks)
        world_await(&world, &world.blocks[which % world.n_blocks], proves);
}

static void op_advance(void)
{
    for (uint64_t n = below(n_advances); n && sim_step(world.scene.f.sim); n--)
        ;
}

static void op_open(void)
{
    world_open(&world);
}

static void op_synchronize(void)
{
    uint64_t what = below(4);
    world_synchronize(&world, some_lane(), what == 0, what >= 2);
}

static void op_stream(void)
{
    world_replace_stream(&world, some_lane());
}

static void op_context(void)
{
    if (!one_in(context_life))
        return;
    world_replace_context(&world, one_in(8));
    /* A new stream may take over what those of the context had. */
    if (one_in(2))
        world_replace_stream(&world, some_lane());
}

static void op_export(void)
{
    size_t which = below(WORLD_BLOCKS);
    uint64_t n_leases = below(3);
    if (world.n_blocks)
        world_export(&world, &world.blocks[which % world.n_blocks], n_leases);
}

static void op_unlease(void)
{
    size_t which = below(WORLD_LEASES);
    if (world.n_leases)
        world_unlease(&world, which % world.n_leases);
}

static void op_reap(void)
{
    if (one_in(2))
        vpmm_heap_gather(world.scene.f.heap);
    else
        vpmm_heap_reap(world.scene.f.heap);
}

static void op_give_back(void)
{
    uint64_t pages = below(30);
    if (one_in(4))
        vpmm_heap_mempool_trim(world.scene.f.heap, &world.mempool, pages * WORLD_PAGE_BYTES,
                               one_in(2));
    else
        (void)vpmm_heap_trim(world.scene.f.heap, pages * WORLD_PAGE_BYTES);
}

static void op_decay(void)
{
    uint64_t pages = below(20);
    if (one_in(3))
        (void)vpmm_heap_decay_slice(world.scene.f.heap, pages * WORLD_PAGE_BYTES);
    else
        vpmm_heap_decay_look(world.scene.f.heap, one_in(2));
}

static void op_limit(void)
{
    struct vpmm_mempool_figures figures;
    uint64_t pages = below(10);
    vpmm_heap_mempool_figures(world.scene.f.heap, &world.mempool, &figures);
    if (world.limit_pages)
        world_set_aside(&world, pages * WORLD_PAGE_BYTES);
}

/* Metadata cannot be had in the next malloc or free. */
static void op_trouble(void)
{
    world.map_nth = 1 + below(6);
}

/* ---- programs ---- */

static void choose_params(struct fixture_params *params)
{
    world_params(params);
    params->sim.device_bytes = (40 + below(80)) * WORLD_PAGE_BYTES;
    params->sim.seed = next_byte();
    params->sim.reuse_handles = one_in(2);
    params->sim.query_progress = 1 + (unsigned)below(4);
    params->heap.root_bytes = 2 * params->sim.device_bytes;
    params->heap.extent_pages_max = one_in(2) ? 1 : below(9);
    params->heap.slack_bytes = below(12) * WORLD_PAGE_BYTES;
    params->heap.slack_percent = 10 * below(2);
    params->heap.spare_percent = 10 * below(3);
    params->heap.stream_waits = one_in(3);
    params->heap.free_waits = one_in(4);
    params->heap.exports_whole = one_in(5);
    params->heap.eager_pages = one_in(3) ? below(40) : 0;
    params->heap.limit_bytes = one_in(3) ? (20 + below(30)) * WORLD_PAGE_BYTES : 0;
}

/* One after the other, because compilers choose the order within an expression. */
static void choose_habits(struct world_habits *habits)
{
    habits->free_waits = one_in(2);
    habits->tells_events = !one_in(4);
    habits->has_wide = one_in(2);
    habits->asks_mempool = one_in(6);
    has_gates = !one_in(3);
    context_life = one_in(2) ? 1 : 8;
    n_sizes = 1 + below(5);
    n_advances = one_in(2) ? 20 : 4;
    n_mallocs = 20 + below(40);
    n_frees = 20 + below(40);
}

static void (*const others[])(void) = {
    op_use,     op_use,         op_use,         op_use,         op_use,     op_advance,
    op_advance, op_advance,     op_advance,     op_advance,     op_advance, op_await,
    op_open,    op_synchronize, op_synchronize, op_synchronize, op_stream,  op_stream,
    op_stream,  op_context,     op_context,     op_export,      op_unlease, op_reap,
    op_reap,    op_give_back,   op_decay,       op_decay,       op_limit,   op_trouble,
};
#define OTHERS (sizeof others / sizeof others[0])

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fixture_params params;
    struct world_habits habits;
    input = (struct input){data, data + bytes};
    dice = hash(data, bytes) | 1;
    uint64_t n_steps = 2 * next_byte();
    choose_params(&params);
    choose_habits(&habits);
    world_setup(&world, &params, &habits);
    world_check(&world);
    for (; n_steps; n_steps--) {
        uint64_t choice = below(n_mallocs + n_frees + OTHERS);
        if (choice < OTHERS)
            others[choice]();
        else if (choice < OTHERS + n_mallocs)
            op_malloc();
        else
            op_free();
        world_check(&world);
    }
    world_teardown(&world);
    return 0;
}
