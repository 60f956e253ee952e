/* SPDX-License-Identifier: MIT */
/* Who may have a freed block, and when: streams, cudaFree, the program's own events, and the ends
 * of streams and contexts. The device reports work that nothing orders. */
#include "scene.h"

static struct scene scene;
static CUstream here, there;
static bool gate;

static void begin(bool free_waits)
{
    gate = false;
    scene = (struct scene){.params = {.free_waits = free_waits}};
    scene_setup(&scene);
    here = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    there = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
}

static int setup(void **state)
{
    (void)state;
    begin(true);
    return 0;
}

static int setup_without_waits(void **state)
{
    (void)state;
    begin(false);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gate = true;
    scene_teardown(&scene);
    return 0;
}

/* Fills the rack's page, so that only a freed block serves the next request without a new one. */
static uint64_t fill(CUstream stream)
{
    static uint64_t blocks[8];
    for (int i = 0; i < 8; i++)
        blocks[i] = scene_malloc(&scene, scene.f.page_bytes / 8, stream);
    return blocks[3];
}

static void free_all(uint64_t any, CUstream stream)
{
    uint64_t page = any - any % scene.f.page_bytes;
    for (int i = 0; i < 8; i++)
        (void)scene_try_free(&scene, page + (uint64_t)i * scene.f.page_bytes / 8, stream);
}

static void a_stream_has_its_own_block_at_once(void **state)
{
    (void)state;
    uint64_t block = scene_malloc(&scene, 3000, here);
    scene_work(&scene, here, block, 3000, &gate);
    scene_free(&scene, block, here);
    SAME(block, scene_malloc_warm(&scene, 3000, here));
    scene_work(&scene, here, block, 3000, NULL);
    scene_free(&scene, block, here);
}

static void two_streams_share_no_page(void **state)
{
    (void)state;
    uint64_t one = scene_malloc(&scene, 3000, here);
    uint64_t other = scene_malloc(&scene, 3000, there);
    assert_int_not_equal(one / scene.f.page_bytes, other / scene.f.page_bytes);
    scene_free(&scene, one, here);
    scene_free(&scene, other, there);
}

static void what_another_stream_freed_waits_for_its_work(void **state)
{
    (void)state;
    uint64_t bytes = scene.f.page_bytes / 8;
    uint64_t block = fill(here);
    scene_work(&scene, there, block, bytes, &gate);
    scene_free(&scene, block, there);
    SAME(0, scene_malloc_warm(&scene, bytes, here));
    SAME(1, scene_figures(&scene).waiting_blocks);
    uint64_t instead = scene_malloc(&scene, bytes, here);
    assert_int_not_equal(instead, block);
    scene_free(&scene, instead, here);
    gate = true;
    (void)sim_drain(scene.f.sim);
    (void)vpmm_order_poll(scene.f.order);
    uint64_t big = scene_malloc(&scene, bytes, here);
    uint64_t again = scene_malloc(&scene, bytes, here);
    uint64_t more[8];
    bool has_it = big == block || again == block;
    for (int i = 0; i < 8; i++) {
        more[i] = scene_malloc(&scene, bytes, here);
        has_it |= more[i] == block;
    }
    assert_true(has_it);
    scene_work(&scene, here, block, bytes, NULL);
    for (int i = 0; i < 8; i++)
        scene_free(&scene, more[i], here);
    scene_free(&scene, big, here);
    scene_free(&scene, again, here);
    free_all(block, here);
}

/* The program's own event puts the rack's stream after the free. */
static void an_event_of_the_program_orders_a_block(void **state)
{
    (void)state;
    uint64_t bytes = scene.f.page_bytes / 8;
    uint64_t block = fill(here);
    uint64_t kept = scene_malloc(&scene, 100, there);
    scene_work(&scene, there, block, bytes, &gate);
    scene_free(&scene, kept, there);
    scene_free(&scene, block, there);
    fixture_follow(&scene.f, there, here);
    uint64_t next = scene_malloc(&scene, bytes, here);
    SAME(block, next);
    scene_work(&scene, here, next, bytes, NULL);
    scene_free(&scene, next, here);
    free_all(block, here);
}

