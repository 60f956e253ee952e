/* SPDX-License-Identifier: MIT */
/* docs/DESIGN.md section 3, rules 5 to 7: who waits for what, extents of several owners, merging.
 * A wait that bare CUDA would not have made ends here in a hang, which the device reports. */
#include "blocks.h"

#include <string.h>

static void wait_for_flag(struct fixture *f, CUstream stream, uint32_t *flag)
{
    SAME(CUDA_SUCCESS, sim_stream_wait_value(f->sim, stream, (CUdeviceptr)(uintptr_t)flag, 1, 4,
                                             CU_STREAM_WAIT_VALUE_EQ));
}

static void set_flag(struct fixture *f, CUstream stream, uint32_t *flag)
{
    SAME(CUDA_SUCCESS,
         sim_stream_write_value(f->sim, stream, (CUdeviceptr)(uintptr_t)flag, 1, 4, 0));
}

/* Stream A frees and then waits for a flag that the next work of B sets: bare CUDA runs that, and
 * so does B on A's pages when memory is short, because what B waits for lies before A's wait. */
static void rule_3_5_the_next_owner_may_set_the_flag_that_the_last_one_waits_for(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t flag = 0;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct block p = {fixture_malloc(&f, 80, a), 80, 1};
    block_write(&f, a, &p, NULL);
    block_check(&f, a, &p);
    fixture_free(&f, p.address, a);
    wait_for_flag(&f, a, &flag);
    struct block q = {fixture_malloc(&f, 80, b), 80, 2};
    block_write(&f, b, &q, NULL);
    block_check(&f, b, &q);
    set_flag(&f, b, &flag);
    SAME(CUDA_SUCCESS, sim_stream_synchronize(f.sim, a));
    SAME(CUDA_SUCCESS, sim_stream_synchronize(f.sim, b));
    SAME(1, heap_count_stream_waits(&f));
    SAME(2, blocks_checked());
    SAME(0, blocks_wrong());
    fixture_free(&f, q.address, b);
    fixture_teardown(&f);
}

/* A fence that was parked during a capture covers, once it is recorded, work queued after its free.
 * That work may wait for the very request: nobody waits for such a fence, on the host or on the
 * device. */
static void park_and_ask(struct fixture *f, const CUstream streams[3])
{
    uint32_t flag = 0;
    uint64_t q;
    uint64_t p = fixture_malloc(f, 80, NULL);
    gated_capture_begin(f, streams[2], CU_STREAM_CAPTURE_MODE_RELAXED);
    fixture_free(f, p, NULL);
    gated_capture_end(f, streams[2]);
    wait_for_flag(f, streams[0], &flag);
    vpmm_heap_reap(f->heap);
    SAME(VPMM_NO_MEMORY, fixture_try_malloc(f, 80, streams[1], &q));
    SAME(VPMM_NO_MEMORY, fixture_try_malloc(f, 80, NULL, &q));
    SAME(0, heap_count_stream_waits(f));
    SAME(0, heap_count_host_waits(f));
    set_flag(f, streams[1], &flag);
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f->sim));
    SAME(p, fixture_malloc(f, 80, streams[1]));
    fixture_free(f, p, streams[1]);
}

static void rule_3_5_a_fence_recorded_late_is_never_waited_for(void **state)
{
    (void)state;
    struct fixture f;
    CUstream streams[3];
    rules_setup(&f);
    for (int i = 0; i < 3; i++)
        streams[i] = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    for (int round = 0; round < 2; round++) {
        park_and_ask(&f, streams);
        SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
        vpmm_heap_reap(f.heap);
    }
    fixture_teardown(&f);
}

/* Within the slack cudaMalloc grows instead of waiting for what cudaFree left. */
static void rule_3_5_cudamalloc_grows_within_its_slack(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    struct block p = {fixture_malloc(&f, 16, NULL), 16, 1};
    block_write(&f, a, &p, &gate);
    fixture_free(&f, p.address, NULL);
    uint64_t q = fixture_malloc(&f, 16, NULL);
    SAME(32, fixture_totals(&f).held_pages);
    SAME(0, heap_count_host_waits(&f));
    gate = true;
    fixture_free(&f, q, NULL);
    fixture_teardown(&f);
}

