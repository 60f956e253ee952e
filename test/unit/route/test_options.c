/* SPDX-License-Identifier: MIT */
/* What the options and the memory pools of the program mean to the router. */
#include "fixture.h"

#include <string.h>

static void defaults_reach_the_heap(void **state)
{
    (void)state;
    (void)sync_malloc(4 * MIB);
    const struct vpmm_heap_params *params = &fakes.heaps[0].params;
    assert_int_equal(params->device, 0);
    assert_int_equal(params->page_bytes, FAKE_GRANULARITY);
    assert_int_equal(params->root_bytes, (uint64_t)8 << 40);
    assert_int_equal(params->eager_pages, 0);
    assert_int_equal(params->extent_pages_max, 0);
    assert_int_equal(params->slack_bytes, 256 * MIB);
    assert_int_equal(params->slack_percent, 2);
    assert_int_equal(params->spare_percent, 18);
    assert_int_equal(params->limit_bytes, 0);
    assert_false(params->free_waits);
    assert_false(params->exports_whole);
}

static void options_reach_the_heap(void **state)
{
    (void)state;
    fixture.config.pages = (struct vpmm_amount){50, true};
    fixture.config.slack = (struct vpmm_amount){7, true};
    fixture.config.slack_is_default = false;
    fixture.config.spare_percent = 3;
    fixture.config.extent_pages_max = 4;
    fixture.config.limit = (struct vpmm_amount){25, true};
    fixture.config.free_sync = VPMM_FREE_SYNC_ALWAYS;
    fixture.config.va_bytes = 3 * GIB + 1;
    (void)sync_malloc(4 * MIB);
    const struct vpmm_heap_params *params = &fakes.heaps[0].params;
    assert_int_equal(params->eager_pages, FAKE_DEVICE_BYTES / FAKE_GRANULARITY / 2);
    assert_int_equal(params->slack_bytes, 0);
    assert_int_equal(params->slack_percent, 7);
    assert_int_equal(params->spare_percent, 3);
    assert_int_equal(params->limit_bytes, FAKE_DEVICE_BYTES / 100 * 25);
    assert_int_equal(params->extent_pages_max, 4);
    assert_true(params->free_waits);
    assert_int_equal(params->root_bytes, 3 * GIB + FAKE_GRANULARITY);

    fixture.config.pages = (struct vpmm_amount){9, false};
    fixture.config.slack = (struct vpmm_amount){5 * MIB, false};
    fixture.config.limit = (struct vpmm_amount){100 * MIB, false};
    (void)async_malloc(4 * MIB, 1);
    params = &fakes.heaps[1].params;
    assert_int_equal(params->eager_pages, 9);
    assert_int_equal(params->slack_bytes, 5 * MIB);
    assert_int_equal(params->limit_bytes, 100 * MIB);
    assert_int_equal(params->slack_percent, 0);
}

static void a_page_is_rounded_up_to_the_granularity_with_a_warning(void **state)
{
    (void)state;
    fixture.config.page_bytes = 3 * MIB;
    const char *text = said_by_malloc(4 * MIB);
    assert_int_equal(fakes.heaps[0].params.page_bytes, 4 * MIB);
    assert_non_null(strstr(text, "VPMM_PAGE_SIZE=3145728"));
    assert_non_null(strstr(text, "using 4194304"));
    assert_int_equal(sync_malloc(4 * MIB - 1), VPMM_ROUTE_SMALL);
    assert_int_equal(sync_malloc(4 * MIB), VPMM_ROUTE_POOL);
}

static void a_page_that_is_a_multiple_is_taken_without_a_word(void **state)
{
    (void)state;
    fixture.config.page_bytes = 64 * MIB;
    assert_string_equal(said_by_malloc(64 * MIB), "");
    assert_int_equal(fakes.heaps[0].params.page_bytes, 64 * MIB);
}

static void a_page_larger_than_the_device_switches_the_pool_off(void **state)
{
    static const uint64_t pages[] = {FAKE_DEVICE_BYTES + FAKE_GRANULARITY, UINT64_MAX - 1};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fixture_tear_down(state), 0);
        assert_int_equal(fixture_set_up(state), 0);
        fixture.config.page_bytes = pages[i];
        fixture.config.min_bytes = 1;
        assert_int_equal(async_malloc(FAKE_DEVICE_BYTES, i), VPMM_ROUTE_DISABLED);
        assert_int_equal(fakes.n_creates, 0);
    }
}

static void no_layer_serves_a_small_request_and_the_threshold_may_lie_above_a_page(void **state)
{
    (void)state;
    fixture.config.min_bytes = 1000;
    assert_int_equal(async_malloc(FAKE_GRANULARITY - 1, 0), VPMM_ROUTE_SMALL);
    assert_int_equal(async_malloc(FAKE_GRANULARITY, 0), VPMM_ROUTE_POOL);
    fixture.config.min_bytes = 8 * MIB;
    assert_int_equal(async_malloc(8 * MIB - 1, 1), VPMM_ROUTE_SMALL);
    assert_int_equal(async_malloc(8 * MIB, 1), VPMM_ROUTE_POOL);
}

static void access_to_the_default_pool_is_access_to_ours(void **state)
{
    (void)state;
    vpmm_router_pool_access(fixture.router, 0, 2);
    (void)sync_malloc(4 * MIB);
    assert_int_equal(fakes.heaps[0].peers, 1 << 2);
    vpmm_router_pool_access(fixture.router, 0, 1);
    assert_int_equal(fakes.heaps[0].peers, 1 << 2 | 1 << 1);
    vpmm_router_pool_access(fixture.router, 0, 0);
    vpmm_router_pool_access(fixture.router, 0, VPMM_DEVICES_MAX);
    vpmm_router_pool_access(fixture.router, -1, 0);
    assert_int_equal(fakes.heaps[0].peers, 1 << 2 | 1 << 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(defaults_reach_the_heap),
        FIXTURE_TEST(options_reach_the_heap),
        FIXTURE_TEST(a_page_is_rounded_up_to_the_granularity_with_a_warning),
        FIXTURE_TEST(a_page_that_is_a_multiple_is_taken_without_a_word),
        FIXTURE_TEST(a_page_larger_than_the_device_switches_the_pool_off),
        FIXTURE_TEST(no_layer_serves_a_small_request_and_the_threshold_may_lie_above_a_page),
        FIXTURE_TEST(access_to_the_default_pool_is_access_to_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
