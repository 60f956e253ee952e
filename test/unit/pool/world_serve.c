/* SPDX-License-Identifier: MIT */
/* What a request at a given address must get and leave, worked out page by page. */
#include "world.h"

#include <string.h>

struct picture {
    uint64_t n_pages; /* from the first root on */
    unsigned char states[WORLD_PAGES];
    vpmm_fence fences[WORLD_PAGES];
};

/* The wanted pages, with the whole of the extents that their zombies show; and what there was
 * before. */
struct question {
    struct world *world;
    uint64_t page, end;
    uint64_t all, all_end;
    struct picture before;
    bool is_left[WORLD_PAGES];     /* by an extent that comes home */
    uint64_t home_of[WORLD_PAGES]; /* of what a zombie in the range shows: where it belongs */
};

static void take_picture(const struct world *world, struct picture *picture)
{
    struct vpmm_region_view region;
    uint64_t cursor = 0;
    picture->n_pages = 0;
    memset(picture->states, VPMM_REGION_UNUSED, sizeof picture->states);
    while (vpmm_pool_next(world->pool, &cursor, &region)) {
        uint64_t first = world_page(world, region.address);
        memset(picture->states + first, (int)region.state, region.pages);
        for (uint64_t i = first; i < first + region.pages; i++)
            picture->fences[i] = region.fence;
        if (picture->n_pages < first + region.pages)
            picture->n_pages = first + region.pages;
    }
}

/* Where the root that holds the page ends; 0: no root does. */
static uint64_t root_end(const struct world *world, uint64_t page)
{
    uint64_t address, pages;
    for (uint32_t i = 0; vpmm_pool_root(world->pool, i, &address, &pages); i++) {
        uint64_t first = world_page(world, address);
        if (page >= first && page - first < pages)
            return first + pages;
    }
    return 0;
}

static bool is_zombie(const struct question *question, uint64_t page)
{
    return question->before.states[page] == VPMM_REGION_ZOMBIE;
}

static bool is_allowed(const struct question *question, uint64_t page)
{
    const struct vpmm_fence_view *view = &question->world->view;
    return view->ask(view->self, question->before.fences[page]) != VPMM_VERDICT_PENDING;
}

static void reach_over(struct question *question)
{
    const struct world *world = question->world;
    const struct world_page *low = &world->pages[question->page];
    const struct world_page *high = &world->pages[question->end - 1];
    question->all = question->page;
    question->all_end = question->end;
    if (is_zombie(question, question->page))
        question->all -= low->offset;
    if (is_zombie(question, question->end - 1))
        question->all_end += world->extents[high->extent].pages - high->offset - 1;
}

/* Whether the extent that is shown from `start` on may leave a place outside the range. */
static bool can_leave(struct question *question, uint64_t start)
{
    const struct world *world = question->world;
    const struct picture *before = &question->before;
    const struct world_extent *extent = &world->extents[world->pages[start].extent];
    uint64_t home = 0;
    while (home < before->n_pages && (before->states[home] != VPMM_REGION_FREE ||
                                      world->pages[home].extent != world->pages[start].extent ||
                                      world->pages[home].offset != 0))
        home++;
    if (home == before->n_pages || extent->is_fixed)
        return false;
    for (uint64_t i = 0; i < extent->pages; i++) {
        uint64_t page = home + i;
        bool is_inside = page >= question->all && page < question->all_end;
        if (before->states[page] != VPMM_REGION_FREE || !is_allowed(question, page) || is_inside ||
            question->is_left[page])
            return false;
        question->is_left[page] = true;
        question->home_of[start + i] = page;
    }
    return true;
}

static bool must_serve(struct question *question)
{
    if (root_end(question->world, question->page) < question->end)
        return false;
    reach_over(question);
    memset(question->is_left, 0, sizeof question->is_left);
    for (uint64_t i = question->all; i < question->all_end; i++) {
        bool is_start = question->world->pages[i].offset == 0;
        if (!is_zombie(question, i) && question->before.states[i] != VPMM_REGION_FREE)
            return false;
        if (!is_allowed(question, i))
            return false;
        if (is_zombie(question, i) && is_start && !can_leave(question, i))
            return false;
    }
    return true;
}

/* Whether who waits for `whole` waits for `part`, too. What is joined is younger than its parts. */
static bool covers(const struct world *world, vpmm_fence whole, vpmm_fence part)
{
    const struct world_fence *joined = &world->fences[whole];
    const struct world_fence *sum = &world->fences[part];
    if (world_is_complete(world, part) || whole == part)
        return true;
    if (sum->a && covers(world, whole, sum->a) && covers(world, whole, sum->b))
        return true;
    return whole > part && joined->a &&
           (covers(world, joined->a, part) || covers(world, joined->b, part));
}

static void check_page(const struct question *question, const struct picture *after, uint64_t i)
{
    const struct world *world = question->world;
    const struct world_page *page = &world->pages[i];
    const vpmm_fence *fences = question->before.fences;
    vpmm_fence fence = after->fences[i];
    bool is_inside = i >= question->all && i < question->all_end;
    if (!is_inside && !question->is_left[i]) {
        assert_int_equal(after->states[i], question->before.states[i]);
        assert_int_equal(fence, fences[i]);
        return;
    }
    assert_true(covers(world, fence, fences[i]));
    assert_true(covers(world, fence, page->fence));
    if (!is_inside) {
        assert_int_equal(after->states[i], VPMM_REGION_ZOMBIE);
        return;
    }
    bool is_wanted = i >= question->page && i < question->end;
    assert_int_equal(after->states[i], is_wanted ? VPMM_REGION_LIVE : VPMM_REGION_FREE);
    assert_true(covers(world, fence, world->extents[page->extent].fences[page->offset]));
    if (is_zombie(question, i))
        assert_true(covers(world, fence, fences[question->home_of[i]]));
}

static void check_totals(const struct vpmm_pool_totals *before,
                         const struct vpmm_pool_totals *after)
{
    assert_int_equal(after->extents, before->extents);
    assert_int_equal(after->held_pages, before->held_pages);
    assert_int_equal(after->mappings, before->mappings);
    assert_int_equal(after->moved_pages, before->moved_pages);
    assert_int_equal(after->created_pages, before->created_pages);
}

enum vpmm_status world_serve_at(struct world *world, uint64_t page, uint64_t pages, uint64_t stream)
{
    static struct question question;
    static struct picture after;
    struct vpmm_want want = world_want(world, pages, stream);
    struct vpmm_pool_totals totals = world_totals(world);
    question.world = world;
    question.page = page;
    question.end = page + pages;
    take_picture(world, &question.before);
    bool must = must_serve(&question);
    enum vpmm_status status = vpmm_pool_serve_at(world->pool, &want, world_address(world, page));
    bool has_trouble = must && (world->maps_left >= 0 || world->joins_fail);
    if (status != VPMM_NO_METADATA || !has_trouble)
        assert_int_equal(status, must ? VPMM_OK : VPMM_NOT_FOUND);
    world_check(world);
    take_picture(world, &after);
    assert_int_equal(after.n_pages, question.before.n_pages);
    if (status) {
        question.all = question.all_end = 0;
        memset(question.is_left, 0, sizeof question.is_left);
    }
    for (uint64_t i = 0; i < after.n_pages; i++)
        if (after.states[i] != VPMM_REGION_UNUSED)
            check_page(&question, &after, i);
    struct vpmm_pool_totals totals_after = world_totals(world);
    check_totals(&totals, &totals_after);
    if (!status)
        world_check_owner(world, world_address(world, page), pages, stream);
    return status;
}