/* Beyond it, it waits for no more than it needs, oldest first. */
static void rule_3_5_cudamalloc_waits_for_the_oldest_cudafree_only(void **state)
{
    (void)state;
    struct fixture f;
    struct fixture_params params;
    rules_params(&params);
    params.heap.slack_bytes = 0;
    params.heap.slack_percent = 0;
    fixture_setup(&f, &params);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    struct block p = {fixture_malloc(&f, 16, NULL), 16, 1};
    struct block q = {fixture_malloc(&f, 16, NULL), 16, 2};
    block_write(&f, a, &p, NULL);
    fixture_free(&f, p.address, NULL);
    block_write(&f, a, &q, &gate);
    fixture_free(&f, q.address, NULL);
    SAME(p.address, fixture_malloc(&f, 16, NULL));
    SAME(1, heap_count_host_waits(&f));
    SAME(32, fixture_totals(&f).held_pages);
    gate = true;
    fixture_free(&f, p.address, NULL);
    fixture_teardown(&f);
}

/* A stream that may be waiting for the thread that asks is not waited for on the host, even when
 * nothing else is left: the answer is no. */
static void rule_3_5_cudamalloc_never_waits_for_a_stuck_stream(void **state)
{
    (void)state;
    struct fixture f;
    uint64_t q;
    uint32_t flag = 0;
    struct picture before;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct block p = {fixture_malloc(&f, 80, a), 80, 1};
    wait_for_flag(&f, a, &flag);
    block_write(&f, a, &p, NULL);
    fixture_free(&f, p.address, a);
    picture_take(&f, &before);
    SAME(VPMM_NO_MEMORY, fixture_try_malloc(&f, 80, NULL, &q));
    picture_compare(&f, &before);
    flag = 1;
    SAME(CUDA_SUCCESS, sim_stream_synchronize(f.sim, a));
    SAME(p.address, fixture_malloc(&f, 80, NULL));
    fixture_free(&f, p.address, NULL);
    fixture_teardown(&f);
}

/* Another thread's cudaFree leaves almost the whole device pending behind work that only the host
 * can let go. */
static void free_elsewhere(struct fixture *f, CUstream stream, uint64_t pages, uint32_t *flag)
{
    struct freeing freeing;
    struct block p = {fixture_malloc(f, pages, NULL), pages, 1};
    wait_for_flag(f, stream, flag);
    block_write(f, stream, &p, NULL);
    freeing_start(&freeing, f, p.address, NULL);
    freeing_end(&freeing);
    SAME(VPMM_OK, freeing.status);
}

/* Bare CUDA refuses a cudaMalloc in one context at once while another context's cudaFree waits. */
static void rule_3_5_cudamalloc_never_waits_for_another_contexts_cudafree(void **state)
{
    (void)state;
    struct fixture f;
    struct vpmm_context *other;
    CUcontext second;
    uint32_t flag = 0;
    uint64_t q;
    rules_setup(&f);
    free_elsewhere(&f, fixture_stream(&f, CU_STREAM_NON_BLOCKING), 80, &flag);
    SAME(CUDA_SUCCESS, sim_ctx_create(f.sim, 0, 0, &second));
    SAME(VPMM_OK, vpmm_order_context(f.order, NULL, &other));
    const struct vpmm_request request = {.bytes = 80 * f.page_bytes, .context = other};
    SAME(VPMM_NO_MEMORY, vpmm_heap_malloc(f.heap, &request, &q));
    SAME(0, heap_count_host_waits(&f));
    SAME(CUDA_SUCCESS, sim_ctx_set_current(f.sim, f.handle));
    flag = 1;
    fixture_free(&f, fixture_malloc(&f, 80, NULL), NULL);
    SAME(1, heap_count_host_waits(&f));
    fixture_teardown(&f);
}

