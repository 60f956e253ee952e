/* SPDX-License-Identifier: MIT */
/* Slabs lie apart from whole blocks, and yet either kind may have all of the memory. */
#include "scene.h"

#define SLABS 48
#define PAGES 96 /* of 2 MiB: more than half of the device */

static struct scene scene;
static CUstream here;

static int set_up(void **state)
{
    (void)state;
    scene_setup(&scene);
    here = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    scene_teardown(&scene);
    return 0;
}

static void take_parts(uint64_t *blocks, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        blocks[i] = scene_malloc(&scene, 1 * MIB, here);
}

static void give_parts(const uint64_t *blocks, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        scene_free(&scene, blocks[i], here);
}

static void take_pages(uint64_t *blocks, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        blocks[i] = fixture_malloc(&scene.f, 1, here);
}

static void give_pages(const uint64_t *blocks, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        fixture_free(&scene.f, blocks[i], here);
}

static void a_slab_takes_no_page_that_a_block_left(void **state)
{
    (void)state;
    uint64_t page = fixture_malloc(&scene.f, 1, here);
    fixture_free(&scene.f, page, here);
    uint64_t part = scene_malloc(&scene, 4096, here);
    assert_int_not_equal(part, page);
    SAME(page, fixture_malloc(&scene.f, 1, here));
    fixture_free(&scene.f, page, here);
    scene_free(&scene, part, here);
}

static void blocks_get_what_slabs_had(void **state)
{
    (void)state;
    uint64_t parts[2 * SLABS], pages[PAGES];
    take_parts(parts, 2 * SLABS);
    give_parts(parts, 2 * SLABS);
    take_pages(pages, PAGES);
    give_pages(pages, PAGES);
}

static void slabs_get_what_blocks_had(void **state)
{
    (void)state;
    uint64_t parts[2 * PAGES], pages[SLABS];
    take_pages(pages, SLABS);
    give_pages(pages, SLABS);
    take_parts(parts, 2 * PAGES);
    give_parts(parts, 2 * PAGES);
}

/* Either keeps no more than a share from the other. */
static void little_is_held_twice(void **state)
{
    (void)state;
    uint64_t parts[2 * SLABS], pages[SLABS];
    for (int i = 0; i < 3; i++) {
        take_parts(parts, 2 * SLABS);
        give_parts(parts, 2 * SLABS);
        take_pages(pages, SLABS);
        give_pages(pages, SLABS);
    }
    assert_in_range(fixture_totals(&scene.f).held_pages, SLABS, SLABS + 20);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_slab_takes_no_page_that_a_block_left),
        TEST(blocks_get_what_slabs_had),
        TEST(slabs_get_what_blocks_had),
        TEST(little_is_held_twice),
    };
    return cmocka_run_group_tests_name("small/apart", tests, NULL, NULL);
}
