/* SPDX-License-Identifier: MIT */
/* What the books themselves take of host memory: resident bytes by the region, by the extent, and
 * in all. */
#include "counting.h"

#include "pool/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include <cmocka.h>

#define PAGE_BYTES ((uint64_t)2 << 20)
#define BASE ((uint64_t)1 << 40)
#define ROOT_PAGES ((uint64_t)1 << 22)
#define MAPPINGS_MAX (256u * 1024)
#define REGIONS 100000u

#define REGION_BYTES_MAX 216
#define EXTENT_BYTES_MAX 48
#define ALL_BYTES_MAX ((uint64_t)64 << 20)
/* Of the indexes by page of address space. Where a region has few pages they are within the two
 * bars above; where it has many, they are what counts: 4 bytes in a million of the memory. */
#define PAGE_BYTES_MAX 9

static struct counting counting;

static enum vpmm_verdict ask(void *self, vpmm_fence fence)
{
    (void)self;
    return fence ? VPMM_VERDICT_PENDING : VPMM_VERDICT_COMPLETE;
}

static vpmm_fence join(void *self, vpmm_fence a, vpmm_fence b)
{
    (void)self;
    return a ? a : b;
}

static struct vpmm_pool *make_pool(uint64_t extent_pages_max)
{
    struct vpmm_pool_params params = {PAGE_BYTES, extent_pages_max, MAPPINGS_MAX, 0};
    struct vpmm_pool *pool;
    counting_init(&counting);
    assert_int_equal(vpmm_pool_create(&params, &counting.memory, &pool), VPMM_OK);
    assert_int_equal(vpmm_pool_add_root(pool, BASE, ROOT_PAGES, false), VPMM_OK);
    return pool;
}

/* A live region of new extents. */
static uint64_t add_region(struct vpmm_pool *pool, uint64_t pages)
{
    static uint64_t last_handle;
    struct vpmm_fence_view view = {NULL, ask, join};
    struct vpmm_want want = {.pages = pages, .view = &view, .create_pages_max = UINT64_MAX};
    struct vpmm_plan *plan;
    uint64_t address;
    assert_int_equal(vpmm_pool_plan(pool, &want, &plan), VPMM_OK);
    for (uint32_t i = 0; i < plan->n_steps; i++)
        plan->steps[i].extent = ++last_handle;
    vpmm_pool_commit(pool, plan, &address);
    return address;
}

static uint64_t count(const struct vpmm_pool *pool, enum vpmm_region_state state)
{
    struct vpmm_region_view region;
    uint64_t cursor = 0, n = 0;
    while (vpmm_pool_next(pool, &cursor, &region))
        n += region.state == state;
    return n;
}

/* Prints the figures, holds them against the bars, and ends the pool. */
static void measure(struct vpmm_pool *pool, const char *what, bool has_large_regions)
{
    struct vpmm_pool_totals totals;
    vpmm_pool_totals(pool, &totals);
    uint64_t resident = counting_resident_bytes(&counting);
    uint64_t n_live = count(pool, VPMM_REGION_LIVE);
    uint64_t allowed = n_live * REGION_BYTES_MAX + totals.extents * EXTENT_BYTES_MAX +
                       (has_large_regions ? totals.held_pages * PAGE_BYTES_MAX : 0);
    print_message("%s: %llu live, %llu free, %llu extents, %llu pages: %llu KiB resident, %llu "
                  "allowed, %llu MiB mapped; %llu bytes a live region, %llu a page\n",
                  what, (unsigned long long)n_live,
                  (unsigned long long)count(pool, VPMM_REGION_FREE),
                  (unsigned long long)totals.extents, (unsigned long long)totals.held_pages,
                  (unsigned long long)resident >> 10, (unsigned long long)allowed >> 10,
                  (unsigned long long)counting_mapped_bytes(&counting) >> 20,
                  (unsigned long long)(resident / n_live),
                  (unsigned long long)(resident / totals.held_pages));
    assert_true(resident <= allowed);
    assert_true(resident <= ALL_BYTES_MAX);
    assert_null(vpmm_pool_audit(pool));
    vpmm_pool_destroy(pool);
    assert_int_equal(counting.n_mappings, 0);
}

static void an_empty_pool_takes_little(void **state)
{
    (void)state;
    struct vpmm_pool *pool = make_pool(0);
    uint64_t resident = counting_resident_bytes(&counting);
    print_message("empty: %llu KiB resident\n", (unsigned long long)resident >> 10);
    assert_true(resident <= 128 * 1024);
    vpmm_pool_destroy(pool);
}

static void a_hundred_thousand_regions_of_one_page(void **state)
{
    (void)state;
    struct vpmm_pool *pool = make_pool(1);
    for (unsigned i = 0; i < REGIONS; i++)
        (void)add_region(pool, 1);
    measure(pool, "one page each", false);
}

static void a_hundred_thousand_regions_of_which_every_second_is_free(void **state)
{
    (void)state;
    static uint64_t addresses[REGIONS];
    struct vpmm_region_view region;
    struct vpmm_pool *pool = make_pool(1);
    for (unsigned i = 0; i < REGIONS; i++)
        addresses[i] = add_region(pool, 1);
    for (unsigned i = 0; i < REGIONS; i += 2) {
        assert_int_equal(vpmm_pool_claim(pool, addresses[i], &region), VPMM_OK);
        vpmm_pool_free(pool, addresses[i], i % 4 ? VPMM_FENCE_NONE : i + 1, 0);
    }
    measure(pool, "every second free", false);
}

static void large_regions_of_eight_extents(void **state)
{
    (void)state;
    static const uint64_t pages[] = {2, 8, 64, 512};
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        char what[40];
        struct vpmm_pool *pool = make_pool(pages[i]);
        for (unsigned j = 0; j < REGIONS / 8 / pages[i]; j++)
            (void)add_region(pool, 8 * pages[i]);
        (void)snprintf(what, sizeof what, "8 extents of %u pages each", (unsigned)pages[i]);
        measure(pool, what, pages[i] > 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_pool_takes_little),
        cmocka_unit_test(a_hundred_thousand_regions_of_one_page),
        cmocka_unit_test(a_hundred_thousand_regions_of_which_every_second_is_free),
        cmocka_unit_test(large_regions_of_eight_extents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
