/* SPDX-License-Identifier: MIT */
#include "pool_model.h"

#include <string.h>

struct world world;
struct block blocks[BLOCKS_MAX];
size_t n_blocks;
uint64_t n_roots;
static uint64_t content[EXTENTS_MAX][EXTENT_PAGES_MAX];
static struct vpmm_memory whole_memory;
static struct vpmm_fence_view whole_view;
static uint64_t n_failures;

static uint64_t *content_of(uint64_t page)
{
    const struct world_page *shown = &world.pages[page];
    assert_true(shown->extent > 0 && shown->extent < EXTENTS_MAX);
    assert_true(shown->offset < EXTENT_PAGES_MAX);
    return &content[shown->extent][shown->offset];
}

static void *map(void *self, size_t bytes)
{
    void *address = whole_memory.map(self, bytes);
    n_failures += !address;
    return address;
}

static vpmm_fence join(void *self, vpmm_fence a, vpmm_fence b)
{
    vpmm_fence joined = whole_view.join(self, a, b);
    n_failures += !joined && !(world_is_complete(&world, a) && world_is_complete(&world, b));
    return joined;
}

uint64_t model_failures(void)
{
    return n_failures;
}

void model_set_trouble(uint64_t trouble)
{
    world.maps_left = trouble >= 0xe0 ? (long)(trouble & 3) : -1;
    world.joins_fail = trouble >= 0xd0 && trouble < 0xe8;
}

void model_init(uint64_t extent_pages_max, uint64_t mappings_max)
{
    n_blocks = 0;
    n_roots = 0;
    n_failures = 0;
    world_init(&world, (uint64_t)2 << 20, extent_pages_max, 0);
    struct vpmm_pool_params params = {world.page_bytes, extent_pages_max, mappings_max, 0};
    vpmm_pool_destroy(world.pool);
    assert_int_equal(vpmm_pool_create(&params, &world.memory, &world.pool), VPMM_OK);
    whole_memory = world.memory;
    whole_view = world.view;
    world.memory.map = map;
    world.view.join = join;
    model_add_root();
}

void model_add_root(void)
{
    if (n_roots == ROOTS_MAX)
        return;
    if (!vpmm_pool_add_root(world.pool, world_address(&world, n_roots * ROOT_PAGES), ROOT_PAGES,
                            false))
        n_roots++;
}

void model_add_block(uint64_t address, uint64_t pages, uint64_t stream, uint64_t number)
{
    world_check_owner(&world, address, pages, stream);
    struct block *block = &blocks[n_blocks++];
    *block = (struct block){world_page(&world, address), pages, number, false};
    for (uint64_t i = 0; i < pages; i++) {
        uint64_t *place = content_of(block->page + i);
        assert_int_equal(*place, 0);
        *place = number;
    }
}

void model_serve_at(uint64_t page, uint64_t pages, uint64_t stream, uint64_t number)
{
    uint64_t failures = n_failures;
    world.owner_id = number;
    enum vpmm_status status = world_serve_at(&world, page, pages, stream);
    world.owner_id = 0;
    assert_true(status != VPMM_NO_METADATA || n_failures > failures);
    if (!status)
        model_add_block(world_address(&world, page), pages, stream, number);
}

void model_step(struct vpmm_step *step)
{
    assert_false(step->kind == VPMM_STEP_MOVE && world.extents[step->extent].is_fixed);
    world_step(&world, step);
    if (step->kind != VPMM_STEP_CREATE)
        return;
    assert_true(step->pages <= EXTENT_PAGES_MAX);
    memset(content[step->extent], 0, sizeof content[0]);
}

void model_fix(const struct vpmm_step *step)
{
    world.extents[step->extent].is_fixed = true;
}

void model_drop_block(size_t which, vpmm_fence fence)
{
    struct block block = blocks[which];
    blocks[which] = blocks[--n_blocks];
    for (uint64_t i = block.page; i < block.page + block.pages; i++) {
        struct world_page *shown = &world.pages[i];
        *content_of(i) = 0;
        shown->fence = fence;
        world.extents[shown->extent].fences[shown->offset] = fence;
    }
}

void model_complete(vpmm_fence last)
{
    uint64_t stream = world.fences[last].stream;
    for (vpmm_fence i = stream ? 1 : last; i <= last; i++)
        if (!world.fences[i].a && world.fences[i].stream == stream)
            world_complete(&world, i);
}

/* ---- checks ---- */

static void check_block(const struct block *block)
{
    for (uint64_t i = 0; i < block->pages; i++)
        assert_int_equal(*content_of(block->page + i), block->number);
}

/* What one region may say of itself, and which block it is. */
static void check_region(const struct vpmm_region_view *region, uint64_t *n_live)
{
    struct vpmm_region_view found;
    uint64_t page = world_page(&world, region->address);
    uint64_t inner = region->address + region->pages * world.page_bytes - 1;
    assert_int_equal(vpmm_pool_find(world.pool, inner, &found), VPMM_OK);
    assert_int_equal(found.state, region->state);
    assert_int_equal(found.address, region->address);
    assert_int_equal(found.pages, region->pages);
    if (region->state != VPMM_REGION_LIVE)
        return;
    (*n_live)++;
    for (size_t i = 0; i < n_blocks; i++)
        if (blocks[i].page == page) {
            assert_int_equal(blocks[i].pages, region->pages);
            assert_int_equal(blocks[i].number, region->owner.id);
            assert_false(blocks[i].is_claimed);
            return;
        }
    fail_msg("a live region that nobody has: %s", world_layout(&world));
}

