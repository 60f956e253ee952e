/* SPDX-License-Identifier: MIT */
/* How a page is cut, what fits where, what merges, and whose a free is. */
#include "scene.h"

#include <stdlib.h>

static struct scene scene;
static CUstream stream;

static int setup(void **state)
{
    (void)state;
    scene = (struct scene){.params = {.free_waits = true}};
    scene_setup(&scene);
    stream = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scene_teardown(&scene);
    return 0;
}

static void blocks_lie_side_by_side_in_one_page(void **state)
{
    (void)state;
    uint64_t first = scene_malloc(&scene, 1, stream);
    uint64_t second = scene_malloc(&scene, 513, stream);
    uint64_t third = scene_malloc(&scene, 512, stream);
    SAME(first + 512, second);
    SAME(second + 1024, third);
    SAME(1, scene_figures(&scene).pages);
    SAME(3, scene_figures(&scene).blocks);
    SAME(1026, scene_figures(&scene).bytes);
    SAME(1026, scene_figures(&scene).async_bytes);
    scene_free(&scene, second, stream);
    SAME(513, scene_figures(&scene).bytes);
    scene_free(&scene, first, stream);
    scene_free(&scene, third, stream);
}

static void the_smallest_hole_that_fits_is_taken(void **state)
{
    (void)state;
    uint64_t blocks[5];
    static const uint64_t grains[5] = {8, 1, 5, 1, 12};
    for (int i = 0; i < 5; i++)
        blocks[i] = scene_malloc(&scene, grains[i] * 512, stream);
    scene_free(&scene, blocks[0], stream);
    scene_free(&scene, blocks[2], stream);
    vpmm_heap_reap(scene.f.heap);
    SAME(blocks[2], scene_malloc(&scene, 4 * 512, stream));
    SAME(blocks[0], scene_malloc(&scene, 6 * 512, stream));
    SAME(blocks[2] + 4 * 512, scene_malloc(&scene, 512, stream));
    SAME(blocks[0] + 6 * 512, scene_malloc(&scene, 2 * 512, stream));
    static const uint64_t at[4] = {0, 2, 1, 3};
    for (int i = 0; i < 4; i++)
        scene_free(&scene, blocks[at[i]], stream);
    scene_free(&scene, blocks[2] + 4 * 512, stream);
    scene_free(&scene, blocks[0] + 6 * 512, stream);
    scene_free(&scene, blocks[4], stream);
}

static int by_address(const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

/* In any order the page is whole again. */
/* One page is full but for a block, and one nearly empty. */
static void pages_and_blocks_are_told_by_class(void **state)
{
    (void)state;
    struct vpmm_small_class classes[VPMM_SMALL_CLASSES];
    uint64_t share = scene.f.page_bytes / 32, blocks[32];
    for (int i = 0; i < 32; i++)
        blocks[i] = scene_malloc(&scene, share, stream);
    scene_free(&scene, blocks[31], stream);
    uint64_t large = scene_malloc(&scene, scene.f.page_bytes / 2 - 100, stream);
    vpmm_small_classes(scene.small, classes);
    assert_string_equal("fine", vpmm_small_class_name(0));
    SAME(1, classes[0].pages);
    SAME(31, classes[0].blocks);
    SAME(31 * share, classes[0].bytes);
    SAME(share, classes[0].free_bytes);
    SAME(1, classes[0].pages_by_fill[3]);
    assert_string_equal("coarse", vpmm_small_class_name(2));
    SAME(1, classes[2].pages);
    SAME(1, classes[2].blocks);
    SAME(scene.f.page_bytes / 2 - 100, classes[2].bytes);
    SAME(scene.f.page_bytes / 2, classes[2].free_bytes);
    SAME(1, classes[2].pages_by_fill[1]);
    SAME(0, classes[1].pages + classes[3].pages);
    scene_free(&scene, large, stream);
    for (int i = 0; i < 31; i++)
        scene_free(&scene, blocks[i], stream);
}

/* The last one first, as they were cut. */
static void blocks_of_one_size_come_back_in_turn(void **state)
{
    (void)state;
    uint64_t blocks[3];
    for (int i = 0; i < 3; i++)
        blocks[i] = scene_malloc(&scene, 4096, stream);
    for (int i = 0; i < 3; i++)
        scene_free(&scene, blocks[i], stream);
    for (int i = 3; i-- > 0;)
        SAME(blocks[i], scene_malloc_warm(&scene, 4096, stream));
    for (int i = 0; i < 3; i++)
        scene_free(&scene, blocks[i], stream);
}

static void what_is_freed_side_by_side_merges(void **state)
{
    (void)state;
    static const int orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 3, 0, 2}};
    uint64_t bytes = scene.f.page_bytes / 64;
    for (int round = 0; round < 4; round++) {
        uint64_t blocks[64];
        for (int i = 0; i < 64; i++)
            blocks[i] = scene_malloc(&scene, bytes, stream);
        qsort(blocks, 64, sizeof *blocks, by_address);
        for (int i = 0; i < 4; i++)
            scene_free(&scene, blocks[20 + orders[round][i]], stream);
        SAME(blocks[20], scene_malloc(&scene, 4 * bytes - 511, stream));
        SAME(1, scene_figures(&scene).pages);
        scene_free(&scene, blocks[20], stream);
        for (int i = 0; i < 64; i++)
            if (i < 20 || i >= 24)
                scene_free(&scene, blocks[i], stream);
    }
}