/* A stream that waited on the device for another thread's cudaFree could not set the flag that the
 * cudaFree waits for. */
static void rule_3_5_a_stream_never_waits_for_another_threads_cudafree(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t flag = 0;
    uint64_t q;
    rules_setup(&f);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    free_elsewhere(&f, fixture_stream(&f, CU_STREAM_NON_BLOCKING), 80, &flag);
    SAME(VPMM_NO_MEMORY, fixture_try_malloc(&f, 80, b, &q));
    SAME(0, heap_count_stream_waits(&f));
    SAME(0, heap_count_host_waits(&f));
    set_flag(&f, b, &flag);
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
    fixture_free(&f, fixture_malloc(&f, 80, b), b);
    fixture_teardown(&f);
}

/* Memory of cudaMalloc is not the memory pool's: bare CUDA refuses the request, and what the stream
 * does next may let go of what the free comes after. */
static void rule_3_5_a_stream_never_waits_for_memory_of_cudamalloc(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t flag = 0;
    uint64_t q;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct block p = {fixture_malloc(&f, 80, NULL), 80, 1};
    wait_for_flag(&f, a, &flag);
    block_write(&f, a, &p, NULL);
    fixture_free(&f, p.address, a);
    SAME(VPMM_NO_MEMORY, fixture_try_malloc(&f, 80, b, &q));
    SAME(0, heap_count_stream_waits(&f));
    set_flag(&f, b, &flag);
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
    fixture_free(&f, fixture_malloc(&f, 80, b), b);
    fixture_teardown(&f);
}

/* The thread that asks has been in a cudaFree, where bare CUDA made it wait: its cudaMallocAsync
 * makes up for that, also where the memory was another context's. */
static void rule_3_5_a_thread_waits_for_its_own_cudafree(void **state)
{
    (void)state;
    struct fixture f;
    CUcontext second;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct block p = {fixture_malloc(&f, 80, NULL), 80, 1};
    block_write(&f, a, &p, NULL);
    fixture_free(&f, p.address, NULL);
    SAME(CUDA_SUCCESS, sim_ctx_create(f.sim, 0, 0, &second));
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    struct block q = {fixture_malloc(&f, 80, b), 80, 2};
    SAME(1, heap_count_host_waits(&f));
    SAME(0, heap_count_stream_waits(&f));
    block_write(&f, b, &q, NULL);
    fixture_free(&f, q.address, b);
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
    SAME(CUDA_SUCCESS, sim_ctx_set_current(f.sim, f.handle));
    fixture_teardown(&f);
}

/* The last owners of one extent are two streams. The next one comes after both, though it follows
 * only one: a request that cannot wait does not get it, one that can waits, and the device would
 * report work that nothing orders. */
static void share_an_extent(int busy)
{
    struct fixture f;
    struct fixture_params params;
    struct block halves[2], rest, nine = {0, 9, 4};
    CUstream streams[2];
    volatile bool gate = false;
    rules_params(&params);
    params.sim.device_bytes = 132 * MIB;
    params.heap.extent_pages_max = 8;
    params.heap.eager_pages = 64;
    fixture_setup(&f, &params);
    for (int i = 0; i < 2; i++) {
        streams[i] = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
        halves[i] = (struct block){fixture_malloc(&f, 4, streams[i]), 4, (uint64_t)i};
    }
    CUstream follower = streams[1 - busy];
    rest = (struct block){fixture_malloc(&f, 56, NULL), 56, 3};
    block_write(&f, follower, &rest, NULL);
    SAME(CUDA_SUCCESS, sim_stream_synchronize(f.sim, follower));
    block_write(&f, streams[busy], &halves[busy], &gate);
    for (int i = 0; i < 2; i++)
        fixture_free(&f, halves[i].address, streams[i]);
    SAME(VPMM_NO_MEMORY, fixture_try_malloc(&f, 9, NULL, &nine.address));
    SAME(VPMM_OK, fixture_try_malloc(&f, 9, follower, &nine.address));
    block_write(&f, follower, &nine, NULL);
    block_check(&f, follower, &nine);
    (void)sim_drain(f.sim);
    SAME(CUDA_ERROR_NOT_READY, sim_stream_query(f.sim, follower));
    vpmm_heap_reap(f.heap);
    SAME(8, fixture_totals(&f).zombie_pages);
    gate = true;
    (void)sim_drain(f.sim);
    vpmm_heap_reap(f.heap);
    SAME(0, fixture_totals(&f).zombie_pages);
    assert_true(block_is_intact(&f, &rest));
    SAME(0, blocks_wrong());
    fixture_free(&f, nine.address, follower);
    fixture_free(&f, rest.address, NULL);
    fixture_teardown(&f);
}