static bool is_usable(const struct vpmm_region_view *region)
{
    return region->state == VPMM_REGION_FREE &&
           (region->fence == VPMM_FENCE_NONE ||
            (region->owner.stream_id && region->owner.stream_id == world.stream));
}

static void raise_to(uint64_t *most, uint64_t pages)
{
    *most = *most < pages ? pages : *most;
}

/* Runs and holes; `is_usable_out` says it of each page. */
static void survey_regions(struct prospect *prospect, bool *is_usable_out)
{
    struct vpmm_region_view region;
    uint64_t cursor = 0, run = 0;
    while (vpmm_pool_next(world.pool, &cursor, &region)) {
        uint64_t page = world_page(&world, region.address);
        run = page % ROOT_PAGES ? run : 0;
        if (region.state == VPMM_REGION_HOLE) {
            raise_to(&prospect->hole, region.pages);
            raise_to(&prospect->reach, run + region.pages);
        }
        bool usable = is_usable(&region);
        run = usable ? run + region.pages : 0;
        raise_to(&prospect->run, run);
        memset(is_usable_out + page, usable, region.pages);
    }
}

struct prospect model_prospect(uint64_t pages)
{
    static bool usable[ROOTS_MAX * ROOT_PAGES];
    uint64_t n_of_size[EXTENT_PAGES_MAX + 1] = {0};
    struct prospect prospect = {0};
    survey_regions(&prospect, usable);
    for (uint64_t page = 0; page < n_roots * ROOT_PAGES; page++) {
        const struct world_page *shown = &world.pages[page];
        if (!shown->extent || shown->offset)
            continue;
        prospect.mappings++;
        uint64_t size = world.extents[shown->extent].pages;
        if (world.extents[shown->extent].is_fixed || memchr(usable + page, false, size))
            continue;
        n_of_size[size]++;
        prospect.movable += size;
        raise_to(&prospect.largest, size);
    }
    /* Sizes are powers of two, so to take the largest first fills the most. */
    for (uint64_t size = EXTENT_PAGES_MAX; size > 0; size--)
        for (; n_of_size[size] && prospect.snug + size <= pages; n_of_size[size]--)
            prospect.snug += size;
    uint64_t share = world_totals(&world).live_pages / 100;
    prospect.extra = share < 16 ? share : 16;
    return prospect;
}

/* The pages of extents that lie in complete free regions alone; where something is quarantined, of
 * those that show nowhere else. */
static uint64_t releasable(const bool *is_complete)
{
    uint64_t sum = 0;
    bool is_quarantined = world_totals(&world).quarantined_pages != 0;
    for (uint64_t page = 0; page < n_roots * ROOT_PAGES; page++) {
        const struct world_page *shown = &world.pages[page];
        if (!shown->extent || shown->offset ||
            (is_quarantined && world.extents[shown->extent].mappings != 1))
            continue;
        uint64_t n = 0;
        while (n < world.extents[shown->extent].pages && is_complete[page + n])
            n++;
        if (n == world.extents[shown->extent].pages)
            sum += n;
    }
    return sum;
}

void model_check(void)
{
    static bool is_complete[ROOTS_MAX * ROOT_PAGES];
    struct vpmm_region_view region;
    uint64_t cursor = 0, n_live = 0, n_claimed = 0;
    world_check(&world);
    memset(is_complete, 0, sizeof is_complete);
    while (vpmm_pool_next(world.pool, &cursor, &region)) {
        uint64_t page = world_page(&world, region.address);
        check_region(&region, &n_live);
        if (region.state == VPMM_REGION_FREE && region.fence == VPMM_FENCE_NONE)
            memset(is_complete + page, true, region.pages);
    }
    for (size_t i = 0; i < n_blocks; i++) {
        check_block(&blocks[i]);
        n_claimed += blocks[i].is_claimed;
    }
    assert_int_equal(n_live + n_claimed, n_blocks);
    /* Which makes an end of the arrivals: rarely. */
    if (n_live % 4 == 0)
        assert_int_equal(vpmm_pool_releasable_pages(world.pool), releasable(is_complete));
}

void model_check_pending(void)
{
    static vpmm_fence fences[ROOTS_MAX * ROOT_PAGES];
    struct vpmm_region_view region;
    uint64_t cursor = 0;
    size_t n = vpmm_pool_pending(world.pool, NULL, NULL, fences, ROOTS_MAX * ROOT_PAGES);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            assert_true(fences[i] != fences[j]);
    while (vpmm_pool_next(world.pool, &cursor, &region)) {
        size_t i = 0;
        while (i < n && fences[i] != region.fence)
            i++;
        if (region.state == VPMM_REGION_FREE)
            assert_int_equal(i < n, region.fence != VPMM_FENCE_NONE);
        if (region.state == VPMM_REGION_FREE && i < n)
            assert_false(world_is_complete(&world, region.fence));
    }
}
