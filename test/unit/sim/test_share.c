/* SPDX-License-Identifier: MIT */
/* Memory that two machines share, as two processes would: its bytes are one file's. */
#define _GNU_SOURCE
#include "fixture.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const CUmemAllocationProp shareable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .requestedHandleTypes =
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static CUdeviceptr mapped(struct fixture *f, CUmemGenericAllocationHandle handle)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address;
    OK(sim_mem_address_reserve(f->sim, PAGE, 0, 0, 0, &address));
    OK(sim_mem_map(f->sim, address, PAGE, 0, handle, 0));
    OK(sim_mem_set_access(f->sim, address, PAGE, &access, 1));
    OK(sim_mem_release(f->sim, handle));
    return address;
}

static void unmapped(struct fixture *f, CUdeviceptr address)
{
    OK(sim_mem_unmap(f->sim, address, PAGE));
    OK(sim_mem_address_free(f->sim, address, PAGE));
}

static void write_now(struct fixture *f, CUdeviceptr address, uint32_t value)
{
    OK(word_write(f, NULL, address, value));
    OK(sim_ctx_synchronize(f->sim));
}

static void test_an_imported_handle_has_the_exporters_bytes(void **state)
{
    (void)state;
    struct fixture *one = fixture_new(eager), *other = fixture_new(eager);
    struct sim_counts counts;
    CUmemGenericAllocationHandle handle, imported;
    int descriptor;
    OK(sim_mem_create(one->sim, PAGE, &shareable, 0, &handle));
    CUdeviceptr here = mapped(one, handle), there;
    write_now(one, here, 5);
    OK(sim_mem_retain_allocation_handle(one->sim, here, &handle));
    OK(sim_mem_export(one->sim, handle, &descriptor));
    OK(sim_mem_release(one->sim, handle));
    assert_int_equal(fcntl(descriptor, F_GETFD), FD_CLOEXEC);
    OK(sim_mem_import(other->sim, descriptor, &imported));
    close(descriptor);
    there = mapped(other, imported);
    assert_int_equal(word_peek(other, 0, there), 5);
    write_now(other, there, 6);
    assert_int_equal(word_peek(one, 0, here), 6);
    sim_live_counts(other->sim, &counts);
    assert_int_equal(counts.used_bytes[0], 0);
    unmapped(one, here);
    assert_int_equal(word_peek(other, 0, there), 6);
    unmapped(other, there);
    fixture_end(one);
    fixture_end(other);
}

static void test_what_cannot_be_exported_or_imported(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(eager);
    CUmemAllocationProp plain = shareable;
    CUmemGenericAllocationHandle handle;
    int descriptor = open("/dev/null", O_RDWR | O_CLOEXEC);
    plain.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    OK(sim_mem_create(f->sim, PAGE, &plain, 0, &handle));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_export(f->sim, handle, &descriptor));
    OK(sim_mem_release(f->sim, handle));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_import(f->sim, descriptor, &handle));
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_import(f->sim, -1, &handle));
    close(descriptor);
    fixture_end(f);
}

/* What the importing process sees; its exit status. */
static int import_all(CUipcMemHandle handle)
{
    struct fixture *f = fixture_new(eager);
    CUdeviceptr address, again;
    OK(sim_ipc_open_mem_handle(f->sim, &handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, &address));
    OK(sim_ipc_open_mem_handle(f->sim, &handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, &again));
    assert_int_equal(address, again);
    assert_int_equal(word_peek(f, 0, address), 8);
    write_now(f, address, 9);
    IS(CUDA_ERROR_INVALID_VALUE, sim_mem_free(f->sim, address));
    OK(sim_ipc_close_mem_handle(f->sim, address));
    OK(sim_ipc_close_mem_handle(f->sim, address));
    IS(CUDA_ERROR_INVALID_VALUE, sim_ipc_close_mem_handle(f->sim, address));
    IS(CUDA_ERROR_INVALID_VALUE, sim_ipc_open_mem_handle(f->sim, &handle, 2, &address));
    memset(&handle, 0, sizeof handle);
    IS(CUDA_ERROR_INVALID_VALUE, sim_ipc_open_mem_handle(f->sim, &handle, 0, &address));
    fixture_end(f);
    return 0;
}

static void test_legacy_handles(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(eager);
    CUipcMemHandle handle, inside;
    CUdeviceptr address, own;
    int status = 0;
    OK(sim_mem_alloc(f->sim, 3 * MIB, &address));
    write_now(f, address, 8);
    OK(sim_ipc_get_mem_handle(f->sim, address, &handle));
    OK(sim_ipc_get_mem_handle(f->sim, address + MIB, &inside));
    assert_memory_equal(&handle, &inside, sizeof handle);
    IS(CUDA_ERROR_INVALID_CONTEXT, sim_ipc_open_mem_handle(f->sim, &handle, 1, &own));
    pid_t child = fork();
    if (child == 0)
        _exit(import_all(handle));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(word_peek(f, 0, address), 9);
    OK(sim_mem_free(f->sim, address));
    IS(CUDA_ERROR_INVALID_VALUE, sim_ipc_get_mem_handle(f->sim, address, &handle));
    OK(sim_mem_alloc_async(f->sim, 3 * MIB, NULL, &address));
    IS(CUDA_ERROR_INVALID_VALUE, sim_ipc_get_mem_handle(f->sim, address, &handle));
    OK(sim_mem_free_async(f->sim, address, NULL));
    fixture_end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_imported_handle_has_the_exporters_bytes),
        cmocka_unit_test(test_what_cannot_be_exported_or_imported),
        cmocka_unit_test(test_legacy_handles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
