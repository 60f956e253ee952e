/* SPDX-License-Identifier: MIT */
/* Contexts: current ones, their end, and what dies with them. */
#include "fixture.h"

static void test_the_stack_belongs_to_the_thread(void **state)
{
    struct fixture *f = fixture_new(two_devices);
    CUcontext second;
    CUcontext found;
    CUdevice device;
    (void)state;
    OK(sim_ctx_create(f->sim, 0, 1, &second));
    OK(sim_ctx_get_device(f->sim, &device));
    assert_int_equal(device, 1);
    OK(sim_ctx_pop_current(f->sim, &found));
    assert_ptr_equal(found, second);
    OK(sim_ctx_get_current(f->sim, &found));
    assert_ptr_equal(found, f->context);
    sim_thread_act_as(f->sim, 1);
    OK(sim_ctx_get_current(f->sim, &found));
    assert_null(found);
    IS(CUDA_ERROR_INVALID_CONTEXT, sim_ctx_get_device(f->sim, &device));
    OK(sim_ctx_device_of(f->sim, second, &device));
    assert_int_equal(device, 1);
    OK(sim_ctx_set_current(f->sim, second));
    OK(sim_ctx_set_current(f->sim, NULL));
    IS(CUDA_ERROR_INVALID_CONTEXT, sim_ctx_pop_current(f->sim, NULL));
    fixture_end(f);
}

static void test_destroy_waits_and_frees_plain_memory(void **state)
{
    struct fixture *f = fixture_new(NULL);
    struct trail trail = {0};
    CUcontext context;
    CUdeviceptr plain;
    CUdeviceptr ordered;
    size_t free_before;
    size_t free_after;
    (void)state;
    OK(sim_mem_get_info(f->sim, &free_before, NULL));
    OK(sim_ctx_create(f->sim, 0, 0, &context));
    CUdeviceptr mapped = pages_reserve(f, 1);
    CUmemGenericAllocationHandle handle = page_create(f, 0, 1);
    OK(sim_mem_map(f->sim, mapped, PAGE, 0, handle, 0));
    page_access(f, mapped, PAGE, 0);
    OK(sim_mem_alloc(f->sim, 3 * PAGE, &plain));
    OK(sim_mem_alloc_async(f->sim, PAGE, NULL, &ordered));
    OK(word_write(f, NULL, plain, 7));
    OK(word_write(f, NULL, mapped, 8));
    OK(step_queue(f, stream_make(f, CU_STREAM_NON_BLOCKING), &trail, 1));
    OK(sim_ctx_destroy(f->sim, context));
    assert_int_equal(trail.n, 1);
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_free(f->sim, plain));
    IS(CUDA_ERROR_INVALID_VALUE, sim_memset(f->sim, plain, 0, 1, 1, NULL));
    assert_int_equal(word_peek(f, 0, mapped), 8);
    OK(sim_memset(f->sim, ordered, 0, 1, PAGE, NULL));
    OK(sim_mem_free_async(f->sim, ordered, NULL));
    OK(sim_mem_unmap(f->sim, mapped, PAGE));
    OK(sim_mem_release(f->sim, handle));
    OK(sim_mem_address_free(f->sim, mapped, PAGE));
    OK(sim_ctx_synchronize(f->sim));
    OK(sim_mem_get_info(f->sim, &free_after, NULL));
    assert_int_equal(free_before, free_after);
    assert_int_equal(counts_of(f).contexts, 1);
    assert_int_equal(counts_of(f).streams, 0);
    fixture_end(f);
}

static void test_what_dies_with_a_context(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUcontext context;
    CUdevice device;
    (void)state;
    OK(sim_ctx_create(f->sim, 0, 0, &context));
    CUevent event = event_make(f);
    CUstream stream = stream_make(f, 0);
    OK(sim_ctx_destroy(f->sim, context));
    assert_int_equal(counts_of(f).events, 0);
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, sim_event_query(f->sim, event));
    misuse_taken(f, SIM_DEAD_CONTEXT);
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, sim_stream_query(f->sim, stream));
    misuse_taken(f, SIM_DEAD_CONTEXT);
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, sim_ctx_push_current(f->sim, context));
    misuse_taken(f, SIM_DEAD_CONTEXT);
    OK(sim_ctx_get_device(f->sim, &device));
    fixture_end(f);
}