static void cuda_free_waits_for_the_work_of_its_context(void **state)
{
    (void)state;
    uint64_t block = scene_malloc(&scene, 4096, NULL);
    gate = true;
    scene_work(&scene, here, block, 4096, &gate);
    SAME(0, sim_calls(scene.f.sim, "cuCtxSynchronize"));
    scene_free(&scene, block, NULL);
    SAME(1, sim_calls(scene.f.sim, "cuCtxSynchronize"));
    SAME(block, scene_malloc(&scene, 4096, NULL));
    scene_work(&scene, there, block, 4096, NULL);
    scene_free(&scene, block, NULL);
}

static void cuda_free_waits_for_nothing_where_it_must_not(void **state)
{
    (void)state;
    uint64_t block = scene_malloc(&scene, 4096, NULL);
    scene_work(&scene, here, block, 4096, &gate);
    scene_free(&scene, block, NULL);
    SAME(0, sim_calls(scene.f.sim, "cuCtxSynchronize"));
    uint64_t other = scene_malloc(&scene, 4096, NULL);
    assert_int_not_equal(other, block);
    scene_work(&scene, there, other, 4096, NULL);
    scene_free(&scene, other, NULL);
    gate = true;
}

/* Such frees share one record, which the request makes that finds no room. */
static void cuda_frees_that_do_not_wait_share_a_record(void **state)
{
    (void)state;
    enum {
        N = 16
    };
    uint64_t blocks[N], bytes = scene.f.page_bytes / N;
    for (int round = 0; round < 3; round++) {
        uint64_t n_records = sim_calls(scene.f.sim, "cuCtxRecordEvent");
        for (int i = 0; i < N; i++)
            blocks[i] = scene_malloc(&scene, bytes, NULL);
        for (int i = 0; i < N; i++) {
            scene_work(&scene, i % 2 ? here : there, blocks[i], bytes, NULL);
            scene_free(&scene, blocks[i], NULL);
            SAME(VPMM_NOT_FOUND, scene_try_free(&scene, blocks[i], NULL));
        }
        assert_in_range(sim_calls(scene.f.sim, "cuCtxRecordEvent") - n_records, 0, 1);
        (void)sim_drain(scene.f.sim);
    }
    SAME(1, scene_figures(&scene).pages);
}

/* What is freed after the record has to wait for one of its own. */
static void a_free_after_the_record_is_not_covered_by_it(void **state)
{
    (void)state;
    uint64_t first = scene_malloc(&scene, 1 * MIB, NULL);
    uint64_t second = scene_malloc(&scene, 1 * MIB, NULL);
    scene_free(&scene, first, NULL);
    SAME(first, scene_malloc(&scene, 1 * MIB, NULL));
    scene_work(&scene, here, second, 1 * MIB, &gate);
    assert_true(!vpmm_small_free_warm(scene.small, second, NULL) ||
                scene_try_free(&scene, second, NULL) == VPMM_OK);
    uint64_t third = scene_malloc(&scene, 1 * MIB, NULL);
    assert_int_not_equal(second, third);
    gate = true;
    scene_free(&scene, first, NULL);
    scene_free(&scene, third, NULL);
}

static void only_such_frees_are_warm(void **state)
{
    (void)state;
    uint64_t block = scene_malloc(&scene, 4096, NULL), other = scene_malloc(&scene, 4096, NULL);
    uint64_t of_stream = scene_malloc(&scene, 4096, here);
    SAME(VPMM_NOT_READY, vpmm_small_free_warm(scene.small, block, NULL));
    scene_free(&scene, block, NULL);
    SAME(VPMM_NOT_READY, vpmm_small_free_warm(scene.small, of_stream, NULL));
    SAME(VPMM_NOT_READY, vpmm_small_free_warm(scene.small, block, NULL));
    SAME(VPMM_NOT_READY, vpmm_small_free_warm(scene.small, other + 512, NULL));
    SAME(VPMM_INVALID, vpmm_small_free_warm(scene.small, 4096, NULL));
    SAME(VPMM_OK, vpmm_small_free_warm(scene.small, other, NULL));
    SAME(VPMM_NOT_READY, vpmm_small_free_warm(scene.small, other, NULL));
    scene_free(&scene, of_stream, here);
}

