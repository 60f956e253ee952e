/* SPDX-License-Identifier: MIT */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *memory_map(void *self, size_t bytes)
{
    struct world *world = self;
    if (world->maps_left == 0)
        return NULL;
    if (world->maps_left > 0)
        world->maps_left--;
    world->maps++;
    return vpmm_memory_system.map(NULL, bytes);
}

static void memory_unmap(void *self, void *address, size_t bytes)
{
    struct world *world = self;
    world->maps--;
    vpmm_memory_system.unmap(NULL, address, bytes);
}

bool world_is_complete(const struct world *world, vpmm_fence fence)
{
    struct world_fence *entry = &world->fences[fence];
    if (fence == VPMM_FENCE_NONE || entry->is_complete)
        return true;
    entry->is_complete =
        entry->a && world_is_complete(world, entry->a) && world_is_complete(world, entry->b);
    return entry->is_complete;
}

uint64_t world_stream(const struct world *world, vpmm_fence fence)
{
    const struct world_fence *entry = &world->fences[fence];
    if (!entry->a)
        return entry->stream;
    if (world_is_complete(world, entry->a))
        return world_stream(world, entry->b);
    uint64_t stream = world_stream(world, entry->a);
    bool is_of_one = world_is_complete(world, entry->b) || world_stream(world, entry->b) == stream;
    return is_of_one ? stream : 0;
}

static bool is_ordered(const struct world *world, vpmm_fence fence, uint64_t stream)
{
    const struct world_fence *entry = &world->fences[fence];
    if (world_is_complete(world, fence))
        return true;
    if (entry->a)
        return is_ordered(world, entry->a, stream) && is_ordered(world, entry->b, stream);
    return stream != 0 && entry->stream == stream;
}

static enum vpmm_verdict ask(void *self, vpmm_fence fence)
{
    struct world *world = self;
    if (world_is_complete(world, fence))
        return VPMM_VERDICT_COMPLETE;
    return is_ordered(world, fence, world->stream) ? VPMM_VERDICT_ORDERED : VPMM_VERDICT_PENDING;
}

static vpmm_fence join(void *self, vpmm_fence a, vpmm_fence b)
{
    struct world *world = self;
    if (world_is_complete(world, a))
        return world_is_complete(world, b) ? VPMM_FENCE_NONE : b;
    if (world_is_complete(world, b) || a == b)
        return a;
    if (world->joins_fail)
        return VPMM_FENCE_NONE;
    vpmm_fence joined = world_fence(world, 0);
    world->fences[joined].a = a;
    world->fences[joined].b = b;
    return joined;
}

vpmm_fence world_fence(struct world *world, uint64_t stream)
{
    vpmm_fence fence = ++world->n_fences;
    assert_true(fence < WORLD_FENCES);
    world->fences[fence] = (struct world_fence){.stream = stream};
    return fence;
}

void world_complete(struct world *world, vpmm_fence fence)
{
    world->fences[fence].is_complete = true;
}

void world_init(struct world *world, uint64_t page_bytes, uint64_t extent_pages_max, uint64_t pages)
{
    struct vpmm_pool_params params = {page_bytes, extent_pages_max, 1 << 18, 0};
    memset(world, 0, sizeof *world);
    world->memory = (struct vpmm_memory){world, memory_map, memory_unmap};
    world->view = (struct vpmm_fence_view){world, ask, join};
    world->page_bytes = page_bytes;
    world->maps_left = -1;
    world->pages = calloc(WORLD_PAGES, sizeof *world->pages);
    world->extents = calloc(WORLD_PAGES, sizeof *world->extents);
    world->fences = calloc(WORLD_FENCES, sizeof *world->fences);
    assert_int_equal(vpmm_pool_create(&params, &world->memory, &world->pool), VPMM_OK);
    if (pages)
        world_add_root(world, 0, pages);
}

void world_finish(struct world *world)
{
    vpmm_pool_destroy(world->pool);
    assert_int_equal(world->maps, 0);
    for (uint64_t i = 1; i <= world->n_extents; i++)
        free(world->extents[i].fences);
    free(world->fences);
    free(world->extents);
    free(world->pages);
}

uint64_t world_address(const struct world *world, uint64_t page)
{
    return WORLD_BASE + page * world->page_bytes;
}

uint64_t world_page(const struct world *world, uint64_t address)
{
    assert_true(address >= WORLD_BASE && (address - WORLD_BASE) % world->page_bytes == 0);
    uint64_t page = (address - WORLD_BASE) / world->page_bytes;
    assert_true(page < WORLD_PAGES);
    return page;
}

uint64_t world_largest_run(const struct world *world)
{
    struct vpmm_region_view view;
    uint64_t largest = 0, run = 0;
    for (uint64_t cursor = 0; vpmm_pool_next(world->pool, &cursor, &view);) {
        run = view.state != VPMM_REGION_FREE ? 0 : view.begins_root ? view.pages : run + view.pages;
        largest = run > largest ? run : largest;
    }
    return largest;
}

