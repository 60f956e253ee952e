/* SPDX-License-Identifier: MIT */
/* The seam over a driver made of small functions: what is translated, what may be
 * missing, and that the thread's context is always put back. */
#include "real.h"

#include <stdarg.h>
#include <stddef.h>
#include <fcntl.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>
#include <unistd.h>

static struct vpmm_cuda cuda;
static struct vpmm_driver driver;

static int setup(void **state)
{
    (void)state;
    memset(&real, 0, sizeof real);
    real.stack[real.depth++] = 1;
    return vpmm_cuda_init(&cuda, real_lookup, &real, &driver) != VPMM_OK;
}

static vpmm_context_handle context(uintptr_t number)
{
    return (vpmm_context_handle)number;
}

static vpmm_stream_handle stream(uintptr_t number)
{
    return (vpmm_stream_handle)number;
}

static void test_missing_functions(void **state)
{
    (void)state;
    for (size_t i = 0; i < real_n_names; i++) {
        struct vpmm_cuda other;
        struct vpmm_driver seam;
        memset(&seam, 0x55, sizeof seam);
        struct vpmm_driver untouched = seam;
        real.missing = real_names[i].name;
        enum vpmm_status status = vpmm_cuda_init(&other, real_lookup, &real, &seam);
        assert_int_equal(status, real_names[i].required ? VPMM_NOT_SUPPORTED : VPMM_OK);
        if (status)
            assert_memory_equal(&seam, &untouched, sizeof seam);
        else
            assert_int_equal(seam.event_record_context == NULL,
                             strcmp(real_names[i].name, "cuCtxRecordEvent") == 0);
    }
}

/* The names are the driver's exports. A renamed one would be found, and have another signature. */
static void test_exact_names(void **state)
{
    (void)state;
    static const char *const expected[] = {
        "cuMemGetInfo_v2",   "cuDeviceTotalMem_v2", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
        "cuEventDestroy_v2", "cuCtxSynchronize",    "cuCtxGetDevice",      "cuStreamGetCtx",
        "cuEventRecord",     "cuStreamWaitEvent",   "cuStreamIsCapturing"};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        size_t found = 0;
        for (size_t j = 0; j < real_n_names; j++)
            found += strcmp(real_names[j].name, expected[i]) == 0;
        assert_int_equal(found, 1);
    }
}