/* As bare CUDA: the memory may still be in use when cudaFree returns. */
static void cuda_free_of_async_memory_does_not_wait(void **state)
{
    (void)state;
    uint64_t block = fill(here);
    scene_work(&scene, here, block, 4096, &gate);
    scene_free(&scene, block, NULL);
    SAME(0, sim_calls(scene.f.sim, "cuCtxSynchronize"));
    uint64_t other = scene_malloc(&scene, scene.f.page_bytes / 8, here);
    scene_work(&scene, here, other, 4096, NULL);
    scene_free(&scene, other, here);
    free_all(block, here);
}

static void a_stream_may_free_what_cuda_malloc_gave(void **state)
{
    (void)state;
    uint64_t block = scene_malloc(&scene, 4096, NULL);
    scene_work(&scene, here, block, 4096, &gate);
    scene_free(&scene, block, here);
    uint64_t other = scene_malloc(&scene, 4096, NULL);
    assert_int_not_equal(other, block);
    scene_work(&scene, there, other, 4096, NULL);
    gate = true;
    scene_free(&scene, other, NULL);
}

static struct vpmm_stream resolve(CUstream handle)
{
    struct vpmm_stream stream;
    SAME(VPMM_OK, vpmm_order_stream(scene.f.order, (vpmm_stream_handle)handle, &stream));
    return stream;
}

/* Another stream has its pages once the work is complete, and not before. */
static void the_rack_of_a_stream_that_is_gone_is_adopted(void **state)
{
    (void)state;
    uint64_t kept = scene_malloc(&scene, 3000, here);
    uint64_t block = scene_malloc(&scene, 3000, here);
    scene_work(&scene, here, block, 3000, &gate);
    scene_free(&scene, block, here);
    struct vpmm_stream stream = resolve(here);
    vpmm_small_stream_gone(scene.small, &stream);
    vpmm_order_stream_gone(scene.f.order, (vpmm_stream_handle)here);
    SAME(CUDA_SUCCESS, sim_stream_destroy(scene.f.sim, here));
    uint64_t early = scene_malloc(&scene, 3000, there);
    scene_work(&scene, there, early, 3000, NULL);
    assert_int_not_equal(early / scene.f.page_bytes, block / scene.f.page_bytes);
    gate = true;
    (void)sim_drain(scene.f.sim);
    here = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    SAME(block, scene_malloc(&scene, 3000, here));
    SAME(2, scene_figures(&scene).racks);
    scene_free(&scene, block, here);
    scene_free(&scene, kept, here);
    scene_free(&scene, early, there);
}

static void empty_pages_go_back_behind_the_stream_that_freed_into_them(void **state)
{
    (void)state;
    uint64_t block = scene_malloc(&scene, 3000, here);
    scene_work(&scene, here, block, 3000, &gate);
    scene_free(&scene, block, here);
    vpmm_heap_reap(scene.f.heap);
    SAME(0, scene_figures(&scene).pages);
    uint64_t other = scene_malloc(&scene, 3000, there);
    assert_int_not_equal(other, block);
    scene_work(&scene, there, other, 3000, NULL);
    gate = true;
    (void)sim_drain(scene.f.sim);
    vpmm_heap_reap(scene.f.heap);
    CUstream third = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    SAME(block, scene_malloc(&scene, 3000, third));
    scene_work(&scene, third, block, 3000, NULL);
    scene_free(&scene, block, third);
    scene_free(&scene, other, there);
}

/* A stream that captures later can then have the page behind what others queued before. */
static void empty_pages_go_back_before_a_capture(void **state)
{
    (void)state;
    scene_free(&scene, scene_malloc(&scene, 3000, here), here);
    SAME(1, scene_figures(&scene).pages);
    vpmm_heap_gather(scene.f.heap);
    SAME(0, scene_figures(&scene).pages);
}