static void every_size_below_a_page_is_served(void **state)
{
    (void)state;
    static uint64_t blocks[64];
    uint64_t bytes = 1;
    unsigned n = 0;
    for (; bytes < scene.f.page_bytes; bytes += bytes / 2 + 1, n++)
        blocks[n] = scene_malloc(&scene, bytes, stream);
    uint64_t largest = scene_malloc(&scene, scene.f.page_bytes - 1, stream);
    for (unsigned i = 0; i < n; i++)
        scene_free(&scene, blocks[i], stream);
    scene_free(&scene, largest, stream);
}

static void a_block_is_freed_once_and_at_its_beginning(void **state)
{
    (void)state;
    uint64_t block = scene_malloc(&scene, 4096, stream);
    SAME(VPMM_NOT_FOUND, scene_try_free(&scene, block + 512, stream));
    SAME(VPMM_NOT_FOUND, scene_try_free(&scene, block + 1, stream));
    SAME(VPMM_NOT_FOUND, scene_try_free(&scene, block + 4096, stream));
    SAME(VPMM_INVALID, scene_try_free(&scene, 4096, stream));
    scene_free(&scene, block, stream);
    SAME(VPMM_NOT_FOUND, scene_try_free(&scene, block, stream));
    SAME(VPMM_NOT_FOUND, scene_try_free(&scene, block, NULL));
    block = scene_malloc(&scene, 4096, NULL);
    scene_free(&scene, block, NULL);
    SAME(VPMM_NOT_FOUND, scene_try_free(&scene, block, NULL));
}

static void a_block_is_known_from_every_address_in_it(void **state)
{
    (void)state;
    struct vpmm_region_view view, other;
    uint64_t before = scene_malloc(&scene, 70000, stream);
    uint64_t block = scene_malloc(&scene, 100000, stream);
    for (uint64_t offset = 0; offset < 100000; offset += 501) {
        assert_true(vpmm_small_find(scene.small, block + offset, &view));
        SAME(VPMM_REGION_LIVE, view.state);
        SAME(block, view.address);
        SAME(100000, view.owner.bytes);
        SAME(vpmm_context_id(scene.f.context), view.owner.context_id);
        assert_true(view.owner.is_async && view.is_part);
    }
    assert_true(vpmm_small_find(scene.small, before, &other));
    assert_int_not_equal(view.owner.id, other.owner.id);
    uint64_t id = view.owner.id;
    scene_free(&scene, block, stream);
    assert_true(vpmm_small_find(scene.small, block + 5, &view));
    SAME(VPMM_REGION_FREE, view.state);
    SAME(block, scene_malloc(&scene, 100000, stream));
    assert_true(vpmm_small_find(scene.small, block, &view));
    assert_int_not_equal(id, view.owner.id);
    assert_false(vpmm_small_find(scene.small, block + 4 * scene.f.page_bytes, &view));
    assert_false(vpmm_small_find(scene.small, 12345, &view));
    scene_free(&scene, block, stream);
    scene_free(&scene, before, stream);
}

static void pages_that_are_empty_go_back_to_the_heap(void **state)
{
    (void)state;
    uint64_t blocks[64];
    uint64_t bytes = scene.f.page_bytes / 8;
    for (int i = 0; i < 64; i++)
        blocks[i] = scene_malloc(&scene, bytes, stream);
    SAME(8, scene_figures(&scene).pages);
    for (int i = 0; i < 64; i++)
        scene_free(&scene, blocks[i], stream);
    SAME(1, scene_figures(&scene).pages);
    SAME(1, fixture_totals(&scene.f).live_pages);
    SAME(7, fixture_totals(&scene.f).free_pages);
    vpmm_heap_reap(scene.f.heap);
    SAME(0, scene_figures(&scene).pages);
}

static void large_requests_get_slabs_of_several_pages_once_there_are_many(void **state)
{
    (void)state;
    uint64_t blocks[110];
    uint64_t bytes = scene.f.page_bytes / 20 * 11;
    for (int i = 0; i < 110; i++)
        blocks[i] = scene_malloc(&scene, bytes, stream);
    struct vpmm_small_figures figures = scene_figures(&scene);
    assert_true(figures.slabs < figures.pages);
    for (int i = 0; i < 110; i++)
        scene_free(&scene, blocks[i], stream);
}

