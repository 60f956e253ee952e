/* SPDX-License-Identifier: MIT */
/* A heap of a few pages: edits beside each other, beside a peer that is added, and beside failures.
 */
#include "cases.h"

#include "stage.h"

#define GROUP "heap"

#define STREAM 1
#define PEER 1

static struct world {
    struct stage_heap *stage;
    uint64_t block; /* a live page that was there before */
    uint64_t address[SCHEDULE_THREADS];
    bool is_failing; /* one call fails */
    bool adds_peer;
    uint64_t live; /* pages that must be live in the end */
} * world;

static void prepare(uint64_t device_pages, uint64_t mapped, uint64_t live_pages)
{
    world = schedule_room(sizeof *world);
    world->stage = stage_heap(device_pages, mapped);
    for (uint64_t i = 0; i < live_pages; i++)
        world->block = stage_malloc(world->stage, 1, 0);
}

static void prepare_empty(void)
{
    prepare(3, 0, 0);
    world->live = 2;
}

static void prepare_block(void)
{
    prepare(3, 1, 1);
    world->live = 1;
}

/* Two free pages that do not touch, so that two pages in a row have to be moved. */
static void prepare_holey(void)
{
    prepare(6, 3, 0);
    uint64_t first = stage_malloc(world->stage, 1, 0);
    (void)stage_malloc(world->stage, 1, 0);
    world->block = stage_malloc(world->stage, 1, 0);
    expect(!stage_heap_free(world->stage, first, 1, 0));
    vpmm_heap_reap(world->stage->heap);
    world->live = 4;
}

static void prepare_holey_block(void)
{
    prepare_holey();
    world->live = 3;
}

static void prepare_freed(void)
{
    prepare(3, 3, 0);
    world->live = 0;
}

static void prepare_last_block(void)
{
    prepare(3, 1, 1);
    world->live = 0;
}

static void fail_once(enum device_call call)
{
    world->stage->device->fails = call;
    world->stage->device->fails_nth = 1;
    world->stage->device->failure = VPMM_FAILED;
    world->is_failing = true;
}

static void prepare_failing_create(void)
{
    prepare(3, 0, 0);
    fail_once(CALL_EXTENT_CREATE);
    world->live = 1;
}

static void prepare_failing_access(void)
{
    prepare(3, 0, 0);
    fail_once(CALL_SET_ACCESS);
    world->live = 1;
}

static void prepare_peer(void)
{
    prepare(3, 1, 1);
    world->adds_peer = true;
    world->live = 2;
}

static void prepare_peer_block(void)
{
    prepare_peer();
    world->live = 0;
}

static void prepare_freed_peer(void)
{
    prepare(3, 2, 0);
    world->adds_peer = true;
}

static void prepare_failing_peer(void)
{
    prepare(3, 1, 1);
    fail_once(CALL_SET_ACCESS);
}

/* ---- threads ---- */

static void malloc_one(void)
{
    uint64_t address = stage_malloc(world->stage, 1, 0);
    expect(address || world->is_failing);
    world->address[schedule_thread()] = address;
}

static void malloc_two(void)
{
    uint64_t address = stage_malloc(world->stage, 2, 0);
    expect(address || world->is_failing);
    world->address[schedule_thread()] = address;
}

static void malloc_and_free(void)
{
    malloc_one();
    expect(!stage_heap_free(world->stage, world->address[schedule_thread()], 1, 0));
}

static void free_block(void)
{
    expect(!stage_heap_free(world->stage, world->block, 1, 0));
}

static void free_block_async(void)
{
    expect(!stage_heap_free(world->stage, world->block, 1, STREAM));
}

static void malloc_async(void)
{
    expect(stage_malloc(world->stage, 1, STREAM));
}

static void trim(void)
{
    (void)vpmm_heap_trim(world->stage->heap, UINT64_MAX);
}

static void reap(void)
{
    vpmm_heap_reap(world->stage->heap);
}

static void add_peer(void)
{
    enum vpmm_status status = vpmm_heap_add_peer(world->stage->heap, PEER);
    expect(!status || world->is_failing);
    world->adds_peer = !status;
}

/* ---- afterwards ---- */

/* Every device that was promised access has it, to all pages and to no fewer. */
static void check_access(void)
{
    const struct gpu *device = world->stage->device;
    uint64_t promised = world->adds_peer ? 1 | 1 << PEER : 1;
    for (int i = 0; i < DEVICE_PAGES; i++)
        if (device->pages[i].extent)
            expect((device->pages[i].devices & promised) == promised);
}

static void check(void)
{
    struct vpmm_pool_totals totals;
    for (int i = 0; i < DEVICE_STREAMS; i++)
        device_finish(world->stage->device, i);
    vpmm_heap_reap(world->stage->heap);
    totals = stage_totals(world->stage);
    check_access();
    expect(totals.live_pages == world->live && totals.held_pages >= world->live);
    expect(totals.zombie_pages == 0 && totals.quarantined_pages == 0);
    stage_heap_check(world->stage);
}

/* The pages of the one that failed are not there, the other's are. */
static void check_failing_peer(void)
{
    world->live = 1 + (world->address[0] != 0);
    check();
}

const struct schedule_case cases_heap[] = {
    SCHEDULE_TEST(two_grow, prepare_empty, {malloc_one, malloc_one}, check),
    SCHEDULE_TEST(grow_beside_a_free, prepare_block, {malloc_one, free_block}, check),
    SCHEDULE_TEST(stitch_beside_a_free, prepare_holey_block, {malloc_two, free_block}, check),
    SCHEDULE_TEST(stitch_beside_a_trim, prepare_holey, {malloc_two, trim}, check),
    SCHEDULE_TEST(grow_beside_a_trim, prepare_block, {malloc_and_free, trim}, check),
    SCHEDULE_TEST(free_beside_a_trim, prepare_last_block, {free_block, trim}, check),
    SCHEDULE_TEST(two_trims, prepare_freed, {trim, trim}, check),
    SCHEDULE_TEST(async_pair, prepare_block, {free_block_async, malloc_async}, check),
    SCHEDULE_TEST(failed_create, prepare_failing_create, {malloc_one, malloc_one}, check),
    SCHEDULE_TEST(failed_access, prepare_failing_access, {malloc_one, malloc_one}, check),
    SCHEDULE_TEST(peer_beside_growth, prepare_peer, {malloc_one, add_peer}, check),
    SCHEDULE_TEST(peer_twice_beside_growth, prepare_peer, {malloc_one, add_peer, add_peer}, check),
    SCHEDULE_TEST(peer_beside_a_free, prepare_peer_block, {free_block, add_peer}, check),
    SCHEDULE_TEST(peer_beside_a_trim, prepare_freed_peer, {trim, add_peer}, check),
    SCHEDULE_TEST(failed_peer, prepare_failing_peer, {malloc_one, add_peer}, check_failing_peer),
    SCHEDULE_TEST(reap_beside_a_stitch, prepare_holey, {malloc_two, reap}, check),
    {0},
};
