/* SPDX-License-Identifier: MIT */
/* Virtual memory management: handles, mappings, access, address space. */
#include "fixture.h"

#include <string.h>

static void test_an_alias_is_two_addresses_of_one_page(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr base = pages_reserve(f, 4);
    CUmemGenericAllocationHandle handle = page_create(f, 0, 1);
    (void)state;
    OK(sim_mem_map(f->sim, base, PAGE, 0, handle, 0));
    OK(sim_mem_map(f->sim, base + 3 * PAGE, PAGE, 0, handle, 0));
    page_access(f, base, PAGE, 0);
    page_access(f, base + 3 * PAGE, PAGE, 0);
    OK(word_write(f, NULL, base + 100, 0xabcd));
    OK(sim_ctx_synchronize(f->sim));
    assert_int_equal(word_peek(f, 0, base + 3 * PAGE + 100), 0xabcd);
    OK(sim_mem_unmap(f->sim, base, PAGE));
    OK(sim_mem_release(f->sim, handle));
    assert_int_equal(counts_of(f).handles, 1);
    assert_int_equal(counts_of(f).handles_held, 0);
    assert_int_equal(word_peek(f, 0, base + 3 * PAGE + 100), 0xabcd);
    OK(sim_mem_unmap(f->sim, base + 3 * PAGE, PAGE));
    assert_int_equal(counts_of(f).handles, 0);
    assert_int_equal(counts_of(f).used_bytes[0], 0);
    fixture_end(f);
}

static void test_handles_are_mapped_whole(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr base = pages_reserve(f, 4);
    CUmemGenericAllocationHandle two = page_create(f, 0, 2);
    (void)state;
    IS(CUDA_ERROR_NOT_SUPPORTED, sim_mem_map(f->sim, base, PAGE, 0, two, 0));
    IS(CUDA_ERROR_NOT_SUPPORTED, sim_mem_map(f->sim, base, PAGE, PAGE, two, 0));
    IS(CUDA_ERROR_NOT_SUPPORTED, sim_mem_map(f->sim, base, 3 * PAGE, 0, two, 0));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_map(f->sim, base + 3 * PAGE, 2 * PAGE, 0, two, 0));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_map(f->sim, base + 1, 2 * PAGE, 0, two, 0));
    OK(sim_mem_map(f->sim, base + PAGE, 2 * PAGE, 0, two, 0));
    assert_int_equal(counts_of(f).mappings, 1);
    fixture_end(f);
}

static void test_a_range_spans_whole_mappings(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr base = pages_reserve(f, 6);
    (void)state;
    for (unsigned i = 0; i < 3; i++)
        OK(sim_mem_map(f->sim, base + i * 2 * PAGE, 2 * PAGE, 0, page_create(f, 0, 2), 0));
    page_access(f, base, 6 * PAGE, 0);
    OK(word_write(f, NULL, base + 4 * PAGE - 4, 1));
    char bytes[16];
    memset(bytes, 7, sizeof bytes);
    OK(sim_memcpy(f->sim, base + 2 * PAGE - 8, (CUdeviceptr)(uintptr_t)bytes, 16, NULL));
    assert_int_equal(word_peek(f, 0, base + 2 * PAGE - 2), 0x07070707);
    OK(sim_mem_unmap(f->sim, base + 2 * PAGE, 4 * PAGE));
    assert_int_equal(counts_of(f).mappings, 1);
    assert_false(sim_peek(f->sim, 0, base + 2 * PAGE, bytes, 1));
    assert_true(sim_peek(f->sim, 0, base, bytes, 1));
    fixture_end(f);
}