static void test_the_primary_context_is_counted_and_reset(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUcontext primary;
    CUcontext again;
    CUevent event;
    unsigned long long id;
    unsigned long long new_id;
    unsigned flags;
    int active;
    size_t bytes;
    (void)state;
    IS(CUDA_ERROR_INVALID_CONTEXT, sim_device_primary_ctx_release(f->sim, 0));
    OK(sim_device_primary_ctx_retain(f->sim, 0, &primary));
    OK(sim_device_primary_ctx_retain(f->sim, 0, &again));
    assert_ptr_equal(primary, again);
    OK(sim_ctx_set_current(f->sim, primary));
    OK(sim_event_create(f->sim, 0, &event));
    OK(sim_ctx_get_id(f->sim, primary, &id));
    OK(sim_device_primary_ctx_release(f->sim, 0));
    OK(sim_device_primary_ctx_get_state(f->sim, 0, &flags, &active));
    assert_int_equal(active, 1);
    OK(sim_device_primary_ctx_reset(f->sim, 0));
    OK(sim_device_primary_ctx_get_state(f->sim, 0, &flags, &active));
    assert_int_equal(active, 0);
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, sim_mem_get_info(f->sim, &bytes, NULL));
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, sim_mem_free(f->sim, 0));
    OK(sim_device_primary_ctx_retain(f->sim, 0, &again));
    assert_ptr_equal(primary, again);
    OK(sim_mem_get_info(f->sim, &bytes, NULL));
    OK(sim_ctx_get_id(f->sim, primary, &new_id));
    assert_int_not_equal(id, new_id);
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, sim_event_query(f->sim, event));
    misuse_taken(f, SIM_DEAD_CONTEXT);
    OK(sim_device_primary_ctx_release(f->sim, 0));
    OK(sim_device_primary_ctx_get_state(f->sim, 0, &flags, &active));
    assert_int_equal(active, 1);
    OK(sim_device_primary_ctx_reset(f->sim, 0));
    OK(sim_device_primary_ctx_release(f->sim, 0));
    IS(CUDA_ERROR_INVALID_CONTEXT, sim_device_primary_ctx_release(f->sim, 0));
    fixture_end(f);
}

static void test_a_created_context_is_counted(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUcontext context;
    CUcontext same;
    CUcontext other;
    unsigned long long id;
    CUdeviceptr plain;
    (void)state;
    OK(sim_ctx_create(f->sim, 0, 0, &context));
    OK(sim_mem_alloc(f->sim, PAGE, &plain));
    IS(CUDA_ERROR_INVALID_VALUE, sim_ctx_attach(f->sim, 1, &same));
    OK(sim_ctx_attach(f->sim, 0, &same));
    assert_ptr_equal(same, context);
    OK(sim_ctx_create(f->sim, 0, 0, &other));
    IS(CUDA_ERROR_INVALID_CONTEXT, sim_ctx_detach(f->sim, context));
    OK(sim_ctx_detach(f->sim, other));
    OK(sim_ctx_detach(f->sim, context));
    OK(sim_ctx_get_id(f->sim, context, &id));
    assert_int_equal(counts_of(f).plain, 1);
    OK(sim_ctx_detach(f->sim, context));
    assert_int_equal(counts_of(f).plain, 0);
    IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, sim_ctx_get_id(f->sim, context, &id));
    OK(sim_ctx_get_current(f->sim, &same));
    assert_ptr_equal(same, f->context);
    fixture_end(f);
}

static void expect_active(struct fixture *f, int expected)
{
    unsigned flags;
    int active;
    OK(sim_device_primary_ctx_get_state(f->sim, 0, &flags, &active));
    assert_int_equal(active, expected);
}

static void test_green_contexts_keep_the_primary_one_alive(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUgreenCtx green[2];
    CUcontext context;
    (void)state;
    expect_active(f, 0);
    for (int i = 0; i < 2; i++)
        OK(sim_green_ctx_create(f->sim, 0, &green[i]));
    expect_active(f, 1);
    OK(sim_green_ctx_destroy(f->sim, green[0]));
    OK(sim_device_primary_ctx_retain(f->sim, 0, &context));
    OK(sim_device_primary_ctx_release(f->sim, 0));
    expect_active(f, 1);
    OK(sim_green_ctx_destroy(f->sim, green[1]));
    expect_active(f, 0);
    IS(CUDA_ERROR_INVALID_CONTEXT, sim_device_primary_ctx_release(f->sim, 0));
    fixture_end(f);
}

