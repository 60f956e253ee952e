/* SPDX-License-Identifier: MIT */
/* Random programs against a naive model: a list of live ranges and what each of their pages shows.
 * The world checks that owners follow the last ones and that nothing is unmapped too early; here:
 * that live regions keep their pages, never share one, and that the pool is as tight as it
 * promises. A failure names the seed. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#define STEPS 16000
#define LIVE_MAX 40
#define PAGES_MAX 40
#define STREAMS 4
#define FORMER_MAX 64

/* Where somebody lived. */
struct former {
    uint64_t page, pages;
};

struct live {
    uint64_t page, pages;
    bool is_whole; /* nothing else lives in its extents */
    struct world_page shown[PAGES_MAX];
};

struct model {
    struct world world;
    uint64_t random;
    struct live live[LIVE_MAX];
    size_t n_live;
    struct former former[FORMER_MAX];
    size_t n_former;
    uint64_t root_pages;
};

static uint64_t below(struct model *model, uint64_t limit)
{
    model->random ^= model->random << 13;
    model->random ^= model->random >> 7;
    model->random ^= model->random << 17;
    return model->random % limit;
}

static void check_live(const struct model *model)
{
    const struct world *world = &model->world;
    uint64_t pages = 0;
    for (size_t i = 0; i < model->n_live; i++) {
        const struct live *live = &model->live[i];
        pages += live->pages;
        for (uint64_t j = 0; j < live->pages; j++) {
            assert_int_equal(world->pages[live->page + j].extent, live->shown[j].extent);
            assert_int_equal(world->pages[live->page + j].offset, live->shown[j].offset);
        }
    }
    assert_int_equal(world_totals(world).live_pages, pages);
}

/* No two live regions show the same page of an extent, or the same extent if one of them is whole.
 */
static void check_new(const struct model *model, const struct live *new)
{
    for (size_t i = 0; i < model->n_live; i++) {
        const struct live *other = &model->live[i];
        bool is_whole = other->is_whole || new->is_whole;
        for (uint64_t j = 0; j < other->pages; j++)
            for (uint64_t k = 0; k < new->pages; k++)
                assert_false(other->shown[j].extent == new->shown[k].extent &&
                             (is_whole || other->shown[j].offset == new->shown[k].offset));
    }
}

static void add_live(struct model *model, uint64_t page, uint64_t pages)
{
    struct live *new = &model->live[model->n_live];
    new->page = page;
    new->pages = pages;
    new->is_whole = model->world.is_whole;
    memcpy(new->shown, &model->world.pages[page], pages * sizeof new->shown[0]);
    check_new(model, new);
    model->n_live++;
}

/* The pages of extents that lie wholly in free regions that are complete or that the world's
 * present stream freed, counted page by page; none where no hole has room for a whole extent too
 * many. */
static uint64_t harvestable(struct model *model, uint64_t pages)
{
    static bool usable[WORLD_PAGES];
    struct world *world = &model->world;
    struct vpmm_region_view region;
    uint64_t cursor = 0;
    uint64_t largest_hole = 0;
    uint64_t sum = 0;
    memset(usable, 0, sizeof usable);
    while (vpmm_pool_next(world->pool, &cursor, &region)) {
        bool is_own = region.owner.stream_id && region.owner.stream_id == world->stream;
        bool is_usable =
            region.state == VPMM_REGION_FREE && (region.fence == VPMM_FENCE_NONE || is_own);
        memset(usable + world_page(world, region.address), is_usable, region.pages);
        if (region.state == VPMM_REGION_HOLE && region.pages > largest_hole)
            largest_hole = region.pages;
    }
    for (uint64_t i = 0; i < model->root_pages; i++) {
        const struct world_page *page = &world->pages[i];
        uint64_t n = 0;
        if (page->extent && page->offset == 0)
            while (n < world->extents[page->extent].pages && usable[i + n])
                n++;
        if (n > 0 && n == world->extents[page->extent].pages)
            sum += n;
    }
    return largest_hole >= pages + PAGES_MAX ? sum : 0;
}

