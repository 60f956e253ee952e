/* SPDX-License-Identifier: MIT */
/* Frees of one block and of neighbours, against readers without the lock. */
#include "cases.h"

#include "stage.h"

#define GROUP "frees"

#define PAGES 6

struct claim {
    bool won;
    struct vpmm_region_view view;
};

static struct world {
    struct stage_pool *stage;
    struct stage_heap *whole;
    uint64_t low, middle, high; /* pages of live regions of 1, 2 and 1 pages */
    uint64_t id, next_id;       /* of `middle`, and of what came to its place */
    struct claim claims[SCHEDULE_THREADS];
    enum vpmm_status status[SCHEDULE_THREADS];
    uint64_t address;
} * world;

static void prepare_three(void)
{
    world = schedule_room(sizeof *world);
    world->stage = stage_pool(PAGES, PAGES);
    world->low = stage_take(world->stage, 1, NULL);
    world->middle = stage_take(world->stage, 2, &world->id);
    world->high = stage_take(world->stage, 1, NULL);
}

static void free_at(uint64_t page)
{
    struct claim *claim = &world->claims[schedule_thread()];
    claim->won = stage_free(world->stage, page, &claim->view);
}

static void free_low(void)
{
    free_at(world->low);
}

static void free_middle(void)
{
    free_at(world->middle);
}

static void free_high(void)
{
    free_at(world->high);
}

static void claim_middle(void)
{
    struct claim *claim = &world->claims[schedule_thread()];
    claim->won = !vpmm_pool_claim(world->stage->pool, stage_address(world->middle), &claim->view);
}

static uint64_t live_pages(void)
{
    struct vpmm_pool_totals totals;
    vpmm_pool_totals(world->stage->pool, &totals);
    return totals.live_pages;
}

static void check_one_winner(void)
{
    int winners = 0;
    for (int i = 0; i < SCHEDULE_THREADS; i++)
        winners += world->claims[i].won;
    expect(winners == 1);
    stage_pool_check(world->stage);
    expect(live_pages() == 2);
}

static unsigned n_free_regions(void)
{
    struct vpmm_region_view region;
    uint64_t cursor = 0;
    unsigned n = 0;
    while (vpmm_pool_next(world->stage->pool, &cursor, &region))
        n += region.state == VPMM_REGION_FREE;
    return n;
}

static void check_all_free(void)
{
    stage_pool_check(world->stage);
    expect(live_pages() == 0 && n_free_regions() == 1);
}

static void check_live_low(void)
{
    stage_pool_check(world->stage);
    expect(live_pages() == 1 && n_free_regions() == 1);
}

/* ---- the block's place is given to the next owner (ABA) ---- */

static void free_and_take_again(void)
{
    free_middle();
    if (world->claims[schedule_thread()].won)
        expect(stage_take(world->stage, 2, &world->next_id) == world->middle);
}

/* Each block that was made was freed by as many as it should: what a claim shows is what it took.
 */
static void check_claims_took_what_they_saw(void)
{
    int old = 0;
    int next = 0;
    struct vpmm_region_view now;
    stage_pool_check(world->stage);
    for (int i = 0; i < SCHEDULE_THREADS; i++) {
        old += world->claims[i].won && world->claims[i].view.owner.id == world->id;
        next += world->claims[i].won && world->claims[i].view.owner.id == world->next_id;
    }
    expect(!vpmm_pool_find(world->stage->pool, stage_address(world->middle), &now));
    expect(old == 1 && next <= 1);
    expect((now.state == VPMM_REGION_LIVE) == (world->next_id && next == 0));
    expect(now.state != VPMM_REGION_LIVE || now.owner.id == world->next_id);
}

/* The next owner's block is shorter: a mixture would show its length with the old id. */
static void free_and_take_less(void)
{
    free_middle();
    expect(stage_take(world->stage, 1, &world->next_id) == world->middle);
}