/* Memory of any kind is usable from another context of its device. */
static void test_memory_crosses_contexts_of_a_device(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUcontext other;
    CUdeviceptr plain;
    CUdeviceptr ordered;
    (void)state;
    OK(sim_mem_alloc(f->sim, PAGE, &plain));
    OK(sim_mem_alloc_async(f->sim, PAGE, NULL, &ordered));
    OK(sim_ctx_create(f->sim, 0, 0, &other));
    OK(word_write(f, NULL, plain, 3));
    OK(word_write(f, NULL, ordered, 4));
    OK(sim_ctx_synchronize(f->sim));
    assert_int_equal(word_peek(f, 0, plain), 3);
    assert_int_equal(word_peek(f, 0, ordered), 4);
    fixture_end(f);
}

static void sticky(struct sim_config *config)
{
    config->faults_stick = true;
}

static void test_a_fault_stays(void **state)
{
    struct fixture *f = fixture_new(sticky);
    CUdeviceptr memory;
    (void)state;
    OK(sim_mem_alloc(f->sim, PAGE, &memory));
    CUdeviceptr nowhere = pages_reserve(f, 1);
    OK(word_write(f, NULL, nowhere, 1));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, sim_ctx_synchronize(f->sim));
    misuse_taken(f, SIM_NO_ACCESS);
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, sim_mem_free(f->sim, memory));
    IS(CUDA_ERROR_ILLEGAL_ADDRESS, sim_mem_address_free(f->sim, nowhere, PAGE));
    fixture_end(f);
}

static void test_peers(void **state)
{
    struct fixture *f = fixture_new(two_devices);
    CUcontext other;
    CUdeviceptr plain;
    CUdeviceptr mapped = pages_reserve(f, 1);
    uint32_t word = 0;
    (void)state;
    OK(sim_mem_map(f->sim, mapped, PAGE, 0, page_create(f, 0, 1), 0));
    page_access(f, mapped, PAGE, 0);
    OK(sim_mem_alloc(f->sim, PAGE, &plain));
    OK(word_write(f, NULL, plain, 9));
    OK(sim_ctx_synchronize(f->sim));
    OK(sim_ctx_create(f->sim, 0, 1, &other));
    IS(CUDA_SUCCESS, sim_memcpy(f->sim, (CUdeviceptr)(uintptr_t)&word, plain, 4, NULL));
    assert_int_equal(word, 9);
    IS(CUDA_ERROR_INVALID_VALUE,
       sim_memcpy(f->sim, (CUdeviceptr)(uintptr_t)&word, mapped, 4, NULL));
    OK(sim_memcpy_peer(f->sim, mapped, f->context, plain, f->context, 4, NULL, true));
    IS(CUDA_ERROR_INVALID_VALUE, sim_memset(f->sim, plain, 0, 4, 1, NULL));
    IS(CUDA_ERROR_INVALID_VALUE, sim_memset(f->sim, mapped, 0, 4, 1, NULL));
    OK(word_write(f, NULL, plain, 1));
    OK(sim_ctx_synchronize(f->sim));
    misuse_taken(f, SIM_NO_ACCESS);
    OK(sim_ctx_enable_peer_access(f->sim, f->context, 0));
    IS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, sim_ctx_enable_peer_access(f->sim, f->context, 0));
    OK(word_write(f, NULL, plain, 10));
    OK(word_write(f, NULL, mapped, 1));
    OK(sim_ctx_synchronize(f->sim));
    misuse_taken(f, SIM_NO_ACCESS);
    page_access(f, mapped, PAGE, 1);
    OK(word_write(f, NULL, mapped, 11));
    OK(sim_memcpy(f->sim, (CUdeviceptr)(uintptr_t)&word, mapped, 4, NULL));
    OK(sim_ctx_synchronize(f->sim));
    assert_int_equal(word, 11);
    assert_int_equal(word_peek(f, 0, plain), 10);
    fixture_end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_stack_belongs_to_the_thread),
        cmocka_unit_test(test_destroy_waits_and_frees_plain_memory),
        cmocka_unit_test(test_what_dies_with_a_context),
        cmocka_unit_test(test_the_primary_context_is_counted_and_reset),
        cmocka_unit_test(test_a_created_context_is_counted),
        cmocka_unit_test(test_green_contexts_keep_the_primary_one_alive),
        cmocka_unit_test(test_memory_crosses_contexts_of_a_device),
        cmocka_unit_test(test_a_fault_stays),
        cmocka_unit_test(test_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