static void test_access_is_needed_and_kept_per_device(void **state)
{
    struct fixture *f = fixture_new(two_devices);
    CUdeviceptr base = pages_reserve(f, 1);
    unsigned long long flags;
    CUmemLocation second = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    char byte;
    (void)state;
    OK(sim_mem_map(f->sim, base, PAGE, 0, page_create(f, 0, 1), 0));
    assert_false(sim_peek(f->sim, 0, base, &byte, 1));
    page_access(f, base, PAGE, 0);
    assert_true(sim_peek(f->sim, 0, base, &byte, 1));
    assert_false(sim_peek(f->sim, 1, base, &byte, 1));
    OK(sim_mem_get_access(f->sim, base, &second, &flags));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    page_access(f, base, PAGE, 1);
    OK(sim_mem_get_access(f->sim, base, &second, &flags));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_true(sim_peek(f->sim, 0, base, &byte, 1));
    OK(sim_mem_unmap(f->sim, base, PAGE));
    OK(sim_mem_map(f->sim, base, PAGE, 0, page_create(f, 0, 1), 0));
    assert_false(sim_peek(f->sim, 0, base, &byte, 1));
    fixture_end(f);
}

static void no_peers(struct sim_config *config)
{
    config->n_devices = 2;
    config->has_peers = false;
}

static void test_devices_that_are_no_peers(void **state)
{
    struct fixture *f = fixture_new(no_peers);
    CUdeviceptr base = pages_reserve(f, 1);
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    (void)state;
    OK(sim_mem_map(f->sim, base, PAGE, 0, page_create(f, 0, 1), 0));
    IS(CUDA_ERROR_INVALID_DEVICE, sim_mem_set_access(f->sim, base, PAGE, &access, 1));
    fixture_end(f);
}

static void test_a_handle_can_be_retained_by_address(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr base = pages_reserve(f, 2);
    CUmemGenericAllocationHandle handle = page_create(f, 0, 2);
    CUmemGenericAllocationHandle again;
    CUmemGenericAllocationHandle late;
    CUdeviceptr plain;
    (void)state;
    OK(sim_mem_map(f->sim, base, 2 * PAGE, 0, handle, 0));
    OK(sim_mem_retain_allocation_handle(f->sim, base + PAGE + 5, &again));
    assert_int_equal(handle, again);
    OK(sim_mem_release(f->sim, handle));
    OK(sim_mem_release(f->sim, handle));
    OK(sim_mem_retain_allocation_handle(f->sim, base, &late));
    OK(sim_mem_unmap(f->sim, base, 2 * PAGE));
    assert_int_equal(counts_of(f).handles, 1);
    OK(sim_mem_release(f->sim, late));
    assert_int_equal(counts_of(f).handles, 0);
    OK(sim_mem_alloc(f->sim, PAGE, &plain));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_retain_allocation_handle(f->sim, plain, &late));
    fixture_end(f);
}

static void small_device(struct sim_config *config)
{
    config->device_bytes = 16 * PAGE;
}

static void test_capacity(void **state)
{
    struct fixture *f = fixture_new(small_device);
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr plain;
    CUdeviceptr ordered;
    size_t free_bytes;
    (void)state;
    (void)page_create(f, 0, 10);
    OK(sim_mem_alloc(f->sim, 3 * PAGE - 5, &plain));
    OK(sim_mem_alloc_async(f->sim, 2 * PAGE, NULL, &ordered));
    OK(sim_mem_get_info(f->sim, &free_bytes, NULL));
    assert_int_equal(free_bytes, PAGE);
    IS(CUDA_ERROR_OUT_OF_MEMORY, sim_mem_create(f->sim, 2 * PAGE, &prop, 0, &handle));
    OK(sim_mem_create(f->sim, PAGE, &prop, 0, &handle));
    IS(CUDA_ERROR_OUT_OF_MEMORY, sim_mem_alloc(f->sim, 1024, &plain));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_create(f->sim, PAGE + 1, &prop, 0, &handle));
    OK(sim_mem_free(f->sim, plain));
    OK(sim_mem_alloc(f->sim, 1024, &plain));
    assert_int_equal(counts_of(f).used_peak_bytes[0], 16 * PAGE);
    fixture_end(f);
}

