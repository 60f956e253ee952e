/* SPDX-License-Identifier: MIT */
/* Regions that a front cache holds: free in every view, in no index of the pool, and right in the
 * totals whoever holds them. */
#include "world.h"

#include "pool/pool_internal.h"

#define PAGE ((uint64_t)2 << 20)

static struct world w;
static struct vpmm_pool_share share, second_share;

static int setup(void **state)
{
    (void)state;
    world_init(&w, PAGE, 1, 64);
    share = second_share = (struct vpmm_pool_share){0};
    vpmm_pool_add_share(w.pool, &share);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_check(&w);
    world_finish(&w);
    return 0;
}

static bool look(uint64_t page, struct vpmm_live *live_out)
{
    return vpmm_pool_look_live(w.pool, world_address(&w, page), live_out);
}

/* The number of the region, which must be live. */
static uint32_t cache(uint64_t page, vpmm_fence fence, uint64_t stream)
{
    struct vpmm_live live;
    assert_true(look(page, &live));
    assert_true(vpmm_pool_cache(w.pool, &live, fence, stream, &share));
    return live.number;
}

static uint64_t uncache(uint32_t number, uint64_t bytes)
{
    const struct vpmm_owner owner = {
        .bytes = bytes, .context_id = 3, .stream_id = 1, .id = 77, .is_async = true};
    return world_page(&w, vpmm_pool_uncache(w.pool, number, &owner, &share));
}

static void a_region_is_found_from_within(void **state)
{
    (void)state;
    uint64_t first = world_malloc(&w, 4, 1), second = world_malloc(&w, 3, 1);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(vpmm_pool_start_of(w.pool, world_address(&w, first + i) + i),
                         world_address(&w, first));
    assert_int_equal(vpmm_pool_start_of(w.pool, world_address(&w, second + 2)),
                     world_address(&w, second));
    assert_int_equal(vpmm_pool_start_of(w.pool, 77), 77);
}

static void only_the_start_of_a_live_region_is_seen(void **state)
{
    (void)state;
    struct vpmm_live live;
    uint64_t page = world_malloc(&w, 4, 1);
    assert_true(look(page, &live));
    assert_int_equal(live.pages, 4);
    assert_int_equal(live.bytes, 4 * PAGE - 1);
    assert_int_equal(live.fence, VPMM_FENCE_NONE);
    assert_false(look(page + 1, &live));
    assert_false(look(page + 3, &live));
    assert_false(look(page + 4, &live));
    assert_false(vpmm_pool_look_live(w.pool, world_address(&w, page) + 1, &live));
    assert_false(vpmm_pool_look_live(w.pool, 0, &live));
    assert_false(vpmm_pool_look_live(w.pool, WORLD_BASE - 1, &live));
    world_free(&w, page, VPMM_FENCE_NONE);
    assert_false(look(page, &live));
}

static void what_is_cached_shows_as_free(void **state)
{
    (void)state;
    struct vpmm_region_view view;
    uint64_t page = world_malloc(&w, 4, 1);
    vpmm_fence fence = world_fence(&w, 1);
    (void)cache(page, fence, 1);
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, page) + PAGE, &view), VPMM_OK);
    assert_int_equal(view.state, VPMM_REGION_FREE);
    assert_int_equal(view.fence, fence);
    assert_int_equal(view.pages, 4);
    assert_string_equal(world_layout(&w), "[-4]");
    assert_int_equal(vpmm_pool_claim(w.pool, world_address(&w, page), &view), VPMM_NOT_FOUND);
    assert_null(vpmm_pool_audit(w.pool));
}

static void the_pool_serves_nobody_with_it(void **state)
{
    (void)state;
    uint64_t page = world_malloc(&w, 4, 1);
    uint64_t other;
    uint32_t number = cache(page, VPMM_FENCE_NONE, 1);
    struct vpmm_want want = world_want(&w, 4, 1);
    uint64_t address;
    assert_int_equal(vpmm_pool_fit(w.pool, &want, &address), VPMM_NOT_FOUND);
    assert_int_equal(world_try(&w, 4, 1, 0, NULL, &other), VPMM_NOT_FOUND);
    assert_int_equal(vpmm_pool_releasable_pages(w.pool), 0);
    vpmm_pool_hand_back(w.pool, number, VPMM_FENCE_NONE, &share, NULL);
    assert_int_equal(world_malloc(&w, 4, 2), page);
}

static void totals_count_it_as_free(void **state)
{
    (void)state;
    uint64_t page = world_malloc(&w, 4, 1);
    (void)world_malloc(&w, 2, 1);
    struct vpmm_pool_totals before = world_totals(&w);
    uint32_t number = cache(page, VPMM_FENCE_NONE, 1);
    struct vpmm_pool_totals totals = world_totals(&w);
    assert_int_equal(totals.live_pages, 2);
    assert_int_equal(totals.live_bytes, 2 * PAGE - 1);
    assert_int_equal(totals.free_pages, before.free_pages + 4);
    assert_int_equal(totals.held_pages, before.held_pages);
    assert_int_equal(uncache(number, 3 * PAGE + 5), page);
    totals = world_totals(&w);
    assert_int_equal(totals.live_pages, 6);
    assert_int_equal(totals.live_bytes, 5 * PAGE + 4);
    assert_int_equal(totals.free_pages, before.free_pages);
}

