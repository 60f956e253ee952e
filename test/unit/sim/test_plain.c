/* SPDX-License-Identifier: MIT */
/* cuMemAlloc, cuMemAllocAsync, pools, and what can be asked about their memory. */
#include "fixture.h"

#include <string.h>

static uint64_t attribute(struct fixture *f, CUpointer_attribute wanted, CUdeviceptr address)
{
    uint64_t value = 0;
    OK(sim_pointer_get_attribute(f->sim, wanted, address, &value));
    return value;
}

static void test_bad_requests(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr address;
    CUdeviceptr host = (CUdeviceptr)(uintptr_t)&address;
    (void)state;
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_alloc(f->sim, 0, &address));
    IS(CUDA_ERROR_OUT_OF_MEMORY, sim_mem_alloc(f->sim, (size_t)1 << 50, &address));
    IS(CUDA_ERROR_OUT_OF_MEMORY, sim_mem_alloc_async(f->sim, (size_t)1 << 50, NULL, &address));
    OK(sim_mem_free(f->sim, 0));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_free(f->sim, host));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_free_async(f->sim, host, NULL));
    OK(sim_mem_alloc(f->sim, PAGE, &address));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_free(f->sim, address + 256));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_free_async(f->sim, address + 256, NULL));
    OK(sim_mem_free_async(f->sim, address, NULL));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_free(f->sim, address));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_free_async(f->sim, address, NULL));
    OK(sim_ctx_pop_current(f->sim, NULL));
    IS(CUDA_ERROR_INVALID_CONTEXT, sim_mem_alloc(f->sim, PAGE, &address));
    IS(CUDA_ERROR_INVALID_CONTEXT, sim_mem_alloc_async(f->sim, PAGE, NULL, &address));
    fixture_end(f);
}

static void test_what_can_be_asked(void **state)
{
    struct fixture *f = fixture_new(NULL);
    const uint64_t odd = 5 * MIB + 13;
    CUdeviceptr plain;
    CUdeviceptr ordered;
    CUdeviceptr base;
    CUmemoryPool pool;
    size_t bytes;
    (void)state;
    OK(sim_mem_alloc(f->sim, odd, &plain));
    OK(sim_mem_alloc_async(f->sim, odd, NULL, &ordered));
    CUdeviceptr root = pages_reserve(f, 8);
    OK(sim_mem_map(f->sim, root + PAGE, 2 * PAGE, 0, page_create(f, 0, 2), 0));
    page_access(f, root + PAGE, 2 * PAGE, 0);
    OK(sim_mem_get_address_range(f->sim, plain + 99, &base, &bytes));
    assert_true(base == plain && bytes == odd);
    OK(sim_mem_get_address_range(f->sim, root + 2 * PAGE, &base, &bytes));
    assert_true(base == root + PAGE && bytes == 2 * PAGE);
    IS(CUDA_ERROR_NOT_FOUND, sim_mem_get_address_range(f->sim, root, &base, &bytes));
    assert_int_equal(attribute(f, CU_POINTER_ATTRIBUTE_RANGE_SIZE, plain + 7), odd);
    assert_int_equal(attribute(f, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, ordered + 7), ordered);
    assert_int_equal(attribute(f, CU_POINTER_ATTRIBUTE_RANGE_SIZE, root + PAGE), 8 * PAGE);
    assert_int_equal(attribute(f, CU_POINTER_ATTRIBUTE_CONTEXT, plain), (uintptr_t)f->context);
    assert_int_equal(attribute(f, CU_POINTER_ATTRIBUTE_CONTEXT, ordered), 0);
    assert_int_equal(attribute(f, CU_POINTER_ATTRIBUTE_CONTEXT, root + PAGE), 0);
    assert_int_equal(attribute(f, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, plain), 1);
    assert_int_equal(attribute(f, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, ordered), 0);
    OK(sim_device_get_default_mem_pool(f->sim, 0, &pool));
    assert_int_equal(attribute(f, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, ordered), (uintptr_t)pool);
    assert_int_equal(attribute(f, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, plain), 0);
    assert_int_not_equal(attribute(f, CU_POINTER_ATTRIBUTE_BUFFER_ID, plain),
                         attribute(f, CU_POINTER_ATTRIBUTE_BUFFER_ID, ordered));
    OK(sim_memset(f->sim, plain, 1, 1, odd, NULL));
    IS(CUDA_ERROR_INVALID_VALUE, sim_memset(f->sim, plain, 1, 1, odd + 1, NULL));
    unsigned on = 1;
    OK(sim_pointer_set_attribute(f->sim, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain, &on));
    assert_int_equal(attribute(f, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, plain), 1);
    fixture_end(f);
}