static void rule_3_6_work_under_the_second_fence_of_an_extent_is_caught(void **state)
{
    (void)state;
    share_an_extent(0);
    share_an_extent(1);
}

/* Two neighbours that one fence covers, or that are complete, are one region; a fresh free beside a
 * complete region leaves that usable by everybody. */
static void rule_3_7_neighbours_merge_when_they_are_complete_and_not_before(void **state)
{
    (void)state;
    struct fixture f;
    rules_setup(&f);
    CUstream a = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    CUstream b = fixture_stream(&f, CU_STREAM_NON_BLOCKING);
    volatile bool gate = false;
    struct block p[3];
    for (unsigned i = 0; i < 3; i++)
        p[i] = (struct block){fixture_malloc(&f, 4, i == 1 ? b : a), 4, i};
    block_write(&f, b, &p[1], &gate);
    fixture_free(&f, p[0].address, a);
    fixture_free(&f, p[2].address, a);
    SAME(CUDA_SUCCESS, sim_stream_synchronize(f.sim, a));
    vpmm_heap_reap(f.heap);
    fixture_free(&f, p[1].address, b);
    assert_string_equal(fixture_layout(&f), "[-4][-4][-4]");
    SAME(p[0].address, fixture_malloc(&f, 4, NULL));
    SAME(p[2].address, fixture_malloc(&f, 4, NULL));
    fixture_free(&f, p[0].address, NULL);
    fixture_free(&f, p[2].address, NULL);
    gate = true;
    SAME(CUDA_SUCCESS, sim_ctx_synchronize(f.sim));
    vpmm_heap_reap(f.heap);
    assert_string_equal(fixture_layout(&f), "[-12]");
    SAME(p[0].address, fixture_malloc(&f, 12, NULL));
    SAME(0, fixture_totals(&f).moved_pages);
    fixture_free(&f, p[0].address, NULL);
    fixture_teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rule_3_5_the_next_owner_may_set_the_flag_that_the_last_one_waits_for),
        cmocka_unit_test(rule_3_5_a_fence_recorded_late_is_never_waited_for),
        cmocka_unit_test(rule_3_5_cudamalloc_grows_within_its_slack),
        cmocka_unit_test(rule_3_5_cudamalloc_waits_for_the_oldest_cudafree_only),
        cmocka_unit_test(rule_3_5_cudamalloc_never_waits_for_a_stuck_stream),
        cmocka_unit_test(rule_3_5_cudamalloc_never_waits_for_another_contexts_cudafree),
        cmocka_unit_test(rule_3_5_a_stream_never_waits_for_another_threads_cudafree),
        cmocka_unit_test(rule_3_5_a_stream_never_waits_for_memory_of_cudamalloc),
        cmocka_unit_test(rule_3_5_a_thread_waits_for_its_own_cudafree),
        cmocka_unit_test(rule_3_6_work_under_the_second_fence_of_an_extent_is_caught),
        cmocka_unit_test(rule_3_7_neighbours_merge_when_they_are_complete_and_not_before),
    };
    return cmocka_run_group_tests_name("rules/waiting", tests, NULL, NULL);
}
