/* SPDX-License-Identifier: MIT */
/* What an operation costs in a pool of 1,000,000 live regions is at most twice what it costs in one
 * of 10,000: counted in steps (base/step.h), not in time. Beside the live regions there are free
 * ones, complete, pending on several streams and on nobody's, some that can grow, zombies, some of
 * which wait for ever, and holes, all in proportion. */
#include "pool/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PAGE_BYTES ((uint64_t)2 << 20)
#define BASE ((uint64_t)1 << 40)
#define ROOT_PAGES ((uint64_t)1 << 23)
#define MAPPINGS_MAX ((1u << 20) - 1)

#define EXTENT 4 /* pages of each */
#define STREAMS 8
#define NOBODY 99 /* a stream that left nothing pending */
#define ROUNDS 20

/* A path through a tree is short or long by the chance of its records' numbers; in each of so many
 * pools all regions have others. */
#define POOLS 8

/* A cell is 8 pages of small live regions and one or two extents of this kind. */
enum kind {
    COMPLETE,
    PENDING,      /* on one of the streams */
    MIXED,        /* pending on nobody's stream */
    IDLE_ZOMBIE,  /* shows what is live elsewhere */
    STUCK_ZOMBIE, /* the same, and waits */
    HOLE,
    GROWABLE,     /* complete, with a hole at its right */
    OWN_GROWABLE, /* the same, pending on a stream */
    KINDS
};

static const uint64_t live_sizes[] = {1, 1, 1, 1, 2, 2};
#define LIVE_IN_CELL (sizeof live_sizes / sizeof live_sizes[0])

enum operation {
    FIT_EXACT,
    FIT_BEST,
    FIT_OWN,
    FREE,
    FREE_AND_MERGE,
    SETTLE,
    STITCH,
    EXTEND,
    REVIVE,
    TAKE_ZOMBIES,
    TAKE_EXTENTS,
    RELEASABLE,
    TOTALS,
    FIND,
    CLAIM,
    OPERATIONS
};

static const char *const names[OPERATIONS] = {
    [FIT_EXACT] = "an exact fit",
    [FIT_BEST] = "a best fit",
    [FIT_OWN] = "a fit of the own stream",
    [FREE] = "a free",
    [FREE_AND_MERGE] = "a free that merges",
    [SETTLE] = "settling one completion",
    [STITCH] = "a stitch of four extents",
    [EXTEND] = "an extension in place",
    [REVIVE] = "a revival",
    [TAKE_ZOMBIES] = "taking zombies",
    [TAKE_EXTENTS] = "taking extents",
    [RELEASABLE] = "the releasable pages",
    [TOTALS] = "the totals",
    [FIND] = "finding by address",
    [CLAIM] = "a claim",
};

unsigned long vpmm_test_steps;

struct scene {
    struct vpmm_pool *pool;
    uint64_t n_cells;
    uint64_t *fragments; /* by cell: the address behind the small live regions */
    vpmm_fence *fences;  /* by cell: of the fragment, where it is pending */
    vpmm_fence last_fence;
    vpmm_fence completed; /* the one fence that is complete */
    uint64_t last_handle;
    uint64_t steps[OPERATIONS];
};

static struct scene scene;

/* The stream of a fence is told by its number, and 0 is nobody. */
static uint64_t stream_of(vpmm_fence fence)
{
    return fence % (STREAMS + 1);
}

static vpmm_fence fence_of(uint64_t stream)
{
    do
        scene.last_fence++;
    while (stream_of(scene.last_fence) != stream);
    return scene.last_fence;
}

static enum vpmm_verdict ask(void *self, vpmm_fence fence)
{
    const uint64_t *stream = self;
    if (fence == VPMM_FENCE_NONE || fence == scene.completed)
        return VPMM_VERDICT_COMPLETE;
    return *stream && *stream == stream_of(fence) ? VPMM_VERDICT_ORDERED : VPMM_VERDICT_PENDING;
}

/* Parts of one stream: the later one comes after the other. */
static vpmm_fence join(void *self, vpmm_fence a, vpmm_fence b)
{
    (void)self;
    assert_int_equal(stream_of(a), stream_of(b));
    return a > b ? a : b;
}

static struct vpmm_want want(uint64_t pages, uint64_t stream)
{
    static struct vpmm_fence_view view;
    static uint64_t asking;
    asking = stream;
    view = (struct vpmm_fence_view){&asking, ask, join};
    return (struct vpmm_want){.pages = pages,
                              .owner = {.bytes = pages, .stream_id = stream},
                              .view = &view,
                              .create_pages_max = UINT64_MAX};
}

static uint64_t carry_out(struct vpmm_plan *plan)
{
    uint64_t address;
    for (uint32_t i = 0; i < plan->n_steps; i++)
        if (plan->steps[i].kind == VPMM_STEP_CREATE)
            plan->steps[i].extent = ++scene.last_handle;
    vpmm_pool_commit(scene.pool, plan, &address);
    return address;
}

