/* SPDX-License-Identifier: MIT */
/* What other streams free into a rack: when its owner has it, and what that costs. The device
 * reports work that nothing orders. */
#include "scene.h"

#include "order/order_program.h"

#define BLOCKS 8u

static struct scene scene;
static CUstream here, there, elsewhere;
static bool gate;
static uint64_t bytes, blocks[BLOCKS];

/* The rack of `here` has one page, and all of it is live. */
static int setup(void **state)
{
    (void)state;
    gate = false;
    scene = (struct scene){.params = {.free_waits = true}};
    scene_setup(&scene);
    here = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    there = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    elsewhere = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    bytes = scene.f.page_bytes / BLOCKS;
    for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i] = scene_malloc(&scene, bytes, here);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gate = true;
    for (unsigned i = 0; i < BLOCKS; i++)
        if (blocks[i])
            scene_free(&scene, blocks[i], here);
    scene_teardown(&scene);
    return 0;
}

/* One was freed on an idle stream, the other behind work. */
static void two_that_came_back_together_are_asked_about_apart(void **state)
{
    (void)state;
    scene_work(&scene, there, blocks[1], bytes, &gate);
    scene_free(&scene, blocks[0], elsewhere);
    scene_free(&scene, blocks[1], there);
    (void)sim_drain(scene.f.sim);
    (void)vpmm_order_poll(scene.f.order);
    SAME(blocks[0], scene_malloc(&scene, bytes, here));
    blocks[1] = 0;
}

/* Of seven the first has an event of its own, the next two share one, and so do the last four. */
static void more_and_more_frees_share_an_event(void **state)
{
    (void)state;
    uint64_t n_before = sim_calls(scene.f.sim, "cuEventRecord");
    for (unsigned i = 0; i < 7; i++)
        scene_free(&scene, blocks[i], there);
    SAME(3, sim_calls(scene.f.sim, "cuEventRecord") - n_before);
    SAME(0, sim_calls(scene.f.sim, "cuCtxRecordEvent"));
    for (unsigned i = 0; i < 7; i++)
        blocks[i] = scene_malloc(&scene, bytes, here);
    SAME(1, scene_figures(&scene).pages);
}

static void a_request_has_the_batch_recorded_that_it_waits_for(void **state)
{
    (void)state;
    scene_free(&scene, blocks[0], there);
    blocks[0] = scene_malloc(&scene, bytes, here);
    scene_free(&scene, blocks[1], there);
    SAME(1, scene_figures(&scene).waiting_blocks);
    SAME(0, sim_calls(scene.f.sim, "cuCtxRecordEvent"));
    SAME(blocks[1], scene_malloc(&scene, bytes, here));
    SAME(1, sim_calls(scene.f.sim, "cuCtxRecordEvent"));
    uint64_t n_before = sim_calls(scene.f.sim, "cuEventRecord");
    scene_free(&scene, blocks[1], there);
    SAME(1, sim_calls(scene.f.sim, "cuEventRecord") - n_before);
    SAME(blocks[1], scene_malloc(&scene, bytes, here));
}

static void what_joined_a_batch_waits_for_the_work_before_it(void **state)
{
    (void)state;
    scene_free(&scene, blocks[0], there);
    blocks[0] = scene_malloc(&scene, bytes, here);
    scene_work(&scene, there, blocks[1], bytes, &gate);
    scene_free(&scene, blocks[1], there);
    uint64_t other = scene_malloc(&scene, bytes, here);
    assert_int_not_equal(other, blocks[1]);
    scene_work(&scene, here, other, bytes, NULL);
    blocks[1] = other;
}

/* Later frees do not join what the event stands for. The next batch has room for four. */
static void a_batch_ends_with_its_turn(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++)
        scene_free(&scene, blocks[i], there);
    for (unsigned i = 0; i < 3; i++)
        blocks[i] = scene_malloc(&scene, bytes, here);
    scene_work(&scene, there, blocks[1], bytes, &gate);
    scene_free(&scene, blocks[1], there);
    fixture_follow(&scene.f, there, here);
    scene_work(&scene, there, blocks[2], bytes, &gate);
    scene_free(&scene, blocks[2], there);
    SAME(blocks[1], scene_malloc(&scene, bytes, here));
    scene_work(&scene, here, blocks[1], bytes, NULL);
    blocks[2] = 0;
}