/* A request by a stream, or by cudaMalloc (stream 0), with whatever trouble comes. */
static void step_malloc(struct model *model)
{
    struct world *world = &model->world;
    if (model->n_live == LIVE_MAX)
        return;
    uint64_t pages = 1 + below(model, below(model, 4) ? 8 : PAGES_MAX);
    uint64_t stream = below(model, STREAMS + 1);
    struct world_trouble trouble = {
        .abandons = below(model, 4) == 0,
        .after_steps = (uint32_t)below(model, 12),
        .is_stuck = below(model, 20) == 0,
    };
    uint64_t create_pages_max = below(model, 5) ? UINT64_MAX : below(model, 10);
    world->maps_left = below(model, 20) ? -1 : 0;
    world->joins_fail = below(model, 20) == 0;
    struct vpmm_pool_totals before = world_totals(world);
    world->stream = stream;
    world_settle(world);
    world->stream = stream;
    world->is_whole = !stream && below(model, 2);
    uint64_t usable_pages = world->is_whole ? 0 : harvestable(model, pages);
    uint64_t page;
    enum vpmm_status status = world_try(world, pages, stream, create_pages_max, &trouble, &page);
    struct vpmm_pool_totals after = world_totals(world);
    world->maps_left = -1;
    world->joins_fail = false;
    if (status == VPMM_OK)
        add_live(model, page, pages);
    world->is_whole = false;
    if (status && !trouble.is_stuck)
        assert_int_equal(after.held_pages, before.held_pages);
    assert_true(after.created_pages - before.created_pages <= create_pages_max);
    /* A few more than needed may be created, where that makes fewer extents. */
    uint64_t extra = before.live_pages / 100 < 16 ? before.live_pages / 100 : 16;
    assert_true(trouble.is_stuck || after.created_pages == before.created_pages ||
                after.created_pages - before.created_pages + usable_pages <= pages + extra);
    if (status == VPMM_NO_SPACE) {
        world_add_root(world, model->root_pages, 64);
        model->root_pages += 64;
    }
}

/* Where somebody lived: as a whole, or some pages of what is a zombie now. */
static struct former some_former(struct model *model)
{
    struct former former = model->former[below(model, model->n_former)];
    uint64_t pages = 1 + below(model, 6);
    struct vpmm_region_view region;
    for (int i = 0; i < 16 && pages % 2 == 0; i++) {
        uint64_t page = below(model, model->root_pages);
        uint64_t address = world_address(&model->world, page);
        assert_int_equal(vpmm_pool_find(model->world.pool, address, &region), VPMM_OK);
        if (region.state == VPMM_REGION_ZOMBIE)
            return (struct former){page, pages / 2 + below(model, 2) * below(model, 8)};
    }
    if (pages == 1)
        former.page += below(model, 6);
    return former;
}

static void step_serve_at(struct model *model)
{
    struct world *world = &model->world;
    if (model->n_live == LIVE_MAX || !model->n_former)
        return;
    struct former former = some_former(model);
    uint64_t stream = below(model, STREAMS + 1);
    world->maps_left = below(model, 20) ? -1 : 0;
    world->joins_fail = below(model, 8) == 0;
    enum vpmm_status status = world_serve_at(world, former.page, former.pages, stream);
    world->maps_left = -1;
    world->joins_fail = false;
    if (status == VPMM_OK)
        add_live(model, former.page, former.pages);
}

static vpmm_fence some_fence(struct model *model)
{
    struct world *world = &model->world;
    switch (below(model, 4)) {
    case 0:
        return VPMM_FENCE_NONE;
    case 1: /* one of the last: neighbours may share it */
        return world->n_fences ? world->n_fences - below(model, world->n_fences < 3 ? 1 : 3) : 0;
    default:
        return world_fence(world, below(model, STREAMS + 1));
    }
}