void world_add_slab_root(struct world *world, uint64_t page, uint64_t pages)
{
    assert_true(page + pages <= WORLD_PAGES);
    assert_int_equal(vpmm_pool_add_root(world->pool, world_address(world, page), pages, true),
                     VPMM_OK);
    world_check(world);
}

void world_add_root(struct world *world, uint64_t page, uint64_t pages)
{
    assert_true(page + pages <= WORLD_PAGES);
    assert_int_equal(vpmm_pool_add_root(world->pool, world_address(world, page), pages, false),
                     VPMM_OK);
    world_check(world);
}

struct vpmm_pool_totals world_totals(const struct world *world)
{
    struct vpmm_pool_totals totals;
    vpmm_pool_totals(world->pool, &totals);
    return totals;
}

/* What must hold even while a plan is half carried out. */
static void check_books(struct world *world)
{
    const char *fault = vpmm_pool_audit(world->pool);
    if (fault)
        fail_msg("%s in %s", fault, world_layout(world));
}

void world_check(struct world *world)
{
    check_books(world);
    uint64_t cursor = 0;
    uint64_t n_pages = 0;
    struct vpmm_region_view region;
    while (vpmm_pool_next(world->pool, &cursor, &region)) {
        uint64_t first = world_page(world, region.address);
        n_pages += region.pages;
        if (region.state == VPMM_REGION_BUSY)
            continue;
        for (uint64_t i = first; i < first + region.pages; i++)
            if ((world->pages[i].extent != 0) != (region.state != VPMM_REGION_HOLE))
                fail_msg("page %llu is not mapped as %s says", (unsigned long long)i,
                         world_layout(world));
    }
    assert_int_equal(n_pages, world_totals(world).root_pages);
    uint64_t held_pages = 0;
    for (uint64_t i = 1; i <= world->n_extents; i++)
        held_pages += world->extents[i].mappings ? world->extents[i].pages : 0;
    assert_int_equal(held_pages, world_totals(world).held_pages);
}

void world_step(struct world *world, struct vpmm_step *step)
{
    uint64_t first = world_page(world, step->address);
    if (step->kind == VPMM_STEP_CREATE) {
        step->extent = ++world->n_extents;
        assert_true(step->extent < WORLD_PAGES);
        world->extents[step->extent] =
            (struct world_extent){step->pages, 0, calloc(step->pages, sizeof(vpmm_fence)), false};
    }
    struct world_extent *extent = &world->extents[step->extent];
    assert_int_equal(extent->pages, step->pages);
    assert_true(step->kind == VPMM_STEP_CREATE || extent->mappings > 0);
    extent->mappings++;
    for (uint64_t i = 0; i < step->pages; i++) {
        assert_int_equal(world->pages[first + i].extent, 0);
        world->pages[first + i] = (struct world_page){step->extent, i, VPMM_FENCE_NONE};
    }
}

void world_unmap(struct world *world, uint64_t address, uint64_t pages)
{
    uint64_t first = world_page(world, address);
    for (uint64_t i = first; i < first + pages;) {
        struct world_extent *extent = &world->extents[world->pages[i].extent];
        assert_true(extent->mappings > 0);
        assert_int_equal(world->pages[i].offset, 0);
        assert_true(i + extent->pages <= first + pages);
        for (uint64_t end = i + extent->pages; i < end; i++) {
            assert_true(world_is_complete(world, world->pages[i].fence));
            world->pages[i] = (struct world_page){0, 0, VPMM_FENCE_NONE};
        }
        extent->mappings--;
    }
}

struct vpmm_want world_want(struct world *world, uint64_t pages, uint64_t stream)
{
    world->stream = stream;
    return (struct vpmm_want){
        .pages = pages,
        .owner = {.bytes = pages * world->page_bytes - 1,
                  .stream_id = stream,
                  .id = world->owner_id,
                  .is_async = stream,
                  .is_whole = world->is_whole},
        .view = &world->view,
        .create_pages_max = UINT64_MAX,
        .number = ++world->n_requests,
        .may_spare = !world->never_spares,
        .pays_by_extent = world->pays_by_extent,
        .is_slab = world->is_slab,
        .may_mix = world->may_mix,
    };
}

void world_check_plan(const struct world *world, const struct vpmm_plan *plan)
{
    uint64_t address = plan->address;
    uint64_t created_pages = 0;
    uint64_t moved_pages = 0;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        assert_int_equal(plan->steps[i].address, address);
        address += plan->steps[i].pages * world->page_bytes;
        *(plan->steps[i].kind == VPMM_STEP_CREATE ? &created_pages : &moved_pages) +=
            plan->steps[i].pages;
    }
    assert_int_equal(address, plan->address + plan->pages * world->page_bytes);
    assert_int_equal(created_pages, plan->created_pages);
    assert_int_equal(moved_pages, plan->moved_pages);
}