/* cuMemFree waits for the context that owns the memory, and for no other. */
static void test_free_waits_for_one_context(void **state)
{
    struct fixture *f = fixture_new(NULL);
    struct trail trail = {0};
    CUdeviceptr plain;
    CUcontext other;
    (void)state;
    OK(sim_mem_alloc(f->sim, 100, &plain));
    OK(step_queue(f, stream_make(f, CU_STREAM_NON_BLOCKING), &trail, 1));
    OK(sim_ctx_create(f->sim, 0, 0, &other));
    OK(step_queue(f, NULL, &trail, 2));
    OK(sim_mem_free(f->sim, plain));
    assert_true(step_at(&trail, 1) == 0 && trail.n == 1);
    fixture_end(f);
}

static void test_free_async_takes_its_turn(void **state)
{
    struct fixture *f = fixture_new(NULL);
    struct trail trail = {0};
    CUdeviceptr plain;
    CUdeviceptr ordered;
    CUstream stream = stream_make(f, CU_STREAM_NON_BLOCKING);
    (void)state;
    OK(sim_mem_alloc(f->sim, PAGE, &plain));
    OK(sim_mem_alloc_async(f->sim, PAGE, stream, &ordered));
    OK(word_write(f, stream, plain, 1));
    OK(word_write(f, stream, ordered, 1));
    OK(sim_mem_free_async(f->sim, plain, stream));
    OK(sim_mem_free_async(f->sim, ordered, stream));
    OK(step_queue(f, stream, &trail, 1));
    assert_int_equal(trail.n, 0);
    assert_int_equal(counts_of(f).used_bytes[0], 2 * PAGE);
    OK(sim_stream_synchronize(f->sim, stream));
    assert_int_equal(counts_of(f).used_bytes[0], 0);
    assert_int_equal(counts_of(f).plain + counts_of(f).async, 0);
    fixture_end(f);
}

static uint64_t pool_value(struct fixture *f, CUmemoryPool pool, CUmemPool_attribute wanted)
{
    cuuint64_t value = 0;
    OK(sim_mem_pool_get_attribute(f->sim, pool, wanted, &value));
    return value;
}