static void no_event_is_recorded_for_what_is_proven_complete(void **state)
{
    (void)state;
    struct vpmm_proof proof;
    scene_free(&scene, blocks[0], there);
    blocks[0] = scene_malloc(&scene, bytes, here);
    scene_free(&scene, blocks[1], there);
    vpmm_order_prove_stream(scene.f.order, (vpmm_stream_handle)there, &proof);
    SAME(CUDA_SUCCESS, sim_stream_synchronize(scene.f.sim, there));
    vpmm_order_proven(scene.f.order, &proof);
    SAME(blocks[1], scene_malloc(&scene, bytes, here));
    SAME(0, sim_calls(scene.f.sim, "cuCtxRecordEvent"));
}

static void the_batch_of_a_stream_that_is_gone_is_recorded(void **state)
{
    (void)state;
    struct vpmm_stream stream;
    scene_free(&scene, blocks[0], there);
    blocks[0] = scene_malloc(&scene, bytes, here);
    scene_free(&scene, blocks[1], there);
    SAME(VPMM_OK, vpmm_order_stream(scene.f.order, (vpmm_stream_handle)there, &stream));
    vpmm_small_stream_gone(scene.small, &stream);
    SAME(blocks[1], scene_malloc(&scene, bytes, here));
}

/* More wait for one stream than a look comes to, and each round one more that another frees. */
static void what_one_stream_keeps_hides_nothing_of_others(void **state)
{
    (void)state;
    uint64_t kept[40];
    uint32_t n_kept = sizeof kept / sizeof *kept;
    for (uint32_t i = 0; i < n_kept; i++)
        kept[i] = scene_malloc(&scene, KIB, here);
    scene_work(&scene, there, kept[0], KIB, &gate);
    for (uint32_t i = 0; i < n_kept; i++)
        scene_free(&scene, kept[i], there);
    uint64_t pages = 0;
    for (unsigned round = 0; round < 80; round++) {
        bool is_open = false;
        uint64_t p = scene_malloc(&scene, bytes, here);
        scene_work(&scene, elsewhere, p, bytes, &is_open);
        scene_free(&scene, p, elsewhere);
        uint64_t q = scene_malloc(&scene, bytes, here);
        is_open = true;
        SAME(CUDA_SUCCESS, sim_stream_synchronize(scene.f.sim, elsewhere));
        (void)vpmm_order_poll(scene.f.order);
        scene_free(&scene, q, here);
        if (round == 19)
            pages = scene_figures(&scene).pages;
    }
    SAME(pages, scene_figures(&scene).pages);
}

/* While it is pending: the program may wait for the stream and use the block elsewhere. */
static void what_the_legacy_stream_freed_leaves_a_mark(void **state)
{
    (void)state;
    struct vpmm_stream stream;
    uint64_t own[BLOCKS];
    CUstream blocking = fixture_stream(&scene.f, CU_STREAM_DEFAULT);
    for (unsigned i = 0; i < BLOCKS; i++)
        own[i] = scene_malloc(&scene, bytes, blocking);
    SAME(VPMM_OK, vpmm_order_stream(scene.f.order, (vpmm_stream_handle)blocking, &stream));
    SAME(VPMM_OK, vpmm_order_mark_free(scene.f.order, &stream, BLOCKS * bytes));
    scene_work(&scene, CU_STREAM_LEGACY, own[0], bytes, &gate);
    scene_free(&scene, own[0], CU_STREAM_LEGACY);
    uint64_t n_records = sim_calls(scene.f.sim, "cuEventRecord");
    SAME(own[0], scene_malloc(&scene, bytes, blocking));
    SAME(n_records + 1, sim_calls(scene.f.sim, "cuEventRecord"));
    gate = true;
    SAME(CUDA_SUCCESS, sim_stream_synchronize(scene.f.sim, CU_STREAM_LEGACY));
    (void)vpmm_order_poll(scene.f.order);
    scene_free(&scene, own[0], blocking);
    n_records = sim_calls(scene.f.sim, "cuEventRecord");
    SAME(own[0], scene_malloc(&scene, bytes, blocking));
    SAME(n_records, sim_calls(scene.f.sim, "cuEventRecord"));
    for (unsigned i = 0; i < BLOCKS; i++)
        scene_free(&scene, own[i], blocking);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(more_and_more_frees_share_an_event),
        TEST(a_request_has_the_batch_recorded_that_it_waits_for),
        TEST(what_joined_a_batch_waits_for_the_work_before_it),
        TEST(a_batch_ends_with_its_turn),
        TEST(no_event_is_recorded_for_what_is_proven_complete),
        TEST(the_batch_of_a_stream_that_is_gone_is_recorded),
        TEST(two_that_came_back_together_are_asked_about_apart),
        TEST(what_one_stream_keeps_hides_nothing_of_others),
        TEST(what_the_legacy_stream_freed_leaves_a_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