static void step_free(struct model *model)
{
    if (!model->n_live)
        return;
    size_t i = below(model, model->n_live);
    struct live freed = model->live[i];
    model->live[i] = model->live[--model->n_live];
    size_t slot = model->n_former < FORMER_MAX ? model->n_former++ : below(model, FORMER_MAX);
    model->former[slot] = (struct former){freed.page, freed.pages};
    world_free(&model->world, freed.page, some_fence(model));
}

static void step_complete(struct model *model)
{
    struct world *world = &model->world;
    uint64_t n = world->n_fences < 40 ? world->n_fences : 40;
    for (uint64_t i = 0; i < n; i++) {
        vpmm_fence fence = world->n_fences - i;
        if (!world->fences[fence].a && below(model, 2))
            world_complete(world, fence);
    }
    for (vpmm_fence fence = 1; fence + 40 < world->n_fences && fence < WORLD_FENCES; fence++)
        if (!world->fences[fence].a)
            world_complete(world, fence);
    if (below(model, 2))
        world_settle(world);
}

static void step(struct model *model)
{
    switch (below(model, 16)) {
    case 0:
        step_complete(model);
        break;
    case 1:
        if (below(model, 8) == 0)
            (void)world_reap(&model->world, below(model, 30) != 0);
        break;
    case 2:
        if (below(model, 4) == 0)
            (void)world_trim(&model->world, 1 + below(model, 60), below(model, 4) != 0);
        break;
    case 3:
        if (below(model, 16) == 0 && world_largest_run(&model->world) < 20)
            world_grow(&model->world, 1 + below(model, 10));
        break;
    case 4:
    case 5:
        step_serve_at(model);
        break;
    default:
        if (below(model, LIVE_MAX) >= model->n_live)
            step_malloc(model);
        else
            step_free(model);
    }
    check_live(model);
}

static void program(uint64_t seed, uint64_t extent_pages_max)
{
    static struct model model;
    memset(&model, 0, sizeof model);
    model.random = seed * 0x9e3779b97f4a7c15u + 1;
    model.root_pages = 600;
    world_init(&model.world, (uint64_t)2 << 20, extent_pages_max, model.root_pages);
    print_message("seed %llu, extents of up to %llu pages\n", (unsigned long long)seed,
                  (unsigned long long)extent_pages_max);
    for (int i = 0; i < STEPS; i++)
        step(&model);
    while (model.n_live)
        step_free(&model);
    for (vpmm_fence fence = 1; fence <= model.world.n_fences; fence++)
        world_complete(&model.world, fence);
    world_settle(&model.world);
    (void)world_reap(&model.world, true);
    (void)world_trim(&model.world, UINT64_MAX, true);
    struct vpmm_pool_totals totals = world_totals(&model.world);
    assert_int_equal(totals.live_pages + totals.busy_pages + totals.zombie_pages, 0);
    assert_int_equal(totals.hole_pages + totals.free_pages + totals.quarantined_pages,
                     totals.root_pages);
    assert_true(totals.free_pages <= totals.quarantined_pages * 16);
    world_finish(&model.world);
}

static void one_page_an_extent(void **state)
{
    (void)state;
    program(1, 1);
}

static void extents_of_up_to_four_pages(void **state)
{
    (void)state;
    program(2, 4);
}

static void extents_as_the_policy_likes(void **state)
{
    (void)state;
    program(3, 0);
}

static void the_seed_of_the_environment(void **state)
{
    const char *seed = getenv("VPMM_TEST_SEED");
    (void)state;
    if (!seed)
        skip();
    program(strtoull(seed, NULL, 10), strtoull(seed, NULL, 10) % 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_page_an_extent),
        cmocka_unit_test(extents_of_up_to_four_pages),
        cmocka_unit_test(extents_as_the_policy_likes),
        cmocka_unit_test(the_seed_of_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