static void test_address_space(void **state)
{
    struct fixture *f = fixture_new(NULL);
    const uint64_t tib = (uint64_t)1 << 40;
    CUdeviceptr chunks[16];
    CUdeviceptr wished;
    (void)state;
    IS(CUDA_ERROR_OUT_OF_MEMORY, sim_mem_address_reserve(f->sim, 100 * tib, 0, 0, 0, &wished));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_address_reserve(f->sim, PAGE + 1, 0, 0, 0, &wished));
    for (int i = 0; i < 15; i++)
        OK(sim_mem_address_reserve(f->sim, 8 * tib, 0, 0, 0, &chunks[i]));
    IS(CUDA_ERROR_OUT_OF_MEMORY, sim_mem_address_reserve(f->sim, 8 * tib, 0, 0, 0, &chunks[15]));
    OK(sim_mem_address_free(f->sim, chunks[7], 8 * tib));
    OK(sim_mem_address_reserve(f->sim, PAGE, 0, chunks[7] + tib, 0, &wished));
    assert_int_equal(wished, chunks[7] + tib);
    OK(sim_mem_address_reserve(f->sim, PAGE, 0, chunks[3], 0, &wished));
    assert_int_not_equal(wished, chunks[3]);
    assert_int_equal(counts_of(f).reservations, 16);
    fixture_end(f);
}

static void few_mappings(struct sim_config *config)
{
    config->mappings_max = 3;
}

static void test_the_number_of_mappings_is_limited(void **state)
{
    struct fixture *f = fixture_new(few_mappings);
    CUdeviceptr base = pages_reserve(f, 4);
    CUmemGenericAllocationHandle handle = page_create(f, 0, 1);
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    (void)state;
    for (unsigned i = 0; i < 4; i++)
        OK(sim_mem_map(f->sim, base + i * PAGE, PAGE, 0, handle, 0));
    page_access(f, base, 3 * PAGE, 0);
    IS(CUDA_ERROR_OUT_OF_MEMORY, sim_mem_set_access(f->sim, base + 3 * PAGE, PAGE, &access, 1));
    OK(sim_mem_unmap(f->sim, base, PAGE));
    page_access(f, base + 3 * PAGE, PAGE, 0);
    fixture_end(f);
}

static void without_bytes(struct sim_config *config)
{
    config->has_bytes = false;
    config->device_bytes = (uint64_t)256 << 30;
}

/* A device's worth of single pages in 8 TiB. */
static void test_large_counts(void **state)
{
    struct fixture *f = fixture_new(without_bytes);
    enum {
        N = 72000
    };
    static CUmemGenericAllocationHandle handles[N];
    CUdeviceptr base;
    (void)state;
    OK(sim_mem_address_reserve(f->sim, (uint64_t)8 << 40, 0, 0, 0, &base));
    for (unsigned i = 0; i < N; i++) {
        handles[i] = page_create(f, 0, 1);
        OK(sim_mem_map(f->sim, base + i * PAGE, PAGE, 0, handles[i], 0));
    }
    page_access(f, base, N * PAGE, 0);
    OK(sim_memset(f->sim, base, 1, 1, N * PAGE, NULL));
    OK(sim_ctx_synchronize(f->sim));
    OK(sim_mem_unmap(f->sim, base, N * PAGE));
    for (unsigned i = 0; i < N; i++)
        OK(sim_mem_release(f->sim, handles[i]));
    assert_int_equal(counts_of(f).handles, 0);
    fixture_end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_alias_is_two_addresses_of_one_page),
        cmocka_unit_test(test_handles_are_mapped_whole),
        cmocka_unit_test(test_a_range_spans_whole_mappings),
        cmocka_unit_test(test_access_is_needed_and_kept_per_device),
        cmocka_unit_test(test_devices_that_are_no_peers),
        cmocka_unit_test(test_a_handle_can_be_retained_by_address),
        cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_address_space),
        cmocka_unit_test(test_the_number_of_mappings_is_limited),
        cmocka_unit_test(test_large_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
