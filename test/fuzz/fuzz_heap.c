/* SPDX-License-Identifier: MIT */
/* Bytes become a program on one heap over the simulated device: requests and frees of both kinds,
 * kernels, spinning kernels, contexts that die, captures, a second device, faults of the driver and
 * of metadata. The device is adversarial and strict, kernels check bytes, and the audit runs after
 * every step. */
#include "heap_world.h"
#include "input.h"

static struct world world;
static struct input input;
static bool is_relaxed;

/* ---- operations ---- */

static const struct world_lane *some_lane(uint64_t choice)
{
    return choice & 0x80 ? NULL : &world.lanes[choice % 7];
}

/* Now and then something is to fail in the next call of the heap. */
static void op_trouble(void)
{
    uint64_t what = input_byte(&input);
    world_expect_trouble(&world, what % 32, 1 + what / 64, what & 32);
}

/* Whether the heap may refuse so many pages. What the device itself still has serves anybody,
 * unless this very call runs into trouble; on an undisturbed device, with pages that can all be
 * moved, only a request beyond the device fails. */
static bool may_refuse(uint64_t pages)
{
    if (world.fault || world.map_nth)
        return true;
    if (world_device_free_pages(&world) >= pages)
        return false;
    if (world.was_disturbed || world.was_map_refused || world.n_open_gates < world.n_gates ||
        world.has_large_extents)
        return true;
    return fixture_totals(&world.fixture).live_pages + pages > WORLD_DEVICE_PAGES;
}

static void op_malloc(void)
{
    uint64_t pages = 1 + input_below(&input, 14);
    uint64_t choice = input_byte(&input);
    if (world.n_blocks == WORLD_BLOCKS)
        return;
    bool has_trouble = world.fault || world.map_nth;
    bool is_allowed = may_refuse(pages);
    enum vpmm_status status =
        world_malloc(&world, pages, some_lane(choice), choice & 1 ? WORLD_SECOND : WORLD_MAIN);
    if (status && (!is_allowed || (status != VPMM_NO_MEMORY && !has_trouble)))
        fail_msg("status %d for %d pages, device has %d and %d are live, %s%s%s in %s", status,
                 (int)pages, (int)world_device_free_pages(&world),
                 (int)fixture_totals(&world.fixture).live_pages,
                 world.was_disturbed ? "disturbed, " : "",
                 world.was_map_refused ? "after a refused map, " : "",
                 world.has_large_extents ? "extents of several pages" : "extents of one page",
                 fixture_layout(&world.fixture));
    if (!status && choice & 0x40)
        world_use(&world, &world.blocks[world.n_blocks - 1], &world.lanes[choice % 7], true, false);
}

static void op_use(void)
{
    uint64_t which = input_byte(&input);
    uint64_t choice = input_byte(&input);
    if (world.n_blocks)
        world_use(&world, &world.blocks[which % world.n_blocks], &world.lanes[choice % WORLD_LANES],
                  choice & 0x40, choice >= 0xe0);
}

static void op_free(void)
{
    uint64_t which = input_byte(&input);
    uint64_t choice = input_byte(&input);
    if (world.n_blocks)
        world_free(&world, which % world.n_blocks, some_lane(choice));
}

/* Frees of what is not the start of a live block. */
static void op_wrong_free(void)
{
    enum vpmm_status wait;
    uint64_t which = input_byte(&input);
    uint64_t offset = 1 + input_byte(&input) * 64;
    if (!world.n_blocks)
        return;
    const struct block *block = &world.blocks[which % world.n_blocks].block;
    if (offset < block->pages * world.fixture.page_bytes)
        SAME(VPMM_NOT_FOUND,
             vpmm_heap_free(world.fixture.heap, block->address + offset, NULL, &wait));
    SAME(VPMM_NOT_FOUND, vpmm_heap_free(world.fixture.heap, offset, NULL, &wait));
}

static void op_advance(void)
{
    uint64_t what = input_byte(&input);
    switch (what % 4) {
    case 0:
        world_open(&world);
        break;
    case 1:
        if (what >= 0xc0)
            world_settle(&world);
        else
            (void)sim_drain_stream(world.fixture.sim, world.lanes[what / 4 % 2].stream);
        break;
    default:
        for (uint64_t i = 0; i < what / 4 && sim_step(world.fixture.sim); i++)
            ;
    }
}

static void op_give_back(void)
{
    world_give_back(&world, input_byte(&input) * world.fixture.page_bytes / 8);
}

static void op_context(void)
{
    uint64_t what = input_byte(&input);
    if (what % 4 == 0)
        world_replace_context(&world, what & 0x80);
    else if (what % 4 == 1 && !world.has_peer)
        world_add_peer(&world);
}

static void op_capture(void)
{
    uint64_t mode = input_byte(&input) % 3;
    if (world.is_capturing)
        world_end_capture(&world);
    else
        world_begin_capture(&world, mode == 0    ? CU_STREAM_CAPTURE_MODE_RELAXED
                                    : mode == 1  ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
                                    : is_relaxed ? CU_STREAM_CAPTURE_MODE_GLOBAL
                                                 : CU_STREAM_CAPTURE_MODE_RELAXED);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const operations[16])(void) = {
        op_malloc,    op_malloc,  op_malloc,  op_malloc,     op_free,    op_free,
        op_free,      op_use,     op_use,     op_use,        op_advance, op_context,
        op_give_back, op_capture, op_trouble, op_wrong_free,
    };
    input = (struct input){data, data + bytes};
    uint64_t extent_pages_max = input_below(&input, 9);
    uint64_t seed = input_byte(&input);
    is_relaxed = seed & 2;
    world_setup(&world, extent_pages_max, is_relaxed, seed);
    while (!input_is_over(&input)) {
        operations[input_below(&input, 16)]();
        world_check(&world);
    }
    world_teardown(&world);
    return 0;
}