static void totals_are_sums_over_all_caches(void **state)
{
    (void)state;
    struct vpmm_live live;
    uint64_t p = world_malloc(&w, 4, 1);
    uint64_t q = world_malloc(&w, 3, 2);
    vpmm_pool_add_share(w.pool, &second_share);
    (void)cache(p, VPMM_FENCE_NONE, 1);
    assert_true(look(q, &live));
    assert_true(vpmm_pool_cache(w.pool, &live, VPMM_FENCE_NONE, 2, &second_share));
    assert_int_equal(world_totals(&w).live_pages, 0);
    assert_int_equal(world_totals(&w).live_bytes, 0);
    assert_int_equal(world_totals(&w).free_pages, 7);
    assert_null(vpmm_pool_audit(w.pool));
    vpmm_pool_hand_back(w.pool, live.number, VPMM_FENCE_NONE, &second_share, NULL);
    assert_int_equal(world_totals(&w).free_pages, 7);
    assert_null(vpmm_pool_audit(w.pool));
}

/* What was cached when another got live was not live with it. */
static void the_most_ever_live_counts_nothing_cached(void **state)
{
    (void)state;
    uint64_t page = world_malloc(&w, 4, 1);
    uint32_t number = cache(page, VPMM_FENCE_NONE, 1);
    (void)world_malloc(&w, 2, 1);
    assert_int_equal(world_totals(&w).live_pages_peak, 4);
    (void)world_malloc(&w, 4, 1);
    assert_int_equal(world_totals(&w).live_pages_peak, 6);
    (void)uncache(number, 4 * PAGE);
    assert_int_equal(world_totals(&w).live_pages, 10);
    assert_int_equal(world_totals(&w).live_pages_peak, 10);
}

static void its_new_owner_has_its_address_and_its_fence(void **state)
{
    (void)state;
    struct vpmm_region_view view;
    uint64_t page = world_malloc(&w, 4, 1);
    vpmm_fence fence = world_fence(&w, 1);
    uint32_t number = cache(page, fence, 1);
    assert_int_equal(vpmm_pool_cached_fence(w.pool, number), fence);
    assert_int_equal(uncache(number, 3 * PAGE), page);
    assert_int_equal(vpmm_pool_find(w.pool, world_address(&w, page), &view), VPMM_OK);
    assert_int_equal(view.state, VPMM_REGION_LIVE);
    assert_int_equal(view.fence, fence);
    assert_int_equal(view.owner.bytes, 3 * PAGE);
    assert_int_equal(view.owner.context_id, 3);
    assert_int_equal(view.owner.stream_id, 1);
    assert_int_equal(view.owner.id, 77);
    assert_true(view.owner.is_async);
}

static void what_was_looked_at_before_it_changed_hands_is_not_cached(void **state)
{
    (void)state;
    struct vpmm_live live;
    struct vpmm_region_view view;
    uint64_t page = world_malloc(&w, 4, 1);
    assert_true(look(page, &live));
    (void)uncache(cache(page, VPMM_FENCE_NONE, 1), 4 * PAGE);
    assert_false(vpmm_pool_cache(w.pool, &live, VPMM_FENCE_NONE, 1, &share));
    assert_true(look(page, &live));
    assert_int_equal(vpmm_pool_claim(w.pool, world_address(&w, page), &view), VPMM_OK);
    assert_false(vpmm_pool_cache(w.pool, &live, VPMM_FENCE_NONE, 1, &share));
    vpmm_pool_free(w.pool, world_address(&w, page), VPMM_FENCE_NONE, 0);
    assert_int_equal(world_totals(&w).free_pages, 4);
}

static void given_back_complete_it_merges(void **state)
{
    (void)state;
    uint64_t p = world_malloc(&w, 4, 1);
    uint64_t q = world_malloc(&w, 3, 1);
    uint32_t first = cache(p, world_fence(&w, 1), 1);
    uint32_t second = cache(q, world_fence(&w, 1), 1);
    assert_string_equal(world_layout(&w), "[-4][-3]");
    vpmm_pool_hand_back(w.pool, first, VPMM_FENCE_NONE, &share, NULL);
    vpmm_pool_hand_back(w.pool, second, VPMM_FENCE_NONE, &share, NULL);
    assert_string_equal(world_layout(&w), "[-7]");
    assert_int_equal(world_malloc(&w, 7, 2), p);
}