static void test_pools(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUmemoryPool standard;
    CUmemoryPool own;
    CUmemoryPool found;
    CUdeviceptr one;
    CUdeviceptr two;
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    cuuint64_t keep = UINT64_MAX;
    (void)state;
    OK(sim_device_get_default_mem_pool(f->sim, 0, &standard));
    OK(sim_mem_pool_create(f->sim, &props, &own));
    OK(sim_mem_pool_set_attribute(f->sim, own, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(sim_mem_alloc_from_pool_async(f->sim, 3 * PAGE, own, NULL, &one));
    OK(sim_device_set_mem_pool(f->sim, 0, own));
    OK(sim_device_get_mem_pool(f->sim, 0, &found));
    assert_ptr_equal(found, own);
    OK(sim_mem_alloc_async(f->sim, PAGE, NULL, &two));
    assert_int_equal(pool_value(f, own, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 4 * PAGE);
    assert_int_equal(pool_value(f, standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    OK(sim_mem_free_async(f->sim, one, NULL));
    OK(sim_ctx_synchronize(f->sim));
    assert_int_equal(pool_value(f, own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 4 * PAGE);
    assert_int_equal(pool_value(f, own, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 4 * PAGE);
    OK(sim_mem_pool_trim_to(f->sim, own, 0));
    assert_int_equal(pool_value(f, own, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), PAGE);
    OK(sim_mem_pool_destroy(f->sim, own));
    assert_int_equal(counts_of(f).used_bytes[0], PAGE);
    OK(sim_mem_free(f->sim, two));
    assert_int_equal(counts_of(f).used_bytes[0], 0);
    assert_int_equal(counts_of(f).pools, 0);
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_pool_destroy(f->sim, standard));
    fixture_end(f);
}

/* What cuMemFree takes from a pool shows as used until the pool is trimmed, taken from, or a call
 * has waited. */
static void test_used_lags_behind_cu_mem_free(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUmemoryPool pool;
    CUdeviceptr one;
    CUdeviceptr two;
    (void)state;
    OK(sim_device_get_default_mem_pool(f->sim, 0, &pool));
    OK(sim_mem_alloc_async(f->sim, 3 * PAGE, NULL, &one));
    OK(sim_mem_free(f->sim, one));
    assert_int_equal(pool_value(f, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 3 * PAGE);
    OK(sim_mem_alloc_async(f->sim, PAGE, NULL, &two));
    assert_int_equal(pool_value(f, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), PAGE);
    OK(sim_mem_free(f->sim, two));
    OK(sim_mem_pool_trim_to(f->sim, pool, 0));
    assert_int_equal(pool_value(f, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    assert_int_equal(pool_value(f, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    OK(sim_mem_alloc_async(f->sim, PAGE, NULL, &two));
    OK(sim_mem_free(f->sim, two));
    OK(sim_ctx_synchronize(f->sim));
    assert_int_equal(pool_value(f, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    fixture_end(f);
}

static void test_nothing_is_allocated_and_freed(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUmemoryPool pool;
    CUdeviceptr address = 7;
    (void)state;
    OK(sim_mem_alloc_async(f->sim, 0, NULL, &address));
    assert_int_equal(address, 0);
    address = 7;
    OK(sim_device_get_default_mem_pool(f->sim, 0, &pool));
    OK(sim_mem_alloc_from_pool_async(f->sim, 0, pool, NULL, &address));
    assert_int_equal(address, 0);
    OK(sim_mem_free_async(f->sim, 0, NULL));
    assert_int_equal(counts_of(f).async, 0);
    assert_int_equal(counts_of(f).pending, 0);
    fixture_end(f);
}

static void test_the_range_of_pinned_memory(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    void *pinned;
    (void)state;
    OK(sim_mem_host_alloc(f->sim, 8192, 0, &pinned));
    OK(sim_mem_get_address_range(f->sim, (CUdeviceptr)(uintptr_t)pinned + 5, &base, &bytes));
    assert_true(base == (uintptr_t)pinned && bytes == 8192);
    OK(sim_mem_free_host(f->sim, pinned));
    IS(CUDA_ERROR_NOT_FOUND, sim_mem_get_address_range(f->sim, base, &base, &bytes));
    fixture_end(f);
}

static void small_device(struct sim_config *config)
{
    config->device_bytes = 8 * PAGE;
}

/* With the device full, an allocation waits for a free that is queued rather than fail. */
static void test_a_full_pool_waits_for_its_frees(void **state)
{
    struct fixture *f = fixture_new(small_device);
    CUdeviceptr one;
    CUdeviceptr two;
    CUstream stream = stream_make(f, CU_STREAM_NON_BLOCKING);
    (void)state;
    OK(sim_mem_alloc_async(f->sim, 6 * PAGE, stream, &one));
    IS(CUDA_ERROR_OUT_OF_MEMORY, sim_mem_alloc_async(f->sim, 6 * PAGE, stream, &two));
    OK(sim_mem_free_async(f->sim, one, stream));
    OK(sim_mem_alloc_async(f->sim, 6 * PAGE, NULL, &two));
    assert_int_equal(counts_of(f).used_bytes[0], 6 * PAGE);
    fixture_end(f);
}

static void test_pitch(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr address;
    size_t pitch;
    (void)state;
    OK(sim_mem_alloc_pitch(f->sim, 1000, 5, 4, &pitch, &address));
    assert_int_equal(pitch, 1024);
    assert_int_equal(attribute(f, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address), 5120);
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_alloc_pitch(f->sim, 1000, 5, 3, &pitch, &address));
    fixture_end(f);
}

/* Pageable memory may be reused when an asynchronous copy returns, pinned memory not before its
 * turn. */
static void test_copies_with_host_memory(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr memory;
    uint32_t pageable = 5;
    uint32_t back = 0;
    void *pinned;
    CUstream stream = stream_make(f, CU_STREAM_NON_BLOCKING);
    (void)state;
    OK(sim_mem_alloc(f->sim, 16, &memory));
    OK(sim_mem_host_alloc(f->sim, 16, 0, &pinned));
    *(uint32_t *)pinned = 6;
    OK(sim_memcpy_async(f->sim, memory, (CUdeviceptr)(uintptr_t)&pageable, 4, stream));
    OK(sim_memcpy_async(f->sim, memory + 4, (CUdeviceptr)(uintptr_t)pinned, 4, stream));
    pageable = 50;
    *(uint32_t *)pinned = 60;
    OK(sim_memcpy_async(f->sim, (CUdeviceptr)(uintptr_t)&back, memory, 4, stream));
    assert_int_equal(back, 5);
    assert_int_equal(word_peek(f, 0, memory + 4), 60);
    OK(sim_memcpy_async(f->sim, (CUdeviceptr)(uintptr_t)pinned, memory, 4, stream));
    assert_int_equal(*(uint32_t *)pinned, 60);
    OK(sim_stream_synchronize(f->sim, stream));
    assert_int_equal(*(uint32_t *)pinned, 5);
    OK(sim_mem_free_host(f->sim, pinned));
    fixture_end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_what_can_be_asked),
        cmocka_unit_test(test_free_waits_for_one_context),
        cmocka_unit_test(test_free_async_takes_its_turn),
        cmocka_unit_test(test_pools),
        cmocka_unit_test(test_used_lags_behind_cu_mem_free),
        cmocka_unit_test(test_nothing_is_allocated_and_freed),
        cmocka_unit_test(test_the_range_of_pinned_memory),
        cmocka_unit_test(test_a_full_pool_waits_for_its_frees),
        cmocka_unit_test(test_pitch),
        cmocka_unit_test(test_copies_with_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
