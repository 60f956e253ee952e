/* SPDX-License-Identifier: MIT */
/* Which blocks share pages with which: requests a little above whole pages, and small ones of
 * different sizes. What cudaFree of a wide block waits for, and what cudaMalloc of one does. */
#include "scene.h"

#define N 60u

static struct scene scene;
static CUstream stream;

static void begin(bool wide_waits)
{
    scene = (struct scene){.params = {.free_waits = true, .wide_waits = wide_waits}};
    scene_setup(&scene);
    stream = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
}

static int setup(void **state)
{
    (void)state;
    begin(false);
    return 0;
}

static int setup_waiting(void **state)
{
    (void)state;
    begin(true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scene_teardown(&scene);
    return 0;
}

static void only_requests_that_waste_much_of_a_page_are_wide(void **state)
{
    (void)state;
    const uint64_t page = 2 * MIB;
    static const uint64_t not_wide[] = {
        1, MIB, 2 * MIB, 4 * MIB, 4 * MIB - 1, 32 * MIB, 32 * MIB - 4096, 33 * MIB, 100 * MIB + 1};
    static const uint64_t wide[] = {2 * MIB + 1, 3 * MIB, 4 * MIB + 1, 8 * MIB + 100 * KIB,
                                    16 * MIB + 1};
    for (unsigned i = 0; i < sizeof not_wide / sizeof *not_wide; i++)
        assert_false(vpmm_small_is_wide(not_wide[i], page));
    for (unsigned i = 0; i < sizeof wide / sizeof *wide; i++)
        assert_true(vpmm_small_is_wide(wide[i], page));
    assert_false(vpmm_small_is_wide(3 * 64 * MIB / 2, 64 * MIB));
}

static void share_pages(CUstream of)
{
    uint64_t blocks[N];
    uint64_t bytes = scene.f.page_bytes / 20 * 21;
    for (unsigned i = 0; i < N; i++)
        blocks[i] = scene_malloc(&scene, bytes, of);
    assert_in_range(scene_figures(&scene).pages, N * 21 / 20, N * 21 / 20 * 5 / 4);
    for (unsigned i = 0; i < N; i++)
        scene_work(&scene, stream, blocks[i], bytes, NULL);
    for (unsigned i = 0; i < N; i++)
        scene_free(&scene, blocks[i], of);
    if (of)
        assert_in_range(scene_figures(&scene).pages, 0, 1);
}

static void wide_blocks_share_their_last_pages(void **state)
{
    (void)state;
    share_pages(stream);
    (void)sim_drain(scene.f.sim);
    share_pages(NULL);
}

static void cuda_free_of_a_wide_block_does_not_wait(void **state)
{
    (void)state;
    uint64_t block = scene_malloc(&scene, 3 * MIB, NULL);
    scene_work(&scene, stream, block, 3 * MIB, NULL);
    scene_free(&scene, block, NULL);
    SAME(0, sim_calls(scene.f.sim, "cuCtxSynchronize"));
    block = scene_malloc(&scene, 3 * KIB, NULL);
    scene_free(&scene, block, NULL);
    SAME(1, sim_calls(scene.f.sim, "cuCtxSynchronize"));
}

static void it_waits_where_every_cuda_free_does(void **state)
{
    (void)state;
    uint64_t block = scene_malloc(&scene, 3 * MIB, NULL);
    scene_work(&scene, stream, block, 3 * MIB, NULL);
    scene_free(&scene, block, NULL);
    SAME(1, sim_calls(scene.f.sim, "cuCtxSynchronize"));
}

/* Bare CUDA would have waited in each cudaFree. */
static void a_loop_that_never_waits_holds_no_more_and_more(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 200; i++) {
        uint64_t block = scene_malloc(&scene, 3 * MIB, NULL);
        scene_work(&scene, stream, block, 3 * MIB, NULL);
        scene_free(&scene, block, NULL);
    }
    assert_in_range(scene_figures(&scene).pages * 2 * MIB, 3 * MIB, 90 * MIB);
}

/* On a full device a request waits for what wide blocks leave pending, as it does for others. */
static void a_full_device_waits_for_wide_blocks(void **state)
{
    (void)state;
    uint64_t blocks[N], whole, bytes = 4 * MIB - 600 * KIB;
    enum vpmm_status waited;
    const struct vpmm_request request = {.bytes = 200 * MIB, .context = scene.f.context};
    for (unsigned i = 0; i < N; i++)
        blocks[i] = scene_malloc(&scene, bytes, NULL);
    for (unsigned i = 0; i < N; i++) {
        scene_work(&scene, stream, blocks[i], bytes, NULL);
        scene_free(&scene, blocks[i], NULL);
    }
    SAME(VPMM_OK, vpmm_heap_malloc(scene.f.heap, &request, &whole));
    SAME(VPMM_OK, vpmm_heap_free(scene.f.heap, whole, NULL, &waited));
}

static void a_few_blocks_of_any_size_have_one_page(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 100000, 700000, 200000, 30000, 800000};
    uint64_t blocks[6];
    for (unsigned i = 0; i < 6; i++)
        blocks[i] = scene_malloc(&scene, sizes[i], stream);
    SAME(1, scene_figures(&scene).pages);
    for (unsigned i = 0; i < 6; i++)
        scene_free(&scene, blocks[i], stream);
}

/* Of many, the small ones that stay hold no pages of the large ones. */
static void small_blocks_that_stay_hold_few_pages(void **state)
{
    (void)state;
    static uint64_t large[N], little[20 * N];
    for (unsigned i = 0; i < N; i++) {
        large[i] = scene_malloc(&scene, scene.f.page_bytes / 2 - 20 * KIB, stream);
        for (unsigned j = 0; j < 20; j++)
            little[20 * i + j] = scene_malloc(&scene, 2 * KIB, stream);
    }
    for (unsigned i = 0; i < N; i++)
        scene_free(&scene, large[i], stream);
    assert_in_range(scene_figures(&scene).pages, 2, 7);
    for (unsigned i = 0; i < 20 * N; i++)
        scene_free(&scene, little[i], stream);
}

/* An empty page serves requests of another kind before another one is got. */
static void an_empty_page_serves_any_size(void **state)
{
    (void)state;
    uint64_t blocks[8];
    for (unsigned i = 0; i < 8; i++)
        blocks[i] = scene_malloc(&scene, scene.f.page_bytes, stream);
    uint64_t small = scene_malloc(&scene, scene.f.page_bytes / 2, stream);
    uint64_t pages = scene_figures(&scene).pages;
    scene_free(&scene, small, stream);
    uint64_t little[40];
    for (unsigned i = 0; i < 40; i++)
        little[i] = scene_malloc(&scene, 40 * KIB, stream);
    SAME(pages, scene_figures(&scene).pages);
    for (unsigned i = 0; i < 40; i++)
        scene_free(&scene, little[i], stream);
    for (unsigned i = 0; i < 8; i++)
        scene_free(&scene, blocks[i], stream);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_requests_that_waste_much_of_a_page_are_wide),
        TEST(wide_blocks_share_their_last_pages),
        TEST(cuda_free_of_a_wide_block_does_not_wait),
        cmocka_unit_test_setup_teardown(it_waits_where_every_cuda_free_does, setup_waiting,
                                        teardown),
        TEST(a_loop_that_never_waits_holds_no_more_and_more),
        TEST(a_full_device_waits_for_wide_blocks),
        TEST(a_few_blocks_of_any_size_have_one_page),
        TEST(small_blocks_that_stay_hold_few_pages),
        TEST(an_empty_page_serves_any_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