static uint64_t fit(uint64_t pages, uint64_t stream)
{
    struct vpmm_want wanted = want(pages, stream);
    uint64_t address;
    assert_int_equal(vpmm_pool_fit(scene.pool, &wanted, &address), VPMM_OK);
    return address;
}

/* By moves alone. */
static uint64_t stitch(uint64_t pages, uint64_t stream)
{
    struct vpmm_want wanted = want(pages, stream);
    struct vpmm_plan *plan;
    assert_int_equal(vpmm_pool_plan(scene.pool, &wanted, &plan), VPMM_OK);
    assert_int_equal(plan->created_pages, 0);
    assert_true(plan->n_steps > 0);
    return carry_out(plan);
}

static void claim(uint64_t address)
{
    struct vpmm_region_view region;
    assert_int_equal(vpmm_pool_claim(scene.pool, address, &region), VPMM_OK);
}

static void release(uint64_t address, vpmm_fence fence)
{
    claim(address);
    vpmm_pool_free(scene.pool, address, fence, stream_of(fence));
}

static size_t take_zombies(size_t n)
{
    struct vpmm_removal removals[64];
    struct vpmm_want wanted = want(1, 0);
    size_t taken = vpmm_pool_take_zombies(scene.pool, wanted.view, removals, n);
    for (size_t i = 0; i < taken; i++)
        vpmm_pool_removal_done(scene.pool, &removals[i], VPMM_REMOVED);
    return taken;
}

static enum kind kind_of(uint64_t cell)
{
    return (enum kind)(cell % KINDS);
}

static uint64_t own_stream(uint64_t cell)
{
    return 1 + cell / KINDS % STREAMS;
}

/* ---- building ---- */

static void carve(uint64_t n_before)
{
    uint64_t pages = n_before;
    for (uint64_t i = 0; i < scene.n_cells; i++)
        pages += kind_of(i) >= GROWABLE ? 8 + 2 * EXTENT : 8 + EXTENT;
    struct vpmm_plan *plan;
    assert_int_equal(vpmm_pool_plan_growth(scene.pool, pages, &plan), VPMM_OK);
    (void)carry_out(plan);
    for (uint64_t i = 0; i < n_before; i++)
        (void)fit(1, NOBODY);
    for (uint64_t i = 0; i < scene.n_cells; i++) {
        for (size_t j = 0; j < LIVE_IN_CELL; j++)
            (void)fit(live_sizes[j], NOBODY);
        scene.fragments[i] = fit(EXTENT, NOBODY);
        if (kind_of(i) >= GROWABLE)
            (void)fit(EXTENT, NOBODY);
    }
}

/* Frees all fragments of a kind, which a stitch by `stream` then takes. */
static void make_zombies(enum kind kind, uint64_t offset_pages, uint64_t stream)
{
    uint64_t pages = 0;
    for (uint64_t i = 0; i < scene.n_cells; i++)
        if (kind_of(i) == kind) {
            release(scene.fragments[i] + offset_pages * PAGE_BYTES,
                    stream ? fence_of(stream) : VPMM_FENCE_NONE);
            pages += EXTENT;
        }
    (void)stitch(pages, stream ? stream : NOBODY);
}

static void free_fragments(void)
{
    for (uint64_t i = 0; i < scene.n_cells; i++) {
        enum kind kind = kind_of(i);
        uint64_t stream = kind == PENDING || kind == OWN_GROWABLE ? own_stream(i) : 0;
        if (kind == PENDING || kind == OWN_GROWABLE || kind == MIXED)
            scene.fences[i] = fence_of(stream);
        if (kind != IDLE_ZOMBIE && kind != STUCK_ZOMBIE && kind != HOLE)
            release(scene.fragments[i], scene.fences[i]);
    }
}

static void build(uint64_t n_live, uint64_t n_before)
{
    struct vpmm_pool_params params = {PAGE_BYTES, EXTENT, MAPPINGS_MAX, 0};
    memset(&scene, 0, sizeof scene);
    scene.n_cells = n_live / LIVE_IN_CELL;
    scene.fragments = calloc(scene.n_cells, sizeof *scene.fragments);
    scene.fences = calloc(scene.n_cells, sizeof *scene.fences);
    assert_int_equal(vpmm_pool_create(&params, &vpmm_memory_system, &scene.pool), VPMM_OK);
    assert_int_equal(vpmm_pool_add_root(scene.pool, BASE, ROOT_PAGES, false), VPMM_OK);
    carve(n_before);
    make_zombies(HOLE, 0, 0);
    make_zombies(GROWABLE, EXTENT, 0);
    make_zombies(OWN_GROWABLE, EXTENT, 0);
    while (take_zombies(64) > 0)
        ;
    make_zombies(IDLE_ZOMBIE, 0, 0);
    make_zombies(STUCK_ZOMBIE, 0, 1);
    free_fragments();
}

