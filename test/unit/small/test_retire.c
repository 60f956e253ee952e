/* SPDX-License-Identifier: MIT */
/* Slabs with a block that other processes may open: nobody gets a block there any more, and what is
 * freed there goes back. */
#include "scene.h"

#define BYTES 4096u

static struct scene scene;
static uint64_t first, second;

/* One block is live, one is hot, and one page has both. */
static int setup(void **state)
{
    (void)state;
    scene = (struct scene){.params = {.free_waits = true}};
    scene_setup(&scene);
    first = scene_malloc(&scene, BYTES, NULL);
    second = scene_malloc(&scene, BYTES, NULL);
    scene_free(&scene, second, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scene_teardown(&scene);
    return 0;
}

static uint64_t page_of(uint64_t address)
{
    return address / scene.f.page_bytes;
}

static void nobody_gets_a_block_there(void **state)
{
    (void)state;
    SAME(page_of(first), page_of(second));
    vpmm_small_retire(scene.small, first);
    scene_audit(&scene);
    uint64_t same = scene_malloc(&scene, BYTES, NULL);
    uint64_t other = scene_malloc(&scene, 8 * BYTES, NULL);
    assert_int_not_equal(page_of(first), page_of(same));
    assert_int_not_equal(page_of(first), page_of(other));
    SAME(page_of(same), page_of(other));
    scene_free(&scene, first, NULL);
    scene_free(&scene, same, NULL);
    SAME(same, scene_malloc(&scene, BYTES, NULL));
    scene_free(&scene, same, NULL);
    scene_free(&scene, other, NULL);
}

static void its_page_goes_back_with_its_last_block(void **state)
{
    (void)state;
    SAME(1, scene_figures(&scene).pages);
    vpmm_small_retire(scene.small, first);
    vpmm_small_retire(scene.small, first);
    SAME(1, scene_figures(&scene).pages);
    scene_free(&scene, first, NULL);
    SAME(0, scene_figures(&scene).pages);
    SAME(VPMM_INVALID, scene_try_free(&scene, first, NULL));
}

static void a_block_of_a_stream_stays_in_use(void **state)
{
    (void)state;
    CUstream stream = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    uint64_t block = scene_malloc(&scene, BYTES, stream);
    vpmm_small_retire(scene.small, block);
    vpmm_small_retire(scene.small, first - scene.f.page_bytes * 1024);
    uint64_t next = scene_malloc(&scene, BYTES, stream);
    SAME(page_of(block), page_of(next));
    scene_free(&scene, block, stream);
    scene_free(&scene, next, stream);
    scene_free(&scene, first, NULL);
}

static void after_the_end_of_the_context_the_rack_serves_again(void **state)
{
    (void)state;
    vpmm_small_retire(scene.small, first);
    vpmm_small_context_gone(scene.small, vpmm_context_id(scene.f.context));
    vpmm_heap_context_gone(scene.f.heap, vpmm_context_id(scene.f.context));
    scene_audit(&scene);
    SAME(0, scene_figures(&scene).pages);
    first = scene_malloc(&scene, BYTES, NULL);
    SAME(1, scene_figures(&scene).racks);
    scene_free(&scene, first, NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nobody_gets_a_block_there),
        TEST(its_page_goes_back_with_its_last_block),
        TEST(a_block_of_a_stream_stays_in_use),
        TEST(after_the_end_of_the_context_the_rack_serves_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