static void expect_whole(const struct vpmm_region_view *view)
{
    if (view->state == VPMM_REGION_LIVE)
        expect(view->owner.bytes == view->pages * DEVICE_PAGE_BYTES - 1);
    expect(view->state != VPMM_REGION_UNUSED && view->pages > 0);
}

static void find_middle(void)
{
    struct vpmm_region_view view;
    expect(!vpmm_pool_find(world->stage->pool, stage_address(world->middle), &view));
    expect_whole(&view);
    if (view.state != VPMM_REGION_LIVE)
        return;
    expect(view.address == stage_address(world->middle));
    expect(view.pages == (view.owner.id == world->id ? 2 : 1));
}

/* ---- readers beside what changes ---- */

static void find_high(void)
{
    struct vpmm_region_view view;
    expect(!vpmm_pool_find(world->stage->pool, stage_address(world->high), &view));
    expect(view.state == VPMM_REGION_LIVE && view.pages == 1);
    expect(view.address == stage_address(world->high));
}

static void find_last_page(void)
{
    struct vpmm_region_view view;
    expect(!vpmm_pool_find(world->stage->pool, stage_address(PAGES - 1), &view));
    expect_whole(&view);
    expect(view.state == VPMM_REGION_FREE || view.state == VPMM_REGION_BUSY);
}

static void walk(void)
{
    struct vpmm_region_view view;
    uint64_t cursor = 0;
    uint64_t end = DEVICE_BASE;
    bool high_was_seen = false;
    while (vpmm_pool_next(world->stage->pool, &cursor, &view)) {
        expect_whole(&view);
        expect(view.address >= end);
        end = view.address + view.pages * DEVICE_PAGE_BYTES;
        expect(end <= stage_address(PAGES));
        high_was_seen = high_was_seen || (view.address == stage_address(world->high) &&
                                          view.state == VPMM_REGION_LIVE && view.pages == 1);
    }
    expect(high_was_seen);
}

/* ---- the whole free: claim, fence, merge ---- */

static void prepare_whole(void)
{
    world = schedule_room(sizeof *world);
    world->whole = stage_heap(PAGES, PAGES);
    world->address = stage_malloc(world->whole, 2, 0);
}

static void free_whole(void)
{
    world->status[schedule_thread()] = stage_heap_free(world->whole, world->address, 2, 0);
}

static void check_whole(void)
{
    enum vpmm_status a = world->status[0];
    enum vpmm_status b = world->status[1];
    expect((a == VPMM_OK && b == VPMM_NOT_FOUND) || (a == VPMM_NOT_FOUND && b == VPMM_OK));
    expect(stage_totals(world->whole).live_pages == 0);
    stage_heap_check(world->whole);
}

const struct schedule_case cases_frees[] = {
    SCHEDULE_TEST(one_block_twice, prepare_three, {free_middle, free_middle}, check_one_winner),
    SCHEDULE_TEST(three_claims, prepare_three, {claim_middle, claim_middle, claim_middle},
                  check_one_winner),
    SCHEDULE_TEST(three_neighbours, prepare_three, {free_low, free_middle, free_high},
                  check_all_free),
    SCHEDULE_TEST(block_taken_again, prepare_three, {free_and_take_again, free_middle},
                  check_claims_took_what_they_saw),
    SCHEDULE_TEST(find_while_taken_again, prepare_three, {free_and_take_less, find_middle}, NULL),
    SCHEDULE_TEST(find_beside_a_merge, prepare_three, {free_low, free_middle, find_high}, NULL),
    SCHEDULE_TEST(find_in_a_merge, prepare_three, {free_high, find_last_page}, NULL),
    SCHEDULE_TEST(walk_beside_a_free, prepare_three, {free_middle, walk}, NULL),
    SCHEDULE_TEST(claim_beside_a_merge, prepare_three, {free_high, free_middle}, check_live_low),
    SCHEDULE_TEST(whole_heap, prepare_whole, {free_whole, free_whole}, check_whole),
    {0},
};