static enum vpmm_status carry_out(struct world *world, struct vpmm_plan *plan,
                                  const struct world_trouble *trouble, uint64_t *address_out)
{
    world_check_plan(world, plan);
    uint64_t done_pages = 0;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        if (trouble && trouble->abandons && i == trouble->after_steps)
            break;
        world_step(world, &plan->steps[i]);
        done_pages += plan->steps[i].pages;
    }
    check_books(world);
    if (!trouble || !trouble->abandons) {
        vpmm_pool_commit(world->pool, plan, address_out);
        return VPMM_OK;
    }
    if (!trouble->is_stuck)
        world_unmap(world, plan->address, done_pages);
    vpmm_pool_abandon(world->pool, plan, trouble->is_stuck ? done_pages : 0);
    return VPMM_FAILED;
}

void world_check_owner(struct world *world, uint64_t address, uint64_t pages, uint64_t stream)
{
    struct vpmm_region_view region;
    assert_int_equal(vpmm_pool_find(world->pool, address, &region), VPMM_OK);
    assert_int_equal(region.state, VPMM_REGION_LIVE);
    assert_int_equal(region.address, address);
    assert_int_equal(region.pages, pages);
    uint64_t first = world_page(world, address);
    for (uint64_t i = first; i < first + pages; i++) {
        const struct world_page *page = &world->pages[i];
        vpmm_fence fence = world->extents[page->extent].fences[page->offset];
        assert_true(is_ordered(world, fence, stream));
        assert_true(world_is_complete(world, fence) || region.fence != VPMM_FENCE_NONE);
    }
}

enum vpmm_status world_try(struct world *world, uint64_t pages, uint64_t stream,
                           uint64_t create_pages_max, const struct world_trouble *trouble,
                           uint64_t *page_out)
{
    world_settle(world);
    struct vpmm_want want = world_want(world, pages, stream);
    want.create_pages_max = create_pages_max;
    uint64_t address = 0;
    enum vpmm_status status = vpmm_pool_fit(world->pool, &want, &address);
    if (status == VPMM_NOT_FOUND)
        status = vpmm_pool_revive(world->pool, &want, &address);
    if (status == VPMM_NOT_FOUND) {
        struct vpmm_plan *plan;
        status = vpmm_pool_plan(world->pool, &want, &plan);
        world_check(world);
        if (!status)
            status = carry_out(world, plan, trouble, &address);
    }
    world_check(world);
    if (status)
        return status;
    world_check_owner(world, address, pages, stream);
    *page_out = world_page(world, address);
    return VPMM_OK;
}

uint64_t world_malloc(struct world *world, uint64_t pages, uint64_t stream)
{
    uint64_t page = 0;
    assert_int_equal(world_try(world, pages, stream, UINT64_MAX, NULL, &page), VPMM_OK);
    return page;
}

void world_grow(struct world *world, uint64_t pages)
{
    struct vpmm_plan *plan;
    uint64_t address;
    assert_int_equal(vpmm_pool_plan_growth(world->pool, pages, &plan), VPMM_OK);
    assert_int_equal(carry_out(world, plan, NULL, &address), VPMM_OK);
    world_check(world);
}

void world_free(struct world *world, uint64_t page, vpmm_fence fence)
{
    struct vpmm_region_view region;
    uint64_t address = world_address(world, page);
    assert_int_equal(vpmm_pool_claim(world->pool, address, &region), VPMM_OK);
    world_check(world);
    vpmm_fence joined = join(world, region.fence, fence);
    for (uint64_t i = page; i < page + region.pages; i++) {
        struct world_page *entry = &world->pages[i];
        entry->fence = joined;
        world->extents[entry->extent].fences[entry->offset] = joined;
    }
    vpmm_pool_free(world->pool, address, joined, world_stream(world, joined));
    world_check(world);
}

void world_settle(struct world *world)
{
    world->stream = 0;
    vpmm_pool_settle_all(world->pool, &world->view);
    world_check(world);
}

static const char *const marks[] = {
    [VPMM_REGION_HOLE] = "*",   [VPMM_REGION_FREE] = "-", [VPMM_REGION_LIVE] = "",
    [VPMM_REGION_ZOMBIE] = "z", [VPMM_REGION_BUSY] = "?", [VPMM_REGION_QUARANTINED] = "!",
};

const char *world_layout(struct world *world)
{
    uint64_t cursor = 0;
    size_t length = 0;
    size_t before_hole = 0;
    struct vpmm_region_view region;
    world->layout[0] = 0;
    while (vpmm_pool_next(world->pool, &cursor, &region) && length + 32 < sizeof world->layout) {
        before_hole = region.state == VPMM_REGION_HOLE ? length : SIZE_MAX;
        length += (size_t)sprintf(world->layout + length, "[%s%llu]", marks[region.state],
                                  (unsigned long long)region.pages);
    }
    if (before_hole != SIZE_MAX)
        world->layout[before_hole] = 0;
    return world->layout;
}