static void given_back_pending_it_is_its_streams_alone(void **state)
{
    (void)state;
    uint64_t page = world_malloc(&w, 4, 1);
    uint64_t other;
    vpmm_fence fence = world_fence(&w, 1);
    uint32_t number = cache(page, fence, 1);
    vpmm_pool_hand_back(w.pool, number, vpmm_pool_cached_fence(w.pool, number), &share, NULL);
    assert_int_equal(world_try(&w, 4, 2, 0, NULL, &other), VPMM_NOT_FOUND);
    assert_int_equal(world_malloc(&w, 4, 1), page);
}

/* What counts up is later; not asked for what two streams left. */
static vpmm_fence later(void *self, vpmm_fence a, vpmm_fence b)
{
    const struct world *world = self;
    assert_int_equal(world_stream(world, a), world_stream(world, b));
    return a > b ? a : b;
}

/* The one in the middle comes last, with neither the first nor the last fence. */
static void given_back_in_line_it_is_one_with_its_streams_neighbours(void **state)
{
    (void)state;
    const struct vpmm_fence_line line = {&w, later};
    const vpmm_fence fences[] = {world_fence(&w, 1), world_fence(&w, 1), world_fence(&w, 1)};
    const uint64_t pages[] = {world_malloc(&w, 4, 1), world_malloc(&w, 3, 1),
                              world_malloc(&w, 2, 1)};
    const uint32_t numbers[] = {cache(pages[0], fences[0], 1), cache(pages[1], fences[1], 1),
                                cache(pages[2], fences[2], 1)};
    uint64_t other;
    for (int i = 0; i < 3; i++) {
        int turn = (const int[]){0, 2, 1}[i];
        vpmm_pool_hand_back(w.pool, numbers[turn], fences[turn], &share, &line);
        assert_null(vpmm_pool_audit(w.pool));
    }
    assert_string_equal(world_layout(&w), "[-9]");
    world_complete(&w, fences[0]);
    world_complete(&w, fences[1]);
    assert_int_equal(world_try(&w, 4, 2, 0, NULL, &other), VPMM_NOT_FOUND);
    world_complete(&w, fences[2]);
    assert_int_equal(world_malloc(&w, 9, 2), pages[0]);
}

/* The new fence is that of the neighbour's neighbour. */
static void given_back_in_line_it_reaches_as_far_as_its_fence(void **state)
{
    (void)state;
    const struct vpmm_fence_line line = {&w, later};
    vpmm_fence first = world_fence(&w, 1), last = world_fence(&w, 1);
    uint32_t numbers[4];
    for (int i = 0; i < 4; i++)
        numbers[i] = cache(world_malloc(&w, 2, 1), i % 2 ? first : last, 1);
    vpmm_pool_hand_back(w.pool, numbers[0], last, &share, NULL);
    vpmm_pool_hand_back(w.pool, numbers[1], first, &share, NULL);
    vpmm_pool_hand_back(w.pool, numbers[3], first, &share, NULL);
    assert_string_equal(world_layout(&w), "[-2][-2][-2][-2]");
    vpmm_pool_hand_back(w.pool, numbers[2], last, &share, &line);
    assert_null(vpmm_pool_audit(w.pool));
    assert_string_equal(world_layout(&w), "[-8]");
}

static void given_back_in_line_it_stays_apart_from_another_streams(void **state)
{
    (void)state;
    const struct vpmm_fence_line line = {&w, later};
    vpmm_fence own = world_fence(&w, 1), foreign = world_fence(&w, 2);
    uint64_t p = world_malloc(&w, 4, 1), q = world_malloc(&w, 3, 2), r = world_malloc(&w, 2, 1);
    uint32_t numbers[] = {cache(p, own, 1), cache(q, foreign, 2), cache(r, VPMM_FENCE_NONE, 1)};
    vpmm_pool_hand_back(w.pool, numbers[2], VPMM_FENCE_NONE, &share, &line);
    vpmm_pool_hand_back(w.pool, numbers[1], foreign, &share, &line);
    vpmm_pool_hand_back(w.pool, numbers[0], own, &share, &line);
    assert_null(vpmm_pool_audit(w.pool));
    assert_string_equal(world_layout(&w), "[-4][-3][-2]");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_region_is_found_from_within),
        TEST(only_the_start_of_a_live_region_is_seen),
        TEST(what_is_cached_shows_as_free),
        TEST(the_pool_serves_nobody_with_it),
        TEST(totals_count_it_as_free),
        TEST(totals_are_sums_over_all_caches),
        TEST(the_most_ever_live_counts_nothing_cached),
        TEST(its_new_owner_has_its_address_and_its_fence),
        TEST(what_was_looked_at_before_it_changed_hands_is_not_cached),
        TEST(given_back_complete_it_merges),
        TEST(given_back_pending_it_is_its_streams_alone),
        TEST(given_back_in_line_it_is_one_with_its_streams_neighbours),
        TEST(given_back_in_line_it_reaches_as_far_as_its_fence),
        TEST(given_back_in_line_it_stays_apart_from_another_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