static void test_translation(void **state)
{
    (void)state;
    static const struct {
        CUresult result;
        enum vpmm_status status;
    } rows[] = {
        {CUDA_SUCCESS, VPMM_OK},
        {CUDA_ERROR_NOT_READY, VPMM_NOT_READY},
        {CUDA_ERROR_OUT_OF_MEMORY, VPMM_NO_MEMORY},
        {CUDA_ERROR_INVALID_VALUE, VPMM_INVALID},
        {CUDA_ERROR_INVALID_HANDLE, VPMM_INVALID},
        {CUDA_ERROR_INVALID_DEVICE, VPMM_INVALID},
        {CUDA_ERROR_NOT_INITIALIZED, VPMM_NO_CONTEXT},
        {CUDA_ERROR_INVALID_CONTEXT, VPMM_NO_CONTEXT},
        {CUDA_ERROR_CONTEXT_IS_DESTROYED, VPMM_CONTEXT_GONE},
        {CUDA_ERROR_DEINITIALIZED, VPMM_SHUT_DOWN},
        {CUDA_ERROR_NOT_SUPPORTED, VPMM_NOT_SUPPORTED},
        {CUDA_ERROR_NOT_PERMITTED, VPMM_NOT_SUPPORTED},
        {CUDA_ERROR_STUB_LIBRARY, VPMM_NOT_SUPPORTED},
        {CUDA_ERROR_NO_DEVICE, VPMM_NOT_SUPPORTED},
        {CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, VPMM_NOT_SUPPORTED},
        {CUDA_ERROR_TOO_MANY_PEERS, VPMM_NOT_SUPPORTED},
        {CUDA_ERROR_CAPTURED_EVENT, VPMM_CAPTURED},
        {CUDA_ERROR_ECC_UNCORRECTABLE, VPMM_BROKEN},
        {CUDA_ERROR_NVLINK_UNCORRECTABLE, VPMM_BROKEN},
        {(CUresult)226, VPMM_BROKEN},
        {CUDA_ERROR_ILLEGAL_ADDRESS, VPMM_BROKEN},
        {CUDA_ERROR_LAUNCH_TIMEOUT, VPMM_BROKEN},
        {CUDA_ERROR_ASSERT, VPMM_BROKEN},
        {CUDA_ERROR_LAUNCH_FAILED, VPMM_BROKEN},
        {(CUresult)721, VPMM_BROKEN},
        {CUDA_ERROR_MPS_CLIENT_TERMINATED, VPMM_BROKEN},
        {CUDA_ERROR_EXTERNAL_DEVICE, VPMM_BROKEN},
        {CUDA_ERROR_UNKNOWN, VPMM_FAILED},
        {CUDA_ERROR_OPERATING_SYSTEM, VPMM_FAILED},
        {(CUresult)4711, VPMM_FAILED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(vpmm_cuda_status(rows[i].result), rows[i].status);
    for (int i = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; i <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
         i++)
        assert_int_equal(vpmm_cuda_status((CUresult)i), VPMM_CAPTURED);
    for (int i = CUDA_ERROR_HARDWARE_STACK_ERROR; i <= CUDA_ERROR_LAUNCH_FAILED; i++)
        assert_int_equal(vpmm_cuda_status((CUresult)i), VPMM_BROKEN);
}

static void test_current_context(void **state)
{
    (void)state;
    vpmm_context_handle handle = context(99);
    assert_int_equal(driver.context_current(driver.self, &handle), VPMM_OK);
    assert_ptr_equal(handle, context(1));
    real.depth = 0;
    handle = context(99);
    assert_int_equal(driver.context_current(driver.self, &handle), VPMM_NO_CONTEXT);
    real.next = CUDA_ERROR_DEINITIALIZED;
    assert_int_equal(driver.context_current(driver.self, &handle), VPMM_SHUT_DOWN);
    assert_ptr_equal(handle, context(99));
}

/* Each operation that needs another context: when all is well, when the operation fails, and when
 * the push does. */
static void test_context_is_put_back(void **state)
{
    (void)state;
    static const CUresult results[] = {CUDA_SUCCESS, CUDA_ERROR_LAUNCH_FAILED};
    for (size_t i = 0; i < 2; i++) {
        enum vpmm_status expected = vpmm_cuda_status(results[i]);
        int device = -1;
        vpmm_event_handle event = NULL;
        real.next = results[i];
        assert_int_equal(driver.context_device(driver.self, context(3), &device), expected);
        assert_int_equal(device, expected ? -1 : 30);
        assert_int_equal(real.asked_in, 3);
        assert_int_equal(real_current(), 1);
        real.next = results[i];
        assert_int_equal(driver.context_synchronize(driver.self, context(4)), expected);
        assert_int_equal(real.asked_in, 4);
        assert_int_equal(real_current(), 1);
        real.next = results[i];
        assert_int_equal(driver.event_create(driver.self, context(5), &event), expected);
        assert_int_equal((uintptr_t)event, expected ? 0 : 9);
        assert_int_equal(real.asked_in, 5);
        assert_int_equal(real_current(), 1);
        assert_int_equal(real.depth, 1);
    }
    assert_int_equal(real.event_flags, CU_EVENT_DISABLE_TIMING);
    static const CUresult pushes[] = {CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED};
    for (size_t i = 0; i < 2; i++) {
        int device = -1;
        vpmm_event_handle event = NULL;
        real.push = pushes[i];
        assert_int_equal(driver.context_device(driver.self, context(3), &device),
                         VPMM_CONTEXT_GONE);
        assert_int_equal(driver.context_synchronize(driver.self, context(3)), VPMM_CONTEXT_GONE);
        assert_int_equal(driver.event_create(driver.self, context(3), &event), VPMM_CONTEXT_GONE);
        assert_int_equal(real.depth, 1);
        assert_int_equal(device, -1);
        assert_null(event);
    }
}

/* Whoever is refused was asked about a context that is gone. */
static void test_context_id(void **state)
{
    (void)state;
    uint64_t id = 0;
    assert_int_equal(driver.context_id(driver.self, context(3), &id), VPMM_OK);
    assert_int_equal(id, 1003);
    const CUresult refusals[] = {CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED};
    for (size_t i = 0; i < 2; i++) {
        real.next = refusals[i];
        assert_int_equal(driver.context_id(driver.self, context(4), &id), VPMM_CONTEXT_GONE);
    }
    assert_int_equal(id, 1003);
    real.missing = "cuCtxGetId";
    assert_int_equal(vpmm_cuda_init(&cuda, real_lookup, &real, &driver), VPMM_OK);
    assert_null(driver.context_id);
}

static void test_create_extras(void **state)
{
    (void)state;
    vpmm_extent_handle extent = 0;
    real.has_fd = real.has_rdma = true;
    assert_int_equal(driver.extent_create(driver.self, 2, 4096, &extent), VPMM_OK);
    assert_int_equal(extent, 4096);
    assert_int_equal(real.n_creates, 1);
    assert_int_equal(real.properties.location.id, 2);
    assert_int_equal(real.properties.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    assert_int_equal(real.properties.type, CU_MEM_ALLOCATION_TYPE_PINNED);
    assert_int_equal(real.properties.requestedHandleTypes,
                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    assert_int_equal(real.properties.allocFlags.gpuDirectRDMACapable, 1);
    real.is_strict = true;
    assert_int_equal(driver.extent_create(driver.self, 2, 8192, &extent), VPMM_OK);
    assert_int_equal(real.n_creates, 3);
    assert_int_equal(real.properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
    assert_int_equal(real.properties.allocFlags.gpuDirectRDMACapable, 0);
}

/* A device with an engine for it; what the driver refuses of it costs no export and no network
 * card.
 */
static void test_create_for_decompression(void **state)
{
    (void)state;
    vpmm_extent_handle extent = 0;
    real.has_fd = real.has_rdma = true;
    assert_int_equal(driver.extent_create(driver.self, 2, 4096, &extent), VPMM_OK);
    assert_int_equal(real.properties.allocFlags.usage, 0);
    real.has_decompression = true;
    assert_int_equal(driver.extent_create(driver.self, 2, 4096, &extent), VPMM_OK);
    assert_int_equal(real.properties.allocFlags.usage, 2);
    real.is_picky = true;
    assert_int_equal(driver.extent_create(driver.self, 2, 8192, &extent), VPMM_OK);
    assert_int_equal(extent, 8192);
    assert_int_equal(real.n_creates, 4);
    assert_int_equal(real.properties.allocFlags.usage, 0);
    assert_int_equal(real.properties.requestedHandleTypes,
                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    assert_int_equal(real.properties.allocFlags.gpuDirectRDMACapable, 1);
}

static void test_create_failures(void **state)
{
    (void)state;
    vpmm_extent_handle extent = 0;
    real.has_fd = true;
    real.next = CUDA_ERROR_OUT_OF_MEMORY;
    assert_int_equal(driver.extent_create(driver.self, 0, 4096, &extent), VPMM_NO_MEMORY);
    assert_int_equal(real.n_creates, 1);
    real.is_strict = true;
    real.next = CUDA_ERROR_OUT_OF_MEMORY;
    assert_int_equal(driver.extent_create(driver.self, 0, 4096, &extent), VPMM_NO_MEMORY);
    assert_int_equal(real.n_creates, 3);
    real.has_fd = false;
    real.next = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(driver.extent_create(driver.self, 0, 4096, &extent), VPMM_INVALID);
    assert_int_equal(real.n_creates, 4);
    assert_int_equal(extent, 0);
}

static void test_sharing(void **state)
{
    (void)state;
    struct vpmm_device_facts facts;
    vpmm_extent_handle extent = 0;
    int descriptor = -1, device = -1, own = open("/dev/null", O_RDONLY);
    assert_int_equal(driver.extent_export(driver.self, (vpmm_extent_handle)own, &descriptor),
                     VPMM_OK);
    assert_int_equal(descriptor, own);
    assert_int_equal(fcntl(own, F_GETFD), FD_CLOEXEC);
    (void)close(own);
    assert_int_equal(driver.extent_import(driver.self, 12, &extent, &device), VPMM_OK);
    assert_int_equal(extent, 12);
    assert_int_equal(device, 3);
    real.unknown = 13;
    assert_int_equal(driver.extent_import(driver.self, 13, &extent, &device), VPMM_INVALID);
    assert_int_equal(real.n_releases, 1);
    real.next = CUDA_ERROR_NOT_PERMITTED;
    assert_int_equal(driver.extent_import(driver.self, 14, &extent, &device), VPMM_NOT_SUPPORTED);
    assert_int_equal(extent, 12);
    real.next = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(driver.extent_export(driver.self, 15, &descriptor), VPMM_INVALID);
    assert_int_equal(descriptor, own);
    for (int has_fd = 0; has_fd < 2; has_fd++) {
        real.has_fd = has_fd;
        assert_int_equal(driver.device_facts(driver.self, 0, &facts), VPMM_OK);
        assert_int_equal(facts.can_export, has_fd);
    }
}

static void test_memory(void **state)
{
    (void)state;
    struct vpmm_device_facts facts;
    uint64_t free_bytes = 0, total_bytes = 0, address = 0;
    bool possible = true;
    int devices[VPMM_DEVICES_MAX + 1] = {3, 5};
    assert_int_equal(driver.device_facts(driver.self, 1, &facts), VPMM_OK);
    assert_int_equal(facts.total_bytes, 2ull << 30);
    assert_int_equal(facts.granularity_bytes, 2u << 20);
    assert_true(facts.has_vmm);
    assert_int_equal(driver.memory_info(driver.self, &free_bytes, &total_bytes), VPMM_OK);
    assert_int_equal(free_bytes, 5);
    assert_int_equal(total_bytes, 7);
    assert_int_equal(driver.peer_possible(driver.self, 0, 1, &possible), VPMM_OK);
    assert_false(possible);
    assert_int_equal(driver.peer_possible(driver.self, 1, 2, &possible), VPMM_OK);
    assert_true(possible);
    real.kept = 1;
    assert_int_equal(driver.default_pool_trim(driver.self, 0), VPMM_OK);
    assert_int_equal(real.kept, 0);
    real.next = CUDA_ERROR_OUT_OF_MEMORY;
    assert_int_equal(driver.address_reserve(driver.self, 64, &address), VPMM_NO_MEMORY);
    assert_int_equal(address, 0);
    assert_int_equal(driver.address_reserve(driver.self, 64, &address), VPMM_OK);
    assert_int_equal(address, 64);
    assert_int_equal(driver.map(driver.self, 64, 64, 4), VPMM_OK);
    assert_int_equal(driver.set_access(driver.self, 64, 64, devices, 2), VPMM_OK);
    assert_int_equal(real.n_access, 2);
    assert_int_equal(real.access[1].location.id, 5);
    assert_int_equal(real.access[1].flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_int_equal(driver.set_access(driver.self, 64, 64, devices, VPMM_DEVICES_MAX + 1),
                     VPMM_INVALID);
    assert_int_equal(driver.unmap(driver.self, 64, 64), VPMM_OK);
    assert_int_equal(driver.extent_release(driver.self, 4), VPMM_OK);
    real.next = CUDA_ERROR_ILLEGAL_ADDRESS;
    assert_int_equal(driver.address_free(driver.self, 64, 64), VPMM_BROKEN);
}

static void test_events(void **state)
{
    (void)state;
    vpmm_event_handle event = NULL;
    int mode = -1;
    assert_int_equal(driver.event_create(driver.self, context(3), &event), VPMM_OK);
    assert_int_equal(driver.event_record(driver.self, event, stream(2)), VPMM_OK);
    assert_int_equal(driver.event_record_context(driver.self, event, context(3)), VPMM_OK);
    real.next = CUDA_ERROR_NOT_READY;
    assert_int_equal(driver.event_query(driver.self, event), VPMM_NOT_READY);
    assert_int_equal(driver.event_synchronize(driver.self, event), VPMM_OK);
    assert_int_equal(driver.stream_wait(driver.self, stream(2), event), VPMM_OK);
    assert_int_equal(driver.event_destroy(driver.self, event), VPMM_OK);
    real.mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    assert_int_equal(driver.capture_relax(driver.self, &mode), VPMM_OK);
    assert_int_equal(real.mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    driver.capture_restore(driver.self, mode);
    assert_int_equal(real.mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    real.next = CUDA_ERROR_DEINITIALIZED;
    assert_int_equal(driver.capture_relax(driver.self, &mode), VPMM_SHUT_DOWN);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        TEST(test_missing_functions),
        TEST(test_exact_names),
        TEST(test_translation),
        TEST(test_current_context),
        TEST(test_context_is_put_back),
        TEST(test_context_id),
        TEST(test_create_extras),
        TEST(test_create_for_decompression),
        TEST(test_create_failures),
        TEST(test_sharing),
        TEST(test_memory),
        /* Streams and events. */
        TEST(test_events),
    };
    return cmocka_run_group_tests_name("driver/cuda", tests, NULL, NULL);
}