/* ---- counting ---- */

#define COUNT(operation, ...)                                                                      \
    do {                                                                                           \
        uint64_t before = vpmm_test_steps;                                                         \
        __VA_ARGS__;                                                                               \
        scene.steps[operation] += vpmm_test_steps - before;                                        \
    } while (0)

/* A cell of the kind, another one each round, spread over all. */
static uint64_t cell_of(enum kind kind, uint64_t round)
{
    return (scene.n_cells / KINDS * (round + 1) / (ROUNDS + 2)) * KINDS + (uint64_t)kind;
}

static void count_fits(void)
{
    uint64_t address;
    COUNT(FIT_EXACT, address = fit(EXTENT, NOBODY));
    COUNT(CLAIM, claim(address));
    COUNT(FREE, vpmm_pool_free(scene.pool, address, VPMM_FENCE_NONE, 0));
    COUNT(FIT_BEST, address = fit(EXTENT - 1, NOBODY));
    claim(address);
    COUNT(FREE_AND_MERGE, vpmm_pool_free(scene.pool, address, VPMM_FENCE_NONE, 0));
    COUNT(FIT_OWN, address = fit(EXTENT, 3));
    release(address, fence_of(3));
}

static void count_stitches(void)
{
    uint64_t address;
    COUNT(EXTEND, address = stitch(EXTENT + 2, NOBODY));
    COUNT(EXTEND, address = stitch(EXTENT + 2, 5));
    COUNT(STITCH, address = stitch(4 * EXTENT, NOBODY));
    release(address, VPMM_FENCE_NONE);
    struct vpmm_want wanted = want(EXTENT, NOBODY);
    COUNT(REVIVE, assert_int_equal(vpmm_pool_revive(scene.pool, &wanted, &address), VPMM_OK));
    /* What is left of the stitch must not serve the next one. */
    for (wanted.pages = 3 * EXTENT; wanted.pages > EXTENT; wanted.pages -= EXTENT)
        (void)!vpmm_pool_fit(scene.pool, &wanted, &address);
}

static void count_rest(uint64_t round)
{
    struct vpmm_pool_totals totals;
    struct vpmm_region_view region;
    struct vpmm_removal removals[4];
    struct vpmm_want nobody = want(1, 0);
    uint64_t cell = cell_of(round % 2 ? MIXED : PENDING, round);
    scene.completed = scene.fences[cell];
    COUNT(SETTLE, vpmm_pool_settle(scene.pool, nobody.view));
    COUNT(TAKE_ZOMBIES, assert_int_equal(take_zombies(4), 4));
    size_t n;
    COUNT(TAKE_EXTENTS, n = vpmm_pool_take_extents(scene.pool, EXTENT, UINT64_MAX, removals, 4));
    assert_int_equal(n, 1);
    COUNT(TAKE_EXTENTS, vpmm_pool_removal_done(scene.pool, &removals[0], VPMM_KEPT));
    COUNT(RELEASABLE, (void)vpmm_pool_releasable_pages(scene.pool));
    COUNT(TOTALS, vpmm_pool_totals(scene.pool, &totals));
    uint64_t inner = scene.fragments[cell_of(IDLE_ZOMBIE, round)] + PAGE_BYTES;
    COUNT(FIND, assert_int_equal(vpmm_pool_find(scene.pool, inner, &region), VPMM_OK));
}

static void count_in(uint64_t n_live, uint64_t n_before, uint64_t steps_out[OPERATIONS])
{
    build(n_live, n_before);
    /* What building left to be listed is its own cost. */
    (void)stitch(2 * EXTENT, NOBODY);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        count_fits();
        count_stitches();
        count_rest(round);
    }
    for (unsigned i = 0; i < OPERATIONS; i++)
        steps_out[i] += scene.steps[i];
    assert_null(vpmm_pool_audit(scene.pool));
    vpmm_pool_destroy(scene.pool);
    free(scene.fences);
    free(scene.fragments);
}

static void count_all(uint64_t n_live, uint64_t steps_out[OPERATIONS])
{
    memset(steps_out, 0, OPERATIONS * sizeof *steps_out);
    for (uint64_t i = 0; i < POOLS; i++)
        count_in(n_live, i * EXTENT, steps_out);
}

static void a_hundred_times_the_regions_are_at_most_twice_the_steps(void **state)
{
    (void)state;
    uint64_t few[OPERATIONS];
    uint64_t many[OPERATIONS];
    count_all(10000, few);
    count_all(1000000, many);
    bool is_good = true;
    for (int i = 0; i < OPERATIONS; i++) {
        print_message("%s: %.1f steps of 10,000, %.1f of 1,000,000\n", names[i],
                      (double)few[i] / ROUNDS / POOLS, (double)many[i] / ROUNDS / POOLS);
        is_good = is_good && many[i] <= 2 * few[i];
    }
    assert_true(is_good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hundred_times_the_regions_are_at_most_twice_the_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