static void a_request_that_is_served_again_needs_no_driver(void **state)
{
    (void)state;
    uint64_t block = scene_malloc(&scene, 5000, stream);
    scene_free(&scene, block, stream);
    uint64_t n = sim_calls(scene.f.sim, "cuEventRecord") + sim_calls(scene.f.sim, "cuEventQuery") +
                 sim_calls(scene.f.sim, "cuMemMap");
    for (int i = 0; i < 100; i++) {
        SAME(block, scene_malloc_warm(&scene, 5000, stream));
        scene_free(&scene, block, stream);
    }
    SAME(n, sim_calls(scene.f.sim, "cuEventRecord") + sim_calls(scene.f.sim, "cuEventQuery") +
                sim_calls(scene.f.sim, "cuMemMap"));
    SAME(100, scene_figures(&scene).warm_mallocs);
    SAME(101, scene_figures(&scene).mallocs);
    SAME(101, scene_figures(&scene).frees);
}

static uint64_t draw(uint64_t n)
{
    static uint64_t random = 7;
    random = random * 6364136223846793005u + 1442695040888963407u;
    return (random >> 33) % n;
}

static uint64_t reserved_pages(struct vpmm_mempool *mempool, bool is_highest)
{
    struct vpmm_mempool_figures figures;
    vpmm_heap_mempool_figures(scene.f.heap, mempool, &figures);
    uint64_t bytes = is_highest ? figures.reserved_high_bytes : figures.reserved_bytes;
    SAME(0, bytes % (2 * MIB));
    return bytes / (2 * MIB);
}

/* Whether somebody asks before the pages go or afterwards; one page is cudaMalloc's. */
static void the_highest_reserved_figure_remembers_pages_that_are_gone(void **state)
{
    (void)state;
    struct vpmm_mempool standard;
    uint64_t blocks[40], plain = scene_malloc(&scene, KIB, NULL);
    for (int asks = 0; asks < 2; asks++) {
        vpmm_mempool_init(&standard, VPMM_MEMPOOL_DEFAULT, 0);
        scene.f.mempool = &standard;
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
            blocks[i] = scene_malloc(&scene, MIB, stream);
        SAME(20, scene_figures(&scene).pages - 1);
        if (asks)
            SAME(20, reserved_pages(&standard, false));
        for (size_t i = 1; i < sizeof blocks / sizeof *blocks; i++)
            scene_free(&scene, blocks[i], stream);
        (void)sim_drain(scene.f.sim);
        vpmm_heap_mempool_trim(scene.f.heap, &standard, 0, true);
        SAME(1, reserved_pages(&standard, false));
        SAME(20, reserved_pages(&standard, true));
        vpmm_heap_mempool_reset_reserved(scene.f.heap, &standard);
        SAME(1, reserved_pages(&standard, true));
        scene_free(&scene, blocks[0], stream);
        (void)sim_drain(scene.f.sim);
        vpmm_heap_mempool_trim(scene.f.heap, &standard, 0, true);
        SAME(0, reserved_pages(&standard, false));
        SAME(1, reserved_pages(&standard, true));
    }
    scene.f.mempool = NULL;
    scene_free(&scene, plain, NULL);
}

/* Random sizes, one stream: everything is audited, and the device reports blocks that overlap. */
static void many_sizes_at_random(void **state)
{
    (void)state;
    static uint64_t blocks[300], sizes[300];
    unsigned n = 0;
    for (int i = 0; i < 4000; i++) {
        if (n == 300 || (n && draw(5) < 2)) {
            unsigned at = (unsigned)draw(n);
            scene_free(&scene, blocks[at], stream);
            blocks[at] = blocks[--n];
            sizes[at] = sizes[n];
            continue;
        }
        sizes[n] = 1 + draw((uint64_t)1 << draw(18));
        blocks[n] = scene_malloc(&scene, sizes[n], stream);
        for (unsigned j = 0; j < n; j++)
            assert_true(blocks[n] >= blocks[j] + sizes[j] || blocks[j] >= blocks[n] + sizes[n]);
        n++;
    }
    while (n)
        scene_free(&scene, blocks[--n], stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(blocks_lie_side_by_side_in_one_page, setup, teardown),
        cmocka_unit_test_setup_teardown(the_smallest_hole_that_fits_is_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(pages_and_blocks_are_told_by_class, setup, teardown),
        cmocka_unit_test_setup_teardown(blocks_of_one_size_come_back_in_turn, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_freed_side_by_side_merges, setup, teardown),
        cmocka_unit_test_setup_teardown(every_size_below_a_page_is_served, setup, teardown),
        cmocka_unit_test_setup_teardown(a_block_is_freed_once_and_at_its_beginning, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_block_is_known_from_every_address_in_it, setup, teardown),
        cmocka_unit_test_setup_teardown(pages_that_are_empty_go_back_to_the_heap, setup, teardown),
        cmocka_unit_test_setup_teardown(
            large_requests_get_slabs_of_several_pages_once_there_are_many, setup, teardown),
        cmocka_unit_test_setup_teardown(a_request_that_is_served_again_needs_no_driver, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_highest_reserved_figure_remembers_pages_that_are_gone,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(many_sizes_at_random, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
