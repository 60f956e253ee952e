/* SPDX-License-Identifier: MIT */
/* Faults on cue, counters, hooks, and a driver that is gone. */
#include "fixture.h"

#include <string.h>

static void test_the_nth_use_fails_once(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle = 1;
    (void)state;
    sim_fault_set(f->sim, "cuMemCreate", 2, CUDA_ERROR_UNKNOWN, false);
    OK(sim_mem_create(f->sim, PAGE, &prop, 0, &handle));
    CUmemGenericAllocationHandle before = handle;
    assert_false(sim_fault_struck(f->sim, "cuMemCreate"));
    IS(CUDA_ERROR_UNKNOWN, sim_mem_create(f->sim, PAGE, &prop, 0, &handle));
    assert_int_equal(handle, before);
    assert_true(sim_fault_struck(f->sim, "cuMemCreate"));
    OK(sim_mem_create(f->sim, PAGE, &prop, 0, &handle));
    assert_int_equal(sim_calls(f->sim, "cuMemCreate"), 3);
    assert_int_equal(counts_of(f).handles, 2);
    fixture_end(f);
}

static void test_a_fault_may_stay(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr address;
    (void)state;
    sim_fault_set(f->sim, "cuMemAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY, true);
    for (int i = 0; i < 3; i++)
        IS(CUDA_ERROR_OUT_OF_MEMORY, sim_mem_alloc(f->sim, PAGE, &address));
    sim_fault_clear(f->sim, "cuMemAlloc");
    OK(sim_mem_alloc(f->sim, PAGE, &address));
    fixture_end(f);
}

/* The loop that a test of undo makes: fail the first call, the second, and so on, until nothing
 * fails. */
static void test_any_call(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr address;
    int failed = 0;
    (void)state;
    for (uint64_t nth = 1;; nth++) {
        sim_fault_set(f->sim, NULL, nth, CUDA_ERROR_UNKNOWN, false);
        CUresult first = sim_mem_address_reserve(f->sim, PAGE, 0, 0, 0, &address);
        CUresult second =
            first == CUDA_SUCCESS ? sim_mem_address_free(f->sim, address, PAGE) : CUDA_SUCCESS;
        if (!sim_fault_struck(f->sim, NULL))
            break;
        failed++;
        if (second != CUDA_SUCCESS)
            OK(sim_mem_address_free(f->sim, address, PAGE));
        sim_fault_clear(f->sim, NULL);
    }
    assert_int_equal(failed, 2);
    sim_calls_reset(f->sim);
    assert_int_equal(sim_calls(f->sim, NULL), 0);
    assert_int_equal(counts_of(f).reservations, 0);
    fixture_end(f);
}

/* The names are the machine's own copies: a caller's may be short-lived. */
static void test_a_faults_name_need_not_last(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr address;
    char name[] = "cuMemAddressReserve";
    (void)state;
    sim_fault_set(f->sim, name, 2, CUDA_ERROR_UNKNOWN, false);
    memset(name, 'x', sizeof name - 1);
    OK(sim_mem_address_reserve(f->sim, PAGE, 0, 0, 0, &address));
    IS(CUDA_ERROR_UNKNOWN, sim_mem_address_reserve(f->sim, PAGE, 0, 0, 0, &address));
    assert_true(sim_fault_struck(f->sim, "cuMemAddressReserve"));
    assert_int_equal(sim_calls(f->sim, "cuMemAddressReserve"), 2);
    fixture_end(f);
}

struct seen {
    struct sim *sim;
    CUdeviceptr address;
    int before, on;
    uint64_t handles, bytes;
};
static struct seen seen;

static void before(void *self, const char *name)
{
    (void)self;
    if (strcmp(name, "cuMemUnmap") != 0)
        return;
    seen.before++;
    OK(sim_mem_address_reserve(seen.sim, PAGE, 0, 0, 0, &seen.address));
}

static void on(void *self, const char *name, uint64_t n_handles, uint64_t bytes)
{
    (void)self;
    if (strcmp(name, "cuMemUnmap") != 0)
        return;
    seen.on++;
    seen.handles = n_handles;
    seen.bytes = bytes;
}

static void hooks(struct sim_config *config)
{
    config->before_call = before;
    config->on_call = on;
}

static void test_hooks(void **state)
{
    struct fixture *f = fixture_new(hooks);
    CUdeviceptr base = pages_reserve(f, 2);
    (void)state;
    seen = (struct seen){.sim = f->sim};
    for (unsigned i = 0; i < 2; i++)
        OK(sim_mem_map(f->sim, base + i * PAGE, PAGE, 0, page_create(f, 0, 1), 0));
    OK(sim_mem_unmap(f->sim, base, 2 * PAGE));
    assert_true(seen.before == 1 && seen.on == 1 && seen.handles == 2 && seen.bytes == 2 * PAGE);
    assert_int_equal(counts_of(f).reservations, 2);
    fixture_end(f);
}

static void test_a_broken_device_and_a_driver_that_is_gone(void **state)
{
    struct fixture *f = fixture_new(NULL);
    CUdeviceptr address;
    CUcontext context;
    (void)state;
    sim_device_break(f->sim, 0, CUDA_ERROR_ECC_UNCORRECTABLE);
    IS(CUDA_ERROR_ECC_UNCORRECTABLE, sim_mem_alloc(f->sim, PAGE, &address));
    sim_device_break(f->sim, 0, CUDA_SUCCESS);
    OK(sim_mem_alloc(f->sim, PAGE, &address));
    sim_shut_down(f->sim);
    IS(CUDA_ERROR_DEINITIALIZED, sim_mem_free(f->sim, address));
    IS(CUDA_ERROR_DEINITIALIZED, sim_ctx_get_current(f->sim, &context));
    fixture_end(f);
}

static void test_senseless_configurations(void **state)
{
    struct sim_config config;
    (void)state;
    sim_config_default(&config);
    config.n_devices = 9;
    assert_null(sim_create(&config));
    sim_config_default(&config);
    config.granularity = 3 * MIB;
    assert_null(sim_create(&config));
}

static void plain_device(struct sim_config *config)
{
    config->has_vmm = false;
}

static void test_a_device_without_vmm(void **state)
{
    struct fixture *f = fixture_new(plain_device);
    CUdeviceptr address;
    (void)state;
    IS(CUDA_ERROR_NOT_SUPPORTED, sim_mem_address_reserve(f->sim, PAGE, 0, 0, 0, &address));
    OK(sim_mem_alloc(f->sim, PAGE, &address));
    fixture_end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_nth_use_fails_once),
        cmocka_unit_test(test_a_fault_may_stay),
        cmocka_unit_test(test_any_call),
        cmocka_unit_test(test_a_faults_name_need_not_last),
        cmocka_unit_test(test_hooks),
        cmocka_unit_test(test_a_broken_device_and_a_driver_that_is_gone),
        cmocka_unit_test(test_senseless_configurations),
        cmocka_unit_test(test_a_device_without_vmm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