static void end_context(CUcontext handle, struct vpmm_context *context)
{
    uint64_t id = vpmm_context_id(context);
    struct vpmm_departure departure =
        vpmm_order_context_leaving(scene.f.order, (vpmm_context_handle)handle, true);
    SAME(CUDA_SUCCESS, sim_ctx_destroy(scene.f.sim, handle));
    vpmm_order_context_left(scene.f.order, &departure, true);
    vpmm_small_context_gone(scene.small, id);
    vpmm_heap_context_gone(scene.f.heap, id);
    scene_audit(&scene);
}

/* cudaMalloc's blocks end with their context, and cudaMallocAsync's stay. */
static void a_context_takes_its_blocks_along(void **state)
{
    (void)state;
    CUcontext second;
    struct vpmm_region_view view;
    struct vpmm_context *own = scene.f.context;
    SAME(CUDA_SUCCESS, sim_ctx_create(scene.f.sim, 0, 0, &second));
    SAME(VPMM_OK, vpmm_order_context(scene.f.order, NULL, &scene.f.context));
    CUstream stream = fixture_stream(&scene.f, CU_STREAM_NON_BLOCKING);
    uint64_t blocks[3] = {scene_malloc(&scene, 3000, NULL), scene_malloc(&scene, 5000, NULL),
                          scene_malloc(&scene, 3000, stream)};
    struct vpmm_context *context = scene.f.context;
    scene_free(&scene, blocks[1], NULL);
    scene.f.context = own;
    end_context(second, context);
    SAME(1, scene_figures(&scene).blocks);
    SAME(VPMM_INVALID, scene_try_free(&scene, blocks[0], here));
    assert_true(vpmm_small_find(scene.small, blocks[2], &view));
    SAME(VPMM_REGION_LIVE, view.state);
    SAME(CUDA_SUCCESS, sim_ctx_set_current(scene.f.sim, scene.f.handle));
    /* The record of the slab that ended serves again. */
    uint64_t block = scene_malloc(&scene, 3000, NULL);
    scene_work(&scene, here, block, 3000, NULL);
    scene_free(&scene, block, NULL);
    scene_free(&scene, blocks[2], here);
}

static void nobody_frees_for_a_block_that_is_given_up(void **state)
{
    (void)state;
    uint64_t block = scene_malloc(&scene, 3000, here);
    uint64_t unknown = scene_malloc(&scene, 3000, here);
    scene_work(&scene, there, unknown, 3000, &gate);
    assert_true(vpmm_small_free_unknown(scene.small, unknown));
    assert_false(vpmm_small_free_unknown(scene.small, unknown));
    uint64_t next = scene_malloc(&scene, 3000, here);
    assert_int_not_equal(next, unknown);
    scene_work(&scene, here, next, 3000, NULL);
    scene_free(&scene, next, here);
    scene_free(&scene, block, here);
    gate = true;
    (void)sim_drain(scene.f.sim);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_stream_has_its_own_block_at_once),
        TEST(two_streams_share_no_page),
        TEST(what_another_stream_freed_waits_for_its_work),
        TEST(an_event_of_the_program_orders_a_block),
        TEST(cuda_free_waits_for_the_work_of_its_context),
        cmocka_unit_test_setup_teardown(cuda_frees_that_do_not_wait_share_a_record,
                                        setup_without_waits, teardown),
        cmocka_unit_test_setup_teardown(a_free_after_the_record_is_not_covered_by_it,
                                        setup_without_waits, teardown),
        cmocka_unit_test_setup_teardown(only_such_frees_are_warm, setup_without_waits, teardown),
        cmocka_unit_test_setup_teardown(cuda_free_waits_for_nothing_where_it_must_not,
                                        setup_without_waits, teardown),
        TEST(cuda_free_of_async_memory_does_not_wait),
        TEST(a_stream_may_free_what_cuda_malloc_gave),
        TEST(the_rack_of_a_stream_that_is_gone_is_adopted),
        TEST(empty_pages_go_back_behind_the_stream_that_freed_into_them),
        TEST(empty_pages_go_back_before_a_capture),
        TEST(a_context_takes_its_blocks_along),
        TEST(nobody_frees_for_a_block_that_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
