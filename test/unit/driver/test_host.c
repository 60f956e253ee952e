/* SPDX-License-Identifier: MIT */
/* The seam's streams of our own, copies and host memory: flags, contexts, and what is missing. */
#include "real.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

static struct vpmm_cuda cuda;
static struct vpmm_driver driver;

#define context ((vpmm_context_handle)(uintptr_t)3)

static int setup(void **state)
{
    (void)state;
    memset(&real, 0, sizeof real);
    real.stack[real.depth++] = 1;
    return vpmm_cuda_init(&cuda, real_lookup, &real, &driver) != VPMM_OK;
}

static void test_missing(void **state)
{
    (void)state;
    real.missing = "cuMemHostUnregister";
    assert_int_equal(vpmm_cuda_init(&cuda, real_lookup, &real, &driver), VPMM_OK);
    assert_null(driver.host_register);
    assert_null(driver.host_unregister);
    assert_non_null(driver.host_alloc);
    real.missing = "cuStreamCreate";
    assert_int_equal(vpmm_cuda_init(&cuda, real_lookup, &real, &driver), VPMM_OK);
    assert_null(driver.stream_create);
    real.missing = "cuMemcpyHtoDAsync_v2";
    assert_int_equal(vpmm_cuda_init(&cuda, real_lookup, &real, &driver), VPMM_OK);
    assert_null(driver.copy_in);
    real.missing = "cuMemFreeHost";
    assert_int_equal(vpmm_cuda_init(&cuda, real_lookup, &real, &driver), VPMM_OK);
    assert_null(driver.host_alloc);
}

static void test_streams(void **state)
{
    (void)state;
    vpmm_stream_handle stream = NULL;
    char bytes[8] = "";
    assert_int_equal(driver.stream_create(driver.self, context, &stream), VPMM_OK);
    assert_int_equal(real.asked_in, 3);
    assert_int_equal(driver.copy_in(driver.self, context, 64, bytes, 8, stream), VPMM_OK);
    assert_int_equal(real.asked_in, 3);
    assert_int_equal(driver.copy_in(driver.self, context, 0, bytes, 8, stream), VPMM_INVALID);
    assert_int_equal(driver.stream_destroy(driver.self, stream), VPMM_OK);
    real.next = CUDA_ERROR_OUT_OF_MEMORY;
    stream = NULL;
    assert_int_equal(driver.stream_create(driver.self, context, &stream), VPMM_NO_MEMORY);
    assert_null(stream);
    assert_int_equal(real_current(), 1);
}

static void test_timed_events(void **state)
{
    (void)state;
    vpmm_event_handle event = NULL;
    uint64_t ns = 7;
    real.event_flags = CU_EVENT_DISABLE_TIMING;
    assert_int_equal(driver.event_create_timed(driver.self, context, &event), VPMM_OK);
    assert_int_equal(real.event_flags, CU_EVENT_DEFAULT);
    assert_int_equal(real_current(), 1);
    assert_int_equal(driver.event_elapsed(driver.self, event, NULL, &ns), VPMM_INVALID);
    assert_int_equal(ns, 7);
    assert_int_equal(driver.event_elapsed(driver.self, event, event, &ns), VPMM_OK);
    assert_int_equal(ns, 2500000);
    real.push = CUDA_ERROR_INVALID_CONTEXT;
    assert_int_equal(driver.event_create_timed(driver.self, context, &event), VPMM_CONTEXT_GONE);
    real.missing = "cuEventElapsedTime";
    assert_int_equal(vpmm_cuda_init(&cuda, real_lookup, &real, &driver), VPMM_OK);
    assert_null(driver.event_create_timed);
    assert_null(driver.event_elapsed);
}

static void test_host_memory(void **state)
{
    (void)state;
    void *memory = NULL;
    assert_int_equal(driver.host_alloc(driver.self, context, 64, &memory), VPMM_OK);
    assert_int_equal(real.host_flags, CU_MEMHOSTALLOC_PORTABLE);
    assert_int_equal(driver.host_free(driver.self, context, memory), VPMM_OK);
    assert_int_equal(driver.host_register(driver.self, context, memory, 64, true),
                     VPMM_NOT_SUPPORTED);
    real.has_host = true;
    assert_int_equal(driver.host_register(driver.self, context, memory, 64, true), VPMM_OK);
    assert_int_equal(real.host_flags, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_READ_ONLY);
    assert_int_equal(driver.host_register(driver.self, context, memory, 64, false), VPMM_OK);
    assert_int_equal(real.host_flags, CU_MEMHOSTREGISTER_PORTABLE);
    assert_int_equal(driver.host_unregister(driver.self, context, memory), VPMM_OK);
    real.push = CUDA_ERROR_INVALID_CONTEXT;
    assert_int_equal(driver.host_alloc(driver.self, context, 64, &memory), VPMM_CONTEXT_GONE);
    assert_int_equal(real_current(), 1);
}

static void test_host_extents(void **state)
{
    (void)state;
    vpmm_extent_handle extent = 0;
    assert_int_equal(driver.extent_create_host(driver.self, 0, 64, &extent), VPMM_NOT_SUPPORTED);
    real.has_host = true;
    assert_int_equal(driver.extent_create_host(driver.self, 0, 64, &extent), VPMM_OK);
    assert_int_equal(extent, 64);
    assert_int_equal(real.properties.location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(test_missing),     TEST(test_streams),      TEST(test_timed_events),
        TEST(test_host_memory), TEST(test_host_extents),
    };
    return cmocka_run_group_tests_name("driver/host", tests, NULL, NULL);
}
